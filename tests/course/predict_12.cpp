// The questions of 12.5, about a matrix of the student's own: how many parameters of an adapter train, how
// many bytes their gradients and optimizer states take, and how many bytes the matrix takes in 4 bits.
#include <sstream>

#include "src/nn/lora.h"
#include "src/optim/optimizer.h"
#include "src/tensor/context.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Own12 {
  int64_t channels, r, spans;  // spans: of 16,384 elements
};

static Own12 own_run(const std::string& student) {
  Own own(student, "12.5");
  Own12 o{};
  o.channels = 8 * own.between(5, 20), o.r = own.between(2, 12), o.spans = own.between(3, 30);
  return o;
}

// A model of one block, with an adapter on the first layer of its MLP.
static Transformer adapted(const Own12& o) {
  Transformer model({.vocab = 10, .context = 4, .layers = 1, .heads = 4, .channels = o.channels});
  add_lora(model, ".*mlp.c_fc", {.r = o.r}, 1);
  return model;
}

static double trainable(const Own12& o) {
  const Context meta("meta");
  return double(adapted(o).parameters.numel_trainable());
}

static double bytes(const Own12& o) {
  Context meta("meta");
  Transformer model = adapted(o);
  const AdamW optimizer(model.parameters);
  Tape tape;
  const Tensor ids(meta.device, {1, 4}, DType::I32, Kind::Data, "ids");
  tape.backward(model.loss(ids, ids));
  const Usage& now = meta.device.meter().now();
  return double(now[Kind::Optimizer] + now[Kind::Gradient]);
}

static double coded_bytes(const Own12& o) {
  const Context meta("meta");
  const Tensor w(current().device, {o.spans * 128, 128}, DType::F32, Kind::Weight, "own");
  return double(DoubleQuantizer(current().device).quantize(w).bytes());
}

static Quiz quiz(const std::string& student) {
  const Own12 o = own_run(student);
  std::ostringstream setting, coded;
  setting << "Your model has one transformer block of " << o.channels << " channels, in fp32. "
          << "Only the first linear layer of its MLP, (4 C, C), has an adapter. Its rank is " << o.r
          << ", and AdamW trains it.";
  coded
      << "A matrix (" << o.spans * 128 << ", 128) is stored in NF4, in quantization blocks of 64 weights, "
      << "with double quantization in blocks of 256 scales: how many bytes are the codes of its weights, the "
      << "codes of its scales, and the scales of those codes, together?";
  const std::string id = "12.5";
  return {setting.str(),
          {{id, "trainable", "how many parameters train?", measured([o] { return trainable(o); })},
           {id, "bytes", "how many bytes do the gradients and the optimizer states take?",
            measured([o] { return bytes(o); })},
           {id, "coded", coded.str(), measured([o] { return coded_bytes(o); })}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "12", gradus::predict::quiz); }
