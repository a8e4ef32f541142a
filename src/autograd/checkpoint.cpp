// Checkpointing: a segment of the tape drops what it saved, and makes it anew in the backward pass. Its nodes
// stay where they are, with their slots and their uses of parameters; only the memory of the tensors that
// they saved goes and comes. So the gradients are computed as without it, to the bit.
#include <string_view>
#include <unordered_map>
#include <utility>

#include "src/autograd/tape.h"

namespace gradus {

struct CheckpointSegment {
  std::function<Tensor(const Tensor&)> f;
  size_t first_node;       // of the tape
  uint32_t first_ordinal;  // of its random calls
  uint64_t seed;           // and what else they draw from
  int64_t first_sample;
  bool evaluates;  // nothing was dropped out
  int64_t output;  // the slot of y
  struct Dropped {
    size_t node;   // counted from the segment's first: the one whose op makes it,
    bool output;   // as one of its outputs, or else of the tensors that it saves,
    size_t index;  // this one
    Tensor tensor;
  };
  std::vector<Dropped> dropped;
};

constexpr std::string_view kWhere = "the backward pass makes it again; nothing else can read it";

struct Enough {};  // ends a run of f that has made all that was dropped

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
  // Nothing in it wants a gradient. (While an outer segment runs again, nodes are counted, not recorded.)
  if (nodes_.size() == first && remade_nodes_ == remade) return y;
  segment->output = y.slot.id;
  if (!remade_) drop_saved(*segment, x, y);
  Node node{"checkpoint", {}, {}, {{x}}, {}, segment};
  if (x.storage().kind() == Kind::Temporary) x.storage().set_kind(Kind::Activation);
  node.saved[0].version = x.storage().version;
  append(std::move(node), {});
  return y;
}

// Drops what the segment's nodes have saved and what was made in them, and notes which op makes it. Its input
// and its output stay: what comes before and after it reads them.
void Tape::drop_saved(CheckpointSegment& segment, const Tensor& x, const Tensor& y) {
  const size_t first = segment.first_node;
  std::unordered_map<int64_t, std::pair<size_t, size_t>> made_by;  // slot of an output -> node, which output
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
      else if (!t.slot.wanted())  // made by the op that saves it; with another slot it is from before the
                                  // segment
        segment.dropped.push_back({i - first, false, k, t});
    }
  for (CheckpointSegment::Dropped& d : segment.dropped)
    if (!d.tensor.storage().dropped()) d.tensor.storage().drop(kWhere);
}

// For one more run of the segment, in which all that is random is as it was.
Tape::Tape(CheckpointSegment& remade, const Tape& first_time)
    : Recording(this, remade.evaluates ? Dropout::None : Dropout::AsAsked),
      remade_(&remade),
      first_time_(&first_time) {
  dropout_ordinal_ = remade.first_ordinal;
  step_ = first_time.step_;
}

// The segment's next op has run again.
void Tape::take_remade(const Node& node, const std::vector<Tensor>& y) {
  const std::string_view before = first_time_->nodes_[remade_->first_node + remade_nodes_].op;
  check(before == node.op, "checkpoint: op ", remade_nodes_, " of the function was ", before, ", and is ",
        node.op, " when it runs again; it may depend on x, parameters and data only");
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
  struct Before {  // what the context had comes back, also if f throws
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
  fail("checkpoint: the function made ", again.remade_nodes_, " ops when it ran again, fewer than before; ",
       "it may depend on x, parameters and data only");
}

}  // namespace gradus
