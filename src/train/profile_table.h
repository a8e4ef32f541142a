// Sums of a profile, by kernel or by op: how often each ran, for how long, and how near it came to what the
// machine can do; as a table, and as a roofline (Williams et al. 2009, "Roofline: an insightful visual
// performance model").
#pragma once
#include <string>
#include <vector>

#include "src/core/table.h"
#include "src/io/roofline.h"
#include "src/train/machine.h"
#include "src/train/profiler.h"

namespace gradus {

struct ProfileRow {  // of all kernels of one name, or in ops of one name
  std::string name;
  int64_t calls = 0, flops = 0, bytes = 0;
  double seconds = 0, least = 0;  // what they took, and what they would at the machine's roofs
};
// The longest first.
std::vector<ProfileRow> by_kernel(const Profiler&, const Machine&);
// By the innermost range that a kernel was called in: an op, "linear", or what runs in a backward pass, which
// a checkpoint makes run again, too: "linear, backward"; outside of all, and of all but a step: "no range".
std::vector<ProfileRow> by_op(const Profiler&, const Machine&);

// of the roof: least ÷ seconds, above 100 % where data came from a cache. `title` heads the first column;
// what follows the first `most` rows is summed up in one.
Table profile_table(const std::string& title, const std::vector<ProfileRow>& rows, size_t most = SIZE_MAX);
// Of the kernels that compute: those that only move bytes have no place on it. The roof is that of fp32.
Roofline roofline_of(const std::string& title, const std::vector<ProfileRow>& kernels, const Machine&);

}  // namespace gradus
