// Context parallelism (src/parallel/context_parallel.h, ring_attention.h).
#include "src/parallel/context_parallel.h"

#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/data_parallel.h"
#include "src/parallel/shards.h"
#include "src/parallel/tensor_parallel.h"
#include "src/train/dummy.h"
#include "tests/parallel/model_on_ranks.h"
#include "tests/parallel/zigzag_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

std::vector<double> train(const TransformerConfig& c, int64_t steps, Comm* comm) {
  Transformer model(c);
  model.initialize(3);
  if (comm) share_context(*comm, model);
  Sgd sgd(model.parameters);
  std::vector<double> losses;
  for (int64_t step = 0; step < steps; ++step) {
    const DummyBatch batch = dummy_batch(c, 2, c.context, uint64_t(step + 1));
    model.parameters.zero_grad();
    Tape tape;
    Tensor loss;
    if (comm) {
      const Tensor count = from_host(current().device, std::vector<double>{double(batch.ids.numel())}, {1},
                                     DType::F32, Kind::Data, "count");
      const TextBatch own =
          chunks_of({2, c.context, to_host<int32_t>(batch.ids), to_host<int32_t>(batch.targets)},
                    comm->rank(), comm->size());
      loss =
          model.loss(on_device(own.ids, own.T, "ids"), on_device(own.targets, own.T, "targets"), {}, count);
    } else {
      loss = batch.loss(model);
    }
    tape.backward(loss);
    if (comm) sum_gradients(*comm, model.parameters);
    sgd.step(0.1);
    losses.push_back(comm ? sum_over_ranks(*comm, item(loss)) : item(loss));
  }
  return losses;
}

TEST(L19_ContextParallel, ThinLine) {
  for (const Mask mask : {Mask::Causal, Mask::None}) {
    const TransformerConfig c{
        .vocab = 30, .context = 16, .layers = 2, .heads = 4, .channels = 16, .mask = mask};
    std::vector<double> plain;
    {
      Context context("cpu", 7);
      plain = train(c, 5, nullptr);
    }
    for (const int64_t ranks : {1, 2, 4}) {
      std::vector<double> ours;
      run_cluster({.ranks = ranks, .seed = 7}, [&](Comm& comm) {
        const std::vector<double> mine = train(c, 5, &comm);
        if (comm.rank() == 0) ours = mine;
      });
      ASSERT_EQ(ours.size(), plain.size());
      for (size_t i = 0; i < plain.size(); ++i)
        EXPECT_NEAR(ours[i], plain[i], 1e-6) << ranks << " ranks, step " << i;
    }
  }
}

// Losses and gradients, summed over all ranks, are those of one device.
void expect_on_rank(ModelSetting set, Comm& comm, Transformer& model, const Learned& plain,
                    const Allowed& allowed, Comm* data = nullptr) {
  set.parts = comm.size();
  set.take_part = [&comm, B = set.B, T = set.T](HostBatch& b) {
    for (std::vector<int32_t>* x : {&b.ids, &b.targets}) *x = chunks(*x, B, T, 1, comm.rank(), comm.size());
  };
  const auto sum = [&] {
    sum_gradients(comm, model.parameters);
    if (data) sum_gradients(*data, model.parameters);
  };
  Learned got = data ? learn(set, model, sum, set.B / 2 * data->rank(), 2) : learn(set, model, sum);
  for (double& loss : got.losses) {
    loss = sum_over_ranks(comm, loss);
    if (data) loss = sum_over_ranks(*data, loss);
  }
  expect_learned(got, plain, model, allowed,
                 set.name + ", " + set.device + ", rank " + std::to_string(comm.rank()) + " of " +
                     std::to_string(comm.size()));
}
void expect_equals_one_device(ModelSetting set, const std::vector<int64_t>& all_ranks = {1, 2, 4},
                              const Allowed& allowed = {1e-6, 1e-5}) {
  set.with_count = true;
  const Learned plain = learn_on_one_device(set);
  for (const int64_t ranks : all_ranks)
    run_cluster({.ranks = ranks, .device = set.device, .seed = 7}, [&](Comm& comm) {
      Transformer model(set.model);
      model.initialize(3);
      share_context(comm, model);
      expect_on_rank(set, comm, model, plain, allowed);
    });
}
TransformerConfig with_flash(TransformerConfig c) {
  c.attention = attention_flash;
  return c;
}

