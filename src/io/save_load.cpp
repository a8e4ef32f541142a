#include "src/io/save_load.h"

#include <charconv>
#include <cstring>
#include <limits>
#include <map>

#include "src/tensor/context.h"

namespace gradus {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
constexpr const char* kMean = ".scale_mean";

// For a weight in 4 bits, its codes and constants. A file does not say whether adapters were merged.
static NamedTensors named_weights(const std::string& path, const Parameters& parameters) {
  NamedTensors tensors;
  for (const Parameter& p : parameters) {
    check(!p.shard, path, ": this rank has only a part of '", p.name,
          "'; use save_sharded() and load_sharded()");
    check(!p.merged, path, ": an adapter is merged into ", p.name, "; unmerge_lora() the model first");
    if (!p.codes) {
      tensors.emplace_back(p.name, p.kept());
      continue;
    }
    const DoubleQuantized& q = *p.codes;
    tensors.emplace_back(p.name + ".codes", q.codes);
    tensors.emplace_back(p.name + ".scale_codes", q.scale_codes);
    tensors.emplace_back(p.name + ".scale_scales", q.scale_scales);
    tensors.emplace_back(p.name + kMean, from_host(q.codes.device(), std::vector<float>{q.mean}, {1},
                                                   DType::F32, Kind::Temporary, "mean"));
  }
  return tensors;
}

static NamedTensors named_states(const Optimizer& optimizer) {
  NamedTensors tensors;
  for (const Optimizer::State& s : optimizer.states)
    for (const Tensor& state : s.tensors) tensors.emplace_back("optimizer." + state.storage().name(), state);
  return tensors;
}

static void write_tensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  std::vector<std::vector<char>> bytes;
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    bytes.emplace_back(tensor.bytes());
    tensor.device().copy_out(bytes.back().data(), tensor.in().p, tensor.bytes());
    entries.push_back({name, tensor.dtype(), tensor.shape(), bytes.back().data()});
  }
  write_safetensors(path, entries, metadata);
}

// Reads all tensors into host memory first, so that a file that fails half way leaves the model as it was.
static void read_tensors(const SafetensorsFile& file, const std::string& path, NamedTensors tensors,
                         Parameters& parameters) {
  for (const Parameter& p : parameters)
    check(!p.value.storage().on_read && p.precision.master == p.master.defined(), "load: ", path,
          ": this rank keeps only a part of ", p.name, "; use load_sharded()");
  check(file.tensors().size() == tensors.size(), "load: ", path, " holds ", file.tensors().size(),
        " tensors, this model needs ", tensors.size(),
        "; was it saved by another model or optimizer, with adapters or without, in 4 bits or not?");
  std::map<std::string, std::vector<char>> bytes;
  for (const auto& [name, tensor] : tensors) {
    bytes[name].resize(size_t(tensor.bytes()));
    file.read(name, tensor.dtype(), tensor.shape(), bytes[name].data());
  }
  for (auto& [name, tensor] : tensors)
    tensor.device().copy_in(tensor.set().p, bytes[name].data(), tensor.bytes());
  for (Parameter& p : parameters) {
    if (p.codes)
      std::memcpy(&p.codes->mean, bytes[p.name + kMean].data(), sizeof p.codes->mean);
    else
      p.round_master();
  }
}

void save_weights(const std::string& path, const Parameters& parameters, const Metadata& metadata) {
  write_tensors(path, named_weights(path, parameters), metadata);
}

void load_weights(const std::string& path, Parameters& parameters) {
  read_tensors(SafetensorsFile(path), path, named_weights(path, parameters), parameters);
}

std::vector<double> read_numbers(const SafetensorsFile& file, const std::string& name, const Shape& shape) {
  const SafetensorsFile::Tensor* const found = file.find(name);
  const DType dtype = found ? found->dtype : DType::F32;
  file.expect(name, dtype, shape);  // before memory of this shape is allocated
  std::vector<double> numbers;
  visit_float("load", dtype, [&]<class T>() {
    std::vector<T> values(size_t(shape.numel()));
    file.read(name, dtype, shape, values.data());
    numbers.assign(values.begin(), values.end());
  });
  return numbers;
}

static NamedTensors named_training(const std::string& path, const Parameters& parameters,
                                   const Optimizer& optimizer) {
  NamedTensors tensors = named_weights(path, parameters);
  for (auto& state : named_states(optimizer)) tensors.push_back(state);
  return tensors;
}

Metadata with_counts(Metadata metadata, const Optimizer& optimizer) {
  current().end_attempt();  // a run that loads the file begins with the next attempt
  const StepScalars counts = current().device.scalars();
  metadata["step"] = std::to_string(counts.step);
  metadata["updates"] = std::to_string(optimizer.scalars().updates);
  if (counts.growth_interval > 0) {
    char scale[32];  // the shortest text that is read as the same number
    metadata["loss_scale"] = std::string(scale, std::to_chars(scale, scale + 32, counts.loss_scale).ptr);
    metadata["good_updates"] = std::to_string(counts.good_updates);
    metadata["growth_interval"] = std::to_string(counts.growth_interval);
  }
  return metadata;
}

void save_training(const std::string& path, const Parameters& parameters, const Optimizer& optimizer,
                   Metadata metadata) {
  write_tensors(path, named_training(path, parameters, optimizer),
                with_counts(std::move(metadata), optimizer));
}

// A number that save_training has written into the metadata. Counts are so small that sums cannot overflow.
template <class T = int64_t>
static T number_in(const SafetensorsFile& file, const std::string& path, const char* name) {
  const auto found = file.metadata().find(name);
  constexpr T most = std::is_integral_v<T> ? T(1e15) : std::numeric_limits<T>::max();
  T count = -1;
  if (found != file.metadata().end()) {
    const std::string& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (error != std::errc() || end != text.data() + text.size()) count = -1;
  }
  check(count >= 0 && count <= most, "load: ", path, " does not say the number of its ", name,
        "; it holds weights only, or is corrupt");
  return count;
}

TrainingCounts counts_in(const SafetensorsFile& file, const std::string& path) {
  TrainingCounts counts{number_in(file, path, "step"), number_in(file, path, "updates"), {}};
  StepScalars& scaling = counts.scaling;  // no loss scaling, unless the file has it
  if (file.metadata().contains("loss_scale")) {
    scaling.loss_scale = number_in<float>(file, path, "loss_scale");
    scaling.good_updates = number_in(file, path, "good_updates");
    scaling.growth_interval = number_in(file, path, "growth_interval");
    check(scaling.loss_scale > 0 && scaling.growth_interval > 0, "load: ", path, " has the loss scale ",
          scaling.loss_scale, " and the growth interval ", scaling.growth_interval,
          "; both must be positive");
  }
  return counts;
}

void restore_counts(const TrainingCounts& counts, Optimizer& optimizer) {
  optimizer.restore(counts.updates);
  current().stepped = false;
  Device& device = current().device;
  device.set(&StepScalars::overflows, 0);
  device.set(&StepScalars::step, counts.step);
  device.set(&StepScalars::loss_scale, counts.scaling.loss_scale);
  device.set(&StepScalars::growth_interval, counts.scaling.growth_interval);
  device.set(&StepScalars::good_updates, counts.scaling.good_updates);
}

Metadata load_training(const std::string& path, Parameters& parameters, Optimizer& optimizer) {
  const SafetensorsFile file(path);
  const TrainingCounts counts = counts_in(file, path);
  read_tensors(file, path, named_training(path, parameters, optimizer), parameters);
  restore_counts(counts, optimizer);
  return file.metadata();
}

}  // namespace gradus
