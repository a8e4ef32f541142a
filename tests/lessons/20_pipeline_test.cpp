// Lesson 20: the exercises, and schedules in files.
#include <algorithm>

#include "lessons/20_pipeline_parallel/schedules.h"
#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/pipeline.h"
#include "src/train/dummy.h"
#include "tests/folder_testing.h"

namespace gradus {
namespace {

std::vector<ChunkTimes> times(const Schedule& s) { return std::vector<ChunkTimes>(size_t(s.chunks)); }

TEST(L20_Exercises, ARankWarmsUpUntilItsFirstGradientIsThere) {
  RecordProperty("exercise", "20.1");
  for (const int64_t p : {1, 2, 3, 4, 8})
    for (const int64_t m : {1, 2, 4, 9}) {
      const Schedule s = one_forward_one_backward(p, m);
      for (int64_t r = 0; r < p; ++r) {
        const std::vector<Task>& list = s.of_rank[size_t(r)];
        ASSERT_EQ(int64_t(list.size()), 2 * m);
        const auto first =
            std::find_if(list.begin(), list.end(), [](const Task& t) { return t.pass == Pass::Backward; });
        const int64_t forward = first - list.begin(), expected = std::min(m, p - r);
        const std::string rank = "rank " + std::to_string(r) + " of " + std::to_string(p);
        EXPECT_GE(forward, expected) << rank
                                     << " computes a backward pass before its gradient can arrive, so it "
                                        "waits, although it could compute "
                                        "a forward pass";
        EXPECT_LE(forward, expected) << rank
                                     << " keeps more micro-batches than it needs until the first gradient "
                                        "arrives (the forward pass of the first pair included)";
      }
    }
  EXPECT_EQ(text_of(one_forward_one_backward(3, 3)),
            "F0 F1 F2 B0 B1 B2\nF0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2\n");
}

TEST(L20_Formulas, TheBubble) {
  RecordProperty("exercise", "20.2");
  EXPECT_DOUBLE_EQ(predicted_bubble(1, 7, 1), 0);
  EXPECT_DOUBLE_EQ(predicted_bubble(4, 4, 1), 3. / 7)
      << "the bubble is a fraction of all time, not of the computing time";
  EXPECT_DOUBLE_EQ(predicted_bubble(4, 8, 1), 3. / 11);
  EXPECT_DOUBLE_EQ(predicted_bubble(4, 8, 2), 3. / 19)
      << "with v chunks per rank each pass takes 1 / v of the time";
  EXPECT_DOUBLE_EQ(predicted_bubble(8, 32, 4), 7. / 135);
}

TEST(L20_Exercises, ATaskWaitsForTheChunkBeforeIt) {
  RecordProperty("exercise", "20.3");
  const auto begins = [](const char* text) {
    const Schedule s = schedule_of_text(text);
    const std::vector<double> links(s.ranks() > 1 ? size_t(s.ranks()) : 0, 0.5);
    const Timeline t = play(s, times(s), links);
    std::vector<double> all;
    for (const auto& list : t.of_rank)
      for (const Timeline::Entry& e : list) all.push_back(e.begin);
    return t.problem.empty() ? all : std::vector<double>{};
  };
  using Begins = std::vector<double>;
  EXPECT_EQ(begins("F0 B0"), (Begins{0, 1}))
      << "with one rank and one chunk a task has no input from a different chunk";
  EXPECT_EQ(begins("F0 B0\nF0 B0"), (Begins{0, 5, 1.5, 2.5}))
      << "in forward the input comes from the previous chunk, in backward from the next chunk";
  EXPECT_EQ(begins("F0 F1 B0 B1\nF0 B0 F1 B1"), (Begins{0, 1, 5, 8, 1.5, 2.5, 4.5, 5.5}));
  EXPECT_EQ(begins("F0 F0.2 B0.2 B0\nF0 F0.3 B0.3 B0"), (Begins{0, 3, 8, 13, 1.5, 4.5, 5.5, 10.5}))
      << "with two chunks per rank the input of chunk 2 comes from the last rank; in backward the input of "
         "chunk 1 comes from chunk 2";
  EXPECT_EQ(begins("F0 B0 F1 B1\nF1 B1 F0 B0"), Begins{}) << "the two ranks wait for each other";
}

TransformerConfig model(double dropout) {
  return {.vocab = 11, .context = 4, .layers = 4, .heads = 2, .channels = 8, .dropout = dropout};
}
std::vector<TextBatch> two_micro_batches(const TransformerConfig& c) {
  std::vector<TextBatch> all;
  for (int32_t i = 0; i < 2; ++i) {
    TextBatch b{1, c.context, {}, {}, i};
    for (int32_t k = 0; k < 4; ++k) b.ids.push_back((3 * k + i) % 11), b.targets.push_back((k + 5 * i) % 11);
    all.push_back(b);
  }
  return all;
}
using Gradients = std::map<std::string, std::vector<double>>;
// The gradients of all ranks, by name. A tied embedding has two entries: "wte.weight" of the first rank, and
// "last" of the last rank.
Gradients gradients_of(const TransformerConfig& c, const Schedule& s) {
  Gradients all;
  run_cluster({.ranks = s.ranks(), .seed = 7}, [&](Comm& comm) {
    Transformer m(c, Allocate::Now,
                  part_of_pipeline(even_cuts(c.layers, s.chunks), comm.rank(), comm.size()));
    m.initialize(3);
    Pipeline pipeline(comm, m);
    pipeline.run(s, two_micro_batches(c), 2 * c.context);
    pipeline.sum_tied_gradients();
    for (const Parameter& p : m.parameters) {
      const bool second = p.name == "wte.weight" && comm.rank() > 0;
      all[second ? "last" : p.name] = to_host<double>(p.leaf.grad);
    }
  });
  return all;
}
Gradients plain_gradients(const TransformerConfig& c) {
  Context context("cpu", 7);
  Transformer m(c);
  m.initialize(3);
  const Tensor count =
      from_host<float>(context.device, {float(2 * c.context)}, {}, DType::F32, Kind::Data, "count");
  for (const TextBatch& b : two_micro_batches(c)) {
    context.first_sample = b.first_sample;
    Tape tape;
    tape.backward(m.loss(on_device(b.ids, b.T, "ids"), on_device(b.targets, b.T, "targets"), {}, count));
  }
  Gradients all;
  for (const Parameter& p : m.parameters) all[p.name] = to_host<double>(p.leaf.grad);
  return all;
}
void expect_near(const std::vector<double>& a, const std::vector<double>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-6) << what << ", element " << i;
}

TEST(L20_Exercises, TheTiedEmbeddingHasOneGradient) {
  RecordProperty("exercise", "20.4");
  const TransformerConfig c = model(0);
  for (const int64_t p : {1, 2, 4}) {
    const Gradients ours = gradients_of(c, one_forward_one_backward(p, 2)), plain = plain_gradients(c);
    expect_near(
        ours.at("wte.weight"), plain.at("wte.weight"),
        "the first rank has only the gradient of the embedding: the gradient of the head must be added");
    if (p > 1)
      expect_near(
          ours.at("last"), plain.at("wte.weight"),
          "the last rank also updates its copy of the weight, so it needs the same gradient; did both "
          "ranks wait for the sum?");
  }
}

TEST(L20_Exercises, EveryScheduleDrawsTheMasksOfOneDevice) {
  RecordProperty("exercise", "20.6");
  for (const double dropout : {0.0, 0.2}) {
    const TransformerConfig c = model(dropout);
    const Gradients plain = plain_gradients(c);
    for (const Schedule& s : {gpipe(2, 2), one_forward_one_backward(2, 2), interleaved(2, 2, 2)}) {
      const Gradients ours = gradients_of(c, s);
      for (const auto& [name, gradient] : plain)
        expect_near(ours.at(name), gradient,
                    name + ", " + std::to_string(s.chunks / 2) + " chunks per rank, dropout " +
                        std::to_string(dropout));
    }
  }
}

struct L20_Files : FolderTest {};
TEST_F(L20_Files, ASchedulesFileIsJudged) {
  write("good", "F0 F1 B0 B1  # rank 0\nF0 B0 F1 B1\n");
  write("deadlock", "F0 B0 F1 B1\nF1 B1 F0 B0\n");
  write("nothing", "# a comment\n");
  EXPECT_EQ(judge_schedule(path("good")), 0);
  write("chunks", "F0 F0.2 B0.2 B0\nF0 F0.3 B0.3 B0\n");
  testing::internal::CaptureStdout();
  EXPECT_EQ(judge_schedule(path("chunks")), 0);
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(printed.starts_with("  rank 0  F0  ....F0.2............B0.2====........B0======\n")) << printed;
  EXPECT_EQ(judge_schedule(path("deadlock")), 1);
  EXPECT_THROW(judge_schedule(path("nothing")), Error);
  EXPECT_THROW(judge_schedule(path("missing")), Error);
}

}  // namespace
}  // namespace gradus
