// Muon: its iteration against the recurrence in fp64 and by what it does to singular values, its whole update
// of matrices against fp64, and what it is for.
#include "src/optim/muon.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "src/nn/transformer.h"
#include "tests/devices.h"
#include "tests/optim/matrices.h"

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
INSTANTIATE_TEST_SUITE_P(Devices, L06_MuonOptimizer, ::testing::ValuesIn(devices_with_data()),
                         [](const auto& info) { return std::string(info.param); });

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
              << "the bound does not see that coefficient " << which << " is off by 1 %";
        }
      }
}

// X = U S V^T, S from 1 down to a tenth of it. U^T Y V must be as diagonal as the error bound says.
TEST_P(L06_MuonOptimizer, NewtonSchulzMovesSingularValuesTowards1AndKeepsTheirVectors) {
  for (const DType t : kProducts)
    for (const auto& [rows, cols] : kShapes) {
      const int64_t rank = std::min(rows, cols);
      const Matrix u = Matrix::orthonormal(rows, rank, 1), v = Matrix::orthonormal(cols, rank, 2);
      Matrix s{rank, rank, std::vector<double>(rank * rank)};
      for (int64_t i = 0; i < rank; ++i)
        s(i, i) = std::pow(10.0, -double(i) / double(std::max<int64_t>(rank - 1, 1)));
      const Matrix x = normalized(u * s * v.transposed()), rounded = rounded_to(t, x),
                   y = iterated(rounded, t, 5);
      const std::vector<double> before = singular_values(x), after = singular_values(y);
      EXPECT_NEAR(*std::min_element(before.begin(), before.end()) * (rank > 1 ? 10 : 1),
                  *std::max_element(before.begin(), before.end()), 1e-9)
          << "the test's own method";
      EXPECT_GE(*std::min_element(after.begin(), after.end()), 0.6) << text(t, x);
      EXPECT_LE(*std::max_element(after.begin(), after.end()), 1.3) << text(t, x);
      const Matrix among = u.transposed() * y * v;
      double aside = 0;
      for (int64_t i = 0; i < rank; ++i)
        for (int64_t j = 0; j < rank; ++j) aside += i == j ? 0 : among(i, j) * among(i, j);
      for (int64_t i = 0; i < rank; ++i) EXPECT_GE(among(i, i), 0.55) << text(t, x) << ": turned about";
      const double by_rounding_x = distance(recurrence(x, 5), recurrence(rounded, 5));
      EXPECT_LE(std::sqrt(aside), recurrence_error(rounded, t, 5) + by_rounding_x) << text(t, x);
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

// What a matrix, its momentum and the gradients, multiplied by the clip factor, are; and become, in fp64.
struct Update {
  double lr;
  Matrix clipped;
};
struct Trained {
  Matrix first, got;
  bool decay;
  std::vector<Update> updates;
};
struct Reference {
  Matrix w;
  double bound = 0;
};
// off: a factor of the momentum, of the decay, of the step.
Reference muon_of(const Trained& t, const MuonArgs& args, const std::array<double, 3>& off = {1, 1, 1}) {
  const double mu = off[0] * double(args.momentum), longer = double(std::max(t.first.rows, t.first.cols));
  Reference r{t.first};
  Matrix m = combined(0, r.w, 0, r.w);
  for (const Update& u : t.updates) {
    m = combined(mu, m, 1 - mu, u.clipped);
    const Matrix d = combined(mu, m, 1 - mu, u.clipped), direction = normalized(d);
    const double step = off[2] * 0.2 * std::sqrt(longer) * u.lr;
    const double decay = t.decay ? off[1] * u.lr * double(args.weight_decay) : 0;
    r.w = combined(1 - decay, r.w, -step, recurrence(direction, args.iterations));
    // The direction is off by 16 roundings, which each iteration can make 4 times as many, for that is the
    // largest derivative of a s + b s^3 + c s^5 on [0, 1.2]; w by 4 of its own.
    r.bound += step * (recurrence_error(direction, args.products, args.iterations) +
                       16 * std::pow(4.0, args.iterations) * 0x1p-24) +
               4 * 0x1p-24 * frobenius(r.w);
  }
  return r;
}

// Three updates, the second clipped, each with a learning rate of its own.
std::map<std::string, Trained> train(Device& device, const Precision& precision, const MuonArgs& args) {
  Parameters parameters;
  std::map<std::string, Trained> run;
  for (const auto& [name, rows, cols] :
       {std::tuple("h.0.wide", 12, 40), {"h.0.tall", 33, 9}, {"h.1.flat", 5, 7}}) {
    Parameter& p = parameters.add(name, {rows, cols}, precision);
    p.decay = p.name != "h.1.flat";
    const Matrix w = rounded_to(DType::F32, Matrix::random(rows, cols, 1 + uint64_t(rows)));
    Tensor to = p.kept();
    copy_from_host(to, w.x);
    p.round_master();
    run.insert({name, {w, w, p.decay, {}}});
  }
  Muon muon(parameters, args);
  for (uint64_t step = 1; step <= 3; ++step) {
    const double lr = float(0.3 / double(step));
    for (Parameter& p : parameters) {
      const Matrix g = rounded_to(DType::F32, Matrix::random(p.value.shape()[0], p.value.last(), 100 * step));
      p.leaf.grad = from_host(device, g.x, p.value.shape(), DType::F32, Kind::Gradient, "g");
      p.leaf.empty = false;
      run.at(p.name).updates.push_back({lr, g});
    }
    if (step == 2) muon.clip_grad_norm(0.5);
    const double clip = step == 2 ? muon.scalars().clip_factor : 1;
    EXPECT_EQ(clip < 1, step == 2);
    for (auto& [name, t] : run) t.updates.back().clipped = combined(clip, t.updates.back().clipped, 0, t.got);
    muon.step(lr);
  }
  for (const Parameter& p : parameters) {
    run.at(p.name).got.x = to_host<double>(p.kept());
    EXPECT_EQ(rounded_to(precision.value, run.at(p.name).got).x, to_host<double>(p.value));
  }
  return run;
}

TEST_P(L06_MuonOptimizer, MuonsUpdateIsMomentumMadeOrthogonal) {
  for (const Precision& precision : {uniform(DType::F32), mixed(DType::BF16)})
    for (const int iterations : {5, 2}) {
      const MuonArgs args{
          .momentum = 0.8f, .weight_decay = 0.3f, .iterations = iterations, .products = DType::F32};
      for (const auto& [name, t] : train(context.device, precision, args)) {
        const Reference r = muon_of(t, args);
        EXPECT_LE(distance(t.got, r.w), r.bound) << name << " in " << name_of(precision.value);
        for (size_t place = t.decay ? 0 : 2; place < 3; ++place) {
          std::array<double, 3> off = {1, 1, 1};
          off[place] = 0.99;
          const Reference wrong = muon_of(t, args, off);
          EXPECT_GT(distance(r.w, wrong.w), 2 * r.bound)
              << "1 % off in place " << place << " would not be seen";
        }
      }
    }
}

// In bf16, as it is by default: from weights of 0, one step of a gradient whose singular values are alike.
TEST_P(L06_MuonOptimizer, AStepIsAsLargeAsItShouldBeInEveryRecipe) {
  for (const std::string_view recipe : kRecipes)
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>(12, 40), {40, 12}, {16, 16}}) {
      Parameters parameters;
      Parameter& p = parameters.add("h.0.w", {rows, cols}, precision_recipe(recipe));
      Tensor to = p.kept();
      copy_from_host(to, std::vector<double>(rows * cols, 0.0));
      p.round_master();
      const int64_t rank = std::min(rows, cols);
      const Matrix g = Matrix::orthonormal(rows, rank, 1) * Matrix::orthonormal(cols, rank, 2).transposed();
      p.leaf.grad =
          from_host(context.device, g.x, p.value.shape(), p.precision.gradient, Kind::Gradient, "g");
      p.leaf.empty = false;
      Muon(parameters).step(0.5);
      const Matrix w{rows, cols, to_host<double>(p.kept())};
      for (const double sigma : singular_values(w)) {
        const double size = sigma / (0.2 * std::sqrt(double(std::max(rows, cols))) * 0.5);
        EXPECT_TRUE(size >= 0.6 && size <= 1.3) << recipe << ", " << rows << " x " << cols << ": " << size;
      }
      EXPECT_LT(std::inner_product(w.x.begin(), w.x.end(), g.x.begin(), 0.0), 0) << "downhill";
    }
}

}  // namespace
}  // namespace gradus
