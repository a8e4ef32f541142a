// What a step would take on another machine: each kernel needs at least its FLOPs over the machine's peak and
// its bytes over the machine's bandwidth, whichever is longer (the roofline of Williams et al. 2009). A lower
// bound: real kernels reach 60 to 95 % of either.
#pragma once
#include <string>
#include <vector>

#include "src/memory/device.h"

namespace gradus {

struct Machine {
  std::string name, source;  // where the figures are published
  double fp32_flops;         // a second, of ordinary units
  double matrix16_flops;     // a second, of matrix units with 16-bit inputs, dense
  double bandwidth;          // bytes a second
  int64_t memory;            // bytes
  std::string link;          // to the others of its node: parallel/comm/network.h has its figures
};
const std::vector<Machine>& published_machines();
const Machine& machine_called(std::string_view name);  // an error that lists them
// What the device reaches: measured peaks of products (on the CPU that in fp32 counts for all dtypes) and
// copy bandwidth. Takes a second. emu and meta are no machines: NaN.
Machine measured_machine(const Device&);

double least_seconds(const Cost&, const Machine&);       // of a kernel
double predicted_seconds(const Meter&, const Machine&);  // of all work in the meter's trace

// Peak FLOP/s of matrix products on such a device: the best median over a fixed list of shapes, measured now,
// in memory of its own. NaN on meta.
double measure_gemm_peak(const Device&, DType = DType::F32);

}  // namespace gradus
