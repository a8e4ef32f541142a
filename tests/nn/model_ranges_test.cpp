// A part of a model with several ranges of blocks (ModelPart in src/nn/transformer.h).
#include <set>

#include "src/train/dummy.h"
#include "tests/nn/families_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Numbers = std::map<std::string, std::vector<double>>;

Numbers gradients_of(const std::vector<const Transformer*>& models) {
  Numbers all;
  for (const Transformer* m : models)
    for (const Parameter& p : m->parameters) all[p.name] = to_host<double>(p.leaf.grad);
  return all;
}
std::vector<TransformerConfig> families() {
  std::vector<TransformerConfig> all;
  for (const char* name : {"gpt", "neox"}) {
    all.push_back(family(name));
    all.back().layers = 6, all.back().dropout = 0.2, all.back().output_head = OutputHead::Untied;
  }
  return all;
}

// Two parts with alternating ranges: the first has blocks 0, 2 and 3, the second 1, 4 and 5.
const ModelPart kFirst{.ranges = {{0, 1}, {2, 4}}, .head = false};
const ModelPart kSecond{.ranges = {{1, 2}, {4, 6}}, .embedding = false};

TEST(L20_ModelRanges, WeightsLossMasksAndGradientsAreThoseOfTheWhole) {
  for (const TransformerConfig& c : families())
    for (int64_t first_sample : {0, 5}) {
      Context context("cpu", 5);
      Transformer whole(c), a(c, Allocate::Now, kFirst), b(c, Allocate::Now, kSecond);
      for (Transformer* m : {&whole, &a, &b}) m->initialize(9);
      std::set<std::string> names;
      for (const Transformer* m : {&a, &b})
        for (const Parameter& p : m->parameters) {
          EXPECT_TRUE(names.insert(p.name).second) << p.name << " is in both parts";
          EXPECT_EQ(to_host<double>(p.value), to_host<double>(whole.parameters.find(p.name).value)) << p.name;
          EXPECT_EQ(p.number, whole.parameters.find(p.name).number) << p.name;
        }
      EXPECT_EQ(names.size(), whole.parameters.size());
      EXPECT_EQ(a.parameters.numel() + b.parameters.numel(), c.parameter_count());
      EXPECT_EQ(a.blocks.size(), 3u);
      EXPECT_EQ(b.blocks.size(), 3u);
      const DummyBatch batch = dummy_batch(c, 2, c.context);
      context.first_sample = first_sample;
      double expected;
      {
        Tape tape;
        const Tensor loss = whole.loss(batch.ids, batch.targets);
        expected = item(loss);
        tape.backward(loss);
      }
      Tape tape;
      Tensor x = a.through_blocks(a.embed(batch.ids), 0);
      x = a.through_blocks(b.through_blocks(x, 0), 1);
      const Tensor loss = b.head_loss(b.through_blocks(x, 1), batch.targets);
      EXPECT_EQ(item(loss), expected);
      tape.backward(loss);
      EXPECT_EQ(gradients_of({&a, &b}), gradients_of({&whole}));
    }
}

// With one tape per range, as in a pipeline.
TEST(L20_ModelRanges, EachRangeDrawsItsMasksOnATapeOfItsOwn) {
  for (const TransformerConfig& c : families()) {
    Context context("cpu", 5);
    Transformer whole(c), a(c, Allocate::Now, kFirst), b(c, Allocate::Now, kSecond);
    for (Transformer* m : {&whole, &a, &b}) m->initialize(9);
    const DummyBatch batch = dummy_batch(c, 2, c.context);
    std::vector<double> expected;
    {
      Tape tape;
      expected = to_host<double>(whole.logits(batch.ids));
    }
    Tensor x;
    const auto on_a_tape = [&](const std::function<Tensor()>& f) {
      Tape tape;
      x = f().detach();
    };
    on_a_tape([&] { return a.through_blocks(a.embed(batch.ids), 0); });
    on_a_tape([&] { return b.through_blocks(x, 0); });
    on_a_tape([&] { return a.through_blocks(x, 1); });
    on_a_tape([&] { return b.head(b.through_blocks(x, 1)); });
    EXPECT_EQ(to_host<double>(x), expected);
  }
}

