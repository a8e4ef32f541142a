// Bytes per rank, by stage and number of ranks: predicted, measured, published.
#pragma once
#include <string>
#include <vector>

#include "lessons/18_zero/step.h"
#include "src/train/report.h"

namespace gradus {

// A small GPT, stages 0 to 3 on 1 to 8 ranks: bytes between steps; elements sent per step, k = 1 and 4.
struct StageMemory {
  int stage;
  int64_t ranks, parameters, padded;
  Usage measured, predicted;
  int64_t sent[2], predicted_sent[2];
};
std::vector<StageMemory> measure_stages();
// Prints a table and draws a picture; checks that each kind's bytes and all elements sent are as predicted.
void memory_table(const std::vector<StageMemory>& rows, const std::string& picture, Report& report);

// GB of model states per rank, 7.5e9 parameters: Rajbhandari et al. 2020, table 1, and measured here.
struct PublishedStates {
  int64_t ranks;
  std::string printed[3];
  double here[3];
};
std::vector<PublishedStates> zero_table_1();                  // as printed
std::vector<PublishedStates> published_states(int64_t most);  // with the measured ones, up to `most` ranks
void published_table(const std::vector<PublishedStates>& rows, Report& report);

}  // namespace gradus
