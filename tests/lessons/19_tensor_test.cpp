// The exercises of lesson 19, and its claims: pairs of products, chunks of the ring, bytes and elements of a
// layer.
#include <gtest/gtest.h>

#include "lessons/19_tensor_parallel/layer.h"
#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"
#include "src/parallel/parts.h"
#include "src/parallel/ring_attention.h"
#include "src/train/dummy.h"
#include "tests/mistakes.h"

namespace gradus {
namespace {

constexpr Sequence kForms[] = {Sequence::Whole, Sequence::KeepGathered, Sequence::GatherAgain};
std::string name_of(Sequence form) {
  constexpr const char* kNames[] = {"Whole", "KeepGathered", "GatherAgain"};
  return std::string("with Sequence::") + kNames[int(form)];
}
const TransformerConfig kModel{.vocab = 12, .context = 4, .layers = 1, .heads = 2, .channels = 4};

using Numbers = std::vector<double>;
Numbers counted(int64_t n, double first, double step) {
  Numbers x;
  for (int64_t i = 0; i < n; ++i) x.push_back(first + step * double(i % 7));
  return x;
}
Tensor on_device(const Numbers& values, const Shape& shape) {
  return from_host(current().device, values, shape, DType::F32, Kind::Temporary, "numbers");
}
// Returns x W^T, with x (rows, in) and W (out, in).
Numbers times(const Numbers& x, const Numbers& w, int64_t in) {
  Numbers y;
  for (size_t r = 0; r < x.size(); r += size_t(in))
    for (size_t o = 0; o < w.size(); o += size_t(in)) {
      double sum = 0;
      for (size_t i = 0; i < size_t(in); ++i) sum += x[r + i] * w[o + i];
      y.push_back(sum);
    }
  return y;
}
// Returns the tokens of a rank of 2, from x (B, T, C) with B = 1.
Numbers half(const Numbers& x, int64_t rank) {
  const auto middle = x.begin() + int64_t(x.size()) / 2;
  return rank == 0 ? Numbers(x.begin(), middle) : Numbers(middle, x.end());
}

struct Applied {  // the results of a layer for x, whole or a part
  Numbers y, dx, db;
  int64_t saved, sent;  // bytes; elements
};
Applied apply(const Comm& comm, const Linear& layer, const Numbers& x, const Numbers& dy, int64_t tokens) {
  Leaf leaf;
  Tensor in = on_device(x, {1, tokens, int64_t(x.size()) / tokens});
  attach(in, leaf, "x");
  const int64_t before = comm.sent().elements;
  Tape tape;
  const Tensor y = layer(in);
  const int64_t saved = tape.saved_bytes();
  tape.backward(y, on_device(Numbers(dy.begin(), dy.begin() + y.numel()), y.shape()));
  return {to_host<double>(y), to_host<double>(leaf.grad), to_host<double>(layer.bias->leaf.grad), saved,
          comm.sent().elements - before};
}

// W1 is (16, 4); rank r of 2 has rows 8 r to 8 r + 7.
TEST(L19_Exercises, TheFirstOfAPairReadsAllOfItsInput) {
  RecordProperty("exercise", "19.2");
  for (const Sequence form : kForms)
    run_cluster({.ranks = 2}, [&](Comm& comm) {
      Transformer model(kModel, Allocate::Later);
      const TensorParallel parallel(comm, model, form);
      Linear& layer = model.blocks[0].c_fc;
      const Numbers w[] = {counted(32, -1, 0.5), counted(32, 2, -0.25)}, x = counted(16, -2, 1);
      layer.weight.assign(w[comm.rank()]);
      layer.bias->assign(Numbers(8, 0.5));
      const bool parts = form != Sequence::Whole;
      const Numbers dy = counted(4 * 8, 1, double(comm.rank() + 1));
      const Applied got = apply(comm, layer, parts ? half(x, comm.rank()) : x, dy, parts ? 2 : 4);
      Numbers y = times(x, w[comm.rank()], 4), dx(16, 0.0), own(16, 0.0);
      for (double& v : y) v += 0.5;
      for (const int r : {0, 1})
        for (int64_t i = 0; i < 16; ++i)
          for (int64_t o = 0; o < 8; ++o) {
            const double part =
                counted(32, 1, double(r + 1))[size_t(i / 4 * 8 + o)] * w[r][size_t(o * 4 + i % 4)];
            dx[size_t(i)] += part;
            if (r == comm.rank()) own[size_t(i)] += part;
          }
      if (parts) dx = half(dx, comm.rank()), own = half(own, comm.rank());
      EXPECT_EQ(got.y, y) << name_of(form)
                          << usual_mistake({{got.y.size() < y.size(),
                                             "the product reads the tokens of this rank only; it needs the "
                                             "tokens of all ranks"}});
      EXPECT_EQ(got.dx, dx) << name_of(form)
                            << usual_mistake(
                                   {{got.dx == own,
                                     "each rank has a partial sum of dx, but the partial sums of the "
                                     "ranks were not added"}});
      // Saved is the input of a weight that trains: all tokens, or, if it is gathered again, this rank's.
      EXPECT_EQ(got.saved, form == Sequence::GatherAgain ? 2 * 4 * 4 : 4 * 4 * 4)
          << name_of(form) << " the layer saves a different number of bytes for the backward pass";
    });
}

// W2 is (4, 16); rank r of 2 has columns 8 r to 8 r + 7.
TEST(L19_Exercises, TheSecondOfAPairIsASum) {
  RecordProperty("exercise", "19.3");
  for (const Sequence form : kForms)
    run_cluster({.ranks = 2},
                [&](Comm& comm) {
                  Transformer model(kModel, Allocate::Later);
                  const TensorParallel parallel(comm, model, form);
                  Linear& layer = model.blocks[0].mlp_c_proj;
                  const Numbers w[] = {counted(32, -1, 0.5), counted(32, 2, -0.25)},
                                x[] = {counted(32, 1, -1), counted(32, -3, 1)};
                  layer.weight.assign(w[comm.rank()]);
                  layer.bias->assign({1, 2, 3, 4});
                  const bool parts = form != Sequence::Whole;
                  Numbers dy = counted(parts ? 8 : 16, 1, 1), all_dy = dy, dx, db(4, 0.0);
                  if (parts) all_dy.insert(all_dy.end(), dy.begin(), dy.end());
                  for (size_t i = 0; i < dy.size(); ++i) db[i % 4] += dy[i];
                  for (size_t token = 0; token < 4; ++token)
                    for (size_t i = 0; i < 8; ++i) {
                      double sum = 0;
                      for (size_t o = 0; o < 4; ++o) sum += all_dy[token * 4 + o] * w[comm.rank()][o * 8 + i];
                      dx.push_back(sum);
                    }
                  const Applied got = apply(comm, layer, x[comm.rank()], dy, 4);
                  Numbers y = times(x[0], w[0], 8), other = times(x[1], w[1], 8), twice;
                  for (size_t i = 0; i < y.size(); ++i) {
                    const double bias = double(1 + i % 4);
                    y[i] += other[i] + bias;
                    twice.push_back(y[i] + bias);
                  }
                  if (parts) y = half(y, comm.rank()), twice = half(twice, comm.rank());
                  EXPECT_EQ(got.y, y)
                      << name_of(form)
                      << usual_mistake(
                             {{got.y == twice,
                               "every rank added the bias to its partial sum, so y has it once per rank"}});
                  Numbers doubled = dx;
                  for (double& v : doubled) v *= 2;
                  EXPECT_EQ(got.dx, dx)
                      << name_of(form)
                      << usual_mistake(
                             {{got.dx == doubled,
                               "dx was added up over the ranks, but every rank already has all of dy"}});
                  EXPECT_EQ(got.db, db)
                      << name_of(form) << " the gradient of the bias is not that of this rank's tokens";
                  // An all-reduce, or a reduce-scatter and in backward an all-gather, of 16 elements.
                  EXPECT_EQ(got.sent, 16)
                      << name_of(form) << " the layer sends a different number of elements"
                      << usual_mistake(
                             {{got.sent == 24,
                               "the whole sum was sent to all ranks; each rank needs only its tokens"}});
                });
}

TEST(L19_Exercises, AChunkAttendsToItselfAndEarlierChunks) {
  RecordProperty("exercise", "19.4");
  const auto text = [](Mask mask, int64_t queries, int64_t keys, int64_t ranks) {
    std::string all;
    for (const ChunkPair& p : chunk_pairs(mask, queries, keys, ranks))
      all += std::to_string(p.queries) + std::to_string(p.keys) + (p.mask == Mask::Causal ? "c " : " ");
    return all;
  };
  // With 2 ranks, rank 0 has chunks 0 and 3, rank 1 has chunks 1 and 2.
  const std::string own = text(Mask::Causal, 0, 0, 2);
  EXPECT_EQ(own, "00c 10 11c ") << usual_mistake(
      {{own == "00 10 11 ", "within its own chunk a query attends to keys that come after it"},
       {own == "10 ", "a chunk of queries does not attend to the keys of the same chunk"}});
  EXPECT_EQ(text(Mask::Causal, 1, 1, 2), "00c 10 11c ");
  EXPECT_EQ(text(Mask::Causal, 0, 1, 2), "10 11 ")
      << "the queries of chunk 3 attend to chunks 1 and 2, those of chunk 0 to neither";
  EXPECT_EQ(text(Mask::Causal, 1, 0, 2), "00 10 ")
      << "the queries of chunks 1 and 2 attend to chunk 0, not to chunk 3";
  EXPECT_EQ(text(Mask::None, 0, 0, 2), "00 01 10 11 ") << "without a mask every chunk attends to every chunk";
  EXPECT_EQ(text(Mask::None, 0, 1, 2), "00 01 10 11 ") << "without a mask every chunk attends to every chunk";
  EXPECT_EQ(text(Mask::Causal, 2, 1, 4), "00 10 ");
  EXPECT_EQ(text(Mask::Causal, 1, 2, 4), "10 11 ");
}

TEST(L19_Copies, StayTheSameOnAllRanks) {
  for (const Sequence form : kForms) {
    std::vector<std::vector<double>> copies[2];
    std::vector<std::string> names;
    run_cluster({.ranks = 2}, [&](Comm& comm) {
      Transformer model(kModel, Allocate::Later);
      TensorParallel parallel(comm, model, form);
      model.initialize(1, &assign_part);
      Sgd sgd(model.parameters);
      for (int64_t step = 0; step < 2; ++step) {
        model.parameters.zero_grad();
        Tape tape;
        tape.backward(dummy_batch(kModel, 2, 4, uint64_t(step)).loss(model));
        parallel.sum_gradients();
        sgd.step(0.1);
      }
      for (const Parameter& p : model.parameters)
        if (!p.shard) {
          copies[comm.rank()].push_back(to_host<double>(p.value));
          if (comm.rank() == 0) names.push_back(p.name);
        }
    });
    for (size_t i = 0; i < names.size(); ++i)
      EXPECT_EQ(copies[0][i], copies[1][i])
          << name_of(form) << " the ranks have different values of " << names[i];
  }
}

TEST(L19_Exercises, WithDropoutRanksLearnWhatOneDeviceLearns) {
  RecordProperty("exercise", "19.6");
  TransformerConfig c = kModel;
  c.dropout = 0.3;
  const auto losses = [&](Transformer& model, const std::function<void()>& sum) {
    Sgd sgd(model.parameters);
    Numbers all;
    for (int64_t step = 0; step < 3; ++step) {
      model.parameters.zero_grad();
      Tape tape;
      const Tensor loss = dummy_batch(c, 2, 4, uint64_t(step)).loss(model);
      tape.backward(loss);
      sum();
      sgd.step(0.1);
      all.push_back(item(loss));
    }
    return all;
  };
  Numbers alone;
  {
    const Context context("cpu", 5);
    Transformer model(c);
    model.initialize(1);
    alone = losses(model, [] {});
  }
  for (const Sequence form : kForms)
    run_cluster({.ranks = 2, .seed = 5}, [&](Comm& comm) {
      Transformer model(c, Allocate::Later);
      TensorParallel parallel(comm, model, form);
      model.initialize(1, &assign_part);
      const Numbers ours = losses(model, [&] { parallel.sum_gradients(); });
      for (size_t i = 0; i < alone.size(); ++i)
        EXPECT_NEAR(ours[i], alone[i], 1e-5)
            << name_of(form) << " the loss of step " << i << " differs from that of one device";
    });
}

TEST(L19_Formulas, ElementsThatALayerSends) {
  RecordProperty("exercise", "19.1");
  for (const int64_t t : {1, 2, 4, 8}) {
    const auto sent = [&](Sequence sequence) {
      return predicted_elements({.b = 3, .s = 16, .h = 8, .a = 8, .t = t, .sequence = sequence});
    };
    const int64_t bsh = 3 * 16 * 8, once = bsh / t * (t - 1);
    EXPECT_EQ(sent(Sequence::Whole), 8 * once)
        << usual_mistake({{sent(Sequence::Whole) == 4 * once && t > 1,
                           "an all-reduce sends twice as much: it is a reduce-scatter and an all-gather"}});
    EXPECT_EQ(sent(Sequence::KeepGathered), 8 * once);
    EXPECT_EQ(sent(Sequence::GatherAgain), 10 * once);
  }
}

TEST(L19_Formulas, ALayerKeepsAndSendsAsMeasured) {
  for (const Sequence form : kForms)
    for (const bool selective : {false, true})
      for (const int64_t t : {1, 2, 4}) {
        const LayerSetting set{2, 8, 16, 4, t, form, selective};
        if (t == 1 && form != Sequence::Whole) continue;
        const LayerUse use = measure_layer(set);
        const std::string where =
            name_of(form) + (selective ? ", selective, " : ", ") + std::to_string(t) + " ranks: different ";
        EXPECT_EQ(use.bytes, published_bytes(set) - not_saved_here(set)) << where << "bytes saved";
        EXPECT_EQ(use.elements, predicted_elements(set)) << where << "elements sent";
        EXPECT_EQ(use.messages, (form == Sequence::GatherAgain ? 10 : 8) * (t - 1)) << where << "messages";
      }
}

// Korthikanti et al. 2023: for layers of GPT-3 and MT-NLG, 5 a s / h is 80 and 64, and selective
// recomputation saves 70 % and 65 % of the bytes.
TEST(L19_Published, SelectiveRecomputation) {
  const auto share = [](int64_t h, int64_t a) {
    return 1 - double(published_bytes({1, 2048, h, a, 8, Sequence::GatherAgain, true})) /
                   double(published_bytes({1, 2048, h, a, 8, Sequence::GatherAgain, false}));
  };
  EXPECT_NEAR(share(12288, 96), 0.70, 0.005);
  EXPECT_NEAR(share(20480, 128), 0.65, 0.005);
}

// GiB that a layer saves without parallelism, b = 1; derived from table 3 of the same paper.
TEST(L19_Published, ActivationsOfALayer) {
  const auto gib = [](int64_t h, int64_t a) { return double(published_bytes({1, 2048, h, a})) / (1 << 30); };
  EXPECT_NEAR(gib(6144, 64), 1.648, 0.0005);
  EXPECT_NEAR(gib(12288, 96), 2.672, 0.0005);
  EXPECT_NEAR(gib(20480, 128), 3.828, 0.0005);
  EXPECT_NEAR(gib(25600, 160), 4.785, 0.0005);
}

}  // namespace
}  // namespace gradus
