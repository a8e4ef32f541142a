// The profiler of a context records its ranges (ranges.h), with those of backward passes on a separate track;
// each kernel with its cost, timed by the device's own clock; and the bytes of each kind. For trace viewers
// (write_trace), tables and a roofline (profile_table.h).
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/tensor/context.h"
#include "src/tensor/kernel_calls.h"

namespace gradus {

// Backward: the ranges within the range "backward", which itself is on Program.
enum class ProfileTrack : uint8_t { Program, Backward, Kernels };

struct ProfileEvent {
  const std::string* name;  // owned by the profiler
  ProfileTrack track;
  int64_t parent;     // event of the range around it, on any track; -1: none
  double begin, end;  // seconds on this machine's clock
  Cost cost;          // of a kernel; for a range that copies or sends: its bytes
  int64_t forward;    // for an op's backward: the event of its forward pass; -1: none
  bool is_step() const { return parent < 0 && name->starts_with("step "); }
};

// The numbers of steps of a loop that are skipped, observed but not kept (they warm up), and recorded. As
// torch.profiler.schedule.
struct ProfileSchedule {
  int64_t wait = 1, warm_up = 1, record = 3;
};

class Profiler : private KernelObserver, private RangeListener {
 public:
  // Nothing is recorded before begin() or next_step(). The profiler keeps at most *room events, of about
  // 100 bytes each; several profilers may share the room.
  explicit Profiler(Context& context, const ProfileSchedule& schedule = {},
                    std::shared_ptr<int64_t> room = std::make_shared<int64_t>(1'000'000));
  ~Profiler() override;

  // begin() starts recording, end() stops it; the end of the context stops it, too. Ranges that are open at
  // end() end there; ranges that began before begin() are not recorded. A range that begins on a thread other
  // than the context's is an error.
  void begin();
  void end();
  // Call this at the beginning of each step of a loop, and end() after the loop. It records as the schedule
  // says. Each step is a range; ranges that are open at its end are closed. Only the recorded steps are kept.
  void next_step();

  bool records() const { return context_ != nullptr; }
  bool full() const { return *room_ <= 0; }
  // In the order in which they began. The times of kernels are known after end().
  const std::vector<ProfileEvent>& events() const { return events_; }
  struct Bytes {  // by kind, noted after a kernel
    double at;
    Usage usage;
  };
  const std::vector<Bytes>& bytes() const { return bytes_; }

 private:
  struct Open {
    size_t depth;
    int64_t event;
  };
  void began(size_t depth, const char* name) override;
  void ended(size_t depth) override;
  void noted(RangeNote what, int64_t value) override;
  void call(std::unique_ptr<KernelCall> call) override;
  void context_ends() noexcept override;
  int64_t add(const char* name, ProfileTrack track, int64_t parent);
  int64_t parent() const { return open_.empty() ? step_event_ : open_.back().event; }
  void end_step();
  void forget();  // drops what was recorded
  void read_kernel_times();
  void note_bytes(double at);

  Context& of_;
  Context* context_ = nullptr;  // while it records
  bool context_ended_ = false;
  std::unique_ptr<DeviceClock> clock_;
  const ProfileSchedule schedule_;
  const std::shared_ptr<int64_t> room_;
  const std::thread::id thread_ = std::this_thread::get_id();
  int64_t step_ = 0, step_event_ = -1;
  std::set<std::string> names_;
  std::vector<ProfileEvent> events_;
  std::vector<Open> open_;               // the outermost first
  std::vector<int64_t> kernels_;         // events whose times the device still has
  std::map<int64_t, int64_t> forwards_;  // the forward event, by node whose backward has not run
  std::vector<Bytes> bytes_;
};

// Writes a file for ui.perfetto.dev and chrome://tracing, with one process per profiler.
struct ProfiledContext {
  std::string name;
  const Profiler* profiler;
};
void write_trace(const std::string& path, const std::vector<ProfiledContext>& contexts);

}  // namespace gradus
