#include "src/parallel/sharded_file.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "src/core/json.h"
#include "src/tensor/context.h"

namespace gradus {

namespace {

// A tensor of the file, and what a rank has of it: all of it, or that of a shard of its parameter.
struct Entry {
  std::string name;
  DType dtype;
  Shape shape;    // whole
  int64_t block;  // elements of the parameter per element of the tensor
  std::optional<Shard> shard;
  bool counted = true;  // false: a different rank has the same, and saves it

  // Calls f(begin in the whole, begin in the rank's tensor, count) for the ranges of elements of this tensor.
  template <class F>
  void each_range(F f) const {
    if (!shard) return f(int64_t(0), int64_t(0), shape.numel());
    const int64_t end = shard->whole.numel();
    shard->each_range([&](int64_t from, int64_t to, int64_t n) {
      check(from % block == 0 && to % block == 0 && (n % block == 0 || from + n == end),
            "save or load: a part of '", name, "', elements ", from, " to ", from + n,
            ", begins or ends within a block of ", block, "; give ZeroArgs::align");
      f(from / block, to / block, (n + block - 1) / block);
    });
  }
  int64_t numel() const {  // of the rank's tensor
    int64_t sum = 0;
    each_range([&](int64_t, int64_t, int64_t n) { sum += n; });
    return sum;
  }
};
using Entries = std::vector<Entry>;

// This rank's entries, for each parameter its kept weights and then its states, and their tensors.
struct Own {
  Entries entries;
  std::vector<Tensor> tensors;

  Own(const Parameters& own, const Optimizer& optimizer) {
    check(optimizer.states.size() == own.size(), "save or load: the optimizer has states of ",
          optimizer.states.size(), " of this rank's ", own.size(),
          " parameters; only one optimizer of all of them can be saved and loaded");
    std::map<const Parameter*, const std::vector<Tensor>*> states;
    for (const Optimizer::State& s : optimizer.states) states[s.parameter] = &s.tensors;
    for (const Parameter& p : own) {
      check(states.contains(&p), "save or load: the optimizer is of other parameters than '", p.name, "'");
      add(p, p.name, p.kept(), 1);
      const Optimizer::States specs = optimizer.states_of(p);
      for (size_t i = 0; i < specs.size(); ++i)
        add(p, "optimizer." + p.name + "." + specs[i].name, (*states[&p])[i], specs[i].block);
    }
    for (const Entry& e : entries) e.numel();  // checks that it begins and ends where blocks do
  }

