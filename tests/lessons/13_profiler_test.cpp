// Lesson 13: the trace reader, the rounds, the checks; and the traces of all lessons.
#include <cmath>

#include "lessons/13_profiler/costs.h"
#include "src/tensor/profile_range.h"
#include "tests/folder_testing.h"
#include "tests/io/trace_checker.h"
#include "tests/lessons/13_testing.h"
#include "tests/lessons/report_testing.h"
#include "tests/program_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct L13_TraceReader : FolderTest {};

TEST_F(L13_TraceReader, ReadsWhatTheProfilerWrote) {
  Context context;
  Profiler profiler(context, {0, 0, 2});
  for (int i = 0; i < 2; ++i) {
    profiler.next_step();
    const ProfileRange outer("outer");
    const ProfileRange inner("inner", 123);
    const Tensor x(context.device, {10}, DType::F32, Kind::Data, "x");
    be(x).fill(ctx(x, cost::fill(10, DType::F32)), 10, Tensor(x).set(), 1.0);
  }
  profiler.end();
  write_trace(path("t.json"), {{"name", &profiler}});
  const std::vector<TracedStep> steps = read_steps(path("t.json"));
  ASSERT_EQ(steps.size(), 2u);
  for (const TracedStep& s : steps) {
    ASSERT_EQ(s.ranges.size(), 2u);
    EXPECT_EQ(s.ranges[0].path, "outer");
    EXPECT_EQ(s.ranges[1].path, "outer/inner");
    EXPECT_EQ(s.ranges[1].category, "network") << "the range moves bytes, but it is not a copy of the device";
    EXPECT_EQ(s.ranges[1].bytes, 123);
    ASSERT_EQ(s.kernels.size(), 1u);
    EXPECT_EQ(s.kernels[0].path, "outer/inner");
    EXPECT_EQ(s.kernels[0].bytes, 40);
    EXPECT_EQ(s.kernels[0].category, "element-wise");
    EXPECT_GE(s.seconds, s.ranges[0].seconds());
  }
  EXPECT_EQ(CheckedTrace(read("t.json")).problems, std::vector<std::string>{});
}

TEST_F(L13_TraceReader, RefusesWhatIsNoTrace) {
  write("empty.json", ""), write("none.json", "{\"traceEvents\":[]}"), write("other.json", "{\"a\":1}"),
      write("wrong.json", "{\"traceEvents\":[{\"ph\":\"X\",\"pid\":0}]}"),
      write("cut.json", "{\"traceEvents\":[{");
  for (const char* file : {"other.json", "wrong.json", "cut.json"})
    expect_refused("this is not a trace of the profiler", [&] { read_steps(path(file)); });
  expect_refused("this trace has no steps", [&] { read_steps(path("none.json")); });
  expect_refused("is empty", [&] { read_steps(path("empty.json")); });
  expect_refused("cannot be opened", [&] { read_steps(path("nowhere.json")); });
}

// The checks of the lesson, with right and with wrong rounds.
struct L13_Checks : ::testing::Test {
  Context context;
  TransformerConfig model{.vocab = 8, .context = 4, .layers = 1, .heads = 1, .channels = 4};
  std::vector<Round> rounds() const {
    std::vector<Round> all;
    Plants plants;
    for (int i = 0; i < 4; ++i) {
      if (i > 0) plants.reloads_text = false;
      if (i > 1) plants.watches_gradients = false;
      if (i > 2) plants.unfused_gelu = false;
      Round& r = all.emplace_back();
      r.plants = plants, r.step_seconds = 1;
      constexpr Bottleneck kFound[] = {Bottleneck::Loading, Bottleneck::CopyToHost, Bottleneck::Chain};
      if (i < 3) r.findings = {{kFound[i], "where", 1, 1}};
      r.run.losses = {2, plants.unfused_gelu ? 1 : 1.0001};
      TracedStep step{1, {range("copy to the host", 0, 1, "copy", 4)}, {}};
      step.kernels.assign(plants.unfused_gelu ? 50 + 19 : 50, wise("forward/add"));
      if (plants.reloads_text) step.ranges.push_back(range("data/load text", 0, 1));
      if (plants.watches_gradients)
        step.ranges.push_back(range("copy to the host", 0, 1, "copy", 4 * model.parameter_count()));
      r.run.steps.assign(2, step);
    }
    return all;
  }
  Names failed(const std::function<void(std::vector<Round>&)>& change) {
    std::vector<Round> all = rounds();
    change(all);
    testing::internal::CaptureStdout();
    const Names names = failed_checks([&](Report& r) { report_rounds(all, model, 4, r); });
    testing::internal::GetCapturedStdout();
    return names;
  }
};

