// The questions of exercise 04.3: what a training step of the student's own run holds at its peak, and what
// grows with the batch and the sequence, measured on meta.
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "src/train/memory_need.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Own04 {
  std::string name;
  TrainingRun run;
};

static Own04 own_run(const std::string& student) {
  Own own(student, "04.3");
  const int64_t layers = own.between(2, 12), heads = own.between(2, 12), of_head = 4 * own.between(8, 20);
  std::ostringstream name;
  name << "gpt-" << layers << "x" << heads * of_head << "x" << heads;
  Own04 o{name.str(), {transformer_config(name.str()), own.between(2, 24), 4 * own.between(20, 128)}};
  o.run.model.precision = precision_recipe("mixed");
  return o;
}

// Two steps, because the gradients come in the first. `look` sees the allocator afterwards.
template <class Look>
static double after_training(const TrainingRun& run, const Look& look) {
  Context meta("meta");
  Allocator& allocator = meta.device.allocator();
  allocator.keep_history();
  Transformer model(run.model);
  AdamW optimizer(model.parameters);
  for (int step = 0; step < 2; ++step) {
    const DummyBatch batch = dummy_batch(run.model, run.batch, run.seq);
    Tape tape;
    const Tensor loss = batch.loss(model);
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.step(0);
  }
  return double(look(allocator));
}

static Judge at_peak(TrainingRun run, Kind kind) {
  return measured(
      [=] { return after_training(run, [=](const Allocator& a) { return a.meter().at_peak()[kind]; }); });
}

// The largest tensor of this name in a run with so many times the sequences, and tokens in each.
static Judge largest(const std::string& name, TrainingRun run, int64_t batches, int64_t tokens) {
  run.batch *= batches, run.seq *= tokens;
  return measured([=] {
    return after_training(run, [&](const Allocator& a) {
      int64_t bytes = 0;
      for (const MemoryEvent& e : a.history())
        if (e.action == Action::Alloc && e.name == name) bytes = std::max(bytes, e.requested);
      return bytes;
    });
  });
}

static Quiz quiz(const std::string& student) {
  const Own04 o = own_run(student);
  const TrainingRun& run = o.run;
  std::ostringstream setting;
  setting << "Your run is --model=" << o.name << " --recipe=mixed --batch=" << run.batch
          << " --seq=" << run.seq << ", with AdamW: " << run.model.layers << " layers of "
          << run.model.channels << " channels and " << run.model.heads
          << " heads; vocabulary and context are GPT-2's, " << run.model.vocab << " and " << run.model.context
          << ". Questions are about the bytes at its peak.";
  const std::string id = "04.3", gelu = "the GELU's output in one layer",
                    probs = "one layer's attention probabilities";
  return {setting.str(),
          {{id, "weight", "how many bytes do the weights take?", at_peak(run, Kind::Weight)},
           {id, "master", "their master copies?", at_peak(run, Kind::Master)},
           {id, "gradient", "the gradients?", at_peak(run, Kind::Gradient)},
           {id, "optimizer", "the optimizer's states?", at_peak(run, Kind::Optimizer)},
           {id, "gelu", gelu + "?", largest("gelu", run, 1, 1)},
           {id, "probabilities", probs + "?", largest("attention.probs", run, 1, 1)},
           {id, "gelu_batch_doubled", gelu + ", if the batch is doubled?", largest("gelu", run, 2, 1)},
           {id, "gelu_seq_doubled", gelu + ", if instead --seq is doubled?", largest("gelu", run, 1, 2)},
           {id, "probabilities_seq_doubled", probs + ", if --seq is doubled?",
            largest("attention.probs", run, 1, 2)},
           {id, "moment_batch_doubled",
            "AdamW's first moment of the largest parameter (the table of the vocabulary), if the batch is "
            "doubled?",
            largest("wte.weight.m", run, 2, 1)}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "04", gradus::predict::quiz); }
