// Random programs with one fault, and how such a program should end: found by simulating it, each rank as far
// as it comes.
#pragma once
#include <optional>
#include <string>
#include <tuple>

#include "tests/parallel/random_programs.h"

namespace gradus {

// One rank's copy of its program, so that a fault can change one rank.
struct Move {
  enum class Kind : uint8_t { Begin, Wait, ThrowError, ThrowOutOfMemory, ThrowOther };
  Kind kind = Kind::Begin;
  Op op = {};      // what the rank begins
  int64_t id = 0;  // of the op that was begun
  bool collective() const { return kind == Kind::Begin && !op.is_message(); }
};
struct Moves {
  Program program;  // only its groups are used
  std::vector<std::vector<Move>> of_rank;
};

enum class Fault : uint8_t {
  OtherCall,
  OtherSize,
  OtherDType,
  OtherRoot,
  LeavesOut,
  EndsEarly,
  ThrowsError,
  ThrowsOutOfMemory,
  ThrowsOther,
  OtherMessage,
  WaitsForNobody,
  Count
};

struct Outcome {
  enum class Kind : uint8_t { Ends, OtherCollective, OtherMessage, Deadlock, Throws };
  Kind kind = Kind::Ends;
  int64_t number = 0;                    // of the collective, from 1 on
  std::vector<std::string> offers = {};  // the ranks' calls there; "" for a rank that does not come
  int64_t from = 0, to = 0;              // of the message
  std::vector<std::string> waits = {};   // where each rank waits; "" if it has ended
};

inline Moves moves_of(const Program& p) {
  Moves moves{p, {}};
  moves.of_rank.resize(p.acts.size());
  for (size_t r = 0; r < p.acts.size(); ++r)
    for (const Act& act : p.acts[r])
      moves.of_rank[r].push_back(
          {act.waits ? Move::Kind::Wait : Move::Kind::Begin, p.ops[size_t(act.op)], act.op});
  return moves;
}

// Returns false if there is no place for such a fault.
inline bool add_fault(Rng& rng, Fault fault, Moves& all, int64_t rank) {
  std::vector<Move>& moves = all.of_rank[size_t(rank)];
  std::vector<size_t> places;
  for (size_t i = 0; i < moves.size(); ++i) {
    const Op& op = moves[i].op;
    const bool fits = fault == Fault::OtherMessage ? op.is_message()
                      : fault == Fault::OtherRoot  ? op.what == Op::What::Broadcast && op.ranks > 1
                      : fault == Fault::OtherCall  ? !op.is_message()
                      : fault == Fault::OtherSize || fault == Fault::OtherDType
                          ? !op.is_message() && op.what != Op::What::Barrier
                          : true;
    if (moves[i].kind == Move::Kind::Begin && fits) places.push_back(i);
  }
  if (places.empty()) return false;
  const size_t at = places[rng.below(places.size())];
  Op& op = moves[at].op;
  const auto insert = [&](Move m) { moves.insert(moves.begin() + int64_t(at), m); };
  const auto other_dtype = [&] { op.dtype = op.dtype == DType::F32 ? DType::BF16 : DType::F32; };
  switch (fault) {
    case Fault::OtherCall: {
      const Op::What was = op.what;
      while (op.what == was) op.what = Op::What(rng.below(6));
      if (op.reduces()) op.dtype = DType::F32;
      if (op.what == Op::What::Broadcast) op.other = all.program.groups[op.group][0];
      if (op.what == Op::What::Barrier || was == Op::What::Barrier)
        op.n = op.what == Op::What::Barrier ? 0 : 3;
      break;
    }
    case Fault::OtherMessage:
      if (rng.below(2) == 0) {
        other_dtype();
        break;
      }
      [[fallthrough]];
    case Fault::OtherSize: op.n = op.n > 0 && rng.below(2) == 0 ? op.n - 1 : op.n + 1; break;
    case Fault::OtherDType: other_dtype(); break;
    case Fault::OtherRoot: {
      const Ranks& members = all.program.groups[op.group];
      op.other = members[size_t((place_in(members, op.other) + 1) % op.ranks)];
      break;
    }
    case Fault::LeavesOut:
      std::erase_if(moves, [id = moves[at].id](const Move& m) { return m.id == id; });
      break;
    case Fault::EndsEarly: moves.resize(at); break;
    case Fault::ThrowsError: insert({Move::Kind::ThrowError}); break;
    case Fault::ThrowsOutOfMemory: insert({Move::Kind::ThrowOutOfMemory}); break;
    case Fault::ThrowsOther: insert({Move::Kind::ThrowOther}); break;
    case Fault::WaitsForNobody: {
      const int64_t ranks = all.program.ranks;
      Op nobody{.what = Op::What::Recv, .n = 977, .other = (rank + 1) % ranks, .rank = rank, .ranks = ranks};
      if (rng.below(2) == 0) nobody.tag = 7;
      insert({Move::Kind::Wait, nobody, 1'000'000});
      insert({Move::Kind::Begin, nobody, 1'000'000});
      break;
    }
    case Fault::Count: break;
  }
  return true;
}

// The text of an op: with its root, in which offers may differ, too.
inline std::string offer_text(const Op& op) {
  std::string text = offer_name(op.what);
  if (op.what == Op::What::Barrier) return text;
  return text + " of " + std::to_string(op.numel()) + " " + name_of(op.dtype);
}

class InThought {
 public:
  InThought(const Moves& moves)
      : groups_(moves.program.groups),
        splits_(moves.program.splits.size()),
        moves_(moves.of_rank),
        at_(moves_.size()),
        offered_(groups_.size(), std::vector<std::vector<Op>>(moves_.size())) {}

