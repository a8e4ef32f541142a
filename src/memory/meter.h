// Where the bytes are: every allocation has a Kind, and the meter knows at any time, and at the peak, how
// many bytes of each kind are alive. Kinds count *requested* bytes; `rounding` holds what the allocator
// added, so that the rows sum to `allocated` exactly. `reserved` is what the device has handed out, in
// segments, or in pages of expandable segments.
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
  Table table(const std::string& title) const;  // of the kinds that hold bytes, rounding and the sum
  bool operator==(const Usage&) const = default;
};

class Meter {
 public:
  // A block of `block` bytes is handed out for `requested` bytes, or comes back.
  void add(Kind, int64_t requested, int64_t block);
  void remove(Kind, int64_t requested, int64_t block);
  void move(Kind from, Kind to, int64_t requested);
  void add_segment(int64_t bytes);
  void remove_segment(int64_t bytes);
  // Adds a kernel's cost to the totals of its class and, if a trace is kept, to the trace.
  void count(const Cost&);
  void keep_trace() { keeps_trace_ = true; }
  // From now on every kernel is waited for and timed (slower: a GPU no longer works ahead).
  void keep_times() { keeps_times_ = true; }
  bool keeps_times() const { return keeps_times_; }
  void add_seconds(OpClass c, double seconds) { totals_[int(c)].seconds += seconds; }

  const Usage& now() const { return now_; }
  // The full table at the instant when allocated() first reached its highest value, with the kinds that
  // blocks had then: a kind that changes later does not change the past.
  const Usage& at_peak() const { return at_peak_; }
  int64_t reserved() const { return reserved_; }
  int64_t peak_reserved() const { return peak_reserved_; }
  int64_t device_requests() const { return device_requests_; }  // segments and pages ever asked for
  struct Totals {
    int64_t calls = 0, flops = 0, bytes = 0;
    double seconds = 0;  // if times are kept
  };
  const Totals& totals(OpClass c) const { return totals_[int(c)]; }
  int64_t flops() const;  // the sum over all classes
  // How often each kernel of each size ran, by cost: what a time can be predicted from.
  const std::map<Cost, int64_t>& trace() const { return trace_; }

  void reset_peak();  // the peaks become what is alive and reserved now
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
