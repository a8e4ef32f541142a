#include "lessons/07_accumulation/by_hand.h"

#include "src/core/table.h"
#include "src/train/accumulate.h"

namespace gradus {

void means_by_hand(std::ostream& out) {
  const std::vector<std::vector<double>> losses{{1, 2, 3}, {6}};  // of the targets of two micro-batches
  const std::vector<double> weights = weights_of_means({3, 1});
  Table table({"micro-batch", "losses of its targets", "mean", "weight", "share"});
  double sum = 0, of_means = 0, of_weights = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    std::string text;
    double mean = 0;
    for (const double l : losses[i]) {
      text += (text.empty() ? "" : ", ") + number_text(l);
      mean += l / double(losses[i].size());
    }
    table.row({std::to_string(i + 1), text, number_text(mean), number_text(weights[i]),
               number_text(weights[i] * mean)});
    sum += weights[i] * mean;
    of_weights += weights[i];
    of_means += mean / double(losses.size());
  }
  table.row({"sum", "", "", number_text(of_weights), number_text(sum)});
  out << table << "\nThe mean of 1, 2, 3 and 6 is 3; the mean of the two means is " << number_text(of_means)
      << ".\n";
}

}  // namespace gradus
