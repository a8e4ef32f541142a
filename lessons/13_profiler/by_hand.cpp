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
  constexpr Kernel kernels[] = {{"matmul", 40e6, 1e6, 500e-6}, {"gelu", 1e6, 1e6, 110e-6}};
  Table table({"kernel", "FLOPs", "bytes", "FLOPs per byte", "FLOPs / 100 GFLOP/s", "bytes / 10 GB/s", "took",
               "of the roof"});
  for (const Kernel& k : kernels) {
    const Cost cost{OpClass::Elementwise, int64_t(k.flops), int64_t(k.bytes)};
    table.row({k.name, number_text(k.flops), number_text(k.bytes), number_text(k.flops / k.bytes),
               seconds_text(k.flops / machine.fp32_flops), seconds_text(k.bytes / machine.bandwidth),
               seconds_text(k.seconds), percent_text(least_seconds(cost, machine) / k.seconds)});
  }
  out << "Ridge point: 10 FLOPs per byte.\n\n" << table;
}

}  // namespace gradus
