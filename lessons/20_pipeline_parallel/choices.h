// What a plan says: whether published models fit, where blocks are cut, which layout is best.
#pragma once
#include "lessons/18_zero/what_if.h"
#include "src/parallel/plan.h"

namespace gradus {

// (d) in the report: the four models of Korthikanti et al. 2023 (tables 3 and 5), and three of Narayanan et
// al. 2021 (table 1), on A100 with 80 GB: do they fit, and how long does a step take?
void published_table(Report& report);
// (e) in the report: GPT-2 in 4 stages, with equal numbers of blocks and cut by their cost.
void cuts_table(Report& report);
// All layouts of so many ranks that divide the model's heads and a batch, with one or two context ranks.
std::vector<Layout> layouts_of(int64_t ranks, const TransformerConfig& config, int64_t batch);
// Without a cluster: the layouts of a model on so many machines, the fastest that fit first. `batch`
// sequences per step in micro-batches of one.
void layouts_table(const WhatIf& what_if, int64_t batch);

}  // namespace gradus
