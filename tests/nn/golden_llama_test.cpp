// Llama and Mixtral compared with Hugging Face's transformers (tests/golden/make_llama.py), in fp32: names
// and shapes of the weights, logits, loss and every gradient; for Mixtral also the balance loss.
#include "tests/nn/golden_model_testing.h"

namespace gradus {
namespace {

TransformerConfig llama(int64_t vocab, int64_t heads, int64_t kv_heads, double base, int64_t mlp_channels) {
  return {.vocab = vocab,
          .context = 24,
          .layers = 2,
          .heads = heads,
          .channels = 8 * heads,
          .output_head = OutputHead::Untied,
          .activation = swiglu,
          .rotary = 8,
          .norm_eps = 1e-5,
          .norm = NormKind::Rms,
          .biases = false,
          .kv_heads = kv_heads,
          .rotary_base = base,
          .mlp_channels = mlp_channels};
}
TransformerConfig mixtral() {
  TransformerConfig c = llama(37, 4, 2, 1e6, 24);
  c.experts = 4, c.chosen = 2;
  return c;
}

struct File {
  const char* path;
  TransformerConfig config;
};
const File kLlama{"tests/golden/llama.safetensors", llama(37, 6, 2, 1e4, 60)},
    kLlama3{"tests/golden/llama3.safetensors", llama(29, 3, 1, 5e5, 40)},
    kMixtral{"tests/golden/mixtral.safetensors", mixtral()};
const Shape kBatch{2, 13};

// The largest error of a logit, relative to the largest logit.
double logits_error(const Transformer& model, Golden& file) {
  const Tensor logits = model.logits(file.read_ids("ids", kBatch));
  const std::vector<double> want = file.read("logits", {2, 13, model.config.vocab}),
                            got = to_host<double>(logits);
  double error = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error = std::max(error, std::abs(got.at(i) - want[i]));
    largest = std::max(largest, std::abs(want[i]));
  }
  return error / largest;
}

struct L21_Golden : GoldenTest {
  void expect_golden(const File& f) {
    Transformer model(with_attention(f.config));
    Golden file(f.path);
    file.read_weights(model.parameters);
    const auto& tensors = file.file.tensors();
    EXPECT_EQ(std::count_if(tensors.begin(), tensors.end(),
                            [](const auto& t) { return t.name.starts_with("weight."); }),
              int64_t(model.parameters.size()))
        << "a weight of the file belongs to no parameter";
    EXPECT_LE(logits_error(model, file), 1e-5);
    Tape tape;
    const Tensor loss = model.loss(file.read_ids("ids", kBatch), file.read_ids("targets", kBatch));
    const double expected = file.read("loss", {1})[0];
    EXPECT_NEAR(item(loss), expected, 1e-6 * expected);
    tape.backward(loss);
    file.expect_gradients(model.parameters);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, L21_Golden, kDevicesAndAttentions, kName);

TEST_P(L21_Golden, Llama) { expect_golden(kLlama); }
TEST_P(L21_Golden, LlamaWithOneKeyValueHeadAndTheBaseOfLlama3) { expect_golden(kLlama3); }
TEST_P(L21_Golden, Mixtral) { expect_golden(kMixtral); }

// loss = cross-entropy + balance * (sum over layers of the mean over sequences).
TEST_P(L21_Golden, MixtralsBalanceLoss) {
  TransformerConfig config = with_attention(kMixtral.config);
  config.balance = 0.5;
  Transformer model(config);
  Golden file(kMixtral.path);
  file.read_weights(model.parameters);
  Tape tape;
  const Tensor loss = model.loss(file.read_ids("ids", kBatch), file.read_ids("targets", kBatch));
  const double expected = file.read("loss", {1})[0] + 0.5 * file.read("balance_loss", {1})[0];
  EXPECT_NEAR(item(loss), expected, 1e-6 * expected);
  tape.backward(loss);
  for (const char* name : {"wte.weight", "h.0.mlp.router.weight", "h.1.mlp.router.weight"}) {
    const Parameter& p = model.parameters.find(name);
    std::vector<double> error = to_host<double>(p.leaf.grad);
    const std::vector<double> of_loss = file.read(std::string("grad.") + name, p.value.shape()),
                              of_balance = file.read(std::string("balance_grad.") + name, p.value.shape());
    for (size_t i = 0; i < error.size(); ++i) error[i] -= of_loss[i] + 0.5 * of_balance[i];
    EXPECT_LE(Golden::norm(error), 1e-4 * Golden::norm(of_balance)) << name;
  }
}

// In each parameter, one weight is changed by 1 %: the one with the largest effect.
TEST(L21_GoldenOnCpu, AWeightWrongByOnePercentIsNoticed) {
  Context context("cpu");
  for (const File& f : {kLlama, kLlama3, kMixtral}) {
    Transformer model(f.config);
    Golden file(f.path);
    file.read_weights(model.parameters);
    for (Parameter& p : model.parameters) {
      const std::vector<double> right = to_host<double>(p.value),
                                gradient = file.read("grad." + p.name, p.value.shape());
      size_t most = 0;
      for (size_t i = 0; i < right.size(); ++i)
        if (std::abs(right[i] * gradient[i]) > std::abs(right[most] * gradient[most])) most = i;
      std::vector<double> wrong = right;
      wrong[most] *= 1.01;
      copy_from_host(p.value, wrong);
      EXPECT_GT(logits_error(model, file), 1e-5) << f.path << ": " << p.name << " element " << most;
      copy_from_host(p.value, right);
    }
    EXPECT_LE(logits_error(model, file), 1e-5) << f.path;
  }
}

}  // namespace
}  // namespace gradus
