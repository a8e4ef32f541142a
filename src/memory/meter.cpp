#include "src/memory/meter.h"

#include <algorithm>
#include <numeric>

namespace gradus {

const char* name_of(Kind kind) {
  static constexpr const char* kNames[kKinds] = {"weight",    "master", "gradient", "optimizer", "activation",
                                                 "temporary", "data",   "comm",     "workspace", "other"};
  return kNames[int(kind)];
}

int64_t Usage::allocated() const { return std::accumulate(by_kind.begin(), by_kind.end(), rounding); }

Table Usage::table(const std::string& title) const {
  Table table({title, "bytes", ""});
  const auto row = [&](const char* name, int64_t bytes) {
    table.row({name, count_text(bytes), bytes_text(bytes)});
  };
  for (int k = 0; k < kKinds; ++k)
    if (by_kind[k] > 0) row(name_of(Kind(k)), by_kind[k]);
  row("rounding", rounding);
  row("allocated", allocated());
  return table;
}

void Meter::add(Kind kind, int64_t requested, int64_t block) {
  now_.by_kind[int(kind)] += requested;
  now_.rounding += block - requested;
  allocated_ += block;
  if (allocated_ > peak_allocated_) {
    peak_allocated_ = allocated_;
    at_peak_ = now_;
  }
}

void Meter::remove(Kind kind, int64_t requested, int64_t block) {
  now_.by_kind[int(kind)] -= requested;
  now_.rounding -= block - requested;
  allocated_ -= block;
}

void Meter::move(Kind from, Kind to, int64_t requested) {
  now_.by_kind[int(from)] -= requested;
  now_.by_kind[int(to)] += requested;
}

void Meter::add_segment(int64_t bytes) {
  reserved_ += bytes;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
  ++device_requests_;
}

void Meter::remove_segment(int64_t bytes) { reserved_ -= bytes; }

void Meter::count(const Cost& cost) {
  Totals& totals = totals_[int(cost.op_class)];
  ++totals.calls;
  totals.flops += cost.flops;
  totals.bytes += cost.bytes;
  if (keeps_trace_) ++trace_[cost];
}

int64_t Meter::flops() const {
  int64_t sum = 0;
  for (const Totals& totals : totals_) sum += totals.flops;
  return sum;
}

void Meter::reset_peak() {
  at_peak_ = now_;
  peak_allocated_ = allocated_;
  peak_reserved_ = reserved_;
}

void Meter::reset_totals() {
  totals_ = {};
  trace_.clear();
}

}  // namespace gradus
