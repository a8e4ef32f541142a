// Weights and whole runs, saved and loaded, in the safetensors format. A file is replaced as a whole or not
// at all; loading checks every name, dtype and shape before it changes anything.
#pragma once
#include <string>

#include "src/io/safetensors.h"
#include "src/optim/optimizer.h"

namespace gradus {

// The weights alone, under the parameters' names; in fp32 where there is a master copy; of those in 4 bits
// the codes, and the codes, scales and mean of their scales. Here and below an error while adapters are
// merged (nn/lora.h): a file does not say whether they are.
void save_weights(const std::string& path, const Parameters& parameters, const Metadata& metadata = {});
// Every parameter must be in the file, with its dtype and shape; tensors that the model lacks are an error
// too.
void load_weights(const std::string& path, Parameters& parameters);

// A tensor of such a file, whatever its floating dtype; refuses codes and counts.
std::vector<double> read_numbers(const SafetensorsFile& file, const std::string& name, const Shape& shape);

// The whole state of a training run: weights, optimizer states, the numbers of the last step and of
// the updates made, the state of loss scaling, and what the caller adds (seed, configuration). The batches
// and dropout masks of step s are functions of (seed, s), so a run that is loaded and continued is bit-equal
// to one that was never stopped.
void save_training(const std::string& path, const Parameters& parameters, const Optimizer& optimizer,
                   Metadata metadata = {});
// Returns the metadata; the context and the optimizer then count on from the two numbers.
Metadata load_training(const std::string& path, Parameters& parameters, Optimizer& optimizer);

// What save_training adds to the metadata, and its way back: the numbers of the step and of the updates, the
// state of loss scaling. For runs on several ranks (parallel/sharded_file.h).
Metadata with_counts(Metadata metadata, const Optimizer& optimizer);
struct TrainingCounts {
  int64_t step, updates;
  StepScalars scaling;
};
TrainingCounts counts_in(const SafetensorsFile& file, const std::string& path);
void restore_counts(const TrainingCounts& counts, Optimizer& optimizer);

}  // namespace gradus
