// Schedules as numbers and pictures: what they cost before anything runs, and on simulated ranks.
#pragma once
#include <ostream>
#include <string>

#include "src/parallel/schedule.h"
#include "src/train/report.h"

namespace gradus {

// A row per rank, a column per unit of time: F2 is the forward pass of micro-batch 2, B2== its backward pass.
void print_timeline(std::ostream& out, const Schedule& schedule, const Timeline& timeline);
// Two ranks and three micro-batches, small enough for a pencil (--print=example).
void schedules_by_hand(std::ostream& out);
// The share of all ranks' time in which they wait, with p ranks, m micro-batches and v chunks per rank:
// Narayanan et al. 2021, sec. 2.2 (there as a share of the time without waiting).
double predicted_bubble(int64_t p, int64_t m, int64_t v);
// (a) in the report, checked, and a picture.
void schedules_table(const std::string& picture, Report& report);
// Reads a schedule and says what it costs; returns the exit code, 1 if it cannot run.
int judge_schedule(const std::string& path);

}  // namespace gradus