TEST(L20_ModelRanges, SegmentsOfEachRangeChangeNoGradient) {
  for (const TransformerConfig& c : families()) {
    const DummyBatch* batch = nullptr;
    Numbers expected;
    for (const std::vector<BlockSegment>& segments :
         std::vector<std::vector<BlockSegment>>{{},
                                                {{1, Keep::Input}, {2, Keep::Input}},
                                                {{1, Keep::LessAttention}, {1, Keep::Input}, {1, Keep::All}},
                                                {{1, Keep::All}, {2, Keep::LessAttention}}}) {
      Context context("cpu", 5);
      Transformer a(c, Allocate::Now, kFirst), b(c, Allocate::Now, kSecond);
      for (Transformer* m : {&a, &b}) m->initialize(9), m->segments = segments;
      const DummyBatch own = dummy_batch(c, 2, c.context);
      batch = &own;
      Tape tape;
      Tensor x = a.through_blocks(a.embed(batch->ids), 0);
      x = a.through_blocks(b.through_blocks(x, 0), 1);
      tape.backward(b.head_loss(b.through_blocks(x, 1), batch->targets));
      if (segments.empty()) expected = gradients_of({&a, &b});
      EXPECT_EQ(gradients_of({&a, &b}), expected);
    }
  }
}

TEST(L20_ModelRanges, WrongRangesAreRefused) {
  const TransformerConfig c = families()[0];
  const auto make = [&](const std::vector<BlockRange>& ranges) {
    Context context("cpu");
    const Transformer model(c, Allocate::Now, {.ranges = ranges, .embedding = false, .head = false});
    return model.blocks.size();
  };
  EXPECT_EQ(make({{0, 2}, {2, 4}}), 4u);  // ranges may touch
  EXPECT_EQ(make({{0, 2}, {5, 6}}), 3u);
  for (const std::vector<BlockRange>& wrong : std::vector<std::vector<BlockRange>>{{{0, 2}, {1, 3}},
                                                                                   {{0, 3}, {1, 2}},
                                                                                   {{0, 2}, {0, 2}},
                                                                                   {{2, 4}, {0, 1}},
                                                                                   {{2, 4}, {0, 2}},
                                                                                   {{0, 1}, {4, 3}},
                                                                                   {{0, 1}, {-1, 2}},
                                                                                   {{0, 1}, {7, 8}},
                                                                                   {{0, 4}, {2, 6}},
                                                                                   {{}, {}}})
    EXPECT_NE(refusal([&] { make(wrong); }), "")
        << wrong[0].first << " to " << wrong[0].end << " and " << wrong[1].first << " to " << wrong[1].end;
}

TEST(L20_ModelRanges, SegmentsThatCrossRangesOrDoNotAddUpAreRefused) {
  const TransformerConfig c = families()[0];
  Context context("cpu");
  Transformer a(c, Allocate::Now, kFirst);
  a.initialize(1);
  const DummyBatch batch = dummy_batch(c, 2, c.context);
  for (const std::vector<BlockSegment>& wrong :
       std::vector<std::vector<BlockSegment>>{{{2, Keep::Input}, {1, Keep::Input}},
                                              {{3, Keep::Input}},
                                              {{3, Keep::LessAttention}},
                                              {{1, Keep::Input}},
                                              {{1, Keep::Input}, {3, Keep::Input}},
                                              {{1, Keep::Input}, {0, Keep::Input}, {1, Keep::Input}}}) {
    a.segments = wrong;
    expect_refused("", [&] {
      Tape tape;
      a.through_blocks(a.through_blocks(a.embed(batch.ids), 0), 1);
    });
    EXPECT_EQ(context.tape(), nullptr);
  }
  a.segments = {{1, Keep::Input}, {2, Keep::Input}};
  Tape tape;
  a.through_blocks(a.through_blocks(a.embed(batch.ids), 0), 1);
}

TEST(L20_ModelRanges, ARangeThatThePartLacksIsRefused) {
  const TransformerConfig c = families()[0];
  Context context("cpu");
  const Transformer a(c, Allocate::Now, kFirst);
  const Tensor x(context.device, {2, 4, c.channels}, DType::F32, Kind::Temporary, "x");
  expect_refused("", [&] { a.through_blocks(x, 2); });
  expect_refused("", [&] { a.through_blocks(x, size_t(-1)); });
}

}  // namespace
}  // namespace gradus
