// The calls that a chain can contain, and the C++ code of a chain.
#pragma once
#include <string>
#include <vector>

#include "src/tensor/kernel_calls.h"

namespace gradus {

// Code for the CPU, or as in kernels/cuda, which emu also runs.
enum class ChainTarget : uint8_t { Cpu, Gpu };

// How an entry is computed in a chain. inputs, outputs: the roles of its tensors, in order: n, one element
// per element of the rows; c, one per column (as an output, the sum over rows); s, the two statistics of each
// row. `code` is an expression of x0, x1 ... (elements, in the accumulation type A), a0 (the entry's number)
// and w (a random word); or, if it ends in ';', statements over whole rows, with pointers x0 ... and y0 ... .
struct ChainRule {
  const char *entry, *inputs, *outputs, *code, *gpu_code;  // gpu_code nullptr: not for GPUs
  bool whole_rows() const;
};
const ChainRule* chain_rule(const std::string& entry, ChainTarget);  // nullptr: no chain can have it

struct ChainCall {
  const ChainRule* rule;
  CallArguments arguments;
  std::vector<int> inputs,
      outputs;    // indices into KernelChain::p; nullptr there: an output that is not wanted
  int first_sum;  // index of this call's first sum over rows, among the chain's
  bool stored;    // whether its element is read after the chain, or by a call over whole rows
};
// Code that defines gradus_chain, a KernelChain::Function, for activations of type T.
std::string chain_code(const std::vector<ChainCall>& calls, DType T, ChainTarget);

}  // namespace gradus
