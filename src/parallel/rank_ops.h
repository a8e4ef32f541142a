// The ops of ranks that share a model: each is recorded on every rank's tape, and its forward and its
// backward are collectives of `comm`, which all ranks of it call in the same order. x is (B,T,C), the same on
// all ranks
// ("whole"), or of each rank the tokens [rank T/t, (rank + 1) T/t) ("part").
//
// Tensor parallelism (Shoeybi et al. 2019, "Megatron-LM", sec. 3) has the pair copy_to_ranks, called f there,
// and sum_from_ranks, g; sequence parallelism (Korthikanti et al. 2023, sec. 4.2.2) gather_tokens and
// scatter_sum.
#pragma once
#include "src/ops/ops.h"
#include "src/parallel/comm/comm.h"

namespace gradus {

// x, whole. backward: dx = the sum of all ranks' dy.
Tensor copy_to_ranks(Comm& comm, const Tensor& x);
// The sum of all ranks' x, and the bias (C), if there is one. backward: dx = dy. An x that nothing else
// refers to becomes the sum.
Tensor sum_from_ranks(Comm& comm, Tensor x, const Tensor& bias = {});
// All tokens of the ranks' parts. backward: of the sum of all ranks' dy this rank's part.
Tensor gather_tokens(Comm& comm, const Tensor& x);
// Of the sum of all ranks' x this rank's part, and the bias. backward: dx = the dy of all ranks; the bias'
// gradient is of this rank's tokens.
Tensor scatter_sum(Comm& comm, const Tensor& x, const Tensor& bias = {});
// linear(gather_tokens(x), weight, bias), of which the tape keeps the part: backward gathers x once more.
Tensor gathered_linear(Comm& comm, const Tensor& x, const Tensor& weight, const Tensor& bias);
// Of x, whole, this rank's part, and back: for what every rank computes alike. backward: of take_part the dy
// of all ranks, of whole_tokens this rank's part of dy.
Tensor take_part(Comm& comm, const Tensor& x);
Tensor whole_tokens(Comm& comm, const Tensor& x);

// Of E experts each rank has E / N. x (E,B,R,C): what this rank's B sequences send to each expert; the result
// (E/N, N B, R, C): what the experts of this rank get, the sequences in rank order. from_experts() is its
// inverse. An all-to-all each; the backward of one is the other.
Tensor to_experts(Comm& comm, const Tensor& x);
Tensor from_experts(Comm& comm, const Tensor& x);

// Of a vocabulary of V each rank has the part_of(V, rank, ranks). table: its rows. ids: of the whole. What
// both return is the same on all ranks.
Tensor embedding_of_part(Comm& comm, const Tensor& table, int64_t vocab, const Tensor& ids);
// cross_entropy() of logits (...,V) whose columns are shared out: of each row a maximum and two sums travel.
Tensor cross_entropy_of_part(Comm& comm, const Tensor& logits, int64_t vocab, const Tensor& targets,
                             const Tensor& count = {});

}  // namespace gradus
