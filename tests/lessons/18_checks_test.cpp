// Each check of lesson 18 passes with right values, and fails with a planted wrong value.
#include <cmath>

#include "lessons/17_data_parallel/scaling.h"
#include "lessons/18_zero/memory.h"
#include "lessons/18_zero/stages.h"
#include "lessons/18_zero/units.h"
#include "lessons/18_zero/what_if.h"
#include "tests/folder_testing.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

using Plant = std::function<void(int64_t rank, ShardedRun&)>;

// A run of 1,000 parameters, padded to 1,008, in fp32 on 2 ranks.
ShardedRun right_run(const ZeroArgs& zero) {
  const int64_t bytes[] = {8 * 1008 + 8 * 1000, 8 * 1008 + 8 * 504, 4 * 1008 + 12 * 504, 16 * 504};
  ShardedRun run;
  run.weights = {{1, 2}, {3}}, run.seconds = {0.1};
  run.parameters = 1000, run.padded = 1008;
  run.sent = zero.stage < 3 || zero.keep_gathered ? 2 * 504 : 3 * 504;
  run.between.by_kind[int(Kind::Weight)] = bytes[zero.stage] - 3;
  for (const Kind k : {Kind::Master, Kind::Gradient, Kind::Optimizer}) run.between.by_kind[int(k)] = 1;
  run.between.by_kind[int(Kind::Activation)] = 77;
  return run;
}
Names failed_stages(const Plant& plant, int only_stage = -1) {
  Context context;
  RanksArgs args;
  args.ranks = 2;
  return failed_checks([&](Report& report) {
    compare_stages(
        args, {}, {{{1, 2}, {3}}, 0},
        [&](Comm& comm, const ZeroArgs& zero, const Stretch&) {
          ShardedRun run = right_run(zero);
          if (only_stage < 0 || zero.stage == only_stage) plant(comm.rank(), run);
          return run;
        },
        report);
  });
}
// The names of a check in each row.
Names of_all_stages(const char* check) {
  Names names;
  for (const char* stage : {"stage 0", "stage 1", "stage 2", "stage 3", "stage 3, one unit",
                            "stage 3, prefetch", "SHARD_GRAD_OP"})
    names.push_back(stage + std::string(check));
  return names;
}

TEST(L18_Checks, StagesOfEachRank) {
  EXPECT_EQ(failed_stages([](int64_t, ShardedRun&) {}), Names{});
  const Names bytes = of_all_stages(": bytes of model states between steps"),
              sent = of_all_stages(": elements sent per rank"),
              unlike = of_all_stages(": parameters that differ bitwise from the single-device run");
  for (const int64_t wrong : {0, 1}) {
    const auto failed = [&](const std::function<void(ShardedRun&)>& plant) {
      return failed_stages([&](int64_t rank, ShardedRun& run) {
        if (rank == wrong) plant(run);
      });
    };
    for (const Kind kind : {Kind::Weight, Kind::Master, Kind::Gradient, Kind::Optimizer})
      EXPECT_EQ(failed([=](ShardedRun& r) { ++r.between.by_kind[int(kind)]; }), bytes) << "rank " << wrong;
    EXPECT_EQ(failed([](ShardedRun& r) { --r.between.by_kind[int(Kind::Weight)]; }),
              wrong == 0 ? bytes : Names{})
        << "the last ranks keep less";
    for (const int64_t more : {-1, 1})
      EXPECT_EQ(failed([=](ShardedRun& r) { r.sent += more; }), sent) << "rank " << wrong;
    EXPECT_EQ(failed([](ShardedRun& r) { r.weights[0][1] = std::nextafter(2, 3); }), unlike)
        << "rank " << wrong;
    EXPECT_EQ(failed([](ShardedRun& r) { r.weights[1][0] = NAN; }), unlike) << "rank " << wrong;
    EXPECT_EQ(failed([](ShardedRun& r) { r.weights.pop_back(); }), unlike) << "rank " << wrong;
  }
}

TEST(L18_Checks, AWrongValueOfOneStageFailsItsCheckOnly) {
  EXPECT_EQ(failed_stages([](int64_t, ShardedRun& r) { ++r.between.by_kind[int(Kind::Gradient)]; }, 1),
            Names{"stage 1: bytes of model states between steps"});
  EXPECT_EQ(failed_stages([](int64_t, ShardedRun& r) { ++r.sent; }, 2),
            Names{"stage 2: elements sent per rank"});
  EXPECT_EQ(failed_stages([](int64_t rank, ShardedRun& r) { r.weights[0][0] += rank; }, 0),
            Names{"stage 0: parameters that differ bitwise from the single-device run"});
}

