// The CPU's table of kernels.
#include "kernels/cpu/cpu.h"

namespace gradus {

static constexpr Backend kCpu = {
    .name = "cpu",
#define GRADUS_KERNEL(entry, ...) .entry = cpu::entry,
#include "kernels/entries.inc"
};

const Backend& cpu_backend() { return kCpu; }

}  // namespace gradus
