#include "src/train/report.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/nn/transformer.h"
#include "src/train/machine.h"

namespace gradus {

static Json json_of(const Report::Figure& figure) {
  return std::visit([](const auto& value) { return Json(value); }, figure);
}

static double number_of(const Report::Figure& figure) {
  const int64_t* whole = std::get_if<int64_t>(&figure);
  return whole ? double(*whole) : std::get<double>(figure);
}

void Report::config(const std::string& name, Figure value) { config_.emplace_back(name, std::move(value)); }

void Report::config(const TransformerConfig& model, int64_t batch) {
  config("parameters", model.parameter_count());
  for (const auto& [name, size] : {std::pair("layers", model.layers), std::pair("channels", model.channels),
                                   std::pair("context", model.context), std::pair("batch", batch)})
    config(name, size);
}

ReportRow& Report::row(const std::string& name) {
  rows_.push_back({});
  rows_.back().name = name;
  return rows_.back();
}

void Report::add_check(Check check) {
  if (!device_.has_data() && (check.timing || std::isnan(number_of(check.value)))) check.skip = "no data";
  checks_.push_back(std::move(check));
}
void Report::check_at_most(const std::string& name, double value, double bound, const std::string& skip) {
  add_check({name, "<=", value, bound, value <= bound, false, skip});
}
void Report::check_at_least(const std::string& name, double value, double bound, const std::string& skip) {
  add_check({name, ">=", value, bound, value >= bound, false, skip});
}
void Report::check_equal(const std::string& name, int64_t value, int64_t expected, const std::string& skip) {
  add_check({name, "=", value, expected, value == expected, false, skip});
}
void Report::timing_at_least(const std::string& name, double value, double bound) {
  add_check({name, ">=", value, bound, value >= bound, true, ""});
}

void Report::predict_time(int64_t steps) {
  if (device_.has_data()) return;
  for (ReportRow& row : rows_) {  // these values are of a run that computed nothing
    row.ms_per_step = row.tokens_per_s = row.loss_first = row.loss_last = row.loss_held_out = std::nullopt;
    std::erase_if(row.extra, [](const auto& figure) { return std::isnan(figure.second); });
  }
  std::vector<Machine> machines = published_machines();
  machines.push_back(measured_machine(Device("cpu")));
  for (const Machine& m : machines)
    predicted_ms_.emplace_back(m.name, predicted_seconds(device_.meter(), m) / double(steps) * 1e3);
}

static std::string loss_text(double x) { return std::isnan(x) ? "diverged" : number_text(x); }
// One line per row; a column for each value that some row has.
void Report::print_rows() const {
  std::vector<std::string> columns;
  std::vector<std::vector<std::pair<std::string, std::string>>> figures;
  for (const ReportRow& row : rows_) {
    auto& line = figures.emplace_back();
    const auto put = [&](const std::string& column, const auto& value, const auto& text) {
      if (!value) return;
      line.emplace_back(column, text(*value));
      if (std::find(columns.begin(), columns.end(), column) == columns.end()) columns.push_back(column);
    };
    put("ms/step", row.ms_per_step, number_text);
    put("tokens/s", row.tokens_per_s, number_text);
    put("GFLOP/step", row.model_flops, [](int64_t n) { return number_text(double(n) * 1e-9); });
    put("peak", row.peak, [](const Usage& u) { return bytes_text(u.allocated()); });
    put("reserved", row.reserved_bytes, bytes_text);
    put("predicted", row.predicted_bytes, bytes_text);
    put("first loss", row.loss_first, loss_text);
    put("last loss", row.loss_last, loss_text);
    put("held-out loss", row.loss_held_out, loss_text);
    for (const auto& [name, value] : row.extra) put(name, std::optional(value), number_text);
  }
  if (columns.empty()) return;
  std::vector<std::string> header = columns;
  header.insert(header.begin(), "");
  Table table(header);
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::vector<std::string> cells{rows_[r].name};
    for (const std::string& column : columns) {
      const auto found = std::find_if(figures[r].begin(), figures[r].end(),
                                      [&](const auto& figure) { return figure.first == column; });
      cells.push_back(found == figures[r].end() ? "" : found->second);
    }
    table.row(cells);
  }
  std::cout << "\n" << table << "\n";
}

