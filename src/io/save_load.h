// Weights and whole runs, saved and loaded, in the safetensors format. A file is replaced as a whole or not
// at all; loading checks every name, dtype and shape before it changes anything.
#pragma once
#include <string>

#include "src/io/safetensors.h"
#include "src/optim/optimizer.h"

namespace gradus {

// Saves the weights only, under the parameters' names: in fp32 if there is a master copy; for weights in 4
// bits the codes, and the codes, scales and mean of their scales. Here and below merged adapters (nn/lora.h)
// are an error, because a file does not say whether they are merged.
void save_weights(const std::string& path, const Parameters& parameters, const Metadata& metadata = {});
// Every parameter must be in the file, with its dtype and shape; tensors that the model lacks are an error
// too.
void load_weights(const std::string& path, Parameters& parameters);

// A tensor of such a file, of any floating-point dtype; an error for codes and counts.
std::vector<double> read_numbers(const SafetensorsFile& file, const std::string& name, const Shape& shape);

// Saves the whole state of a training run: weights, optimizer states, the number of the step and the number
// of updates, the state of loss scaling, and the caller's metadata (seed, configuration). The batches and
// dropout masks of step s are functions of (seed, s), so a run that is loaded and continued is bitwise equal
// to one that was never stopped.
void save_training(const std::string& path, const Parameters& parameters, const Optimizer& optimizer,
                   Metadata metadata = {});
// Returns the metadata; the context and the optimizer continue to count from the two numbers.
Metadata load_training(const std::string& path, Parameters& parameters, Optimizer& optimizer);

// Adds to the metadata what save_training adds, and reads it back: the number of the step, the number of
// updates, the state of loss scaling. For runs on several ranks (parallel/sharded_file.h).
Metadata with_counts(Metadata metadata, const Optimizer& optimizer);
struct TrainingCounts {
  int64_t step, updates;
  StepScalars scaling;
};
TrainingCounts counts_in(const SafetensorsFile& file, const std::string& path);
void restore_counts(const TrainingCounts& counts, Optimizer& optimizer);

}  // namespace gradus
