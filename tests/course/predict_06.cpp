// The questions of 06.1 (three updates of one weight by hand) and of 06.6 (the bytes of the states for a
// model with the student's own numbers, and the FLOPs of Muon's products). The program measures the answers
// on meta.
#include "src/nn/transformer.h"
#include "src/optim/muon.h"
#include "src/tensor/context.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Updates {
  int64_t w, first, second, third;  // the weight, and its gradients
};

struct After {
  double m, w;
};
// On emu, because its kernels are not part of an exercise.
static After after(const Updates& u, int count, bool nesterov) {
  const Context emu("emu");
  Parameters parameters;
  Parameter& w = parameters.add("w", {1}, {});
  copy_from_host(w.value, {double(u.w)});
  Sgd sgd(parameters, {.momentum = 0.5f, .nesterov = nesterov});
  const int64_t gradients[] = {u.first, u.second, u.third};
  for (int i = 0; i < count; ++i) {
    w.leaf.grad = from_host(current().device, std::vector<double>{double(gradients[i])}, {1}, DType::F32,
                            Kind::Gradient, "g");
    w.leaf.written = true;
    sgd.step(0.5);
  }
  return {item(sgd.states[0].tensors[0]), item(w.value)};
}

template <class O, class Args>
static Judge states(const TransformerConfig& config, const Args& args) {
  return measured([=] {
    Context meta("meta");
    Transformer model(config);
    const O optimizer(model.parameters, args);
    return double(meta.device.meter().now()[Kind::Optimizer]);
  });
}

static double flops_of_products(int64_t R, int64_t C) {
  Context meta("meta");
  newton_schulz(Tensor(meta.device, {R, C}, DType::BF16, Kind::Temporary, "x"), MuonArgs().iterations);
  return double(meta.device.meter().totals(OpClass::Contraction).flops);
}

static Quiz quiz(const std::string& student) {
  Own of_updates(student, "06.1"), own(student, "06.6");
  const Updates u{of_updates.between(31, 60), of_updates.between(2, 9), of_updates.between(2, 9),
                  of_updates.between(2, 9)};
  TransformerConfig c{.vocab = 64 * own.between(2, 20), .context = 32 * own.between(1, 8)};
  c.layers = own.between(2, 9), c.heads = own.between(2, 6), c.channels = c.heads * 8 * own.between(2, 6);
  std::ostringstream setting, updates, product;
  setting << "Your model is a GPT of " << c.layers << " layers, " << c.channels << " channels and " << c.heads
          << " heads, a vocabulary of " << c.vocab << " tokens and a context of " << c.context
          << " tokens. All tensors are in fp32.";
  updates
      << "SGD with momentum updates the weight w = " << u.w
      << " three times, with the gradients g1 = " << u.first << ", g2 = " << u.second
      << " and g3 = " << u.third
      << ". The learning rate is 1/2, the momentum is 1/2, and m is 0 at first. What is m after the third "
         "update?";
  product << "How many FLOPs do the products of Muon's five iterations need for one matrix of "
          << 4 * c.channels << " rows and " << c.channels << " columns?";
  const auto by_hand = [u](int count, bool nesterov, double After::*what) {
    return measured([=] { return after(u, count, nesterov).*what; }, 1e-3);
  };
  return {setting.str(),
          {{"06.1", "m3", updates.str(), by_hand(3, false, &After::m)},
           {"06.1", "w3", "What is w after the third update?", by_hand(3, false, &After::w)},
           {"06.1", "w2_nesterov", "With Nesterov's momentum instead: what is w after the second update?",
            by_hand(2, true, &After::w)},
           {"06.6", "momentum", "How many bytes are the states of SGD with momentum?",
            states<Sgd>(c, SgdArgs{.momentum = 0.9f})},
           {"06.6", "adamw", "How many bytes are the states of AdamW?", states<AdamW>(c, AdamWArgs{})},
           {"06.6", "adafactor", "How many bytes are the states of Adafactor?",
            states<Adafactor>(c, AdafactorArgs{})},
           {"06.6", "muon", "How many bytes are the states of Muon?", states<Muon>(c, MuonArgs{})},
           {"06.6", "products", product.str(),
            measured([c] { return flops_of_products(4 * c.channels, c.channels); })}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "06", gradus::predict::quiz); }
