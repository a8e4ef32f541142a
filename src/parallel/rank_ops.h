// Ops of ranks that divide a model. Each op is recorded on every rank's tape; its forward and its backward
// are collectives of `comm`, which all its ranks call in the same order. x (B,T,C) is the same on all t ranks
// ("whole"), or rank r has its tokens [r T/t, (r + 1) T/t) ("part").
//
// Tensor parallelism (Shoeybi et al. 2019, "Megatron-LM", sec. 3) uses the pair copy_to_ranks (f in the
// paper) and sum_from_ranks (g); sequence parallelism (Korthikanti et al. 2023, sec. 4.2.2) uses
// gather_tokens and scatter_sum.
#pragma once
#include "src/ops/ops.h"
#include "src/parallel/comm/comm.h"

namespace gradus {

// x, whole. backward: dx = the sum of all ranks' dy.
Tensor copy_to_ranks(Comm& comm, const Tensor& x);
// The sum of all ranks' x, plus the bias (C), if there is one. backward: dx = dy. If nothing else refers to
// x, the sum overwrites it.
Tensor sum_from_ranks(Comm& comm, Tensor x, const Tensor& bias = {});
// All ranks' parts, as one whole. backward: dx = this rank's part of the sum of all ranks' dy.
Tensor gather_tokens(Comm& comm, const Tensor& x);
// This rank's part of the sum of all ranks' x, plus the bias. backward: dx = the dy of all ranks; the bias'
// gradient is that of this rank's tokens.
Tensor scatter_sum(Comm& comm, const Tensor& x, const Tensor& bias = {});
// linear(gather_tokens(x), weight, bias), but the tape keeps the part x, and backward gathers it again.
Tensor gathered_linear(Comm& comm, const Tensor& x, const Tensor& weight, const Tensor& bias);
// This rank's part of x, whole; and the whole from all ranks' parts. For computations that are the same on
// every rank. backward: take_part returns the dy of all ranks, whole_tokens this rank's part of dy.
Tensor take_part(Comm& comm, const Tensor& x);
Tensor whole_tokens(Comm& comm, const Tensor& x);

// Each of N ranks has E / N of E experts. x (E,B,R,C): the rows that this rank's B sequences send to each
// expert; the result (E/N, N B, R, C): the rows for this rank's experts, with the sequences in rank order.
// from_experts() is the inverse. Each is an all-to-all; the backward of one is the other.
Tensor to_experts(Comm& comm, const Tensor& x);
Tensor from_experts(Comm& comm, const Tensor& x);

// Each rank has the part_of(V, rank, ranks) of a vocabulary of V. table: its rows. ids: in the whole
// vocabulary. Both functions return the same on all ranks.
Tensor embedding_of_part(Comm& comm, const Tensor& table, int64_t vocab, const Tensor& ids);
// cross_entropy() of logits (...,V) whose columns the ranks divide; they send a maximum and two sums per row.
Tensor cross_entropy_of_part(Comm& comm, const Tensor& logits, int64_t vocab, const Tensor& targets,
                             const Tensor& count = {});

}  // namespace gradus
