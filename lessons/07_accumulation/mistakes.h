#pragma once
#include "src/train/accumulate.h"
#include "src/train/lesson.h"

namespace gradus {

// Prints the gradient of a ragged batch in micro-batches of 7, 1, 5 and 3 sequences, with the usual mistakes:
// |wrong| / |correct| and |wrong - correct| / |correct|. A check per mistake says that it can be seen. `even`
// is a second batch of 16 sequences, without padding. The last mistake changes the model's weights.
void mistakes_table(Transformer& model, const TextBatch& ragged, const TextBatch& even, Report& report);
// `off`: the relative difference from the correct gradient. `wrong`: a mistake, so the difference must be
// seen.
void check_put_together(const std::string& name, double off, bool wrong, Report& report);

// Prints the last losses of runs with the correct gradient, and of runs that add up means without dividing.
void symptoms_table(const Lesson& lesson, const TransformerConfig& model, const Loader& loader, int64_t batch,
                    Report& report);
struct LastLosses {
  double divided, not_divided;
};
// With SGD the mistake can be seen in the loss, with AdamW it can't.
void check_symptoms(const LastLosses& sgd, const LastLosses& adamw, int64_t steps, Report& report);

}  // namespace gradus
