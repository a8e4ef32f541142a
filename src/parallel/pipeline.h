// Pipeline parallelism: each rank has some blocks of the model, and passes what they make on to the next one;
// the micro-batches of a batch follow each other through the ranks, in the order of a schedule (schedule.h).
#pragma once
#include <map>
#include <memory>

#include "src/nn/transformer.h"
#include "src/parallel/comm/comm.h"
#include "src/parallel/schedule.h"
#include "src/train/accumulate.h"

namespace gradus {

// What a rank computes. An undefined tensor is none: the first chunk has no x and makes no gradient of it,
// the last one makes no y that another chunk needs, and gets no gradient.
struct PipelineWork {
  virtual ~PipelineWork() = default;
  virtual Tensor forward(int64_t micro_batch, int64_t chunk, Tensor x) = 0;    // returns y
  virtual Tensor backward(int64_t micro_batch, int64_t chunk, Tensor dy) = 0;  // returns dx
};
// What a task used: bytes that were allocated when it began; beyond those, at most and in the end; and
// seconds on the rank's clock.
struct TaskUse {
  Task task;
  int64_t before, most, kept;
  double seconds;
};
// This rank's list of the schedule. All that travels has this shape and dtype. While a rank computes, the
// input of its next task may come, and its last output goes. `uses`, if given, gets what each task used; the
// meter's peak then begins anew with each.
void run_schedule(Comm& ranks, const Schedule& schedule, const Shape& shape, DType dtype, PipelineWork& work,
                  std::vector<TaskUse>* uses = nullptr);

// The part of a model that a rank has. ends: of each chunk, the block behind its last (cut_blocks); the same
// on all ranks.
ModelPart part_of_pipeline(const std::vector<int64_t>& ends, int64_t rank, int64_t ranks);

class Pipeline : private PipelineWork {
 public:
  // model: this rank's part. A tied embedding is counted on the first rank (Parameter::counted). Errors, with
  // a sentence: a wrong part; token types or a pooled head; a balance loss, which would need all routers.
  Pipeline(Comm& ranks, Transformer& model);
  ~Pipeline();  // the model still lives; all its parameters are counted again
  Pipeline(const Pipeline&) = delete;

  // Adds the gradients of a batch, in its micro-batches, which all have the same shape; returns the sum of
  // their losses on the last rank, elsewhere 0. Each is a share of the mean over so many `targets`. An error
  // if the schedule cannot run.
  double run(const Schedule& schedule, const std::vector<TextBatch>& micro_batches, int64_t targets);
  std::vector<TaskUse>* uses = nullptr;  // of run_schedule()
  // After the last run() of a step: the gradient of a tied embedding is the sum of the first and the last
  // rank's.
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
  std::unique_ptr<Comm> ends_;  // the first and the last rank; those between have a group of their own
  const std::vector<TextBatch>* batches_ = nullptr;
  Tensor targets_;
  std::map<std::pair<int64_t, int64_t>, InFlight> in_flight_;  // by micro-batch and chunk
  std::vector<Tensor> losses_;
};

}  // namespace gradus
