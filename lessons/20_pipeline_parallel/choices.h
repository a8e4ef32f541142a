// What a plan predicts: do published models fit, where are blocks cut, which layout is the fastest?
#pragma once
#include "lessons/18_zero/what_if.h"
#include "src/parallel/plan.h"

namespace gradus {

// Prints table (b) and adds its checks: the four models of Korthikanti et al. 2023 (tables 3 and 5), and
// three of Narayanan et al. 2021 (table 1), on A100 with 80 GB. Do they fit, and how long does a step take?
void published_table(Report& report);
struct PublishedOff {  // models that contradict the papers; range of predicted / published seconds
  int64_t counts = 0, too_large = 0;
  double least_ratio = INFINITY, most_ratio = 0;
};
void check_published(const PublishedOff& off, Report& report);
// Prints table (c) and adds its check: GPT-2 in 4 stages, with equal numbers of blocks and cut by cost.
void cuts_table(Report& report, Plan (*plan_of_cut)(const PlanSetting&) = plan_of);
// All layouts of `ranks` ranks that divide the heads and the batch, with one or two context ranks.
std::vector<Layout> layouts_of(int64_t ranks, const TransformerConfig& config, int64_t batch);
// Predicts, without a cluster, the layouts of a model on `ranks` devices: first those that fit into memory,
// the fastest first. A step has `batch` sequences, one per micro-batch.
void layouts_table(const WhatIf& what_if, int64_t batch);

}  // namespace gradus
