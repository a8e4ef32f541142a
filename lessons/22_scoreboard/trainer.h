// The trainer: a run that its settings describe, its steps, and the training loop.
#pragma once
#include <optional>

#include "lessons/22_scoreboard/trained_model.h"
#include "src/data/prefetch.h"
#include "src/io/run_time_compiler.h"
#include "src/tensor/captured_step.h"
#include "src/train/step_recorder.h"
#include "src/train/text.h"

namespace gradus {

Text text_of(const TrainSettings& s);

// The state of a run between two steps, on each rank. The settings and this state determine all later steps,
// so a run that was saved and resumed is bitwise equal to a run without an interruption.
class Training {
 public:
  // ranks: nullptr for one device. The text must outlive this object.
  Training(const TrainSettings& s, const Text& text, Comm* ranks = nullptr);
  double step();                            // trains one step; returns the loss of the batch, over all ranks
  double held_out();                        // held-out loss in nats per byte; only on one device
  int64_t steps() const { return steps_; }  // number of steps so far

  // Called on all ranks together. save() replaces an existing file only after the new one is complete.
  void save(const std::string& path) const;
  void load(const std::string& path);

  const TrainSettings settings;
  Comm* const ranks;
  const Loader loader;
  const std::unique_ptr<TrainedModel> trained;
  const std::unique_ptr<Optimizer> optimizer;

 private:
  double replayed_step(const TextBatch& batch, double learning_rate);

  int64_t steps_ = 0;
  std::unique_ptr<Prefetch<TextBatch>> batches_;  // created in the first step
  struct Replay {
    Tensor inputs, targets, loss;
    CapturedStep captured;
    RunTimeCompiler compiler;
    bool fused = false;
  };
  std::unique_ptr<Replay> replay_;
};

// While it exists, SIGINT and SIGTERM end the training loop after the current step, and the loop saves the
// run. A second signal ends the program at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  static int received();  // the signal's number; 0: none
};

struct TrainFiles {
  std::string save, curve;  // file for the run; file for the loss curve, one line of JSON per step; "": none
  int64_t save_every = 100;
};
// Trains until the last step, or until a signal; saves after every save_every steps and at the end.
StepRecorder train(Training& training, const TrainFiles& files);

}  // namespace gradus
