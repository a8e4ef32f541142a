// Schedules as numbers and pictures, computed before any rank runs and measured on simulated ranks.
#pragma once
#include <ostream>
#include <string>

#include "src/parallel/schedule.h"
#include "src/train/report.h"

namespace gradus {

// A row per rank, a column per unit of time: F2 is the forward pass of micro-batch 2, B2== its backward pass.
void print_timeline(std::ostream& out, const Schedule& schedule, const Timeline& timeline);
// GPipe and 1F1B on two ranks with three micro-batches, small enough to draw by hand (--print=example).
void schedules_by_hand(std::ostream& out);
// The bubble, the fraction of all ranks' time in which they wait, with p ranks, m micro-batches and v chunks
// per rank. Narayanan et al. 2021, sec. 2.2, divide the waiting time by the computing time instead.
double predicted_bubble(int64_t p, int64_t m, int64_t v);
// Prints table (a), adds its checks to the report, and draws the picture.
void schedules_table(const std::string& picture, Report& report);
struct SchedulesOff {  // of `count` schedules: bubbles and ranks that contradict the formulas
  int64_t count = 0, bubbles = 0, simulated = 0, in_flight = 0;
};
void check_schedules(const SchedulesOff& off, Report& report);
// Plays the schedule in a file, prints its bubble and pairs in flight; exit code 1 if it cannot run.
int judge_schedule(const std::string& path);

}  // namespace gradus
