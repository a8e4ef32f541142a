// A captured step of a few ops, run with its calls fused and not fused, and the results of both.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/optim/optimizer.h"
#include "src/train/chains.h"
#include "tests/train/captured_testing.h"

namespace gradus {

// One folder for all tests of the program, which is removed at the end: each chain is compiled once.
inline RunTimeCompiler& shared_compiler() {
  struct Shared {
    const std::string folder = ::testing::TempDir() + "gradus-chains-" + std::to_string(::getpid());
    RunTimeCompiler compiler{folder, RunTimeCompiler::built_with("cpu")};  // also for emu
    ~Shared() {
      std::error_code none;
      std::filesystem::remove_all(folder, none);
    }
  };
  static Shared shared;
  return shared.compiler;
}

// The tensors that ops may use; x is filled for each step.
struct OpsStep {
  using Ops = std::function<Tensor(OpsStep&)>;
  OpsStep(const Shape& shape, DType dtype, Ops ops, int passes)
      : ops(std::move(ops)),
        passes(passes),
        x(current().device, shape, dtype, Kind::Data, "x"),
        dy(current().device, shape, dtype, Kind::Data, "dy") {
    const Shape last{shape[-1]};
    std::vector<std::pair<const char*, Shape>> all{{"weight", shape}, {"gamma", last}, {"beta", last}};
    if (shape.rank() == 3) all.push_back({"positions", {shape[1], shape[2]}});
    for (const auto& [name, of] : all) {
      Parameter& p = parameters.add(name, of, uniform(dtype));
      if (x.device().has_data()) p.assign(random(of.numel(), 1 + parameters.size()));
    }
    if (x.device().has_data()) copy_from_host(dy, random(dy.numel(), 9));
    if (x.device().has_data()) one.assign({1});
    sgd.set_learning_rate(0);
  }
  static std::vector<double> random(int64_t n, uint64_t seed) {
    Rng rng(seed, 0);
    std::vector<double> values(static_cast<size_t>(n));
    for (double& v : values) v = double(rng.below(4096)) / 1024 - 2;
    return values;
  }
  const Tensor& parameter(const char* name) { return parameters.find(name).value; }
  // A step needs an update: of a number that the ops do not use. The gradients of the ops are kept.
  void step() {
    y = {}, kept.clear();
    parameters.zero_grad();
    for (int pass = 0; pass < passes; ++pass) {
      Tape tape;
      y = ops(*this);
      if (y.slot.wanted()) tape.backward(y, dy);
      y = y.detach();
    }
    Tape tape;
    tape.backward(scale(one.value, 0));
    sgd.step();
    updated.zero_grad();
  }
  void run(int64_t number) {
    if (x.device().has_data()) copy_from_host(x, random(x.numel(), 100 + uint64_t(number)));
    captured.run({x}, [this] { step(); });
  }

  Ops ops;
  int passes;
  Tensor x, dy, y;
  std::vector<Tensor> kept;  // tensors that the ops keep until after the step
  Parameters parameters, updated;
  Parameter& one = updated.add("one", {1}, {});
  Sgd sgd{updated};
  CapturedStep captured;
};

struct OpsCase {
  Shape shape;
  OpsStep::Ops ops;
  DType dtype = DType::F32;
  int passes = 1;  // forward and backward passes per step
  const char* device = "cpu";
};
struct OpsEnd {
  Numbers results;  // y and the kept tensors of each step; then the last gradients
  FusedChains fused;
};
inline OpsEnd run_ops(const OpsCase& of, bool fuses) {
  Context context(of.device, 3);
  OpsStep step(of.shape, of.dtype, of.ops, of.passes);
  OpsEnd end;
  for (int64_t s = 0; s < 7; ++s) {
    if (s == 3 && fuses) end.fused = fuse_chains(step.captured, shared_compiler());
    step.run(s);
    end.results.push_back(to_host<double>(step.y));
    for (const Tensor& kept : step.kept) end.results.push_back(to_host<double>(kept));
  }
  for (const Parameter& p : step.parameters)
    if (p.leaf.grad.defined()) end.results.push_back(to_host<double>(p.leaf.grad));
  return end;
}
// Checks that the ops have the same results, fused and not fused. Returns what was fused.
inline FusedChains expect_same_to_the_bit(const OpsCase& of, const std::string& why = "") {
  const OpsEnd plain = run_ops(of, false), fused = run_ops(of, true);
  EXPECT_EQ(plain.results.size(), fused.results.size());
  for (size_t i = 0; i < std::min(plain.results.size(), fused.results.size()); ++i) {
    const auto& [now, then] = std::mismatch(fused.results[i].begin(), fused.results[i].end(),
                                            plain.results[i].begin(), plain.results[i].end());
    if (now == fused.results[i].end()) continue;
    ADD_FAILURE() << of.device << ", shape " << of.shape << " " << name_of(of.dtype) << ": result " << i
                  << " of " << plain.results.size() << " differs first in element "
                  << now - fused.results[i].begin() << ": " << *now << " fused, " << *then << " not fused. "
                  << why;
    break;
  }
  EXPECT_LT(fused.fused.calls_after, fused.fused.calls_before) << "nothing was fused";
  EXPECT_LT(fused.fused.bytes_after, fused.fused.bytes_before);
  return fused.fused;
}
using Names = std::map<std::string, int64_t>;

}  // namespace gradus
