// The calls that chains are made of, and the C++ of a chain.
#pragma once
#include <string>
#include <vector>

#include "src/tensor/kernel_calls.h"

namespace gradus {

// Whose code: the CPU's, or that of kernels/cuda, which emu runs, too.
enum class ChainTarget : uint8_t { Cpu, Gpu };

// How an entry is computed in a chain. The roles of its inputs and outputs, in their order: n, an element of
// the rows each; c, one of each column (as an output, the sum over rows); s, the two statistics of each row.
// `code` is a number, of x0, x1 ... (elements, in the accumulation type A), a0 (the entry's number) and w (a
// random word); or, where it ends in ';', statements over whole rows, of pointers x0 ... and y0 ... .
struct ChainRule {
  const char *entry, *inputs, *outputs, *code, *gpu_code;  // nullptr: the GPU's chains do not have it
  bool whole_rows() const;
};
const ChainRule* chain_rule(const std::string& entry, ChainTarget);  // nullptr: no chain has it

struct ChainCall {
  const ChainRule* rule;
  CallArguments arguments;
  std::vector<int> inputs,
      outputs;    // which of KernelChain::p; one that is nullptr is an output that is not wanted
  int first_sum;  // of the chain's sums over rows, the first of this call
  bool stored;    // whether its element is read when the chain is over, or by whole rows
};
// Defines gradus_chain, a KernelChain::Function, for activations of type T.
std::string chain_code(const std::vector<ChainCall>& calls, DType T, ChainTarget);

}  // namespace gradus
