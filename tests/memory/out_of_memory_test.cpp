// Out of memory: its message; and a failure in the middle of a training step loses and leaks nothing.
#include <gtest/gtest.h>

#include <sstream>

#include "src/optim/optimizer.h"
#include "src/tensor/profile_range.h"
#include "src/train/dummy.h"
#include "tests/memory/allocator_fixture.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

const TransformerConfig kTiny{.vocab = 65, .context = 24, .layers = 2, .heads = 4, .channels = 32};

enum class Shortage { None, Forward, Backward };

// From the shortage on there is no free memory: `held` takes all the rest of the budget.
void step(Transformer& model, AdamW& optimizer, int64_t B, Shortage shortage = Shortage::None) {
  Device& device = current().device;
  std::vector<Tensor> held;
  const auto begins = [&](Shortage now) {
    if (shortage != now) return;
    device.allocator().set_budget(device.meter().reserved());
    try {
      for (;;) held.emplace_back(device, Shape{int64_t(1) << 19}, DType::F32, Kind::Other, "held");
    } catch (const OutOfMemory&) {
    }
  };
  begins(Shortage::Forward);
  const DummyBatch batch = dummy_batch(model.config, B, kTiny.context);
  Tape tape;
  const Tensor loss = batch.loss(model);
  model.parameters.zero_grad();
  begins(Shortage::Backward);
  tape.backward(loss);
  optimizer.step(1e-3);
}

TEST(L04_OutOfMemory, InTheMiddleOfAStepNothingIsLostAndTheRunGoesOn) {
  for (const char* device : {"cpu", "meta"}) {
    Context context(device, 1);
    Transformer model(kTiny);
    model.initialize(1);
    AdamW optimizer(model.parameters);
    step(model, optimizer, 1);  // allocates the gradients and the workspace
    const Usage before = context.device.meter().now();
    for (const auto& [shortage, where] :
         {std::pair(Shortage::Forward, ", in forward/"), std::pair(Shortage::Backward, ", in backward/")}) {
      try {
        step(model, optimizer, 1000, shortage);
        FAIL() << device << ": there was free memory" << where;
      } catch (const OutOfMemory& e) {
        EXPECT_NE(std::string(e.what()).find(where), std::string::npos) << device << ": " << e.what();
      }
      EXPECT_EQ(context.device.meter().now(), before) << device << where;
      for (const Parameter& p : model.parameters) EXPECT_EQ(p.leaf.uses, 0) << device << where << p.name;
      EXPECT_EQ(context.tape(), nullptr);
      context.device.allocator().set_budget(0);
      EXPECT_NO_THROW(step(model, optimizer, 2)) << device << where;
    }
  }
}

// The rows of the message's table whose first column is called `header`, their words with single spaces.
std::vector<std::string> rows_below(const std::string& text, const std::string& header) {
  std::istringstream lines(text);
  std::vector<std::string> rows;
  bool within = false;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string row;
    for (std::string word; words >> word;) row += (row.empty() ? "" : " ") + word;
    if (within && row.empty()) break;
    if (within && row[0] != '-') rows.push_back(row);
    within = within || row.starts_with(header);
  }
  return rows;
}

std::string message(Fixture& f, int64_t bytes, Kind kind) {
  return refusal([&] { f.allocator.allocate(bytes, kind, "request", {2, 3}); });
}

