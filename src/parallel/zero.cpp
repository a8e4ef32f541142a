// The protocol: the collective steps from the first pass to the update.
#include "src/parallel/zero.h"

#include <map>
#include <utility>

#include "src/tensor/context.h"

namespace gradus {

std::string unit_per_block(const Parameter& p) {
  return p.name.starts_with("h.") ? p.name.substr(0, p.name.find('.', 2)) : "";
}

Zero::Zero(Comm& comm, Parameters& model, ZeroArgs args)
    : comm_(comm), model_(model), args_(std::move(args)) {
  check(args_.stage >= 0 && args_.stage <= 3, "zero: stage ", args_.stage, "; it can be 0, 1, 2 or 3");
  check(args_.align >= 1, "zero: parts at multiples of ", args_.align, "; it must be at least 1");
  check(model.size() > 0, "zero: the model has no parameters");
  std::map<std::string, std::string> unit_of_layer;
  for (Parameter& p : model) {
    check(p.value.storage().dropped(), "zero: parameter '", p.name,
          "' has its memory already; make the model with Allocate::Later");
    check(p.trainable(), "zero: parameter '", p.name,
          "' is frozen; only models that train as a whole can be sharded");
    const std::string layer = p.name.substr(0, p.name.rfind('.')), unit = args_.unit(p);
    check(unit_of_layer.try_emplace(layer, unit).first->second == unit, "zero: '", p.name,
          "' is in another unit than the ",
          "rest of its layer; an operation may read both, and only one unit is gathered at a time");
    unit_called(unit).add(p, args_.align);
  }
  try {
    for (Unit& u : units_) {
      u.pad(comm.size() * args_.align);
      allocate(u);
      attach(u);
    }
    *model.shares = *shards.shares = this;
  } catch (...) {
    detach();
    throw;
  }
}

Zero::~Zero() { detach(); }

// May follow a pass that ended with an error: it waits for the collectives that had begun, and drops them.
void Zero::zero_grad() {
  for (Unit& u : units_) {
    if (u.reduce) std::exchange(u.reduce, nullptr)->wait();
    if (args_.stage >= 2 && !u.gradients.storage().dropped()) u.gradients.storage().drop(kNoPass);
    u.summed = false;
  }
  reducing_.clear();
  end_pass();
  for (Parameter& p : model_) p.leaf.zero();
  for (Parameter& p : shards) p.leaf.zero();
}

void Zero::end_pass() {
  last_ = nullptr;
  begun_ = 0;
  for (Unit& u : units_) {
    u.final = 0;
    if (args_.stage == 3) release(u);
  }
}

// An evaluation's gathered units are released in any case.
void Zero::end_forward() {
  last_ = nullptr;
  if (args_.stage < 3 || (args_.keep_gathered && current().tape())) return;
  for (Unit& u : units_) release(u);
}

// Gradients that exist but are not final wait for other tapes, or, in stages 0 and 1, come from earlier
// micro-batches.
void Zero::end_backward() {
  for (; reduces() && begun_ < units_.size(); ++begun_) {
    for (const Parameter* p : backwards(begun_).parameters) check_gradient(*p);
    if (args_.stage < 2) begin_reduce(backwards(begun_));
  }
  while (!reducing_.empty()) finish_reduce(*reducing_.front());
  end_pass();
}

void Zero::updated() {
  if (args_.stage == 3)  // units gathered since the backward pass have old values
    for (Unit& u : units_) release(u);
  if (args_.stage == 0 || args_.stage == 3) return;
  // BEGIN SOLUTION 18.4
  for (Unit& u : units_) u.gather = comm_.all_gather(u.own_values, u.values);
  for (Unit& u : units_) std::exchange(u.gather, nullptr)->wait();
  // STUB: todo("18.4", "every rank has updated its part of each unit's weights: get the others'");
  // END SOLUTION 18.4
}

}  // namespace gradus
