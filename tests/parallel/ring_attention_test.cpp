// Ring attention (src/parallel/ring_attention.h): equal to attention_flash on one device.
#include "src/parallel/ring_attention.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/parallel/rank_ops_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

std::vector<int64_t> tokens_of(int64_t T, int64_t rank, int64_t ranks) {
  const Zigzag z = zigzag(T, rank, ranks);
  std::vector<int64_t> all;
  for (const int64_t begin : z.begin)
    for (int64_t i = 0; i < z.count; ++i) all.push_back(begin + i);
  return all;
}
// Of x (B,T,C) the tokens of a rank, in the order of its chunks.
Values chunks(const Values& x, int64_t B, int64_t T, int64_t C, int64_t rank, int64_t ranks) {
  Values own;
  for (int64_t b = 0; b < B; ++b)
    for (const int64_t t : tokens_of(T, rank, ranks))
      own.insert(own.end(), x.begin() + (b * T + t) * C, x.begin() + (b * T + t + 1) * C);
  return own;
}

TEST(L19_RingAttention, ZigzagHasEachTokenOnce) {
  for (int64_t ranks = 1; ranks <= 9; ++ranks)
    for (const int64_t count : {1, 2, 5}) {
      const int64_t T = 2 * ranks * count;
      std::set<int64_t> met;
      for (int64_t r = 0; r < ranks; ++r) {
        const Zigzag z = zigzag(T, r, ranks);
        EXPECT_EQ(z.count, count);
        EXPECT_EQ(z.begin[0], r * count);
        EXPECT_EQ(z.begin[1], (2 * ranks - 1 - r) * count);
        for (const int64_t t : tokens_of(T, r, ranks)) EXPECT_TRUE(met.insert(t).second) << t;
      }
      EXPECT_EQ(int64_t(met.size()), T);
      EXPECT_EQ(*met.begin(), 0);
      EXPECT_EQ(*met.rbegin(), T - 1);
    }
  for (const auto& [T, ranks] : {std::pair<int64_t, int64_t>{7, 1}, {6, 2}, {10, 4}, {1, 1}, {9, 3}})
    expect_refused(std::to_string(T), [&] { zigzag(T, 0, ranks); });
}

// Every pair of query and key is met once; with a causal mask those whose key is not later.
TEST(L19_RingAttention, ChunkPairsMeetEachPairOnce) {
  for (const Mask mask : {Mask::Causal, Mask::None})
    for (int64_t ranks = 1; ranks <= 9; ++ranks) {
      const int64_t count = 3, T = 2 * ranks * count;
      std::vector<int> met(static_cast<size_t>(T * T));
      for (int64_t q = 0; q < ranks; ++q)
        for (int64_t k = 0; k < ranks; ++k)
          for (const ChunkPair& pair : chunk_pairs(mask, q, k, ranks)) {
            const int64_t of_q = zigzag(T, q, ranks).begin[pair.queries],
                          of_k = zigzag(T, k, ranks).begin[pair.keys];
            for (int64_t i = 0; i < count; ++i)
              for (int64_t j = 0; j < (pair.mask == Mask::Causal ? i + 1 : count); ++j)
                ++met[size_t((of_q + i) * T + of_k + j)];
          }
      for (int64_t i = 0; i < T; ++i)
        for (int64_t j = 0; j < T; ++j)
          ASSERT_EQ(met[size_t(i * T + j)], mask == Mask::None || j <= i) << ranks << ": " << i << ", " << j;
    }
}

