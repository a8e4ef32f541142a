// Random programs with one fault: each ends with a message that names the rank and the call, and all objects
// that the ranks held are destroyed.
#include <gtest/gtest.h>

#include "src/parallel/comm/cluster.h"
#include "tests/parallel/faulty_programs.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

struct Alive {  // counts its instances
  static inline int64_t made = 0, there = 0;
  Alive() { ++made, ++there; }
  Alive(const Alive&) = delete;
  ~Alive() { --there; }
};

struct Held {  // what a rank keeps of a call
  Alive alive;
  Tensor x, y;
  std::unique_ptr<Work> work;
};

constexpr const char* kMine = "it does not please me";

void play(Comms& comms, const std::vector<Move>& moves, size_t at, std::map<int64_t, Held>& held) {
  const Alive alive;
  const auto mine = std::make_unique<Alive>();
  for (const size_t first = at; at < moves.size(); ++at) {
    const Move& m = moves[at];
    if (at == first + 5) return play(comms, moves, at, held);  // deeper, with more frames to unwind
    if (m.kind == Move::Kind::ThrowError) throw Error(kMine);
    if (m.kind == Move::Kind::ThrowOutOfMemory) throw OutOfMemory(kMine);
    if (m.kind == Move::Kind::ThrowOther) throw std::runtime_error(kMine);
    if (m.kind == Move::Kind::Wait) {
      held[m.id].work->wait();
      continue;
    }
    Held& h = held[m.id];
    const auto tensor = [&](int64_t n) {
      return Tensor(current().device, {n}, m.op.dtype, Kind::Other, "x");
    };
    h.x = tensor(m.op.x_numel());
    if (m.op.has_y()) h.y = tensor(m.op.y_numel());
    h.work = begin(comms, m.op, h.x, h.y);
  }
}

struct Ended {
  enum class As : uint8_t { Well, Error, OutOfMemory, Other } as = As::Well;
  std::string text;
};

Ended run(const Moves& moves, const char* device) {
  try {
    run_cluster({.ranks = moves.program.ranks, .device = device}, [&](Comm& comm) {
      Comms comms(comm, moves.program);
      std::map<int64_t, Held> held;
      play(comms, moves.of_rank[size_t(comm.rank())], 0, held);
    });
  } catch (const OutOfMemory& e) {
    return {Ended::As::OutOfMemory, e.what()};
  } catch (const Error& e) {
    return {Ended::As::Error, e.what()};
  } catch (const std::runtime_error& e) {
    return {Ended::As::Other, e.what()};
  }
  return {};
}

std::string rank_text(size_t rank) { return "rank " + std::to_string(rank); }

void expect_mismatch(const Outcome& o, size_t faulty, const std::string& text) {
  // The rank that comes last finds it: one of the two named ranks is the faulty one.
  const std::string number = ": its collective number " + std::to_string(o.number);
  bool said = false;
  for (size_t r = 0; r < o.offers.size(); ++r) {
    if (r == faulty || o.offers[r].empty()) continue;
    const auto sentence = [&](size_t a, size_t b) {
      return text.starts_with(rank_text(a) + number) &&
             text.find(" is " + o.offers[a]) != std::string::npos &&
             text.find(", that of " + rank_text(b) + " is " + o.offers[b]) != std::string::npos;
    };
    said = said || sentence(r, faulty) || sentence(faulty, r);
  }
  EXPECT_TRUE(said) << text;
  // Different calls must have different texts.
  const size_t is = text.find(" is "), that = text.find(", that of "), second = text.find(" is ", that);
  ASSERT_NE(second, std::string::npos) << text;
  EXPECT_NE(text.substr(is + 4, that - is - 4), text.substr(second + 4)) << text;
}

