#include "lessons/15_flash_attention/one_head.h"

#include <algorithm>
#include <iostream>

#include "lessons/15_flash_attention/compare.h"
#include "src/core/rng.h"
#include "src/core/table.h"

namespace gradus {

using Floats = std::vector<float>;

Head Head::random(int64_t T, int64_t D, uint64_t seed) {
  Rng rng(seed, 0);
  const auto numbers = [&] {
    Floats x(size_t(T * D));
    for (float& each : x) each = float(rng.normal());
    return x;
  };
  return {T, D, numbers(), numbers(), numbers()};
}

// Loads rows [first, first + count) of x onto the chip.
static Floats load_rows(const Head& h, const Floats& x, int64_t first, int64_t count, Memory& memory) {
  Floats rows(size_t(count * h.D));
  for (int64_t e = 0; e < count * h.D; ++e) rows[size_t(e)] = memory.load(x, first * h.D + e);
  return rows;
}
static float score(const Head& h, const float* q, const float* k) {
  float sum = 0;
  for (int64_t d = 0; d < h.D; ++d) sum += q[d] * k[d];
  return sum / std::sqrt(float(h.D));
}
static void add_weighted(const Head& h, float weight, const float* v, float* y) {
  for (int64_t d = 0; d < h.D; ++d) y[d] += weight * v[d];
}

void Softmax::add(float x) {
  // BEGIN SOLUTION 15.1
  const float before = max;
  max = std::max(max, x);
  sum = sum * std::exp(before - max) + std::exp(x - max);
  // STUB: todo("15.1", "maximum and sum with one more score", x);
  // END SOLUTION 15.1
}

// y of a group of queries, with its scores in memory. The scores of the next group overwrite them.
static Floats with_stored_scores(const Head& h, const Floats& q, int64_t count, Program how, Floats& scores,
                                 Memory& memory) {
  std::vector<Softmax> softmax(static_cast<size_t>(count));
  for (int64_t j = 0; j < h.T; ++j) {
    const Floats k = load_rows(h, h.k, j, 1, memory);
    for (int64_t i = 0; i < count; ++i) {
      const float x = score(h, &q[size_t(i * h.D)], k.data());
      if (how == Program::Online) softmax[size_t(i)].add(x);
      memory.store(scores, i * h.T + j, x);
    }
  }
  for (int64_t i = 0; i < count && how == Program::TwoPasses; ++i) {
    Softmax& s = softmax[size_t(i)];
    for (int64_t j = 0; j < h.T; ++j) s.max = std::max(s.max, memory.load(scores, i * h.T + j));
    for (int64_t j = 0; j < h.T; ++j) s.sum += std::exp(memory.load(scores, i * h.T + j) - s.max);
  }
  Floats y(q.size());
  for (int64_t j = 0; j < h.T; ++j) {
    const Floats v = load_rows(h, h.v, j, 1, memory);
    for (int64_t i = 0; i < count; ++i) {
      const Softmax& s = softmax[size_t(i)];
      const float weight = std::exp(memory.load(scores, i * h.T + j) - s.max) / s.sum;
      add_weighted(h, weight, v.data(), &y[size_t(i * h.D)]);
    }
  }
  return y;
}

// Adds a tile of keys to a query: its scores, and the values of the same keys, (scores, D). y is the weighted
// sum of the values so far: the sum of e^(score - max) v over these keys.
static void join(const Head& h, const Floats& scores, const Floats& v, Softmax& softmax, float* y) {
  // BEGIN SOLUTION 15.4
  const float before = softmax.max;
  for (const float x : scores) softmax.max = std::max(softmax.max, x);
  const float correction = std::exp(before - softmax.max);
  softmax.sum *= correction;
  for (int64_t d = 0; d < h.D; ++d) y[d] *= correction;
  for (size_t j = 0; j < scores.size(); ++j) {
    const float weight = std::exp(scores[j] - softmax.max);
    softmax.sum += weight;
    add_weighted(h, weight, &v[j * size_t(h.D)], y);
  }
  // STUB: todo("15.4", "softmax and y after a tile of scores", &scores, &v, &softmax, y, h.D);
  // END SOLUTION 15.4
}

// y of a group of queries, tile by tile.
static Floats with_tiles(const Head& h, const Floats& q, int64_t count, Memory& memory) {
  std::vector<Softmax> softmax(static_cast<size_t>(count));
  Floats y(q.size());
  for (int64_t j0 = 0; j0 < h.T; j0 += kTileKeys) {
    const int64_t keys = std::min(kTileKeys, h.T - j0);
    const Floats k = load_rows(h, h.k, j0, keys, memory), v = load_rows(h, h.v, j0, keys, memory);
    for (int64_t i = 0; i < count; ++i) {
      Floats scores;
      for (int64_t j = 0; j < keys; ++j) scores.push_back(score(h, &q[size_t(i * h.D)], &k[size_t(j * h.D)]));
      join(h, scores, v, softmax[size_t(i)], &y[size_t(i * h.D)]);
    }
  }
  for (size_t e = 0; e < y.size(); ++e) y[e] /= softmax[e / size_t(h.D)].sum;
  return y;
}

Floats attend(Program program, const Head& h, int64_t rows, Memory& memory) {
  Floats y(h.q.size()), scores(size_t(rows * h.T));
  for (int64_t first = 0; first < h.T; first += rows) {
    const int64_t count = std::min(rows, h.T - first);
    const Floats q = load_rows(h, h.q, first, count, memory);
    const Floats group = program == Program::Tiles ? with_tiles(h, q, count, memory)
                                                   : with_stored_scores(h, q, count, program, scores, memory);
    for (int64_t e = 0; e < count * h.D; ++e) memory.store(y, first * h.D + e, group[size_t(e)]);
  }
  return y;
}

int64_t predicted_loads(Program program, int64_t T, int64_t D, int64_t rows) {
  const int64_t groups = (T + rows - 1) / rows, vectors = T * D + groups * 2 * T * D;  // q; k and v
  return vectors + (program == Program::TwoPasses ? 3 : program == Program::Online ? 1 : 0) * T * T;
}
int64_t predicted_stores(Program program, int64_t T, int64_t D) {
  return T * D + (program == Program::Tiles ? 0 : T * T);
}

std::vector<ProgramRun> run_programs(uint64_t seed) {
  const Head head = Head::random(kHeadTokens, kHeadDims, seed);
  std::vector<ProgramRun> runs{{Program::TwoPasses, 64, 64 * kHeadTokens},
                               {Program::Online, 64, 64 * kHeadTokens}};
  for (const int64_t rows : {64, 16, 1}) runs.push_back({Program::Tiles, rows, kTileKeys});
  std::vector<double> first;
  for (ProgramRun& run : runs) {
    const std::vector<float> y = attend(run.program, head, run.rows, run.memory);
    if (first.empty()) first.assign(y.begin(), y.end());
    run.difference = largest_difference(std::vector<double>(y.begin(), y.end()), first);
  }
  return runs;
}

void report_programs(const std::vector<ProgramRun>& runs, Report& report) {
  constexpr const char* kNames[] = {"softmax in two passes", "online softmax", "tiles"};
  std::cout << "(a) Numbers that three programs load and store for one head: T = " << kHeadTokens
            << ", D = " << kHeadDims << ", forward, without a mask; tiles of " << kTileKeys << " keys\n\n";
  Table table({"program", "queries per load of k and v", "loads", "stores", "scores at the same time",
               "largest difference of y from row 1"});
  int64_t unpredicted = 0;
  double worst = 0;
  for (const ProgramRun& run : runs) {
    table.row({kNames[int(run.program)], std::to_string(run.rows), count_text(run.memory.loads),
               count_text(run.memory.stores), count_text(run.scores), number_text(run.difference)});
    unpredicted += run.memory.loads != predicted_loads(run.program, kHeadTokens, kHeadDims, run.rows);
    unpredicted += run.memory.stores != predicted_stores(run.program, kHeadTokens, kHeadDims);
    if (std::isnan(run.difference) || run.difference > worst) worst = run.difference;
  }
  std::cout << table << std::endl;
  report.check_equal("(a) counts of loads and stores that differ from the formulas", unpredicted, 0);
  report.check_at_most("(a) largest difference of y from softmax in two passes", worst, 1e-5);
}

void online_softmax_by_hand(std::ostream& out) {
  constexpr float kScores[] = {1, 3, 2, 4}, kValues[] = {8, 2, 4, 6};
  Table table({"score", "value", "maximum", "correction", "sum", "weighted sum"});
  Softmax s;
  double weighted = 0;
  for (int j = 0; j < 4; ++j) {
    const float before = s.sum;
    s.add(kScores[j]);
    weighted = 0;
    for (int i = 0; i <= j; ++i) weighted += std::exp(double(kScores[i]) - s.max) * kValues[i];
    const double correction = before > 0 ? (s.sum - std::exp(kScores[j] - s.max)) / before : 0;
    table.row({number_text(kScores[j]), number_text(kValues[j]), number_text(s.max), number_text(correction),
               number_text(s.sum), number_text(weighted)});
  }
  out << table << "y = weighted sum / sum = " << number_text(weighted / s.sum) << "\n";
}

}  // namespace gradus
