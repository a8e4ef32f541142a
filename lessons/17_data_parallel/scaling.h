// How much faster N ranks are, by the network between them: a model of GPT-2's size on the device meta, whose
// kernels take what a published machine needs for them at least.
#pragma once
#include "src/dist/network.h"
#include "src/train/lesson.h"

namespace gradus {

constexpr int64_t kPyTorchBucket = int64_t(25) << 20;  // bytes, DistributedDataParallel's bucket_cap_mb

// Seconds of a step: without other ranks, with gradients summed after the backward pass, and during it.
struct ScaledStep {
  std::string network;
  int64_t ranks;
  double computes, after, overlapped;
};
std::vector<ScaledStep> scaled_steps();  // of each published network, on 1, 2, 4, ... 64 ranks
// Those on 8 and 64 ranks, and a picture of the efficiency, t(1) / t(N), against N.
void scaling_table(const std::vector<ScaledStep>& steps, const std::string& picture, Report& report);
// The timelines of a step on 4 ranks, with gradients summed after the backward pass and during it: pictures,
// and a file for trace viewers.
void timelines(const Lesson& lesson);

}  // namespace gradus
