// The questions of 18.3: the bytes that a rank of the student's own cluster keeps and the elements that it
// sends, by stage; measured on meta.
#include <sstream>

#include "lessons/18_zero/step.h"
#include "tests/course/predict.h"

namespace gradus::predict {

// The elements of every unit are a multiple of the ranks, so there is no padding.
static ZeroSetting own_setting(const std::string& student) {
  Own own(student, "18.3");
  ZeroSetting set{.model = {.vocab = 64 * own.between(2, 20), .context = 16 * own.between(1, 8)}};
  set.model.layers = own.between(2, 6), set.model.heads = 4, set.model.channels = 40 * own.between(1, 4);
  set.model.precision = precision_recipe("zero");
  set.ranks = own.of({2, 4, 5, 8, 10}), set.micro_batches = own.between(2, 6), set.tokens = 4;
  set.zero.unit = unit_per_block;
  return set;
}

static Judge of_step(ZeroSetting set, int stage, const std::function<int64_t(const ZeroStep&)>& number) {
  set.zero.stage = stage;
  return measured([=] { return double(number(zero_step(set))); });
}

static Quiz quiz(const std::string& student) {
  const ZeroSetting set = own_setting(student);
  const TransformerConfig& m = set.model;
  std::ostringstream setting;
  setting
      << "Your model is a GPT of " << m.layers << " layers, " << m.channels << " channels and " << m.heads
      << " heads, with a vocabulary of " << m.vocab << " and a context of " << m.context
      << " tokens, with 2 + 2 + 4 + 8 bytes per parameter (weight, gradient, master copy, AdamW's states). "
         "Your cluster has "
      << set.ranks << " ranks; a step has " << set.micro_batches
      << " micro-batches; every transformer block is a unit.";
  const auto states = [](const ZeroStep& s) { return state_bytes(s.between); };
  const auto sent = [](const ZeroStep& s) { return s.sent; };
  return {
      setting.str(),
      {{"18.3", "bytes_1",
        "how many bytes of weights, gradients, master copies and states does a rank keep between steps in "
        "stage 1?",
        of_step(set, 1, states)},
       {"18.3", "bytes_2", "how many in stage 2?", of_step(set, 2, states)},
       {"18.3", "bytes_3", "how many in stage 3?", of_step(set, 3, states)},
       {"18.3", "sent_1", "how many elements does a rank send per step in stage 1?", of_step(set, 1, sent)},
       {"18.3", "sent_2", "how many in stage 2?", of_step(set, 2, sent)},
       {"18.3", "sent_3", "how many in stage 3?", of_step(set, 3, sent)},
       {"18.3", "gathered",
        "how many bytes of weights are gathered at once, at most, in stage 3 without prefetch?",
        of_step(set, 3, [](const ZeroStep& s) { return s.most_gathered; })}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "18", gradus::predict::quiz); }
