#include "src/parallel/schedule.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <sstream>

#include "kernels/check.h"

namespace gradus {

static void check_sizes(int64_t ranks, int64_t micro_batches, int64_t chunks_per_rank) {
  check(ranks >= 1 && micro_batches >= 1 && chunks_per_rank >= 1, "schedule: ", ranks, " ranks, ",
        micro_batches, " micro-batches, ", chunks_per_rank,
        " chunks per rank; there must be at least one of each");
}

Schedule gpipe(int64_t ranks, int64_t micro_batches) {
  check_sizes(ranks, micro_batches, 1);
  Schedule s{ranks, micro_batches, {}};
  s.of_rank.resize(size_t(ranks));
  for (int64_t rank = 0; rank < ranks; ++rank)
    for (const Pass pass : {Pass::Forward, Pass::Backward})
      for (int64_t i = 0; i < micro_batches; ++i) s.of_rank[size_t(rank)].push_back({pass, i, rank});
  return s;
}

// `warm_up` forward passes, then pairs of a forward and a backward pass, then the rest of the backward
// passes.
template <class F>
static std::vector<Task> with_warm_up(int64_t passes, int64_t warm_up, F task) {
  std::vector<Task> list;
  warm_up = std::min(warm_up, passes);
  for (int64_t k = 0; k < passes + warm_up; ++k) {
    if (k < passes) list.push_back(task(Pass::Forward, k));
    if (k >= warm_up) list.push_back(task(Pass::Backward, k - warm_up));
  }
  return list;
}

Schedule one_forward_one_backward(int64_t ranks, int64_t micro_batches) {
  check_sizes(ranks, micro_batches, 1);
  Schedule s{ranks, micro_batches, {}};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    // BEGIN SOLUTION 20.1
    const int64_t warm_up = ranks - rank - 1;
    // STUB: int64_t warm_up = 0; todo("20.1", "how many forward passes a rank computes before its first pair", rank, ranks, warm_up);
    // END SOLUTION 20.1
    s.of_rank.push_back(with_warm_up(micro_batches, warm_up, [&](Pass pass, int64_t k) {
      return Task{pass, k, rank};
    }));
  }
  return s;
}

Schedule interleaved(int64_t ranks, int64_t micro_batches, int64_t chunks_per_rank) {
  if (chunks_per_rank == 1) return one_forward_one_backward(ranks, micro_batches);
  check_sizes(ranks, micro_batches, chunks_per_rank);
  check(micro_batches % ranks == 0, "schedule: interleaved, ", micro_batches, " micro-batches for ", ranks,
        " ranks; use a multiple of the ranks");
  Schedule s{ranks * chunks_per_rank, micro_batches, {}};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    // A group of `ranks` micro-batches goes through one of the rank's chunks, then through the next.
    const auto task = [&](Pass pass, int64_t k) {
      const int64_t round = k / ranks, group = round / chunks_per_rank, nth = round % chunks_per_rank;
      const int64_t own = pass == Pass::Forward ? nth : chunks_per_rank - 1 - nth;
      return Task{pass, group * ranks + k % ranks, own * ranks + rank};
    };
    const int64_t warm_up = 2 * (ranks - rank - 1) + (chunks_per_rank - 1) * ranks;
    s.of_rank.push_back(with_warm_up(micro_batches * chunks_per_rank, warm_up, task));
  }
  return s;
}

std::string text_of(const Task& a, int64_t rank) {
  std::ostringstream text;
  text << (a.pass == Pass::Forward ? "F" : "B") << a.micro_batch;
  if (a.chunk != rank) text << "." << a.chunk;
  return text.str();
}

std::string text_of(const Schedule& s) {
  std::string text;
  for (int64_t rank = 0; rank < s.ranks(); ++rank) {
    for (const Task& a : s.of_rank[size_t(rank)]) text += text_of(a, rank) + " ";
    if (!text.empty()) text.back() = '\n';
  }
  return text;
}

static int64_t number_in(std::string_view word, std::string_view digits) {
  check(!digits.empty() && digits.size() <= 3 && digits.find_first_not_of("0123456789") == digits.npos,
        "schedule: '", word, "' is not a task; write F3 or B3, or with a chunk F3.6 (numbers below 1000)");
  return std::stoll(std::string(digits));
}

