#include "lessons/13_profiler/by_hand.h"

#include "src/core/table.h"
#include "src/train/machine.h"

namespace gradus {

void profile_by_hand(std::ostream& out) {
  Machine machine{};
  machine.fp32_flops = 100e9, machine.bandwidth = 10e9;
  struct Kernel {
    const char* name;
    double flops, bytes, seconds;
  };
  constexpr Kernel kernels[] = {{"matmul", 2.0 * 300 * 300 * 300, 4.0 * 3 * 300 * 300, 675e-6},
                                {"gelu", 8.0 * 125'000, 4.0 * 2 * 125'000, 110e-6}};
  Table table({"kernel", "FLOPs", "bytes", "FLOPs per byte", "FLOPs / 100 GFLOP/s", "bytes / 10 GB/s",
               "measured", "fraction of roofline"});
  for (const Kernel& k : kernels) {
    const Cost cost{OpClass::Elementwise, int64_t(k.flops), int64_t(k.bytes)};
    table.row({k.name, number_text(k.flops), number_text(k.bytes), number_text(k.flops / k.bytes),
               seconds_text(k.flops / machine.fp32_flops), seconds_text(k.bytes / machine.bandwidth),
               seconds_text(k.seconds), percent_text(least_seconds(cost, machine) / k.seconds)});
  }
  out << "A machine of 100 GFLOP/s and 10 GB/s: its ridge point is 10 FLOPs per byte. All values are fp32.\n"
         "matmul: two matrices of 300 x 300. gelu: 125000 elements, 8 FLOPs per element.\n\n"
      << table;
}

}  // namespace gradus
