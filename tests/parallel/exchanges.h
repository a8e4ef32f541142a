// What each rank of a Comm must receive by all_to_all and exchange, played by all ranks, on any transport.
#pragma once
#include <gtest/gtest.h>

#include "src/core/rng.h"
#include "src/parallel/comm/comm.h"
#include "src/tensor/context.h"
#include "src/tensor/tensor.h"

namespace gradus {

inline Tensor bytes_on_device(const std::vector<uint8_t>& values) {
  Tensor x(current().device, {int64_t(values.size())}, DType::U8, Kind::Other, "bytes");
  x.device().copy_in(x.set().p, values.data(), x.bytes());
  return x;
}
inline void expect_values(const Tensor& x, const std::vector<uint8_t>& expected, const std::string& what) {
  if (!x.device().has_data()) return;
  std::vector<uint8_t> got(size_t(x.numel()));
  x.device().copy_out(got.data(), x.in().p, x.bytes());
  EXPECT_EQ(got, expected) << what;
}

// Element i of what rank `from` sends to rank `to`.
inline uint8_t element(int64_t from, int64_t to, int64_t i) {
  return uint8_t(from * 64 + to * 16 + i * 7 + 1);
}

// counts[from][to], random, often 0: the same on all ranks.
inline std::vector<std::vector<int64_t>> random_counts(Rng& rng, int64_t ranks) {
  std::vector<std::vector<int64_t>> counts(static_cast<size_t>(ranks));
  for (auto& row : counts)
    for (int64_t to = 0; to < ranks; ++to) row.push_back(rng.below(3) == 0 ? 0 : int64_t(rng.below(40)));
  return counts;
}

inline void expect_all_to_all(Comm& comm, const std::vector<std::vector<int64_t>>& counts) {
  const size_t me = size_t(comm.rank());
  std::vector<uint8_t> x, expected;
  std::vector<int64_t> from_counts;
  Sent sent = comm.sent();
  for (size_t r = 0; r < counts.size(); ++r) {
    for (int64_t i = 0; i < counts[me][r]; ++i) x.push_back(element(int64_t(me), int64_t(r), i));
    for (int64_t i = 0; i < counts[r][me]; ++i) expected.push_back(element(int64_t(r), int64_t(me), i));
    from_counts.push_back(counts[r][me]);
    if (r == me || counts[me][r] == 0) continue;
    sent.elements += counts[me][r], sent.bytes += counts[me][r], ++sent.messages;
  }
  const Tensor y(current().device, {int64_t(expected.size())}, DType::U8, Kind::Other, "y");
  comm.all_to_all(bytes_on_device(x), counts[me], y, from_counts)->wait();
  expect_values(y, expected, "all_to_all on rank " + std::to_string(me));
  EXPECT_EQ(comm.sent().elements, sent.elements);
  EXPECT_EQ(comm.sent().bytes, sent.bytes);
  EXPECT_EQ(comm.sent().messages, sent.messages);
}

// Every rank sends three messages with tags to each other rank, and receives them in a different order.
inline void expect_exchange(Comm& comm) {
  const int64_t ranks = comm.size(), me = comm.rank();
  std::vector<Transfer> sends, recvs;
  std::vector<std::vector<uint8_t>> expected;
  for (int64_t step = 1; step < ranks; ++step)
    for (const int64_t tag : {5, 0, 5}) {
      const int64_t to = (me + step) % ranks, n = tag + int64_t(sends.size()) % 4;
      std::vector<uint8_t> values;
      for (int64_t i = 0; i < n; ++i) values.push_back(element(me, to, i + tag));
      sends.push_back({bytes_on_device(values), to, tag});
    }
  for (int64_t step = ranks - 1; step > 0; --step)
    for (const int64_t at : {1, 0, 2}) {  // of the three messages, those with tag 5 keep their order
      const int64_t from = (me + ranks - step) % ranks, tag = at == 1 ? 0 : 5;
      const int64_t n = tag + ((step - 1) * 3 + at) % 4;
      expected.emplace_back();
      for (int64_t i = 0; i < n; ++i) expected.back().push_back(element(from, me, i + tag));
      recvs.push_back({Tensor(current().device, {n}, DType::U8, Kind::Other, "y"), from, tag});
    }
  const std::unique_ptr<Work> work = comm.exchange(sends, recvs);
  work->wait();
  work->wait();  // does nothing
  for (size_t i = 0; i < recvs.size(); ++i)
    expect_values(recvs[i].x, expected[i], "message " + std::to_string(i) + " to rank " + std::to_string(me));
}

// Sums of three overlapping groups and of all ranks: each rank begins them in a different order, and waits
// for them in yet a different one.
inline void expect_any_order(Comm& all, uint64_t number) {
  const int64_t me = all.rank();
  std::vector<std::unique_ptr<Comm>> groups;
  for (const int64_t color : {me % 2, me / 2, int64_t(0)})
    groups.push_back(all.split("group " + std::to_string(groups.size()), color));
  Rng common(41, number), mine(42 + uint64_t(me), number);
  std::vector<Comm*> comms{&all};
  for (const auto& g : groups) comms.push_back(g.get());
  std::vector<Tensor> xs;
  std::vector<std::unique_ptr<Work>> works(comms.size());
  const int64_t n = common.below(4) == 0 ? 200'003 : 5;
  for (size_t i = 0; i < comms.size(); ++i)
    xs.push_back(from_host(current().device, std::vector<double>(size_t(n), double(1 << me)), {n}, DType::F32,
                           Kind::Other, "x"));
  std::vector<size_t> order{0, 1, 2, 3};
  const auto shuffle = [&] {
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[mine.below(i)]);
  };
  shuffle();
  for (const size_t i : order) works[i] = comms[i]->all_reduce(xs[i]);
  shuffle();
  for (const size_t i : order) {
    works[i]->wait();
    double sum = 0;
    for (const int64_t r : comms[i]->members()) sum += double(1 << r);
    EXPECT_EQ(to_host<double>(xs[i]), std::vector<double>(size_t(n), sum))
        << "group " << i << " on rank " << me;
  }
}

}  // namespace gradus
