// The trainer: a run from its settings, its steps, and the loop around them.
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

// A run between two steps, on each rank. What it does from here on follows from its settings and its state
// alone: a run that is saved and loaded goes on bitwise equal to one that was never stopped.
class Training {
 public:
  // ranks: nullptr for one device. The text outlives it.
  Training(const TrainSettings& s, const Text& text, Comm* ranks = nullptr);
  double step();                            // one update; returns the loss of its batch, of all ranks
  double held_out();                        // loss, in nats per byte; on one device
  int64_t steps() const { return steps_; }  // that were made

  // All ranks together. A file is replaced as a whole or not at all.
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
  std::unique_ptr<Prefetch<TextBatch>> batches_;  // from the first step on
  struct Replay {
    Tensor inputs, targets, loss;
    CapturedStep captured;
    RunTimeCompiler compiler;
    bool fused = false;
  };
  std::unique_ptr<Replay> replay_;
};

// SIGINT and SIGTERM, while it lives: the loop ends after the present step, and saves. A second one ends the
// program at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  static int received();  // the signal's number; 0: none
};

struct TrainFiles {
  std::string save, curve;  // of the run, to go on from; a line of JSON per step; or ""
  int64_t save_every = 100;
};
// Trains to the last step, or until a signal; saves every save_every steps and in the end.
StepRecorder train(Training& training, const TrainFiles& files);

}  // namespace gradus
