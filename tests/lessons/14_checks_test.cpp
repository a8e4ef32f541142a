// Each check of lesson 14 that needs no models passes with right values and fails with a planted wrong value.
#include <cmath>

#include "lessons/14_data_loading/learned.h"
#include "lessons/14_data_loading/waiting.h"
#include "tests/lessons/report_testing.h"

namespace gradus {
namespace {

TEST(L14_Checks, OfWaiting) {
  std::vector<Waiting> right;
  for (const char* name : {"file, one core free", "remote store, one core free"})
    for (const int64_t workers : {0, 1, 2, 4}) {
      Waiting w{{name, 0, true}, workers};
      w.last.losses = {3, 2};
      w.step = 1;
      w.last.peak.by_kind[int(Kind::Data)] = 200;
      w.last.host_peak.by_kind[int(Kind::Data)] = 100 * (2 * workers + 1);
      right.push_back(w);
    }
  const Checked failed(
      right, [](const std::vector<Waiting>& r, Report& report) { report_waiting(r, 100, "", report); });
  for (const size_t run : {1u, 7u})
    EXPECT_EQ(failed([&](auto& r) { r[run].last.losses[1] = std::nextafter(2.0, 3.0); }),
              Names{"losses that differ from the run without workers"});
  EXPECT_EQ(failed([](auto& r) { r[2].waited = 0.5; }), Names{}) << "another number of workers is better";
  EXPECT_EQ(failed([](auto& r) { r[1].waited = r[2].waited = r[3].waited = 0.5; }),
            Names{"computing / step, best number of workers: file, one core free"});
  for (const int64_t more : {-1, 1}) {
    EXPECT_EQ(failed([&](auto& r) { r[3].last.peak.by_kind[int(Kind::Data)] += more; }),
              Names{"bytes of batches: measured - predicted"});
    EXPECT_EQ(failed([&](auto& r) { r[6].last.host_peak.by_kind[int(Kind::Data)] += more; }),
              Names{"bytes of batches: measured - predicted"});
  }
}

TEST(L14_Checks, OfRestartReadsAndDecodedText) {
  const auto restart = [](double loss) {
    return failed_checks([&](Report& r) { check_restart({3, loss}, {3, 2}, r); });
  };
  const auto reads = [](const ReadCounts& counts) {
    return failed_checks([&](Report& r) { check_reads(counts, r); });
  };
  const auto decoded = [](const char* text) {
    return failed_checks([&](Report& r) { check_decoded(text, "text", r); });
  };
  EXPECT_EQ(restart(2), Names{});
  EXPECT_EQ(restart(std::nextafter(2.0, 3.0)), Names{"losses that differ after a restart in mid-epoch"});
  EXPECT_EQ(reads({8, 8, 0, 0}), Names{});
  EXPECT_EQ(reads({8, 7, 1, 0}), Names{"samples read more than once in an epoch"});
  EXPECT_EQ(reads({7, 7, 0, 1}), Names{"samples never read in an epoch"});
  EXPECT_EQ(decoded("text"), Names{});
  EXPECT_EQ(decoded("texts"), Names{"held-out texts that decode differently"});
}

}  // namespace
}  // namespace gradus
