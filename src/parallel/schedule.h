// The schedule of a pipeline, as data. The blocks of a model are cut into chunks that follow each other, the
// ranks compute them in turn (chunk c is on rank c % ranks), and a batch goes through them in micro-batches.
// A schedule lists for each rank what it computes, in order. It can be checked before anything runs.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradus {

enum class Pass : uint8_t { Forward, Backward };
struct Task {  // of one micro-batch on one chunk
  Pass pass;
  int64_t micro_batch, chunk;
  bool operator==(const Task&) const = default;
};
struct Schedule {
  int64_t chunks, micro_batches;
  std::vector<std::vector<Task>> of_rank;
  int64_t ranks() const { return int64_t(of_rank.size()); }
  // Numbers all tasks: the backward pass of a micro-batch on a chunk follows its forward pass.
  size_t index(const Task& a) const {
    return size_t(2 * (a.micro_batch * chunks + a.chunk)) + size_t(a.pass);
  }
  Task task(size_t index) const {
    const auto pair = int64_t(index / 2);
    return {Pass(index % 2), pair / chunks, pair % chunks};
  }
  // The task whose output is this one's input; none for the first chunk forward and the last one backward.
  std::optional<Task> input_of(const Task& task) const;
  // The task whose input is this one's output.
  std::optional<Task> receiver_of(const Task& task) const;
};

// All forward passes, then all backward passes (Huang et al. 2019, "GPipe", sec. 2.3; there the last
// micro-batch is the first in backward).
Schedule gpipe(int64_t ranks, int64_t micro_batches);
// As soon as a rank can compute a backward pass it does (Narayanan et al. 2021, "Efficient large-scale
// language model training on GPU clusters using Megatron-LM", sec. 2.2.1). Rank r has ranks - r micro-batches
// in flight at most.
Schedule one_forward_one_backward(int64_t ranks, int64_t micro_batches);
// The same with several chunks per rank, and groups of `ranks` micro-batches (sec. 2.2.2 there). An error
// unless ranks divides micro_batches; with one chunk per rank it is one_forward_one_backward.
Schedule interleaved(int64_t ranks, int64_t micro_batches, int64_t chunks_per_rank);

// "F3": forward of micro-batch 3; "B3.6": its backward, on chunk 6. One line per rank; the chunk is left out
// where it is the rank's number. '#' begins a comment. An error names what cannot be read.
Schedule schedule_of_text(std::string_view text);
std::string text_of(const Schedule& schedule);
std::string text_of(const Task& task, int64_t rank);

struct ChunkTimes {
  double forward = 1, backward = 2;
};
struct Timeline {
  // Why the schedule cannot run, as a sentence; empty if it can. The rest is then of the whole schedule.
  std::string problem = {};
  struct Entry {
    Task task;
    double begin, end;  // seconds
  };
  std::vector<std::vector<Entry>> of_rank;  // in the order of the schedule
  std::vector<int64_t>
      in_flight;  // of each rank: the most forward passes whose backward pass is still to come
  double seconds = 0;
  double bubble = 0;  // the share of all ranks' time in which they wait
};
// Lets every rank begin its next task as soon as the input is there: only its receiver waits for a message.
// times: of each chunk. links: the seconds of a message between each rank and the next, the last one's next
// is rank 0; empty: they take none. The schedule can run exactly if this comes to its end: each rank has
// every task of its chunks once, and not all of them wait for each other.
Timeline play(const Schedule& schedule, const std::vector<ChunkTimes>& times,
              const std::vector<double>& links = {});

// Where blocks are cut so that the largest of `chunks` costs is as small as possible: the first block behind
// each chunk. Every chunk has a block at least; `before` and `behind` are the costs of the embedding and the
// head.
std::vector<int64_t> cut_blocks(const std::vector<double>& costs, double before, double behind,
                                int64_t chunks);
// Chunks of equal numbers of blocks, or nearly: where all blocks cost the same.
std::vector<int64_t> even_cuts(int64_t blocks, int64_t chunks);

}  // namespace gradus
