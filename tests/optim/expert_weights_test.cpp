// Optimizers of matrices and the weights of experts, which have three dimensions.
#include <map>

#include "src/nn/transformer.h"
#include "src/optim/adamw_8bit.h"
#include "src/optim/muon.h"
#include "tests/devices.h"
#include "tests/optim/optim_testing.h"

namespace gradus {
namespace {

struct L21_ExpertWeights : ::testing::TestWithParam<const char*> {
  Context context{GetParam(), 3};
};
ON_DEVICES_WITH_DATA(L21_ExpertWeights);

TEST_P(L21_ExpertWeights, DecayAndAreNotForMuon) {
  const Transformer model({.vocab = 11,
                           .context = 4,
                           .layers = 1,
                           .heads = 2,
                           .channels = 8,
                           .biases = false,
                           .mlp_channels = 6,
                           .experts = 3});
  std::vector<std::string> chosen;
  for (const Parameter& p : model.parameters) {
    if (Muon::is_for(p)) chosen.push_back(p.name);
    EXPECT_EQ(p.decay, p.name.find("ln_") == p.name.npos) << p.name;
  }
  EXPECT_EQ(chosen, (std::vector<std::string>{"h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight",
                                              "h.0.mlp.router.weight"}));
}

// A weight of this shape after two steps, the second with clipping.
template <class O, class... Args>
std::vector<double> updated(const std::string& name, const Shape& shape, const Args&... args) {
  Parameters parameters;
  Parameter& p = parameters.add(name, shape, mixed(DType::BF16));
  p.assign(normal(shape.numel(), 1));
  O optimizer(parameters, args...);
  for (const uint64_t step : {2, 3}) {
    set_gradient(p, normal(shape.numel(), step));
    if (step == 3) optimizer.clip_grad_norm(0.5);
    optimizer.step(0.1);
  }
  return to_host<double>(p.kept());
}

TEST_P(L21_ExpertWeights, AreUpdated) {
  const std::string name = "h.0.mlp.experts.c_fc.weight";
  const AdamWArgs args{.beta1 = 0.8f, .weight_decay = 0.3f};
  EXPECT_EQ(updated<Muon>(name, {3, 5, 70}, MuonArgs{.others = args}), updated<AdamW>(name, {3, 5, 70}, args))
      << "Muon must leave expert weights to AdamW";
  EXPECT_NE(updated<Muon>(name, {15, 70}, MuonArgs{.others = args}), updated<AdamW>(name, {15, 70}, args))
      << "Muon must not leave matrices to AdamW, or the first comparison proves nothing";
  EXPECT_EQ(updated<AdamW>(name, {3, 5, 70}, args), updated<AdamW>(name, {15, 70}, args));
  EXPECT_EQ(updated<AdamW8bit>(name, {3, 5, 70}), updated<AdamW8bit>(name, {15, 70}));
  EXPECT_EQ(updated<Adafactor>(name, {3, 5, 70}), updated<Adafactor>(name, {15, 70}))
      << "Adafactor must treat all experts as one matrix with common columns";
}

}  // namespace
}  // namespace gradus