TEST(L04_OutOfMemory, TheTablesHaveEveryKindAndTheTenLargestInOrder) {
  Fixture f(24 * kMiB);  // no budget: the device is full
  std::vector<Block*> held;
  for (int i = 0; i < 10; ++i)
    held.push_back(f.allocator.allocate(1000 * (i + 1), Kind(i), "of kind " + std::to_string(i), {i + 1}));
  held.push_back(f.allocator.allocate(5000, Kind::Data, "second of 5000", {5, 1000}));
  held.push_back(f.allocator.allocate(999, Kind::Data, "too small", {999}));
  Block* freed = f.allocator.allocate(1'000'000, Kind::Weight, "freed", {});
  f.allocator.free(freed);
  f.ranges.begin("step"), f.ranges.begin("forward");
  const std::string text = message(f, 30 * kMiB, Kind::Comm);
  EXPECT_TRUE(
      text.starts_with("out of memory: request [2,3] (comm) needs 31457280 bytes (30.0 MiB), in "
                       "step/forward.\nreserved 2.0 MiB, allocated "))
      << text;
  EXPECT_EQ(rows_below(text, "kind"),
            (std::vector<std::string>{"weight 1,000 1000 B", "master 2,000 2.0 KiB", "gradient 3,000 2.9 KiB",
                                      "optimizer 4,000 3.9 KiB", "activation 5,000 4.9 KiB",
                                      "temporary 6,000 5.9 KiB", "data 12,999 12.7 KiB", "comm 8,000 7.8 KiB",
                                      "workspace 9,000 8.8 KiB", "other 10,000 9.8 KiB",
                                      "rounding 1,465 1.4 KiB", "allocated 62,464 61.0 KiB"}))
      << text;
  EXPECT_EQ(rows_below(text, "largest blocks"),
            (std::vector<std::string>{
                "of kind 9 [10] other 10,000 9.8 KiB", "of kind 8 [9] workspace 9,000 8.8 KiB",
                "of kind 7 [8] comm 8,000 7.8 KiB", "of kind 6 [7] data 7,000 6.8 KiB",
                "of kind 5 [6] temporary 6,000 5.9 KiB", "of kind 4 [5] activation 5,000 4.9 KiB",
                "second of 5000 [5,1000] data 5,000 4.9 KiB", "of kind 3 [4] optimizer 4,000 3.9 KiB",
                "of kind 2 [3] gradient 3,000 2.9 KiB", "of kind 1 [2] master 2,000 2.0 KiB"}))
      << text;
  f.ranges.end(), f.ranges.end();
  EXPECT_EQ(message(f, 30 * kMiB, Kind::Comm).find(", in "), std::string::npos);
  for (Block* b : held) f.allocator.free(b);
}

TEST(L04_OutOfMemory, AnEmptyAllocatorHasNoBlocksToShow) {
  Fixture f(kMiB);
  const std::string text = message(f, 512, Kind::Data);
  EXPECT_EQ(rows_below(text, "kind"), (std::vector<std::string>{"rounding 0 0 B", "allocated 0 0 B"}))
      << text;
  EXPECT_EQ(text.find("largest blocks"), std::string::npos) << text;
  EXPECT_NE(text.find("reserved 0 B, allocated 0 B; the largest free piece is 0 B."), std::string::npos);
}

TEST(L04_OutOfMemory, TheHintIsForWhoeverHoldsMost) {
  const std::string batch = "a smaller batch or a shorter context", model = "a smaller model, or fewer bytes",
                    states = "an optimizer with smaller states", any = "a smaller batch or a smaller model";
  const std::pair<Kind, std::string> hints[] = {
      {Kind::Weight, model},     {Kind::Master, model},    {Kind::Gradient, model}, {Kind::Optimizer, states},
      {Kind::Activation, batch}, {Kind::Temporary, batch}, {Kind::Data, batch},     {Kind::Comm, any},
      {Kind::Workspace, any},    {Kind::Other, any}};
  for (const auto& [kind, hint] : hints) {
    for (const int64_t budget : {int64_t(0), 40 * kMiB}) {
      Fixture f(40 * kMiB);
      f.allocator.set_budget(budget);
      const Kind other = kind == Kind::Optimizer ? Kind::Data : Kind::Optimizer;
      // The hint is for the kind of a request above all memory, else for the kind that holds most.
      EXPECT_NE(message(f, 50 * kMiB, kind).find("What would help: " + hint), std::string::npos);
      Block *most = f.allocator.allocate(32 * kMiB, kind, "most"),
            *rest = f.allocator.allocate(5, other, "x");
      const std::string text = message(f, 20 * kMiB, other);
      EXPECT_NE(text.find("What would help: " + hint), std::string::npos) << text;
      EXPECT_EQ(text.ends_with("; or a larger --memory."), budget > 0) << text;
      for (Block* b : {most, rest}) f.allocator.free(b);
    }
  }
}

}  // namespace
}  // namespace gradus
