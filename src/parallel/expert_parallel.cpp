#include "src/parallel/expert_parallel.h"

#include "src/parallel/flat.h"
#include "src/parallel/parts.h"
#include "src/parallel/rank_ops.h"

namespace gradus {

// The experts' first product reads the tokens that all ranks send to this rank's experts.
struct FirstOfExperts : LinearVariant {
  Comm& ranks;
  explicit FirstOfExperts(Comm& ranks) : ranks(ranks) {}
  Tensor operator()(const Linear& l, const Tensor& x) const override {
    return l.product(to_experts(ranks, x));
  }
};
// The outputs of the experts' second product go back to the tokens' ranks.
struct SecondOfExperts : LinearVariant {
  Comm& ranks;
  explicit SecondOfExperts(Comm& ranks) : ranks(ranks) {}
  Tensor operator()(const Linear& l, const Tensor& x) const override {
    return from_experts(ranks, l.product(x));
  }
};

ExpertParallel::ExpertParallel(Comm& ranks, Transformer& model) : ranks_(ranks), model_(model) {
  const int64_t E = model.config.experts, N = ranks.size();
  check(E > 0, "expert parallel: the model has no experts; set experts, for example to 8");
  check(E % N == 0, "expert parallel: ", E, " experts cannot be divided among ", N,
        " ranks; use a number of ranks that divides them");
  check_whole_model("expert parallel", model);
  std::unordered_set<const Parameter*> of_experts;
  for (TransformerBlock& b : model.blocks) {
    for (Parameter* p : {&b.c_fc.weight, &b.mlp_c_proj.weight}) {
      keep_rows(*p, part_of(E, ranks.rank(), N), 1, Allocate::Now);
      of_experts.insert(p);
    }
    b.c_fc.variant = std::make_unique<FirstOfExperts>(ranks);
    b.mlp_c_proj.variant = std::make_unique<SecondOfExperts>(ranks);
  }
  for (Parameter& p : model.parameters)
    if (!of_experts.contains(&p)) keep_whole(p, Allocate::Now);
  norm_.emplace(model.parameters, std::vector<Comm*>{&ranks});
}

void ExpertParallel::sum_gradients() {
  for (const Parameter& p : model_.parameters) {
    if (!p.trainable() || p.shard) continue;
    check_gradient(p);
    ranks_.all_reduce(p.leaf.grad)->wait();
  }
}

}  // namespace gradus
