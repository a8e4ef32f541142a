// The questions of 09.6: the bytes of a model in two recipes, the number that follows a power of two in two
// formats, and a loss scale after some updates. Each student gets different sizes.
#include <sstream>

#include "src/optim/optimizer.h"
#include "src/tensor/context.h"
#include "src/train/dummy.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Own09 {
  TransformerConfig model;
  int64_t power;                             // of two
  int64_t scale, interval, good, bad, more;  // good updates, then bad ones, then more good ones
};

static Own09 own_run(const std::string& student) {
  Own own(student, "09.6");
  Own09 o{{.vocab = 64 * own.between(2, 20), .context = 16 * own.between(1, 8)}, 0, 0, 0, 0, 0, 0};
  o.model.layers = own.between(2, 6), o.model.heads = own.between(2, 4);
  o.model.channels = o.model.heads * 8 * own.between(2, 6);
  o.power = own.between(8, 14);
  o.scale = int64_t(1) << own.between(10, 20);
  o.interval = own.between(2, 4), o.good = own.between(1, 9), o.bad = own.between(1, 3);
  o.more = own.between(1, 9);
  return o;
}

// Bytes of weights, master copies, gradients and AdamW's states after an update.
static double bytes(TransformerConfig config, const char* recipe) {
  Context meta("meta");
  config.precision = precision_recipe(recipe);
  Transformer model(config);
  AdamW optimizer(model.parameters);
  {
    Tape tape;
    tape.backward(dummy_batch(config, 1, config.context).loss(model));
  }
  optimizer.step(0);
  const Usage now = meta.device.meter().now();
  return double(now[Kind::Weight] + now[Kind::Master] + now[Kind::Gradient] + now[Kind::Optimizer]);
}

static double scale_after(const Own09& o) {
  Context cpu("cpu");
  Parameters parameters;
  Parameter& p = parameters.add("w", {1}, {});
  Sgd sgd(parameters);
  start_loss_scaling(cpu.device, float(o.scale), o.interval);
  for (int64_t i = 0; i < o.good + o.bad + o.more; ++i) {
    const bool bad = i >= o.good && i < o.good + o.bad;
    p.leaf.grad =
        from_host(cpu.device, std::vector<double>{bad ? INFINITY : 1}, {1}, DType::F32, Kind::Gradient, "w");
    p.leaf.written = true;
    sgd.clip_grad_norm(0);
    sgd.step(0);
    cpu.end_attempt();
  }
  return cpu.device.scalars().loss_scale;
}

// The smallest number of type T that is larger than 2^power.
template <class T>
static double next_after(int64_t power) {
  T x(float(int64_t(1) << power));
  ++x.bits;
  return double(float(x));
}

static Quiz quiz(const std::string& student) {
  const Own09 o = own_run(student);
  std::ostringstream setting, scale;
  setting << "Your model is a GPT of " << o.model.layers << " layers, " << o.model.channels
          << " channels and " << o.model.heads << " heads, with a vocabulary of " << o.model.vocab
          << " and a context of " << o.model.context << " tokens, trained with AdamW.";
  scale << "A loss scale starts at " << o.scale << " and is doubled after " << o.interval
        << " good updates in a row. A run makes " << o.good << " good updates, then " << o.bad
        << " updates with an overflow, then " << o.more << " good updates. What is the scale at the end?";
  const std::string id = "09.6", two = std::to_string(int64_t(1) << o.power);
  return {setting.str(),
          {{id, "mixed",
            "How many bytes do weights, master copies, gradients and states need in mixed precision?",
            measured([o] { return bytes(o.model, "mixed"); })},
           {id, "half", "And with everything in fp16?", measured([o] { return bytes(o.model, "half"); })},
           {id, "bf16", "What is the smallest bf16 number larger than " + two + "?",
            measured([o] { return next_after<bf16>(o.power); })},
           {id, "fp16", "And in fp16?", measured([o] { return next_after<fp16>(o.power); })},
           {id, "scale", scale.str(), measured([o] { return scale_after(o); })}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "09", gradus::predict::quiz); }
