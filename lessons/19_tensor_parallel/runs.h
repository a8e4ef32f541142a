// The runs that are compared: on ranks, on one device, and on one device that adds as ranks do.
#pragma once
#include <functional>

#include "src/optim/optimizer.h"
#include "src/parallel/shards.h"
#include "src/parallel/tensor_parallel.h"
#include "src/train/text.h"

namespace gradus {

// Twenty updates by AdamW amplify a rounding, those by SGD do not: the first are compared to the bit with one
// device that adds as the ranks do, the others with ordinary training.
struct UpdateBy {
  const char* name;
  double learning_rate;
  std::unique_ptr<Optimizer> (*make)(Parameters&);
};
extern const UpdateBy kAdamW, kSgd;

struct TokensRun : RankRun {
  std::vector<double> losses;
  Weights first_gradients;                   // of each parameter, or of the part that this rank has
  std::vector<std::optional<Shard>> shards;  // which part
  Sent sent;                                 // in a step
};

// The whole batch of a step, for every rank.
TextBatch whole_batch(const Loader& loader, const ParallelTask& task, int64_t step);
// Notes what the step has come to: after backward, and after the update.
void note_gradients(TokensRun& run, const Parameters& parameters, int64_t step);
void note_weights(TokensRun& run, const Parameters& parameters);

// On one device; `change` may give the model other layers.
TokensRun train_alone(const Loader& loader, const ParallelTask& task, const UpdateBy& update,
                      const std::function<void(Transformer&)>& change = {});

// Of a rank's run, beside one device's: parameters whose parts differ in any bit; the largest difference of
// losses; of the first gradients, the largest norm of a difference over the tensor's norm.
int64_t count_unlike(const TokensRun& rank, const TokensRun& alone);
double losses_off(const TokensRun& rank, const TokensRun& alone);
double gradients_off(const TokensRun& rank, const TokensRun& alone);

}  // namespace gradus