Schedule schedule_of_text(std::string_view text) {
  Schedule s{0, 0, {}};
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::vector<Task> list;
    for (std::string word; words >> word;) {
      const size_t dot = std::min(word.find('.'), word.size());
      check(word[0] == 'F' || word[0] == 'B', "schedule: '", word,
            "' is not a task; write F3 or B3, or with a chunk F3.6 (numbers below 1000)");
      const int64_t micro_batch = number_in(word, std::string_view(word).substr(1, dot - 1));
      const int64_t chunk =
          dot == word.size() ? s.ranks() : number_in(word, std::string_view(word).substr(dot + 1));
      list.push_back({word[0] == 'F' ? Pass::Forward : Pass::Backward, micro_batch, chunk});
      s.micro_batches = std::max(s.micro_batches, micro_batch + 1);
      s.chunks = std::max(s.chunks, chunk + 1);
    }
    if (!list.empty()) s.of_rank.push_back(list);
  }
  check(s.ranks() > 0, "schedule: there is no task; write a line per rank, such as F0 F1 B0 B1");
  return s;
}

std::optional<Task> Schedule::input_of(const Task& task) const {
  // BEGIN SOLUTION 20.3
  const int64_t chunk = task.pass == Pass::Forward ? task.chunk - 1 : task.chunk + 1;
  if (chunk < 0 || chunk == chunks) return {};
  return Task{task.pass, task.micro_batch, chunk};
  // STUB: todo("20.3", "the task whose output is the input of this task", task);
  // END SOLUTION 20.3
}

std::optional<Task> Schedule::receiver_of(const Task& task) const {
  for (const int64_t chunk : {task.chunk - 1, task.chunk + 1}) {
    const Task next{task.pass, task.micro_batch, chunk};
    if (chunk >= 0 && chunk < chunks && input_of(next) == task) return next;
  }
  return {};
}

namespace {

// Each rank must have every task of its chunks once.
void check_lists(const Schedule& s) {
  const int64_t p = s.ranks(), m = s.micro_batches;
  check(p > 0 && s.chunks >= p && s.chunks % p == 0, s.chunks, " chunks for ", p,
        " ranks; every rank needs the same number of chunks, at least one");
  for (int64_t rank = 0; rank < p; ++rank) {
    std::vector<int> seen(size_t(2 * m * s.chunks));
    for (const Task& a : s.of_rank[size_t(rank)]) {
      const auto require = [&](bool ok, const auto&... why) {
        if (!ok) fail("rank ", rank, ": ", text_of(a, rank), why...);
      };
      require(a.chunk >= 0 && a.chunk < s.chunks && a.chunk % p == rank,
              ": the chunk is not on this rank; chunk c is on rank c % ", p);
      require(a.micro_batch >= 0 && a.micro_batch < m, ": there are ", m, " micro-batches");
      require(seen[s.index(a)]++ == 0, " is listed twice");
      require(seen[s.index({Pass::Forward, a.micro_batch, a.chunk})],
              " comes before the forward pass whose gradient it computes");
    }
    for (size_t i = 0; i < seen.size(); ++i) {
      const Task a = s.task(i);
      if (!seen[i] && a.chunk % p == rank) fail("rank ", rank, ": ", text_of(a, rank), " is missing");
    }
  }
}

struct Player {
  const Schedule& s;
  const std::vector<ChunkTimes>& times;
  const std::vector<double>& links;
  std::vector<std::optional<double>> ends;  // of each task, by micro-batch, chunk and pass
  std::vector<double> clock;
  Timeline result;

  std::optional<double>& end_of(const Task& a) { return ends[s.index(a)]; }
  // Plays the rank's next task, if the time of its input is known.
  bool step(int64_t rank) {
    std::vector<Timeline::Entry>& done = result.of_rank[size_t(rank)];
    const std::vector<Task>& list = s.of_rank[size_t(rank)];
    if (done.size() == list.size()) return false;
    const Task a = list[done.size()];
    double& now = clock[size_t(rank)];
    double begin = now;
    if (const std::optional<Task> input = s.input_of(a)) {
      const std::optional<double> made = end_of(*input);
      if (!made) return false;
      const int64_t between = std::min(a.chunk, input->chunk) % s.ranks();
      begin = std::max(now, *made + (links.empty() ? 0 : links[size_t(between)]));
    }
    const ChunkTimes& t = times[size_t(a.chunk)];
    now = begin + (a.pass == Pass::Forward ? t.forward : t.backward);
    end_of(a) = now;
    done.push_back({a, begin, now});
    return true;
  }
  std::string where_all_wait() const {
    std::ostringstream text;
    text << "deadlock:";
    for (int64_t rank = 0; rank < s.ranks(); ++rank) {
      const size_t at = result.of_rank[size_t(rank)].size();
      if (at == s.of_rank[size_t(rank)].size()) continue;
      const Task a = s.of_rank[size_t(rank)][at], input = *s.input_of(a);
      text << " rank " << rank << " is at " << text_of(a, rank) << " and waits for "
           << text_of(input, input.chunk % s.ranks()) << " of rank " << input.chunk % s.ranks() << ";";
    }
    std::string all = text.str();
    all.pop_back();
    return all;
  }
};

}  // namespace

