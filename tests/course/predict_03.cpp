// The questions of exercise 03.5: the bytes of a GPT with the student's own numbers, measured on meta.
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Gpt {
  TransformerConfig config;
  int64_t batch;
};

static Gpt own_gpt(const std::string& student) {
  Own own(student, "03.5");
  Gpt gpt{{.vocab = own.between(200, 900)}, own.between(3, 20)};
  gpt.config.context = own.between(40, 200);
  gpt.config.layers = own.between(3, 16);
  gpt.config.heads = own.between(3, 12);
  gpt.config.channels = gpt.config.heads * 2 * own.between(8, 32);
  return gpt;
}

enum What { Weights, Gradients, Optimizer, Activations };

// Weights, gradients and optimizer: bytes allocated after a step. Activations: bytes that the tape saves.
static double bytes_of(What what, const Gpt& gpt) {
  Context meta("meta");
  const Meter& meter = meta.device.meter();
  Transformer model(gpt.config);
  AdamW optimizer(model.parameters);
  if (what == Weights) return double(meter.now()[Kind::Weight]);
  if (what == Optimizer) return double(meter.now()[Kind::Optimizer]);
  const DummyBatch batch = dummy_batch(gpt.config, gpt.batch, gpt.config.context);
  Tape tape;
  const Tensor loss = batch.loss(model);
  if (what == Activations) return double(tape.saved_bytes());
  tape.backward(loss);
  return double(meter.now()[Kind::Gradient]);
}

static Quiz quiz(const std::string& student) {
  const Gpt gpt = own_gpt(student);
  const TransformerConfig& c = gpt.config;
  std::ostringstream setting;
  setting << "Your GPT has " << c.layers << " layers of " << c.channels << " channels and " << c.heads
          << " heads, and a vocabulary of " << c.vocab << ". It is trained in fp32 with AdamW on batches of "
          << gpt.batch << " sequences of " << c.context << " tokens, the whole context.";
  const auto bytes = [gpt](What what) { return measured([=] { return bytes_of(what, gpt); }); };
  return {setting.str(),
          {{"03.5", "weights", "how many bytes do the weights take?", bytes(Weights)},
           {"03.5", "gradients", "how many bytes do their gradients take?", bytes(Gradients)},
           {"03.5", "optimizer", "how many bytes do the states of the optimizer take?", bytes(Optimizer)},
           {"03.5", "activations", "how many bytes of activations does the tape save for the backward pass?",
            bytes(Activations)}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "03", gradus::predict::quiz); }
