#include "src/dist/zero.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/tensor/context.h"

namespace gradus {

constexpr const char* kNoPass = "no backward pass is at its unit";

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
    check(p.value.storage().empty(), "zero: parameter '", p.name,
          "' has its memory already; make the model with Allocate::Later");
    check(p.trainable(), "zero: parameter '", p.name,
          "' is frozen; only models that train as a whole are shared out");
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
    model.shares = shards.shares = this;
  } catch (...) {
    detach();
    throw;
  }
}

Zero::~Zero() { detach(); }

void Zero::detach() {
  model_.shares = nullptr;
  for (Unit& u : units_) {
    if (u.values.defined()) u.values.storage().fill = {};
    if (u.gradients.defined()) u.gradients.storage().fill = {};
    u.detach();
  }
}

Zero::Unit& Zero::unit_called(const std::string& name) {
  for (Unit& u : units_)
    if (u.name == name) return u;
  units_.emplace_back().name = name;
  return units_.back();
}

Part Zero::owned(const Unit& u, int64_t rank) const {
  return args_.stage == 0 ? Part{0, u.numel} : part_of(u.numel, rank, comm_.size());
}
Tensor Zero::own(const Unit& u, const Tensor& flat) const {
  const Part part = owned(u, comm_.rank());
  return flat.narrow(part.begin, part.count);
}

// The elements of parameter i that a rank owns.
Part Zero::of_parameter(const Unit& u, size_t i, int64_t rank) const {
  const Part part = owned(u, rank);
  const int64_t n = u.parameters[i]->leaf.shape.numel(),
                begin = std::clamp<int64_t>(part.begin - u.begin[i], 0, n),
                end = std::clamp<int64_t>(part.begin + part.count - u.begin[i], 0, n);
  return begin < end ? Part{begin, end - begin} : Part{0, 0};
}

Part Zero::part_of_parameter(const Parameter& p, int64_t rank) const {
  for (const Unit& u : units_)
    for (size_t i = 0; i < u.parameters.size(); ++i)
      if (u.parameters[i] == &p) return of_parameter(u, i, rank);
  fail("zero: parameter '", p.name, "' belongs to another model");
}

Parameter* Zero::shard_of(const Parameter& p) const {
  for (const Unit& u : units_)
    for (const Shard& s : u.shards)
      if (s.of == &p) return s.own;
  return nullptr;
}

// The buffers that the stage keeps; those that it does not are emptied, and filled when they are touched.
void Zero::allocate(Unit& u) {
  Device& device = current().device;
  const Precision& t = u.parameters[0]->precision;
  const std::string name = u.name.empty() ? "root" : u.name;
  const Shape all{u.numel}, part{owned(u, comm_.rank()).count};
  if (args_.stage < 3) {
    u.values = Tensor(device, all, t.value, Kind::Weight, name);
    u.own_values = own(u, u.values);
  } else {
    u.values = Tensor(device, all, t.value, Kind::Comm, name + " gathered");
    release(u);
    u.values.storage().fill = [this, &u] { gather(u); };
    u.own_values = Tensor(device, part, t.value, Kind::Weight, name + ".shard");
  }
  u.gradients = Tensor(device, all, t.gradient, Kind::Gradient, name + ".grad");
  if (args_.stage < 2) {
    u.own_gradients = own(u, u.gradients);
  } else {
    u.gradients.storage().drop(kNoPass);
    u.gradients.storage().fill = [&u] {
      Storage& empty = u.gradients.storage();
      const Tensor made(empty.device(), {u.numel}, u.gradients.dtype(), Kind::Gradient, empty.name());
      empty.refill(made.storage());
    };
    u.own_gradients = Tensor(device, part, t.gradient, Kind::Gradient, name + ".grad.shard");
  }
}

// The model's parameters become views of the whole buffers, the shards of this rank's part.
void Zero::attach(Unit& u) {
  const Part part = owned(u, comm_.rank());
  const Precision& t = u.parameters[0]->precision;
  Tensor master;
  if (t.master)
    master = Tensor(current().device, {part.count}, DType::F32, Kind::Master,
                    u.own_values.storage().name() + ".master");
  for (size_t i = 0; i < u.parameters.size(); ++i) {
    Parameter& p = *u.parameters[i];
    const Slot slot = p.value.slot;
    p.value = u.whole(u.values, i);
    p.value.slot = slot;
    p.leaf.grad = u.whole(u.gradients, i);
    p.leaf.on_final = [this, &u](Leaf&) {
      ++u.final;
      while (reduces() && begun_ < units_.size() &&
             backwards(begun_).final == backwards(begun_).parameters.size())
        begin_reduce(backwards(begun_++));
    };
    const int64_t n = p.value.numel();
    const Part mine = of_parameter(u, i, comm_.rank());
    if (mine.count == 0) continue;
    const auto piece = [&](const Tensor& own) {
      const Tensor flat = own.narrow(u.begin[i] + mine.begin - part.begin, mine.count);
      return mine.count == n ? flat.reshape(p.value.shape()) : flat;
    };
    Parameter shard;
    shard.name = p.name, shard.precision = p.precision, shard.decay = p.decay;
    shard.value = piece(u.own_values);
    if (t.master) shard.master = piece(master);
    if (args_.stage > 0) shard.whole = n;
    shard.leaf.grad = piece(u.own_gradients);
    u.shards.push_back({&p, &shards.add(std::move(shard)), mine.begin});
  }
}

