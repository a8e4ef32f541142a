// Found: where tensors have 1 MiB or more, planned peaks are not the measured ones to the byte; they are too
// small by up to 2.6 % in these models. The difference is in the row `rounding`.
#include "tests/parallel/plan_testing.h"

namespace gradus {
namespace {

TEST(L20_PlanFound, PeaksOfLargeTensorsToTheByte) {
  for (const auto& [channels, context, micro_batches] :
       {std::tuple(128, 256, 2), std::tuple(256, 128, 2), std::tuple(256, 256, 4), std::tuple(320, 64, 2)}) {
    PlanSetting set = plan_setting({2, 1, 1, 1}, micro_batches);
    set.model.channels = channels, set.model.context = context, set.model.layers = 2, set.sequences = 4;
    const std::vector<Usage> peaks = measured_peaks(set, usual_schedule(set), "meta");
    for (size_t rank = 0; rank < peaks.size(); ++rank)
      EXPECT_EQ(plan_of(set).peaks[rank], peaks[rank].allocated())
          << channels << " channels, context " << context << ", rank " << rank
          << peaks[rank].table("measured");
  }
}

}  // namespace
}  // namespace gradus
