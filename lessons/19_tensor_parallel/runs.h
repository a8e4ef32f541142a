// The runs that are compared: on ranks, on one device, and on one device that adds in rank order.
#pragma once
#include <functional>

#include "src/optim/optimizer.h"
#include "src/parallel/shards.h"
#include "src/parallel/tensor_parallel.h"
#include "src/train/text.h"

namespace gradus {

// AdamW amplifies rounding errors; SGD hardly does. So only runs with SGD are compared with plain training.
enum class By : uint8_t { AdamW, Sgd };
std::unique_ptr<Optimizer> optimizer_of(By, Parameters&);
constexpr double learning_rate(By by) { return by == By::AdamW ? 1e-3 : 0.03; }

struct TokensRun : RankRun {
  std::vector<double> losses;
  Weights first_gradients;                   // in step 0, of this rank's part of each parameter
  std::vector<std::optional<Shard>> shards;  // this part; empty: all of it
  int64_t sent = 0;                          // elements
  // Call these after the backward pass of each step, and after the last step.
  void note_gradients(const Parameters&, int64_t step);
  void end(const Parameters&);
};

// Trains on one device; `change` may replace layers of the model.
TokensRun train_alone(const Loader& loader, const ParallelTask& task, By by,
                      const std::function<void(Transformer&)>& change = {});
// The reference runs on one device add in the same order as the ranks, so both must be bitwise equal.
// From now on the model adds t partial products in rank order where t ranks of tensor parallelism add them.
void add_in_parts(Transformer& model, int64_t t);
// Trains as `ranks` ranks of context parallelism do, with a model for each rank's chunks, all of equal
// weights. Attention merges the chunks in the order of the ring; gradients are added in rank order.
TokensRun train_in_chunks(const Loader& loader, const ParallelTask& task, By by, int64_t ranks);
// Its loss of a micro-batch, with the output heads of `heads`. Each rank's loss is added to `losses`.
Tensor loss_in_chunks(const std::vector<Transformer*>& models, const std::vector<Transformer*>& heads,
                      const TextBatch& batch, const Tensor& count, std::vector<double>& losses);

// Compares runs on ranks with runs on one device, and keeps the largest differences for report().
class Compared {
 public:
  Compared(const RanksArgs& args, const ParallelTask& task, Report& report)
      : args_(args), task_(task), report_(report) {}
  using Train = std::function<TokensRun(Comm&)>;
  // Trains on ranks and adds a row. Returns the runs of all ranks, or, in a process, its own. With AdamW,
  // parameters and losses must equal those of `alone` bitwise; with SGD, losses and first gradients nearly.
  std::vector<TokensRun> with(const std::string& name, int64_t ranks, By by, const TokensRun& alone,
                              const Train& train);
  // Adds the checks. `most`: the allowed difference of a gradient, relative to its norm.
  void report(const std::string& name, double most) const;

 private:
  RanksArgs args_;
  const ParallelTask& task_;
  Report& report_;
  double unlike_ = 0, exact_losses_ = 0, losses_ = 0, gradients_ = 0;
};

// Checks that two runs, which gather the same numbers once or again, have bitwise equal weights.
void check_gathered_again(const TokensRun& once, const TokensRun& again, Report& report);

}  // namespace gradus
