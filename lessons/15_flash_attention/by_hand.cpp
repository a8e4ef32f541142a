#include "lessons/15_flash_attention/by_hand.h"

#include "lessons/15_flash_attention/one_head.h"
#include "src/core/table.h"

namespace gradus {

void online_softmax_by_hand(std::ostream& out) {
  constexpr float kScores[] = {1, 3, 2, 4}, kValues[] = {8, 2, 4, 6};
  Table table({"score", "value", "maximum", "correction", "sum", "y"});
  Softmax s;
  double y = 0;
  for (int j = 0; j < 4; ++j) {
    const float before = s.max;
    s.add(kScores[j]);
    const double correction = std::exp(double(before) - s.max);
    y = y * correction + std::exp(double(kScores[j]) - s.max) * kValues[j];
    table.row({number_text(kScores[j]), number_text(kValues[j]), number_text(s.max), number_text(correction),
               number_text(s.sum), number_text(y)});
  }
  out << table << "attention: y / sum = " << number_text(y / s.sum) << "\n";
}

}  // namespace gradus
