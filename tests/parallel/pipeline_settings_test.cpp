// What pipelines send, parameters that do not train, hooks and scaled losses (src/parallel/pipeline.h,
// layout.h).
#include "tests/parallel/layout_testing.h"
#include "tests/parallel/pipeline_testing.h"

namespace gradus {
namespace {

TEST(L20_PipelineSettings, EachRankSendsOneActivationOrGradientPerTaskThatHasANeighbor) {
  for (const bool bf16 : {false, true})
    for (const auto& [p, v] : {std::pair(2, 1), {4, 1}, {2, 2}, {4, 2}}) {
      TransformerConfig c = small_gpt(8);
      if (bf16) c.precision = mixed(DType::BF16);
      const std::vector<TextBatch> batches = random_micro_batches(c, 4, 3);
      run_cluster({.ranks = p, .seed = 7}, [&, p = p, v = v](Comm& comm) {
        PipelinePart part(comm, c, p * v);
        const Sent before = comm.sent();
        part.pipeline.run(interleaved(p, 4, v), batches, counted_targets(batches));
        const bool end = comm.rank() == 0 || comm.rank() == p - 1;
        const int64_t messages = 4 * (2 * v - end), each = 3 * c.context * c.channels;
        EXPECT_EQ(comm.sent().messages - before.messages, messages) << p << " " << v << " " << comm.rank();
        EXPECT_EQ(comm.sent().elements - before.elements, messages * each)
            << p << " " << v << " " << comm.rank();
        EXPECT_EQ(comm.sent().bytes - before.bytes, messages * each * (bf16 ? 2 : 4));
        const Sent after = comm.sent();
        part.pipeline.sum_tied_gradients();
        EXPECT_TRUE(end || comm.sent().messages == after.messages) << "it has no tied gradient";
      });
    }
}

// A loss that is read on every rank, and gradients of a tied embedding that are equal on the first and the
// last rank.
TEST(L20_PipelineSettings, BothCopiesOfATiedEmbeddingGetTheSameGradient) {
  const TransformerConfig c = small_gpt();
  const std::vector<TextBatch> batches = random_micro_batches(c, 4);
  for (const int64_t p : {2, 4}) {
    std::vector<std::vector<double>> gradients;
    int64_t counted = 0;
    run_cluster({.ranks = p, .seed = 7}, [&](Comm& comm) {
      PipelinePart part(comm, c, p);
      part.pipeline.run(gpipe(p, 4), batches, counted_targets(batches));
      part.pipeline.sum_tied_gradients();
      for (const Parameter& q : part.model.parameters) {
        EXPECT_EQ(q.counted, q.name != "wte.weight" || comm.rank() == 0)
            << q.name << ", rank " << comm.rank();
        if (q.name == "wte.weight") gradients.push_back(to_host<double>(q.leaf.grad)), counted += q.counted;
      }
    });
    ASSERT_EQ(gradients.size(), 2u);
    EXPECT_EQ(gradients[0], gradients[1]);
    EXPECT_EQ(counted, 1);
  }
}

// ---- parameters that do not train ----

using Trains = std::function<bool(const Parameter&)>;
void freeze(Transformer& m, const Trains& trains) {
  for (Parameter& p : m.parameters)
    if (!trains(p)) m.parameters.set_trainable(p, false);
}
void expect_frozen(const std::string& what, const Trains& trains) {
  const TransformerConfig c = small_neox(6);
  const std::vector<TextBatch> batches = random_micro_batches(c, 3);
  const int64_t targets = counted_targets(batches);
  GradientsOf expected;
  {
    Context context("cpu", 7);
    Transformer whole(c);
    whole.initialize(3);
    freeze(whole, trains);
    const Tensor count =
        from_host<float>(context.device, {float(targets)}, {}, DType::F32, Kind::Data, "targets");
    for (const TextBatch& b : batches) {
      context.first_sample = b.first_sample;
      Tape tape;
      tape.backward(
          whole.loss(on_device(b.ids, b.T, "ids"), on_device(b.targets, b.T, "targets"), {}, count));
    }
    for (const Parameter& p : whole.parameters)
      if (p.trainable()) expected[p.name] = to_host<double>(p.leaf.grad);
  }
  for (const int64_t v : {1, 2})
    run_cluster({.ranks = 3, .seed = 7}, [&](Comm& comm) {
      PipelinePart part(comm, c, 3 * v);
      freeze(part.model, trains);
      part.pipeline.run(interleaved(3, 3, v), batches, targets);
      for (const Parameter& p : part.model.parameters) {
        EXPECT_EQ(p.leaf.grad.defined(), p.trainable()) << what << ", " << p.name;
        if (!p.trainable() || !p.leaf.grad.defined()) continue;
        EXPECT_EQ(to_host<double>(p.leaf.grad), expected.at(p.name)) << what << ", " << v << ", " << p.name;
      }
    });
}
bool is_of_block(const Parameter& p, const std::vector<int64_t>& blocks) {
  for (const int64_t b : blocks)
    if (p.name.rfind("h." + std::to_string(b) + ".", 0) == 0) return true;
  return false;
}

TEST(L20_PipelineSettings, FrozenParametersInTheMiddlePassGradientsOn) {
  expect_frozen("the middle rank", [](const Parameter& p) { return !is_of_block(p, {2, 3}); });
  expect_frozen("one block", [](const Parameter& p) { return !is_of_block(p, {3}); });
  expect_frozen("the head", [](const Parameter& p) { return p.name != "lm_head.weight"; });
  expect_frozen("the last rank", [](const Parameter& p) {
    return is_of_block(p, {0, 1, 2, 3}) || p.name == "wte.weight";
  });
  expect_frozen("the embedding", [](const Parameter& p) { return p.name != "wte.weight"; });
}

// With several micro-batches in flight a hook may wait until all are done.
TEST(L20_PipelineSettings, TheLastCallOfAHookSeesTheFinalGradient) {
  const TransformerConfig c = small_neox();
  const std::vector<TextBatch> batches = random_micro_batches(c, 4);
  for (const Schedule& s : {gpipe(2, 4), one_forward_one_backward(2, 4), interleaved(2, 4, 2)})
    run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
      PipelinePart part(comm, c, s.chunks);
      GradientsOf seen, last;
      for (Parameter& p : part.model.parameters)
        p.leaf.on_final = [&seen](Leaf& leaf) { seen[leaf.name] = to_host<double>(leaf.grad); };
      part.pipeline.run(s, batches, counted_targets(batches));
      collect_gradients(part.model, last);
      EXPECT_EQ(seen, last) << text_of(s);
    });
}

