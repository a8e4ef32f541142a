// Lesson 17's (b): steps with and without overlap, the checks, and the published figures of machines and
// networks.
#include "lessons/17_data_parallel/scaling.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "src/core/json.h"
#include "tests/folder_testing.h"
#include "tests/lesson_testing.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

struct L17_Scaling : FolderTest {};

TEST_F(L17_Scaling, TheTraceIsThatOfTheOverlappedStep) {
  fs::create_directories(path("build/plots"));
  fs::current_path(path());
  timelines(lesson_with({}, "17_data_parallel"));
  double backward_ends = 0, sums_begin = INFINITY;
  int64_t sums = 0;
  const Json trace = Json::parse(read("build/plots/17_overlapped.json"));
  std::map<int64_t, std::multiset<std::string>> of_rank;
  for (const Json& e : trace.at("traceEvents")) {
    if (e.at("ph") != "X") continue;
    of_rank[e.at("pid").get<int64_t>()].insert(e.at("name").get<std::string>() + json_text(e.at("ts")) + " " +
                                               json_text(e.at("dur")));
    if (e.at("pid") != 0) continue;
    const double begin = e.at("ts").get<double>();
    if (e.at("name") == "backward")
      backward_ends = std::max(backward_ends, begin + e.at("dur").get<double>());
    if (e.at("tid") == 1) sums_begin = std::min(sums_begin, begin), ++sums;
  }
  EXPECT_GT(sums, 3) << "buckets of 25 MiB";
  EXPECT_LT(sums_begin, 0.75 * backward_ends) << "the first bucket is summed while the backward pass goes on";
  EXPECT_EQ(of_rank.size(), 8u);
  for (const auto& [rank, spans] : of_rank)
    EXPECT_EQ(spans, of_rank[0]) << "rank 0 is drawn for all; rank " << rank << " has a different timeline";
}

// The right end of the last bar in each lane: "no overlap" computes and sends, "overlapped" computes and
// sends.
TEST_F(L17_Scaling, ThePictureHasBothStepsOfOneRank) {
  fs::create_directories(path("build/plots"));
  fs::current_path(path());
  timelines(lesson_with({}, "17_data_parallel"));
  std::map<double, double> ends;
  std::istringstream lines(read("build/plots/17_overlapped.svg"));
  for (std::string line; std::getline(lines, line);) {
    double x = 0, y = 0, width = 0, height = 0;
    if (sscanf(line.c_str(), "<rect x='%lf' y='%lf' width='%lf' height='%lf'", &x, &y, &width, &height) ==
            4 &&
        height == 14)
      ends[y] = std::max(ends[y], x + width);
  }
  ASSERT_EQ(ends.size(), 4u);
  const double no_overlap = ends.begin()->second, overlapped = std::next(ends.begin(), 2)->second;
  EXPECT_LT(overlapped, no_overlap - 20) << "overlap makes the step shorter";
}

// Compute takes 10 s; communication 6 s, then 16 s.
TEST_F(L17_Scaling, ItsChecksFailForWrongTimes) {
  const std::vector<ScaledStep> right{
      {"a", 1, 10, 10, 10}, {"a", 8, 10, 16, 15}, {"b", 1, 10, 10, 10}, {"b", 8, 10, 26, 16}};
  const Checked checked(
      right, [&](const auto& steps, Report& r) { scaling_table(steps, {}, path("picture.svg"), r); });
  const auto failed = [&](size_t i, double overlapped) {
    return checked([=](auto& steps) { steps[i].overlapped = overlapped; });
  };
  const std::string longer = "(b), 1 to 64 ranks: overlapped / max(compute, all-reduces), smallest",
                    after = "(b), 1 to 64 ranks: overlapped / no overlap, largest",
                    most = "(b), 1 to 64 ranks: overlapped / no overlap, smallest";
  EXPECT_EQ(failed(1, 9.9), Names{longer}) << "compute takes 10 s";
  EXPECT_EQ(failed(3, 15.9), Names{longer}) << "communication takes 16 s";
  EXPECT_EQ(failed(2, 10.1), Names{after});
  EXPECT_EQ(failed(3, 25), Names{most});
  EXPECT_EQ(failed(3, 27), Names({after, most}));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(failed(i, NAN), Names({longer, after, most})) << i;
}

