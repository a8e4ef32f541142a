#include "lessons/04_memory_anatomy/by_hand.h"

#include "src/nn/layers.h"
#include "src/optim/optimizer.h"
#include "src/tensor/context.h"

namespace gradus {

void bytes_by_hand(std::ostream& out) {
  Context context("meta");
  Parameters parameters;
  const Linear layer(parameters, "layer", 3, 2);  // 6 weights and 2 biases
  AdamW optimizer(parameters);
  const Tensor x(context.device, {4, 3}, DType::F32, Kind::Data, "x");
  const Tensor labels(context.device, {4}, DType::I32, Kind::Data, "labels");
  for (int step = 0; step < 2; ++step) {
    parameters.zero_grad();
    Tape tape;
    const Tensor loss = cross_entropy(layer(x), labels);
    if (step == 1) {
      tape.print(out);
      out << "\n" << context.device.meter().now().table("after the forward pass");
    }
    tape.backward(loss);
    optimizer.step(1e-3);
  }
}

}  // namespace gradus
