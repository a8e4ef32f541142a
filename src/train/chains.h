// Chains: kernel calls of a captured step that can be one. A call that reads or writes an element of a
// tensor after another had it in hand waits for memory twice; one loop over both waits once, and what only
// the second reads is never stored. So calls that work element by element, and norms of rows and sums of
// columns beside them, are found in the step's list, forward and backward alike; each such chain is written
// as C++, compiled and called instead. Nothing is computed in another order, so the results are the same to
// the bit.
#pragma once
#include <map>
#include <string>

#include "src/io/run_time_compiler.h"
#include "src/tensor/captured_step.h"

namespace gradus {

struct FusedChains {
  std::map<std::string, int64_t> chains;      // "add + layernorm_fwd": how many
  std::map<std::string, std::string> code;    // of each kind
  int64_t calls_before = 0, calls_after = 0;  // of the step
  int64_t bytes_before = 0, bytes_after = 0;  // that its kernels move (Cost)
};

// For a step that replays; on meta, where nothing is compiled, those of cpu. From now on the replays make the
// chains' calls. The memory is the step's and one scratch buffer; the tensors between the calls of a chain
// keep their memory, though nothing may be written there. Errors: the compiler's (it must be one for the
// step's device), or the step does not replay; then it goes on as before.
FusedChains fuse_chains(CapturedStep& step, RunTimeCompiler& compiler);

}  // namespace gradus
