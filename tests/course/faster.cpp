#include "tests/course/faster.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <iostream>
#include <random>
#include <sstream>

#include "src/core/rng.h"
#include "src/core/table.h"
#include "src/core/timing.h"
#include "src/train/lesson.h"

namespace gradus::faster {

// Numbers of one dtype between two guard zones, which a kernel must not write.
class Guarded {
 public:
  // The numbers begin `shift` elements after a multiple of 64 bytes.
  Guarded(DType t, std::vector<double> values, int64_t shift)
      : t_(t),
        n_(int64_t(values.size())),
        at_(kZone + shift * size_of(t)),
        bytes_(size_t(at_ + n_ * size_of(t) + kZone + 64), kGuard) {
    at_ += int64_t(-reinterpret_cast<uintptr_t>(bytes_.data()) % 64);
    visit_float("faster", t_, [&]<class T>() {
      for (int64_t i = 0; i < n_; ++i) data<T>()[i] = T(acc_t<T>(values[size_t(i)]));
    });
  }
  CBuf in() { return {data<char>(), t_}; }
  Out out(Write w) { return {data<char>(), t_, w}; }
  double operator[](int64_t i) const {
    return visit_float("faster", t_,
                       [&]<class T>() { return double(acc_t<T>(const_cast<Guarded*>(this)->data<T>()[i])); });
  }
  int64_t size() const { return n_; }
  std::vector<double> values() const {
    std::vector<double> v;
    for (int64_t i = 0; i < n_; ++i) v.push_back((*this)[i]);
    return v;
  }
  bool guards_hold() const {
    const auto untouched = [](char c) { return c == kGuard; };
    return std::all_of(bytes_.begin(), bytes_.begin() + at_, untouched) &&
           std::all_of(bytes_.begin() + at_ + n_ * size_of(t_), bytes_.end(), untouched);
  }

 private:
  template <class T>
  T* data() {
    return reinterpret_cast<T*>(bytes_.data() + at_);
  }
  static constexpr int64_t kZone = 4096;
  static constexpr char kGuard = 0x5a;
  DType t_;
  int64_t n_, at_;
  std::vector<char> bytes_;
};

template <class... Parts>
static std::string say(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

// Fails unless every error is at most `share` of the allowed error and the guard zones are unchanged.
static void expect_right(const Contest& c, const std::string& where, RowShape s, DType t, const Guarded& got,
                         const std::function<double(int64_t)>& expected, double share = 1) {
  for (int64_t i = 0; i < got.size(); ++i) {
    const double want = expected(i), allowed = share * c.allowed(s, t, want);
    if (!(std::abs(got[i] - want) <= allowed))
      fail(where, ": element ", i, ": expected ", want, ", got ", got[i], ", allowed error ", allowed);
  }
  if (!got.guards_hold()) fail(where, ": your kernel writes before or behind the result");
}

static std::vector<double> random(int64_t n, double size, Rng& rng) {
  std::vector<double> values(static_cast<size_t>(n));
  for (double& v : values) v = size * (2 * rng.uniform() - 1);
  return values;
}

static void judge_ragged(const Contest& c, RowShape s, DType t, Write write, Rng& rng) {
  const std::string where =
      say(c.op, ", ", s.rows, " x ", s.cols, ", ", name_of(t), write == Write::Add ? ", Write::Add" : "");
  std::deque<Guarded> inputs;
  std::vector<std::vector<double>> before;
  std::vector<CBuf> in;
  for (const int64_t n : c.inputs(s)) {
    before.push_back(inputs.emplace_back(t, random(n, c.size, rng), 1).values());
    in.push_back(inputs.back().in());
  }
  const int64_t n = s.rows * s.cols;
  const std::vector<double> result = c.expected(s, before);
  Guarded out(t, write == Write::Add ? random(n, 1, rng) : std::vector<double>(size_t(n), NAN), 1);
  const std::vector<double> old = out.values();
  c.yours(s, in, out.out(write));
  const auto expected = [&](int64_t i) {
    return result[size_t(i)] + (write == Write::Add ? old[size_t(i)] : 0);
  };
  expect_right(c, where, s, t, out, expected);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].values() != before[i] || !inputs[i].guards_hold())
      fail(where, ": your kernel changes an input");
}

// The cost of the given kernel / the cost of the student's kernel, the median of all alternating runs.
static double measure_in_turns(const Contest& c, Rng& rng) {
  const RowShape s = c.timed;
  const int64_t n = s.rows * s.cols;
  std::vector<double> ratios;
  for (int turn = 0; turn <= c.turns; ++turn) {  // the first warms up
    std::deque<Guarded> inputs;
    std::vector<CBuf> in;
    for (const int64_t count : c.inputs(s))
      in.push_back(inputs.emplace_back(DType::F32, random(count, c.size, rng), 0).in());
    Guarded given(DType::F32, std::vector<double>(size_t(n), NAN), 0), yours(DType::F32, given.values(), 0);
    const double start = c.spent();
    c.given(s, in, given.out(Write::Set));
    const double middle = c.spent();
    c.yours(s, in, yours.out(Write::Set));
    if (turn > 0) ratios.push_back((middle - start) / (c.spent() - middle));
    expect_right(
        c, say(c.op, ", ", s.rows, " x ", s.cols, ", in timed run ", turn + 1), s, DType::F32, yours,
        [&](int64_t i) { return given[i]; }, 2);
  }
  return summarize(ratios).median;
}

static double judge(const Contest& c, Rng& rng) {
  for (const DType t : c.dtypes)
    for (const RowShape s : c.ragged)
      for (const Write w : {Write::Set, Write::Add})
        if (w == Write::Set || c.adds) judge_ragged(c, s, t, w, rng);
  return measure_in_turns(c, rng);
}

// The printed result of an exercise, which `course faster` reads. Of several entries the slowest counts.
static std::string verdict(const std::string& exercise, const std::vector<Contest>& contests, Rng& rng) {
  std::string text = "open: nothing was replaced";
  double least = INFINITY;
  for (const Contest& c : contests) {
    if (c.exercise != exercise) continue;
    try {
      const double ratio = judge(c, rng);
      if (ratio < least)
        text = say("right; ", number_text(ratio), " ", c.gain, " (", c.op, ", median of ", c.turns, " runs)");
      least = std::min(least, ratio);
    } catch (const Error& e) {
      return say("wrong: ", e.what());
    }
  }
  return text;
}

static int faster(int argc, char** argv, const std::vector<std::string>& exercises,
                  std::vector<Contest> (*contests)()) {
  Args args(argc, argv, "faster", "is your kernel right, and how fast is it compared with the given one?");
  const auto seed =
      uint64_t(args.integer("seed", int64_t(std::random_device()()), "seed of the inputs", 0, INT64_MAX));
  args.done();
  Context context("cpu");
  Rng rng(seed, 0);
  std::cout << "inputs of --seed=" << seed << std::endl;
  bool wrong = false;
  for (const std::string& exercise : exercises) {
    const std::string text = verdict(exercise, contests(), rng);
    std::cout << "faster " << exercise << ": " << text << std::endl;
    wrong |= text.starts_with("wrong");
  }
  return wrong;
}

int run(int argc, char** argv, const std::vector<std::string>& exercises,
        std::vector<Contest> (*contests)()) {
  return run_lesson([&] { return faster(argc, argv, exercises, contests); });
}

}  // namespace gradus::faster