  Outcome run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t r = 0; r < moves_.size(); ++r)
        while (at_[r] < moves_[r].size() && step(r)) {
          moved = true;
          if (end_) return *end_;
        }
    }
    Outcome out;
    for (size_t r = 0; r < moves_.size(); ++r) {
      out.waits.emplace_back();
      if (at_[r] == moves_[r].size()) continue;
      out.kind = Outcome::Kind::Deadlock;
      out.waits[r] = offer_text(moves_[r][at_[r]].op);
    }
    return out;
  }

 private:
  struct Way {
    std::vector<Op> sent, wanted;
  };
  using Address = std::tuple<size_t, size_t, size_t, int64_t>;  // group, from, to, tag
  static bool same(const Op& a, const Op& b) {
    return a.what == b.what && a.numel() == b.numel() && a.dtype == b.dtype &&
           (a.what != Op::What::Broadcast || a.other == b.other);
  }

  bool all_offered(size_t group, size_t number) const {
    for (const int64_t r : groups_[group])
      if (offered_[group][size_t(r)].size() <= number) return false;
    return true;
  }

  bool step(size_t r) {  // false if it has to wait
    const Move& m = moves_[r][at_[r]];
    if (m.kind == Move::Kind::Begin && m.op.is_message()) return begin_message(r, m);
    if (m.kind == Move::Kind::Begin) return begin_collective(r, m);
    if (m.kind != Move::Kind::Wait) {
      end_ = Outcome{.kind = Outcome::Kind::Throws};
      return true;
    }
    if (m.op.what == Op::What::Send) return ++at_[r], true;
    const size_t number = numbers_[{r, m.id}];
    const bool there = m.op.what == Op::What::Recv
                           ? ways_[{m.op.group, size_t(m.op.other), r, m.op.tag}].sent.size() > number
                           : all_offered(m.op.group, number);
    if (there) ++at_[r];
    return there;
  }

  bool begin_collective(size_t r, const Move& m) {
    const size_t group = m.op.group;
    const bool again = m.op.what == Op::What::Barrier && numbers_.contains({r, m.id});
    if (!again) {
      numbers_[{r, m.id}] = offered_[group][r].size();
      offered_[group][r].push_back(m.op);
    }
    const size_t number = numbers_[{r, m.id}];
    for (const auto& ops : offered_[group])
      if (ops.size() > number && !same(ops[number], m.op)) differs(group, number);
    if (m.op.what == Op::What::Barrier && !end_ && !all_offered(group, number)) return false;
    ++at_[r];
    return true;
  }

  // Includes ranks that have not come so far: in a run they may be the first.
  void differs(size_t group, size_t number) {
    const size_t splits = group == 0 ? splits_ : 0;
    end_ = Outcome{.kind = Outcome::Kind::OtherCollective, .number = int64_t(splits + number) + 1};
    for (const auto& moves : moves_) {
      std::vector<std::string> texts;
      for (const Move& m : moves)
        if (m.collective() && m.op.group == group) texts.push_back(offer_text(m.op));
      end_->offers.push_back(texts.size() > number ? texts[number] : "");
    }
  }

  bool begin_message(size_t r, const Move& m) {
    const bool sends = m.op.what == Op::What::Send;
    const size_t other = size_t(m.op.other), from = sends ? r : other, to = sends ? other : r;
    Way& way = ways_[{m.op.group, from, to, m.op.tag}];
    auto& mine = sends ? way.sent : way.wanted;
    const auto& others = sends ? way.wanted : way.sent;
    numbers_[{r, m.id}] = mine.size();
    mine.push_back(m.op);
    ++at_[r];
    if (others.size() < mine.size()) return true;
    const Op& o = others[mine.size() - 1];
    if (o.n != m.op.n || o.dtype != m.op.dtype)
      end_ = Outcome{.kind = Outcome::Kind::OtherMessage, .from = int64_t(from), .to = int64_t(to)};
    return true;
  }

  const std::vector<Ranks>& groups_;
  const size_t splits_;  // number of collectives of all ranks before the others
  const std::vector<std::vector<Move>>& moves_;
  std::vector<size_t> at_;
  std::vector<std::vector<std::vector<Op>>> offered_;  // by group and rank
  std::map<Address, Way> ways_;
  std::map<std::pair<size_t, int64_t>, size_t> numbers_;  // of (rank, id) among its kind
  std::optional<Outcome> end_;
};

}  // namespace gradus
