// The questions of exercise 04.4: the bytes of each kind at the peak of the student's own run, and which
// tensors grow with the batch size and the sequence length. The answers are measured on meta.
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
  Own own(student, "04.4");
  const int64_t layers = own.between(2, 12), heads = own.between(2, 12), of_head = 4 * own.between(8, 20);
  std::ostringstream name;
  name << "gpt-" << layers << "x" << heads * of_head << "x" << heads;
  Own04 o{name.str(), {transformer_config(name.str()), own.between(2, 24), 4 * own.between(20, 128)}};
  o.run.model.precision = precision_recipe("mixed");
  return o;
}

// Two steps, because the first step allocates the gradients. `look` reads the allocator afterwards.
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

// The largest tensor of this name if batch size and sequence length are multiplied by these factors.
static Judge largest(const std::string& name, TrainingRun run, int64_t batch_factor, int64_t seq_factor) {
  run.batch *= batch_factor, run.seq *= seq_factor;
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
          << ". All questions ask for bytes at the peak of this run.";
  const std::string id = "04.4", gelu = "how many bytes does the output of GELU in one layer take",
                    probs = "how many bytes do the attention probabilities of one layer take";
  return {
      setting.str(),
      {{id, "weight", "how many bytes do the weights take?", at_peak(run, Kind::Weight)},
       {id, "master", "how many bytes do the master copies of the weights take?", at_peak(run, Kind::Master)},
       {id, "gradient", "how many bytes do the gradients of the weights take?", at_peak(run, Kind::Gradient)},
       {id, "optimizer", "how many bytes do the optimizer states take?", at_peak(run, Kind::Optimizer)},
       {id, "gelu", gelu + "?", largest("gelu", run, 1, 1)},
       {id, "probabilities", probs + "?", largest("attention.probs", run, 1, 1)},
       {id, "gelu_batch_doubled", gelu + ", if --batch is doubled?", largest("gelu", run, 2, 1)},
       {id, "gelu_seq_doubled", gelu + ", if --seq is doubled (and --batch is not)?",
        largest("gelu", run, 1, 2)},
       {id, "probabilities_seq_doubled", probs + ", if --seq is doubled?",
        largest("attention.probs", run, 1, 2)},
       {id, "moment_batch_doubled",
        "how many bytes does AdamW's first moment of the largest parameter (the token embedding) take, if "
        "--batch is doubled?",
        largest("wte.weight.m", run, 2, 1)}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "04", gradus::predict::quiz); }
