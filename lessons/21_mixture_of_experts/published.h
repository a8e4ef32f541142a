// Published models: two Llamas and a mixture of experts.
#pragma once
#include "src/train/report.h"

namespace gradus {

// Prints table (e): parameters and bytes of weights, compared with the published files.
void published_mixtures(Report& report);
// A model's bytes of weights, also 2 per parameter, compared with the bytes of weights in its file.
struct ModelBytes {
  int64_t measured, of_parameters, of_file;
};
void check_model_bytes(const std::vector<ModelBytes>& models, Report& report);

}  // namespace gradus
