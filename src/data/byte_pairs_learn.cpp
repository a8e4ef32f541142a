// Learning byte pairs. Pairs are counted over the distinct pieces, each with the number of times that it
// occurs; a merge changes only the counts of the pairs around it.
#include <algorithm>
#include <queue>

#include "kernels/check.h"
#include "src/data/byte_pairs.h"

namespace gradus {

namespace {

struct Piece {
  std::vector<int32_t> ids;
  int64_t times = 0;
};
struct Count {
  int64_t times = 0;
  std::vector<int32_t> in;  // the pieces that contain or contained the pair; some more than once
};
struct Candidate {  // with its count when it was put into the queue; counts only fall
  int64_t times;
  BytePairs::Pair pair;
  bool operator<(const Candidate& o) const { return times != o.times ? times < o.times : pair > o.pair; }
};

std::vector<Piece> pieces_of(std::string_view text) {
  std::array<int32_t, 256> id_of;
  for (int32_t id = 0; id < 256; ++id) id_of[byte_order()[size_t(id)]] = id;
  std::unordered_map<std::string_view, int32_t> index;
  std::vector<Piece> pieces;  // in the order of the text, because a hash table has none
  while (!text.empty()) {
    const std::string_view piece = text.substr(0, first_piece(text));
    text.remove_prefix(piece.size());
    const auto [found, is_new] = index.emplace(piece, int32_t(pieces.size()));
    if (is_new) {
      pieces.emplace_back();
      for (const char c : piece) pieces.back().ids.push_back(id_of[uint8_t(c)]);
    }
    ++pieces[size_t(found->second)].times;
  }
  return pieces;
}

// Merges the pair wherever it occurs in the piece, from the left. Calls changed(pair, 1) for each pair of
// neighbours that appears, changed(pair, -1) for each that disappears; those of `pair` itself may be omitted.
template <class Changed>
void merge(std::vector<int32_t>& ids, const BytePairs::Pair& pair, int32_t merged, const Changed& changed) {
  // BEGIN SOLUTION 14.5
  size_t to = 0;
  for (size_t i = 0; i < ids.size(); ++to) {
    const bool is_pair = i + 1 < ids.size() && ids[i] == pair.first && ids[i + 1] == pair.second;
    if (!is_pair) {
      ids[to] = ids[i++];
      continue;
    }
    if (to > 0) changed({ids[to - 1], pair.first}, -1), changed({ids[to - 1], merged}, 1);
    if (i + 2 < ids.size()) changed({pair.second, ids[i + 2]}, -1), changed({merged, ids[i + 2]}, 1);
    ids[to] = merged, i += 2;
  }
  ids.resize(to);
  // STUB: todo("14.5", "the piece with the merge made, and the pairs that come and go", ids, pair, merged, changed);
  // END SOLUTION 14.5
}

}  // namespace

BytePairs BytePairs::learn(std::string_view text, int64_t merges) {
  check(merges >= 0 && merges < int64_t(1) << 30, "byte pairs: ", merges,
        " merges; there may be 0 to 2^30 - 1");
  std::vector<Piece> pieces = pieces_of(text);
  ByPair<Count> counts;
  std::vector<Pair> fresh;  // pairs that were not counted before
  const auto add = [&](const Pair& pair, int64_t times, int32_t piece) {
    const auto [found, is_new] = counts.try_emplace(pair);
    if (is_new) fresh.push_back(pair);
    Count& count = found->second;
    count.times += times;
    if (times > 0 && (count.in.empty() || count.in.back() != piece)) count.in.push_back(piece);
  };
  for (size_t p = 0; p < pieces.size(); ++p)
    for (size_t i = 0; i + 1 < pieces[p].ids.size(); ++i)
      add({pieces[p].ids[i], pieces[p].ids[i + 1]}, pieces[p].times, int32_t(p));

  std::vector<std::string> tokens;
  for (const uint8_t byte : byte_order()) tokens.emplace_back(1, char(byte));
  std::vector<Pair> learned;
  std::priority_queue<Candidate> queue;
  while (int64_t(learned.size()) < merges) {
    for (const Pair& pair : fresh)
      if (const int64_t times = counts[pair].times; times > 1) queue.push({times, pair});
    fresh.clear();
    if (queue.empty()) break;
    const Candidate best = queue.top();
    queue.pop();
    Count& count = counts[best.pair];
    if (count.times < best.times) {
      if (count.times > 1) queue.push({count.times, best.pair});
      continue;
    }
    // The token is new: an earlier merge to the same bytes would have merged these, too, because pieces merge
    // in the same way up to the ends of a token.
    const int32_t merged = int32_t(tokens.size());
    tokens.push_back(tokens[size_t(best.pair.first)] + tokens[size_t(best.pair.second)]);
    check(tokens.back().size() <= text.size(), "byte pairs: a token of ", tokens.back().size(),
          " bytes, more than the text has; the pair was counted, but not merged where it occurs");
    learned.push_back(best.pair);
    const std::vector<int32_t> in = std::move(count.in);
    for (const int32_t p : in)
      merge(pieces[size_t(p)].ids, best.pair, merged,
            [&](const Pair& pair, int64_t sign) { add(pair, sign * pieces[size_t(p)].times, p); });
    counts.erase(best.pair);
  }
  return BytePairs(std::move(tokens), std::move(learned));
}

}  // namespace gradus
