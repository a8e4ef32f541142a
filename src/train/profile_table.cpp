#include "src/train/profile_table.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

namespace gradus {

static void add(ProfileRow& sum, const ProfileRow& row) {
  sum.calls += row.calls, sum.flops += row.flops, sum.bytes += row.bytes;
  sum.seconds += row.seconds, sum.least += row.least;
}

static std::vector<ProfileRow> sums(const Profiler& profiler, const Machine& machine,
                                    const std::function<std::string(const ProfileEvent&)>& name_of) {
  std::map<std::string, ProfileRow> rows;
  // BEGIN SOLUTION 13.1
  for (const ProfileEvent& e : profiler.events()) {
    if (e.track != ProfileTrack::Kernels) continue;
    const std::string name = name_of(e);
    ProfileRow& row = rows[name];
    row.name = name;
    add(row, {"", 1, e.cost.flops, e.cost.bytes, e.end - e.begin, least_seconds(e.cost, machine)});
  }
  // STUB: todo("13.1", "a row per name, with the sums over its kernels", profiler, machine, name_of, rows, least_seconds);
  // END SOLUTION 13.1
  std::vector<ProfileRow> all;
  for (const auto& [name, row] : rows) all.push_back(row);
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return all;
}

std::vector<ProfileRow> by_kernel(const Profiler& profiler, const Machine& machine) {
  return sums(profiler, machine, [](const ProfileEvent& e) { return *e.name; });
}

std::vector<ProfileRow> by_op(const Profiler& profiler, const Machine& machine) {
  return sums(profiler, machine, [&](const ProfileEvent& e) {
    if (e.parent < 0 || profiler.events()[size_t(e.parent)].is_step()) return std::string("no range");
    const ProfileEvent& range = profiler.events()[size_t(e.parent)];
    return *range.name + (range.track == ProfileTrack::Backward ? ", backward" : "");
  });
}

static double seconds_of(const std::vector<ProfileRow>& rows) {
  double all = 0;
  for (const ProfileRow& row : rows) all += row.seconds;
  return all;
}

Table profile_table(const std::string& title, const std::vector<ProfileRow>& rows, size_t most) {
  const double all = seconds_of(rows);
  std::vector<std::string> header{title, "kernel calls", "time", "share", "GFLOP/s", "GB/s"};
  const bool roofs = !rows.empty() && !std::isnan(rows[0].least);
  if (roofs) header.insert(header.end(), {"least time", "fraction of roofline"});
  Table table(header);
  std::vector<ProfileRow> shown(rows.begin(), rows.begin() + ptrdiff_t(std::min(most, rows.size())));
  if (shown.size() < rows.size()) {
    shown.push_back({std::to_string(rows.size() - most) + " others"});
    for (size_t i = most; i < rows.size(); ++i) add(shown.back(), rows[i]);
  }
  for (const ProfileRow& r : shown) {
    std::vector<std::string> cells{r.name,
                                   std::to_string(r.calls),
                                   seconds_text(r.seconds),
                                   percent_text(r.seconds / all),
                                   number_text(double(r.flops) * 1e-9 / r.seconds),
                                   number_text(double(r.bytes) * 1e-9 / r.seconds)};
    if (roofs) cells.insert(cells.end(), {seconds_text(r.least), percent_text(r.least / r.seconds)});
    table.row(cells);
  }
  return table;
}

Roofline roofline_of(const std::string& title, const std::vector<ProfileRow>& kernels, const Machine& m) {
  Roofline picture{title, m.fp32_flops, m.bandwidth, {}};
  const double all = seconds_of(kernels);
  for (const ProfileRow& k : kernels)
    if (k.flops > 0 && k.bytes > 0)
      picture.points.push_back(
          {k.name, double(k.flops) / double(k.bytes), double(k.flops) / k.seconds, k.seconds / all});
  return picture;
}

}  // namespace gradus
