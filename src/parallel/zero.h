// ZeRO (Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion parameter models"):
// data parallelism in which no two ranks keep the same. With N ranks and Psi parameters a rank keeps 1/N of
//
//   stage 1  the optimizer's states and the master copy            it sends 2 Psi (N-1)/N elements a step
//   stage 2  and the gradients, which are summed as they come      (k+1) Psi (N-1)/N with k micro-batches
//   stage 3  and the weights, gathered when they are needed        3 k Psi (N-1)/N
//
// Stage 0 is data parallelism as it was. Parameters lie side by side in flat buffers, one for each unit (what
// FSDP wraps: Zhao et al. 2023, "PyTorch FSDP", sec. 3.2.1); rank r owns the r-th of N equal parts of each.
#pragma once
#include <deque>
#include <memory>

#include "src/parallel/comm/comm.h"
#include "src/parallel/flat.h"

namespace gradus {

struct ZeroArgs {
  int stage = 3;
  // The unit that a parameter belongs to; that of a layer's parameters ("ln.weight", "ln.bias") must be the
  // same, because one operation reads them. Units are used in the order of their first parameters, but that
  // of name "", the root, which is gathered at its first use and until the pass ends. By default all is root.
  std::function<std::string(const Parameter&)> unit = [](const Parameter&) { return std::string(); };
  // Gather the next unit, and sum the one before's gradients, while one computes. One more of each is then
  // in memory.
  bool overlap = false;
  bool keep_gathered = false;      // stage 3: from forward to backward (FSDP's SHARD_GRAD_OP), so 2 k Psi
  std::vector<Comm*> others = {};  // groups with other parts of the model, for the norm of all gradients
  int64_t align = 1;               // every parameter and part begins at a multiple: kStateBlock for AdamW8bit
};
std::string unit_per_block(const Parameter& p);  // "h.3" of "h.3.attn.c_attn.weight"; "" without a block

class Zero : private RankShares {
 public:
  // The model's parameters were made with Allocate::Later, and all train. They must not end before this. They
  // may be parts themselves (TensorParallel), the same on all ranks of `comm`.
  // From now on their zero_grad(), and clip_grad_norm() and step() of an optimizer of `shards`, are
  // collective: all ranks call them together.
  Zero(Comm& comm, Parameters& model, ZeroArgs args);
  ~Zero();
  Zero(const Zero&) = delete;

  // What this rank owns, for an optimizer that updates each element by itself.
  Parameters shards;
  // To be called after each forward pass (of an evaluation, too) and after each backward pass. All ranks read
  // the same weights, in the same order: in stage 3 reading gathers.
  void end_forward();
  void end_backward();
  // Stages 0 and 1 sum gradients in the last backward pass of a step; false before the others.
  bool last_micro_batch = true;

  // A parameter's first values, the whole, of which this rank keeps its part.
  void assign(Parameter& p, const std::vector<double>& values);
  Parameters& model() { return model_; }
  int64_t numel() const { return numel_of(units_); }        // Psi, with the padding
  int64_t most_gathered() const { return most_gathered_; }  // bytes of units gathered at once, so far

 private:
  static constexpr const char* kNoPass = "no backward pass is at its unit";
  struct OwnPart {
    Parameter* of;
    Parameter* own;  // of `shards`
  };
  struct Unit : FlatParameters {
    std::string name;
    Tensor values, gradients;          // of all ranks; empty when they are not needed, in stages 3, 2 and 3
    Tensor own_values, own_gradients;  // this rank's part
    std::vector<OwnPart> shards;
    bool summed = false;   // own_gradients hold something
    size_t final = 0;      // so many gradients are, in this backward pass
    Tensor gathered = {};  // what `gather` fills, until it is waited for
    std::unique_ptr<Work> gather = {}, reduce = {};
    bool in_memory() const { return !values.storage().dropped() || gathered.defined(); }
  };
  // zero.cpp: the protocol, and what the optimizer and the model call (RankShares)
  const Parameters& own_parts() const override { return shards; }
  void zero_grad() override;
  void updated() override;
  bool sums_gradients() const override { return true; }
  void end_pass();
  bool reduces() const { return args_.stage >= 2 || last_micro_batch; }  // in this backward pass
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
  Unit& backwards(size_t i) {
    return units_[units_.size() - 1 - i];
  }  // the i-th that a backward pass comes to
  void begin_reduce(Unit& u);
  void finish_reduce(Unit& u);
  Tensor sums_of_squares(const Tensor& own) override;

  Comm& comm_;
  Parameters& model_;
  ZeroArgs args_;
  std::deque<Unit> units_;
  size_t begun_ = 0;            // so many sums of gradients, in this backward pass
  std::deque<Unit*> reducing_;  // in the order in which they began
  const Unit* last_ = nullptr;  // that was gathered in this pass, the root aside
  int64_t most_gathered_ = 0;
};

}  // namespace gradus
