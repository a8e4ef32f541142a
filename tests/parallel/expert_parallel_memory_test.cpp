// Expert parallelism (src/parallel/expert_parallel.h): what a rank keeps and sends, and which models are
// rejected.
#include "src/parallel/comm/cluster.h"
#include "src/parallel/zero.h"
#include "tests/parallel/mixture_on_ranks.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

// Each element of the experts' weights is on one rank; all others are on every rank.
TEST(L21_ExpertParallel, FirstValuesAreThoseOfOneDevice) {
  for (const TransformerConfig& c : {mixtral(), gpt_of_experts()})
    for (const Allocate allocate : {Allocate::Now, Allocate::Later}) {
      std::map<std::string, Values> whole, read;
      {
        Context context("cpu", 7);
        Transformer model(c);
        model.initialize(3);
        for (const Parameter& p : model.parameters) whole[p.name] = to_host<double>(p.value);
      }
      for (const auto& [name, values] : whole) read[name] = Values(values.size());
      run_cluster({.ranks = 4, .seed = 7}, [&](Comm& comm) {
        const ExpertsOfRanks m(comm, c, allocate);
        EXPECT_EQ(m.model.parameters.size(), whole.size());
        for (const Parameter& p : m.model.parameters) {
          const Values& all = whole.at(p.name);
          EXPECT_EQ(to_host<double>(p.value), p.shard ? p.shard->of_values(all) : all) << p.name;
          EXPECT_EQ(p.leaf.shape, p.value.shape()) << p.name;
          EXPECT_EQ(p.shard.has_value(), p.name.find(".mlp.experts.") != p.name.npos) << p.name;
          if (p.shard)
            p.shard->each_range([&](int64_t at, int64_t, int64_t n) {
              for (int64_t i = at; i < at + n; ++i) read[p.name][size_t(i)] += 1;
            });
          else
            for (double& x : read[p.name]) x += 0.25;
        }
      });
      for (const auto& [name, times] : read) EXPECT_EQ(times, Values(times.size(), 1)) << name;
    }
}

// Weights, gradients, master copies and states of 1/N of the experts; and the peak is not higher, if the
// model was made with Allocate::Later.
TEST(L21_ExpertParallel, MemoryOfARank) {
  for (const char* recipe : {"fp32", "mixed"})
    for (const int64_t ranks : {1, 2, 4}) {
      TransformerConfig c = mixtral();
      c.precision = precision_recipe(recipe);
      const int64_t experts = c.layers * c.experts * 3 * c.channels * c.mlp_channels,
                    rest = c.parameter_count() - experts, n = rest + experts / ranks;
      run_cluster({.ranks = ranks, .device = "meta"}, [&](Comm& comm) {
        Meter& meter = current().device.meter();
        ExpertsOfRanks m(comm, c);
        const int64_t bytes = size_of(c.precision.value), master = c.precision.master ? 4 : 0;
        EXPECT_EQ(m.model.parameters.numel(), n);
        EXPECT_EQ(meter.at_peak()[Kind::Weight], bytes * n) << recipe << ", " << ranks;
        EXPECT_EQ(meter.at_peak()[Kind::Master], master * n) << recipe << ", " << ranks;
        AdamW optimizer(m.model.parameters);
        pass({.name = "", .model = c, .B = 4, .with_count = true}, m.model, comm.rank() * 4 / ranks,
             4 / ranks);
        m.parallel.sum_gradients();
        optimizer.step(1e-3);
        EXPECT_EQ(meter.now()[Kind::Weight], bytes * n) << recipe << ", " << ranks;
        EXPECT_EQ(meter.now()[Kind::Gradient], size_of(c.precision.gradient) * n) << recipe << ", " << ranks;
        EXPECT_EQ(meter.now()[Kind::Optimizer], 8 * n) << recipe << ", " << ranks;
      });
    }
}

// 4 L (E B/N) places C (N-1)/N elements in the passes; in the end the parts of two all-reduces for all other
// weights.
TEST(L21_ExpertParallel, ElementsSentInAStep) {
  for (const double capacity_factor : {0.0, 1.0, 1.25})
    for (const int64_t ranks : {1, 2, 4}) {
      const TransformerConfig c = mixtral(0, capacity_factor);
      const int64_t B = 8, places = c.expert_capacity(c.context);
      EXPECT_EQ(places, capacity_factor == 0 ? 8 : capacity_factor == 1 ? 4 : 5);
      run_cluster({.ranks = ranks, .device = "meta"}, [&](Comm& comm) {
        ExpertsOfRanks m(comm, c);
        const int64_t first = comm.rank() * B / ranks;
        pass({.name = "", .model = c, .B = B, .with_count = true}, m.model, first, B / ranks);
        EXPECT_EQ(comm.sent().elements,
                  4 * c.layers * (c.experts * B / ranks) * places * c.channels * (ranks - 1) / ranks);
        const int64_t before = comm.sent().elements;
        m.parallel.sum_gradients();
        int64_t whole = 0;
        for (const Parameter& p : m.model.parameters)
          if (!p.shard) whole += p.value.numel();
        EXPECT_EQ(comm.sent().elements - before, 2 * whole * (ranks - 1) / ranks);
      });
    }
}

