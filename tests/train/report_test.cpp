// A lesson's report: the exit code, the verdicts, and the file that --json writes.
#include "src/train/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/nn/transformer.h"
#include "src/train/lesson.h"
#include "tests/folder_testing.h"

namespace gradus {
namespace {
namespace fs = std::filesystem;

class L01_Report : public FolderTest {
 protected:
  // Keeps the report's output in printed_, and returns its exit code.
  int finish(Report& report, bool to_file = true) {
    testing::internal::CaptureStdout();
    int code = -1;
    std::string problem;
    try {
      code = report.finish(to_file ? path_ : "");
    } catch (const Error& e) {
      problem = e.what();
    }
    printed_ = testing::internal::GetCapturedStdout() + problem;
    return code;
  }
  Json json() const { return Json::parse(read(path_)); }
  // The line of output that begins with this name.
  std::string line(const std::string& name) const {
    std::istringstream lines(printed_);
    for (std::string l; std::getline(lines, l);)
      if (l.starts_with("  " + name + " ")) return l;
    return "no line of " + name;
  }
  std::string path_ = path("report.json");
  std::string printed_;
  Device cpu_{"cpu"}, meta_{"meta"};
};

using L03_Report = L01_Report;
TEST_F(L03_Report, AModelsSizes) {
  const TransformerConfig model{.vocab = 10, .context = 7, .layers = 2, .heads = 3, .channels = 12};
  Report report("03_test", cpu_);
  report.config(model, 5);
  EXPECT_EQ(finish(report), 0);
  EXPECT_EQ(json().at("config"), Json::parse(R"({"parameters":)" + std::to_string(model.parameter_count()) +
                                             R"(,"layers":2,"channels":12,"context":7,"batch":5})"));
}

TEST_F(L01_Report, ChecksPassUpToTheirBound) {
  const auto code = [&](auto&& add) {
    Report report("01_test", cpu_);
    add(report);
    const int result = finish(report, false);
    EXPECT_EQ(printed_.ends_with(result == 0 ? "\nPASS\n" : "\nFAIL\n"), true) << printed_;
    return result;
  };
  EXPECT_EQ(code([](Report&) {}), 0) << "no check has failed";
  EXPECT_EQ(code([](Report& r) { r.check_at_most("x", 2, 2); }), 0);
  EXPECT_EQ(code([](Report& r) { r.check_at_most("x", 2.0000001, 2); }), 1);
  EXPECT_EQ(code([](Report& r) { r.check_at_most("x", -9, 2); }), 0);
  EXPECT_EQ(code([](Report& r) { r.check_at_least("x", 2, 2); }), 0);
  EXPECT_EQ(code([](Report& r) { r.check_at_least("x", 1.9999999, 2); }), 1);
  EXPECT_EQ(code([](Report& r) { r.check_equal("x", 7, 7); }), 0);
  EXPECT_EQ(code([](Report& r) { r.check_equal("x", 7, 8); }), 1);
  EXPECT_EQ(code([](Report& r) { r.check_equal("x", 8, 7, needs_steps(9, 9) + is_for_steps(9, 9)); }), 1);
  const int64_t large = int64_t(1) << 53;
  EXPECT_EQ(code([=](Report& r) { r.check_equal("x", large, large + 1); }), 1) << "equal as doubles";
  EXPECT_EQ(code([](Report& r) { r.check_at_most("x", NAN, 2); }), 1);
  EXPECT_EQ(code([](Report& r) { r.check_at_least("x", NAN, 2); }), 1);
  EXPECT_EQ(code([](Report& r) { r.check_at_most("x", INFINITY, 2); }), 1);
  EXPECT_EQ(code([](Report& r) { r.timing_at_least("x", 1, 2); }), 0) << "timing never fails";
  EXPECT_EQ(code([](Report& r) { r.timing_at_least("x", NAN, 2); }), 0);
  for (const int failing : {0, 1, 2})  // one of several is enough, at any place
    EXPECT_EQ(code([=](Report& r) {
                for (int i = 0; i < 3; ++i) r.check_equal("x", i, i == failing ? 9 : i);
              }),
              1);
}

TEST_F(L01_Report, VerdictsAreWords) {
  Report report("01_test", cpu_);
  report.check_at_most("a good one", 1, 2);
  report.check_at_least("a bad one", 1, 2);
  report.check_equal("another", 124439808, 124439808);
  report.timing_at_least("fast", 3, 2);
  report.timing_at_least("slow", 1, 2);
  EXPECT_EQ(finish(report, false), 1);
  EXPECT_EQ(line("a good one"), "  a good one          1  <=          2  ok");
  EXPECT_EQ(line("a bad one"), "  a bad one           1  >=          2  FAILED");
  EXPECT_EQ(line("another"), "  another     124439808  =   124439808  ok");
  EXPECT_EQ(line("fast"), "  fast                3  >=          2  as predicted");
  EXPECT_EQ(line("slow"), "  slow                1  >=          2  differs");
}

TEST_F(L01_Report, WhatARunCannotDecideIsSkippedWithAReason) {
  Report report("01_test", cpu_);
  report.check_at_most("a", 3, 2, needs_steps(9, 8)), report.check_at_least("b", 1, 2, needs_steps(9, 8));
  report.check_equal("c", 1, 2, is_for_steps(9, 10));
  EXPECT_EQ(finish(report), 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(json().at("checks")[i].at("pass").is_null());
  EXPECT_TRUE(line("a").ends_with("SKIP, needs 9 steps") && line("c").ends_with("SKIP, is for 9 steps"));
}

TEST_F(L01_Report, OnMetaWhatNeedsDataIsSkipped) {
  Report report("01_test", meta_);
  report.check_at_most("loss", NAN, 2);
  report.check_at_least("share", NAN, 2);
  report.check_equal("bytes", 5, 5);
  report.timing_at_least("speed", 9, 2);
  EXPECT_EQ(finish(report), 0);
  for (const char* skipped : {"loss", "share", "speed"})
    EXPECT_TRUE(line(skipped).ends_with("SKIP, no data")) << line(skipped);
  EXPECT_TRUE(line("bytes").ends_with("  ok")) << line("bytes");
  const Json written = json();
  EXPECT_TRUE(written.at("checks")[0].at("pass").is_null());
  EXPECT_TRUE(written.at("checks")[0].at("value").is_null()) << "JSON has no NaN";
  EXPECT_TRUE(written.at("checks")[2].at("pass").get<bool>());
  EXPECT_TRUE(written.at("checks")[3].at("pass").is_null());
  EXPECT_EQ(written.at("device").get<std::string>(), "meta");

  Report wrong("01_test", meta_);  // bytes and counts are known on meta
  wrong.check_equal("bytes", 5, 6);
  EXPECT_EQ(finish(wrong, false), 1);
  Report number("01_test", meta_);
  number.check_at_most("ratio", 3, 2);
  EXPECT_EQ(finish(number, false), 1);
}

using L03_ReportTime = L01_Report;

TEST_F(L01_Report, TheFileHasTheFieldsOfEveryRow) {
  Report report("03_test", cpu_);
  report.config("steps", 300);
  report.config("data", "a \"text\"");
  report.config("rate", 1e-3);
  ReportRow &full = report.row("full"), &bare = report.row("bare");
  bare.extra = {{"GFLOP/s", 0.5}};
  full.ms_per_step = 2.5, full.tokens_per_s = 1e6;
  full.loss_first = 5.5, full.loss_last = 1.5, full.loss_held_out = NAN;
  full.reserved_bytes = (int64_t(1) << 53) + 1, full.predicted_bytes = 0, full.model_flops = 77;
  Usage peak;
  for (int k = 0; k < kKinds; ++k) peak.by_kind[k] = k + 1;
  peak.rounding = 100;
  full.peak = peak;
  report.check_equal("count", (int64_t(1) << 53) + 1, (int64_t(1) << 53) + 1);
  report.check_at_most("bound", 4, 2.5);
  report.timing_at_least("time", 1, 2);
  EXPECT_EQ(finish(report), 1);

  // Counts are whole numbers, even if a double would round them.
  EXPECT_EQ(read(path_),
            R"({"lesson":"03_test","device":"cpu","config":{"steps":300,"data":"a \"text\"","rate":0.001},)"
            R"("rows":[{"name":"full","ms_per_step":2.5,"tokens_per_s":1000000.0,"peak_bytes":155,)"
            R"("reserved_bytes":9007199254740993,"peak_by_kind":{"weight":1,"master":2,"gradient":3,)"
            R"("optimizer":4,"activation":5,"temporary":6,"data":7,"comm":8,"workspace":9,"other":10,)"
            R"("rounding":100},"predicted_bytes":0,"model_flops":77,"loss_first":5.5,"loss_last":1.5,)"
            R"("loss_held_out":null},{"name":"bare","ms_per_step":null,"tokens_per_s":null,)"
            R"("peak_bytes":null,"reserved_bytes":null,"peak_by_kind":{},"predicted_bytes":null,)"
            R"("model_flops":null,"loss_first":null,"loss_last":null,"loss_held_out":null,)"
            R"("GFLOP/s":0.5}],"checks":[)"
            R"({"name":"count","value":9007199254740993,"bound":9007199254740993,"pass":true},)"
            R"({"name":"bound","value":4.0,"bound":2.5,"pass":false},)"
            R"({"name":"time","value":1.0,"bound":2.0,"pass":null}]})"
            "\n");
}

TEST_F(L01_Report, ATableHasTheColumnsThatSomeRowHas) {
  Report report("03_test", cpu_);
  report.config("steps", 3);
  report.row("first").loss_last = 1.25;
  report.row("second").extra = {{"share", 0.5}};
  report.row("third");
  EXPECT_EQ(finish(report, false), 0);
  EXPECT_NE(printed_.find("03_test on cpu: steps=3\n"), std::string::npos) << printed_;
  EXPECT_NE(printed_.find("          last loss  share\n"), std::string::npos) << printed_;
  EXPECT_EQ(line("first"), "  first        1.25");
  EXPECT_EQ(line("second"), "  second               0.5");
  EXPECT_EQ(printed_.find("ms/step"), std::string::npos);
  EXPECT_EQ(printed_.find("memory at the peak"), std::string::npos);
}

TEST_F(L01_Report, EachColumnHasItsNameItsUnitAndItsPlace) {
  Report report("03_test", cpu_);
  report.config("steps", 3);
  report.config("data", "a text");
  report.config("rate", 1e-3);
  ReportRow& row = report.row("gpt");
  row.extra = {{"share", -0.5}, {"GFLOP/s", 8}};
  row.loss_held_out = 3.25, row.loss_last = 2.5, row.loss_first = 5.75;
  row.predicted_bytes = 2048, row.reserved_bytes = 3 << 20;
  row.peak.emplace().rounding = 512;
  row.model_flops = int64_t(77e9), row.tokens_per_s = 1e6, row.ms_per_step = 12.5;
  report.row("bert").peak.emplace().rounding = 1024;
  EXPECT_EQ(finish(report), 0);
  EXPECT_TRUE(printed_.starts_with("\n03_test on cpu: steps=3 data=\"a text\" rate=0.001\n\n")) << printed_;
  EXPECT_NE(printed_.find("ms/step  tokens/s  GFLOP/step     peak  reserved  predicted  first loss  "
                          "last loss  held-out loss  share  GFLOP/s\n"),
            std::string::npos)
      << printed_;
  std::istringstream words(line("gpt"));
  std::string shown;
  for (std::string word; words >> word;) shown += word + " ";
  EXPECT_EQ(shown, "gpt 12.5 1000000 77 512 B 3.0 MiB 2.0 KiB 5.75 2.5 3.25 -0.5 8 ");
  EXPECT_NE(printed_.find("memory at the peak: gpt "), std::string::npos);
  EXPECT_NE(printed_.find("memory at the peak: bert "), std::string::npos) << "for every row";
  std::ostringstream text;
  text << std::ifstream(path_).rdbuf();
  EXPECT_TRUE(text.str().ends_with("}\n")) << "the file's only line must have an end";
}

TEST_F(L01_Report, TheMemoryAtThePeakAddsUp) {
  Report report("03_test", cpu_);
  Usage peak;
  peak.by_kind[int(Kind::Weight)] = 2048, peak.by_kind[int(Kind::Temporary)] = 5, peak.rounding = 507;
  report.row("gpt").peak = peak;
  EXPECT_EQ(finish(report, false), 0);
  EXPECT_NE(printed_.find("memory at the peak: gpt"), std::string::npos) << printed_;
  const auto ends = [&](const char* row, const char* end) {
    EXPECT_TRUE(line(row).ends_with(end)) << line(row);
  };
  ends("weight", "2,048  2.0 KiB");
  ends("temporary", "5      5 B");
  ends("rounding", "507    507 B");
  ends("allocated", "2,560  2.5 KiB");
  EXPECT_EQ(line("gradient"), "no line of gradient") << "kinds without bytes are left out";
  EXPECT_TRUE(line("gpt").ends_with("2.5 KiB")) << line("gpt");
}

TEST_F(L01_Report, AFileThatCannotBeWrittenIsAnError) {
  Report report("03_test", cpu_);
  path_ = "/proc/none/report.json";
  EXPECT_EQ(finish(report), -1);
  EXPECT_NE(printed_.find("/proc/none/report.json cannot be written"), std::string::npos) << printed_;
  EXPECT_FALSE(printed_.ends_with("PASS\n"));
}

// On meta computation takes no time; the times on other machines come from the meter.
TEST_F(L03_ReportTime, OfMetaIsThatOfOtherMachines) {
  meta_.meter().count({OpClass::Contraction, int64_t(195e12), 0, 0, DType::F32});
  Report report("03_test", meta_);
  ReportRow& row = report.row("gpt");
  row.ms_per_step = 1, row.tokens_per_s = 2, row.loss_last = NAN, row.model_flops = 3;
  row.loss_first = row.loss_held_out = 5;
  row.extra = {{"share", NAN}, {"bytes", 4}};
  report.predict_time(2);
  EXPECT_EQ(finish(report), 0);
  EXPECT_TRUE(line("A100").ends_with(" 5000")) << line("A100");  // 195 TFLOP at 19.5 a second, two steps
  EXPECT_TRUE(line("H100").ends_with(" 1455")) << line("H100");  // at 67
  EXPECT_NE(line("this CPU"), "no line of this CPU");
  EXPECT_NE(printed_.find("\n  at least, on "), std::string::npos) << printed_;
  for (const Machine& m : published_machines()) EXPECT_NE(line(m.name), "no line of " + m.name);
  const Json written = json().at("rows")[0];
  EXPECT_TRUE(written.at("ms_per_step").is_null() && written.at("loss_last").is_null());
  for (const char* none : {"tokens_per_s", "loss_first", "loss_held_out"})
    EXPECT_TRUE(written.find(none)->is_null()) << none;
  EXPECT_EQ(written.at("model_flops").get<int64_t>(), 3);
  EXPECT_FALSE(written.contains("share"));
  EXPECT_EQ(written.at("bytes").get<double>(), 4);
  Report real("03_test", cpu_);  // with data, nothing is predicted and nothing removed
  real.row("gpt").ms_per_step = 1;
  real.predict_time(2);
  EXPECT_EQ(finish(real, false), 0);
  EXPECT_EQ(line("A100"), "no line of A100");
  EXPECT_NE(printed_.find("ms/step"), std::string::npos);
}
}  // namespace
}  // namespace gradus
