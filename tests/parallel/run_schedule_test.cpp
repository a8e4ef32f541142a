// run_schedule (src/parallel/pipeline.h): each task gets the output of the right task, as often and in the
// order that the schedule says.
#include <gtest/gtest.h>

#include <map>

#include "src/core/rng.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/pipeline.h"
#include "tests/devices.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

constexpr int64_t kNumel = 6;
const Shape kShape{2, 3};

// The output of a task: numbers that identify the task.
std::vector<double> made_by(const Task& t) {
  std::vector<double> all;
  for (int64_t i = 0; i < kNumel; ++i)
    all.push_back(double(64 * t.micro_batch + 8 * t.chunk + 4 * int64_t(t.pass)) + 512 * double(i));
  return all;
}

struct CodedWork : PipelineWork {
  const Schedule& schedule;
  DType dtype;
  bool always_defined;  // also outputs that no task needs
  std::function<void(const Task&)> before = [](const Task&) {};
  std::vector<Task> done;
  CodedWork(const Schedule& s, DType t, bool always_defined = false)
      : schedule(s), dtype(t), always_defined(always_defined) {}

  Tensor task(const Task& t, const Tensor& x, const Task& from, bool needs, bool gives) {
    before(t);
    done.push_back(t);
    EXPECT_EQ(x.defined(), needs) << text_of(t, -1);
    if (x.defined()) {
      EXPECT_EQ(to_host<double>(x), made_by(from)) << text_of(t, -1);
      EXPECT_EQ(x.shape(), kShape);
      EXPECT_EQ(x.dtype(), dtype);
      Tensor writable = x;
      copy_from_host(writable, std::vector<double>(size_t(kNumel), -1));  // the task owns its input
    }
    if (!gives && !always_defined) return {};
    return from_host(current().device, made_by(t), kShape, dtype, Kind::Temporary, "made");
  }
  Tensor forward(int64_t micro_batch, int64_t chunk, Tensor x) override {
    return task({Pass::Forward, micro_batch, chunk}, x, {Pass::Forward, micro_batch, chunk - 1}, chunk > 0,
                chunk + 1 < schedule.chunks);
  }
  Tensor backward(int64_t micro_batch, int64_t chunk, Tensor dy) override {
    return task({Pass::Backward, micro_batch, chunk}, dy, {Pass::Backward, micro_batch, chunk + 1},
                chunk + 1 < schedule.chunks, chunk > 0);
  }
};

std::vector<Schedule> schedules_to_run() {
  std::vector<Schedule> all;
  for (const int64_t p : {2, 3, 4}) {
    for (const int64_t m : {1, 2, 5})
      all.push_back(gpipe(p, m)), all.push_back(one_forward_one_backward(p, m));
    for (const int64_t v : {2, 3})
      for (const int64_t m : {p, 2 * p}) all.push_back(interleaved(p, m, v));
  }
  return all;
}
// A different order that can run: neighbours in a rank's list are exchanged where this causes no deadlock.
Schedule reordered(const Schedule& s, Rng& rng) {
  Schedule other = s;
  for (int k = 0; k < 60; ++k) {
    std::vector<Task>& list = other.of_rank[size_t(rng.below(uint64_t(s.ranks())))];
    const size_t i = size_t(rng.below(list.size() - 1));
    std::swap(list[i], list[i + 1]);
    if (!play(other, std::vector<ChunkTimes>(size_t(s.chunks))).problem.empty())
      std::swap(list[i], list[i + 1]);
  }
  return other;
}

// The number of messages that a rank sends: one forward per chunk except the last, one backward per chunk
// except the first.
int64_t messages_of(const Schedule& s, int64_t rank) {
  int64_t n = 0;
  for (int64_t chunk = rank; chunk < s.chunks; chunk += s.ranks())
    n += s.micro_batches * ((chunk + 1 < s.chunks) + (chunk > 0));
  return n;
}

void expect_runs(const Schedule& s, const char* device, DType dtype, bool always_defined) {
  const std::string what = std::string(device) + ", " + name_of(dtype) + "\n" + text_of(s);
  run_cluster({.ranks = s.ranks(), .device = device}, [&](Comm& comm) {
    CodedWork work(s, dtype, always_defined);
    const Usage usage = current().device.meter().now();
    for (int times = 0; times < 2; ++times) {
      work.done.clear();
      const Sent before = comm.sent();
      run_schedule(comm, s, kShape, dtype, work);
      EXPECT_EQ(work.done, s.of_rank[size_t(comm.rank())]) << what;
      const int64_t n = messages_of(s, comm.rank());
      EXPECT_EQ(comm.sent().messages - before.messages, n) << what;
      EXPECT_EQ(comm.sent().elements - before.elements, n * kNumel) << what;
      EXPECT_EQ(comm.sent().bytes - before.bytes, n * kNumel * size_of(dtype)) << what;
    }
    EXPECT_EQ(current().device.meter().now(), usage) << what;
  });
}

