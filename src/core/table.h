// Text tables for reports, and the one way to write bytes, counts, shares and times.
#pragma once
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace gradus {

// Columns are as wide as their widest cell. A column is right-aligned if all its cells are numbers (with or
// without a unit), else left-aligned. Cells may hold UTF-8.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  void row(std::vector<std::string> cells);  // as many cells as the header; throws otherwise
  friend std::ostream& operator<<(std::ostream&, const Table&);

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
};

// Short forms for readers; where exact values matter, print the integer next to them.
std::string bytes_text(int64_t bytes);   // "512 B", "12.3 MiB": powers of 1024
std::string count_text(int64_t n);       // "124,439,808"
std::string number_text(double x);       // whole numbers in full, other numbers with four significant digits
std::string percent_text(double share);  // 0.5 is "50.0 %"
std::string seconds_text(double seconds);  // "850 ns", "12.3 ms", "4.56 s", "3 min 20 s", "2 h 05 min"

}  // namespace gradus
