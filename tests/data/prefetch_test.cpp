// Work ahead of a loop: the same items in the same order for any number of workers, in bounded memory, and
// errors reach the loop.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>

#include "src/core/rng.h"
#include "src/data/prefetch.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Numbers = Prefetch<int64_t>;
std::vector<int64_t> slots(size_t n) { return std::vector<int64_t>(n, -1); }

// Takes a random time, so that workers overtake each other.
void dawdle(int64_t step) {
  std::this_thread::sleep_for(std::chrono::microseconds(Rng(5, uint64_t(step)).below(300)));
}

// Waits up to ten seconds until the condition is true.
template <class F>
bool becomes_true(const F& f) {
  for (int i = 0; i < 10'000 && !f(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return f();
}

TEST(L14_Prefetch, GivesTheItemOfEachStepInOrder) {
  for (const int64_t workers : {0, 1, 2, 3, 4, 7})
    for (const size_t n : {1, 2, 3, 5, 8}) {
      Numbers numbers(workers, slots(n), [](int64_t step, int64_t, int64_t& item) {
        dawdle(step);
        item = 10 * step;
      });
      for (int64_t step = 0; step < 40; ++step)
        ASSERT_EQ(numbers.take(), 10 * step) << workers << " workers, " << n << " slots";
    }
}

TEST(L14_Prefetch, AStepIsMadeByWorkerStepModWorkers) {
  for (const int64_t workers : {0, 1, 3}) {
    Numbers numbers(workers, slots(4), [](int64_t, int64_t worker, int64_t& item) { item = worker; });
    for (int64_t step = 0; step < 20; ++step)
      ASSERT_EQ(numbers.take(), workers ? step % workers : 0) << workers << " workers, step " << step;
  }
}

TEST(L14_Prefetch, AStepIsMadeOnceOnAnotherThreadThanTheLoops) {
  std::mutex mutex;
  std::multiset<int64_t> made;
  std::set<std::thread::id> threads;
  {
    Numbers numbers(2, slots(3), [&](int64_t step, int64_t, int64_t&) {
      const std::lock_guard lock(mutex);
      made.insert(step), threads.insert(std::this_thread::get_id());
    });
    for (int64_t step = 0; step < 30; ++step) numbers.take();
  }
  for (int64_t step = 0; step < 30; ++step) EXPECT_EQ(made.count(step), 1u) << step;
  EXPECT_EQ(threads.size(), 2u);
  EXPECT_EQ(threads.count(std::this_thread::get_id()), 0u);
}

TEST(L14_Prefetch, WorkersWorkAtTheSameTime) {
  std::atomic<int64_t> begun = 0, met = 0;
  Numbers numbers(3, slots(6), [&](int64_t step, int64_t, int64_t&) {
    if (step >= 3) return;
    ++begun;
    met += becomes_true([&] { return begun == 3; });
  });
  for (int64_t step = 0; step < 3; ++step) numbers.take();
  EXPECT_EQ(met, 3) << "each waited until the others had begun, too";
}

TEST(L14_Prefetch, AWorkerDoesNotInterruptTheLoop) {
  Numbers numbers(1, slots(1), [](int64_t, int64_t, int64_t& item) { item = sched_getscheduler(0); });
  EXPECT_EQ(numbers.take(), SCHED_BATCH);
  EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER) << "the loop's own thread";
}

TEST(L14_Prefetch, WithoutWorkersTheLoopMakesAnItemWhenItTakesIt) {
  int64_t made = 0;
  Numbers numbers(0, slots(3), [&](int64_t, int64_t, int64_t&) { ++made; });
  EXPECT_EQ(made, 0);
  numbers.take(), numbers.take();
  EXPECT_EQ(made, 2);
}

