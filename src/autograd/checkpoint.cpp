// Checkpointing: a segment of the tape drops its saved tensors and recomputes them in the backward pass. Its
// nodes stay on the tape, with their slots and their uses of parameters; only the memory of the saved tensors
// is freed and refilled. So the gradients are bitwise equal to those without checkpointing.
#include <string_view>
#include <unordered_map>
#include <utility>

#include "src/autograd/tape.h"

namespace gradus {

struct CheckpointSegment {
  std::function<Tensor(const Tensor&)> f;
  size_t first_node;       // index on the tape
  uint32_t first_ordinal;  // of its random ops
  uint64_t seed;           // seed and first sample of the forward pass
  int64_t first_sample;
  bool evaluates;  // dropout dropped nothing
  int64_t output;  // the slot of y
  struct Dropped {
    size_t node;   // its op computes the tensor; counted from first_node
    bool output;   // true: it is an output of the op; false: a tensor that the op saves
    size_t index;  // which of these
    Tensor tensor;
  };
  std::vector<Dropped> dropped;
};

constexpr std::string_view kWhere = "the backward pass recomputes it; nothing else can read it";

struct Enough {};  // ends a recomputation after the last dropped tensor

Tensor checkpoint(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) {
  Tape* const tape = current().tape();
  return tape ? tape->checkpoint(x, f) : f(x);
}

Tensor Tape::checkpoint(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) {
  const size_t first = nodes_.size(), remade = remade_nodes_;
  const Context& c = context();
  auto segment = std::make_shared<CheckpointSegment>(
      CheckpointSegment{f, first, dropout_ordinal_, c.seed, c.first_sample, c.evaluates(), 0, {}});
  const Tensor y = f(x);
  // Nothing in f wants a gradient. (While an outer segment is recomputed, nodes are counted, not recorded.)
  if (nodes_.size() == first && remade_nodes_ == remade) return y;
  segment->output = y.slot.id;
  if (!remade_) drop_saved(*segment, x, y);
  Node node{"checkpoint", {}, {}, {{x}}, {}, segment};
  if (x.storage().kind() == Kind::Temporary) x.storage().set_kind(Kind::Activation);
  node.saved[0].version = x.storage().version;
  append(std::move(node), {});
  return y;
}

// Drops the activations that the segment's nodes saved, and notes which op computes each. The segment's input
// and output stay, because other nodes read them.
void Tape::drop_saved(CheckpointSegment& segment, const Tensor& x, const Tensor& y) {
  const size_t first = segment.first_node;
  std::unordered_map<int64_t, std::pair<size_t, size_t>> made_by;  // slot of an output -> (node, output)
  for (size_t i = first; i < nodes_.size(); ++i)
    for (size_t k = 0; k < nodes_[i].outputs.size(); ++k)
      made_by[nodes_[i].outputs[k].slot.id] = {i - first, k};
  for (size_t i = first; i < nodes_.size(); ++i)
    for (size_t k = 0; k < nodes_[i].saved.size(); ++k) {
      const Tensor& t = nodes_[i].saved[k].tensor;
      if (!t.defined() || t.storage().dropped() || &t.storage() == &x.storage() ||
          &t.storage() == &y.storage())
        continue;
      if (t.storage().kind() != Kind::Activation) continue;  // a weight, or data
      const auto maker = made_by.find(t.slot.id);
      if (maker != made_by.end())
        segment.dropped.push_back({maker->second.first, true, maker->second.second, t});
      else if (!t.slot.wanted())  // computed by the op that saves it; a slot means: from before the segment
        segment.dropped.push_back({i - first, false, k, t});
    }
  for (CheckpointSegment::Dropped& d : segment.dropped)
    if (!d.tensor.storage().dropped()) d.tensor.storage().drop(kWhere);
}

// The tape of a recomputation, in which random ops draw the same numbers as in the forward pass.
Tape::Tape(CheckpointSegment& remade, const Tape& first_time)
    : Recording(this, remade.evaluates ? Dropout::None : Dropout::AsAsked),
      remade_(&remade),
      first_time_(&first_time) {
  dropout_ordinal_ = remade.first_ordinal;
  step_ = first_time.step_;
}

// Called when the segment's next op was recomputed.
void Tape::take_remade(const Node& node, const std::vector<Tensor>& y) {
  const std::string_view before = first_time_->nodes_[remade_->first_node + remade_nodes_].op;
  check(before == node.op, "checkpoint: op ", remade_nodes_, " of the function was ", before, ", but is ",
        node.op, " when it is recomputed; the function may depend on x, parameters and data only");
  bool enough = true;
  for (CheckpointSegment::Dropped& d : remade_->dropped) {
    if (d.node == remade_nodes_) {
      d.tensor.storage().refill((d.output ? y[d.index] : node.saved[d.index].tensor).storage());
      d.tensor.storage().set_kind(Kind::Activation);
    }
    enough = enough && d.node <= remade_nodes_;
  }
  ++remade_nodes_;
  if (enough) throw Enough();
}

void Tape::remake(const Node& checkpoint, const std::unordered_map<int64_t, Tensor>& pending) {
  CheckpointSegment& segment = *checkpoint.segment;
  // Nothing depends on y, or nothing was dropped.
  if (!pending.contains(segment.output) || segment.dropped.empty()) return;
  struct Before {  // restores the context, also if f throws
    Context& c;
    uint64_t seed;
    int64_t first_sample;
    ~Before() { c.seed = seed, c.first_sample = first_sample; }
  } before{context(), std::exchange(context().seed, segment.seed),
           std::exchange(context().first_sample, segment.first_sample)};
  Tape again(segment, *this);
  try {
    segment.f(checkpoint.saved[0].tensor);
  } catch (const Enough&) {
    return;
  }
  fail("checkpoint: the function made ", again.remade_nodes_,
       " ops when it was recomputed, fewer than before; it may depend on x, parameters and data only");
}

}  // namespace gradus