 private:
  void add(const Parameter& p, const std::string& name, const Tensor& t, int64_t block) {
    Shape shape = t.shape();
    if (p.shard && block == 1) shape = p.shard->whole;
    if (p.shard && block > 1) shape = {QuantShape{.n = p.shard->whole.numel(), .block = block}.blocks()};
    entries.push_back({name, t.dtype(), shape, block, p.shard, p.counted});
    tensors.push_back(t);
  }
};

Json json_of(const Entries& entries) {
  Json all = Json::array();
  for (const Entry& e : entries) {
    const auto dims = [](const Shape& s) { return std::vector<int64_t>(s.begin(), s.end()); };
    all.push_back({e.name, int(e.dtype), dims(e.shape), e.block, e.counted});
    if (const auto& s = e.shard)
      all.back().push_back({dims(s->whole), s->begin, s->length, s->stride, s->first, s->count});
  }
  return all;
}

Entries entries_in(const Json& json) {
  Entries entries;
  const auto shape = [](const Json& dims) {
    Shape s;
    for (const Json& d : dims) s.push_back(d);
    return s;
  };
  for (const Json& e : json) {
    entries.push_back({e[0], DType(e[1].get<int>()), shape(e[2]), e[3], {}, e[4]});
    if (e.size() > 5) entries.back().shard = {shape(e[5][0]), e[5][1], e[5][2], e[5][3], e[5][4], e[5][5]};
  }
  return entries;
}

// Gathers the entries of all ranks, by rank.
std::vector<Entries> of_all_ranks(Comm& comm, const Entries& mine) {
  Device& device = current().device;
  check(device.has_data(), "save or load: the device ", device.name(), " has no numbers");
  const std::string text = json_text(json_of(mine));
  const auto number = [&](int64_t n, const char* name) {
    return Tensor(device, {n}, DType::I64, Kind::Comm, name);
  };
  std::vector<int64_t> sizes(size_t(comm.size()), int64_t(text.size()));
  Tensor size = number(1, "size of a list"), all = number(comm.size(), "sizes of lists");
  device.copy_in(size.set().p, &sizes[0], sizeof sizes[0]);
  comm.all_gather(size, all)->wait();
  device.copy_out(sizes.data(), all.in().p, all.bytes());
  std::vector<Entries> everyone;
  for (int64_t r = 0; r < comm.size(); ++r) {
    std::string other(size_t(sizes[size_t(r)]), ' ');
    Tensor bytes(device, {sizes[size_t(r)]}, DType::U8, Kind::Comm, "list of tensors");
    if (r == comm.rank()) device.copy_in(bytes.set().p, text.data(), bytes.bytes());
    comm.broadcast(bytes, r)->wait();
    device.copy_out(other.data(), bytes.in().p, bytes.bytes());
    everyone.push_back(entries_in(Json::parse(other)));
  }
  return everyone;
}

// The result is the same on all ranks, so none goes on alone. Copies count once.
void check_complete(const std::vector<Entries>& everyone) {
  struct Whole {
    Entry first;
    std::vector<std::pair<int64_t, int64_t>> ranges;  // begin, end
    bool copied = false;
  };
  std::map<std::string, Whole> wholes;
  for (const Entries& entries : everyone)
    for (const Entry& e : entries) {
      Whole& whole = wholes.try_emplace(e.name, Whole{e, {}}).first->second;
      check(e.shape == whole.first.shape && e.dtype == whole.first.dtype, "save: '", e.name, "' is ", e.shape,
            " ", name_of(e.dtype), " on one rank and ", whole.first.shape, " ", name_of(whole.first.dtype),
            " on another");
      if (!e.counted || (!e.shard && std::exchange(whole.copied, true))) continue;
      e.each_range([&](int64_t begin, int64_t, int64_t n) { whole.ranges.emplace_back(begin, begin + n); });
    }
  for (auto& [name, whole] : wholes) {
    std::sort(whole.ranges.begin(), whole.ranges.end());
    int64_t at = 0;
    for (const auto& [begin, end] : whole.ranges) {
      check(begin == at, "save: element ", std::min(begin, at), " of '", name, "' ", whole.first.shape,
            " is on ", begin < at ? "two ranks" : "no rank", "; each must be on one");
      at = end;
    }
    check(at == whole.first.shape.numel(), "save: element ", at, " of '", name, "' ", whole.first.shape,
          " is on no rank; each must be on one");
  }
}

}  // namespace

void save_sharded(const std::string& path, Comm& comm, const Parameters& own, const Optimizer& optimizer,
                  const Metadata& metadata) {
  const Own mine(own, optimizer);
  const std::vector<Entries> everyone = of_all_ranks(comm, mine.entries);
  check_complete(everyone);
  std::map<std::string, std::vector<char>> wholes;
  std::vector<TensorEntry> tensors;
  std::set<std::string> copies;
  Device& device = current().device;
  for (int64_t r = 0; r < comm.size(); ++r)
    for (size_t i = 0; i < everyone[size_t(r)].size(); ++i) {
      const Entry& e = everyone[size_t(r)][i];
      // Of several copies, the first rank's is saved.
      if (!e.counted || (!e.shard && !copies.insert(e.name).second)) continue;
      if (comm.rank() > 0) {
        if (r == comm.rank()) comm.send(mine.tensors[i], 0)->wait();
        continue;
      }
      const Tensor piece =
          r == 0 ? mine.tensors[i] : Tensor(device, {e.numel()}, e.dtype, Kind::Comm, "to save");
      if (r > 0) comm.recv(piece, r)->wait();
      std::vector<char> bytes(size_t(piece.bytes()));
      device.copy_out(bytes.data(), piece.in().p, piece.bytes());
      const auto [found, is_new] = wholes.try_emplace(e.name, size_t(e.shape.bytes(e.dtype)));
      std::vector<char>& whole = found->second;
      if (is_new) tensors.push_back({e.name, e.dtype, e.shape, whole.data()});
      const int64_t size = size_of(e.dtype);
      e.each_range([&](int64_t to, int64_t from, int64_t n) {
        std::copy_n(&bytes[size_t(from * size)], n * size, &whole[size_t(to * size)]);
      });
    }
  if (comm.rank() == 0) write_safetensors(path, tensors, with_counts(metadata, optimizer));
  comm.barrier();
}

Metadata load_sharded(const std::string& path, Comm& comm, Parameters& own, Optimizer& optimizer) {
  Own mine(own, optimizer);
  const std::vector<Entries> everyone = of_all_ranks(comm, mine.entries);
  const SafetensorsFile file(path);
  const TrainingCounts counts = counts_in(file, path);
  std::set<std::string> names;
  for (const Entries& entries : everyone)
    for (const Entry& e : entries) file.expect(e.name, e.dtype, e.shape), names.insert(e.name);
  check(file.tensors().size() == names.size(), "load: ", path, " holds ", file.tensors().size(),
        " tensors, this model needs ", names.size(), "; was it saved by another model or optimizer?");
  std::vector<char> whole, bytes;
  for (size_t i = 0; i < mine.entries.size(); ++i) {
    const Entry& e = mine.entries[i];
    Tensor& to = mine.tensors[i];
    const int64_t size = size_of(e.dtype);
    whole.resize(size_t(e.shape.bytes(e.dtype))), bytes.resize(size_t(to.bytes()));
    file.read(e.name, e.dtype, e.shape, whole.data());
    e.each_range([&](int64_t from, int64_t at, int64_t n) {
      std::copy_n(&whole[size_t(from * size)], n * size, &bytes[size_t(at * size)]);
    });
    to.device().copy_in(to.set().p, bytes.data(), to.bytes());
  }
  for (Parameter& p : own) p.round_master();
  if (*own.shares) (*own.shares)->updated();  // the weights of other ranks' parts
  restore_counts(counts, optimizer);
  return file.metadata();
}

}  // namespace gradus
