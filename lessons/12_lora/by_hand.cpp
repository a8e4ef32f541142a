#include "lessons/12_lora/same.h"
#include "src/core/table.h"

namespace gradus {

void lora_by_hand(std::ostream& out) {
  // W (2, 3), A (1, 3), B (2, 1), alpha/r = 2, x (3)
  constexpr double w[2][3] = {{1, 0, 2}, {0, 1, -1}}, a[3] = {0.5, 0, -0.5}, b[2] = {0.25, -1}, scale = 2;
  constexpr double x[3] = {2, 1, 1}, dy[2] = {1, 1};
  double low = 0, d_low = 0, y[2], base[2], merged[2];
  for (int i = 0; i < 3; ++i) low += a[i] * x[i];
  for (int o = 0; o < 2; ++o) {
    base[o] = merged[o] = 0;
    for (int i = 0; i < 3; ++i) {
      base[o] += w[o][i] * x[i];
      merged[o] += (w[o][i] + scale * b[o] * a[i]) * x[i];
    }
    y[o] = base[o] + scale * low * b[o];
    d_low += scale * dy[o] * b[o];
  }
  const auto pair = [](const double* v) { return number_text(v[0]) + ", " + number_text(v[1]); };
  Table table({"", "value"});
  table.row({"frozen layer: x W^T", pair(base)});
  table.row({"x A^T", number_text(low)});
  table.row({"with the adapter: y = x W^T + 2 (x A^T) B^T", pair(y)});
  table.row({"merged: y = x (W + 2 B A)^T", pair(merged)});
  const double db[2] = {scale * low * dy[0], scale * low * dy[1]};
  table.row({"gradient of B for dy = (1, 1)", pair(db)});
  table.row({"gradient of A", number_text(d_low * x[0]) + ", " + number_text(d_low * x[1]) + ", " +
                                  number_text(d_low * x[2])});
  out << table;
}

}  // namespace gradus
