// Every kernel call and every allocation of a step fails once, and memory runs out at every kernel call: the
// error is a sentence, and the next step either gives the result of a run without a failure, or is refused.
#include <gtest/gtest.h>

#include <filesystem>

#include "src/io/save_load.h"
#include "src/optim/adamw_8bit.h"
#include "src/optim/muon.h"
#include "tests/fault_injection.h"
#include "tests/nn/lora_testing.h"

namespace gradus {
namespace {

TransformerConfig one_block(const char* recipe, double dropout = 0, int64_t loss_rows = 0) {
  return {.vocab = 80,
          .context = 6,
          .layers = 1,
          .heads = 2,
          .channels = 64,
          .dropout = dropout,
          .precision = precision_recipe(recipe),
          .loss_rows = loss_rows};
}

using Make = std::function<std::unique_ptr<Optimizer>(Parameters&)>;
struct Setting {
  std::string name;
  Make make;
  bool recomputes = false, adapters = false, scales = false;
  int64_t loss_rows = 0;
};

struct Run {
  Run(const char* device, const Setting& set)
      : context(device, 3), model(one_block(set.scales ? "mixed-fp16" : "fp32", 0.1, set.loss_rows)) {
    model.initialize(1);
    if (set.recomputes) model.segments = {{1, Keep::Input}};
    if (set.adapters) add_lora(model, ".*", {.r = 2, .dropout = 0.1, .precision = model.config.precision}, 1);
    if (set.scales) start_loss_scaling(context.device, 64);
    optimizer = set.make(model.parameters);
  }
  ~Run() { Faults::disarm(); }
  void step(int64_t number) {
    train_step(model, *optimizer, dummy_batch(model.config, 2, 6, uint64_t(number)), 1e-2, 0.5);
  }
  std::vector<std::vector<double>> numbers() const {
    std::vector<std::vector<double>> all;
    for (const Parameter& p : model.parameters) all.push_back(to_host<double>(p.kept()));
    for (const Optimizer::State& s : optimizer->states)
      for (const Tensor& t : s.tensors) all.push_back(to_host<double>(t));
    return all;
  }
  Context context;
  Transformer model;
  std::unique_ptr<Optimizer> optimizer;
};

// In the second step, call or allocation n = 1, 1 + stride, ... fails, until n is larger than their number.
// Counts the steps that are refused afterwards.
void expect_survives(const char* device, const Setting& set, Faults::What what, int64_t stride) {
  const std::string path = testing::TempDir() + "faults_" + device + ".safetensors";
  std::vector<std::vector<double>> expected;
  {
    Run whole(device, set);
    whole.step(0);
    save_training(path, whole.model.parameters, *whole.optimizer);
    whole.step(1);
    expected = whole.numbers();
  }
  int64_t refused = 0, survived = 0;
  for (int64_t n = 1;; n += stride) {
    Run run(device, set);
    load_training(path, run.model.parameters, *run.optimizer);
    Faults::arm(run.context.device, what, n);
    std::string said;
    try {
      run.step(1);
    } catch (const Error& e) {
      said = e.what();
    }
    Faults::disarm();
    if (!Faults::fired) break;  // the step has fewer calls
    if (!said.empty()) {
      EXPECT_NE(said.find(what == Faults::What::KernelThrows ? "injected" : "out of memory"),
                std::string::npos)
          << said;
      try {
        run.step(1);
        ++survived;
      } catch (const Error& e) {
        ASSERT_NE(std::string(e.what()).find("an error ended an earlier update"), std::string::npos)
            << set.name << ", call " << n << ": " << e.what();
        ++refused;
        load_training(path, run.model.parameters, *run.optimizer);
        run.step(1);
      }
    }
    ASSERT_EQ(run.numbers(), expected) << set.name << " on " << device << ", call " << n;
  }
  EXPECT_GT(survived, 0) << set.name;
  if (what == Faults::What::KernelThrows && stride == 1) {
    EXPECT_GT(refused, 0) << set.name;
  }
  std::filesystem::remove(path);
}

const Make kAdamW = [](Parameters& p) { return std::make_unique<AdamW>(p, AdamWArgs{.weight_decay = 0.1f}); };
const std::vector<Setting> kSettings{
    {"SGD", [](Parameters& p) { return std::make_unique<Sgd>(p, SgdArgs{.momentum = 0.9f}); }},
    {"AdamW", kAdamW},
    {"AdamW, loss scaling", kAdamW, false, false, true},
    {"AdamW, checkpointed", kAdamW, true},
    {"AdamW, loss in parts, loss scaling", kAdamW, false, false, true, 5},
    {"AdamW, LoRA", kAdamW, false, true},
    {"AdamW8bit, LoRA, checkpointed", [](Parameters& p) { return std::make_unique<AdamW8bit>(p); }, true,
     true},
    {"Adafactor", [](Parameters& p) { return std::make_unique<Adafactor>(p); }},
    {"Muon, checkpointed", [](Parameters& p) { return std::make_unique<Muon>(p); }, true},
    {"AdamW8bit", [](Parameters& p) { return std::make_unique<AdamW8bit>(p); }}};

TEST(L12_Faults, EveryKernelCallOfAStepFailsOnce) {
  for (const Setting& set : kSettings) expect_survives("cpu", set, Faults::What::KernelThrows, 1);
}
TEST(L12_Faults, MemoryEndsAtEveryKernelCallOfAStep) {
#ifdef __SANITIZE_ADDRESS__  // minutes; and every allocation fails there, too
  constexpr int64_t kStride = 4;
#else
  constexpr int64_t kStride = 1;
#endif
  for (const Setting& set : kSettings) expect_survives("cpu", set, Faults::What::MemoryEnds, kStride);
}
TEST(L12_Faults, EveryAllocationOfAStepFailsOnce) {
  for (const Setting& set : kSettings) expect_survives("cpu", set, Faults::What::AllocationFails, 1);
}

// A call outside a step fails: the model does not change, and the next call gives the result of a fresh run.
struct OneCall {
  std::string name;
  std::function<void(Transformer&)> prepare, call;
};

TEST(L12_Faults, ACallThatFailsChangesNothing) {
  const auto nothing = [](Transformer&) {};
  const auto adapt = [](Transformer& m) { add_lora(m, ".*", {.r = 2, .precision = m.config.precision}, 1); };
  for (const char* recipe : {"fp32", "mixed"})
    for (const auto& [name, prepare, call] :
         {OneCall{"add_lora", nothing, adapt}, OneCall{"quantize_frozen", adapt, quantize_frozen}}) {
      const auto make = [&] {
        auto model = std::make_unique<Transformer>(one_block(recipe));
        model->initialize(1);
        return model;
      };
      Kept before, after;
      {
        const Context context;
        const auto model = make();
        prepare(*model);
        before = kept_of(*model);
        call(*model);
        after = kept_of(*model);
      }
      int64_t failed = 0;
      for (const auto what :
           {Faults::What::KernelThrows, Faults::What::MemoryEnds, Faults::What::AllocationFails})
        for (int64_t n = 1;; ++n) {
          Context context;
          const auto model = make();
          prepare(*model);
          Faults::arm(context.device, what, n);
          bool threw = false;
          try {
            call(*model);
          } catch (const Error&) {
            threw = true;
          }
          Faults::disarm();
          if (!Faults::fired) break;
          if (threw) {
            ++failed;
            ASSERT_EQ(kept_of(*model), before) << name << ", " << recipe << ", " << int(what) << ", " << n;
            call(*model);
          }
          ASSERT_EQ(kept_of(*model), after) << name << ", " << recipe << ", " << int(what) << ", " << n;
        }
      EXPECT_GT(failed, 0) << name << ", " << recipe;
    }
}

// A merge that fails in a kernel leaves some weights merged; a second merge must not add to them again.
TEST(L12_Faults, NoProductIsMergedTwice) {
  for (const char* recipe : {"fp32", "mixed"}) {
    Kept whole;
    int64_t failed = 0;
    for (int64_t n = 0;; ++n) {  // 0: nothing fails
      Context context;
      Transformer model(one_block(recipe));
      model.initialize(1);
      add_lora(model, ".*", {.r = 2, .precision = model.config.precision}, 1);
      for (Linear* l : model.linears())
        adapter_of(*l)->b.assign(std::vector<double>(size_t(adapter_of(*l)->b.value.numel()), 0.5));
      Faults::arm(context.device, Faults::What::KernelThrows, n);
      bool threw = false;
      try {
        merge_lora(model);
      } catch (const Error&) {
        threw = true;
      }
      Faults::disarm();
      if (n == 0) whole = kept_of(model);
      if (n > 0 && !threw) break;
      if (threw) {
        ++failed;
        try {
          merge_lora(model);
        } catch (const Error&) {  // the last weight was merged, but not rounded
        }
      }
      ASSERT_EQ(kept_of(model), whole) << recipe << ", call " << n;
    }
    EXPECT_GT(failed, 3) << recipe;
  }
}

TEST(L12_Faults, OnEmu) {
  for (const auto what :
       {Faults::What::KernelThrows, Faults::What::MemoryEnds, Faults::What::AllocationFails})
    for (const size_t i : {2, 5}) expect_survives("emu", kSettings[i], what, 9);
}

}  // namespace
}  // namespace gradus
