// The least time of a step on a machine: each kernel needs at least its FLOPs divided by the machine's peak
// or its bytes divided by the machine's bandwidth, whichever is longer (the roofline of Williams et al.
// 2009). A lower bound: real kernels reach 60 to 95 % of either.
#pragma once
#include <string>
#include <vector>

#include "src/memory/device.h"

namespace gradus {

struct Machine {
  std::string name, source;  // source: where the numbers are published
  double fp32_flops;         // per second, of ordinary units
  double matrix16_flops;     // per second, of matrix units with 16-bit inputs, dense
  double bandwidth;          // bytes per second
  int64_t memory;            // bytes
  std::string link;          // to the other devices of its node: a network of parallel/comm/network.h
};
const std::vector<Machine>& published_machines();
const Machine& machine_called(std::string_view name);  // an error that lists them
// Measures the device: peaks of products (on the CPU the peak in fp32 is used for all dtypes) and copy
// bandwidth. Takes a second. NaN for emu and meta, which are not machines.
Machine measured_machine(const Device&);

double least_seconds(const Cost&, const Machine&);       // of a kernel
double predicted_seconds(const Meter&, const Machine&);  // of all work in the meter's trace

// Measures the peak FLOP/s of matrix products on such a device, in separate memory: the best median over a
// fixed list of shapes. NaN on meta.
double measure_gemm_peak(const Device&, DType = DType::F32);

}  // namespace gradus
