// Expert parallelism (src/parallel/expert_parallel.h): losses and gradients are those of one device.
#include "src/nn/kv_cache.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/data_parallel.h"
#include "tests/parallel/mixture_on_ranks.h"

namespace gradus {
namespace {

constexpr Allowed kAllowed{1e-6, 1e-6};

// The losses, and the gradients of the parameters that all ranks have, are bitwise equal to those of the
// ranks' sequences one after the other; all gradients, their norm and the weights after a step are close to
// those of the whole batch.
void expect_as_on_one_device(const ModelSetting& set, Comm& comm, const OneAfterAnother& shares,
                             const Learned& whole, const Allowed& allowed, const std::string& more = "") {
  const std::string what = set.name + ", " + set.device + more + ", rank " + std::to_string(comm.rank()) +
                           " of " + std::to_string(comm.size());
  ExpertsOfRanks m(comm, set.model);
  Learned got = learn_on_rank(set, m, comm);
  EXPECT_EQ(got.losses, shares.losses[size_t(comm.rank())]) << what;
  for (const Parameter& p : m.model.parameters)
    if (p.trainable() && !p.shard) {
      EXPECT_EQ(got.gradients.at(p.name), shares.gradients.at(p.name)) << what << ", " << p.name;
    }
  got.losses = {sum_over_ranks(comm, got.losses[0])};
  expect_learned(got, whole, m.model, allowed, what);
}

void expect_equals_one_device(ModelSetting set, const std::vector<int64_t>& all_ranks = {1, 2, 4},
                              const Allowed& allowed = kAllowed) {
  set.with_count = true;
  const Learned whole = learn_on_one_device(set);
  for (const int64_t ranks : all_ranks) {
    const OneAfterAnother shares = one_after_another(set, ranks);
    run_cluster({.ranks = ranks, .device = set.device, .seed = 7},
                [&](Comm& comm) { expect_as_on_one_device(set, comm, shares, whole, allowed); });
  }
}

TransformerConfig with(TransformerConfig c, const std::function<void(TransformerConfig&)>& change) {
  change(c);
  return c;
}

// Whether some tokens find no place depends on the batch: in this one they do.
TEST(L21_ExpertParallel, TheSettingsDropTokens) {
  const ModelSetting set{.name = "", .model = mixtral(), .B = 8};
  for (const TransformerConfig& c : {mixtral(), gpt_of_experts()}) {
    Context context("cpu", 7);
    Transformer model(c);
    model.initialize(3);
    const Evaluation evaluation;
    model.logits(rows_of(batch_of(set).ids, 0, 8, 8));
    for (const TransformerBlock& b : model.blocks) {
      const std::vector<int32_t> slots = to_host<int32_t>(b.routed->routing.slots);
      EXPECT_LT(*std::min_element(slots.begin(), slots.end()), 0) << b.name;
    }
  }
}

TEST(L21_ExpertParallel, Mixtral) {
  for (const double dropout : {0.0, 0.1})
    for (const double capacity_factor : {0.0, 1.0, 1.25})
      expect_equals_one_device({.name = "dropout " + std::to_string(dropout) + ", capacity factor " +
                                        std::to_string(capacity_factor),
                                .model = mixtral(dropout, capacity_factor),
                                .B = 8});
}
TEST(L21_ExpertParallel, GptOfExperts) {
  for (const double dropout : {0.0, 0.1})
    expect_equals_one_device({.name = "GPT", .model = gpt_of_experts(dropout), .B = 8}, {1, 2, 4, 8});
}
TEST(L21_ExpertParallel, OtherMixtures) {
  expect_equals_one_device({.name = "no balance loss",
                            .model = with(mixtral(), [](TransformerConfig& c) { c.balance = 0; }),
                            .B = 4});
  expect_equals_one_device({.name = "all experts chosen",
                            .model = with(mixtral(), [](TransformerConfig& c) { c.chosen = 4; }),
                            .B = 4});
  expect_equals_one_device({.name = "6 experts, 3 ranks",
                            .model = with(mixtral(0.1), [](TransformerConfig& c) { c.experts = 6; }),
                            .B = 6},
                           {1, 2, 3, 6});
  expect_equals_one_device(
      {.name = "flash attention, rows of the loss",
       .model =
           with(mixtral(0.1), [](TransformerConfig& c) { c.attention = attention_flash, c.loss_rows = 5; }),
       .B = 4});
}
TEST(L21_ExpertParallel, OtherBatches) {
  expect_equals_one_device({.name = "one sequence per rank", .model = mixtral(0.1), .B = 4}, {4});
  expect_equals_one_device({.name = "5 of 8 tokens", .model = mixtral(0.1), .B = 4, .T = 5});
  expect_equals_one_device({.name = "two tokens", .model = mixtral(0.1), .B = 4, .T = 2});
  expect_equals_one_device({.name = "targets of -1", .model = mixtral(), .B = 4, .some_do_not_count = true});
}
TEST(L21_ExpertParallel, ClippedGradients) {
  for (const TransformerConfig& c : {mixtral(), gpt_of_experts()})
    expect_equals_one_device({.name = "clipped", .model = c, .B = 4, .max_norm = 0.01});
}
TEST(L21_ExpertParallel, FrozenParameters) {
  expect_equals_one_device({.name = "frozen",
                            .model = mixtral(0.1),
                            .B = 4,
                            .frozen = {"h.0.mlp.experts.c_fc.weight", "h.1.mlp.experts.c_proj.weight",
                                       "h.1.mlp.router.weight", "wte.weight", "h.1.ln_2.weight"}});
}
// The product of a row does not depend on the other rows, so the losses are still bitwise equal; a weight's
// gradient is summed in a different order, and in 16 bits a sum differs by rounding.
TEST(L21_ExpertParallel, MixedPrecision) {
  for (TransformerConfig c : {mixtral(0.1), gpt_of_experts(0.1)}) {
    c.precision = precision_recipe("mixed");
    expect_equals_one_device({.name = "mixed", .model = c, .B = 8}, {1, 2, 4}, {1e-6, 1e-6});
    c.precision = precision_recipe("mixed-fp16");
    expect_equals_one_device({.name = "mixed-fp16", .model = c, .B = 8}, {2}, {1e-6, 1e-6});
  }
}
TEST(L21_ExpertParallel, OnTheEmulatedGpu) {
  for (TransformerConfig c : {mixtral(0.1), gpt_of_experts()}) {
    c.layers = 1;
    expect_equals_one_device({.name = "emu", .model = c, .B = 4, .device = "emu"}, {1, 2, 4});
  }
}

TEST(L21_ExpertParallel, TwoMicroBatches) {
  for (const TransformerConfig& c : {mixtral(0.1), gpt_of_experts(0.1)}) {
    const ModelSetting set{.name = "two micro-batches",
                           .model = c,
                           .B = 8,
                           .micro_batches = 2,
                           .some_do_not_count = true,
                           .with_count = true};
    const Learned whole = learn_on_one_device(set);
    double loss = 0;
    for (const double l : whole.losses) loss += l;
    for (const int64_t ranks : {2, 4})
      run_cluster({.ranks = ranks, .seed = 7}, [&](Comm& comm) {
        ExpertsOfRanks m(comm, c);
        Learned got = learn_on_rank(set, m, comm);
        EXPECT_NEAR(sum_over_ranks(comm, got.losses[0] + got.losses[1]), loss, 1e-6);
        got.losses = whole.losses;
        expect_learned(got, whole, m.model, kAllowed, set.name);
      });
  }
}

// Experts over some ranks, and copies of all of them over the others.
TEST(L21_ExpertParallel, WithDataParallelismInTheOtherDirection) {
  const ModelSetting set{.name = "2 x 2", .model = mixtral(0.1), .B = 8, .with_count = true};
  const Learned whole = learn_on_one_device(set);
  const OneAfterAnother shares = one_after_another(set, 4);
  for (const bool near : {true, false})
    run_cluster({.ranks = 4, .seed = 7}, [&](Comm& all) {
      const int64_t high = all.rank() / 2, low = all.rank() % 2;
      const auto experts = all.split("experts", near ? high : low),
                 data = all.split("data", near ? low : high);
      ExpertsOfRanks m(*experts, set.model);
      const auto sum = [&] { m.parallel.sum_gradients(), sum_gradients(*data, m.model.parameters); };
      Learned got = learn(set, m.model, sum, 2 * all.rank(), 4);
      EXPECT_EQ(got.losses, shares.losses[size_t(all.rank())]);
      got.losses = {sum_over_ranks(all, got.losses[0])};
      expect_learned(got, whole, m.model, kAllowed, set.name);
    });
}

// ---- several steps ----

// The parameters that all ranks have stay bitwise equal, and so does the norm, which is that of one device.
TEST(L21_ExpertParallel, RanksStayEqualInTraining) {
  for (const TransformerConfig& c : {mixtral(0.1), gpt_of_experts(0.1)}) {
    ModelSetting set{.name = "", .model = c, .B = 8, .with_count = true};
    const auto train = [&](Transformer& model, const std::function<void()>& sum, int64_t first, int64_t n) {
      AdamW optimizer(model.parameters);
      Values norms;
      for (int step = 0; step < 6; ++step) {
        set.data = uint64_t(step + 1);
        model.parameters.zero_grad();
        pass(set, model, first, n);
        sum();
        optimizer.clip_grad_norm(0.5);
        norms.push_back(optimizer.scalars().grad_norm);
        optimizer.step(1e-3);
      }
      return norms;
    };
    Values alone;
    {
      Context context("cpu", 7);
      Transformer model(c);
      model.initialize(3);
      alone = train(
          model, [] {}, 0, 8);
      EXPECT_GT(alone[0], 0.5) << "this norm must be large enough to be clipped";
    }
    for (const int64_t ranks : {2, 4}) {
      Values norms;
      std::map<std::string, Values> weights;
      run_cluster({.ranks = ranks, .seed = 7}, [&](Comm& comm) {
        ExpertsOfRanks m(comm, c);
        const Values mine = train(
            m.model, [&] { m.parallel.sum_gradients(); }, comm.rank() * 8 / ranks, 8 / ranks);
        EXPECT_NEAR(mine[0], alone[0], 1e-6 * alone[0]);
        for (size_t i = 1; i < mine.size(); ++i) EXPECT_NEAR(mine[i], alone[i], 1e-3 * alone[i]) << i;
        for (int64_t r = 0; r < comm.rank(); ++r) comm.barrier();  // it is this rank's turn
        if (comm.rank() == 0) norms = mine;
        EXPECT_EQ(mine, norms) << "rank " << comm.rank();
        for (const Parameter& p : m.model.parameters) {
          if (p.shard) continue;
          if (comm.rank() == 0) weights[p.name] = to_host<double>(p.kept());
          EXPECT_EQ(to_host<double>(p.kept()), weights.at(p.name)) << p.name << ", rank " << comm.rank();
        }
        for (int64_t r = comm.rank(); r < comm.size(); ++r) comm.barrier();
      });
    }
  }
}

// A forward pass of one model lies between the two passes of the other.
TEST(L21_ExpertParallel, TwoModelsInterleaved) {
  const ModelSetting first{.name = "first", .model = mixtral(), .B = 4, .with_count = true},
      second{.name = "second", .model = gpt_of_experts(), .B = 4, .with_count = true};
  const OneAfterAnother of_first = one_after_another(first, 2), of_second = one_after_another(second, 2);
  run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
    ExpertsOfRanks a(comm, first.model), b(comm, second.model);
    const auto loss = [&](const ModelSetting& set, const Transformer& model) {
      const HostBatch batch = batch_of(set);
      const int64_t row = 2 * comm.rank();
      return model.loss(rows_of(batch.ids, row, 2, 8), rows_of(batch.targets, row, 2, 8), {},
                        count_of(batch.counted()));
    };
    {
      Tape of_a;
      const Tensor y = loss(first, a.model);
      Tape of_b;
      const Tensor z = loss(second, b.model);
      EXPECT_EQ(item(y), of_first.losses[size_t(comm.rank())][0]);
      EXPECT_EQ(item(z), of_second.losses[size_t(comm.rank())][0]);
      of_b.backward(z);
      b.parallel.sum_gradients();
      of_a.backward(y);
      a.parallel.sum_gradients();
    }
    const auto same = [&](const Transformer& model, const OneAfterAnother& expected) {
      for (const Parameter& p : model.parameters)
        if (!p.shard) {
          EXPECT_EQ(to_host<double>(p.leaf.grad), expected.gradients.at(p.name)) << p.name;
        }
    };
    same(a.model, of_first), same(b.model, of_second);
  });
}

