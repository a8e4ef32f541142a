// Seconds of plans (src/parallel/plan.h) compared with steps of simulated ranks on meta, whose kernels take
// the least time of a machine.
#include "tests/parallel/plan_testing.h"

namespace gradus {
namespace {

const Network kNetwork{.name = "", .source = "", .link = {.latency = 1e-5, .bandwidth = 1e10}};
const Network kNodes{.name = "",
                     .source = "",
                     .link = {.latency = 1e-6, .bandwidth = 1e11},
                     .per_node = 2,
                     .between = kNetwork.link};

// The seconds of the third step.
double measured_seconds(const PlanSetting& set, const Schedule& schedule) {
  std::vector<double> before(size_t(set.layout.ranks())), end = before;
  run_cluster(
      {.ranks = set.layout.ranks(),
       .device = "meta",
       .seed = 7,
       .network = set.network,
       .computed = [&](int64_t, Context& c) { return predicted_seconds(c.device.meter(), set.machine); },
       .made = [](int64_t, Context& c) { c.device.meter().keep_trace(); }},
      [&](Comm& comm) {
        RankModel rank(comm, set.layout, set.model,
                       set.ends.empty() ? even_cuts(set.model.layers, schedule.chunks) : set.ends,
                       set.sequence);
        if (set.keep != Keep::All) rank.model.segments.assign(rank.model.blocks.size(), {1, set.keep});
        rank.initialize(3);
        AdamW optimizer(rank.zero.shards);
        const LayoutSetting batches{
            .name = "", .model = set.model, .sequences = set.sequences * set.micro_batches * set.layout.data};
        for (int64_t step = 0; step < 3; ++step) {
          before[size_t(comm.rank())] = comm.seconds();
          rank.model.parameters.zero_grad();
          rank.run(schedule, rank.micro_batches(batch_of(batches, step), set.micro_batches),
                   batches.targets());
          optimizer.step(1e-3);
          end[size_t(comm.rank())] = comm.seconds();
        }
      });
  return *std::max_element(end.begin(), end.end()) - *std::max_element(before.begin(), before.end());
}

// Settings of many layouts: 2 sequences per micro-batch, 4 micro-batches.
std::vector<PlanSetting> all_settings_of(const Network& network, bool free) {
  std::vector<PlanSetting> all;
  for (const int64_t p : {1, 2, 4})
    for (const int64_t t : {1, 2})
      for (const int64_t d : {1, 2})
        for (const int64_t c : {1, 2})
          for (const int64_t v : {1, 2})
            for (const OutputHead head : {OutputHead::Tied, OutputHead::Untied}) {
              if (v > 1 && p == 1) continue;
              PlanSetting set = plan_setting({p, d, t, c});
              set.chunks_per_rank = v;
              set.model.layers = 8, set.model.channels = 128, set.model.context = 64,
              set.model.output_head = head;
              set.machine = machine_called("A100");
              if (!free) set.network = network;
              all.push_back(set);
            }
  return all;
}
std::string text_of(const PlanSetting& set) {
  return set.layout.text() + ", " + std::to_string(set.chunks_per_rank) + " chunks per rank, keep " +
         std::to_string(int(set.keep)) + ", sequence form " + std::to_string(int(set.sequence));
}

TEST(L20_PlanSeconds, AreExactWhereLinksCostNothing) {
  for (PlanSetting& set : all_settings_of({}, true)) {
    const double measured = measured_seconds(set, usual_schedule(set));
    EXPECT_NEAR(plan_of(set).seconds / measured, 1, 1e-9) << text_of(set);
    if (set.layout.tensor == 1 || set.layout.context > 1) continue;
    for (const Sequence sequence : {Sequence::KeepGathered, Sequence::GatherAgain}) {
      set.sequence = sequence, set.keep = Keep::Input;
      EXPECT_NEAR(plan_of(set).seconds / measured_seconds(set, usual_schedule(set)), 1, 1e-9) << text_of(set);
    }
  }
}

TEST(L20_PlanSeconds, AreExactForSchedulesWrittenByHandToo) {
  PlanSetting set = all_settings_of({}, true)[0];
  set.layout = {2, 1, 1, 1}, set.micro_batches = 3;
  const std::vector<RankUse> uses = measure_ranks(set);
  for (const Schedule& s : {gpipe(2, 3), schedule_of_text("F0 F1 F2 B2 B1 B0\nF0 F1 F2 B2 B1 B0\n"),
                            schedule_of_text("F2 F0 B2 F1 B0 B1\nF2 B2 F0 B0 F1 B1\n")})
    EXPECT_NEAR(plan_of(set, s, uses).seconds / measured_seconds(set, s), 1, 1e-9) << text_of(s);
}

TEST(L20_PlanSeconds, AreAtMostThoseOfARealStepWithANetworkAndNotMuchLess) {
  double least = 1;
  std::vector<PlanSetting> all = all_settings_of(kNetwork, false);
  for (const PlanSetting& set : all_settings_of(kNodes, false))
    if (set.layout.ranks() % kNodes.per_node == 0) all.push_back(set);
  for (const PlanSetting& set : all) {
    const double ratio = plan_of(set).seconds / measured_seconds(set, usual_schedule(set));
    EXPECT_LE(ratio, 1 + 1e-9) << text_of(set) << ": the plan is not a lower bound";
    EXPECT_TRUE(set.layout.pipeline > 1 || std::abs(ratio - 1) <= 1e-9) << text_of(set) << ratio;
    // Between these nodes messages take longer than tasks, and delay each other.
    if (set.network.per_node == 0) least = std::min(least, ratio);
  }
  std::printf("plan / measured seconds, least: %.3f\n", least);
  EXPECT_GE(least,
            0.85);  // because 4 ranks with 2 chunks each, and 2 tensor ranks, wait for each other's messages
}

// Messages between nodes take longer than within a node: each must be given the time of its own link. Stages
// with equal times wait for messages in every micro-batch; if these take less time than tasks, they do not
// delay each other, and the plan is exact.
TEST(L20_PlanSeconds, EachBoundaryHasItsOwnLink) {
  for (const int64_t per_node : {1, 2, 4})
    for (const Layout& layout : {Layout{4, 1, 1, 1}, Layout{2, 2, 1, 1}}) {
      PlanSetting set = plan_setting(layout, 6);
      set.model.layers = 16, set.model.channels = 128, set.model.context = 64, set.model.vocab = 2;
      set.machine = machine_called("A100");
      const double task = measure_ranks(set)[0].of({Pass::Forward, 0, 0}).seconds;
      set.network = {.name = "",
                     .source = "",
                     .link = {.latency = 0.1 * task},
                     .per_node = per_node,
                     .between = {.latency = 0.8 * task}};
      const double seconds = plan_of(set).seconds;
      EXPECT_NEAR(seconds / measured_seconds(set, usual_schedule(set)), 1, 1e-9)
          << set.layout.text() << " in nodes of " << per_node;
      set.network.between = set.network.link;
      EXPECT_EQ(plan_of(set).seconds<seconds, layout.ranks()> per_node);
    }
}

// If all micro-batches are measured, ranks use what the plan says, and the step takes as long as a real one.
TEST(L20_PlanSeconds, AWholeStepIsMeasuredToo) {
  for (const PlanSetting& set : all_settings_of(kNetwork, false)) {
    const Schedule schedule = usual_schedule(set);
    const std::vector<RankUse> uses = measure_ranks(set, schedule);
    const Plan plan = plan_of(set);
    double seconds = 0;
    for (size_t r = 0; r < uses.size(); ++r) {
      EXPECT_EQ(uses[r].peak(), plan.peaks[r]) << text_of(set) << ", rank " << r;
      seconds = std::max(seconds, uses[r].step_seconds);
    }
    EXPECT_EQ(plan.largest_peak(), *std::max_element(plan.peaks.begin(), plan.peaks.end()));
    EXPECT_NEAR(seconds / measured_seconds(set, schedule), 1, 1e-9) << text_of(set);
  }
}

// Ranks with equal times wait for (p - 1) / (m v + p - 1) of the time, and in addition for the head.
TEST(L20_PlanSeconds, TheBubbleIsThePublishedOneWhereChunksTakeAsLong) {
  PlanSetting set = plan_setting({4, 1, 1, 1}, 8);
  set.model.layers = 64, set.model.channels = 128, set.model.context = 64, set.model.vocab = 2;
  set.machine = machine_called("A100");
  for (const int64_t v : {1, 2}) {
    set.chunks_per_rank = v;
    EXPECT_NEAR(plan_of(set).bubble, 3.0 / double(8 * v + 3), 0.02) << v;
  }
}

TEST(L20_PlanSeconds, WithoutAMachineComputingTakesNoTime) {
  PlanSetting set = plan_setting({2, 1, 1, 1});
  EXPECT_LT(plan_of(set).seconds, 1e-20);  // a link without a name has 1e30 bytes per second
  set.network = kNetwork;
  const Plan plan = plan_of(set);
  EXPECT_GT(plan.seconds, 2 * kNetwork.link.latency);
  EXPECT_FALSE(std::isnan(plan.bubble));
}

TEST(L20_PlanSeconds, WhatCannotRunIsRefused) {
  const auto refused = [](const std::function<void(PlanSetting&)>& change) {
    PlanSetting set = plan_setting({2, 1, 1, 1});
    change(set);
    return refusal([&] { plan_of(set); });
  };
  EXPECT_EQ(refused([](PlanSetting&) {}), "");
  EXPECT_NE(refused([](PlanSetting& s) { s.layout.pipeline = 8; }), "") << "more stages than blocks";
  EXPECT_NE(refused([](PlanSetting& s) { s.chunks_per_rank = 2, s.micro_batches = 3; }), "")
      << "3 in groups of 2";
  EXPECT_NE(refused([](PlanSetting& s) { s.layout.tensor = 3; }), "") << "heads";
  EXPECT_NE(refused([](PlanSetting& s) { s.ends = {4}; }), "") << "one chunk for two ranks";
  EXPECT_NE(refused([](PlanSetting& s) { s.micro_batches = 0; }), "") << "nothing to do";
  EXPECT_NE(refused([](PlanSetting& s) { s.sequences = 0; }), "") << "no sequences";
  EXPECT_NE(refused([](PlanSetting& s) { s.chunks_per_rank = 0; }), "") << "no chunks";
  EXPECT_NE(refused([](PlanSetting& s) { s.layout.data = 0; }), "") << "no ranks";
  const PlanSetting set = plan_setting({2, 1, 1, 1});
  const std::vector<RankUse> uses = measure_ranks(set);
  Schedule wrong = gpipe(2, 4);
  wrong.of_rank[1].pop_back();
  EXPECT_NE(refusal([&] { plan_of(set, wrong, uses); }), "") << "a task is missing";
  EXPECT_NE(refusal([&] { plan_of(set, gpipe(4, 4), uses); }), "") << "4 ranks";
  EXPECT_NE(refusal([&] { plan_of(set, interleaved(2, 4, 2), uses); }), "") << "2 chunks per rank";
}

// Planning does not change the caller's context, and does not need one.
TEST(L20_PlanSeconds, MeasuringDoesNotTouchTheCurrentContext) {
  const PlanSetting set = plan_setting({2, 1, 1, 1});
  const std::vector<int64_t> peaks = plan_of(set).peaks;
  Context context("cpu", 5);
  Tape tape;
  const Usage before = context.device.meter().now();
  EXPECT_EQ(plan_of(set).peaks, peaks);
  EXPECT_EQ(&current(), &context);
  EXPECT_EQ(context.tape(), &tape);
  EXPECT_TRUE(tape.nodes().empty());
  EXPECT_EQ(context.device.meter().now(), before);
}

}  // namespace
}  // namespace gradus
