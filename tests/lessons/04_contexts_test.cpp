// The flags of a lesson hold for every context that it makes, not only for the first.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "lessons/04_memory_anatomy/anatomy.h"
#include "lessons/04_memory_anatomy/batch_size.h"
#include "lessons/04_memory_anatomy/generation.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

Lesson lesson(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "04_memory_anatomy");
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  return Lesson(int(argv.size()), argv.data(), "04_memory_anatomy", "", 2);
}

// A model whose first norm gives no numbers.
TransformerConfig without_numbers() {
  TransformerConfig config{.vocab = 16, .context = 4, .layers = 1, .heads = 2, .channels = 8};
  config.norm_eps = NAN;
  return config;
}

TEST(L04_Contexts, CheckHoldsInEveryPart) {
  const Context context("cpu");
  Report report("04_memory_anatomy", current().device);
  const Lesson checks = lesson({"--device=cpu", "--check=nan"}), plain = lesson({"--device=cpu"});
  const std::string stopped = "layernorm: element 0";
  const auto generation = [&](const Lesson& l) {
    return refusal([&] { generation_table(l, without_numbers(), report); });
  };
  const auto batch_size = [&](const Lesson& l) {
    return refusal([&] { batch_size_table(l, without_numbers(), 2, 1 << 26, report); });
  };
  EXPECT_NE(generation(checks).find(stopped), std::string::npos) << generation(checks);
  EXPECT_NE(batch_size(checks).find(stopped), std::string::npos) << batch_size(checks);
  EXPECT_EQ(generation(plain).find(stopped), std::string::npos) << generation(plain);
}

TEST(L04_Contexts, TheBudgetHoldsInEveryPart) {
  const Context context("cpu");
  Report report("04_memory_anatomy", current().device);
  const Lesson small = lesson({"--device=meta", "--memory=64KiB"});
  const TransformerConfig model{.vocab = 16, .context = 4, .layers = 1, .heads = 2, .channels = 8};
  for (const std::function<void()>& part : std::vector<std::function<void()>>{
           [&] { bytes_per_parameter_table(small, report); }, [&] { saved_activations_table(small, report); },
           [&] { generation_table(small, model, report); }})
    EXPECT_NE(refusal(part).find("budget 64.0 KiB"), std::string::npos) << refusal(part);
}

}  // namespace
}  // namespace gradus
