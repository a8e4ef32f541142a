// The questions of 12.5: what of a matrix of the student's own trains with an adapter, what AdamW and the
// gradients then take, and what the matrix takes in 4 bits.
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

// A block of so many channels, adapters on its MLP's first layer.
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
  setting << "Your model has one block of " << o.channels
          << " channels, in fp32. Only the first linear layer of its "
          << "MLP, (4 C, C), has an adapter, of rank " << o.r << "; AdamW trains it.";
  coded << "A matrix (" << o.spans * 128
        << ", 128) is kept in NF4, blocks of 64, with double quantization in blocks of "
        << "256: how many bytes are its codes, the codes of its scales, and their scales?";
  const std::string id = "12.5";
  return {setting.str(),
          {{id, "trainable", "how many numbers train?", measured([o] { return trainable(o); })},
           {id, "bytes", "how many bytes do gradients and states take?", measured([o] { return bytes(o); })},
           {id, "coded", coded.str(), measured([o] { return coded_bytes(o); })}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "12", gradus::predict::quiz); }
