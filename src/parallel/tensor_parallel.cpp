#include "src/parallel/tensor_parallel.h"

#include "src/parallel/flat.h"
#include "src/parallel/parts.h"
#include "src/parallel/rank_ops.h"
#include "src/tensor/context.h"

namespace gradus {

// The input of a pair's first product: all ranks need all tokens, and each makes a part of their gradient.
static Tensor input_of_first(Comm& ranks, Sequence sequence, const Tensor& x) {
  // BEGIN SOLUTION 19.2
  return sequence == Sequence::Whole ? copy_to_ranks(ranks, x) : gather_tokens(ranks, x);
  // STUB: todo("19.2", "the input of a product with this rank's rows of a weight", ranks, sequence, x);
  // END SOLUTION 19.2
}

// The first product, whose weight has some of the rows on each rank.
struct FirstOfPair : LinearVariant {
  Comm& ranks;
  Sequence sequence;
  FirstOfPair(Comm& ranks, Sequence sequence) : ranks(ranks), sequence(sequence) {}
  Tensor operator()(const Linear& l, const Tensor& x) const override {
    if (sequence == Sequence::GatherAgain) return gathered_linear(ranks, x, l.weight.value, l.bias_value());
    return l.product(input_of_first(ranks, sequence, x));
  }
};
// The second product, whose weight has the columns for these rows: each rank makes a part of the sum.
struct SecondOfPair : LinearVariant {
  Comm& ranks;
  Sequence sequence;
  SecondOfPair(Comm& ranks, Sequence sequence) : ranks(ranks), sequence(sequence) {}
  Tensor operator()(const Linear& l, const Tensor& x) const override {
    // BEGIN SOLUTION 19.3
    if (sequence == Sequence::Whole) return sum_from_ranks(ranks, linear(x, l.weight.value), l.bias_value());
    return scatter_sum(ranks, linear(x, l.weight.value), l.bias_value());
    // STUB: todo("19.3", "the sum of the products of all ranks plus the bias once", l, x);
    // END SOLUTION 19.3
  }
};

struct EndsOfRanks : ModelEnds {
  Comm& ranks;
  Sequence sequence;
  int64_t vocab;
  EndsOfRanks(Comm& ranks, Sequence sequence, int64_t vocab)
      : ranks(ranks), sequence(sequence), vocab(vocab) {}
  Tensor embed(const Tensor& table, const Tensor& ids) const override {
    return embedding_of_part(ranks, table, vocab, ids);
  }
  Tensor before_blocks(const Tensor& x) const override {
    return sequence == Sequence::Whole ? x : take_part(ranks, x);
  }
  Tensor after_blocks(const Tensor& x) const override {
    return sequence == Sequence::Whole ? x : whole_tokens(ranks, x);
  }
  Tensor logits(const Tensor&, const Tensor&) const override {
    fail("transformer: ", ranks.size(),
         " ranks have a part of the logits each; use loss(), which needs no more");
  }
  Tensor loss(const Tensor& x, const Tensor& weight, const Tensor& targets,
              const Tensor& count) const override {
    const Tensor part = linear(input_of_first(ranks, sequence, x), weight);
    return cross_entropy_of_part(ranks, part, vocab, targets, count);
  }
};

static void share_out(Comm& ranks, Transformer& model, Sequence sequence, Allocate when) {
  const TransformerConfig& c = model.config;
  const int64_t N = ranks.size(), r = ranks.rank();
  check(c.heads % N == 0, "tensor parallel: ", c.heads, " heads cannot be divided among ", N,
        " ranks; use a number of ranks that divides them");
  check(c.heads_per_kv() == 1 && c.experts == 0,
        "tensor parallel: heads that share keys and values, and experts, cannot be divided; ",
        "set kv_heads and experts to 0");
  check(c.loss_rows == 0, "tensor parallel: the loss is of all rows at once; set loss_rows to 0");
  check(!model.blocks.empty(), "tensor parallel: the model has no blocks");
  check_whole_model("tensor parallel", model);
  check(part_of(c.vocab, N - 1, N).count > 0, "tensor parallel: a vocabulary of ", c.vocab,
        " has no parts for ", N, " ranks");
  std::unordered_set<const Parameter*> done;
  const auto rows = [&](Parameter* p, int64_t all, int64_t groups) {
    if (p) keep_rows(*p, part_of(all, r, N), groups, when), done.insert(p);
  };
  const auto pair = [&](Linear& first, Linear& second, int64_t width, int64_t groups) {
    rows(&first.weight, width, groups);
    rows(first.bias, width, groups);
    keep_columns(second.weight, part_of(width, r, N), when);
    done.insert(&second.weight);
    first.variant = std::make_unique<FirstOfPair>(ranks, sequence);
    second.variant = std::make_unique<SecondOfPair>(ranks, sequence);
  };
  for (TransformerBlock& b : model.blocks) {
    pair(b.c_attn, b.c_proj, c.channels, 3);
    pair(b.c_fc, b.mlp_c_proj, c.hidden_channels(), c.gated() ? 2 : 1);
  }
  for (Parameter& p : model.parameters) {
    if (p.name == "wte.weight" || p.name == "lm_head.weight")
      keep_rows(p, part_of(c.vocab, r, N), 1, when);
    else if (!done.contains(&p))
      keep_whole(p, when);
    p.counted = p.shard || r == 0;
  }
  model.ends = std::make_unique<EndsOfRanks>(ranks, sequence, c.vocab);
  if (sequence == Sequence::Whole) return;
  model.ends->token_part = r, model.ends->token_parts = N;
  for (TransformerBlock& b : model.blocks) b.token_part = r;
}

TensorParallel::TensorParallel(Comm& ranks, Transformer& model, Sequence sequence, Allocate when)
    : ranks_(ranks), model_(model), sequence_(sequence) {
  share_out(ranks, model, sequence, when);
  if (when == Allocate::Now) norm_.emplace(model.parameters, std::vector<Comm*>{&ranks});
}

void TensorParallel::sum_gradients() {
  if (sequence_ == Sequence::Whole) return;
  for (const Parameter& p : model_.parameters) {
    // Each rank uses norms and the second products' biases with its own tokens only.
    if (!p.trainable() || (p.name.find("ln_") == p.name.npos && !p.name.ends_with("c_proj.bias"))) continue;
    check_gradient(p);
    ranks_.all_reduce(p.leaf.grad)->wait();
  }
}

}  // namespace gradus