// ---- without a tape ----

// Logits, losses without a balance loss, and generation with a cache are those of one device.
TEST(L21_ExpertParallel, EvaluationAndGeneration) {
  const ModelSetting set{.name = "", .model = mixtral(0.5, 0), .B = 4};
  const HostBatch batch = batch_of(set);
  const auto evaluate = [&](const Transformer& model, int64_t first, int64_t n) {
    const Evaluation evaluation;
    const Tensor ids = rows_of(batch.ids, first, n, 8);
    std::vector<Values> all{{item(model.loss(ids, rows_of(batch.targets, first, n, 8)))},
                            to_host<double>(model.logits(ids))};
    KvCache cache(model, n, 8);
    all.push_back(to_host<double>(model.next_logits(rows_of(batch.ids, first, n, 5), cache)));
    all.push_back(
        to_host<double>(model.next_logits(rows_of(batch.targets, first, n, 1).reshape({n, 1}), cache)));
    return all;
  };
  std::vector<std::vector<Values>> alone;
  {
    Context context("cpu", 7);
    Transformer model(set.model);
    model.initialize(3);
    for (const int64_t r : {0, 1}) alone.push_back(evaluate(model, 2 * r, 2));
  }
  run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
    const ExpertsOfRanks m(comm, set.model);
    EXPECT_EQ(evaluate(m.model, 2 * comm.rank(), 2), alone[size_t(comm.rank())]);
  });
}

}  // namespace
}  // namespace gradus
