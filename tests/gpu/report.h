// The report of gpu-check: the results and logs of its jobs (check.sh) as one JSON object, and as one page.
#pragma once
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace gradus::gpu_check {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

inline std::vector<std::string> lines_of(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The first lines of a log that name a failure, or its last lines. Names of passed tests do not count.
inline std::vector<std::string> lines_of_failure(const std::vector<std::string>& log) {
  constexpr size_t kLines = 5;
  std::vector<std::string> said;
  for (const std::string& line : log) {
    if (line.starts_with("[ RUN ") || line.starts_with("[       OK ")) continue;
    for (const char* sign : {"FAIL", "Failure", "error:", "Error ", "ERROR", "undefined", "========= "})
      if (said.size() < kLines && line.find(sign) != line.npos) {
        said.push_back(line);
        break;
      }
  }
  if (said.empty()) said.assign(log.end() - ptrdiff_t(std::min(log.size(), kLines)), log.end());
  return said;
}

// The JSON lines in a log; the other lines are text, or were cut off.
inline std::vector<Json> json_lines(const std::vector<std::string>& log) {
  std::vector<Json> all;
  for (const std::string& line : log)
    if (Json json = Json::parse(line, nullptr, false); json.is_object()) all.push_back(std::move(json));
  return all;
}
inline bool has_all(const Json& json, std::initializer_list<const char*> fields) {
  return std::all_of(fields.begin(), fields.end(),
                     [&](const char* field) { return json.contains(field) && !json[field].is_null(); });
}

inline double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return (x[(x.size() - 1) / 2] + x[x.size() / 2]) / 2;
}

// The fields of a line of CSV; each field is in quotes.
inline std::vector<std::string> csv_fields(const std::string& line) {
  std::vector<std::string> fields;
  for (size_t at = 0; at < line.size() && line[at] == '"'; at += 2) {
    const size_t end = std::min(line.find('"', at + 1), line.size());
    fields.push_back(line.substr(at + 1, end - at - 1));
    at = end;
  }
  return fields;
}

// The ten kernels with the longest total time, from ncu's CSV, which has one line per launch and metric.
// Shares are averages over the launches that have them, weighted by time.
inline Json longest_kernels(const std::vector<std::string>& log) {
  struct Launch {
    std::string kernel;
    std::map<std::string, double> metrics;
  };
  std::map<std::string, Launch> launches;  // by their ids
  std::map<std::string, size_t> column;
  for (const std::string& line : log) {
    const std::vector<std::string> fields = csv_fields(line);
    if (column.empty()) {
      if (std::find(fields.begin(), fields.end(), "Metric Value") == fields.end()) continue;
      for (size_t i = 0; i < fields.size(); ++i) column[fields[i]] = i;
      continue;
    }
    if (fields.size() != column.size()) continue;
    const auto field = [&](const char* name) { return column.contains(name) ? fields[column[name]] : ""; };
    std::string number = field("Metric Value");
    std::erase(number, ',');
    Launch& launch = launches[field("ID")];
    launch.kernel = field("Kernel Name");
    if (double value; std::istringstream(number) >> value) launch.metrics[field("Metric Name")] = value;
  }
  struct Sums {
    int64_t launches = 0;
    double ms = 0;
    std::map<std::string, std::pair<double, double>> shares;  // sum of share x ms, sum of ms
  };
  std::map<std::string, Sums> kernels;
  for (auto& [id, launch] : launches) {
    if (!launch.metrics.contains("gpu__time_duration.sum")) continue;
    const double ms = launch.metrics["gpu__time_duration.sum"] * 1e-6;  // from ns
    Sums& sums = kernels[launch.kernel];
    ++sums.launches, sums.ms += ms;
    for (const auto& [metric, value] : launch.metrics)
      if (metric.ends_with("pct_of_peak_sustained_elapsed")) {
        auto& [of_ms, of] =
            sums.shares[metric.starts_with("dram") ? "share_of_memory" : "share_of_arithmetic"];
        of_ms += value / 100 * ms, of += ms;
      }
  }
  std::vector<std::pair<std::string, Sums>> sorted(kernels.begin(), kernels.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.ms > b.second.ms; });
  Json longest = Json::array();
  for (const auto& [kernel, sums] : sorted) {
    if (longest.size() == 10) break;
    Json& row = longest.emplace_back(Json{{"kernel", kernel}, {"launches", sums.launches}, {"ms", sums.ms}});
    for (const auto& [share, sum] : sums.shares) row[share] = sum.first / sum.second;
  }
  return longest;
}

