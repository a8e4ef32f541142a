#include "src/core/table.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

namespace gradus {

// Characters, not bytes: UTF-8 continuation bytes take no column.
static size_t width_of(const std::string& s) {
  return size_t(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

static bool is_number(const std::string& s) {
  return !s.empty() && (std::isdigit(static_cast<unsigned char>(s[0])) || s[0] == '-' || s[0] == '+');
}

std::ostream& operator<<(std::ostream& out, const Table& table) {
  std::vector<size_t> width;
  for (const auto& row : table.rows_) {
    width.resize(std::max(width.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], width_of(row[c]));
  }
  for (size_t r = 0; r < table.rows_.size(); ++r) {
    std::string line;
    for (size_t c = 0; c < table.rows_[r].size(); ++c) {
      const std::string& cell = table.rows_[r][c];
      const std::string padding(width[c] - width_of(cell), ' ');
      line += "  " + (is_number(cell) ? padding + cell : cell + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << "\n";
    if (r > 0) continue;
    size_t total = 0;
    for (const size_t w : width) total += w + 2;
    out << "  " << std::string(total > 2 ? total - 2 : 0, '-') << "\n";
  }
  return out;
}

std::string bytes_text(int64_t bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = double(bytes);
  int unit = 0;
  while (std::abs(value) >= 1024 && unit < 5) value /= 1024, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

std::string number_text(double x) {
  char text[40];
  std::snprintf(text, sizeof text, x == std::floor(x) && std::abs(x) < 1e15 ? "%.0f" : "%.4g", x);
  return text;
}

}  // namespace gradus
