// ZeRO in 16 bits: the bound is 0, because sums of ranks are made in fp32 and rounded once, and the reference
// does the same. And overflows, that one rank alone may see.
#include "tests/dist/parallel_training.h"

namespace gradus {
namespace {

struct Ended {
  Weights weights, kept;
  StepScalars scalars;
  int64_t updates = 0;
};
Ended reference(const ShardedSetting& set, int stage) {
  Ended end;
  end.weights = train_on_one_rank(set, summed_by(stage), make_adamw, [&](Transformer& m, Optimizer& o) {
    for (const Parameter& p : m.parameters) end.kept.push_back(to_host<double>(p.kept()));
    current().end_attempt();
    end.scalars = current().device.scalars(), end.updates = o.scalars().updates;
  });
  return end;
}

void expect_end(const ShardedSetting& set, const ZeroArgs& args, const Ended& expected) {
  KeptParts kept;
  const std::string what = text_of(args) + ", " + text_of(set);
  run_cluster(cluster_of(set), [&](Comm& comm) {
    train_with_zero(set, comm, args, [&](Transformer& model, Zero& zero, Optimizer& o) {
      expect_weights(model, expected.weights, what);
      current().end_attempt();
      const StepScalars s = current().device.scalars();
      EXPECT_EQ(s.loss_scale, expected.scalars.loss_scale) << what;
      EXPECT_EQ(o.scalars().updates, expected.updates) << what;
      EXPECT_EQ(s.good_updates, expected.scalars.good_updates) << what;
      EXPECT_EQ(s.step, expected.scalars.step) << what;
      comm.barrier();  // in rank order:
      for (int64_t r = 0; r < comm.size(); ++r) {
        if (r == comm.rank()) add_kept(kept, comm, zero, args.stage);
        comm.barrier();
      }
    });
  });
  Context context(set.device, 3);
  const Transformer model(set.model);
  size_t i = 0;
  for (const Parameter& p : model.parameters)
    EXPECT_EQ(kept[p.name], expected.kept[i++]) << what << ", what is kept of " << p.name;
}

ShardedSetting setting(const char* recipe, int64_t ranks, int64_t k) {
  ShardedSetting set{.ranks = ranks, .micro_batches = k, .steps = 4, .batch = 2 * ranks * k, .max_norm = 0};
  set.model.layers = 2, set.model.precision = precision_recipe(recipe);
  if (std::string(recipe) != "mixed")
    set.prepare = [](Transformer&) { start_loss_scaling(current().device, 1024, 2); };
  return set;
}

TEST(L18_ZeroPrecision, WeightsAndMastersAreThoseOfOneRank) {
  for (const char* recipe : {"fp32", "mixed", "mixed-fp16", "zero", "half"})
    for (const auto& [ranks, k] : std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {3, 2}}) {
      const ShardedSetting set = setting(recipe, ranks, k);
      const Ended by_step = reference(set, 0), by_micro = reference(set, 3);
      EXPECT_GT(by_step.updates, 0);
      for (const ZeroArgs& args : all_ways()) {
        SCOPED_TRACE(recipe);
        expect_end(set, args, args.stage >= 2 ? by_micro : by_step);
      }
    }
}

TEST(L18_ZeroPrecision, OnTheEmulatedGpu) {
  ShardedSetting set = setting("zero", 2, 2);
  set.device = "emu", set.steps = 2, set.model.layers = 1, set.model.context = 4;
  for (const ZeroArgs& args : some_ways()) expect_end(set, args, reference(set, args.stage));
}

// Of one rank alone, in one micro-batch of it.
TEST(L18_ZeroPrecision, AnOverflowOfOneRankIsSkippedByAll) {
  for (const char* recipe : {"mixed-fp16", "zero"})
    for (const int64_t who : {0, 2}) {
      ShardedSetting set = setting(recipe, 3, 2);
      set.bend = [&](const Tensor& loss, int64_t step, int64_t rank) {
        return step == 1 && rank == who ? scale(loss, 3e38) : loss;
      };
      for (const ZeroArgs& args : some_ways()) {
        const Ended expected = reference(set, args.stage);
        EXPECT_EQ(expected.updates, set.steps - 1);
        EXPECT_EQ(expected.scalars.loss_scale, 1024);  // halved once, doubled once
        expect_end(set, args, expected);
      }
    }
}

// An element that is infinite is of one rank's part alone, and comes from one rank.
TEST(L18_ZeroPrecision, AnOverflowInOnePartIsSkippedByAll) {
  for (const int64_t from : {0, 1})
    for (const size_t where : {0, 7})
      for (const int stage : {0, 1, 2, 3})
        run_cluster({.ranks = 2}, [&](Comm& comm) {
          Parameters model(Allocate::Later);
          Parameter& p = model.add("p", {8}, {});
          Zero zero(comm, model, {.stage = stage});
          zero.assign(p, std::vector<double>(8, 1));
          AdamW optimizer(zero.shards);
          start_loss_scaling(current().device, 8);
          for (const float bad : {INFINITY, -INFINITY, NAN, 0.5f}) {
            zero.model().zero_grad();
            std::vector<float> dy(8, 8);
            if (comm.rank() == from) dy[where] = bad;
            Tape tape;
            const Tensor y = scale(p.value, 1);
            zero.end_forward();
            tape.backward(y, from_host(current().device, dy, {8}, DType::F32, Kind::Data, "dy"));
            zero.end_backward();
            optimizer.clip_grad_norm(0);
            optimizer.step(0.5);
            const double after = bad == 0.5f ? 0.5 : 1;
            for (const double value : to_host<double>(p.value)) EXPECT_NEAR(value, after, 1e-6) << stage;
          }
          current().end_attempt();
          EXPECT_EQ(current().device.scalars().loss_scale, 1) << stage;
          EXPECT_EQ(optimizer.scalars().updates, 1) << stage;
        });
}

}  // namespace
}  // namespace gradus