void Zero::assign(Parameter& p, const std::vector<double>& values) {
  check(int64_t(values.size()) == p.value.numel(), "zero: ", values.size(), " values for '", p.name, "' ",
        p.value.shape());
  if (args_.stage < 3) copy_from_host(p.value, values);
  for (const Unit& u : units_)
    for (const Shard& s : u.shards)
      if (s.of == &p) {
        const auto first = values.begin() + s.first;
        s.own->assign({first, first + s.own->value.numel()});
      }
}

void Zero::begin_gather(Unit& u) {
  u.gathered = Tensor(current().device, {u.numel}, u.values.dtype(), Kind::Comm, u.values.storage().name());
  u.gather = comm_.all_gather(u.own_values, u.gathered);
  int64_t bytes = 0;
  for (const Unit& other : units_) bytes += other.in_memory() ? other.values.bytes() : 0;
  most_gathered_ = std::max(most_gathered_, bytes);
}

// Somebody reads a weight of a unit that is not there. The one before it is no longer needed.
void Zero::gather(Unit& u) {
  // BEGIN SOLUTION 18.3
  for (Unit& other : units_)
    if (&other != &u && !other.name.empty() && !args_.keep_gathered) release(other);
  if (!u.gather) begin_gather(u);
  std::exchange(u.gather, nullptr)->wait();
  u.values.storage().refill(std::exchange(u.gathered, {}).storage());
  // STUB: todo("18.3", "give up the unit before, and fill this one's values with all ranks' parts", u);
  // END SOLUTION 18.3
  if (args_.overlap && !u.name.empty()) prefetch_after(u);
}

// Forward passes begin with the first unit, and go up; others go down.
void Zero::prefetch_after(const Unit& u) {
  std::vector<Unit*> blocks;
  for (Unit& other : units_)
    if (!other.name.empty()) blocks.push_back(&other);
  const ptrdiff_t at = std::find(blocks.begin(), blocks.end(), &u) - blocks.begin();
  const bool up = last_ ? last_ != &u && at > 0 && blocks[size_t(at - 1)] == last_ : at == 0;
  last_ = &u;
  const ptrdiff_t next = at + (up ? 1 : -1);
  if (next < 0 || next >= ptrdiff_t(blocks.size()) || blocks[size_t(next)]->in_memory()) return;
  begin_gather(*blocks[size_t(next)]);
}

void Zero::release(Unit& u) {
  if (u.gather) std::exchange(u.gather, nullptr)->wait();
  u.gathered = {};
  if (!u.values.storage().empty()) u.values.storage().drop("its unit is not gathered");
}

// Sums begin in the order in which a backward pass comes to the units, the same on all ranks: a rank may find
// its gradients final in another one.
void Zero::begin_reduce(Unit& u) {
  for (const Parameter* p : u.parameters) check_gradient(*p);
  u.reduce = args_.stage == 0 ? comm_.all_reduce(u.gradients)
                              : comm_.reduce_scatter(u.gradients, own(u, u.gradients));
  reducing_.push_back(&u);
  // From stage 2 on a unit's gradients take memory until they are summed: of two units at most.
  const size_t most = !args_.overlap ? 0 : args_.stage >= 2 ? 1 : units_.size();
  while (reducing_.size() > most) finish_reduce(*reducing_.front());
}

void Zero::finish_reduce(Unit& u) {
  std::exchange(u.reduce, nullptr)->wait();
  reducing_.pop_front();
  for (const Shard& s : u.shards) s.own->leaf.empty = false;
  if (args_.stage < 2) return;
  const Tensor sum = own(u, u.gradients);
  cast(sum, u.own_gradients.out(u.summed ? Write::Add : Write::Set));
  u.summed = true;
  u.gradients.storage().drop(kNoPass);
  for (Parameter* p : u.parameters) p->leaf.zero();
}

// Also after a pass that an error has ended: what had begun is waited for, and forgotten.
void Zero::zero_grad() {
  for (Unit& u : units_) {
    if (u.reduce) std::exchange(u.reduce, nullptr)->wait();
    if (args_.stage >= 2 && !u.gradients.storage().empty()) u.gradients.storage().drop(kNoPass);
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

// What an evaluation has gathered goes in any case.
void Zero::end_forward() {
  last_ = nullptr;
  if (args_.stage < 3 || (args_.keep_gathered && current().tape())) return;
  for (Unit& u : units_) release(u);
}

// Gradients that are not final, although they are there, wait for other tapes; or, in stages 0 and 1, come
// from micro-batches before this one.
void Zero::end_backward() {
  for (; reduces() && begun_ < units_.size(); ++begun_) {
    for (const Parameter* p : backwards(begun_).parameters) check_gradient(*p);
    if (args_.stage < 2) begin_reduce(backwards(begun_));
  }
  while (!reducing_.empty()) finish_reduce(*reducing_.front());
  end_pass();
}

void Zero::updated() {
  if (args_.stage == 3)  // what was gathered since the backward pass is old
    for (Unit& u : units_) release(u);
  if (args_.stage == 0 || args_.stage == 3) return;
  // BEGIN SOLUTION 18.1
  for (Unit& u : units_) u.gather = comm_.all_gather(u.own_values, u.values);
  for (Unit& u : units_) std::exchange(u.gather, nullptr)->wait();
  // STUB: todo("18.1", "every rank has updated its part of each unit's weights: get the others'");
  // END SOLUTION 18.1
}

}  // namespace gradus
