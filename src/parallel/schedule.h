// The schedule of a pipeline, as data. The blocks of a model are cut into consecutive chunks (chunk c is on
// rank c % ranks), and a batch goes through the chunks in micro-batches. A schedule lists the tasks of each
// rank, in order. It can be checked before anything runs.
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
// A rank computes a backward pass as soon as it can (Narayanan et al. 2021, "Efficient large-scale
// language model training on GPU clusters using Megatron-LM", sec. 2.2.1). Rank r has at most ranks - r
// micro-batches in flight.
Schedule one_forward_one_backward(int64_t ranks, int64_t micro_batches);
// The same with several chunks per rank, and groups of `ranks` micro-batches (sec. 2.2.2). An error
// unless ranks divides micro_batches; with one chunk per rank it is one_forward_one_backward.
Schedule interleaved(int64_t ranks, int64_t micro_batches, int64_t chunks_per_rank);

// "F3": forward pass of micro-batch 3; "B3.6": its backward pass, on chunk 6. One line per rank; the chunk is
// omitted if it is the rank's number. '#' begins a comment. An error names the word that cannot be read.
Schedule schedule_of_text(std::string_view text);
std::string text_of(const Schedule& schedule);
std::string text_of(const Task& task, int64_t rank);

struct ChunkTimes {
  double forward = 1, backward = 2;
};
struct Timeline {
  // Why the schedule cannot run, as a sentence; empty if it can: then the rest describes all of it.
  std::string problem = {};
  struct Entry {
    Task task;
    double begin, end;  // seconds
  };
  std::vector<std::vector<Entry>> of_rank;  // in the order of the schedule
  std::vector<int64_t> in_flight;  // per rank: the most forward passes whose backward pass is still to come
  double seconds = 0;
  double bubble = 0;  // the fraction of all ranks' time in which they wait
};
// Simulates a schedule: every rank begins its next task as soon as the input has arrived; only the receiver
// waits for a message. times: per chunk. links: the seconds of a message from each rank to the next (from the
// last to rank 0); empty: 0. The schedule can run exactly if the simulation comes to its end: each rank has
// every task of its chunks once, and there is no deadlock.
Timeline play(const Schedule& schedule, const std::vector<ChunkTimes>& times,
              const std::vector<double>& links = {});

// Cuts blocks so that the largest of the `chunks` costs is as small as possible; returns the index of the
// first block after each chunk. Every chunk has at least one block; `before` and `behind` are the costs of
// the embedding and the head.
std::vector<int64_t> cut_blocks(const std::vector<double>& costs, double before, double behind,
                                int64_t chunks);
// Chunks of equal, or nearly equal, numbers of blocks, for blocks that all cost the same.
std::vector<int64_t> even_cuts(int64_t blocks, int64_t chunks);

}  // namespace gradus
