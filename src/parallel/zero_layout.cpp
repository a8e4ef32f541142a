// Memory layout: units, the part of each that a rank owns, and the buffers that the stage keeps.
#include "src/parallel/zero.h"

#include <algorithm>

#include "src/tensor/context.h"

namespace gradus {

Zero::Unit& Zero::unit_called(const std::string& name) {
  for (Unit& u : units_)
    if (u.name == name) return u;
  units_.emplace_back().name = name;
  return units_.back();
}

Part Zero::owned(const Unit& u) const {
  return args_.stage == 0 ? Part{0, u.numel} : part_of(u.numel, comm_.rank(), comm_.size());
}
Tensor Zero::own(const Unit& u, const Tensor& flat) const {
  const Part part = owned(u);
  return flat.narrow(part.begin, part.count);
}

// The elements of parameter i that this rank owns.
Part Zero::of_parameter(const Unit& u, size_t i) const {
  const Part part = owned(u);
  const int64_t n = u.parameters[i]->leaf.shape.numel(),
                begin = std::clamp<int64_t>(part.begin - u.begin[i], 0, n),
                end = std::clamp<int64_t>(part.begin + part.count - u.begin[i], 0, n);
  return begin < end ? Part{begin, end - begin} : Part{0, 0};
}

// Allocates the buffers that the stage keeps; the others are empty, and filled when they are read.
void Zero::allocate(Unit& u) {
  Device& device = current().device;
  const Precision& t = u.parameters[0]->precision;
  const std::string name = u.name.empty() ? "root" : u.name;
  const Shape all{u.numel}, part{owned(u).count};
  if (args_.stage < 3) {
    u.values = Tensor(device, all, t.value, Kind::Weight, name);
    u.own_values = own(u, u.values);
  } else {
    u.values = Tensor(device, all, t.value, Kind::Comm, name + " gathered");
    release(u);
    u.values.storage().on_read = [this, &u] { gather(u); };
    u.own_values = Tensor(device, part, t.value, Kind::Weight, name + ".shard");
  }
  u.gradients = Tensor(device, all, t.gradient, Kind::Gradient, name + ".grad");
  if (args_.stage < 2) {
    u.own_gradients = own(u, u.gradients);
  } else {
    u.gradients.storage().drop(kNoPass);
    u.gradients.storage().on_read = [&u] {
      Storage& empty = u.gradients.storage();
      const Tensor made(empty.device(), {u.numel}, u.gradients.dtype(), Kind::Gradient, empty.name());
      empty.refill(made.storage());
    };
    u.own_gradients = Tensor(device, part, t.gradient, Kind::Gradient, name + ".grad.shard");
  }
}

// The model's parameters become views of the whole buffers, the shards of this rank's part.
void Zero::attach(Unit& u) {
  const Part part = owned(u);
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
    const Part mine = of_parameter(u, i);
    if (mine.count == 0) continue;
    const auto piece = [&](const Tensor& own) {
      const Tensor flat = own.narrow(u.begin[i] + mine.begin - part.begin, mine.count);
      return mine.count == n ? flat.reshape(p.value.shape()) : flat;
    };
    Parameter shard;
    shard.name = p.name, shard.precision = p.precision, shard.decay = p.decay, shard.counted = p.counted;
    shard.value = piece(u.own_values);
    if (t.master) shard.master = piece(master);
    shard.shard = p.shard;
    if (args_.stage > 0)
      shard.shard = p.shard.value_or(Shard::of(p.value.shape())).part(mine.begin, mine.count);
    shard.leaf.grad = piece(u.own_gradients);
    u.shards.push_back({&p, &shards.add(std::move(shard))});
  }
}

void Zero::assign(Parameter& p, const std::vector<double>& values) {
  const Shape& whole = p.shard ? p.shard->whole : p.value.shape();
  check(int64_t(values.size()) == whole.numel(), "zero: ", values.size(), " values for '", p.name, "' ",
        whole);
  if (args_.stage < 3) copy_from_host(p.value, p.shard ? p.shard->of_values(values) : values);
  for (const Unit& u : units_)
    for (const OwnPart& s : u.shards)
      if (s.of == &p) s.own->assign(s.own->shard ? s.own->shard->of_values(values) : values);
}

void Zero::detach() {
  *model_.shares = *shards.shares = nullptr;
  for (Unit& u : units_) {
    if (u.values.defined()) u.values.storage().on_read = {};
    if (u.gradients.defined()) u.gradients.storage().on_read = {};
    u.detach();
  }
}

}  // namespace gradus
