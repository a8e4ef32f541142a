// ZeRO (Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models"):
// data parallelism without redundant copies. With N ranks and Psi parameters a rank keeps 1/N of
//
//   stage 1  the optimizer's states and the master copy            sent: 2 Psi (N-1)/N elements per step
//   stage 2  and the gradients, summed as soon as they are final   (k+1) Psi (N-1)/N with k micro-batches
//   stage 3  and the weights, gathered when they are needed        3 k Psi (N-1)/N
//
// Stage 0 is plain data parallelism. Parameters are in flat buffers, one per unit (what FSDP wraps: Zhao et
// al. 2023, "PyTorch FSDP", sec. 3.2.1); rank r owns the r-th of N equal parts of each buffer.
#pragma once
#include <deque>
#include <memory>

#include "src/parallel/comm/comm.h"
#include "src/parallel/flat.h"

namespace gradus {

struct ZeroArgs {
  int stage = 3;
  // The unit that a parameter belongs to. A layer's parameters ("ln.weight", "ln.bias") must be in the same
  // unit, because one operation reads them. Units run in the order of their first parameters. The root unit
  // (name "") is gathered at its first use and kept until the pass ends. By default, all is in the root.
  std::function<std::string(const Parameter&)> unit = [](const Parameter&) { return std::string(); };
  // While a unit computes, gather the next one and sum the previous one's gradients. Then one more gathered
  // unit and one more unit's gradients are in memory.
  bool overlap = false;
  bool keep_gathered = false;      // stage 3: until backward (FSDP's SHARD_GRAD_OP), so 2 k Psi are sent
  std::vector<Comm*> others = {};  // groups with other parts of the model, for the norm of all gradients
  int64_t align = 1;               // parameters and parts begin at multiples: kStateBlock for AdamW8bit
};
std::string unit_per_block(const Parameter& p);  // "h.3" for "h.3.attn.c_attn.weight"; "" outside blocks

class Zero : private RankShares {
 public:
  // The model's parameters must be made with Allocate::Later, must all train, and must outlive this. They may
  // be shards themselves (TensorParallel), the same ones on all ranks of `comm`.
  // From now on their zero_grad(), and clip_grad_norm() and step() of an optimizer of `shards`, are
  // collective: all ranks call them together.
  Zero(Comm& comm, Parameters& model, ZeroArgs args);
  ~Zero();
  Zero(const Zero&) = delete;

  // The elements that this rank owns, for an optimizer that updates each element independently.
  Parameters shards;
  // Call these after each forward pass (also of an evaluation) and after each backward pass. All ranks must
  // read the same weights in the same order, because in stage 3 reading gathers them.
  void end_forward();
  void end_backward();
  // Stages 0 and 1 sum gradients in the last backward pass of a step; set this to false before the others.
  bool last_micro_batch = true;

  // Sets a parameter from the values of the whole, of which this rank keeps its part.
  void assign(Parameter& p, const std::vector<double>& values);
  Parameters& model() { return model_; }
  int64_t numel() const { return numel_of(units_); }        // Psi, including padding
  int64_t most_gathered() const { return most_gathered_; }  // peak bytes of gathered units

 private:
  static constexpr const char* kNoPass = "no backward pass is at its unit";
  struct OwnPart {
    Parameter* of;
    Parameter* own;  // of `shards`
  };
  struct Unit : FlatParameters {
    std::string name;
    Tensor values, gradients;          // whole; if not needed, empty (values: stage 3; gradients: 2 and 3)
    Tensor own_values, own_gradients;  // this rank's part
    std::vector<OwnPart> shards;
    bool summed = false;   // own_gradients hold a sum
    size_t final = 0;      // number of final gradients in this backward pass
    Tensor gathered = {};  // the target of `gather`, until that has been waited for
    std::unique_ptr<Work> gather = {}, reduce = {};
    bool in_memory() const { return !values.storage().dropped() || gathered.defined(); }
  };
  // zero.cpp: the protocol, and the functions that the optimizer and the model call (RankShares)
  const Parameters& own_parts() const override { return shards; }
  void zero_grad() override;
  void updated() override;
  bool sums_gradients() const override { return true; }
  void end_pass();
  bool reduces() const { return args_.stage >= 2 || last_micro_batch; }  // sums gradients in this pass
  // zero_layout.cpp
  Unit& unit_called(const std::string& name);
  Part owned(const Unit& u) const;
  Part of_parameter(const Unit& u, size_t i) const;
  Tensor own(const Unit& u, const Tensor& flat) const;
  void allocate(Unit& u);
  void attach(Unit& u);
  void detach();
  // zero_gather.cpp
  void begin_gather(Unit& u);
  void gather(Unit& u);
  void prefetch_after(const Unit& u);
  void release(Unit& u);
  // zero_reduce.cpp
  Unit& backwards(size_t i) { return units_[units_.size() - 1 - i]; }  // the i-th unit in a backward pass
  void begin_reduce(Unit& u);
  void finish_reduce(Unit& u);
  Tensor sums_of_squares(const Tensor& own) override;

  Comm& comm_;
  Parameters& model_;
  ZeroArgs args_;
  std::deque<Unit> units_;
  size_t begun_ = 0;            // number of units whose sums have begun in this backward pass
  std::deque<Unit*> reducing_;  // units being summed, in the order in which they began
  const Unit* last_ = nullptr;  // the last unit gathered in this pass, except the root
  int64_t most_gathered_ = 0;
};

}  // namespace gradus
