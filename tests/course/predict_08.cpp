// The questions of 08.1 and 08.4. Each student gets a different chain (08.1) and a different model with
// checkpointing (08.4). The answers are measured on meta.
#include <sstream>

#include "kernels/cost.h"
#include "lessons/08_checkpointing/chain.h"
#include "src/nn/transformer.h"
#include "src/tensor/context.h"
#include "src/train/dummy.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Own08 {
  TransformerConfig model;
  int64_t batch, k;
};
static Own08 own_run(const std::string& student) {
  Own own(student, "08.4");
  Own08 o{{.vocab = 64 * own.between(2, 20), .context = 16 * own.between(1, 8)}, 0, 0};
  o.k = own.between(2, 4);
  o.model.layers = o.k * own.between(2, 4), o.model.heads = own.between(2, 4);
  o.model.channels = o.model.heads * 8 * own.between(2, 6), o.batch = own.between(2, 8);
  return o;
}

struct Measured {
  int64_t saved, gelus;  // bytes saved by the forward pass; calls of gelu's forward kernel
};
static Measured measure(const Own08& o, int64_t k, bool from_the_start) {
  Context meta("meta");
  meta.device.meter().keep_trace();
  Transformer model(o.model);
  for (int64_t at = 0; k > 0 && at < o.model.layers; at += k) model.segments.push_back({k, Keep::Input});
  model.from_the_start = from_the_start;
  Tape tape;
  const Tensor loss = dummy_batch(o.model, o.batch, o.model.context).loss(model);
  const int64_t saved = tape.saved_bytes();
  tape.backward(loss);
  const Cost gelu = cost::gelu_fwd(o.batch * o.model.context * 4 * o.model.channels, DType::F32);
  return {saved, meta.device.meter().trace().at(gelu)};
}

static Quiz quiz(const std::string& student) {
  const Own08 o = own_run(student);
  Own of_chain(student, "08.1");
  const std::vector<int64_t> segments{of_chain.between(1, 6), of_chain.between(1, 6), of_chain.between(1, 6)};
  const int64_t n = segments[0] + segments[1] + segments[2];
  std::ostringstream setting, chain;
  setting << "Your model is a GPT of " << o.model.layers << " layers, " << o.model.channels
          << " channels and " << o.model.heads << " heads, with a vocabulary of " << o.model.vocab
          << " and a context of " << o.model.context << " tokens, in fp32, on a batch of " << o.batch
          << " sequences.";
  chain << "Your chain of " << n << " steps is cut into segments of " << segments[0] << ", then "
        << segments[1] << ", then " << segments[2]
        << " steps. What is the largest number of values alive, counted as in the page's example (column "
           "peak)?";
  const auto saved = [o](int64_t k) { return measured([=] { return double(measure(o, k, false).saved); }); };
  const auto gelus = [o](int64_t k, bool from_the_start) {
    return measured([=] { return double(measure(o, k, from_the_start).gelus); });
  };
  const std::string every = "And with segments of " + std::to_string(o.k) + " blocks?";
  return {
      setting.str(),
      {{"08.1", "alive", chain.str(), measured([=] {
          return double(live_values({n, segments}));
        })},
       {"08.1", "alive_from_start", "And from the start, if only x0 is saved?", measured([=] {
          return double(live_values({n, {}, true}));
        })},
       {"08.4", "kept", "How many bytes does the tape save in the forward pass with store-all?", saved(0)},
       {"08.4", "kept_each", "And with each-block?", saved(1)},
       {"08.4", "kept_every", every, saved(o.k)},
       {"08.4", "gelus_each", "How often is gelu computed in a step with each-block (forward kernels only)?",
        gelus(1, false)},
       {"08.4", "gelus_start", "And with from-the-start?", gelus(0, true)}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "08", gradus::predict::quiz); }
