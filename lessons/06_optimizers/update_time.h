#pragma once
#include "src/nn/parameter.h"
#include "src/train/report.h"

namespace gradus {

// Adds `count` matrices with random weights and gradients.
void add_matrices(Parameters& parameters, int count, int64_t rows, int64_t cols);

// Compares the time of each optimizer's update with the time in which y += x moves as many bytes, and the
// FLOP/s of Muon's products with the measured GEMM peak. On the current context's device.
void update_time_table(Report& report);
// Its checks of time: an update that takes `seconds`, where y += x takes `least`; and Muon's FLOP/s.
void check_bandwidth(const std::string& optimizer, double least, double seconds, Report& report);
void check_muon(double rate, double peak, Report& report);

}  // namespace gradus