// ---- rejected models ----

// A model that is rejected is unchanged; then the same ranks train a model that is accepted.
void expect_refused_then_used(int64_t ranks, const std::string& part, const TransformerConfig& c) {
  const ModelSetting wrong{.name = "refused", .model = c, .B = 4},
      right{.name = "after an error", .model = mixtral(), .B = 4, .with_count = true};
  const Learned alone = learn_on_one_device(wrong);
  const OneAfterAnother shares = one_after_another(right, 2);
  run_cluster({.ranks = ranks, .seed = 7}, [&](Comm& comm) {
    Transformer model(c);
    model.initialize(3);
    expect_refused(part, [&] { ExpertParallel(comm, model); });
    expect_learned(learn(wrong, model), alone, model, {0, 0}, "a model that was refused");
    const auto pairs = comm.split("pairs", comm.rank() / 2);
    if (pairs->size() < 2) return;
    ExpertsOfRanks m(*pairs, right.model);
    EXPECT_EQ(learn_on_rank(right, m, *pairs).losses, shares.losses[size_t(pairs->rank())]);
  });
}
TEST(L21_ExpertParallel, ModelsThatRanksCannotDivide) {
  expect_refused_then_used(2, "expert parallel: the model has no experts; set experts, for example to 8",
                           llama());
  expect_refused_then_used(3,
                           "expert parallel: 4 experts cannot be divided among 3 ranks; use a number of "
                           "ranks that divides them",
                           mixtral());
  expect_refused_then_used(16, "8 experts cannot be divided among 16 ranks", gpt_of_experts());
}

TEST(L21_ExpertParallel, AModelThatIsSharedOutAlready) {
  const std::string already = "expert parallel: the model is divided already";
  const ModelSetting set{.name = "divided twice", .model = mixtral(), .B = 4, .with_count = true};
  for (const int64_t ranks : {1, 2}) {
    const OneAfterAnother shares = one_after_another(set, ranks);
    const Learned whole = learn_on_one_device(set);
    run_cluster({.ranks = ranks, .seed = 7}, [&](Comm& comm) {
      ExpertsOfRanks m(comm, set.model);
      expect_refused(already, [&] { ExpertParallel(comm, m.model); });
      Learned got = learn_on_rank(set, m, comm);
      EXPECT_EQ(got.losses, shares.losses[size_t(comm.rank())]);
      got.losses = whole.losses;
      expect_learned(got, whole, m.model, {1e-6, 1e-6}, set.name);

      Transformer model(set.model, Allocate::Later);
      const Zero zero(comm, model.parameters, {.stage = 1});
      expect_refused(already, [&] { ExpertParallel(comm, model); });
      for (const Parameter& p : model.parameters) EXPECT_FALSE(p.shard) << p.name;
      for (const TransformerBlock& b : model.blocks) EXPECT_EQ(b.c_fc.variant, nullptr);
    });
  }
}

TEST(L21_ExpertParallel, GradientsThatAreNotThere) {
  run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
    ExpertsOfRanks m(comm, mixtral());
    expect_refused("gradient", [&] { m.parallel.sum_gradients(); });
    EXPECT_EQ(comm.sent().elements, 0);
  });
}

// ---- ranks that do different things ----

TEST(L21_ExpertParallel, DifferentNumbersOfSequencesAreRefused) {
  for (const char* device : {"cpu", "meta"}) {
    const std::string text = refusal([&] {
      run_cluster({.ranks = 2, .device = device, .seed = 7}, [&](Comm& comm) {
        const ExpertsOfRanks m(comm, mixtral());
        pass({.name = "", .model = mixtral(), .B = 3, .with_count = true}, m.model, comm.rank(),
             1 + comm.rank());
      });
    });
    EXPECT_NE(text.find("all_to_all"), std::string::npos) << text;
  }
}

TEST(L21_ExpertParallel, ARankThatThrowsEndsAll) {
  const ModelSetting set{.name = "", .model = mixtral(), .B = 4, .with_count = true};
  for (const bool between : {true, false}) {
    std::vector<int> ended(4);
    const std::string text = refusal([&] {
      run_cluster({.ranks = 4, .seed = 7}, [&](Comm& comm) {
        ExpertsOfRanks m(comm, set.model);
        if (comm.rank() == 2 && !between) fail("boom");
        pass(set, m.model, comm.rank(), 1);
        if (comm.rank() == 2) fail("boom");
        m.parallel.sum_gradients();
        ended[size_t(comm.rank())] = 1;
      });
    });
    EXPECT_EQ(text, "rank 2: boom");
    EXPECT_EQ(ended, std::vector<int>(4)) << "they wait for rank 2";
  }
  const OneAfterAnother shares = one_after_another(set, 4);
  run_cluster({.ranks = 4, .seed = 7}, [&](Comm& comm) {
    ExpertsOfRanks m(comm, set.model);
    EXPECT_EQ(learn_on_rank(set, m, comm).losses, shares.losses[size_t(comm.rank())]) << "after the error";
  });
}

}  // namespace
}  // namespace gradus
