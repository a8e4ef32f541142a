#include <cmath>
#include <iostream>

#include "lessons/08_checkpointing/chain.h"
#include "lessons/08_checkpointing/policies.h"
#include "src/data/dummy.h"
#include "src/optim/optimizer.h"
#include "src/train/lesson.h"
#include "src/train/step_recorder.h"

using namespace gradus;

static int64_t most_activations(const std::vector<MemoryEvent>& history) {
  MemoryReplay replay;
  int64_t most = 0;
  for (const MemoryEvent& e : history) {
    replay.apply(e);
    most = std::max(most, replay.meter.now()[Kind::Activation]);
  }
  return most;
}

static int lesson_08(int argc, char** argv) {
  Lesson lesson(argc, argv, "08_checkpointing", "x", 3);
  lesson.done();
  if (lesson.print == "example") return chain_by_hand(std::cout), 0;
  std::cout << live_values({5, {}}) << live_values({5, {}, true}) << live_values({5, {2, 3}}) << "\n";
  for (int64_t n : {100, 400, 1600}) {
    const int64_t k = std::lround(std::sqrt(double(n)));
    std::cout << n << " " << activation_bytes({n, segments_of(n, k)}, 4096) / 4096.0 << "\n";
  }
  for (const TransformerConfig& model :
       {TransformerConfig{
            .vocab = 256, .context = 128, .layers = 8, .heads = 4, .channels = 128, .dropout = 0.1},
        TransformerConfig{.vocab = 10, .context = 256, .layers = 7, .heads = 8, .channels = 64},
        transformer_config("gpt2")}) {
    const int64_t B = 4;
    int64_t base = 0;
    for (const Policy& p : policies(model.layers)) {
      LessonContext context(lesson);
      Transformer m(model);
      m.initialize(1);
      p.apply(m);
      AdamW opt(m.parameters);
      context.device.allocator().keep_history();
      int64_t saved = 0, flops = 0;
      double loss = 0;
      StepRecorder rec;
      for (int s = 0; s < lesson.steps; ++s) {
        rec.begin();
        context.device.meter().reset_work();
        const DummyBatch b = dummy_batch(model, B, model.context);
        Tape tape;
        const Tensor l = b.loss(m);
        saved = tape.saved_bytes();
        loss = item(l);
        m.parameters.zero_grad();
        tape.backward(l);
        flops = context.device.meter().flops();
        opt.step(1e-3);
        rec.end();
      }
      if (base == 0) base = flops;
      const Sizes sizes{model, B, model.context};
      std::cout << p.name << " loss " << loss << " saved " << saved << " " << saved_bytes(p, sizes)
                << " peak " << most_activations(context.device.allocator().history()) << " "
                << peak_activations(p, sizes) << " extra " << flops - base << " " << extra_flops(p, sizes)
                << " = " << 100.0 * double(flops - base) / double(base) << " % ms "
                << summarize(rec.seconds).median * 1e3 << " peak alloc " << rec.peak.allocated() << "\n";
    }
  }
  return 0;
}

int main(int argc, char** argv) {
  return run_lesson([&] { return lesson_08(argc, argv); });
}
