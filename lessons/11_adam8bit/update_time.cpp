#include "lessons/11_adam8bit/update_time.h"

#include <iostream>

#include "lessons/06_optimizers/update_time.h"
#include "src/core/table.h"
#include "src/memory/device_timing.h"
#include "src/optim/adamw_8bit.h"
#include "src/tensor/context.h"

namespace gradus {

static double seconds_of(Optimizer& optimizer) {
  Device& device = current().device;
  const double start = seconds_now(device);
  optimizer.step(1e-6);
  return seconds_now(device) - start;
}

static double bytes_of(Optimizer& optimizer, int64_t parameters) {  // moved by an update, per parameter
  Meter& meter = current().device.meter();
  meter.reset_totals();
  optimizer.step(1e-6);
  return double(meter.totals(OpClass::Elementwise).bytes) / double(parameters);
}

void adam_time_table(Report& report) {
  if (std::string_view(current().device.name()) == "emu") return;  // times of the emulation mean nothing
  Table table({"parameters", "fp32: bytes per parameter", "8 bits: bytes per parameter", "fp32: time",
               "8 bits: time", "time, 8 bits / fp32"});
  double factor = NAN;
  for (const int64_t side : {2048, 128}) {
    const int count = side == 2048 ? 8 : 2;
    Parameters a, b;
    add_matrices(a, count, side, side);
    add_matrices(b, count, side, side);
    AdamW fp32(a);
    AdamW8bit coded(b);
    const double bytes = bytes_of(fp32, a.numel()), bytes_coded = bytes_of(coded, b.numel());
    std::vector<std::string> times(3);
    if (current().device.has_data()) {
      std::vector<double> seconds, seconds_coded;
      for (int i = 0; i < 9; ++i)  // alternating runs, so that other load on the machine slows both
        seconds.push_back(seconds_of(fp32)), seconds_coded.push_back(seconds_of(coded));
      const double t = summarize(seconds).median, t_coded = summarize(seconds_coded).median;
      times = {seconds_text(t), seconds_text(t_coded), number_text(t_coded / t)};
      if (side == 2048) factor = t / t_coded;
    }
    table.row(
        {count_text(a.numel()), number_text(bytes), number_text(bytes_coded), times[0], times[1], times[2]});
  }
  std::cout << "\n(d) Cost of an update: bytes moved, and time\n\n" << table;
  check_update_time(factor, report);
}

void check_update_time(double factor, Report& report) {
  report.timing_at_least("time of an update, 33,554,432 parameters: fp32 / 8 bits", factor, 1);
}

}  // namespace gradus