void expect_ended(const Ended& e, Fault fault, const Outcome& o, size_t faulty) {
  using As = Ended::As;
  As as = As::Error;
  if (o.kind == Outcome::Kind::Ends) as = As::Well;
  if (o.kind == Outcome::Kind::Throws && fault == Fault::ThrowsOutOfMemory) as = As::OutOfMemory;
  if (o.kind == Outcome::Kind::Throws && fault == Fault::ThrowsOther) as = As::Other;
  EXPECT_EQ(int(e.as), int(as)) << e.text;
  const std::string prefix = as == As::Other ? "" : rank_text(faulty) + ": ";
  if (o.kind == Outcome::Kind::Throws) {
    EXPECT_EQ(e.text, prefix + kMine);
  }
  if (o.kind == Outcome::Kind::OtherCollective) expect_mismatch(o, faulty, e.text);
  if (o.kind == Outcome::Kind::OtherMessage) {
    EXPECT_TRUE(e.text.starts_with(rank_text(size_t(o.to)) + ": recv of ")) << e.text;
    EXPECT_NE(e.text.find("from " + rank_text(size_t(o.from))), std::string::npos) << e.text;
  }
  if (o.kind != Outcome::Kind::Deadlock) return;
  EXPECT_TRUE(e.text.starts_with("deadlock: no rank can go on")) << e.text;
  for (size_t r = 0; r < o.waits.size(); ++r) {
    const std::string where = o.waits[r].empty() ? " has ended" : " waits in " + o.waits[r];
    EXPECT_NE(e.text.find(rank_text(r) + where), std::string::npos) << e.text << "; expected" << where;
  }
}

// Checks that a faulty program ends as it should, and leaves nothing behind.
void expect_fault(Fault fault, uint64_t number) {
  Rng rng(18, number);
  const int64_t ranks = 2 + int64_t(rng.below(5));
  const size_t faulty = rng.below(uint64_t(ranks));
  Moves moves;
  Outcome outcome;
  do {
    const int64_t splits = number % 2 == 0 ? 0 : 2 + int64_t(rng.below(3));
    moves = moves_of(
        ProgramMaker(rng, ranks, {0, 1, 2, 7, 16, 33}, true, splits).make(1 + int64_t(rng.below(12))));
    if (!add_fault(rng, fault, moves, int64_t(faulty))) continue;
    outcome = InThought(moves).run();
  } while (outcome.kind == Outcome::Kind::Ends);
  const Context before;
  const int64_t made = Alive::made;
  expect_ended(run(moves, number % 3 == 0 ? "meta" : "cpu"), fault, outcome, faulty);
  EXPECT_GE(Alive::made - made, 2) << "objects in the ranks' bodies";
  EXPECT_EQ(Alive::there, 0);
  EXPECT_EQ(&current(), &before);
  const Ended good = run(moves_of(ProgramMaker(rng, ranks, {1, 7}).make(5)), "cpu");
  EXPECT_EQ(int(good.as), int(Ended::As::Well)) << good.text;
  EXPECT_EQ(&current(), &before);
}

TEST(L17_FaultyPrograms, EndWithASentenceThatNamesWhoAndWhat) {
  for (uint64_t i = 0; i < 800 && !HasFailure(); ++i) {
    const Fault fault = Fault(i % uint64_t(Fault::Count));
    SCOPED_TRACE("program " + std::to_string(i) + ", fault " + std::to_string(int(fault)));
    expect_fault(fault, i);
  }
}

// No rank waits, so there is no deadlock; but not all ranks have called the same.
TEST(L17_FaultyPrograms, ACallThatARankLeavesOutIsNoticedAlthoughNobodyWaits) {
  for (const int64_t leaves_out : {0, 1, 2})
    expect_refused("all_reduce of 3 fp32", [&] {
      run_cluster({.ranks = 3}, [&](Comm& comm) {
        const Tensor x(current().device, {3}, DType::F32, Kind::Other, "x");
        comm.barrier();
        if (comm.rank() != leaves_out) comm.all_reduce(x);
      });
    });
}

}  // namespace
}  // namespace gradus