void Report::print_memory() const {
  for (const ReportRow& row : rows_) {
    if (row.peak) std::cout << row.peak->table("memory at the peak: " + row.name) << "\n";
    if (row.host_peak) std::cout << row.host_peak->table("on the host at its peak: " + row.name) << "\n";
  }
}

Json Report::to_json() const {
  // Sets a field to the value, or to null if there is none.
  const auto set = [](Json& to, const char* name, const auto& value) {
    if (value)
      to[name] = *value;
    else
      to[name] = nullptr;
  };
  Json config = Json::object(), rows = Json::array(), checks = Json::array();
  for (const auto& [name, value] : config_) config[name] = json_of(value);
  for (const ReportRow& row : rows_) {
    Json kinds = Json::object();
    if (row.peak) {
      for (int k = 0; k < kKinds; ++k) kinds[name_of(Kind(k))] = row.peak->by_kind[k];
      kinds["rounding"] = row.peak->rounding;
    }
    Json r{{"name", row.name}};
    set(r, "ms_per_step", row.ms_per_step);
    set(r, "tokens_per_s", row.tokens_per_s);
    set(r, "peak_bytes", row.peak ? std::optional(row.peak->allocated()) : std::nullopt);
    set(r, "reserved_bytes", row.reserved_bytes);
    r["peak_by_kind"] = kinds;
    if (row.host_peak) r["host_peak_bytes"] = row.host_peak->allocated();
    set(r, "predicted_bytes", row.predicted_bytes);
    set(r, "model_flops", row.model_flops);
    set(r, "loss_first", row.loss_first);
    set(r, "loss_last", row.loss_last);
    set(r, "loss_held_out", row.loss_held_out);
    for (const auto& [name, value] : row.extra) r[name] = value;
    rows.push_back(r);
  }
  for (const Check& c : checks_) {
    Json check{{"name", c.name}, {"value", json_of(c.value)}, {"bound", json_of(c.bound)}};
    set(check, "pass", c.timing || !c.skip.empty() ? std::nullopt : std::optional(c.passed));
    checks.push_back(check);
  }
  return {{"lesson", lesson_},
          {"device", device_.name()},
          {"config", config},
          {"rows", rows},
          {"checks", checks}};
}

void Report::print_checks() const {
  if (checks_.empty()) return;
  Table table({"check", "measured", "", "bound", ""});
  for (const Check& c : checks_) {
    const char* verdict = c.timing ? (c.passed ? "as predicted" : "differs") : (c.passed ? "ok" : "FAILED");
    table.row({c.name, number_text(number_of(c.value)), c.relation, number_text(number_of(c.bound)),
               c.skip.empty() ? verdict : "SKIP, " + c.skip});
  }
  std::cout << table;
}

int Report::finish(const std::string& json_path) {
  std::cout << "\n" << lesson_ << " on " << device_.name() << ":";
  for (const auto& [name, value] : config_) std::cout << " " << name << "=" << json_text(json_of(value));
  std::cout << "\n";
  print_rows();
  print_memory();
  if (!predicted_ms_.empty()) {
    Table table({"at least, on", "ms/step"});
    for (const auto& [machine, ms] : predicted_ms_) table.row({machine, number_text(ms)});
    std::cout << table << "\n";
  }
  print_checks();
  if (!json_path.empty()) {
    const std::string text = json_text(to_json()) + "\n";
    AtomicFile file(json_path);
    file.write(text.data(), int64_t(text.size()));
    file.commit();
  }
  const bool all_passed = std::all_of(checks_.begin(), checks_.end(),
                                      [](const Check& c) { return c.passed || c.timing || !c.skip.empty(); });
  std::cout << "\n" << (all_passed ? "PASS" : "FAIL") << std::endl;
  return all_passed ? 0 : 1;
}

}  // namespace gradus
