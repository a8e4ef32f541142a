#include "src/parallel/zero_save_load.h"

#include "src/tensor/context.h"

namespace gradus {

namespace {

// A tensor of the whole model, and how many of a parameter's elements one of its elements stands for.
struct Whole {
  std::string name;
  DType dtype;
  Shape shape;
  int64_t block;
};

// In the order of a shard's tensors: what is kept of the weights, then the states.
std::vector<Whole> wholes_of(const Parameter& p, const Optimizer& optimizer) {
  const Shape& shape = p.leaf.shape;
  std::vector<Whole> all{{p.name, p.precision.master ? DType::F32 : p.value.dtype(), shape, 1}};
  for (const StateSpec& s : optimizer.states_of(p))
    all.push_back({"optimizer." + p.name + "." + s.name, s.dtype, s.shape,
                   s.shape.numel() == shape.numel() ? 1 : kStateBlock});
  return all;
}

std::vector<Tensor> tensors_of(const Parameter& shard, const Optimizer& optimizer) {
  std::vector<Tensor> all{shard.kept()};
  for (const Optimizer::State& s : optimizer.states)
    if (s.parameter == &shard) all.insert(all.end(), s.tensors.begin(), s.tensors.end());
  return all;
}

// The elements of a whole that belong to a part of its parameter.
Part part_in(const Whole& w, Part of_parameter) {
  check(of_parameter.begin % w.block == 0, "save or load: a part of '", w.name, "' begins at element ",
        of_parameter.begin, ", within a block of ", w.block, "; give ZeroArgs::align");
  return {of_parameter.begin / w.block, (of_parameter.count + w.block - 1) / w.block};
}

void check_has_all(const Optimizer& optimizer, const Zero& zero) {
  check(optimizer.states.size() == zero.shards.size(), "save or load: the optimizer has states of ",
        optimizer.states.size(), " of this rank's ", zero.shards.size(),
        " shards; what is saved and loaded is one optimizer of all of them");
}

}  // namespace

void save_sharded(const std::string& path, Comm& comm, Zero& zero, const Optimizer& optimizer,
                  const Metadata& metadata) {
  check_has_all(optimizer, zero);
  Device& device = current().device;
  std::vector<std::vector<char>> bytes;
  std::vector<TensorEntry> entries;
  for (const Parameter& p : zero.model()) {
    const Parameter* const own = zero.shard_of(p);
    const std::vector<Tensor> mine = own ? tensors_of(*own, optimizer) : std::vector<Tensor>();
    size_t i = 0;
    for (const Whole& w : wholes_of(p, optimizer)) {
      if (comm.rank() > 0) {
        if (own && zero.stage() > 0) comm.send(mine[i++], 0)->wait();
        continue;
      }
      std::vector<char>& whole = bytes.emplace_back(size_t(w.shape.bytes(w.dtype)));
      entries.push_back({w.name, w.dtype, w.shape, whole.data()});
      for (int64_t r = 0; r < (zero.stage() == 0 ? 1 : comm.size()); ++r) {
        const Part part = part_in(w, zero.part_of_parameter(p, r));
        if (part.count == 0) continue;
        Tensor piece = r == 0 ? mine[i] : Tensor(device, {part.count}, w.dtype, Kind::Comm, "to save");
        if (r > 0) comm.recv(piece, r)->wait();
        device.copy_out(whole.data() + part.begin * size_of(w.dtype), piece.in().p, piece.bytes());
      }
      ++i;
    }
  }
  if (comm.rank() == 0) write_safetensors(path, entries, with_counts(metadata, optimizer));
  comm.barrier();
}

Metadata load_sharded(const std::string& path, Zero& zero, Optimizer& optimizer) {
  check_has_all(optimizer, zero);
  const SafetensorsFile file(path);
  const TrainingCounts counts = counts_in(file, path);
  size_t tensors = 0;
  for (const Parameter& p : zero.model())
    for (const Whole& w : wholes_of(p, optimizer)) {
      file.expect(w.name, w.dtype, w.shape), ++tensors;
      part_in(w, zero.part_of_parameter(p, zero.rank()));
    }
  check(file.tensors().size() == tensors, "load: ", path, " holds ", file.tensors().size(),
        " tensors, this model needs ", tensors, "; was it saved by another model or optimizer?");
  std::vector<char> whole;
  for (const Parameter& p : zero.model()) {
    Parameter* const own = zero.shard_of(p);
    if (!own) continue;
    std::vector<Tensor> mine = tensors_of(*own, optimizer);
    size_t i = 0;
    for (const Whole& w : wholes_of(p, optimizer)) {
      whole.resize(size_t(w.shape.bytes(w.dtype)));
      file.read(w.name, w.dtype, w.shape, whole.data());
      const Part part = part_in(w, zero.part_of_parameter(p, zero.rank()));
      mine[i].device().copy_in(mine[i].set().p, whole.data() + part.begin * size_of(w.dtype),
                               mine[i].bytes());
      ++i;
    }
    own->round_master();
  }
  zero.shards.shares->updated();  // the weights of other ranks' parts
  restore_counts(counts, optimizer);
  return file.metadata();
}

}  // namespace gradus