Timeline play(const Schedule& s, const std::vector<ChunkTimes>& times, const std::vector<double>& links) {
  try {
    check_lists(s);
  } catch (const Error& e) {
    return {.problem = e.what(), .of_rank = {}, .in_flight = {}};
  }
  check(int64_t(times.size()) == s.chunks, "schedule: times of ", times.size(), " chunks; there are ",
        s.chunks);
  check(links.empty() || (s.ranks() > 1 && int64_t(links.size()) == s.ranks()), "schedule: ", links.size(),
        " links for ", s.ranks(), " ranks; each rank has one to the next, a single rank has none");
  Player player{s, times, links, {}, std::vector<double>(size_t(s.ranks())), {}};
  player.ends.resize(size_t(2 * s.micro_batches * s.chunks));
  Timeline& t = player.result;
  t.of_rank.resize(size_t(s.ranks()));
  for (bool any = true; any;) {
    any = false;
    for (int64_t rank = 0; rank < s.ranks(); ++rank)
      while (player.step(rank)) any = true;
  }
  double busy = 0;
  for (int64_t rank = 0; rank < s.ranks(); ++rank) {
    if (t.of_rank[size_t(rank)].size() < s.of_rank[size_t(rank)].size() && t.problem.empty())
      t.problem = player.where_all_wait();
    int64_t now = 0, most = 0;
    for (const Timeline::Entry& e : t.of_rank[size_t(rank)]) {
      most = std::max(most, now += e.task.pass == Pass::Forward ? 1 : -1);
      busy += e.end - e.begin;
    }
    t.in_flight.push_back(most);
    t.seconds = std::max(t.seconds, player.clock[size_t(rank)]);
  }
  t.bubble = 1 - busy / (double(s.ranks()) * t.seconds);
  return t;
}

std::vector<int64_t> cut_blocks(const std::vector<double>& costs, double before, double behind,
                                int64_t chunks) {
  const auto L = int64_t(costs.size());
  check(chunks >= 1 && chunks <= L, "pipeline: ", L, " blocks cannot be cut into ", chunks,
        " chunks; each needs at least one block");
  std::vector<double> sums(costs.size() + 1);
  std::partial_sum(costs.begin(), costs.end(), sums.begin() + 1);
  const auto cost = [&](int64_t from, int64_t to) {
    return sums[size_t(to)] - sums[size_t(from)] + (from == 0 ? before : 0) + (to == L ? behind : 0);
  };
  // least[c][l]: the smallest possible largest cost of c + 1 chunks with the first l blocks.
  std::vector<std::vector<double>> least(size_t(chunks), std::vector<double>(size_t(L) + 1, INFINITY));
  std::vector<std::vector<int64_t>> from(size_t(chunks), std::vector<int64_t>(size_t(L) + 1));
  for (int64_t l = 1; l <= L; ++l) least[0][size_t(l)] = cost(0, l);
  for (int64_t c = 1; c < chunks; ++c)
    for (int64_t l = c + 1; l <= L; ++l)
      for (int64_t k = c; k < l; ++k) {
        const double largest = std::max(least[size_t(c - 1)][size_t(k)], cost(k, l));
        if (largest < least[size_t(c)][size_t(l)])
          least[size_t(c)][size_t(l)] = largest, from[size_t(c)][size_t(l)] = k;
      }
  std::vector<int64_t> ends(static_cast<size_t>(chunks));
  for (int64_t c = chunks - 1, l = L; c >= 0; l = from[size_t(c)][size_t(l)], --c) ends[size_t(c)] = l;
  return ends;
}

std::vector<int64_t> even_cuts(int64_t blocks, int64_t chunks) {
  check(chunks >= 1 && chunks <= blocks, "pipeline: ", blocks, " blocks cannot be cut into ", chunks,
        " chunks; each needs at least one block");
  std::vector<int64_t> ends;
  for (int64_t c = 1; c <= chunks; ++c) ends.push_back(c * blocks / chunks);
  return ends;
}

}  // namespace gradus
