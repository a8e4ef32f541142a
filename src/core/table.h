// Text for people: tables with aligned columns, and sizes with units.
#pragma once
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace gradus {

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Columns are as wide as their widest cell; cells that begin with a digit or a sign are aligned to the
  // right.
  friend std::ostream& operator<<(std::ostream&, const Table&);

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string bytes_text(int64_t bytes);  // "12.3 MiB", powers of 1024
std::string number_text(double x);      // whole numbers in full, others with four significant digits

}  // namespace gradus
