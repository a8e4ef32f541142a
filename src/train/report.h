// The report at the end of every lesson: configuration, a row per variant with predicted and measured values,
// a line per check; on the terminal and, with --json, as a file. Checks on bytes, counts, equality and loss
// decide the exit code; checks on time only say "as predicted" or "differs", because machines are shared.
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/core/json.h"
#include "src/memory/device.h"

namespace gradus {

struct TransformerConfig;

// One variant of a lesson's experiment. Values that were not measured are empty, and left out of the table.
struct ReportRow {
  std::string name;
  std::optional<double> ms_per_step, tokens_per_s, loss_first, loss_last, loss_held_out;
  std::optional<int64_t> reserved_bytes, predicted_bytes, model_flops;  // flops of one step
  std::optional<Usage> peak;                                            // the table at the peak
  std::optional<Usage> host_peak;                                       // the same for the context's host
  std::vector<std::pair<std::string, double>> extra;                    // columns of the lesson
};

// Why a check that needs at least n steps, or exactly n steps, is skipped; empty: it is not skipped.
inline std::string needs_steps(int64_t n, int64_t steps) {
  return steps < n ? "needs " + std::to_string(n) + " steps" : "";
}
inline std::string is_for_steps(int64_t n, int64_t steps) {
  return steps != n ? "is for " + std::to_string(n) + " steps" : "";
}

class Report {
 public:
  using Figure = std::variant<int64_t, double, std::string>;
  Report(std::string lesson, Device& device) : lesson_(std::move(lesson)), device_(device) {}

  void config(const std::string& name, Figure value);
  // A model's sizes, and the sequences per step.
  void config(const TransformerConfig& model, int64_t batch);
  ReportRow& row(const std::string& name);  // a new row; the reference stays valid

  // A check that value <= bound, >= bound, or = expected; it decides the exit code. NaN fails; on meta, which
  // has no data, it is skipped. A check with `skip`, the reason why this run cannot decide it, is skipped,
  // too.
  void check_at_most(const std::string& name, double value, double bound, const std::string& skip = "");
  void check_at_least(const std::string& name, double value, double bound, const std::string& skip = "");
  void check_equal(const std::string& name, int64_t value, int64_t expected, const std::string& skip = "");
  // Timing: never fails.
  void timing_at_least(const std::string& name, double value, double bound);
  // On meta: the least time per step on other machines, from the `steps` steps that the device has counted.
  void predict_time(int64_t steps);

  // Prints everything, writes the JSON file if a path is given, and returns the exit code: 0 only if no check
  // failed.
  int finish(const std::string& json_path);

 private:
  struct Check {
    std::string name, relation;
    Figure value, bound;  // numbers; integers if they are counts
    bool passed, timing;
    std::string skip;  // why; empty: it is not skipped
  };
  void add_check(Check check);
  void print_rows() const;
  void print_checks() const;
  void print_memory() const;
  Json to_json() const;

  std::string lesson_;
  Device& device_;
  std::vector<std::pair<std::string, Figure>> config_;
  std::deque<ReportRow> rows_;
  std::vector<Check> checks_;
  std::vector<std::pair<std::string, double>> predicted_ms_;  // by machine
};

}  // namespace gradus
