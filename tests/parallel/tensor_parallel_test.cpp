// Tensor parallelism (src/parallel/tensor_parallel.h).
#include "src/parallel/tensor_parallel.h"

#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/shards.h"
#include "src/train/dummy.h"
#include "tests/parallel/tensor_parallel_model.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

TransformerConfig small(double dropout) {
  return {.vocab = 30, .context = 8, .layers = 2, .heads = 4, .channels = 16, .dropout = dropout};
}

std::vector<double> plain_losses(const TransformerConfig& c, int64_t steps) {
  Context context("cpu", 7);
  Transformer model(c);
  model.initialize(3);
  Sgd sgd(model.parameters);
  std::vector<double> losses;
  for (int64_t step = 0; step < steps; ++step) {
    const DummyBatch batch = dummy_batch(c, 2, c.context, uint64_t(step + 1));
    model.parameters.zero_grad();
    Tape tape;
    const Tensor loss = batch.loss(model);
    tape.backward(loss);
    sgd.step(0.1);
    losses.push_back(item(loss));
  }
  return losses;
}

std::vector<double> losses_of_ranks(const TransformerConfig& c, int64_t steps, int64_t ranks,
                                    Sequence tokens) {
  std::vector<double> losses;
  run_cluster({.ranks = ranks, .seed = 7}, [&](Comm& comm) {
    Transformer model(c, Allocate::Later);
    TensorParallel parallel(comm, model, tokens);
    model.initialize(3, &assign_part);
    Sgd sgd(model.parameters);
    for (int64_t step = 0; step < steps; ++step) {
      const DummyBatch batch = dummy_batch(c, 2, c.context, uint64_t(step + 1));
      model.parameters.zero_grad();
      Tape tape;
      const Tensor loss = batch.loss(model);
      tape.backward(loss);
      parallel.sum_gradients();
      sgd.step(0.1);
      if (comm.rank() == comm.size() - 1) losses.push_back(item(loss));
    }
  });
  return losses;
}

TEST(L19_TensorParallel, ThinLine) {
  for (const double dropout : {0.0, 0.1})
    for (const Sequence tokens : {Sequence::Whole, Sequence::KeepGathered, Sequence::GatherAgain})
      for (const int64_t ranks : {1, 2, 4}) {
        const std::vector<double> plain = plain_losses(small(dropout), 5),
                                  ours = losses_of_ranks(small(dropout), 5, ranks, tokens);
        ASSERT_EQ(ours.size(), plain.size());
        for (size_t i = 0; i < plain.size(); ++i)
          EXPECT_NEAR(ours[i], plain[i], ranks == 1 ? 0 : 1e-6)
              << ranks << " step " << i << " tokens " << int(tokens) << " dropout " << dropout;
      }
}

// The shards of all ranks contain each element once; a parameter without a shard is the same on all ranks.
TEST(L19_TensorParallel, FirstValuesAreThoseOfOneDevice) {
  for (const TransformerConfig& c : {gpt(0, 31), bert(), bert(0, 0), neox()}) {
    std::map<std::string, Values> whole, read;
    {
      Context context("cpu", 7);
      Transformer model(c);
      model.initialize(3);
      for (const Parameter& p : model.parameters) whole[p.name] = to_host<double>(p.value);
    }
    for (const auto& [name, values] : whole) read[name] = Values(values.size());
    run_cluster({.ranks = 4, .seed = 7}, [&](Comm& comm) {
      const ModelOfRanks m(comm, c, Sequence::Whole);
      EXPECT_EQ(m.model.parameters.size(), whole.size());
      int64_t shards = 0;
      for (const Parameter& p : m.model.parameters) {
        const Values& all = whole.at(p.name);
        EXPECT_EQ(to_host<double>(p.value), p.shard ? p.shard->of_values(all) : all) << p.name;
        EXPECT_EQ(p.leaf.shape, p.value.shape()) << p.name;
        if (p.shard) {
          ++shards;
          EXPECT_EQ(p.shard->whole.numel(), int64_t(all.size())) << p.name;
          p.shard->each_range([&](int64_t at, int64_t, int64_t n) {
            for (int64_t i = at; i < at + n; ++i) read[p.name][size_t(i)] += 1;
          });
        } else {
          for (double& x : read[p.name]) x += 0.25;
        }
      }
      // Per block: the weights and the biases of the first products, and the weights of the second ones.
      const int64_t vocabularies = c.output_head == OutputHead::Untied ? 2 : 1;
      EXPECT_EQ(shards, 6 * c.layers + vocabularies);
    });
    for (const auto& [name, times] : read) EXPECT_EQ(times, Values(times.size(), 1)) << name;
  }
}

