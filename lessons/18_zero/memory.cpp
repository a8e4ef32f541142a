#include "lessons/18_zero/memory.h"

#include <cmath>
#include <iostream>

#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"

namespace gradus {

static std::string per_parameter(int64_t bytes, int64_t parameters) {
  return number_text(double(bytes) / double(parameters));
}

std::vector<StageMemory> measure_stages() {
  ZeroSetting set{.model = {.vocab = 256, .context = 64, .layers = 4, .heads = 4, .channels = 64}};
  set.model.precision = precision_recipe("zero");
  std::vector<StageMemory> rows;
  for (const int stage : {0, 1, 2, 3})
    for (const int64_t N : {1, 2, 3, 4, 8}) {
      set.zero = {.stage = stage, .unit = unit_per_block, .overlap = true};
      set.ranks = N;
      StageMemory& row = rows.emplace_back();
      row.stage = stage, row.ranks = N;
      for (const int64_t k : {4, 1}) {
        set.micro_batches = k;
        const ZeroStep step = zero_step(set);
        row.parameters = step.parameters, row.padded = step.padded, row.measured = step.between;
        row.sent[k == 4] = step.sent;
        row.predicted_sent[k == 4] = predicted_sent(set.zero, step.padded, N, k);
      }
      row.predicted = predicted_bytes(set.model.precision, stage, row.parameters, row.padded, N);
    }
  return rows;
}

void memory_table(const std::vector<StageMemory>& rows, const std::string& picture, Report& report) {
  std::cout
      << "\n(a) GPT, Psi = " << count_text(rows.front().parameters)
      << " parameters: bytes per parameter on each rank between steps; elements sent per rank and step, in "
         "units of Psi (N-1)/N\n";
  Table table({"stage", "N", "weight", "gradient", "master", "optimizer", "sum", "sent, 1 micro-batch",
               "sent, 4 micro-batches"});
  BarChart chart{
      "Model states per rank, small GPT of (a)", {}, {"weight", "gradient", "master", "optimizer"}};
  int64_t wrong_bytes = 0, wrong_sent = 0;
  for (const StageMemory& row : rows) {
    std::vector<std::string> cells{std::to_string(row.stage), std::to_string(row.ranks)};
    Bar bar{"stage " + cells[0] + (row.stage == 0 ? ", any N" : ", N = " + cells[1]), 0, "", {}};
    for (const Kind kind : kStates) {
      wrong_bytes += row.measured[kind] != row.predicted[kind];
      cells.push_back(per_parameter(row.measured[kind], row.parameters));
      bar.parts.push_back(double(row.measured[kind]) / 1024);
    }
    const int64_t sum = state_bytes(row.measured);
    cells.push_back(per_parameter(sum, row.parameters));
    for (const int k : {0, 1}) {
      wrong_sent += row.sent[k] != row.predicted_sent[k];
      cells.push_back(
          per_parameter(row.sent[k], std::max<int64_t>(row.padded / row.ranks * (row.ranks - 1), 1)));
    }
    bar.value = double(sum) / 1024, bar.label = bytes_text(sum);
    if (row.ranks != 3) table.row(cells);
    if (row.stage == 0 ? row.ranks == 1 : row.ranks == 4 || row.ranks == 8) chart.bars.push_back(bar);
  }
  std::cout << table;
  write_file(picture, draw(chart));
  const std::string kinds = std::to_string(4 * rows.size()), counts = std::to_string(2 * rows.size());
  report.check_equal("(a) bytes of a kind that differ from the prediction, of " + kinds, wrong_bytes, 0);
  report.check_equal("(a) elements sent that differ from the prediction, of " + counts, wrong_sent, 0);
}

static ZeroSetting published_setting() {
  ZeroSetting set{.model = transformer_config("gpt-36x4096x32"), .tokens = 256};
  set.model.precision = precision_recipe("zero");
  return set;
}

std::vector<PublishedStates> zero_table_1() {
  return {{1, {"120", "120", "120"}, {}},      {4, {"52.5", "41.3", "30"}, {}},
          {16, {"35.6", "21.6", "7.5"}, {}},   {64, {"31.4", "16.6", "1.88"}, {}},
          {256, {"30.4", "15.4", "0.47"}, {}}, {1024, {"30.1", "15.1", "0.12"}, {}}};
}

std::vector<PublishedStates> published_states(int64_t most) {
  std::vector<PublishedStates> rows = zero_table_1();
  std::erase_if(rows, [=](const PublishedStates& row) { return row.ranks > most; });
  ZeroSetting set = published_setting();
  for (PublishedStates& row : rows)
    for (const int stage : {1, 2, 3}) {
      set.ranks = row.ranks;
      set.zero = {.stage = stage, .unit = unit_per_block, .overlap = true};
      const ZeroStep step = zero_step(set);
      row.here[stage - 1] = 7.5 * double(state_bytes(step.between)) / double(step.parameters);
    }
  return rows;
}

// Half a unit of the last printed digit.
static double half_a_digit(const std::string& printed) {
  const size_t point = printed.find('.');
  return point == std::string::npos ? 0.5 : std::pow(10, -double(printed.size() - point - 1)) / 2;
}

void published_table(const std::vector<PublishedStates>& rows, Report& report) {
  std::cout
      << "\n(b) GB (10^9 bytes) of model states per rank, 7.5e9 parameters (ZeRO paper); gradus: 7.5e9 x "
         "bytes per parameter of a GPT of "
      << count_text(published_setting().model.parameter_count()) << " parameters\n";
  Table table(
      {"N", "stage 1, published", "gradus", "stage 2, published", "gradus", "stage 3, published", "gradus"});
  int64_t wrong = 0;
  for (const PublishedStates& row : rows) {
    std::vector<std::string> cells{std::to_string(row.ranks)};
    for (const int i : {0, 1, 2}) {
      const double off = std::abs(row.here[i] - std::stod(row.printed[i]));
      wrong += !(off <= half_a_digit(row.printed[i]) + 1e-4);
      cells.push_back(row.printed[i]);
      cells.push_back(number_text(row.here[i]));
    }
    table.row(cells);
  }
  std::cout << table;
  report.check_equal("(b) values that differ from the published ones, of " + std::to_string(3 * rows.size()),
                     wrong, 0);
}

}  // namespace gradus
