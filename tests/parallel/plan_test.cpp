// Plans of layouts (src/parallel/plan.h): exact peaks, measured on devices that compute and on meta.
#include "tests/parallel/plan_testing.h"

namespace gradus {
namespace {

struct Planned {
  std::string name;
  PlanSetting set;
  std::vector<Schedule> schedules = {};  // empty: the usual one
  std::vector<const char*> devices = {"cpu", "meta"};
};

void expect_peaks(const Planned& p) {
  const std::vector<RankUse> uses = measure_ranks(p.set);
  const std::vector<Schedule> schedules =
      p.schedules.empty() ? std::vector{usual_schedule(p.set)} : p.schedules;
  for (const Schedule& s : schedules) {
    const Plan plan = plan_of(p.set, s, uses);
    ASSERT_EQ(int64_t(plan.peaks.size()), p.set.layout.ranks());
    EXPECT_TRUE(!p.schedules.empty() || plan_of(p.set).peaks == plan.peaks) << p.name;
    for (const char* device : p.devices) {
      const std::vector<Usage> peaks = measured_peaks(p.set, s, device);
      for (size_t rank = 0; rank < peaks.size(); ++rank)
        EXPECT_EQ(plan.peaks[rank], peaks[rank].allocated())
            << p.name << ", " << p.set.layout.text() << ", " << device << ", rank " << rank << "\n"
            << text_of(s) << peaks[rank].table("measured");
    }
  }
}

std::vector<Layout> all_of(int64_t ranks, const PlanSetting& set) {
  const LayoutSetting batches{.name = "",
                              .model = set.model,
                              .sequences = 1 << 10,
                              .micro_batches = 1,
                              .chunks_per_rank = set.chunks_per_rank,
                              .sequence = set.sequence};
  std::vector<Layout> all;
  for (const Layout& l : layouts_of(ranks, batches))
    if (set.chunks_per_rank == 1 || set.micro_batches % l.pipeline == 0) all.push_back(l);
  return all;
}
void expect_peaks_of_all(const std::string& name, PlanSetting set, int64_t ranks,
                         const std::vector<const char*>& devices = {"cpu", "meta"}) {
  for (const Layout& l : all_of(ranks, set)) {
    set.layout = l;
    expect_peaks({.name = name, .set = set, .devices = devices});
  }
}

TEST(L20_PlanPeaks, OfAllLayoutsOfFourAndEightRanks) {
  for (const int64_t ranks : {1, 2, 4, 8}) expect_peaks_of_all("GPT", plan_setting({}), ranks);
  for (const int64_t ranks : {2, 4})
    expect_peaks_of_all("GPT-NeoX", plan_setting({}, 4, neox_of_layouts()), ranks, {"meta"});
  expect_peaks_of_all("dropout", plan_setting({}, 4, gpt_of_layouts(0.1)), 4, {"meta"});
}
TEST(L20_PlanPeaks, OfAnyNumberOfMicroBatches) {
  for (const int64_t m : {1, 2, 3, 8})
    for (const Layout& l : {Layout{2, 1, 1, 1}, Layout{4, 1, 1, 1}, Layout{1, 2, 1, 1}, Layout{2, 2, 1, 1}})
      expect_peaks(
          {.name = std::to_string(m) + " micro-batches", .set = plan_setting(l, m), .devices = {"meta"}});
}
TEST(L20_PlanPeaks, OfGpipeAndOfSchedulesWrittenByHand) {
  for (const Layout& l : {Layout{2, 1, 1, 1}, Layout{2, 1, 2, 1}, Layout{2, 2, 1, 1}})
    expect_peaks({.name = "by hand",
                  .set = plan_setting(l, 3),
                  .schedules = {gpipe(2, 3), one_forward_one_backward(2, 3),
                                schedule_of_text("F0 F1 F2 B2 B1 B0\nF0 F1 F2 B2 B1 B0\n"),
                                schedule_of_text("F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2\n"),
                                schedule_of_text("F2 F0 B2 F1 B0 B1\nF2 B2 F0 B0 F1 B1\n")}});
}
TEST(L20_PlanPeaks, OfInterleavedChunks) {
  for (const int64_t v : {2, 4}) {
    PlanSetting set = plan_setting({}, 4);
    set.model.layers = 8, set.chunks_per_rank = v;
    for (const int64_t ranks : {2, 4}) expect_peaks_of_all("interleaved", set, ranks, {"meta"});
    set.layout = {2, 1, 1, 1};
    expect_peaks({.name = "interleaved", .set = set});
  }
}
TEST(L20_PlanPeaks, OfRecomputation) {
  for (const Keep keep : {Keep::LessAttention, Keep::Input})
    for (const int64_t v : {1, 2}) {
      PlanSetting set = plan_setting({}, 4);
      set.model.layers = 8, set.keep = keep, set.chunks_per_rank = v;
      expect_peaks_of_all("recomputed", set, 4, {"meta"});
      set.layout = {2, 1, 2, 1};
      expect_peaks({.name = "recomputed", .set = set});
    }
}
TEST(L20_PlanPeaks, OfSequenceForms) {
  for (const Sequence sequence : {Sequence::KeepGathered, Sequence::GatherAgain})
    for (const Keep keep : {Keep::All, Keep::Input}) {
      PlanSetting set = plan_setting({}, 4);
      set.sequence = sequence, set.keep = keep;
      expect_peaks_of_all("sequence", set, 4, {"meta"});
      set.layout = {2, 1, 2, 1};
      expect_peaks({.name = "sequence", .set = set});
    }
}
TEST(L20_PlanPeaks, OfUnequalCuts) {
  for (const std::vector<int64_t>& ends : {std::vector<int64_t>{1, 4}, {3, 4}})
    for (const Layout& l : {Layout{2, 1, 1, 1}, Layout{2, 1, 2, 1}}) {
      PlanSetting set = plan_setting(l);
      set.ends = ends;
      expect_peaks({.name = "unequal", .set = set});
    }
  PlanSetting set = plan_setting({2, 1, 1, 1});
  set.ends = {1, 2, 5, 6}, set.model.layers = 6, set.chunks_per_rank = 2;
  expect_peaks({.name = "unequal, interleaved", .set = set});
}
TEST(L20_PlanPeaks, OfPrecisionsAndModels) {
  for (const char* recipe : {"mixed", "zero", "half"}) {
    PlanSetting set = plan_setting({});
    set.model.precision = precision_recipe(recipe);
    expect_peaks_of_all(recipe, set, 4, {"meta"});
  }
  for (const auto& change : std::vector<std::function<void(TransformerConfig&)>>{
           [](TransformerConfig& c) { c.attention = attention_flash; },
           [](TransformerConfig& c) { c.vocab = 1000; },
           [](TransformerConfig& c) { c.vocab = 31, c.channels = 20, c.context = 4; },
           [](TransformerConfig& c) { c.residual = Residual::PostNorm; },
           [](TransformerConfig& c) { c.output_head = OutputHead::Untied; }}) {
    PlanSetting set = plan_setting({});
    change(set.model);
    expect_peaks_of_all("changed", set, 4, {"meta"});
  }
}
TEST(L20_PlanPeaks, OnEmu) {
  PlanSetting set = plan_setting({2, 1, 2, 1}, 2);
  set.sequences = 1, set.model.context = 4, set.model.layers = 2;
  expect_peaks({.name = "emu", .set = set, .devices = {"emu"}});
  set.layout = {2, 2, 1, 1}, set.keep = Keep::Input;
  expect_peaks({.name = "emu", .set = set, .devices = {"emu"}});
}

// With tensors of 1 MiB or more, the allocator's block may be larger than requested, depending on earlier
// blocks, so the peak is not exact.
TEST(L20_PlanPeaks, OfALargeModelWithinHalfAPerCent) {
  for (const Layout& l : {Layout{4, 1, 2, 1}, Layout{2, 2, 1, 1}, Layout{1, 1, 4, 1}})
    for (const char* recipe : {"fp32", "mixed"}) {
      PlanSetting set = plan_setting(l, 8, transformer_config("gpt2"));
      set.model.precision = precision_recipe(recipe), set.model.dropout = 0.1, set.sequences = 4;
      const std::vector<int64_t> planned = plan_of(set).peaks;
      const std::vector<Usage> peaks = measured_peaks(set, usual_schedule(set), "meta");
      for (size_t rank = 0; rank < peaks.size(); ++rank)
        EXPECT_NEAR(double(planned[rank]) / double(peaks[rank].allocated()), 1, 0.005)
            << l.text() << ", " << rank;
    }
}

}  // namespace
}  // namespace gradus
