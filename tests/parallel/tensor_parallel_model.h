// For tests of tensor parallelism: a transformer on ranks.
#pragma once
#include "src/parallel/parts.h"
#include "src/parallel/tensor_parallel.h"
#include "tests/parallel/model_on_ranks.h"

namespace gradus {

constexpr Sequence kSequences[] = {Sequence::Whole, Sequence::KeepGathered, Sequence::GatherAgain};
inline const char* text_of(Sequence s) {
  return s == Sequence::Whole ? "whole" : s == Sequence::KeepGathered ? "keep gathered" : "gather again";
}

struct ModelOfRanks {
  Transformer model;
  TensorParallel parallel;
  ModelOfRanks(Comm& comm, const TransformerConfig& c, Sequence sequence)
      : model(c, Allocate::Later), parallel(comm, model, sequence) {
    model.initialize(3, &assign_part);
  }
};
inline void expect_as_on_one_device(const ModelSetting& set, Comm& comm, Sequence sequence,
                                    const Learned& plain, Allowed allowed, const std::string& what) {
  ModelOfRanks m(comm, set.model, sequence);
  const Learned got = learn(set, m.model, [&] { m.parallel.sum_gradients(); });
  if (comm.size() == 1) allowed = {0, 0};
  expect_learned(got, plain, m.model, allowed,
                 set.name + ", " + set.device + ", " + text_of(sequence) + what + ", rank " +
                     std::to_string(comm.rank()) + " of " + std::to_string(comm.size()));
}
inline void expect_equals_one_device(const ModelSetting& set,
                                     const std::vector<int64_t>& all_ranks = {1, 2, 4},
                                     const Allowed& allowed = {}) {
  const Learned plain = learn_on_one_device(set);
  for (const int64_t ranks : all_ranks)
    for (const Sequence sequence : kSequences)
      run_cluster({.ranks = ranks, .device = set.device, .seed = 7},
                  [&](Comm& comm) { expect_as_on_one_device(set, comm, sequence, plain, allowed, ""); });
}

}  // namespace gradus
