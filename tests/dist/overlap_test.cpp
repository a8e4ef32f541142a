// Overlap hides what the ranks say to each other behind what they compute, on the simulated clock.
#include "tests/dist/parallel_training.h"

namespace gradus {
namespace {

struct Exposed {  // seconds in which a rank only waits
  double forward = 0, backward = 0;
};

constexpr double kBandwidth = 5e5;
// Computing takes as long as its operations; all that is sent takes a fifth of that.
ShardedSetting eight_blocks() {
  ShardedSetting set{.ranks = 2, .steps = 1, .batch = 2, .device = "meta"};
  set.model.layers = 8;
  return set;
}
constexpr int64_t kSteps = 2;  // the second one begins as the first one did
Exposed with_zero(const ZeroArgs& args, int64_t evaluations) {
  const ShardedSetting set = eight_blocks();
  const auto computed = [](int64_t, Context& c) { return double(c.device.meter().flops()) * 1e-6; };
  Exposed e;
  const Network net{.name = "test", .source = "", .link = {0, kBandwidth}};
  run_cluster({.ranks = 2, .device = "meta", .network = net, .computed = computed}, [&](Comm& comm) {
    double before = comm.seconds(), flops = computed(0, current());
    const auto to = [&](double Exposed::*phase) {
      const double now = comm.seconds(), ran = computed(0, current());
      if (phase && comm.rank() == 0) e.*phase += now - before - (ran - flops);
      before = now, flops = ran;
    };
    Transformer model(set.model, Allocate::Later);
    Zero zero(comm, model.parameters, args);
    for (int64_t step = 0; step < kSteps; ++step) {
      zero.model().zero_grad();
      to(nullptr);
      for (int64_t i = 0; i < evaluations; ++i) {
        const Evaluation evaluation;
        share_of_loss(set, model, 0, comm.rank(), 0);
        zero.end_forward();
        to(&Exposed::forward);
      }
      Tape tape;
      to(nullptr);
      const Tensor loss = share_of_loss(set, model, 0, comm.rank(), 0);
      zero.end_forward();
      to(&Exposed::forward);
      tape.backward(loss);
      zero.end_backward();
      to(&Exposed::backward);
    }
  });
  return e;
}

// Each way only the root and one of eight blocks are waited for, also after passes that only evaluate: in each
// the unit after the first is gathered while the first computes.
TEST(L18_Overlap, HidesGathersAndSums) {
  const ShardedSetting set = eight_blocks();
  const int64_t C = set.model.channels, block = 12 * C * C + 13 * C,
                root = (set.model.vocab + set.model.context + 2) * C;
  const auto seconds = [&](int64_t n) { return double(kSteps) * double(n) / 2 * 4 / kBandwidth; };
  const double one = seconds(root + block), all = seconds(root + 8 * block);
  for (const int stage : {0, 1, 2, 3})
    for (const bool keep : {false, true}) {
      if (keep && stage < 3) continue;
      double alone = 0;  // without evaluations
      for (const int64_t evaluations : {0, 2}) {
        ZeroArgs args{.stage = stage, .unit = unit_per_block, .keep_gathered = keep};
        const Exposed plain = with_zero(args, evaluations);
        args.overlap = true;
        const Exposed overlapped = with_zero(args, evaluations);
        const std::string what = text_of(args) + ", evaluations: " + std::to_string(evaluations);
        const double forward = stage == 3 ? 1 + double(evaluations) : 0;
        const int backward = stage == 0 || (stage == 3 && !keep) ? 2 : 1;
        EXPECT_NEAR(plain.forward, forward * all, 1e-6 * all) << what;
        EXPECT_NEAR(overlapped.forward, forward * one, 1e-6 * all) << what;
        EXPECT_NEAR(plain.backward, backward * all, 1e-6 * all) << what;
        EXPECT_LT(overlapped.backward, (backward + 1e-6) * one) << what;
        EXPECT_GT(overlapped.backward, seconds(root)) << what << ": somebody has to wait for the last sum";
        if (evaluations == 0) alone = overlapped.backward;
        EXPECT_NEAR(overlapped.backward, alone, 1e-6 * one) << what;
      }
    }
}

}  // namespace
}  // namespace gradus
