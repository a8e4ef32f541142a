// Chains: kernel calls of a captured step that are fused into one loop. If a call reads or writes a tensor
// that another call has just read or written, the same bytes pass between memory and processor twice. In one
// loop they pass once, and an element that only the chain reads is not stored at all. Elementwise calls,
// norms of rows and sums of columns can be in a chain; chains are found in the step's list of calls, in
// forward and backward alike. Each is written as C++, compiled, and called in place of its calls. It computes
// in the same order, so the results are bitwise equal.
#pragma once
#include <map>
#include <string>

#include "src/io/run_time_compiler.h"
#include "src/tensor/captured_step.h"

namespace gradus {

struct FusedChains {
  std::map<std::string, int64_t> chains;      // "add + layernorm_fwd": how many
  std::map<std::string, std::string> code;    // by kind
  int64_t calls_before = 0, calls_after = 0;  // of the step
  int64_t bytes_before = 0, bytes_after = 0;  // that the step's kernels move (Cost)
};

// Fuses calls of a step that replays: from now on its replays call the chains. On meta, where nothing is
// compiled, it finds the chains of cpu. The memory is the step's and one scratch buffer; the tensors between
// the calls of a chain keep their memory, even if nothing is written to it. Errors: those of the compiler
// (which must be for the step's device), or a step that does not replay; then the step is unchanged.
FusedChains fuse_chains(CapturedStep& step, RunTimeCompiler& compiler);

}  // namespace gradus
