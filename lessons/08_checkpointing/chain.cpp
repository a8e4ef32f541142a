#include "lessons/08_checkpointing/chain.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <numeric>

#include "lessons/08_checkpointing/policies.h"
#include "src/autograd/tape.h"
#include "src/core/table.h"
#include "src/ops/ops.h"
#include "src/tensor/profile_range.h"

namespace gradus {

// Steps first + 1 to last. Step i computes value i inside a range called "i"; step i + 1 saves value i.
static Tensor steps(Tensor x, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; ++i) {
    const std::string name = std::to_string(i + 1);
    const ProfileRange range(name.c_str());
    x = gelu(x);
  }
  return x;
}
static Tensor from_start(const Tensor& x, int64_t n) {
  if (n == 0) return x;
  return checkpoint(x, [n](const Tensor& start) { return steps(from_start(start, n - 1), n - 1, n); });
}
static Tensor run(const Chain& chain, Tensor x) {
  if (chain.from_the_start) return from_start(x, chain.n);
  if (chain.segments.empty()) return steps(x, 0, chain.n);
  int64_t at = 0;
  for (const int64_t k : chain.segments) {
    x = checkpoint(x, [at, k](const Tensor& from) { return steps(from, at, at + k); });
    at += k;
  }
  return x;
}

std::vector<int64_t> segments_of(int64_t n, int64_t k) {
  std::vector<int64_t> segments;
  for (int64_t at = 0; at < n; at += k) segments.push_back(std::min(k, n - at));
  return segments;
}

struct Recorded {
  std::vector<MemoryEvent> events;  // of the allocator, in the forward and the backward pass
  size_t forward;                   // how many of them belong to the forward pass
};
static Recorded record(const Chain& chain, int64_t elements) {
  const int64_t in_all = std::accumulate(chain.segments.begin(), chain.segments.end(), int64_t(0));
  check(chain.segments.empty() || in_all == chain.n, "chain: the segments have ", in_all,
        " steps, the chain has ", chain.n);
  Context context("meta");
  context.device.allocator().keep_history();
  Leaf leaf;
  Tensor x(context.device, {elements}, DType::F32, Kind::Activation, "0");
  attach(x, leaf, "x");
  Tape tape;
  const Tensor y = run(chain, x);
  const size_t forward = context.device.allocator().history().size();
  const Tensor dy(context.device, {elements}, DType::F32, Kind::Temporary, "gradient");
  tape.backward(y, dy);
  return {context.device.allocator().history(), forward};
}

// The values that are alive after an event, and whether a gradient is. The last value is never counted,
// because no step reads it.
struct Live {
  std::map<int64_t, int> values;  // number of the value -> how many copies
  bool gradient = false;
  int64_t count() const {
    int64_t n = gradient;
    for (const auto& [value, times] : values) n += times;
    return n;
  }
};
// The number of a value, from a name such as "checkpoint/3/gelu"; -1 for a gradient.
static int64_t number_of(const MemoryEvent& block) {
  if (block.name == "gradient" || block.name == "x.grad") return -1;
  if (block.name == "0") return 0;
  const size_t end = block.op.rfind('/'), begin = block.op.rfind('/', end - 1);
  return std::stoll(block.op.substr(begin == std::string::npos ? 0 : begin + 1));
}
// For each step, from the last to the first: the values alive when its gradient is computed, and the largest
// number alive since the gradient before it was computed.
struct StepLive {
  int64_t most = 0;
  Live at_gradient;
};
static std::vector<StepLive> replay_backward(const Chain& chain, const Recorded& r) {
  MemoryReplay replay;
  std::vector<StepLive> steps(1);
  for (size_t i = 0; i < r.events.size(); ++i) {
    replay.apply(r.events[i]);
    if (i <= r.forward) continue;  // event `forward` is the gradient that backward() receives
    Live live;
    for (const auto& [address, block] : replay.alive) {
      if (block.kind != Kind::Activation && block.kind != Kind::Temporary && block.kind != Kind::Gradient)
        continue;
      const int64_t value = number_of(block);
      if (value < 0)
        live.gradient = true;
      else if (value < chain.n)
        ++live.values[value];
    }
    if (r.events[i].action != Action::Alloc) continue;
    steps.back().most = std::max(steps.back().most, live.count());
    if (number_of(r.events[i]) < 0) {
      steps.back().at_gradient = live;
      steps.emplace_back();
    }
  }
  steps.pop_back();
  return steps;
}

int64_t live_values(const Chain& chain) {
  int64_t most = 0;
  for (const StepLive& step : replay_backward(chain, record(chain, 64))) most = std::max(most, step.most);
  return most;
}

int64_t activation_bytes(const Chain& chain, int64_t value_bytes) {
  return most_activations(record(chain, value_bytes / size_of(DType::F32)).events);
}

void chain_table(Report& report, const ChainCounts& count) {
  std::cout << "(a) Chains of equal steps: most values alive in the backward pass, with the gradient\n\n";
  Table table({"steps of the chain", "saved values", "values alive"});
  const auto row = [&](const char* saved, const Chain& chain, int64_t expected) {
    const std::string steps = std::to_string(chain.n);
    const int64_t alive = count.values(chain);
    table.row({steps, saved, std::to_string(alive)});
    report.check_equal("(a) " + steps + " steps, " + saved + ": values alive", alive, expected);
  };
  row("all", {5, {}}, 6);
  row("x0 (from the start)", {5, {}, true}, 4);
  row("inputs of segments of 2 and 3", {5, {2, 3}}, 5);
  for (const int64_t n : {100, 400, 1600}) {
    const int64_t root = std::lround(std::sqrt(double(n)));
    const Chain chain{n, segments_of(n, root)};
    row("inputs of segments of sqrt(n)", chain, 2 * root);
    report.check_equal("(a) " + std::to_string(n) + " steps: bytes of activations (no gradient) at the peak",
                       count.bytes(chain, 1024), 1024 * (2 * root - 1));
  }
  std::cout << table;
}

void chain_by_hand(std::ostream& out) {
  const std::pair<const char*, Chain> ways[] = {
      {"all saved", {5, {}}}, {"from the start", {5, {}, true}}, {"segments of 2 and 3", {5, {2, 3}}}};
  Table table({"backward of step", ways[0].first, "peak", ways[1].first, "peak", ways[2].first, "peak"});
  std::vector<std::vector<std::string>> rows(5);
  for (int64_t i = 0; i < 5; ++i) rows[size_t(i)] = {std::to_string(5 - i)};
  for (const auto& [name, chain] : ways) {
    const std::vector<StepLive> steps = replay_backward(chain, record(chain, 64));
    for (size_t i = 0; i < steps.size(); ++i) {
      std::string text;
      for (const auto& [value, times] : steps[i].at_gradient.values)
        (text += 'x').append(std::to_string(value)).append(" ");
      rows[i].push_back(text + "g");
      rows[i].push_back(std::to_string(steps[i].most));
    }
  }
  for (const std::vector<std::string>& row : rows) table.row(row);
  out << "x0 -> x1 -> ... -> x5. Values alive when a step of the backward pass computes its gradient from\n"
         "g, and the peak: the largest number alive since the previous step of the backward pass\n\n"
      << table;
}

}  // namespace gradus
