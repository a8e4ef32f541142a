#pragma once
#include "src/train/accumulate.h"
#include "src/train/lesson.h"

namespace gradus {

// What the usual mistakes make of the gradient of a batch in micro-batches of 7, 1, 5 and 3 sequences, each
// beside the right one: how many times as large, and |wrong - right| / |right|; a check each that it is seen.
// `even` is another batch of 16 sequences, all of whose targets count. The weights are moved by it.
void mistakes_table(Transformer& model, const TextBatch& ragged, const TextBatch& even, Report& report);
// `off`: by how much of its length the gradient is off; `wrong`: it is to be.
void check_put_together(const std::string& name, double off, bool wrong, Report& report);

// What one sees of the first mistake: the last loss of runs that divide, and of runs that do not.
void symptoms_table(const Lesson& lesson, const TransformerConfig& model, const Loader& loader, int64_t batch,
                    Report& report);
struct LastLosses {
  double divided, not_divided;
};
// SGD shows the mistake, AdamW hides it.
void check_symptoms(const LastLosses& sgd, const LastLosses& adamw, int64_t steps, Report& report);

}  // namespace gradus