// ---- scaled losses: an overflow on one rank skips the update of all ----

TEST(L20_PipelineSettings, AnOverflowSkipsTheUpdateOnAllRanksAsOnOneDevice) {
  LayoutSetting set{.name = "fp16", .model = gpt_of_layouts()};
  set.model.precision = precision_recipe("mixed-fp16");
  struct Seen {
    std::vector<int64_t> updates;
    std::vector<float> scales;
    bool operator==(const Seen&) const = default;
  };
  const auto look = [](Seen& seen, const Optimizer& o) {
    current().end_attempt();
    seen.updates.push_back(o.scalars().updates);
    seen.scales.push_back(current().device.scalars().loss_scale);
  };
  Seen plain;
  {
    Context context("cpu", 7);
    Transformer model(set.model);
    model.initialize(3);
    start_loss_scaling(context.device, float(1 << 24), 2);
    Sgd optimizer(model.parameters);
    for (int64_t step = 0; step < 14; ++step) {
      const TextBatch b = batch_of(set, step);
      model.parameters.zero_grad();
      Tape tape;
      tape.backward(model.loss(on_device(b.ids, b.T, "ids"), on_device(b.targets, b.T, "targets")));
      optimizer.clip_grad_norm(1);
      optimizer.step(1e-3);
      look(plain, optimizer);
    }
  }
  EXPECT_GT(plain.updates.back(), 2);
  EXPECT_LT(plain.updates.back(), 12);
  for (const Layout& l : {Layout{2, 1, 2, 1}, Layout{4, 1, 1, 1}, Layout{2, 2, 1, 1}})
    by_layout(set, l, [&](Comm& comm, TrainedRank& r) {
      start_loss_scaling(current().device, float(1 << 24), 2);
      Seen seen;
      for (int64_t step = 0; step < 14; ++step) {
        r.rank.model.parameters.zero_grad();
        r.rank.run(r.schedule, r.rank.micro_batches(batch_of(set, step), set.micro_batches), set.targets());
        r.optimizer->clip_grad_norm(1);
        r.optimizer->step(1e-3);
        look(seen, *r.optimizer);
      }
      EXPECT_EQ(seen.updates, plain.updates) << l.text() << ", rank " << comm.rank();
      EXPECT_EQ(seen.scales, plain.scales) << l.text() << ", rank " << comm.rank();
    });
}

}  // namespace
}  // namespace gradus
