#include "src/core/table.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

#include "kernels/check.h"

namespace gradus {

// The columns of a string on a terminal: its UTF-8 characters, counted as bytes that do not continue one.
static size_t width(std::string_view text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// "12", "-1.5e-3", "1,024", "12.3 MiB", "50.0 %", "nan"; also an empty cell.
static bool looks_numeric(std::string_view cell) {
  if (cell.empty() || cell == "nan" || cell == "inf" || cell == "-inf") return true;
  const size_t digit = cell[0] == '-' || cell[0] == '+' ? 1 : 0;
  return digit < cell.size() && std::isdigit(static_cast<unsigned char>(cell[digit])) != 0;
}

Table::Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void Table::row(std::vector<std::string> cells) {
  check(cells.size() == rows_[0].size(), "table: a row of ", cells.size(), " cells under a header of ",
        rows_[0].size());
  rows_.push_back(std::move(cells));
}

std::ostream& operator<<(std::ostream& out, const Table& table) {
  const size_t columns = table.rows_[0].size();
  std::vector<size_t> widths(columns, 0);
  std::vector<bool> to_the_right(columns, table.rows_.size() > 1);
  for (size_t r = 0; r < table.rows_.size(); ++r)
    for (size_t c = 0; c < columns; ++c) {
      widths[c] = std::max(widths[c], width(table.rows_[r][c]));
      if (r > 0 && !looks_numeric(table.rows_[r][c])) to_the_right[c] = false;
    }
  for (size_t r = 0; r < table.rows_.size(); ++r) {
    std::string line;
    for (size_t c = 0; c < columns; ++c) {
      const std::string& cell = table.rows_[r][c];
      const std::string space(widths[c] - width(cell), ' ');
      line += "  " + (to_the_right[c] ? space + cell : cell + space);
    }
    out << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
    if (r > 0) continue;
    std::string rule;
    for (size_t c = 0; c < columns; ++c) rule += "  " + std::string(widths[c], '-');
    out << rule << '\n';
  }
  return out;
}

static std::string format(const char* pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

// Three significant digits for 1 <= x < 1000.
static std::string three_digits(double x) {
  return format(x < 9.995 ? "%.2f" : x < 99.95 ? "%.1f" : "%.0f", x);
}

std::string bytes_text(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  const double sign = bytes < 0 ? -1 : 1;
  double x = std::abs(double(bytes));
  int unit = 0;
  for (; x >= 1023.95 && unit < 6; ++unit) x /= 1024;
  return format(unit == 0 ? "%.0f " : "%.1f ", sign * x) + kUnits[unit];
}

std::string count_text(int64_t n) {
  const std::string digits = std::to_string(n);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool group_begins = i > (n < 0 ? 1u : 0u) && (digits.size() - i) % 3 == 0;
    out += group_begins ? "," : "";
    out += digits[i];
  }
  return out;
}

std::string number_text(double x) {
  if (std::isnan(x)) return "nan";  // never "-nan"
  return format(x == std::floor(x) && std::abs(x) < 1e15 ? "%.0f" : "%.4g", x);
}

std::string percent_text(double share) { return format("%.1f %%", 100 * share); }

std::string seconds_text(double seconds) {
  if (!(seconds >= 0) || std::isinf(seconds)) return "?";
  if (seconds == 0) return "0 s";
  if (seconds < 0.9995e-6) return format("%.0f ns", seconds * 1e9);
  if (seconds < 0.9995e-3) return three_digits(seconds * 1e6) + " us";
  if (seconds < 0.9995) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return three_digits(seconds) + " s";
  const int64_t whole = int64_t(std::min(seconds, 1e15) + 0.5), minutes = whole / 60;
  if (minutes < 60) return std::to_string(minutes) + format(" min %02.0f s", double(whole % 60));
  return std::to_string(minutes / 60) + format(" h %02.0f min", double(minutes % 60));
}

}  // namespace gradus
