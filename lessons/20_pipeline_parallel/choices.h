// What a plan predicts: whether published models fit, where to cut the blocks, and which layout is the
// fastest.
#pragma once
#include "lessons/18_zero/what_if.h"
#include "src/parallel/plan.h"

namespace gradus {

// Prints table (d) and adds its checks: the four models of Korthikanti et al. 2023 (tables 3 and 5), and
// three of Narayanan et al. 2021 (table 1), on A100 with 80 GB. Do they fit, and how long does a step take?
void published_table(Report& report);
// Prints table (e) and adds its check: GPT-2 in 4 stages, with equal numbers of blocks and cut by cost.
void cuts_table(Report& report);
// All layouts of `ranks` ranks with one or two context ranks. The tensor ranks must divide the heads, the
// data ranks must divide the batch, and each stage has at least one block.
std::vector<Layout> layouts_of(int64_t ranks, const TransformerConfig& config, int64_t batch);
// Predicts, without a cluster, the layouts of a model on `ranks` devices: first those that fit into memory,
// the fastest first. A step has `batch` sequences, one per micro-batch.
void layouts_table(const WhatIf& what_if, int64_t batch);

}  // namespace gradus
