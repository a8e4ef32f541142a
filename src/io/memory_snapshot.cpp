// The format is that of PyTorch's torch/csrc/cuda/memory_snapshot.cpp.

#include <nlohmann/json.hpp>

#include "src/io/atomic_file.h"
#include "src/io/memory_files.h"
#include "src/io/pickle.h"

namespace gradus {
namespace {

// The frames, the innermost first, as in a stack.
Json frames(Kind kind, const std::string& name, const Shape& shape, const std::string& op) {
  Json made = Json::array();
  if (!name.empty())
    made.push_back(Json{{"name", name + " " + shape.text()}, {"filename", name_of(kind)}, {"line", 0}});
  for (size_t end = op.size(); end != 0 && end != std::string::npos;) {
    const size_t slash = op.rfind('/', end - 1);
    const size_t begin = slash == std::string::npos ? 0 : slash + 1;
    made.push_back(Json{{"name", op.substr(begin, end - begin)}, {"filename", "op"}, {"line", 0}});
    end = slash;
  }
  return made;
}

// A contiguous part of a segment that has memory: all of it, or, if it is expandable, from hole to hole.
Json mapped_stretch(const Block* first) {
  const Segment& segment = *first->segment;
  const int64_t base = reinterpret_cast<int64_t>(segment.base);
  int64_t total = 0, in_use = 0, requested = 0;
  Json blocks = Json::array();
  for (const Block* b = first; b && b->mapped; b = b->next) {
    total += b->size;
    if (!b->free) in_use += b->size, requested += b->requested;
    blocks.push_back(Json{{"address", base + b->offset},
                          {"size", b->size},
                          {"requested_size", b->free ? 0 : b->requested},
                          {"state", b->free ? "inactive" : "active_allocated"},
                          {"frames", b->free ? Json::array() : frames(b->kind, b->name, b->shape, "")}});
  }
  return {{"device", 0},
          {"address", base + first->offset},
          {"total_size", total},
          {"allocated_size", in_use},
          {"active_size", in_use},
          {"requested_size", requested},
          {"stream", 0},
          {"segment_type", segment.small ? "small" : "large"},
          {"is_expandable", segment.page > 0},
          {"frames", Json::array()},
          {"blocks", blocks}};
}

void push_trace_entries(Json& trace, const MemoryEvent& e) {
  if (e.action == Action::ChangeKind) return;  // PyTorch has no kinds
  const auto push = [&](const char* action, const char* what, int64_t at, int64_t bytes) {
    trace.push_back(Json{{"action", action},
                         {what, at},
                         {"size", bytes},
                         {"stream", 0},
                         {"time_us", int64_t(e.seconds * 1e6)},
                         {"frames", frames(e.kind, e.name, e.shape, e.op)}});
  };
  if (e.action == Action::Alloc) return push("alloc", "addr", e.address, e.requested);
  if (e.action == Action::OutOfMemory) return push("oom", "device_free", e.bytes, e.requested);
  if (e.action != Action::Free) return push(name_of(e.action), "addr", e.address, e.bytes);
  for (const char* part : {"free_requested", "free_completed"}) push(part, "addr", e.address, e.requested);
}

}  // namespace

Json memory_snapshot(const Allocator& allocator) {
  Json segments = Json::array(), trace = Json::array();
  for (const auto& [serial, segment] : allocator.segments())
    for (const Block* b = segment.first; b; b = b->next)
      if (b->mapped && (!b->prev || !b->prev->mapped)) segments.push_back(mapped_stretch(b));
  for (const MemoryEvent& e : allocator.history()) push_trace_entries(trace, e);
  return {{"segments", segments}, {"device_traces", Json::array({trace})}};
}

void write_memory_snapshot(const std::string& path, const Allocator& allocator) {
  write_file(path, pickle(memory_snapshot(allocator)));
}

}  // namespace gradus
