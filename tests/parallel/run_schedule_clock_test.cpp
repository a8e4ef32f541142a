// The clock of run_schedule (src/parallel/pipeline.h): a step takes as long as play() says, messages
// overlapped.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/core/rng.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/pipeline.h"

namespace gradus {
namespace {

constexpr int64_t kNumel = 1000;

// Takes the time of each chunk, without computing anything.
struct TimedWork : PipelineWork {
  const std::vector<ChunkTimes>& times;
  double& seconds;
  TimedWork(const std::vector<ChunkTimes>& times, double& seconds) : times(times), seconds(seconds) {}
  static Tensor made() { return {current().device, {kNumel}, DType::F32, Kind::Temporary, "made"}; }
  Tensor forward(int64_t, int64_t chunk, Tensor) override {
    seconds += times[size_t(chunk)].forward;
    return made();
  }
  Tensor backward(int64_t, int64_t chunk, Tensor) override {
    seconds += times[size_t(chunk)].backward;
    return made();
  }
};

enum class Takes { Latency, Bytes };
double seconds_of(const Schedule& s, const std::vector<ChunkTimes>& times, double link,
                  Takes takes = Takes::Latency) {
  std::vector<double> computed(size_t(s.ranks()), 0);
  Network network{.name = "", .source = "", .link = {.latency = link}};
  if (takes == Takes::Bytes) network.link = {.latency = 0, .bandwidth = double(kNumel * 4) / link};
  const ClusterRun run =
      run_cluster({.ranks = s.ranks(),
                   .device = "meta",
                   .network = network,
                   .computed = [&](int64_t rank, Context&) { return computed[size_t(rank)]; }},
                  [&](Comm& comm) {
                    TimedWork work(times, computed[size_t(comm.rank())]);
                    run_schedule(comm, s, {kNumel}, DType::F32, work);
                  });
  return *std::max_element(run.seconds.begin(), run.seconds.end());
}

std::vector<Schedule> all_schedules() {
  std::vector<Schedule> all;
  for (const int64_t p : {2, 3, 4})
    for (const int64_t m : {1, 2, 4, 7}) {
      all.push_back(gpipe(p, m)), all.push_back(one_forward_one_backward(p, m));
      for (const int64_t v : {2, 3}) all.push_back(interleaved(p, p * m, v));
    }
  return all;
}

TEST(L20_RunScheduleClock, IsPlaysWhereLinksCostNothing) {
  Rng rng(5, 1);
  for (const Schedule& s : all_schedules())
    for (const bool equal : {true, false}) {
      std::vector<ChunkTimes> times(size_t(s.chunks), {1, 2});
      for (ChunkTimes& t : times)
        if (!equal) t = {0.5 + rng.uniform(), 0.5 + rng.uniform()};
      EXPECT_NEAR(seconds_of(s, times, 0) / play(s, times).seconds, 1, 1e-9) << text_of(s);
    }
}

// If the sender, or a task that does not need it, waited for a message, the step would take longer.
TEST(L20_RunScheduleClock, IsPlaysWithMessagesThatTakeLessThanATask) {
  double most = 1;
  for (const Schedule& s : all_schedules())
    for (const double link : {0.01, 0.125, 0.5}) {
      const std::vector<ChunkTimes> times(size_t(s.chunks), {1, 2});
      for (const Takes takes : {Takes::Latency, Takes::Bytes}) {
        const double ratio = seconds_of(s, times, link, takes) /
                             play(s, times, std::vector<double>(size_t(s.ranks()), link)).seconds;
        EXPECT_GE(ratio, 1 - 1e-9) << text_of(s) << link << ": earlier than possible";
        most = std::max(most, ratio);
      }
    }
  EXPECT_LE(most, 1 + 1e-9);
}

}  // namespace
}  // namespace gradus
