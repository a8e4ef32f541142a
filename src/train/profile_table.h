// Sums of a profile by kernel or by op: calls, time and fraction of the roofline; as a table, and as a
// picture of the roofline (Williams et al. 2009, "Roofline: an insightful visual performance model").
#pragma once
#include <string>
#include <vector>

#include "src/core/table.h"
#include "src/io/roofline.h"
#include "src/train/machine.h"
#include "src/train/profiler.h"

namespace gradus {

struct ProfileRow {  // the sum over all kernels with one name, or over the kernels of all ops with one name
  std::string name;
  int64_t calls = 0, flops = 0, bytes = 0;
  double seconds = 0, least = 0;  // measured, and at the machine's roofs
};
// The longest first.
std::vector<ProfileRow> by_kernel(const Profiler&, const Machine&);
// By the innermost range around a kernel: "linear" for an op; "linear, backward" for an op in a backward
// pass, recomputed ops included; "no range" for a kernel outside of all ranges, or inside a step only.
std::vector<ProfileRow> by_op(const Profiler&, const Machine&);

// least time: at the machine's roofs. fraction of roofline: least / seconds; it can be above 100 % if the
// data came from a cache. `title` heads the first column. The rows after the first `most` are added up in one
// row.
Table profile_table(const std::string& title, const std::vector<ProfileRow>& rows, size_t most = SIZE_MAX);
// Only of the kernels that compute, because kernels without FLOPs have no place on it. The roof is the fp32
// peak.
Roofline roofline_of(const std::string& title, const std::vector<ProfileRow>& kernels, const Machine&);

}  // namespace gradus
