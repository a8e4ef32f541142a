// The runs that are compared: on ranks, on one device, and on one device that adds as ranks do.
#pragma once
#include <functional>

#include "src/optim/optimizer.h"
#include "src/parallel/shards.h"
#include "src/parallel/tensor_parallel.h"
#include "src/train/text.h"

namespace gradus {

// AdamW amplifies a rounding, SGD hardly: so only runs by SGD are compared with plain training.
enum class By : uint8_t { AdamW, Sgd };
std::unique_ptr<Optimizer> optimizer_of(By, Parameters&);
constexpr double learning_rate(By by) { return by == By::AdamW ? 1e-3 : 0.03; }

struct TokensRun : RankRun {
  std::vector<double> losses;
  Weights first_gradients;                   // of each parameter, or of the part that this rank has
  std::vector<std::optional<Shard>> shards;  // which part
  int64_t sent = 0;                          // elements
  // After the backward pass of a step, and in the end.
  void note_gradients(const Parameters&, int64_t step);
  void end(const Parameters&);
};

// On one device; `change` may give the model other layers.
TokensRun train_alone(const Loader& loader, const ParallelTask& task, By by,
                      const std::function<void(Transformer&)>& change = {});

// Runs on ranks beside runs on one device. Of what differs the worst is kept, until report().
class Compared {
 public:
  Compared(const RanksArgs& args, const ParallelTask& task, Report& report)
      : args_(args), task_(task), report_(report) {}
  using Train = std::function<TokensRun(Comm&)>;
  // Trains on ranks, which adds a row; of processes the result has this one alone. With AdamW parameters and
  // losses must be what `alone` has, to the bit; with SGD losses and first gradients are near it.
  std::vector<TokensRun> with(const std::string& name, int64_t ranks, By by, const TokensRun& alone,
                              const Train& train);
  // The checks. Gradients may be off by so much of the norm of their tensor.
  void report(const std::string& name, double most) const;

 private:
  RanksArgs args_;
  const ParallelTask& task_;
  Report& report_;
  double unlike_ = 0, exact_losses_ = 0, losses_ = 0, gradients_ = 0;
};

}  // namespace gradus