TEST(L18_Checks, ResumedRuns) {
  Context context;
  ParallelTask task;
  task.steps = 7;
  std::string calls;
  const auto failed = [&](int64_t ranks, int64_t wrong, const std::function<void(ShardedRun&)>& plant) {
    calls.clear();
    return failed_checks([&](Report& report) {
      resume(
          {}, task,
          [&](Comm& comm, const ZeroArgs& zero, const Stretch& s) {
            ShardedRun run = right_run(zero);
            if (comm.rank() == 0)
              calls += std::to_string(comm.size()) + ": " + s.load + std::to_string(s.from) + "-" +
                       std::to_string(s.to) + s.save + " ";
            if (!s.load.empty() && comm.size() == ranks && comm.rank() == wrong) plant(run);
            return run;
          },
          "file", report);
    });
  };
  EXPECT_EQ(failed(0, 0, {}), Names{});
  EXPECT_EQ(calls, "4: 0-7 4: 0-3file 4: file3-7 2: file3-7 8: file3-7 ");
  for (const auto& [ranks, wrong] : {std::pair(4, 0), {4, 3}, {2, 1}, {8, 0}, {8, 7}}) {
    const Names name{"saved by 4 ranks, resumed by " + std::to_string(ranks) + ": difference of weights"};
    const auto with = [&](double off) {
      return failed(ranks, wrong, [=](ShardedRun& r) { r.weights[0][1] += off; });
    };
    EXPECT_EQ(with(1e-9), ranks == 4 ? name : Names{}) << "sums in a different order round differently";
    for (const double off : {1.1e-4, -1.1e-4, double(NAN)}) EXPECT_EQ(with(off), name) << off;
    EXPECT_EQ(failed(ranks, wrong, [](ShardedRun& r) { r.weights.pop_back(); }), name);
    EXPECT_EQ(failed(ranks, wrong, [](ShardedRun& r) { r.weights[0].pop_back(); }), name);
  }
}

struct L18_Tables : FolderTest {};

// The measured bytes and elements are what the formulas of L18_Formulas predict.
TEST_F(L18_Tables, MemoryOfEachStage) {
  const std::vector<StageMemory> right = measure_stages();
  ASSERT_EQ(right.size(), 20u);
  const Checked failed(right,
                       [&](const auto& rows, Report& r) { memory_table(rows, path("picture.svg"), r); });
  for (const size_t i : {0u, 12u, 19u}) {
    for (const Kind kind : {Kind::Weight, Kind::Master, Kind::Gradient, Kind::Optimizer})
      EXPECT_EQ(failed([=](auto& rows) { --rows[i].measured.by_kind[int(kind)]; }),
                Names{"(a) bytes of a kind that differ from the prediction, of 80"});
    for (const int k : {0, 1})
      EXPECT_EQ(failed([=](auto& rows) { ++rows[i].sent[k]; }),
                Names{"(a) elements sent that differ from the prediction, of 40"});
  }
}

// Rajbhandari et al. 2020, table 1, 7.5B parameters.
TEST_F(L18_Tables, PublishedFigures) {
  const struct {
    int64_t ranks;
    const char* printed[3];
  } table_1[] = {{1, {"120", "120", "120"}},      {4, {"52.5", "41.3", "30"}},
                 {16, {"35.6", "21.6", "7.5"}},   {64, {"31.4", "16.6", "1.88"}},
                 {256, {"30.4", "15.4", "0.47"}}, {1024, {"30.1", "15.1", "0.12"}}};
  const std::vector<PublishedStates> printed = zero_table_1();
  ASSERT_EQ(printed.size(), std::size(table_1));
  for (size_t i = 0; i < printed.size(); ++i) {
    EXPECT_EQ(printed[i].ranks, table_1[i].ranks);
    for (const int s : {0, 1, 2}) EXPECT_EQ(printed[i].printed[s], table_1[i].printed[s]) << printed[i].ranks;
  }
}

TEST_F(L18_Tables, ModelStatesAreThePublishedOnes) {
  const std::vector<PublishedStates> right = published_states(64);
  ASSERT_EQ(right.size(), 4u);
  for (const PublishedStates& row : right) {
    const double n = double(row.ranks), each[] = {4 + 12 / n, 2 + 14 / n, 16 / n};
    for (const int s : {0, 1, 2}) EXPECT_NEAR(row.here[s], 7.5 * each[s], 1e-4 * 7.5 * each[s]) << n;
  }
  const Checked failed(right, published_table);
  const Names name{"(b) values that differ from the published ones, of 12"};
  for (const double here : {119.4, 120.6, double(NAN)})
    EXPECT_EQ(failed([=](auto& rows) { rows[0].here[0] = here; }), name) << here;
  EXPECT_EQ(failed([](auto& rows) { rows[3].here[2] = 1.8852; }), name);
  EXPECT_EQ(failed([](auto& rows) { rows[3].printed[2] = "1.89"; }), name);
  EXPECT_EQ(failed([](auto& rows) { rows[3].printed[1] = "16.7"; }), name);
}

