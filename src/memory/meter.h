// Bytes by kind: every allocation has a Kind, and the meter counts the live bytes of each kind, now and at
// the peak. Kinds count *requested* bytes; `rounding` is what the allocator added, so that the rows sum to
// `allocated` exactly. `reserved` is the memory that the device has provided, in segments or in pages of
// expandable segments.
#pragma once
#include <array>
#include <cstdint>
#include <map>

#include "kernels/cost.h"
#include "src/core/table.h"

namespace gradus {

enum class Kind : uint8_t {
  Weight,
  Master,
  Gradient,
  Optimizer,
  Activation,
  Temporary,
  Data,
  Comm,
  Workspace,
  Other
};
constexpr int kKinds = 10;
const char* name_of(Kind);  // "weight", "master", ...

struct Usage {
  std::array<int64_t, kKinds> by_kind{};
  int64_t rounding = 0;
  int64_t operator[](Kind k) const { return by_kind[int(k)]; }
  int64_t allocated() const;                    // the sum of all rows
  Table table(const std::string& title) const;  // rows: the kinds with bytes, rounding, the sum
  bool operator==(const Usage&) const = default;
};

class Meter {
 public:
  // A block of `block` bytes is allocated for a request of `requested` bytes, or freed.
  void add(Kind, int64_t requested, int64_t block);
  void remove(Kind, int64_t requested, int64_t block);
  void move(Kind from, Kind to, int64_t requested);
  void add_segment(int64_t bytes);
  void remove_segment(int64_t bytes);
  // Adds a kernel's cost to the totals of its class and, if a trace is kept, to the trace.
  void count(const Cost&);
  void keep_trace() { keeps_trace_ = true; }
  // From now on the host waits for every kernel and times it (slower: a GPU no longer runs asynchronously).
  void keep_times() { keeps_times_ = true; }
  bool keeps_times() const { return keeps_times_; }
  void add_seconds(OpClass c, double seconds) { totals_[int(c)].seconds += seconds; }

  const Usage& now() const { return now_; }
  // The full table at the instant when allocated() first reached its highest value, with the kinds that
  // blocks had then, even if a kind changes later.
  const Usage& at_peak() const { return at_peak_; }
  int64_t reserved() const { return reserved_; }
  int64_t peak_reserved() const { return peak_reserved_; }
  int64_t device_requests() const { return device_requests_; }  // device allocations: segments, pages
  struct Totals {
    int64_t calls = 0, flops = 0, bytes = 0;
    double seconds = 0;  // measured if times are kept
  };
  const Totals& totals(OpClass c) const { return totals_[int(c)]; }
  int64_t flops() const;  // the sum over all classes
  // How often each kernel of each size ran, by cost; a time can be predicted from it.
  const std::map<Cost, int64_t>& trace() const { return trace_; }

  void reset_peak();  // sets the peaks to the current values
  void reset_totals();

 private:
  Usage now_, at_peak_;
  // allocated_ and peak_allocated_ are the sums of now_ and at_peak_, kept so that add() need not sum.
  int64_t allocated_ = 0, peak_allocated_ = 0, reserved_ = 0, peak_reserved_ = 0, device_requests_ = 0;
  std::array<Totals, kOpClasses> totals_{};
  bool keeps_trace_ = false, keeps_times_ = false;
  std::map<Cost, int64_t> trace_;
};

}  // namespace gradus
