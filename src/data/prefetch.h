// Work that threads do ahead of a loop. Worker s mod W makes the item of step s, and the loop takes the items
// in the order of the steps, so they do not depend on the number of workers W.
#pragma once
#include <pthread.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/check.h"

namespace gradus {

// Item: the data that a step needs. It is made in place, in one of a fixed number of slots (a bounded queue):
// step s uses slot s mod slots, and its worker may begin when the loop has finished step s - slots. So memory
// is bounded, and is allocated once.
template <class Item>
class Prefetch {
 public:
  // make(step, worker, item), steps 0, 1, 2, ..., runs on a worker's thread, so it must not use a Context.
  // There may be 0 to 1,024 workers; with 0, take() calls make. The take() of its step, and all later ones,
  // rethrow its exception.
  using Make = std::function<void(int64_t step, int64_t worker, Item& item)>;
  Prefetch(int64_t workers, std::vector<Item> slots, Make make)
      : workers_(workers), make_(std::move(make)), slots_(slots.size()) {
    check(workers >= 0 && workers <= kMostWorkers && !slots.empty(), "prefetch: ", workers, " workers and ",
          slots.size(), " slots; there must be 0 to ", kMostWorkers, " workers and at least 1 slot");
    for (size_t i = 0; i < slots.size(); ++i) slots_[i] = {std::move(slots[i]), int64_t(i), false, {}};
    try {
      for (int64_t w = 0; w < workers; ++w) threads_.emplace_back([this, w] { work(w); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Prefetch() { stop(); }  // waits for items that are being made
  Prefetch(const Prefetch&) = delete;

  // The item of the next step, which the caller has until the next take(). Waits until it is made.
  Item& take() {
    std::unique_lock lock(mutex_);
    if (failed_) std::rethrow_exception(failed_);
    if (next_ > 0) free_slot_of(next_ - 1);
    Slot& slot = slot_of(next_);
    if (workers_ == 0) slot.error = make_into(slot, 0), slot.made = true;
    changed_.wait(lock, [&] { return slot.made; });
    ++next_;
    if ((failed_ = slot.error)) std::rethrow_exception(failed_);
    return slot.item;
  }

 private:
  static constexpr int64_t kMostWorkers = 1024;
  struct Slot {
    Item item{};
    int64_t step = 0;  // that uses the slot
    bool made = false;
    std::exception_ptr error = {};
  };
  Slot& slot_of(int64_t step) { return slots_[size_t(step) % slots_.size()]; }

  void free_slot_of(int64_t step) {
    Slot& slot = slot_of(step);
    slot.step += int64_t(slots_.size()), slot.made = false;
    changed_.notify_all();
  }
  std::exception_ptr make_into(Slot& slot, int64_t worker) {
    try {
      make_(slot.step, worker, slot.item);
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }
  void work(int64_t worker) {
    // A worker that wakes up must not preempt the loop: it is ahead, so it can wait.
    constexpr sched_param kNone{};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &kNone);
    for (int64_t step = worker;; step += workers_) {
      Slot& slot = slot_of(step);
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stops_ || slot.step == step; });
        if (stops_) return;
      }
      const std::exception_ptr error = make_into(slot, worker);
      const std::lock_guard lock(mutex_);
      slot.error = error, slot.made = true;
      changed_.notify_all();
      if (error) return;
    }
  }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  const int64_t workers_;
  const Make make_;
  std::mutex mutex_;  // protects all members below; but a slot's item is its worker's until it is made
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  int64_t next_ = 0;  // the next step
  bool stops_ = false;
  std::exception_ptr failed_;
  std::vector<std::thread> threads_;
};

}  // namespace gradus