TEST(L20_RunSchedule, EachTaskGetsWhatTheRightTaskHasSent) {
  Rng rng(7, 7);
  for (const char* device : {"cpu", "emu"})
    for (const Schedule& s : schedules_to_run())
      for (const bool always : {false, true}) {
        expect_runs(s, device, DType::F32, always);
        if (!testing::Test::HasFailure()) expect_runs(reordered(s, rng), device, DType::F32, always);
        if (testing::Test::HasFailure()) return;
      }
}

TEST(L20_RunSchedule, SixteenBitNumbersTravelAsTheyAre) {
  for (const DType t : {DType::BF16, DType::F16})
    for (const Schedule& s : {gpipe(2, 2), interleaved(3, 3, 2)})
      run_cluster({.ranks = s.ranks()}, [&](Comm& comm) {
        struct Rounded : PipelineWork {
          DType t;
          Tensor of(int64_t chunk, const Tensor& x) {
            const std::vector<double> third(size_t(kNumel), 1.0 / 3);
            const Tensor y = from_host(current().device, third, kShape, t, Kind::Temporary, "made");
            EXPECT_TRUE(!x.defined() || to_host<double>(x) == to_host<double>(y)) << chunk;
            return y;
          }
          Tensor forward(int64_t, int64_t chunk, Tensor x) override { return of(chunk, x); }
          Tensor backward(int64_t, int64_t chunk, Tensor dy) override { return of(chunk, dy); }
        } work;
        work.t = t;
        run_schedule(comm, s, kShape, t, work);
        EXPECT_EQ(comm.sent().bytes, messages_of(s, comm.rank()) * kNumel * 2);
      });
}

TEST(L20_RunSchedule, OneRankSendsNothing) {
  for (const Schedule& s : {gpipe(1, 3), one_forward_one_backward(1, 3)})
    run_cluster({.ranks = 1}, [&](Comm& comm) {
      CodedWork work(s, DType::F32);
      run_schedule(comm, s, kShape, DType::F32, work);
      EXPECT_EQ(work.done, s.of_rank[0]);
      EXPECT_EQ(comm.sent().messages, 0);
    });
}

TEST(L20_RunSchedule, AGroupOfRanksRunsItInItsOwnNumbers) {
  const Schedule s = interleaved(2, 4, 2);
  run_cluster({.ranks = 6}, [&](Comm& all) {
    const auto group = all.split("pipeline", all.rank() % 3);  // ranks 0 3, 1 4, 2 5
    CodedWork work(s, DType::F32);
    run_schedule(*group, s, kShape, DType::F32, work);
    EXPECT_EQ(work.done, s.of_rank[size_t(group->rank())]);
    EXPECT_EQ(group->sent().messages, messages_of(s, group->rank()));
    EXPECT_EQ(all.sent().messages, 0);
  });
}

TEST(L20_RunSchedule, ASchedulesOfOtherRanksIsRefusedOnEachRankAndTheNextOneRuns) {
  run_cluster({.ranks = 2}, [&](Comm& comm) {
    const Schedule right = gpipe(2, 3);
    for (const Schedule& wrong : {gpipe(1, 3), gpipe(3, 3), interleaved(4, 4, 2)}) {
      CodedWork work(wrong, DType::F32);
      expect_refused("2", [&] { run_schedule(comm, wrong, kShape, DType::F32, work); });
      EXPECT_TRUE(work.done.empty());
      EXPECT_EQ(comm.sent().messages, 0);
    }
    CodedWork work(right, DType::F32);
    run_schedule(comm, right, kShape, DType::F32, work);
    EXPECT_EQ(work.done, right.of_rank[size_t(comm.rank())]);
  });
}

TEST(L20_RunSchedule, OneRankWithSeveralChunksIsRefusedByASentence) {
  run_cluster({.ranks = 1}, [&](Comm& comm) {
    const Schedule s = interleaved(1, 2, 2);
    CodedWork work(s, DType::F32);
    expect_refused("chunk", [&] { run_schedule(comm, s, kShape, DType::F32, work); });
    EXPECT_TRUE(work.done.empty());
  });
}

TEST(L20_RunSchedule, WhatAnyTaskThrowsEndsAllRanksAndNamesItsRank) {
  for (const Schedule& s : {gpipe(3, 2), one_forward_one_backward(3, 4), interleaved(2, 2, 2)})
    for (int64_t rank = 0; rank < s.ranks(); ++rank)
      for (const Task& at : s.of_rank[size_t(rank)]) {
        int inside = 0, began = 0;
        struct Count {
          int& n;
          explicit Count(int& n) : n(n) { ++n; }
          ~Count() { --n; }
        };
        expect_refused("rank " + std::to_string(rank) + ": boom at " + text_of(at, rank), [&] {
          run_cluster({.ranks = s.ranks()}, [&](Comm& comm) {
            const Count count(inside);
            ++began;
            CodedWork work(s, DType::F32);
            work.before = [&](const Task& t) { check(t != at, "boom at ", text_of(t, comm.rank())); };
            run_schedule(comm, s, kShape, DType::F32, work);
            comm.barrier();
          });
        });
        EXPECT_EQ(inside, 0) << "all tasks that began were unwound";
        EXPECT_GT(began, 0);
      }
  expect_runs(gpipe(2, 2), "cpu", DType::F32, false);  // the next cluster is not affected
}

