// How much faster N ranks are, by the network between them: a model of GPT-2's size on the device meta, whose
// kernels take what a published machine needs for them at least.
#pragma once
#include "src/parallel/comm/network.h"
#include "src/train/lesson.h"

namespace gradus {

constexpr int64_t kPyTorchBucket = int64_t(25) << 20;  // bytes, DistributedDataParallel's bucket_cap_mb

std::vector<Network> networks_of_a100();  // of those published, what joins such machines

// Seconds of a step: without other ranks, with gradients summed after the backward pass, and during it.
struct ScaledStep {
  std::string network;
  int64_t ranks;
  double computes, after, overlapped;
};
// Of each of networks_of_a100(), on so many ranks, where a step of one alone takes `computes` seconds; 0:
// what its kernels need at least.
std::vector<ScaledStep> scaled_steps(const std::vector<int64_t>& ranks, double computes = 0);
// What 8 A100 need for it in a published run: 8 x 65,536 tokens in 300 ms (llm.c, discussion 481).
constexpr double kPublishedSeconds = 0.3 * 8192 / 65'536;
// Those on 8 and 64 ranks, and so of a published run; and a picture of the efficiency, t(1) / t(N), against
// N.
void scaling_table(const std::vector<ScaledStep>& steps, const std::vector<ScaledStep>& published,
                   const std::string& picture, Report& report);
// The timelines of a step on 4 ranks, with gradients summed after the backward pass and during it: pictures,
// and a file for trace viewers.
void timelines(const Lesson& lesson);

}  // namespace gradus