TEST_F(L13_Checks, OfTheRounds) {
  EXPECT_EQ(failed([](auto&) {}), Names{});
  EXPECT_EQ(failed([](auto& r) { r.erase(r.begin() + 1); }),
            Names{"copies and unfused GELU found in the trace and fixed"});
  EXPECT_EQ(failed([](auto& r) {
              r[3].findings = {{Bottleneck::Chain, "where"}};
            }),
            Names{"copies and unfused kernels found in the last round"});
  EXPECT_EQ(failed([](auto& r) { r[0].run.steps[1].kernels.pop_back(); }),
            Names{"steps whose kernel calls differ from the prediction"});
  EXPECT_EQ(failed([](auto& r) { r[2].run.steps[0].ranges[0].bytes = 8; }),
            Names{"steps whose bytes copied to host differ from the prediction"});
  EXPECT_EQ(failed([](auto& r) { r[3].run.steps[1].ranges.push_back(range("data/load text", 0, 1)); }),
            Names{"steps whose text loads differ from the prediction"});
  EXPECT_EQ(failed([](auto& r) { r[1].run.losses[1] = std::nextafter(1.0, 2.0); }),
            Names{"losses that differ bitwise from the first round with the same GELU"});
  EXPECT_EQ(failed([](auto& r) { r.erase(r.begin()); }), Names{"data loading found in the trace and fixed"});
  EXPECT_EQ(failed([](auto& r) { r[0].findings[0].what = Bottleneck::Chain; }),
            (Names{"copies and unfused GELU found in the trace and fixed",
                   "data loading found in the trace and fixed"}));
  EXPECT_EQ(failed([](auto& r) {
              r[3].findings = {{Bottleneck::Loading, "data"}};
            }),
            Names{})
      << "loading is found by its time, so it fails no check";
  for (const double wrong : {1.002, 0.998, double(NAN)})
    EXPECT_EQ(failed([&](auto& r) { r[3].run.losses[1] = wrong; }),
              Names{"largest relative difference of losses, fused / unfused GELU"})
        << wrong;
}

TEST_F(L13_Checks, OfTheCosts) {
  struct Costs {
    Round round;
    double range = 5e-9;
  };
  Costs right;
  right.round.step_seconds = 0.9;
  TracedStep step{1, {range("forward", 0, 0.99)}, {}};
  right.round.run.steps.assign(3, step);
  const Checked failed_costs(right, [](const Costs& c, Report& r) { check_costs(c.round, c.range, r); });
  EXPECT_EQ(failed_costs([&](Costs& c) {
              c.round.run.steps.assign(3, {1, {range("forward", 0, 0.98)}, {}});
            }),
            Names{"share of step time inside ranges"});
  EXPECT_EQ(failed_costs([](Costs& c) { c.round.step_seconds = 0.89; }),
            Names{"step time without profiler / with profiler"});
  EXPECT_EQ(failed_costs([](Costs& c) { c.range = 5.1e-9; }),
            Names{"5 ns (allowed) / time of a range without a profiler"});
}