// All ranks have the same number of pairs at every step of the ring, whichever way it goes round.
TEST(L19_RingAttention, PairsAreBalancedAtEveryStep) {
  for (const Mask mask : {Mask::Causal, Mask::None})
    for (int64_t ranks = 1; ranks <= 9; ++ranks)
      for (const int64_t count : {1, 4}) {
        const int64_t T = 2 * ranks * count;
        int64_t all = 0;
        for (int64_t step = 0; step < ranks; ++step)
          for (int64_t r = 0; r < ranks; ++r) {
            const auto pairs = [&](int64_t rank, int64_t of_keys) {
              return count_pairs(chunk_pairs(mask, rank, of_keys % ranks, ranks), count);
            };
            all += pairs(r, r + step);
            EXPECT_EQ(pairs(r, r + step), pairs(0, step))
                << ranks << " ranks, step " << step << ", rank " << r;
            EXPECT_EQ(pairs(r, r + ranks - step), pairs(0, ranks - step))
                << ranks << ", " << step << ", " << r;
          }
        EXPECT_EQ(all, mask == Mask::Causal ? T * (T + 1) / 2 : T * T) << ranks;
      }
}

struct Attention {
  Values y, dqkv;
};
Attention attend(const Tensor& given, const Values& dy, const std::function<Tensor(const Tensor&)>& f) {
  Tensor qkv = given;
  Leaf leaf;
  attach(qkv, leaf, "qkv");
  Tape tape;
  const Tensor y = f(qkv);
  const Values values = to_host<double>(y);
  tape.backward(y, tensor_of(dy, y.shape(), y.dtype()));
  return {values, to_host<double>(leaf.grad)};
}
void expect_near(const Values& got, const Values& expected, double error, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], error * (1 + std::abs(expected[i]))) << what << ", " << i;
}

struct RingSetting {
  const char* device = "cpu";
  DType t = DType::F32;
  int64_t ranks = 2, B = 2, heads = 3, D = 4, T = 24;
  Mask mask = Mask::Causal;
  double deviation = 1;
};
void expect_as_flash(const RingSetting& set, double error) {
  const int64_t C = set.heads * set.D;
  const Values qkv = normal_numbers(set.B * set.T * 3 * C, 1, set.deviation),
               dy = normal_numbers(set.B * set.T * C, 2);
  Attention plain;
  {
    Context context(set.device);
    plain = attend(tensor_of(qkv, {set.B, set.T, 3 * C}, set.t), dy,
                   [&](const Tensor& x) { return attention_flash(x, set.heads, set.mask, 0); });
  }
  run_cluster({.ranks = set.ranks, .device = set.device}, [&](Comm& comm) {
    const auto own = [&](const Values& x, int64_t columns) {
      return chunks(x, set.B, set.T, columns, comm.rank(), comm.size());
    };
    const Attention ours =
        attend(tensor_of(own(qkv, 3 * C), {set.B, set.T / set.ranks, 3 * C}, set.t), own(dy, C),
               [&](const Tensor& x) { return ring_attention(comm, x, set.heads, set.mask); });
    const std::string what = std::string(set.device) + ", " + std::string(name_of(set.t)) + ", rank " +
                             std::to_string(comm.rank()) + " of " + std::to_string(set.ranks) +
                             (set.mask == Mask::Causal ? ", causal" : "");
    expect_near(ours.y, own(plain.y, C), error, "y, " + what);
    expect_near(ours.dqkv, own(plain.dqkv, 3 * C), error, "dqkv, " + what);
  });
}

TEST(L19_RingAttention, IsAttentionFlash) {
  for (const Mask mask : {Mask::Causal, Mask::None})
    for (const int64_t ranks : {1, 2, 3, 4}) {
      expect_as_flash({.t = DType::F64, .ranks = ranks, .mask = mask}, 1e-12);
      expect_as_flash({.t = DType::F32, .ranks = ranks, .mask = mask}, 4e-6);
      expect_as_flash({.t = DType::BF16, .ranks = ranks, .mask = mask}, 0.04);
      expect_as_flash({.t = DType::F32, .ranks = ranks, .B = 1, .heads = 1, .T = 2 * ranks, .mask = mask},
                      4e-6);
      expect_as_flash({.t = DType::F32, .ranks = ranks, .T = 48, .mask = mask, .deviation = 6}, 4e-5);
    }
}
TEST(L19_RingAttention, OnTheEmulatedGpu) {
  for (const Mask mask : {Mask::Causal, Mask::None})
    for (const DType t : {DType::F32, DType::BF16})
      expect_as_flash({.device = "emu", .t = t, .ranks = 2, .T = 12, .mask = mask},
                      t == DType::F32 ? 4e-6 : 0.04);
}