TEST(L20_RunSchedule, AnOutputOfADifferentSizeOrDtypeIsRefused) {
  struct WrongWork : CodedWork {
    using CodedWork::CodedWork;
    Shape made = kShape;
    DType made_as = DType::F32;
    Tensor forward(int64_t, int64_t, Tensor) override {
      return {current().device, made, made_as, Kind::Temporary, "made"};
    }
    Tensor backward(int64_t, int64_t, Tensor) override { return {}; }
  };
  for (const auto& [shape, dtype] :
       {std::pair(Shape{2, 4}, DType::F32), {Shape{1}, DType::F32}, {kShape, DType::BF16}})
    EXPECT_NE(refusal([&, shape = shape, dtype = dtype] {
                run_cluster({.ranks = 2}, [&](Comm& comm) {
                  const Schedule s = gpipe(2, 1);
                  WrongWork work(s, DType::F32);
                  work.made = shape, work.made_as = dtype;
                  run_schedule(comm, s, kShape, DType::F32, work);
                });
              }),
              "");
}

// ---- memory and time of each task ----

struct KeepingWork : PipelineWork {
  int64_t keep, scratch;  // bytes: until the backward pass; within a task
  std::map<std::pair<int64_t, int64_t>, Tensor> kept;
  double* seconds;
  static Tensor bytes(int64_t n) { return {current().device, {n}, DType::U8, Kind::Activation, "bytes"}; }
  Tensor forward(int64_t micro_batch, int64_t chunk, Tensor) override {
    if (keep) kept[{micro_batch, chunk}] = bytes(keep);
    if (scratch) bytes(scratch);
    *seconds += 1.5 + double(chunk);
    return {current().device, kShape, DType::F32, Kind::Temporary, "made"};
  }
  Tensor backward(int64_t micro_batch, int64_t chunk, Tensor) override {
    kept.erase({micro_batch, chunk});
    *seconds += 4;
    return {current().device, kShape, DType::F32, Kind::Temporary, "made"};
  }
};
std::vector<std::vector<TaskUse>> used(const Schedule& s, int64_t keep, int64_t scratch) {
  std::vector<std::vector<TaskUse>> all(size_t(s.ranks()));
  std::vector<double> seconds(size_t(s.ranks()), 0);
  run_cluster({.ranks = s.ranks(),
               .device = "meta",
               .computed = [&](int64_t rank, Context&) { return seconds[size_t(rank)]; }},
              [&](Comm& comm) {
                KeepingWork work;
                work.keep = keep, work.scratch = scratch, work.seconds = &seconds[size_t(comm.rank())];
                run_schedule(comm, s, kShape, DType::F32, work, &all[size_t(comm.rank())]);
              });
  return all;
}

// Compared with tasks that need no memory, because messages have memory, too.
TEST(L20_RunSchedule, UsesSayWhatEachTaskNeededKeptAndTook) {
  constexpr int64_t kKeep = 4096, kScratch = 8192;
  for (const Schedule& s : {gpipe(2, 3), one_forward_one_backward(3, 4), interleaved(2, 4, 2)}) {
    const auto nothing = used(s, 0, 0), something = used(s, kKeep, kScratch);
    for (size_t rank = 0; rank < something.size(); ++rank) {
      ASSERT_EQ(something[rank].size(), s.of_rank[rank].size());
      int64_t in_flight = 0;
      for (size_t i = 0; i < something[rank].size(); ++i) {
        const TaskUse &use = something[rank][i], &least = nothing[rank][i];
        EXPECT_EQ(use.task, s.of_rank[rank][i]);
        const bool forward = use.task.pass == Pass::Forward;
        EXPECT_EQ(use.before - least.before, in_flight * kKeep)
            << rank << " " << text_of(use.task, int64_t(rank));
        EXPECT_EQ(use.kept - least.kept, forward ? kKeep : -kKeep);
        EXPECT_TRUE(!forward || use.most - least.most >= kKeep + kScratch - 512);  // before the output
        EXPECT_LE(use.most - least.most, forward ? kKeep + kScratch : 0);
        EXPECT_GE(use.most, use.kept);
        EXPECT_EQ(use.seconds, forward ? 1.5 + double(use.task.chunk) : 4);
        in_flight += forward ? 1 : -1;
      }
    }
  }
}

}  // namespace
}  // namespace gradus
