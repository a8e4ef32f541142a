// The tape: a list of the ops of the forward pass, in execution order. Reverse order is the backward order,
// so there is no graph to sort and no recursion.
//
// A node knows its inputs and outputs only as gradient slots (id, shape, dtype), never as tensors. Only its
// explicit list `saved` owns storage, so the bytes saved for backward can be printed per op.
#pragma once
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/tensor/context.h"
#include "src/tensor/tensor.h"

namespace gradus {

// A pointer to a leaf, shared with tapes, because the leaf may end before them. A moved leaf does not take it
// along.
struct LeafAddress {
  LeafAddress() = default;
  LeafAddress(LeafAddress&&) noexcept {}
  ~LeafAddress() {
    if (shared) *shared = nullptr;
  }
  std::shared_ptr<Leaf*> shared;
};

// Where a parameter's gradient accumulates over nodes and over micro-batches. After zero() the first
// write is Set, later ones Add, so gradients are never filled with zeros.
struct Leaf {
  std::string name;
  Shape shape;                          // of the parameter, and so of the gradient
  std::optional<DType> dtype;           // of the gradient; by default the parameter's
  Tensor grad;                          // allocated (kind Gradient) at the first backward pass, then kept
  bool written = false;                 // true: grad was written since zero()
  int uses = 0;                         // nodes on tapes that will still contribute in this backward pass
  std::function<void(Leaf&)> on_final;  // called once per backward pass, when the gradient is final
  LeafAddress address = {};             // set by attach()
  void zero() { written = false; }
};

// Gives a tensor its own gradient: after a backward pass it is in leaf.grad.
void attach(Tensor& value, Leaf& leaf, const std::string& name);

// Returns x if nothing else refers to its storage, else a copy (a Temporary named "gradient"), so that
// backward may overwrite the result.
Tensor unshared(const Tensor& x);

// Memory for the gradient of x, for an op that computes it in the forward pass: the leaf's gradient, if it
// was not written since zero(), else new memory. Grads::pass gives it to the leaf.
Tensor early_gradient(const Tensor& x);

struct GradSlot {  // a tensor as the backward pass sees it
  Slot slot;
  Shape shape;
  DType dtype;
};

struct Saved {  // a tensor saved for backward, if a wanted gradient needs it
  Tensor tensor;
  bool needed = true;
  uint32_t version = 0;
  CBuf in() const { return tensor.in(); }
};

class Grads;
struct CheckpointSegment;  // checkpoint.cpp
struct Node {
  // dy: the gradient of each output; undefined if nothing depends on the output, but at least one is defined.
  using Backward = std::function<void(const Node&, const std::vector<Tensor>& dy, Grads& dx)>;
  const char* op;
  std::vector<GradSlot> inputs, outputs;
  std::vector<Saved> saved;
  Backward backward;
  std::shared_ptr<CheckpointSegment> segment = {};  // "checkpoint" only: the nodes that it recomputes
};

// The gradients of a node's inputs, handed to its backward function.
class Grads {
 public:
  Grads(Device& device, std::unordered_map<int64_t, Tensor>& pending, const Node& node)
      : device_(device), pending_(pending), node_(node) {}
  bool wanted(int input) const { return node_.inputs[input].slot.wanted(); }
  // Where to write the gradient of an input: Set for the first contribution, Add for later ones; p is null if
  // the gradient is not wanted. Call it once per input. It may allocate, and compilers order arguments as
  // they like, but bytes must not depend on the order. So if a kernel has scratch memory, several outputs, or
  // a saved weight that is gathered when it is read, get each of them in a statement of its own
  // (src/README.md).
  Out out(int input);
  // Uses `dy` as the gradient of an input. The first contribution is shared without a copy; for a parameter,
  // only if `dy` is in an early_gradient().
  void pass(int input, const Tensor& dy);

 private:
  Device& device_;
  std::unordered_map<int64_t, Tensor>& pending_;
  const Node& node_;
};

class Tape : public Recording {
 public:
  Tape() : Recording(this) { context().end_attempt(); }  // from now on ops append to it
  ~Tape();

