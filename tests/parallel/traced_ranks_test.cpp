// Ranks that are profiled: their communication is in their ranges, and nothing else changes.
#include <gtest/gtest.h>

#include "src/parallel/comm/cluster.h"
#include "src/train/profiler.h"

namespace gradus {
namespace {

TEST(L17_TracedRanks, CallsAreRangesWithTheirBytesAndSumsTheSame) {
  for (const char* device : {"cpu", "emu"}) {
    std::vector<std::unique_ptr<Profiler>> profilers;
    ClusterArgs args{.ranks = 3, .device = device};
    args.made = [&](int64_t rank, Context& context) {
      EXPECT_EQ(rank, int64_t(profilers.size()));
      EXPECT_EQ(&current(), &context);
      profilers.push_back(std::make_unique<Profiler>(context));
      profilers.back()->begin();
    };
    std::vector<float> sums[3];
    run_cluster(args, [&](Comm& comm) {
      Device& own = current().device;
      const Tensor x =
          from_host(own, std::vector<float>(7, float(comm.rank() + 1)), {7}, DType::F32, Kind::Comm, "x");
      comm.all_reduce(x)->wait();
      if (comm.rank() == 0) comm.send(x, 1)->wait();
      if (comm.rank() == 1) comm.recv(x, 0)->wait();
      sums[comm.rank()] = to_host<float>(x);
    });
    for (const std::vector<float>& sum : sums) EXPECT_EQ(sum, std::vector<float>(7, 6.0f)) << device;
    int64_t kernels = 0;
    for (size_t r = 0; r < 3; ++r) {
      int64_t all_reduces = 0, messages = 0;
      EXPECT_FALSE(profilers[r]->records()) << "it must end with its context";
      for (const ProfileEvent& e : profilers[r]->events()) {
        if (*e.name == "all_reduce" && e.cost.bytes > 0) {
          ++all_reduces;
          EXPECT_EQ(e.cost.bytes, 4 * (r < 2 ? 4 + 2 * 3 : 6 + 2 * 1))
              << "of 7 elements, 3, 3 and 1 are owned";
        }
        messages += *e.name == "send" || *e.name == "recv";
        kernels += e.track == ProfileTrack::Kernels;
      }
      EXPECT_EQ(all_reduces, 1);
      EXPECT_EQ(messages, r < 2 ? 2 : 0) << "one range for the begin, one for the wait";
    }
    EXPECT_EQ(kernels, 3 * (3 + 1)) << "each owner adds three parts, and writes the sum";
  }
}

}  // namespace
}  // namespace gradus
