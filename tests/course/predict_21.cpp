// The questions of 21.5: places, FLOPs, bytes and elements sent of a block with the student's own numbers,
// measured on meta.
#include <sstream>

#include "src/parallel/comm/cluster.h"
#include "src/parallel/expert_parallel.h"
#include "tests/course/predict.h"

namespace gradus::predict {

namespace {

struct OwnMixture {
  TransformerConfig model;
  int64_t ranks, sequences;  // sequences of all ranks together
};

OwnMixture own_mixture(Own& own) {
  OwnMixture m{{.vocab = 8,
                .context = 64 * own.between(1, 6),
                .layers = 1,
                .heads = 1,
                .channels = 16 * own.between(2, 9),
                .activation = swiglu,
                .norm = NormKind::Rms,
                .biases = false,
                .mlp_channels = 16 * own.between(2, 12),
                .experts = own.of({8, 16, 32}),
                .chosen = own.of({2, 4}),
                .capacity_factor = double(own.of({100, 125, 150, 200})) / 100},
               own.of({2, 4, 8}),
               1};
  m.sequences = m.ranks * own.between(1, 4);
  return m;
}

// Computes a forward and a backward pass on every rank, then calls f(comm, model).
template <class F>
void on_ranks(const OwnMixture& m, F f) {
  run_cluster({.ranks = m.ranks, .device = "meta"}, [&](Comm& comm) {
    Transformer model(m.model, Allocate::Later);
    const ExpertParallel experts(comm, model);
    const Shape shape{m.sequences / m.ranks, m.model.context};
    const Tensor ids(current().device, shape, DType::I32, Kind::Data, "ids");
    Tape tape;
    tape.backward(model.loss(ids, ids));
    f(comm, model);
  });
}

double places(const OwnMixture& m) {
  Context meta("meta", 1);
  const Tensor logits(meta.device, {1, m.model.context, m.model.experts}, DType::F32, Kind::Other, "logits");
  return double(
      choose_experts(logits, m.model.chosen, m.model.expert_capacity(m.model.context)).tokens.shape()[2]);
}

double expert_weights(const OwnMixture& m) {
  Context meta("meta", 1);
  double n = 0;
  for (const Parameter& p : Transformer(m.model).parameters)
    if (p.name.find(".experts.") != p.name.npos) n += double(p.value.numel());
  return n;
}

double expert_flops(const OwnMixture& m) {
  Context meta("meta", 1);
  const Transformer model(m.model);
  const TransformerConfig& c = m.model;
  const TransformerBlock& b = model.blocks[0];
  const Tensor rows(meta.device, {c.experts, 1, c.expert_capacity(c.context), c.channels}, DType::F32,
                    Kind::Other, "rows");
  meta.device.meter().reset_totals();
  b.mlp_c_proj(c.activation(b.c_fc(rows)));
  return double(meta.device.meter().totals(OpClass::Contraction).flops);
}

}  // namespace

static Quiz quiz(const std::string& student) {
  Own own(student, "21.5");
  const OwnMixture m = own_mixture(own);
  const TransformerConfig& c = m.model;
  std::ostringstream setting;
  setting << "Your block has " << c.experts << " experts, which are gated MLPs of width " << c.mlp_channels
          << ". The model has " << c.channels << " channels. Each token is routed to " << c.chosen
          << " experts. A sequence has " << c.context << " tokens, and the capacity factor is "
          << c.capacity_factor << ". With expert parallelism on " << m.ranks
          << " ranks, all ranks together read " << m.sequences << " sequences.";
  return {setting.str(),
          {{"21.5", "places", "how many places does an expert have per sequence?",
            measured([=] { return places(m); })},
           {"21.5", "weights", "how many weights do all experts of the block have together?",
            measured([=] { return expert_weights(m); })},
           {"21.5", "flops",
            "how many FLOPs do the experts' matrix products take for one sequence in the forward pass?",
            measured([=] { return expert_flops(m); })},
           {"21.5", "sent",
            "how many elements does a rank send to experts and back in one forward and one backward pass?",
            measured([=] {
              double sent = 0;
              on_ranks(m, [&](Comm& comm, const Transformer&) { sent = double(comm.sent().elements); });
              return sent;
            })},
           {"21.5", "bytes", "how many bytes do the expert weights of one rank have in fp32?", measured([=] {
              double bytes = 0;
              on_ranks(m, [&](Comm&, const Transformer& model) {
                bytes = 0;
                for (const Parameter& p : model.parameters)
                  if (p.shard) bytes += double(p.value.bytes());
              });
              return bytes;
            })}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "21", gradus::predict::quiz); }