// Keys may come in any order. Without ranks: a rank's queries meet the keys of all.
TEST(L19_RingAttention, MeetingsInAnyOrder) {
  const int64_t B = 2, T = 24, heads = 3, C = 12, ranks = 4;
  const Values all = normal_numbers(B * T * 3 * C, 1), all_dy = normal_numbers(B * T * C, 2);
  for (const Mask mask : {Mask::Causal, Mask::None}) {
    const Context context;
    const Attention plain = attend(tensor_of(all, {B, T, 3 * C}, DType::F64), all_dy,
                                   [&](const Tensor& x) { return attention_flash(x, heads, mask, 0); });
    for (const std::vector<int64_t>& order : {std::vector<int64_t>{0, 1, 2, 3}, {3, 1, 0, 2}, {2, 3, 1, 0}}) {
      std::vector<Tensor> qkv, keys, dkeys, dq;
      for (int64_t r = 0; r < ranks; ++r) {
        qkv.push_back(tensor_of(chunks(all, B, T, 3 * C, r, ranks), {B, T / ranks, 3 * C}, DType::F64));
        keys.push_back(keys_of(qkv.back()));
        EXPECT_EQ(keys.back().shape(), (Shape{2, B, T / ranks, C}));
        dkeys.push_back(tensor_of(Values(size_t(keys.back().numel())), keys.back().shape(), DType::F64));
      }
      for (int64_t r = 0; r < ranks; ++r) {
        Attended attended(qkv[size_t(r)], heads);
        for (const int64_t k : order) attended.meet(keys[size_t(k)], chunk_pairs(mask, r, k, ranks));
        const Tensor y = attended.y();
        expect_near(to_host<double>(y), chunks(plain.y, B, T, C, r, ranks), 1e-12, "y");
        const Tensor dy = tensor_of(chunks(all_dy, B, T, C, r, ranks), y.shape(), DType::F64);
        dq.push_back(tensor_of(Values(size_t(y.numel())), y.shape(), DType::F64));
        AttendedGradient gradient{attended.q, y, attended.lse, dy, heads, dq.back()};
        for (const int64_t k : order)
          gradient.meet(keys[size_t(k)], chunk_pairs(mask, r, k, ranks), dkeys[size_t(k)]);
        dq.back() = gradient.dq;
      }
      for (int64_t r = 0; r < ranks; ++r) {
        Tensor dqkv = tensor_of(Values(size_t(B * T / ranks * 3 * C)), {B, T / ranks, 3 * C}, DType::F64);
        put_gradients(dq[size_t(r)], dkeys[size_t(r)], dqkv.set());
        expect_near(to_host<double>(dqkv), chunks(plain.dqkv, B, T, 3 * C, r, ranks), 1e-12, "dqkv");
      }
    }
  }
}

// Of n = B T C elements on each rank: 2 n (N-1) forward; 2 n (N-1) + 2 n N backward. One rank sends nothing.
// The tape keeps what attention_flash keeps of as many tokens.
TEST(L19_RingAttention, ElementsSentAndBytesKept) {
  for (const std::string device : {"cpu", "meta"})
    for (const DType t : {DType::F32, DType::BF16})
      for (const Mask mask : {Mask::Causal, Mask::None})
        for (const int64_t N : {1, 2, 3, 4})
          run_cluster({.ranks = N, .device = device}, [&](Comm& comm) {
            const int64_t B = 2, T = 4, C = 12, n = B * T * C;
            Tensor qkv(current().device, {B, T, 3 * C}, t, Kind::Data, "qkv");
            if (device == "cpu") copy_from_host(qkv, normal_numbers(3 * n, 1));
            const std::string what = device + ", " + std::to_string(N) + " ranks";
            {
              const Sent before = comm.sent();
              const Tape tape;
              ring_attention(comm, qkv, 3, mask);  // no gradient is wanted
              EXPECT_EQ(comm.sent().elements - before.elements, 2 * n * (N - 1)) << what;
              EXPECT_TRUE(tape.nodes().empty());
            }
            Leaf leaf;
            attach(qkv, leaf, "qkv");
            int64_t saved = 0;
            {
              const Tape tape;
              attention_flash(qkv, 3, mask, 0);
              saved = tape.saved_bytes();
            }
            const Sent before = comm.sent();
            Tape tape;
            const Tensor y = ring_attention(comm, qkv, 3, mask);
            EXPECT_EQ(y.shape(), (Shape{B, T, C}));
            EXPECT_EQ(y.dtype(), t);
            EXPECT_EQ(tape.saved_bytes(), saved) << what;
            EXPECT_EQ(comm.sent().elements - before.elements, 2 * n * (N - 1)) << what;
            tape.backward(y, y.detach());
            const int64_t expected = N == 1 ? 0 : 2 * n * (N - 1) * 2 + 2 * n * N;
            EXPECT_EQ(comm.sent().elements - before.elements, expected) << what;
          });
}

