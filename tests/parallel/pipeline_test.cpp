// Pipeline parallelism (src/parallel/pipeline.h): gradients of every schedule are bitwise equal to those of
// one device.
#include "src/parallel/pipeline.h"

#include "src/parallel/comm/cluster.h"
#include "src/train/dummy.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Gradients = std::map<std::string, std::vector<double>>;

std::vector<TextBatch> micro_batches(const TransformerConfig& c, int64_t m, int64_t B) {
  std::vector<TextBatch> all;
  Rng rng(11, 0);
  const auto row = [&] {
    std::vector<int32_t> ids(size_t(B * c.context));
    for (int32_t& id : ids) id = int32_t(rng.below(uint64_t(c.vocab)));
    return ids;
  };
  for (int64_t i = 0; i < m; ++i) all.push_back({B, c.context, row(), row(), i * B});
  return all;
}

void collect(const Transformer& model, Gradients& all) {
  for (const Parameter& p : model.parameters) all[p.name] = to_host<double>(p.leaf.grad);
}

// One device, one micro-batch after the other. The head has a separate buffer for the gradient of a tied
// embedding, which is added in the end.
Gradients accumulated(const TransformerConfig& c, const std::vector<TextBatch>& batches, double& loss) {
  Context context("cpu", 7);
  Transformer body(c, Allocate::Now, {.ranges = {{0, c.layers}}, .head = false}),
      head(c, Allocate::Now, {.ranges = {{c.layers, c.layers}}, .embedding = false});
  body.initialize(3), head.initialize(3);
  const int64_t targets = int64_t(batches.size()) * batches[0].sequences * c.context;
  const Tensor count =
      from_host<float>(context.device, {float(targets)}, {}, DType::F32, Kind::Data, "targets");
  loss = 0;
  for (const TextBatch& b : batches) {
    context.first_sample = b.first_sample;
    Tape tape;
    const Tensor y = body.through_blocks(body.embed(on_device(b.ids, b.T, "ids")));
    const Tensor l = head.head_loss(y, on_device(b.targets, b.T, "targets"), count);
    loss += item(l);
    tape.backward(l);
  }
  Gradients all;
  if (c.output_head == OutputHead::Tied)
    cast(head.parameters.find("wte.weight").leaf.grad, body.parameters.find("wte.weight").leaf.grad.add());
  collect(head, all), collect(body, all);
  return all;
}

Gradients pipelined(const TransformerConfig& c, const std::vector<TextBatch>& batches,
                    const Schedule& schedule, const std::vector<int64_t>& ends, double& loss) {
  Gradients all;
  run_cluster({.ranks = schedule.ranks(), .seed = 7}, [&](Comm& comm) {
    Transformer model(c, Allocate::Now, part_of_pipeline(ends, comm.rank(), comm.size()));
    model.initialize(3);
    Pipeline pipeline(comm, model);
    const double mine =
        pipeline.run(schedule, batches, int64_t(batches.size()) * batches[0].sequences * c.context);
    pipeline.sum_tied_gradients();
    if (comm.rank() == comm.size() - 1) loss = mine;
    collect(model, all);
  });
  return all;
}

TEST(L20_Pipeline, GradientsOfEverySchedule) {
  const TransformerConfig c{
      .vocab = 19, .context = 6, .layers = 8, .heads = 2, .channels = 8, .dropout = 0.1};
  for (const int64_t m : {4, 8, 16, 32}) {
    const std::vector<TextBatch> batches = micro_batches(c, m, 2);
    double expected_loss, loss;
    const Gradients expected = accumulated(c, batches, expected_loss);
    for (const int64_t p : {1, 2, 4, 8})
      for (const int64_t v : {1, 2, 4}) {
        if (p * v > c.layers || (p == 1 && v > 1) || (v > 1 && m % p != 0)) continue;
        std::vector<int64_t> ends;
        for (int64_t k = 1; k <= p * v; ++k) ends.push_back(k * c.layers / (p * v));
        for (const Schedule& s : {interleaved(p, m, v), gpipe(p, m)}) {
          if (s.chunks != p * v) continue;
          const Gradients all = pipelined(c, batches, s, ends, loss);
          if (p == 1) continue;  // one rank has one buffer
          EXPECT_EQ(loss, expected_loss) << p << " ranks, " << v;
          EXPECT_EQ(all, expected) << p << " ranks, " << v << " chunks each, " << m << " micro-batches";
        }
      }
  }
}

}  // namespace
}  // namespace gradus
