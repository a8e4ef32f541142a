// A block of GPU threads that runs on one CPU thread: its scheduler, and the barriers between its threads.
#pragma once
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/emu/emu.h"
#include "kernels/fiber.h"

namespace gradus::emu {

inline std::string text(const dim3& d) {
  std::ostringstream s;
  s << "(" << d.x << ", " << d.y << ", " << d.z << ")";
  return s.str();
}
inline int64_t volume(const dim3& d) { return int64_t(d.x) * d.y * d.z; }
inline dim3 place(int64_t i, const dim3& d) {
  return {unsigned(i % d.x), unsigned(i / d.x % d.y), unsigned(i / d.x / d.y)};
}

// An order of n things, the blocks of a launch or the threads of a block: the i-th is (first + i step) mod n.
// Shuffled: the step is such that the order looks random.
struct Turns {
  Turns(Order order, int64_t n);
  int64_t operator()(int64_t i) const { return (first + i * step) % n; }
  int64_t after(int64_t thing) const { return thing + step < n ? thing + step : thing + step - n; }
  int64_t before_first() const { return (first + n - step) % n; }
  // When the lanes of a warp have met, they continue after the turn of the returned thread. Forward and
  // Reverse: at once, so a warp runs ahead of the others as far as it can, to the next __syncthreads.
  // Shuffled: when all other threads have had a turn (`now`), so all warps advance together.
  int64_t before_warp(int64_t first_thread, int64_t lanes, int64_t now) const;
  Order order;
  int64_t n, first = 0, step = 1;
};

// The block that a CPU thread is running. Its GPU threads start one after the other. A thread takes over the
// stack of the previous thread if that has finished, so kernels that never wait need a single stack.
class Block {
 public:
  // Runs block number `block` of a launch to its end.
  void run(const Launch& launch, void (*call)(const void*), const void* arguments, int64_t block,
           Order order);
  void wait_for_block(Here where);
  uint64_t exchange(WarpOp op, uint32_t mask, uint64_t bits, int source, Here where);
  void* shared() { return shared_.get(); }
  int lane() const { return int(running_ - threads_.data()) % 32; }
  static Block& current() {
    static thread_local Block block;
    return block;
  }

 private:
  enum class State : uint8_t { New, Ready, Running, AtBarrier, InWarp, Done };
  struct Thread {
    State state = State::New;
    Fiber* fiber = nullptr;
    const Where* where = nullptr;  // where the thread waits; an argument of the function in which it waits
    WarpOp op{};                   // InWarp: the warp function, and below its arguments and result
    uint32_t mask = 0;
    uint64_t bits = 0, result = 0;
    int source = 0;
    dim3 index;
  };

  static void threads_main(void*);  // the function of every fiber
  Thread* next();
  void pass_turn();
  void start(Thread& t);
  void continue_with(Thread& t);
  void finish_exchange(Thread* warp, uint32_t mask);
  [[noreturn]] void stop(const std::string& problem);
  std::string name_of(const Thread& t) const;
  std::string waiting(const Thread& t) const;
  [[noreturn]] void stop_because_stuck();

  const Launch* launch_ = nullptr;
  void (*call_)(const void*) = nullptr;
  const void* arguments_ = nullptr;
  std::vector<Thread> threads_;
  Thread* running_ = nullptr;
  Turns turns_{Order::Forward, 1};
  int64_t count_ = 0, done_ = 0, at_barrier_ = 0;
  int64_t last_ = 0;                // the thread that had the last turn
  int meeting_[32];                 // the number of lanes of each warp that are InWarp
  const Where* barrier_ = nullptr;  // the barrier that the first waiting thread reached
  Fiber outside_;                   // the CPU thread itself
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> unused_;
  std::unique_ptr<char[]> shared_;  // dynamic shared memory, and a guard unless under AddressSanitizer
  std::exception_ptr error_;
};

}  // namespace gradus::emu
