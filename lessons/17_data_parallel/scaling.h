// How much faster N ranks are than one, by the network between them. The model has GPT-2's size and runs on
// the device meta; the time of each kernel is its roofline bound on a published machine.
#pragma once
#include "src/parallel/comm/network.h"
#include "src/train/lesson.h"

namespace gradus {

constexpr int64_t kPyTorchBucket = int64_t(25) << 20;  // bytes, DistributedDataParallel's bucket_cap_mb

std::vector<Network> networks_of_a100();  // the published networks that connect such machines

// Seconds of a step: on one rank alone; with gradients summed after the backward pass, and during it.
struct ScaledStep {
  std::string network;
  int64_t ranks;
  double compute, no_overlap, overlapped;
};
// For each of networks_of_a100() and each number of ranks. A step of one rank alone takes `compute` seconds;
// 0: its roofline bound.
std::vector<ScaledStep> scaled_steps(const std::vector<int64_t>& ranks, double compute = 0);
// Seconds of the same step in a published run on 8 A100: 8 x 65,536 tokens in 300 ms (llm.c, discussion 481).
constexpr double kPublishedSeconds = 0.3 * 8192 / 65'536;
// Prints the steps on 8 and 64 ranks, each followed by the same step with the published time; draws the
// efficiency, t(1) / t(N), against N.
void scaling_table(const std::vector<ScaledStep>& steps, const std::vector<ScaledStep>& published,
                   const std::string& picture, Report& report);
// Draws the timelines of a step on 8 ranks, with gradients summed after the backward pass and during it. Rank
// 0 stands for all: their timelines are equal. Also writes a trace of all ranks for trace viewers.
void timelines(const Lesson& lesson);

}  // namespace gradus