TEST(L19_ContextParallel, EqualsOneDevice) {
  for (const Mask mask : {Mask::Causal, Mask::None})
    for (TransformerConfig c : {gpt(), with_flash(gpt())}) {
      c.mask = mask;
      expect_equals_one_device({"GPT", c});
      expect_equals_one_device({.name = "GPT, one sequence", .model = c, .B = 1});
      c.context = 24;
      expect_equals_one_device({.name = "GPT, 12 of 24 tokens", .model = c, .T = 12}, {1, 2, 3});
    }
  TransformerConfig c = gpt();
  c.residual = Residual::PostNorm, c.activation = gelu_erf;
  expect_equals_one_device({"PostNorm", c});
  c.residual = Residual::Parallel, c.output_head = OutputHead::Untied;
  expect_equals_one_device({"Parallel, untied head", c});
}

TEST(L21_ContextParallel, RmsNormsAndSwiGlu) {
  TransformerConfig c = gpt();
  c.norm = NormKind::Rms, c.activation = swiglu, c.biases = false, c.mlp_channels = 24;
  expect_equals_one_device({"Llama without rotary positions", c});
}

TEST(L19_ContextParallel, TargetsThatDoNotCount) {
  expect_equals_one_device({.name = "targets of -1", .model = gpt(), .some_do_not_count = true});
  TransformerConfig c = gpt();
  c.loss_rows = 3;
  expect_equals_one_device({.name = "loss_rows", .model = c, .some_do_not_count = true});
}

TEST(L19_ContextParallel, TwoMicroBatchesAndClippedGradients) {
  expect_equals_one_device({.name = "two micro-batches",
                            .model = gpt(),
                            .B = 4,
                            .micro_batches = 2,
                            .some_do_not_count = true,
                            .max_norm = 0.01});
}

TEST(L19_ContextParallel, CheckpointedSegments) {
  TransformerConfig c = gpt();
  c.layers = 3;
  expect_equals_one_device({.name = "Input", .model = c, .segments = {{2, Keep::Input}, {1, Keep::Input}}});
  for (const TransformerConfig& either : {c, with_flash(c)})
    expect_equals_one_device(
        {.name = "LessAttention", .model = either, .segments = {{3, Keep::LessAttention}}});
  expect_equals_one_device({.name = "from the start", .model = c, .from_the_start = true}, {2});
}

TEST(L19_ContextParallel, MixedPrecision) {
  TransformerConfig c = gpt();
  c.precision = precision_recipe("mixed");
  expect_equals_one_device({"mixed", c}, {1, 2, 4}, {0.02, 0.05});
  c.precision = precision_recipe("mixed-fp16");
  expect_equals_one_device({"mixed-fp16", c}, {2}, {0.004, 0.01});
}

TEST(L19_ContextParallel, OnTheEmulatedGpu) {
  TransformerConfig c = gpt();
  c.layers = 1;
  expect_equals_one_device({.name = "GPT", .model = c, .device = "emu"}, {2});
}

TEST(L19_ContextParallel, FrozenParameters) {
  expect_equals_one_device(
      {.name = "frozen", .model = gpt(), .frozen = {"wte.weight", "h.0.attn.c_attn.weight"}}, {2});
}

// The tokens of one sequence over some ranks, the sequences over the others.
TEST(L19_ContextParallel, WithDataParallelismInTheOtherDirection) {
  const ModelSetting set{
      .name = "2 x 2", .model = gpt(), .B = 4, .some_do_not_count = true, .with_count = true};
  const Learned plain = learn_on_one_device(set);
  for (const bool near : {true, false})
    run_cluster({.ranks = 4, .seed = 7}, [&](Comm& all) {
      const int64_t high = all.rank() / 2, low = all.rank() % 2;
      const auto context = all.split("context", near ? high : low),
                 data = all.split("data", near ? low : high);
      Transformer model(set.model);
      model.initialize(3);
      share_context(*context, model);
      expect_on_rank(set, *context, model, plain, {1e-6, 1e-5}, data.get());
    });
}

// Per layer, ring attention sends with n = B T C / N on each rank: 2 n (N-1) forward, and 2 n (N-1) + 2 n N
// backward.
TEST(L19_ContextParallel, ElementsSentInALayer) {
  for (const int64_t N : {2, 4})
    run_cluster({.ranks = N, .device = "meta"}, [&](Comm& comm) {
      const auto sent = [&](int64_t layers) {
        TransformerConfig c = gpt();
        c.layers = layers;
        Transformer model(c);
        share_context(comm, model);
        const int64_t before = comm.sent().elements;
        Tape tape;
        const Tensor ids(current().device, {2, c.context / N}, DType::I32, Kind::Data, "ids");
        tape.backward(model.loss(ids, ids));
        return comm.sent().elements - before;
      };
      const int64_t n = 2 * 8 * 16 / N;
      EXPECT_EQ(sent(1), 4 * n * (N - 1) + 2 * n * N);
      EXPECT_EQ(sent(3), 3 * sent(1));
    });
}