TEST_F(L17_Scaling, EachNetworkHasItsSteps) {
  RecordProperty("exercise", "17.5");
  constexpr int64_t kBuckets = 13;  // 475 MiB of gradients in fp32, 147 of them one parameter's
  const std::vector<int64_t> ranks{1, 2, 4, 8, 16, 32, 64};
  const std::vector<ScaledStep> steps = scaled_steps(ranks);
  const std::vector<Network> networks = networks_of_a100();
  ASSERT_EQ(steps.size(), networks.size() * ranks.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const ScaledStep& s = steps[i];
    const Network& network = networks[i / ranks.size()];
    EXPECT_EQ(s.network, network.name);
    EXPECT_EQ(s.ranks, ranks[i % ranks.size()]);
    EXPECT_NEAR(s.compute, 0.029, 0.0005) << "one rank does not depend on the network";
    const auto sending = [&](double bytes) {
      return collective_seconds(network, Collective::AllReduce, s.ranks, bytes);
    };
    const double expected = sending(4 * 124'439'808.0) + (kBuckets - 1) * sending(0);
    EXPECT_NEAR(s.no_overlap - s.compute, expected, 1e-6 * expected + 1e-12) << s.network << " " << s.ranks;
  }
}

// llm.c, discussion 481: 524,288 tokens in 300 ms on 8 A100. With 6 N + 12 L C T FLOPs per token (Chowdhery
// et al. 2022, appendix B) this is 60 % of their 312 TFLOP/s; the roofline bound would be 78 %.
TEST_F(L17_Scaling, APublishedRunHasItsPublishedTime) {
  for (const ScaledStep& s : scaled_steps({2}, kPublishedSeconds)) EXPECT_NEAR(s.compute, 0.0375, 1e-9);
  EXPECT_NEAR(860'101'632.0 * 8192 / kPublishedSeconds / 312e12, 0.602, 0.001);
  std::ostringstream out;
  std::streambuf* const before = std::cout.rdbuf(out.rdbuf());
  Device cpu("cpu");
  Report report("17_data_parallel", cpu);
  scaling_table({{"a", 1, 10, 10, 10}, {"a", 8, 10, 16, 15}}, {{"a", 8, 20, 26, 25}}, path("picture.svg"),
                report);
  std::cout.rdbuf(before);
  const std::string table = out.str();
  EXPECT_NE(table.find("roofline bound        10000 "), std::string::npos) << table;
  EXPECT_NE(table.find("published run         20000 "), std::string::npos) << table;
  EXPECT_NE(table.find("llm.c"), std::string::npos) << table;
}

// NVIDIA's data sheets of V100, A100 and H100 (300, 600 and 900 GB/s both ways), of ConnectX-6 and 7 (200 and
// 400 Gb/s); PCI Express: 16 lanes of 8, 16 and 32 GT/s, 128 of 130 bits; IEEE 802.3ba and 802.3ae.
// Latencies: NCCL 2.20.3, src/graph/tuning.cc, a ring with the protocol Simple. The bucket: PyTorch,
// DistributedDataParallel, 25 MiB.
TEST_F(L17_Scaling, PublishedFigures) {
  const struct {
    const char* name;
    double microseconds, gigabytes;
    int64_t per_node;
    double between_microseconds, between_gigabytes;
  } published[] = {{"nvlink2", 3.4, 300 / 2, 0, 0, 1e21},
                   {"nvlink", 3.4, 600 / 2, 0, 0, 1e21},
                   {"nvlink4", 3.4, 900 / 2, 0, 0, 1e21},
                   {"pcie3", 5.7, 15.75, 0, 0, 1e21},
                   {"pcie", 5.7, 31.5, 0, 0, 1e21},
                   {"pcie5", 5.7, 63, 0, 0, 1e21},
                   {"infiniband400", 14.0, 400 / 8.0, 0, 0, 1e21},
                   {"infiniband200", 14.0, 200 / 8.0, 0, 0, 1e21},
                   {"ethernet100", 14.0, 100 / 8.0, 0, 0, 1e21},
                   {"ethernet10", 14.0, 10 / 8.0, 0, 0, 1e21},
                   {"nodes", 3.4, 600 / 2, 8, 14.0, 100 / 8.0}};
  ASSERT_EQ(published_networks().size(), std::size(published));
  for (const auto& p : published) {
    const Network& n = network_called(p.name);
    EXPECT_DOUBLE_EQ(n.link.latency, p.microseconds * 1e-6) << p.name;
    EXPECT_DOUBLE_EQ(n.link.bandwidth, p.gigabytes * 1e9) << p.name;
    EXPECT_EQ(n.per_node, p.per_node) << p.name;
    EXPECT_DOUBLE_EQ(n.between.latency, p.between_microseconds * 1e-6) << p.name;
    EXPECT_DOUBLE_EQ(n.between.bandwidth, p.between_gigabytes * 1e9) << p.name;
  }
  for (const int giga_transfers : {8, 16, 32})
    EXPECT_NEAR(31.5 * giga_transfers / 16, 16 * giga_transfers / 8.0 * 128 / 130, 0.02);
  EXPECT_EQ(networks_of_a100().size(), 5u);
  EXPECT_EQ(kPyTorchBucket, 25 * 1024 * 1024);
}

}  // namespace
}  // namespace gradus
