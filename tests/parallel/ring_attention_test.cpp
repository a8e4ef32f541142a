// Ring attention (src/parallel/ring_attention.h): equal to attention_flash on one device.
#include "tests/parallel/ring_attention_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct RingSetting {
  const char* device = "cpu";
  DType t = DType::F32;
  int64_t ranks = 2, B = 2, heads = 3, D = 4, T = 24;
  Mask mask = Mask::Causal;
  double deviation = 1;
};
Values queries_keys_values(const RingSetting& set) {
  return normal_numbers(set.B * set.T * 3 * set.heads * set.D, 1, set.deviation);
}
Attention flash(const RingSetting& set, DType t) {
  const int64_t C = set.heads * set.D;
  Context context(set.device);
  return attend(tensor_of(queries_keys_values(set), {set.B, set.T, 3 * C}, t),
                normal_numbers(set.B * set.T * C, 2),
                [&](const Tensor& x) { return attention_flash(x, set.heads, set.mask, 0); });
}
// A rank's part of a (B,T,columns) that is on one device.
using Own = std::function<Values(const Values& x, int64_t columns)>;
void on_ranks(const RingSetting& set,
              const std::function<void(const Attention&, const Own&, const std::string& what)>& f) {
  const int64_t C = set.heads * set.D;
  run_cluster({.ranks = set.ranks, .device = set.device}, [&](Comm& comm) {
    const Own own = [&](const Values& x, int64_t columns) {
      return chunks(x, set.B, set.T, columns, comm.rank(), comm.size());
    };
    const Attention ours =
        attend(tensor_of(own(queries_keys_values(set), 3 * C), {set.B, set.T / set.ranks, 3 * C}, set.t),
               own(normal_numbers(set.B * set.T * C, 2), C),
               [&](const Tensor& x) { return ring_attention(comm, x, set.heads, set.mask); });
    f(ours, own,
      std::string(set.device) + ", " + std::string(name_of(set.t)) + ", rank " + std::to_string(comm.rank()) +
          " of " + std::to_string(set.ranks) + (set.mask == Mask::Causal ? ", causal" : ""));
  });
}
void expect_as_flash(const RingSetting& set, double error) {
  const Attention plain = flash(set, set.t);
  const int64_t C = set.heads * set.D;
  on_ranks(set, [&](const Attention& ours, const Own& own, const std::string& what) {
    expect_near(ours.y, own(plain.y, C), error, "y, " + what);
    expect_near(ours.dqkv, own(plain.dqkv, 3 * C), error, "dqkv, " + what);
  });
}

double largest_difference(const Values& a, const Values& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST(L19_RingAttention, IsAttentionFlash) {
  for (const Mask mask : {Mask::Causal, Mask::None})
    for (const int64_t ranks : {1, 2, 3, 4}) {
      expect_as_flash({.t = DType::F64, .ranks = ranks, .mask = mask}, 1e-12);
      expect_as_flash({.t = DType::F32, .ranks = ranks, .mask = mask}, 4e-6);
      expect_as_flash({.t = DType::BF16, .ranks = ranks, .mask = mask}, 0.04);
      expect_as_flash({.t = DType::F32, .ranks = ranks, .B = 1, .heads = 1, .T = 2 * ranks, .mask = mask},
                      4e-6);
      for (const double deviation : {6, 40})  // scores up to some thousands
        expect_as_flash({.t = DType::F64, .ranks = ranks, .mask = mask, .deviation = deviation}, 1e-9);
    }
}
// With large scores a log-sum-exp of 100 is rounded to 4e-6, and so are the weights with which the ring
// merges. attention_flash divides by a sum instead, so its errors are smaller.
TEST(L19_RingAttention, LargeScoresInFp32) {
  for (const Mask mask : {Mask::Causal, Mask::None})
    for (const int64_t ranks : {1, 2, 4}) {
      const RingSetting set{.ranks = ranks, .T = 48, .mask = mask, .deviation = 6};
      const Attention exact = flash(set, DType::F64), plain = flash(set, DType::F32);
      const int64_t C = set.heads * set.D;
      on_ranks(set, [&](const Attention& ours, const Own& own, const std::string& what) {
        EXPECT_LE(largest_difference(ours.y, own(exact.y, C)), 16 * largest_difference(plain.y, exact.y))
            << what;
        EXPECT_LE(largest_difference(ours.dqkv, own(exact.dqkv, 3 * C)),
                  16 * largest_difference(plain.dqkv, exact.dqkv))
            << what;
      });
    }
}
TEST(L19_RingAttention, OnTheEmulatedGpu) {
  for (const Mask mask : {Mask::Causal, Mask::None})
    for (const DType t : {DType::F32, DType::BF16})
      expect_as_flash({.device = "emu", .t = t, .ranks = 2, .T = 12, .mask = mask},
                      t == DType::F32 ? 4e-6 : 0.04);
}

// Keys may come in any order. Without communication: a rank's queries meet the keys of all ranks.
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

// With n = B T C elements on each rank: 2 n (N-1) forward; 2 n (N-1) + 2 n N backward. One rank sends
// nothing. The tape keeps the same as for attention_flash of the same number of tokens.
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

// Two rings at a time: on all ranks and on groups of them, and the backward pass of one after that of the
// other.
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
    expect_refused("3", [&] { ring_attention(comm, of({2, 3, 36}), 3, Mask::Causal); });  // 2 chunks per rank
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
