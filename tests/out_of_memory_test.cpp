// Out of memory in the middle of a training step: the message says where, and nothing is lost or leaked.
#include <gtest/gtest.h>

#include "src/data/dummy.h"
#include "src/optim/optimizer.h"
#include "src/tensor/profile_range.h"
#include "tests/allocator_fixture.h"

namespace gradus {
namespace {

const TransformerConfig kTiny{.vocab = 65, .context = 24, .layers = 2, .heads = 4, .channels = 32};

enum class Shortage { None, Forward, Backward };

// From the shortage on there is nothing to be had: someone holds all the rest of the budget.
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
  ProfileRange range("forward");
  begins(Shortage::Forward);
  const DummyBatch batch = dummy_batch(model.config, B, kTiny.context);
  Tape tape;
  const Tensor loss = batch.loss(model);
  model.parameters.zero_grad();
  range.next("backward");
  begins(Shortage::Backward);
  tape.backward(loss);
  range.next("update");
  optimizer.step(1e-3);
}

TEST(L04_OutOfMemory, InTheMiddleOfAStepNothingIsLostAndTheRunGoesOn) {
  for (const char* device : {"cpu", "meta"}) {
    Context context(device, 1);
    Transformer model(kTiny);
    model.initialize(1);
    AdamW optimizer(model.parameters);
    step(model, optimizer, 1);  // gradients and workspace are there from now on
    const Usage before = context.device.meter().now();
    for (const auto& [shortage, where] :
         {std::pair(Shortage::Forward, ", in forward/"), std::pair(Shortage::Backward, ", in backward/")}) {
      try {
        step(model, optimizer, 1000, shortage);
        FAIL() << device << ": there was memory to be had" << where;
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

TEST(L04_OutOfMemory, AThousandInARowLeakNothing) {
  Context context("cpu", 1);
  Transformer model(kTiny);
  model.initialize(1);
  AdamW optimizer(model.parameters);
  step(model, optimizer, 1);
  Allocator& allocator = context.device.allocator();
  allocator.empty_cache();
  allocator.set_budget(context.device.meter().reserved() + (int64_t(4) << 20));
  EXPECT_THROW(step(model, optimizer, 400), OutOfMemory);
  const Usage before = context.device.meter().now();
  const int64_t reserved = context.device.meter().reserved();
  for (int i = 0; i < 1000; ++i) ASSERT_THROW(step(model, optimizer, 400), OutOfMemory);
  EXPECT_EQ(context.device.meter().now(), before);
  EXPECT_EQ(context.device.meter().reserved(), reserved);
  EXPECT_NO_THROW(step(model, optimizer, 1));
}

TEST(L04_OutOfMemory, TheMessageNamesTheOpTheTensorAndTheLargest) {
  Context context("meta", 1);
  Transformer model(kTiny);
  AdamW optimizer(model.parameters);
  step(model, optimizer, 1);
  context.device.allocator().set_budget(int64_t(60) << 20);
  try {
    step(model, optimizer, 1000);
    FAIL() << "a step of 1000 sequences fit into 60 MiB";
  } catch (const OutOfMemory& e) {
    const std::string text = e.what();
    for (const char* part : {"[1000,", ", in forward/", "activation", "rounding", "largest blocks",
                             "attention.probs", "budget 60.0 MiB", "smaller batch", "--memory"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in:\n" << text;
  }
}

TEST(L04_OutOfMemory, TheMessageSaysWhatIsFreeTheTenLargestAndWhatWouldHelp) {
  Fixture f;
  f.allocator.set_budget(40 * kMiB);
  std::vector<Block*> held;
  for (int i = 1; i <= 11; ++i)
    held.push_back(f.allocator.allocate(i * 1000, Kind::Optimizer, "state " + std::to_string(i), {i, 250}));
  held.push_back(f.get(2 * kMiB));
  Block* freed = f.get(3 * kMiB);
  held.push_back(f.get(9 * kMiB));
  f.allocator.free(freed);  // 3 MiB between two blocks, and 6 MiB behind them
  const auto message = [&](int64_t bytes, Kind kind) -> std::string {
    try {
      f.allocator.allocate(bytes, kind, "request");
    } catch (const OutOfMemory& e) {
      return e.what();
    }
    return "there was memory to be had";
  };
  std::string text = message(100 * kMiB, Kind::Weight);
  for (const char* part :
       {"the largest free piece is 6.0 MiB", "budget 40.0 MiB, reserved 22.0 MiB", "state 11", "state 4 ",
        "help: a smaller model, or fewer bytes per parameter; or a larger --memory."})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in:\n" << text;
  EXPECT_EQ(text.find("state 3 "), std::string::npos) << "ten blocks, not all:\n" << text;
  // A request larger than all there is needs help itself; a smaller one, with whoever holds most.
  f.allocator.set_budget(60 * kMiB);
  held.push_back(f.allocator.allocate(26 * kMiB, Kind::Optimizer, "large"));
  text = message(20 * kMiB, Kind::Weight);
  EXPECT_NE(text.find("help: an optimizer with smaller states"), std::string::npos) << text;
  for (Block* b : held) f.allocator.free(b);
}

}  // namespace
}  // namespace gradus