// Two rings at a time: on all ranks and on groups of them, and one's backward after the other's.
TEST(L19_RingAttention, TwoRingsAtATime) {
  run_cluster({.ranks = 4}, [](Comm& all) {
    const auto pairs = all.split("pairs", all.rank() % 2);
    const int64_t C = 12, T = 24, B = 1;
    const auto make = [&](Comm& comm, uint64_t stream) {
      return tensor_of(chunks(normal_numbers(B * T * 3 * C, stream), B, T, 3 * C, comm.rank(), comm.size()),
                       {B, T / comm.size(), 3 * C});
    };
    Tensor a = make(all, 1), b = make(*pairs, 2);
    Leaf of_a, of_b;
    attach(a, of_a, "a"), attach(b, of_b, "b");
    Tape tape;
    const Tensor ya = ring_attention(all, a, 3, Mask::Causal), yb = ring_attention(*pairs, b, 3, Mask::None);
    const Tensor both = concatenate({ya.reshape({1, ya.numel()}), yb.reshape({1, yb.numel()})});
    tape.backward(both, tensor_of(Values(size_t(both.numel()), 1), both.shape()));
    const auto expect = [&](Comm& comm, uint64_t stream, Mask mask, const Leaf& leaf) {
      const Attention plain = attend(tensor_of(normal_numbers(B * T * 3 * C, stream), {B, T, 3 * C}),
                                     Values(size_t(B * T * C), 1),
                                     [&](const Tensor& x) { return attention_flash(x, 3, mask, 0); });
      expect_near(to_host<double>(leaf.grad), chunks(plain.dqkv, B, T, 3 * C, comm.rank(), comm.size()), 4e-6,
                  std::to_string(comm.size()) + " ranks");
    };
    expect(all, 1, Mask::Causal, of_a);
    expect(*pairs, 2, Mask::None, of_b);
  });
}

TEST(L19_RingAttention, WhatCannotBe) {
  run_cluster({.ranks = 2}, [](Comm& comm) {
    const auto of = [](const Shape& s) { return tensor_of(normal_numbers(s.numel(), 1), s); };
    expect_refused("3", [&] { ring_attention(comm, of({2, 3, 36}), 3, Mask::Causal); });  // two chunks each
    expect_refused("heads", [&] { ring_attention(comm, of({2, 4, 36}), 5, Mask::Causal); });
    expect_refused("36", [&] { ring_attention(comm, of({4, 36}), 3, Mask::Causal); });
    EXPECT_NE(refusal([&] { ring_attention(comm, of({2, 4, 36}), 0, Mask::Causal); }), "");
    EXPECT_NE(refusal([&] { ring_attention(comm, of({2, 4, 36}), -3, Mask::Causal); }), "");
    EXPECT_NE(refusal([&] { ring_attention(comm, of({2, 4, 38}), 1, Mask::Causal); }), "");
    EXPECT_EQ(comm.sent().elements, 0);
  });
  expect_as_flash({}, 4e-6);
}

}  // namespace
}  // namespace gradus