TEST(L13_Search, FixesTheFirstFindingUntilThereIsNone) {
  std::vector<std::string> asked;
  const auto loop = [&](const Plants& p, bool profiled) {
    asked.push_back(std::string(p.reloads_text ? "l" : "") + (p.watches_gradients ? "c" : "") +
                    (p.unfused_gelu ? "u" : "") + (profiled ? "" : " timed"));
    TracedStep step{10, {}, {}};
    if (p.reloads_text) step.ranges.push_back(range("data", 0, 1));
    if (p.watches_gradients) step.ranges.push_back(range("copy to the host", 2, 5, "copy", 10'000));
    if (p.unfused_gelu) step.kernels.assign(4, wise("forward/h.0/scale", 0.5));
    return LoopRun{{1, 1, 1, 1, 1}, {9, 9, 1, 2, 3}, {step}, {}, {}};
  };
  const std::vector<Round> rounds = search(loop, 2);
  ASSERT_EQ(rounds.size(), 4u);
  EXPECT_EQ(asked, (std::vector<std::string>{"lcu", "lu", "l", "", "lcu timed", "lu timed", "l timed",
                                             " timed", "lcu timed", "lu timed", "l timed", " timed"}));
  EXPECT_TRUE(rounds[3].findings.empty());
  for (const Round& r : rounds)
    EXPECT_EQ(r.step_seconds, 2) << "the median without the first two steps, which warm up";
}

TEST(L13_Search, StopsAtAFindingThatIsFixedAlready) {
  const auto loop = [](const Plants&, bool) {
    return LoopRun{{1}, {1}, {TracedStep{10, {range("data", 0, 1)}, {}}}, {}, {}};
  };
  EXPECT_EQ(search(loop, 1).size(), 2u);
}

TEST(L13_Gelu, OpByOpIsTheSameFunction) {
  Context context;
  std::vector<double> values;
  for (int i = -40; i <= 40; ++i) values.push_back(0.1 * i);
  const Shape shape{int64_t(values.size())};
  const auto gradient = [&](Tensor (*f)(const Tensor&), std::vector<double>& y) {
    Tensor x = from_host(context.device, values, shape, DType::F64, Kind::Data, "x");
    Leaf leaf;
    attach(x, leaf, "x");
    Tape tape;
    const Tensor out = f(x);
    y = to_host<double>(out);
    tape.backward(out, from_host(context.device, values, shape, DType::F64, Kind::Data, "dy"));
    return to_host<double>(leaf.grad);
  };
  std::vector<double> y, unfused_y;
  const std::vector<double> dx = gradient(gelu, y), unfused_dx = gradient(unfused_gelu, unfused_y);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(unfused_y[i], y[i], 1e-6) << values[i];
    EXPECT_NEAR(unfused_dx[i], dx[i], 1e-5) << values[i];
  }
}

struct L13_Programs : FolderTest {
  const std::string there = "cd '" + path() + "';";
};

// All lessons run on meta, because that is fast; lessons with small models run on the cpu, too.
TEST_F(L13_Programs, EveryLessonWritesAValidTrace) {
  for (const std::string& program : lessons()) {
    for (const char* device : {"meta", "cpu"}) {
      const bool quick = program.ends_with("02_autograd") || program.ends_with("07_accumulation") ||
                         program.ends_with("13_profiler");
      if (std::string(device) == "cpu" && !quick) continue;
      const Outcome outcome = run(program, std::string("--steps=3 --trace=t.json --device=") + device, there);
      if (outcome.output.find(" is open: ") != std::string::npos) continue;
      EXPECT_EQ(outcome.code, 0) << program << "\n" << outcome.output;
      EXPECT_NE(outcome.output.find("trace: t.json ("), std::string::npos) << outcome.output;
      const CheckedTrace trace(read("t.json"));
      EXPECT_EQ(trace.problems, std::vector<std::string>{}) << program << " on " << device;
      EXPECT_FALSE(trace.processes.empty()) << program;
      if (!program.ends_with("01_gemm") && !program.ends_with("10_quantization")) {
        EXPECT_TRUE(trace.find("backward")) << program;
      }
    }
  }
}

// The trace's folder is missing, or its disk is full.
TEST_F(L13_Programs, ATraceThatCannotBeWrittenIsAnErrorAfterTheReport) {
  const std::string program = "lessons/13_profiler";
  expect_refused(run(program, "--steps=2 --trace=no/such/folder/t.json", there), 1, "cannot be written");
  expect_refused(run(program, "--steps=2 --device=meta --trace=/dev/full", there), 1, "/dev/full");
  const Outcome outcome =
      run("lessons/02_autograd", "--device=cpu --steps=300 --trace=t.json", there + " ulimit -f 500; ");
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_NE(outcome.output.find("t.json: writing failed after"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("FLOPs of the forward pass"), std::string::npos) << outcome.output;
  EXPECT_FALSE(fs::exists(path("t.json")));
}

// The trace contains the work that was done before the error.
TEST_F(L13_Programs, ARunThatEndsWithAnErrorHasATrace) {
  const Outcome outcome =
      run("lessons/03_transformer", "--device=cpu --steps=3 --memory=30MiB --trace=t.json", there);
  EXPECT_EQ(outcome.code, 1) << outcome.output;
  EXPECT_NE(outcome.output.find("out of memory"), std::string::npos) << outcome.output;
  const CheckedTrace trace(read("t.json"));
  EXPECT_EQ(trace.problems, std::vector<std::string>{});
  EXPECT_TRUE(trace.find("forward"));
}

// Perfetto's own reader, if TRACE_PROCESSOR names one.
TEST_F(L13_Programs, PerfettoReadsATrace) {
  const char* processor = getenv("TRACE_PROCESSOR");
  if (!processor) GTEST_SKIP() << "TRACE_PROCESSOR does not name a trace_processor_shell";
  const Outcome outcome = run("lessons/02_autograd", "--steps=3 --device=cpu --trace=t.json", there);
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  write("q.sql",
        "select 'slices', count(*) from slice; select 'arrows', count(*) from flow; select 'errors', "
        "sum(value) from stats where severity = 'error';");
  const std::string command = there + " '" + processor + "' -q q.sql t.json 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_TRUE(pipe);
  std::string said;
  char part[4096];
  while (const size_t n = fread(part, 1, sizeof part, pipe)) said.append(part, n);
  EXPECT_EQ(pclose(pipe), 0) << said;
  const CheckedTrace trace(read("t.json"));
  size_t slices = 0;
  for (const auto& [track, of] : trace.slices) slices += of.size();
  for (const std::string& row :
       {"\"slices\"," + std::to_string(slices), "\"arrows\"," + std::to_string(trace.arrows.size()),
        std::string("\"errors\",0")})
    EXPECT_NE(said.find(row), std::string::npos) << row << " is not in\n" << said;
}

}  // namespace
}  // namespace gradus