// The report on the files in `folder`, without what was not measured.
inline Json report_of(const fs::path& folder, const std::string& gpu, const std::string& commit) {
  Json report{{"gpu", gpu},
              {"commit", commit},
              {"machine", lines_of(folder / "machine.txt")},
              {"jobs", Json::array()}};
  // The measured values by (model, unit), and by program.
  std::map<std::pair<std::string, std::string>, std::map<std::string, std::vector<double>>> measured;
  std::map<std::string, std::vector<double>> peaks;
  std::vector<fs::path> results;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder, none))
    if (entry.path().extension() == ".result") results.push_back(entry.path());
  std::sort(results.begin(), results.end());
  for (const fs::path& file : results) {
    std::ifstream result(file);
    std::string status, why;
    int64_t seconds = 0;
    if (!(result >> status >> seconds)) continue;  // cut off: the next check repeats the job
    std::getline(result >> std::ws, why);
    const std::vector<std::string> log = lines_of(fs::path(file).replace_extension(".log"));
    Json job{{"stage", file.parent_path().filename()}, {"job", file.stem()}, {"status", status}};
    if (status != "skipped") job["seconds"] = seconds;
    if (!why.empty()) job["why"] = why;
    if (status == "failed") job["lines"] = lines_of_failure(log);
    report["jobs"].push_back(job);
    for (const Json& line : json_lines(log)) {
      if (has_all(line, {"model", "program"}))
        for (const char* unit : {"ms_per_step", "ms_update", "gflops", "gemm_peak_gflops"})
          if (has_all(line, {unit})) measured[{line["model"], unit}][line["program"]].push_back(line[unit]);
      if (!has_all(line, {"kernel", "dtype", "shape", "ms", "peak", "measured_peak", "share_of_peak"}))
        continue;
      Json& kernel = report["kernels"].emplace_back(Json::object());
      for (const char* field : {"kernel", "dtype", "shape", "ms", "share_of_peak"})
        kernel[field] = line[field];
      peaks[line["peak"] == "copy" ? "copy, GB/s"
                                   : "products " + line["dtype"].get<std::string>() + ", GFLOP/s"]
          .push_back(line["measured_peak"]);
    }
    if (const Json longest = longest_kernels(log); !longest.empty()) report["longest_kernels"] = longest;
  }
  for (const auto& [name, each] : peaks) report["peaks"][name] = median(each);
  for (const auto& [what, programs] : measured) {
    Json& row = report["compared"].emplace_back(Json{{"model", what.first}, {"unit", what.second}});
    for (const auto& [program, each] : programs) row[program] = median(each);
  }
  return report;
}

// A number with three digits; "" if there is none.
inline std::string number_of(const Json& of, const char* field) {
  if (!of.contains(field)) return "";
  std::ostringstream text;
  text.precision(3);
  const double x = of[field];
  if (x >= 1000)
    text << int64_t(x);
  else
    text << x;
  return text.str();
}

inline std::string page_of(const Json& report) {
  std::ostringstream page;
  const auto word = [](const Json& of, const char* field) { return of.value(field, std::string()); };
  const auto rows = [&](const char* name) { return report.value(name, Json::array()); };
  page << "# " << word(report, "gpu") << "\n\nCommit " << word(report, "commit") << ".";
  for (const Json& line : rows("machine")) page << " " << line.get<std::string>();
  page << "\n\n| stage | passed | failed | skipped | reason |\n|---|---|---|---|---|\n";
  std::map<std::string, std::map<std::string, int>> counts;
  std::map<std::string, std::string> why_not;
  for (const Json& job : rows("jobs")) {
    ++counts[job["stage"]][job["status"]];
    if (job["status"] == "skipped") why_not[job["stage"]] = word(job, "why");
  }
  for (auto& [stage, count] : counts)
    page << "| " << stage << " | " << count["passed"] << " | " << count["failed"] << " | " << count["skipped"]
         << " | " << why_not[stage] << " |\n";
  for (const Json& job : rows("jobs")) {
    if (job["status"] != "failed") continue;
    page << "\n" << word(job, "stage") << "/" << word(job, "job") << " failed: " << word(job, "why");
    page << "\n\n```\n";
    for (const Json& line : job["lines"]) page << line.get<std::string>() << "\n";
    page << "```\n";
  }
  // Prints a table of these rows, if there are any.
  const auto table = [&](const char* name, const char* head, const std::vector<const char*>& words,
                         const std::vector<const char*>& numbers) {
    if (!report.contains(name)) return;
    page << "\n" << head << "\n|";
    for (size_t i = 0; i < words.size() + numbers.size(); ++i) page << "---|";
    for (const Json& row : report[name]) {
      page << "\n|";
      for (const char* field : words) page << " " << word(row, field) << " |";
      for (const char* field : numbers) page << " " << number_of(row, field) << " |";
    }
    page << "\n";
  };
  table("compared", "| model | unit | gradus | PyTorch, eager | PyTorch, compiled |", {"model", "unit"},
        {"gradus", "pytorch-eager", "pytorch-compiled"});
  if (report.contains("peaks"))
    for (const auto& [name, peak] : report["peaks"].items())
      page << "\nPeak, " << name << ": " << number_of(report["peaks"], name.c_str()) << "\n";
  table("kernels", "| kernel | dtype | shape | ms | fraction of peak |", {"kernel", "dtype", "shape"},
        {"ms", "share_of_peak"});
  table("longest_kernels",
        "| longest kernels of a step | launches | ms | fraction of peak GB/s | fraction of peak FLOP/s |",
        {"kernel"}, {"launches", "ms", "share_of_memory", "share_of_arithmetic"});
  return page.str();
}

}  // namespace gradus::gpu_check
