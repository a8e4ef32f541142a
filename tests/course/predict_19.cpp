// The questions of 19.5: the bytes that a layer of the student's own saves, the elements that it sends, and
// the pairs of its ring; measured on meta.
#include <sstream>

#include "lessons/19_tensor_parallel/layer.h"
#include "src/parallel/ring_attention.h"
#include "tests/course/predict.h"

namespace gradus::predict {

static LayerSetting own_setting(Own& own) {
  LayerSetting set{.b = own.between(1, 4), .s = 32 * own.between(2, 8), .h = 64 * own.between(1, 6), .a = 8};
  set.t = own.of({2, 4, 8});
  return set;
}

static Judge of_layer(LayerSetting set, Sequence sequence, int64_t LayerUse::*number) {
  set.sequence = sequence;
  return measured([=] { return double(measure_layer(set).*number); });
}

static Quiz quiz(const std::string& student) {
  Own own(student, "19.5");
  const LayerSetting set = own_setting(own);
  const int64_t ranks = own.of({2, 4, 8}), tokens = 16 * ranks * own.between(1, 4);
  std::ostringstream setting;
  setting << "Your layer has " << set.h << " channels and " << set.a << " heads, and reads a batch of "
          << set.b << " sequences of " << set.s
          << " tokens. Its activations have 16 bits; its attention is plain, not flash. " << set.t
          << " ranks divide it by tensor parallelism. In your ring " << ranks
          << " ranks divide a sequence of " << tokens << " tokens in zigzag, with a causal mask.";
  const auto pairs = [=](int64_t step) {
    return measured([=] {
      return double(
          count_pairs(chunk_pairs(Mask::Causal, 0, (ranks - step) % ranks, ranks), tokens / ranks / 2));
    });
  };
  return {
      setting.str(),
      {{"19.5", "bytes",
        "how many bytes of activations does a rank save for the backward pass, without sequence parallelism?",
        of_layer(set, Sequence::Whole, &LayerUse::bytes)},
       {"19.5", "bytes_tokens",
        "how many with sequence parallelism, if inputs are gathered again in the backward pass?",
        of_layer(set, Sequence::GatherAgain, &LayerUse::bytes)},
       {"19.5", "sent",
        "how many elements does a rank send, forward and backward, without sequence parallelism?",
        of_layer(set, Sequence::Whole, &LayerUse::elements)},
       {"19.5", "sent_tokens", "how many with sequence parallelism, if inputs are gathered again?",
        of_layer(set, Sequence::GatherAgain, &LayerUse::elements)},
       {"19.5", "pairs_0",
        "how many pairs of query and key does a rank compute at the first step of the ring?", pairs(0)},
       {"19.5", "pairs_1", "how many at the second step?", pairs(1)}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "19", gradus::predict::quiz); }