  // Runs the nodes in reverse and frees each one's saved tensors as it goes. `dy` is the gradient of y, with
  // as many elements; by default StepScalars::loss_scale for a scalar y (1 without loss scaling). Consumes
  // the tape: a second call is an error. Only the slot of y is needed: its memory may be freed.
  void backward(const GradSlot& y, Tensor dy);
  void backward(const Tensor& y, Tensor dy = {}) { backward({y.slot, y.shape(), y.dtype()}, std::move(dy)); }

  const std::vector<Node>& nodes() const { return nodes_; }
  int64_t saved_bytes() const;      // of kind Activation, each storage counted once and whole
  void print(std::ostream&) const;  // one line per node: op, shapes, saved bytes

  void append(Node node, const std::vector<Tensor>& y);  // for record()
  Tensor checkpoint(const Tensor& x, const std::function<Tensor(const Tensor&)>& f);

 private:
  Tape(CheckpointSegment& remade, const Tape& first_time);
  void drop_saved(CheckpointSegment& segment, const Tensor& x, const Tensor& y);
  void take_remade(const Node& node, const std::vector<Tensor>& y);
  void remake(const Node& checkpoint, const std::unordered_map<int64_t, Tensor>& pending);

  std::vector<Node> nodes_;
  bool consumed_ = false;
  // If set, this tape records nothing: it recomputes a segment and refills its dropped tensors.
  CheckpointSegment* remade_ = nullptr;
  const Tape* first_time_ = nullptr;  // the tape that recorded it
  size_t remade_nodes_ = 0;
};

// y = f(x). For the backward pass the current tape keeps only x; it drops the tensors that f's ops saved.
// When the backward pass reaches these ops, it recomputes the tensors: it calls f with the same random
// numbers until the last dropped tensor is refilled (Chen et al. 2016, "Training deep nets with sublinear
// memory cost"). f may depend only on x, parameters and data, and may contain checkpoints; it is an error if
// f runs different ops the second time. Without a tape, returns f(x).
Tensor checkpoint(const Tensor& x, const std::function<Tensor(const Tensor&)>& f);

// Ops in its scope are not recorded, except by tapes that begin within it.
class NoTape : public Recording {
 public:
  NoTape() : Recording(nullptr) {}
};

// Its scope uses a model instead of training it: nothing is recorded, as with NoTape, and dropout drops
// nothing, even if a tape records within it.
class Evaluation : public Recording {
 public:
  Evaluation() : Recording(nullptr, Dropout::None) {}
};

template <class... T>
bool needed_by(const T&... inputs) {
  return (inputs.slot.wanted() || ...);
}

std::vector<Tensor> record_node(Node node, const std::vector<Tensor>& inputs, std::vector<Tensor> y);

// Records an op on the current tape if an input wants a gradient, and gives its outputs y their slots.
// `saved` lists the tensors that backward reads, each with the inputs whose gradient needs it: {{x,
// needed_by(w)}, {w, needed_by(x)}}. The kind of a saved tensor changes from Temporary to Activation. The
// backward function may capture numbers, but no tensors.
template <class F>
std::vector<Tensor> record(const char* op, const std::vector<Tensor>& inputs, std::vector<Saved> saved,
                           std::vector<Tensor> y, F backward) {
  static_assert(std::is_trivially_copyable_v<F>, "capture numbers only: tensors belong in `saved`");
  return record_node({op, {}, {}, std::move(saved), backward}, inputs, std::move(y));
}
// An op with one output; its backward function gets the gradient of this output.
template <class F>
Tensor record(const char* op, const std::vector<Tensor>& inputs, std::vector<Saved> saved, const Tensor& y,
              F backward) {
  const auto of_first = [backward](const Node& n, const std::vector<Tensor>& dy, Grads& dx) {
    backward(n, dy[0], dx);
  };
  return record(op, inputs, std::move(saved), std::vector{y}, of_first)[0];
}

}  // namespace gradus