TEST(L14_Prefetch, WorkersFillAllSlotsAndNoMore) {
  std::atomic<int64_t> begun = 0;
  Numbers numbers(2, slots(5), [&](int64_t step, int64_t, int64_t& item) { item = step, ++begun; });
  ASSERT_TRUE(becomes_true([&] { return begun == 5; }));
  numbers.take();  // its slot is not free before the next take()
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(begun, 5);
  numbers.take();
  EXPECT_TRUE(becomes_true([&] { return begun == 6; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(begun, 6);
}

TEST(L14_Prefetch, AnItemStaysAsItIsUntilTheNextTake) {
  Numbers numbers(3, slots(3), [](int64_t step, int64_t, int64_t& item) { item = step; });
  for (int64_t step = 0; step < 10; ++step) {
    const int64_t& item = numbers.take();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ASSERT_EQ(item, step);
  }
}

TEST(L14_Prefetch, TheSlotsAreThoseThatWereGiven) {
  for (const int64_t workers : {0, 2}) {
    Numbers numbers(workers, {7, 8, 9}, [](int64_t, int64_t, int64_t&) {});
    for (const int64_t given : {7, 8, 9, 7, 8}) EXPECT_EQ(numbers.take(), given);
  }
}

TEST(L14_Prefetch, ASlotIsMadeAnewInPlace) {
  using Vectors = Prefetch<std::vector<int>>;
  Vectors vectors(1, std::vector<std::vector<int>>(2),
                  [](int64_t, int64_t, std::vector<int>& item) { item.resize(8); });
  const int* const first = vectors.take().data();
  const int* const second = vectors.take().data();
  EXPECT_NE(first, second);
  EXPECT_EQ(vectors.take().data(), first);
  EXPECT_EQ(vectors.take().data(), second);
}

TEST(L14_Prefetch, WhatAWorkerThrowsComesWithItsStepAndAllLaterOnes) {
  for (const int64_t workers : {0, 1, 2, 4}) {
    Numbers numbers(workers, slots(5), [](int64_t step, int64_t, int64_t& item) {
      check(step != 3, "step 3 cannot be made");
      item = step;
    });
    for (int64_t step = 0; step < 3; ++step) ASSERT_EQ(numbers.take(), step);
    for (int i = 0; i < 3; ++i) expect_refused("step 3 cannot be made", [&] { numbers.take(); });
  }
}

TEST(L14_Prefetch, OfSeveralErrorsTheFirstStepsIsThrown) {
  Numbers numbers(3, slots(6), [](int64_t step, int64_t, int64_t&) {
    if (step == 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    check(step < 1, "not step ", step);
  });
  numbers.take();
  expect_refused("not step 1", [&] { numbers.take(); });
}

TEST(L14_Prefetch, WhatIsNoErrorOfOursIsThrownAsItIs) {
  Numbers numbers(2, slots(2), [](int64_t, int64_t, int64_t&) { throw std::bad_alloc(); });
  EXPECT_THROW(numbers.take(), std::bad_alloc);
}

TEST(L14_Prefetch, EndsWhileWorkersWaitForASlot) {
  for (const int64_t workers : {1, 2, 4}) Numbers(workers, slots(2), [](int64_t, int64_t, int64_t&) {});
}

TEST(L14_Prefetch, EndsAfterAnItemThatIsBeingMade) {
  std::atomic<bool> begun = false, ended = false;
  {
    Numbers numbers(1, slots(1), [&](int64_t, int64_t, int64_t&) {
      begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ended = true;
    });
    ASSERT_TRUE(becomes_true([&] { return begun.load(); }));
  }
  EXPECT_TRUE(ended);
}

TEST(L14_Prefetch, EndsAfterAnErrorThatNobodyHasTaken) {
  Numbers numbers(2, slots(4), [](int64_t, int64_t, int64_t&) { fail("this error is not read"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST(L14_Prefetch, TwoOfThemAlternate) {
  Numbers a(2, slots(3), [](int64_t step, int64_t, int64_t& item) { item = step; });
  Numbers b(1, slots(2), [](int64_t step, int64_t, int64_t& item) { item = -step; });
  for (int64_t step = 0; step < 20; ++step) {
    ASSERT_EQ(a.take(), step);
    ASSERT_EQ(b.take(), -step);
  }
}

TEST(L14_Prefetch, RefusesImpossibleNumbers) {
  const auto make = [](int64_t, int64_t, int64_t&) {};
  for (const auto& [workers, n] : {std::pair(-1, 2), {1025, 2}, {2, 0}, {0, 0}})
    expect_refused("prefetch: ", [&, workers = workers, n = n] { Numbers(workers, slots(size_t(n)), make); });
}

}  // namespace
}  // namespace gradus
