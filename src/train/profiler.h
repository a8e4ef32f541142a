// Who did what when in a context, and at what cost: the ranges of the program and of ops, those of a backward
// pass on a track of their own, each kernel, and the bytes of each kind. For trace viewers and for tables.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/tensor/context.h"
#include "src/tensor/kernel_calls.h"

namespace gradus {

enum class ProfileTrack : uint8_t { Program, Backward, Kernels };

struct ProfileEvent {
  const std::string* name;  // the profiler's
  ProfileTrack track;
  int64_t parent;     // of the event that it is in, on any track; -1: none
  double begin, end;  // seconds on this machine's clock
  Cost cost;          // of a kernel
};

class Profiler : private KernelObserver {
 public:
  // Records nothing before begin(). It ends before the context. Each kernel is waited for, as with
  // Meter::keep_times.
  explicit Profiler(Context& context) : context_(context) {}
  ~Profiler() override;

  void begin();
  void end();  // also of ranges that an error has left open
  bool records() const { return told_.has_value(); }

  const std::vector<ProfileEvent>& events() const { return events_; }
  struct Bytes {  // of each kind, from `at` on
    double at;
    Usage usage;
  };
  const std::vector<Bytes>& bytes() const { return bytes_; }

 private:
  void range(size_t depth, const char* name);
  void call(std::unique_ptr<KernelCall> call) override;
  void note_bytes(double at);
  const std::string* interned(const char* name) { return &*names_.insert(name).first; }

  Context& context_;
  std::optional<Ranges::Told> told_;
  std::set<std::string> names_;
  std::vector<ProfileEvent> events_;
  std::vector<int64_t> open_;  // ranges, the outermost first
  std::vector<Bytes> bytes_;
};

// As a file for chrome://tracing and ui.perfetto.dev.
void write_trace(const std::string& path, const Profiler& profiler);

struct ProfileRow {  // of all kernels of one name, or of all that lie in ops of one name
  std::string name;
  int64_t calls = 0;
  double seconds = 0;
  Cost cost;  // flops and bytes of all
};
// The longest first.
std::vector<ProfileRow> by_kernel(const Profiler& profiler);
std::vector<ProfileRow> by_op(const Profiler& profiler);

}  // namespace gradus
