// The trainer can do the runs of the lessons: with the right flags its losses, held-out loss and bytes are
// bitwise equal to those that the lesson's program reports. The rows of Slow take minutes, and run only with
// SLOW=1:
//   SLOW=1 build/tests/lessons/22_same_test
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "src/core/json.h"
#include "tests/folder_testing.h"
#include "tests/lessons/22_same_rows.h"
#include "tests/program_testing.h"

namespace gradus::same {
namespace {

struct L22_Same : FolderTest, ::testing::WithParamInterface<Lesson> {
  const Lesson& lesson = GetParam();  // with one row
  const Row& row = lesson.rows[0];

  Json report_of(const std::string& program, const std::string& flags) const {
    const Outcome outcome = run("lessons/" + program, flags + " --json=" + path("report.json"));
    EXPECT_EQ(outcome.code, 0) << program << " " << flags << "\n" << outcome.output;
    return outcome.code == 0 ? Json::parse(read("report.json")) : Json();
  }
  // Each lesson runs once for all of its rows.
  Json expected() const {
    static std::map<std::string, Json> reports;
    const std::string flags = lesson.both + lesson.own;
    Json& report = reports[lesson.name + flags];
    if (report.is_null()) report = report_of(lesson.name, flags);
    for (const Json& each : report["rows"])
      if (each["name"] == row.row) return each;
    ADD_FAILURE() << lesson.name << " has no row " << row.row;
    return {};
  }
  Json trained(const Json& as) const {
    std::string flags = "train " + lesson.both + " " + lesson.trainer + " " + row.flags;
    if (!lesson.base.empty()) {
      report_of("22_scoreboard", "train " + lesson.base + " --save=" + path("base"));
      flags += " --weights=" + path("base");
    }
    if (as.contains("learning rate")) {  // lesson 06 takes the best of several
      const Json& rate = as["learning rate"];
      flags += " --lr=" + rate.dump() + " --last-lr=" + Json(double(rate) / 10).dump();
    }
    const Json report = report_of("22_scoreboard", flags + " --curve=" + path("curve"));
    if (report.is_null()) return {};
    Json made = report["rows"][0];
    std::istringstream curve(read("curve"));
    if (lesson.last == Last::Step)
      for (std::string line; std::getline(curve, line);) made["loss_last"] = Json::parse(line)["loss"];
    return made;
  }
};

void expect_same_bytes(const Json& made, const Json& expected, Bytes bytes) {
  ASSERT_FALSE(expected["peak_by_kind"].empty());
  for (const auto& [kind, value] : expected["peak_by_kind"].items()) {
    const int64_t count = kind == "data" ? 4 : kind == "rounding" ? 512 - 4 : 0;
    EXPECT_EQ(int64_t(made["peak_by_kind"][kind]), int64_t(value) + (bytes == Bytes::Count ? count : 0))
        << kind;
  }
  const Json& reserved = expected["reserved_bytes"];
  EXPECT_TRUE(reserved.is_null() || made["reserved_bytes"] == reserved) << reserved;
}

TEST_P(L22_Same, TheTrainerEqualsTheLesson) {
  const Json as = expected();
  ASSERT_TRUE(as.is_object());
  const Json made = trained(as);
  ASSERT_TRUE(made.is_object());
  if (lesson.both.find("meta") == std::string::npos) {
    ASSERT_TRUE(as["loss_last"].is_number());
    for (const char* loss : {"loss_first", "loss_last", "loss_held_out"})
      EXPECT_TRUE(as[loss].is_null() || made[loss] == as[loss])
          << loss << " " << as[loss] << ", not " << made[loss];
  }
  if (lesson.bytes == Bytes::Peak)
    EXPECT_EQ(made["peak_bytes"], as["peak, bytes"]);
  else if (lesson.bytes != Bytes::None)
    expect_same_bytes(made, as, lesson.bytes);
}

std::vector<Lesson> rows_of(const std::vector<Lesson>& lessons) {
  std::vector<Lesson> all;
  for (const Lesson& lesson : lessons)
    for (const Row& row : lesson.rows) {
      all.push_back(lesson);
      all.back().rows = {row};
    }
  return all;
}
std::string name_of(const ::testing::TestParamInfo<Lesson>& info) {
  return std::to_string(info.index) + "_" + info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Quick, L22_Same,
                         ::testing::ValuesIn(rows_of({transformer(), optimizers(kMeta), accumulation(kMeta),
                                                      checkpointing(), mixed_precision(kMeta),
                                                      adam8bit(kMeta), lora_on_meta(), fusion(), captured(),
                                                      mixture()})),
                         name_of);
// They take six minutes.
std::vector<Lesson> slow_rows() {
  if (!std::getenv("SLOW")) return {};
  return rows_of({optimizers(kMany), accumulation(kMany), mixed_precision(kFew), adam8bit(kMany), lora_base(),
                  lora(), data_loading(), flash_attention(), data_parallel(kMany), overlapped(kMany),
                  zero(kMany), tensor_parallel(), tensor_parallel_by_sgd(), pipeline()});
}
INSTANTIATE_TEST_SUITE_P(Slow, L22_Same, ::testing::ValuesIn(slow_rows()), name_of);

}  // namespace
}  // namespace gradus::same
