#include "lessons/15_flash_attention/programs.h"

#include <iostream>

#include "lessons/15_flash_attention/compare.h"
#include "lessons/15_flash_attention/one_head.h"
#include "src/core/table.h"

namespace gradus {

void report_programs(uint64_t seed, Report& report) {
  constexpr int64_t kT = 256, kD = 64, kCols = 32;
  const Head head = Head::random(kT, kD, seed);
  const std::vector<double> exact = in_fp64(head);
  std::cout << "(a) One head, T = " << kT << ", D = " << kD << ": numbers loaded and stored\n\n";
  Table table({"program", "queries at a time", "loads", "stores", "scores kept", "largest error"});
  int64_t unpredicted = 0;
  double worst = 0;
  const auto row = [&](Program program, const char* name, int64_t rows, int64_t kept, auto run) {
    Memory memory;
    const std::vector<float> y = run(rows, memory);
    const double error = largest_difference(std::vector<double>(y.begin(), y.end()), exact);
    if (!(error <= worst)) worst = error;
    unpredicted += memory.loads != predicted_loads(program, kT, kD, rows);
    unpredicted += memory.stores != predicted_stores(program, kT, kD);
    table.row({name, count_text(rows), count_text(memory.loads), count_text(memory.stores), count_text(kept),
               number_text(error)});
  };
  row(Program::TwoPasses, "softmax in two passes", 64, 64 * kT,
      [&](int64_t rows, Memory& m) { return two_passes(head, rows, m); });
  row(Program::Online, "online softmax", 64, 64 * kT,
      [&](int64_t rows, Memory& m) { return online(head, rows, m); });
  for (const int64_t rows : {64, 16, 1})
    row(Program::Tiles, "tiles", rows, rows * kCols,
        [&](int64_t each, Memory& m) { return tiles(head, each, kCols, m); });
  std::cout << table << std::endl;
  report.check_equal("programs: loads and stores that differ from the formulas", unpredicted, 0);
  report.check_at_most("programs: largest error", worst, 1e-5);
}

}  // namespace gradus