TEST_F(L18_Tables, Units) {
  const std::vector<UnitsRun> right = run_units();
  const Checked failed(right, units_table);
  const struct {
    const char* name;
    int64_t gathered;
    double sent;
  } expected[] = {{"one unit", 1664000, 3},
                  {"a unit per layer", 16640, 2.99},
                  {"a unit per layer, prefetch", 33280, 3},
                  {"a unit per layer, SHARD_GRAD_OP", 1664000, 2}};
  ASSERT_EQ(right.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(right[i].name, expected[i].name);
    EXPECT_EQ(right[i].gathered, expected[i].gathered) << right[i].name;
    EXPECT_NEAR(right[i].sent, expected[i].sent, 1e-12) << right[i].name;
    for (const int64_t more : {-1, 1})
      EXPECT_EQ(failed([=](auto& runs) { runs[i].gathered += more; }),
                Names{"(c) " + right[i].name + ": bytes gathered at once"});
  }
}

TEST_F(L18_Tables, Times) {
  const WhatIf small{.model = "gpt2", .ranks = 8};
  const std::vector<StageTimes> right = stage_times(small);
  ASSERT_EQ(right.size(), networks_of_a100().size());
  const Checked failed(right, [&](const auto& times, Report& r) { times_table(small, times, r); });
  size_t at = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    const StageTimes& t = right[i];
    EXPECT_EQ(t.network, networks_of_a100()[i].name);
    if (t.network == "ethernet10") at = i;
    EXPECT_EQ(t.alone, right[0].alone);
    EXPECT_GT(t.stage_1, 0.97 * t.alone) << "each rank updates only its shard, which takes less time";
    EXPECT_GE(t.stage_2, 0.999 * t.stage_1) << "the same elements in more messages";
    EXPECT_GT(t.stage_3, t.kept) << t.network;
  }
  // 2 bytes of each of 124,439,808 parameters, 7/8 of them twice, at 1.25 GB/s.
  EXPECT_NEAR(right[at].stage_1 - right[at].alone, 4 * 124439808.0 * 7 / 8 / 1.25e9, 0.01);
  const Names least{"(d) stage 3 / stage 1 at 10 Gb/s, lower bound (3 Psi / 2 Psi = 1.5)"},
      most{"(d) stage 3 / stage 1 at 10 Gb/s, upper bound"};
  const auto with = [&](double ratio) {
    return failed([=](auto& times) { times[at].stage_3 = ratio * times[at].stage_1; });
  };
  EXPECT_EQ(with(1.39), least);
  EXPECT_EQ(with(1.61), most);
  EXPECT_EQ(with(NAN), Names({least[0], most[0]}));
  EXPECT_EQ(failed([](auto& times) { times.resize(1); }), Names({least[0], most[0]})) << "no row for 10 Gb/s";
}

// NVLink 2 on V100, 4 on H100 and H200; a network that the user names is used.
TEST(L18_WhatIf, AMachineChoosesItsLinkUnlessTheUserDoes) {
  const auto link = [](const char* machine, const char* network) {
    return network_of({.machine = machine, .network = network}).link.bandwidth;
  };
  EXPECT_EQ(link("T4", "auto"), 15.75e9);
  EXPECT_EQ(link("V100", "auto"), 150e9);
  EXPECT_EQ(link("A100", "auto"), 300e9);
  EXPECT_EQ(link("H100", "auto"), 450e9);
  EXPECT_EQ(link("H200", "auto"), 450e9);
  EXPECT_EQ(link("V100", "nvlink"), 300e9);
  const Network nodes = network_of({.machine = "V100"}), published = network_called("nodes");
  EXPECT_EQ(nodes.per_node, 8);
  EXPECT_EQ(nodes.between.bandwidth, published.between.bandwidth);
  EXPECT_EQ(nodes.between.latency, published.between.latency);
}

// 1,557,611,200 parameters with 16 bytes, and with 16/64; with the activations stage 0 needs more than 32
// GiB.
TEST(L18_WhatIf, WhatFitsOnSixtyFourV100) {
  testing::internal::CaptureStdout();
  what_if_table({.model = "gpt2-xl", .machine = "V100", .ranks = 64});
  std::istringstream lines(testing::internal::GetCapturedStdout());
  const Names expected{"0 23.2 GiB 33.4 GiB no", "1 6.1 GiB 15.9 GiB yes", "2 3.2 GiB 13.2 GiB yes",
                       "3 371.4 MiB 10.5 GiB yes"};
  size_t stage = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string row, word;
    for (int i = 0; i < 6 && words >> word; ++i) row += (i ? " " : "") + word;
    if (stage < 4 && row == expected[stage]) ++stage;
  }
  EXPECT_EQ(stage, 4u) << "row " << stage << " of the table is missing or different";
}

}  // namespace
}  // namespace gradus
