#include "lessons/18_zero/memory.h"

#include <cmath>
#include <iostream>

#include "lessons/18_zero/step.h"
#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"

namespace gradus {

static std::string per_parameter(int64_t bytes, int64_t parameters) {
  return number_text(double(bytes) / double(parameters));
}

void memory_table(const Lesson& lesson, Report& report) {
  std::cout
      << "\n(a) Bytes a parameter on each rank, between steps, and elements sent in a step of 1 and of 4 "
         "micro-batches, in Psi (N-1)/N\n";
  Table table({"stage", "N", "weight", "gradient", "master", "optimizer", "sum", "sent, k = 1", "k = 4"});
  BarChart chart{
      "The GPT of (a): bytes of states on a rank", {}, {"weight", "gradient", "master", "optimizer"}};
  ZeroSetting set{.model = {.vocab = 256, .context = 64, .layers = 4, .heads = 4, .channels = 64}};
  set.model.precision = precision_recipe("zero");
  int64_t wrong_bytes = 0, wrong_sent = 0;
  for (const int stage : {0, 1, 2, 3})
    for (const int64_t N : {1, 2, 3, 4, 8}) {
      set.zero = {.stage = stage, .unit = unit_per_block, .overlap = true};
      set.ranks = N;
      std::vector<std::string> cells{std::to_string(stage), std::to_string(N)}, sent;
      Bar bar{"stage " + cells[0] + ", N = " + cells[1], 0, "", {}};
      ZeroStep step;
      for (const int64_t k : {4, 1}) {
        set.micro_batches = k;
        step = zero_step(set);
        wrong_sent += step.sent != predicted_sent(set.zero, step.padded, N, k);
        sent.insert(sent.begin(),
                    N == 1 ? "0" : number_text(double(step.sent) / double(step.padded / N * (N - 1))));
      }
      const Usage predicted = predicted_bytes(set.model.precision, stage, step.parameters, step.padded, N);
      for (const Kind kind : kStates) {
        wrong_bytes += step.between[kind] != predicted[kind];
        cells.push_back(per_parameter(step.between[kind], step.parameters));
        bar.parts.push_back(double(step.between[kind]) / 1024);
      }
      const int64_t sum = state_bytes(step.between);
      cells.push_back(per_parameter(sum, step.parameters));
      cells.insert(cells.end(), sent.begin(), sent.end());
      bar.value = double(sum) / 1024, bar.label = bytes_text(sum);
      if (N != 3) table.row(cells);
      if (N == 1 || N == 4 || N == 8) chart.bars.push_back(bar);
    }
  std::cout << table;
  write_file(lesson.plot("18_memory.svg"), draw(chart));
  report.check_equal("(a) kinds of memory that are not as predicted, of 80", wrong_bytes, 0);
  report.check_equal("(a) elements sent not as predicted, of 40", wrong_sent, 0);
}

void published_table(int64_t most, Report& report) {
  struct Row {
    int64_t ranks;
    const char* printed[3];  // stages 1 to 3, GB
  };
  constexpr Row rows[] = {{1, {"120", "120", "120"}},      {4, {"52.5", "41.3", "30"}},
                          {16, {"35.6", "21.6", "7.5"}},   {64, {"31.4", "16.6", "1.88"}},
                          {256, {"30.4", "15.4", "0.47"}}, {1024, {"30.1", "15.1", "0.12"}}};
  ZeroSetting set{.model = transformer_config("gpt-36x4096x32"), .tokens = 256};
  set.model.precision = precision_recipe("zero");
  std::cout
      << "\n(b) A model of 7.5e9 parameters, GB (10^9) of states a rank between steps: published; and here, "
         "7.5e9 times the bytes a parameter of a GPT of "
      << count_text(set.model.parameter_count()) << "\n";
  Table table({"N", "stage 1", "here", "stage 2", "here", "stage 3", "here"});
  int64_t wrong = 0, cells_checked = 0;
  for (const Row& row : rows) {
    if (row.ranks > most) continue;
    std::vector<std::string> cells{std::to_string(row.ranks)};
    for (const int stage : {1, 2, 3}) {
      set.ranks = row.ranks;
      set.zero = {.stage = stage, .unit = unit_per_block, .overlap = true};
      const ZeroStep step = zero_step(set);
      const double here = 7.5 * double(state_bytes(step.between)) / double(step.parameters);
      const std::string printed = row.printed[stage - 1];
      const size_t point = printed.find('.');
      const double unit = point == std::string::npos ? 1 : std::pow(10, -double(printed.size() - point - 1));
      wrong += std::abs(here - std::stod(printed)) > unit / 2 + 1e-4;
      ++cells_checked;
      cells.push_back(printed);
      cells.push_back(number_text(here));
    }
    table.row(cells);
  }
  std::cout << table;
  report.check_equal("(b) cells unlike the published, of " + std::to_string(cells_checked), wrong, 0);
}

}  // namespace gradus
