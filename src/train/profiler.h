// The profiler of a context records its ranges (ranges.h), those of a backward pass on a track of their own;
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

// In a backward pass: what is within "backward", which is on Program itself.
enum class ProfileTrack : uint8_t { Program, Backward, Kernels };

struct ProfileEvent {
  const std::string* name;  // the profiler's
  ProfileTrack track;
  int64_t parent;     // of the range that it is in, on any track; -1: none
  double begin, end;  // seconds on this machine's clock
  Cost cost;          // of a kernel; of a range that copies or sends, the bytes
  int64_t forward;    // of an op's backward, the event of its forward pass; -1: none
  bool is_step() const { return parent < 0 && name->starts_with("step "); }
};

// Of a loop: how many steps pass, how many are observed but not kept, because they are not like those that
// follow, and how many are kept. As torch.profiler.schedule.
struct ProfileSchedule {
  int64_t wait = 1, warm_up = 1, record = 3;
};

class Profiler : private KernelObserver, private RangeListener {
 public:
  // Nothing is recorded before begin() or next_step(). It keeps as many events as there is room for, about
  // 100 bytes each; several profilers may share the room.
  explicit Profiler(Context& context, const ProfileSchedule& schedule = {},
                    std::shared_ptr<int64_t> room = std::make_shared<int64_t>(1'000'000));
  ~Profiler() override;

  // Records from here to there. It ends, at the latest, with its context. A range that is open then ends
  // there; one that began before is not known. Ranges are of the context's thread: one that begins on another
  // is an error.
  void begin();
  void end();
  // At the beginning of each step of a loop, with end() after it: records as the schedule says, with a range
  // around each step, in which all other ranges end. Only the steps that are to be kept remain.
  void next_step();

  bool records() const { return context_ != nullptr; }
  bool full() const { return *room_ <= 0; }
  // In the order in which they began. Times of kernels are there after end().
  const std::vector<ProfileEvent>& events() const { return events_; }
  struct Bytes {  // of each kind, as noted after a kernel
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
  void forget();  // what was recorded
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
  std::vector<int64_t> kernels_;         // events whose times are still with the device
  std::map<int64_t, int64_t> forwards_;  // the event of each node that has not run backwards
  std::vector<Bytes> bytes_;
};

// As a file for ui.perfetto.dev and chrome://tracing, a process for each profiler.
struct ProfiledContext {
  std::string name;
  const Profiler* profiler;
};
void write_trace(const std::string& path, const std::vector<ProfiledContext>& contexts);

}  // namespace gradus
