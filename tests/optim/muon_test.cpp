// Muon: its iteration compared with the recurrence in fp64, its whole update of matrices, and which
// parameters it updates.
#include "src/optim/muon.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "src/nn/transformer.h"
#include "tests/devices.h"
#include "tests/optim/matrices.h"
#include "tests/optim/optim_testing.h"

namespace gradus {
namespace {

struct L06_MuonOptimizer : ::testing::TestWithParam<const char*> {
  Context context{GetParam(), 3};
  Matrix iterated(const Matrix& x, DType t, int iterations) {
    const Tensor at = from_host(context.device, x.x, {x.rows, x.cols}, t, Kind::Temporary, "x");
    const Tensor y = newton_schulz(at, iterations);
    EXPECT_EQ(y.shape(), at.shape());
    EXPECT_EQ(y.dtype(), t);
    return {x.rows, x.cols, to_host<double>(y)};
  }
};
ON_DEVICES_WITH_DATA(L06_MuonOptimizer);

constexpr DType kProducts[] = {DType::F32, DType::BF16};
constexpr std::pair<int64_t, int64_t> kShapes[] = {{8, 24},  {24, 8}, {16, 16}, {33, 65},
                                                   {65, 33}, {1, 20}, {20, 1},  {1, 1}};
std::string text(DType t, const Matrix& x) {
  return std::string(name_of(t)) + ", " + std::to_string(x.rows) + " x " + std::to_string(x.cols);
}

TEST_P(L06_MuonOptimizer, NewtonSchulzIsTheRecurrence) {
  for (const DType t : kProducts)
    for (const auto& [rows, cols] : kShapes)
      for (const int iterations : {0, 1, 2, 5}) {
        const Matrix x = rounded_to(t, normalized(Matrix::random(rows, cols, 1)));
        const Matrix got = iterated(x, t, iterations);
        const double bound = recurrence_error(x, t, iterations);
        EXPECT_LE(distance(got, recurrence(x, iterations)), bound) << text(t, x) << " by " << iterations;
        for (size_t which = 0; which < 3 && t == DType::F32 && iterations > 0; ++which) {
          Coefficients off = kCoefficients;
          off[which] *= 1.01;
          EXPECT_GT(distance(got, recurrence(x, iterations, off)), bound)
              << "a 1 % error of coefficient " << which << " is within the bound";
        }
      }
}

TEST_P(L06_MuonOptimizer, MuonIsForTheMatricesOfBlocks) {
  for (const char* name : {"gpt2", "bert-base", "polyglot-ko-1.3b"}) {
    TransformerConfig c = transformer_config(name);
    c.layers = 2, c.channels = 8, c.heads = 2, c.vocab = 20, c.context = 4;
    if (c.rotary > 0) c.rotary = 2;
    if (c.output_head == OutputHead::Pooled) c.labels = 3;
    const Transformer model(c);
    std::vector<std::string> chosen, want;
    for (const Parameter& p : model.parameters)
      if (Muon::is_for(p)) chosen.push_back(p.name);
    for (const char* block : {"h.0.", "h.1."})
      for (const char* matrix : {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"})
        want.push_back(block + std::string(matrix) + ".weight");
    EXPECT_EQ(chosen, want) << name;
  }
}

// With 0 iterations the direction itself is the orthogonal matrix. Three updates with different learning
// rates, the second with clipping; "flat" does not decay.
TEST_P(L06_MuonOptimizer, AnUpdateIsMomentumMadeOrthogonal) {
  const MuonArgs args{.momentum = 0.8f, .weight_decay = 0.3f, .iterations = 0, .products = DType::F32};
  const double mu = args.momentum;
  for (const Precision& precision : {uniform(DType::F32), mixed(DType::BF16)}) {
    Parameters parameters;
    std::map<std::string, Matrix> want, momentum;
    for (const auto& [name, rows, cols] :
         {std::tuple("h.0.wide", 12, 40), {"h.0.tall", 33, 9}, {"h.1.flat", 5, 7}}) {
      Parameter& p = parameters.add(name, {rows, cols}, precision);
      p.decay = p.name != "h.1.flat";
      want.insert({name, rounded_to(DType::F32, Matrix::random(rows, cols, 1 + uint64_t(rows)))});
      momentum.insert({name, {rows, cols, std::vector<double>(size_t(rows * cols))}});
      p.assign(want.at(name).x);
    }
    Muon muon(parameters, args);
    for (uint64_t step = 1; step <= 3; ++step) {
      const double lr = float(0.3 / double(step));
      std::map<std::string, Matrix> gradients;
      for (Parameter& p : parameters) {
        const Matrix g = Matrix::random(p.value.shape()[0], p.value.last(), 100 * step);
        set_gradient(p, g.x);
        gradients.insert({p.name, rounded_to(DType::F32, g)});
      }
      if (step == 2) muon.clip_grad_norm(0.5);
      const double clip = step == 2 ? muon.scalars().clip_factor : 1;
      EXPECT_EQ(clip < 1, step == 2);
      muon.step(lr);
      for (const Parameter& p : parameters) {
        Matrix &w = want.at(p.name), &m = momentum.at(p.name);
        const Matrix& g = gradients.at(p.name);
        m = combined(mu, m, (1 - mu) * clip, g);
        const double decay = p.decay ? lr * double(args.weight_decay) : 0,
                     size = 0.2 * std::sqrt(double(std::max(w.rows, w.cols))) * lr;
        w = combined(1 - decay, w, -size, normalized(combined(mu, m, (1 - mu) * clip, g)));
        const Matrix got{w.rows, w.cols, to_host<double>(p.kept())};
        EXPECT_LE(distance(got, w), 1e-6 * frobenius(w)) << p.name << ", step " << step;
        EXPECT_EQ(rounded_to(precision.value, got).x, to_host<double>(p.value)) << p.name;
      }
    }
  }
}

// In bf16, the default: from weights of 0, one step with a gradient whose singular values are equal; they
// stay equal. Clipping the gradient does not change the size of the step.
TEST_P(L06_MuonOptimizer, AStepIsAsLargeAsItShouldBeInEveryRecipe) {
  for (const std::string_view recipe : kRecipes)
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>(12, 40), {40, 12}, {16, 16}}) {
      Parameters parameters;
      Parameter& p = parameters.add("h.0.w", {rows, cols}, precision_recipe(recipe));
      p.assign(std::vector<double>(rows * cols, 0.0));
      const int64_t rank = std::min(rows, cols);
      const Matrix g = Matrix::orthonormal(rows, rank, 1) * Matrix::orthonormal(cols, rank, 2).transposed();
      set_gradient(p, g.x);
      Muon muon(parameters);
      muon.clip_grad_norm(0.5);
      muon.step(0.5);
      const Matrix w{rows, cols, to_host<double>(p.kept())};
      const double along = std::inner_product(w.x.begin(), w.x.end(), g.x.begin(), 0.0) / double(rank),
                   size = -along / (0.2 * std::sqrt(double(std::max(rows, cols))) * 0.5);
      EXPECT_TRUE(size >= 0.6 && size <= 1.3) << recipe << ", " << rows << " x " << cols << ": " << size;
      EXPECT_LE(distance(w, combined(along, g, 0, g)), 0.05 * frobenius(w))
          << "the step must have the direction of the negative gradient";
    }
}

}  // namespace
}  // namespace gradus
