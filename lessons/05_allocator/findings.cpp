#include "lessons/05_allocator/findings.h"

#include <algorithm>
#include <map>
#include <unordered_map>

namespace gradus {

std::vector<Life> lives_of(const History& history) {
  std::vector<Life> lives;
  std::unordered_map<int64_t, size_t> at;  // address -> the last life there, as an index of `lives`
  for (size_t i = 0; i < history.size(); ++i) {
    const MemoryEvent& e = history[i];
    if (e.action == Action::Alloc) {
      at[e.address] = lives.size();
      lives.push_back({i, history.size()});
    } else if (e.action == Action::Free) {
      lives[at.at(e.address)].end = i;
    }
  }
  return lives;
}

std::vector<size_t> step_begins(const History& history, const std::string& first) {
  std::vector<size_t> begins;
  const std::string* before = nullptr;
  size_t end = 0;
  for (size_t i = 0; i < history.size(); ++i) {
    const std::string& op = history[i].op;
    if (op == first && (!before || *before != first)) begins.push_back(i);
    if (!op.empty()) end = i + 1;
    before = &op;
  }
  if (!begins.empty()) begins.push_back(end);
  return begins;
}

// The step of an event; -1: before the first step.
static int64_t step_of(size_t event, const std::vector<size_t>& begins) {
  return std::upper_bound(begins.begin(), begins.end(), event) - begins.begin() - 1;
}

std::vector<Leak> find_leaks(const History& history, const std::vector<size_t>& begins, int64_t patience) {
  const int64_t steps = int64_t(begins.size()) - 1;
  std::map<std::pair<std::string, std::string>, Leak> by_name_and_op;
  for (const Life& life : lives_of(history)) {
    // BEGIN SOLUTION 05.2
    const MemoryEvent& block = history[life.begin];
    const int64_t step = step_of(life.begin, begins), judged = step + patience + 1;
    if (step < 0 || judged > steps || life.end < begins[size_t(judged)]) continue;
    Leak& leak = by_name_and_op.try_emplace({block.name, block.op}, Leak{block.name, block.op}).first->second;
    leak.bytes += block.requested;
    if (leak.steps.empty() || leak.steps.back() != step) leak.steps.push_back(step);
    // STUB: todo("05.2", "if the block is still alive after `patience` more steps, add it to its leak", life, steps, patience);
    // END SOLUTION 05.2
  }
  std::vector<Leak> leaks;
  for (const auto& [key, leak] : by_name_and_op)
    if (leak.steps.size() >= 2) leaks.push_back(leak);
  std::sort(leaks.begin(), leaks.end(), [](const Leak& a, const Leak& b) { return a.bytes > b.bytes; });
  return leaks;
}

std::optional<Spike> find_spike(const History& history, const std::vector<size_t>& begins,
                                size_t short_life) {
  const std::vector<Life> lives = lives_of(history);
  if (lives.empty()) return {};
  const size_t at_peak = peak_event(history);
  const int64_t peak = memory_peak(history).usage.allocated();
  std::optional<Spike> spike;
  for (const auto& [begin, end] : lives) {
    const MemoryEvent& block = history[begin];
    const bool there = begin <= at_peak && at_peak < end;
    if (!there || end - begin > short_life || (spike && block.requested <= spike->bytes)) continue;
    spike = {block.name, block.op, block.requested, peak, step_of(begin, begins), end - begin};
  }
  return spike;
}

}  // namespace gradus
