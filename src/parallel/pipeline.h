// Pipeline parallelism: each rank has some blocks of the model, and passes their outputs on to the next rank;
// the micro-batches of a batch go through the ranks in the order of a schedule (schedule.h).
#pragma once
#include <map>
#include <memory>

#include "src/nn/transformer.h"
#include "src/parallel/comm/comm.h"
#include "src/parallel/schedule.h"
#include "src/train/accumulate.h"

namespace gradus {

// What a rank computes. Undefined tensors mean none: the first chunk gets no x and returns no dx; the last
// chunk returns no y that another chunk needs, and gets no dy.
struct PipelineWork {
  virtual ~PipelineWork() = default;
  virtual Tensor forward(int64_t micro_batch, int64_t chunk, Tensor x) = 0;    // returns y
  virtual Tensor backward(int64_t micro_batch, int64_t chunk, Tensor dy) = 0;  // returns dx
};
// What a task used: the bytes that were allocated when it began; the most bytes beyond those, and how many of
// them it kept; and seconds on the rank's clock.
struct TaskUse {
  Task task;
  int64_t before, most, kept;
  double seconds;
};
// Runs this rank's list of the schedule. All tensors between ranks have this shape and dtype. While a rank
// computes, the input of its next task may arrive, and its last output is sent. If `uses` is given, it gets
// what each task used; the meter's peak is then reset at the beginning of each task.
void run_schedule(Comm& ranks, const Schedule& schedule, const Shape& shape, DType dtype, PipelineWork& work,
                  std::vector<TaskUse>* uses = nullptr);

// The part of a model that a rank has. ends: for each chunk, the index of the block after its last one
// (cut_blocks); the same on all ranks.
ModelPart part_of_pipeline(const std::vector<int64_t>& ends, int64_t rank, int64_t ranks);

class Pipeline : private PipelineWork {
 public:
  // model: this rank's part. A tied embedding is counted on the first rank (Parameter::counted). Errors: a
  // wrong part; token types or a pooled head; a balance loss, which would need all routers.
  Pipeline(Comm& ranks, Transformer& model);
  ~Pipeline();  // the model must still live; its parameters are all counted again
  Pipeline(const Pipeline&) = delete;

  // Adds the gradients of a batch, micro-batch by micro-batch; all have the same shape. Returns the sum of
  // their losses on the last rank, 0 on the others. Each loss is a share of the mean over `targets` targets.
  // An error if the schedule cannot run.
  double run(const Schedule& schedule, const std::vector<TextBatch>& micro_batches, int64_t targets);
  std::vector<TaskUse>* uses = nullptr;  // passed to run_schedule()
  // Call this after the last run() of a step: a tied embedding's gradient becomes the sum of the first and
  // the last rank's gradients.
  void sum_tied_gradients();

 private:
  Tensor forward(int64_t micro_batch, int64_t chunk, Tensor x) override;
  Tensor backward(int64_t micro_batch, int64_t chunk, Tensor dy) override;
  bool first() const { return ranks_.rank() == 0; }
  bool last() const { return ranks_.rank() == ranks_.size() - 1; }

  struct InFlight {  // between a forward pass and its backward pass
    Leaf input;
    GradSlot output;
    std::unique_ptr<Tape> tape;
  };
  Comm& ranks_;
  Transformer& model_;
  std::unique_ptr<Comm> ends_;  // the first and the last rank; the ranks between are a second group
  const std::vector<TextBatch>* batches_ = nullptr;
  Tensor targets_;
  std::map<std::pair<int64_t, int64_t>, InFlight> in_flight_;  // by micro-batch and chunk
  std::vector<Tensor> losses_;
};

}  // namespace gradus