// With Allocate::Later a different class allocates the parameters, and computes their norm.
TEST(L20_TensorParallel, TheNormIsMadeOnlyIfTheModelIsAllocatedNow) {
  run_cluster({.ranks = 2}, [&](Comm& comm) {
    for (const Allocate when : {Allocate::Now, Allocate::Later}) {
      Transformer model(gpt(), Allocate::Later);
      const TensorParallel parts(comm, model, Sequence::Whole, when);
      EXPECT_EQ(*model.parameters.shares != nullptr, when == Allocate::Now);
    }
  });
}

TEST(L19_TensorParallel, AWrongNumberOfFirstValues) {
  run_cluster({.ranks = 2}, [&](Comm& comm) {
    ModelOfRanks m(comm, gpt(), Sequence::Whole);
    for (const char* name : {"h.0.ln_1.weight", "h.0.mlp.c_fc.weight", "wte.weight"})
      for (const int64_t off : {-1, 1}) {
        Parameter& p = m.model.parameters.find(name);
        const int64_t n = (p.shard ? p.shard->whole.numel() : p.value.numel()) + off;
        expect_refused(std::to_string(n), [&] { assign_part(p, Values(size_t(n), 1)); });
      }
  });
}

// Then a model that can be divided trains, on groups of the same ranks.
void expect_refused_then_used(int64_t ranks, const std::string& part, const TransformerConfig& c) {
  const ModelSetting right{"after an error", gpt(0.1)};
  const Learned plain = learn_on_one_device(right);
  for (const Sequence sequence : kSequences)
    run_cluster({.ranks = ranks, .seed = 7}, [&](Comm& comm) {
      Transformer model(c, Allocate::Later);
      expect_refused(part, [&] { TensorParallel(comm, model, sequence); });
      const auto pairs = comm.split("pairs", comm.rank() / 2);  // 3 ranks: 2 and 1
      expect_as_on_one_device(right, *pairs, sequence, plain, {}, "");
    });
}

TEST(L19_TensorParallel, ModelsThatRanksCannotDivide) {
  expect_refused_then_used(3, "heads", gpt());
  expect_refused_then_used(3, "heads", bert());
  TransformerConfig few = gpt();
  for (const int64_t vocab : {1, 3, 5}) {  // 5: 2, 2, 1 and 0 rows
    few.vocab = vocab;
    expect_refused_then_used(4, "vocabulary", few);
  }
  few = neox(), few.vocab = 2;
  expect_refused_then_used(4, "vocabulary", few);
}

// A model that was made with Allocate::Now is rejected with a message that says so, or like any other.
TEST(L19_TensorParallel, AModelThatHasItsMemory) {
  const ModelSetting set{"Allocate::Now", gpt()};
  const Learned plain = learn_on_one_device(set);
  run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
    Transformer model(set.model);
    std::optional<TensorParallel> parallel;
    const std::string text = refusal([&] { parallel.emplace(comm, model); });
    if (!text.empty()) {
      EXPECT_NE(text.find("Allocate::Later"), std::string::npos) << text;
      return;
    }
    model.initialize(3, &assign_part);
    expect_learned(learn(set, model, [&] { parallel->sum_gradients(); }), plain, model, {}, set.name);
  });
}

TEST(L19_TensorParallel, TokensThatRanksDoNotDivide) {
  const ModelSetting right{"after an error", gpt()}, wrong{.name = "7 tokens", .model = gpt(), .T = 7};
  const Learned plain = learn_on_one_device(right), of_wrong = learn_on_one_device(wrong);
  for (const Sequence sequence : kSequences)
    run_cluster({.ranks = 4, .seed = 7}, [&](Comm& comm) {
      if (sequence == Sequence::Whole)
        return expect_as_on_one_device(wrong, comm, sequence, of_wrong, {}, "");  // nothing is divided
      ModelOfRanks m(comm, right.model, sequence);
      expect_refused("7", [&] { learn(wrong, m.model, [&] { m.parallel.sum_gradients(); }); });
      const Learned got = learn(right, m.model, [&] { m.parallel.sum_gradients(); });
      expect_learned(got, plain, m.model, {}, text_of(sequence));
    });
}

TEST(L19_TensorParallel, GradientsThatAreNotThere) {
  const ModelSetting set{"after an error", gpt()};
  const Learned plain = learn_on_one_device(set);
  for (const Sequence sequence : kSequences)
    run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
      ModelOfRanks m(comm, set.model, sequence);
      const auto refused = [&] {
        const Sent before = comm.sent();
        if (sequence == Sequence::Whole)
          m.parallel.sum_gradients();
        else
          expect_refused("gradient", [&] { m.parallel.sum_gradients(); });
        EXPECT_EQ(comm.sent().elements, before.elements);
      };
      refused();
      const Learned got = learn(set, m.model, [&] { m.parallel.sum_gradients(); });
      expect_learned(got, plain, m.model, {}, text_of(sequence));
      m.model.parameters.zero_grad();  // gradients of an earlier pass are dropped
      refused();
    });
}

}  // namespace
}  // namespace gradus
