// Runs on ranks beside runs on one device: rows and checks of the report.
#pragma once
#include "lessons/19_tensor_parallel/runs.h"
#include "src/train/report.h"

namespace gradus {

struct Compared {
  RanksArgs args;
  const ParallelTask& task;
  Report& report;
  std::function<TokensRun(Comm&, const UpdateBy&)> train = {};

  // Trains on `ranks` ranks, and adds a row. Of processes there is only this one's run.
  std::vector<TokensRun> run(const std::string& name, int64_t ranks, const UpdateBy& update);
  // All that the ranks have must be what `alone` has, to the bit.
  void equal(const std::string& name, int64_t ranks, const TokensRun& alone);
  // By SGD; gradients of the first step may be off by so much of their tensor's norm.
  std::vector<TokensRun> near(const std::string& name, int64_t ranks, const TokensRun& alone, double most);
};

}  // namespace gradus