TEST(L19_ContextParallel, ChunksOfABatch) {
  TextBatch batch{3, 12, {}, {}, 5};
  for (int32_t i = 0; i < 36; ++i) batch.ids.push_back(100 + i), batch.targets.push_back(i % 4 - 1);
  for (const int64_t ranks : {1, 2, 3, 6}) {
    const Context context;
    int64_t counted = 0;
    for (int64_t r = 0; r < ranks; ++r) {
      const TextBatch own = chunks_of(batch, r, ranks);
      EXPECT_EQ(own.sequences, 3);
      EXPECT_EQ(own.T, 12 / ranks);
      EXPECT_EQ(own.first_sample, 5);
      EXPECT_EQ(own.ids, chunks(batch.ids, 3, 12, 1, r, ranks));
      EXPECT_EQ(own.targets, chunks(batch.targets, 3, 12, 1, r, ranks));
      counted += own.counted();
      const Tensor places = places_of_chunks(3, 12, r, ranks);
      EXPECT_EQ(places.shape(), (Shape{3, 12 / ranks}));
      const std::vector<int32_t> got = to_host<int32_t>(places);
      for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(100 + got[i], (own.ids[i] - 100) % 12 + 100);
    }
    EXPECT_EQ(counted, batch.counted());
  }
  for (const int64_t ranks : {4, 5, 12}) {
    expect_refused("12", [&] { chunks_of(batch, 0, ranks); });
    expect_refused("12", [&] { places_of_chunks(3, 12, 0, ranks); });
  }
}

// A model that was rejected is unchanged; then the ranks train a different one.
TEST(L19_ContextParallel, ModelsThatCannotBe) {
  TransformerConfig types = gpt(), pooled = gpt(), labels = bert();
  types.token_types = 2;
  pooled.output_head = OutputHead::Pooled;
  labels.token_types = 0;
  const ModelSetting right{.name = "after an error", .model = gpt(), .with_count = true};
  const Learned plain = learn_on_one_device(right);
  const std::pair<const char*, TransformerConfig> wrong[] = {{"dropout", gpt(0.1)},
                                                             {"token types", types},
                                                             {"token types", bert()},
                                                             {"head", pooled},
                                                             {"head", labels}};
  for (const auto& [part, c] : wrong) {
    const ModelSetting refused{.name = "refused", .model = c};
    const Learned alone = learn_on_one_device(refused);
    run_cluster({.ranks = 2, .seed = 7}, [&, part = part, &c = c](Comm& comm) {
      Transformer model(c);
      model.initialize(3);
      expect_refused(part, [&] { share_context(comm, model); });
      if (c.output_head != OutputHead::Pooled || c.labels > 0)
        expect_learned(learn(refused, model), alone, model, {0, 0}, "a model that was refused");
      Transformer next(right.model);
      next.initialize(3);
      share_context(comm, next);
      expect_on_rank(right, comm, next, plain, {1e-6, 1e-5});
    });
  }
}

// Rotary positions: the tokens' positions in the sequence, or rejected with a message that names them.
TEST(L19_ContextParallel, RotaryPositions) {
  const std::string text = refusal([&] { expect_equals_one_device({"GPT-NeoX", neox()}, {2}); });
  EXPECT_TRUE(text.empty() || text.find("rotary") != std::string::npos) << text;
}

TEST(L19_ContextParallel, TokensThatCannotBeTwoChunks) {
  const ModelSetting right{.name = "after an error", .model = gpt(), .with_count = true};
  const Learned plain = learn_on_one_device(right);
  run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
    Transformer model(right.model);
    model.initialize(3);
    share_context(comm, model);
    const auto loss = [&](int64_t T) {
      const Tensor ids = from_host(current().device, std::vector<int32_t>(size_t(2 * T), 1), {2, T},
                                   DType::I32, Kind::Data, "ids");
      return model.loss(ids, ids);
    };
    Tape tape;
    expect_refused("6 tokens", [&] { loss(3); });  // on all ranks together
    EXPECT_NE(refusal([&] { loss(6); }), "") << "12 tokens on all ranks together, and a context of 8";
    expect_on_rank(right, comm, model, plain, {1e-6, 1e-5});
  });
}

}  // namespace
}  // namespace gradus
