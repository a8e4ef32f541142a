// Work that threads do ahead of a loop: what step s needs is made by worker s mod W, and taken in the order of
// the steps, so what the loop sees does not depend on the number of workers.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "kernels/check.h"

namespace gradus {

// Item: what a step needs. It is made in place, in one of so many slots; a slot is made anew when the loop
// has gone on from it, so memory is bounded and is not allocated again.
template <class Item>
class Prefetch {
 public:
  // make(step, worker, item): on a worker's thread; it touches nothing that belongs to a Context. What it throws
  // is thrown by the take() of that step, and by all later ones. workers = 0: take() calls it itself.
  using Make = std::function<void(int64_t step, int64_t worker, Item& item)>;
  Prefetch(int64_t first_step, int64_t workers, std::vector<Item> slots, Make make)
      : next_(first_step), workers_(workers), make_(std::move(make)), slots_(slots.size()) {
    check(workers >= 0 && !slots.empty(), "prefetch: ", workers, " workers and ", slots.size(),
          " slots; there must be 0 workers or more, and a slot");
    for (size_t i = 0; i < slots.size(); ++i) slots_[i].item = std::move(slots[i]);
    for (size_t i = 0; i < slots.size(); ++i) slot_of(first_step + int64_t(i)).step = first_step + int64_t(i);
    try {
      for (int64_t w = 0; w < workers; ++w) threads_.emplace_back([this, w, first_step] { work(first_step, w); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Prefetch() { stop(); }
  Prefetch(const Prefetch&) = delete;

  // The item of the next step, valid until the next take(). Waits until it is made.
  Item& take() {
    std::unique_lock lock(mutex_);
    if (failed_) std::rethrow_exception(failed_);
    if (taken_) {  // the slot of the step before is free for the step that comes `slots` later
      Slot& before = slot_of(next_ - 1);
      before.step += int64_t(slots_.size()), before.made = false;
      changed_.notify_all();
    }
    taken_ = true;
    Slot& slot = slot_of(next_);
    if (workers_ == 0) {
      lock.unlock();
      make_(next_++, 0, slot.item);
      return slot.item;
    }
    changed_.wait(lock, [&] { return slot.made; });
    ++next_;
    if ((failed_ = slot.error)) std::rethrow_exception(failed_);
    return slot.item;
  }

 private:
  struct Slot {
    Item item{};
    int64_t step = 0;  // whose it is, or will be
    bool made = false;
    std::exception_ptr error = {};
  };
  Slot& slot_of(int64_t step) { return slots_[size_t(step) % slots_.size()]; }

  void work(int64_t first_step, int64_t worker) {
    for (int64_t step = first_step + worker;; step += workers_) {
      Slot& slot = slot_of(step);
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stops_ || slot.step == step; });
        if (stops_) return;
      }
      std::exception_ptr error;
      try {
        make_(step, worker, slot.item);
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      slot.made = true, slot.error = error;
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
    threads_.clear();
  }

  int64_t next_;
  const int64_t workers_;
  const Make make_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  bool taken_ = false, stops_ = false;
  std::exception_ptr failed_;
  std::vector<std::thread> threads_;
};

}  // namespace gradus
