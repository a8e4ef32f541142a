// The training of lessons 17 and 18: the sequences that each rank reads, the results of a run, and the run on
// one device that the ranks together must equal.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/core/args.h"
#include "src/data/tokenizer.h"
#include "src/parallel/comm/processes.h"
#include "src/train/accumulate.h"
#include "src/train/report.h"

namespace gradus {

// The flags --ranks, up to `most`, --comm and --comm-timeout.
RanksArgs ranks_flags(Args& flags, int64_t most, int64_t usual = 4);

struct ParallelTask {
  TransformerConfig model{.vocab = ByteTokenizer::kVocabulary,
                          .context = 64,
                          .layers = 4,
                          .heads = 4,
                          .channels = 128,
                          .dropout = 0.1};
  int64_t batch = 24, steps = 0;  // batch: sequences per step, on all ranks together
  uint64_t seed = 0;
  double max_norm = 1, learning_rate = 1e-3;
  int64_t text_bytes = 300'000;
};
// A smaller task on emu.
ParallelTask parallel_task(std::string_view device, int64_t steps, uint64_t seed);

// The sequences of step `step` that a rank reads: consecutive shares of the batch, as equal as possible,
// larger shares first.
TextBatch read_shard(const Loader& loader, const ParallelTask& task, int64_t step, int64_t rank,
                     int64_t ranks);

// The rank's share of the mean loss over the whole batch; dropout draws the masks that the rank's samples
// have in the whole batch.
Tensor share_of_loss(const Transformer& model, const ParallelTask& task, const TextBatch& mine);

// The sum of all ranks' values, the same on all ranks.
double sum_over_ranks(Comm& comm, double mine);

using Weights = std::vector<std::vector<double>>;  // by parameter
struct OneDevice {
  Weights weights;   // after the last step
  double loss_last;  // of the last step
};
// The same training on one device, which keeps each rank's gradients in a separate buffer and adds the
// buffers in rank order. With one rank this is ordinary training.
OneDevice train_on_one_device(const Loader& loader, const ParallelTask& task, int64_t ranks);

struct RankRun {  // the results of a run, on one rank
  Weights weights;
  std::vector<double> seconds;  // of each step, on the rank's clock
  double loss = 0;              // of the last step, summed over the ranks
  Usage peak;
};
ReportRow& add_row(Report& report, const std::string& name, const RankRun& run, const ParallelTask& task);
// The parameters whose weights differ or are missing. NaN on the device meta.
double count_unlike(const RankRun& run, const OneDevice& alone);
// The largest difference between weights; infinite if their numbers differ or there are none.
double off_by(const Weights& a, const Weights& b);

}  // namespace gradus
