// What gpu-check has found: the results and logs of its jobs (check.sh) as one JSON object, and as one page.
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

// Of a log that tells of a failure: its first lines that name one, or its last lines.
inline std::vector<std::string> lines_of_failure(const std::vector<std::string>& log) {
  constexpr size_t kLines = 5;
  std::vector<std::string> said;
  for (const std::string& line : log)
    for (const char* sign : {"FAIL", "Failure", "error", "Error", "undefined", "========= "})
      if (said.size() < kLines && line.find(sign) != line.npos) {
        said.push_back(line);
        break;
      }
  if (said.empty()) said.assign(log.end() - ptrdiff_t(std::min(log.size(), kLines)), log.end());
  return said;
}

// Of the JSON lines in a log those that have all of these fields; other lines are text, or were cut off.
inline std::vector<Json> json_lines(const std::vector<std::string>& log,
                                    const std::vector<std::string>& fields) {
  std::vector<Json> all;
  for (const std::string& line : log) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_object() && std::all_of(fields.begin(), fields.end(), [&](const std::string& field) {
          return json.contains(field) && !json[field].is_null();
        }))
      all.push_back(json);
  }
  return all;
}

inline double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return (x[(x.size() - 1) / 2] + x[x.size() / 2]) / 2;
}

// Of the files in `folder`. What was not measured is not in it.
inline Json report_of(const fs::path& folder, const std::string& gpu, const std::string& commit) {
  Json report{{"gpu", gpu}, {"commit", commit}, {"jobs", Json::array()}};
  std::map<std::string, std::vector<double>> steps;
  std::vector<fs::path> results;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder, none))
    if (entry.path().extension() == ".result") results.push_back(entry.path());
  std::sort(results.begin(), results.end());
  for (const fs::path& file : results) {
    std::istringstream result(lines_of(file).empty() ? "" : lines_of(file)[0]);
    std::string status, why;
    int64_t seconds = 0;
    if (!(result >> status >> seconds)) continue;  // cut off: the job is run again
    std::getline(result >> std::ws, why);
    const std::vector<std::string> log = lines_of(fs::path(file).replace_extension(".log"));
    Json job{{"stage", file.parent_path().filename()}, {"job", file.stem()}, {"status", status}};
    if (status != "skipped") job["seconds"] = seconds;
    if (!why.empty()) job["why"] = why;
    if (status == "failed") job["lines"] = lines_of_failure(log);
    report["jobs"].push_back(job);
    for (const Json& line : json_lines(log, {"kernel", "dtype", "shape", "ms", "share_of_peak"}))
      report["kernels"].push_back({{"kernel", line["kernel"]},
                                   {"dtype", line["dtype"]},
                                   {"shape", line["shape"]},
                                   {"ms", line["ms"]},
                                   {"share_of_peak", line["share_of_peak"]}});
    for (const Json& line : json_lines(log, {"model", "program", "ms_per_step"}))
      steps[line["model"].get<std::string>() + ", " + line["program"].get<std::string>()].push_back(
          line["ms_per_step"]);
  }
  for (const auto& [name, ms] : steps) report["ms_per_step"][name] = median(ms);
  return report;
}

inline std::string rounded_text(double x) {
  std::ostringstream text;
  text.precision(3);
  text << x;
  return text.str();
}

inline std::string page_of(const Json& report) {
  std::ostringstream page;
  const auto word = [](const Json& of, const char* field) { return of.value(field, std::string()); };
  page << "# " << word(report, "gpu")
       << "\n\n| stage | passed | failed | not run | why |\n|---|---|---|---|---|\n";
  std::map<std::string, std::map<std::string, int>> counts;
  std::map<std::string, std::string> why_not;
  for (const Json& job : report["jobs"]) {
    ++counts[job["stage"]][job["status"]];
    if (job["status"] == "skipped") why_not[job["stage"]] = word(job, "why");
  }
  for (auto& [stage, count] : counts)
    page << "| " << stage << " | " << count["passed"] << " | " << count["failed"] << " | " << count["skipped"]
         << " | " << why_not[stage] << " |\n";
  for (const Json& job : report["jobs"]) {
    if (job["status"] != "failed") continue;
    page << "\n" << word(job, "stage") << "/" << word(job, "job") << " failed: " << word(job, "why");
    page << "\n\n```\n";
    for (const Json& line : job["lines"]) page << line.get<std::string>() << "\n";
    page << "```\n";
  }
  if (report.contains("ms_per_step")) {
    page << "\n| step | ms |\n|---|---|\n";
    for (const auto& [name, ms] : report["ms_per_step"].items())
      page << "| " << name << " | " << rounded_text(ms) << " |\n";
  }
  if (report.contains("kernels")) {
    page << "\n| kernel | dtype | shape | ms | share of the roof |\n|---|---|---|---|---|\n";
    for (const Json& k : report["kernels"])
      page << "| " << word(k, "kernel") << " | " << word(k, "dtype") << " | " << word(k, "shape") << " | "
           << rounded_text(k["ms"]) << " | " << rounded_text(k["share_of_peak"]) << " |\n";
  }
  return page.str();
}

}  // namespace gradus::gpu_check
