// For tests of pipelines: batches, gradients on one device, and those of a pipeline.
#pragma once
#include <cmath>
#include <map>

#include "src/parallel/comm/cluster.h"
#include "src/parallel/pipeline.h"
#include "src/train/dummy.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"

namespace gradus {

using GradientsOf = std::map<std::string, std::vector<double>>;  // by parameter

inline TransformerConfig small_gpt(int64_t layers = 4, double dropout = 0.1) {
  return {.vocab = 19, .context = 6, .layers = layers, .heads = 2, .channels = 8, .dropout = dropout};
}
inline TransformerConfig small_neox(int64_t layers = 4, double dropout = 0.1) {
  TransformerConfig c = small_gpt(layers, dropout);
  c.residual = Residual::Parallel, c.output_head = OutputHead::Untied, c.activation = gelu_erf, c.rotary = 2;
  return c;
}

// m micro-batches of B sequences; the first one has number `first` in the step.
inline std::vector<TextBatch> random_micro_batches(const TransformerConfig& c, int64_t m, int64_t B = 2,
                                                   uint64_t seed = 11, int64_t first = 0) {
  std::vector<TextBatch> all;
  Rng rng(seed, 0);
  const auto row = [&] {
    std::vector<int32_t> ids(size_t(B * c.context));
    for (int32_t& id : ids) id = int32_t(rng.below(uint64_t(c.vocab)));
    return ids;
  };
  for (int64_t i = 0; i < m; ++i) all.push_back({B, c.context, row(), row(), first + i * B});
  return all;
}
inline int64_t counted_targets(const std::vector<TextBatch>& batches) {
  int64_t n = 0;
  for (const TextBatch& b : batches) n += b.counted();
  return n;
}

inline void collect_gradients(const Transformer& model, GradientsOf& all) {
  for (const Parameter& p : model.parameters) all[p.name] = to_host<double>(p.leaf.grad);
}

struct PipelineReference {
  double loss = 0;
  GradientsOf gradients;
};
// One device, one micro-batch after the other. The head has a separate buffer for the gradient of a tied
// embedding, which is added in the end.
inline PipelineReference on_one_device(const TransformerConfig& c, const std::vector<TextBatch>& batches,
                                       int64_t targets, const std::string& device = "cpu") {
  Context context(device, 7);
  Transformer body(c, Allocate::Now, {.ranges = {{0, c.layers}}, .head = false}),
      head(c, Allocate::Now, {.ranges = {{c.layers, c.layers}}, .embedding = false});
  body.initialize(3), head.initialize(3);
  const Tensor count =
      from_host<float>(context.device, {float(targets)}, {}, DType::F32, Kind::Data, "targets");
  PipelineReference result;
  for (const TextBatch& b : batches) {
    context.first_sample = b.first_sample;
    Tape tape;
    const Tensor y = body.through_blocks(body.embed(on_device(b.ids, b.T, "ids")));
    const Tensor l = head.head_loss(y, on_device(b.targets, b.T, "targets"), count);
    result.loss += item(l);
    tape.backward(l);
  }
  if (c.output_head == OutputHead::Tied)
    cast(head.parameters.find("wte.weight").leaf.grad, body.parameters.find("wte.weight").leaf.grad.add());
  collect_gradients(head, result.gradients), collect_gradients(body, result.gradients);
  return result;
}

// A rank's part of a model, with its initial weights, and its pipeline.
struct PipelinePart {
  Transformer model;
  Pipeline pipeline;
  PipelinePart(Comm& comm, const TransformerConfig& c, int64_t chunks)
      : model(c, Allocate::Now, part_of_pipeline(even_cuts(c.layers, chunks), comm.rank(), comm.size())),
        pipeline(comm, model) {
    model.initialize(3);
  }
};

// Checks that this rank has these gradients, and the last rank this loss, bitwise.
inline void expect_part(const Comm& comm, const Transformer& model, double loss,
                        const PipelineReference& expected, const std::string& what) {
  const std::string rank = what + ", rank " + std::to_string(comm.rank());
  EXPECT_EQ(loss, comm.rank() == comm.size() - 1 ? expected.loss : 0) << rank;
  for (const Parameter& p : model.parameters) {
    ASSERT_TRUE(p.leaf.grad.defined()) << rank << ", " << p.name;
    EXPECT_EQ(to_host<double>(p.leaf.grad), expected.gradients.at(p.name)) << rank << ", " << p.name;
  }
}

}  // namespace gradus
