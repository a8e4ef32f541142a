// Learning byte pairs: counts are of different pieces, each with how often it comes; a merge changes the counts
// of the pairs beside it only.
#include <algorithm>
#include <queue>

#include "kernels/check.h"
#include "src/data/byte_pairs.h"

namespace gradus {

namespace {

struct Piece {
  std::vector<int32_t> ids;
  int64_t times;
};
struct PairCount {
  int64_t times = 0;
  std::vector<int32_t> in;  // pieces that have it, or had it; some more than once
};
struct HashOfPair {
  size_t operator()(const BytePairs::Pair& p) const {
    return size_t((uint64_t(uint32_t(p.first)) << 32 | uint32_t(p.second)) * 0x9E3779B97F4A7C15u >> 20);
  }
};
using Counts = std::unordered_map<BytePairs::Pair, PairCount, HashOfPair>;

struct Candidate {  // as counted when it was put in line
  int64_t times;
  BytePairs::Pair pair;
  bool operator<(const Candidate& o) const { return times != o.times ? times < o.times : pair > o.pair; }
};

std::vector<Piece> pieces_of(std::string_view text) {
  std::unordered_map<std::string_view, int64_t> times;
  std::vector<std::string_view> in_order;  // so that nothing depends on the order of a hash table
  while (!text.empty()) {
    const std::string_view piece = text.substr(0, first_piece(text));
    text.remove_prefix(piece.size());
    if (++times[piece] == 1) in_order.push_back(piece);
  }
  int32_t id_of[256];
  for (int32_t id = 0; id < 256; ++id) id_of[byte_order()[id]] = id;
  std::vector<Piece> pieces;
  for (const std::string_view piece : in_order) {
    pieces.push_back({{}, times[piece]});
    for (const char c : piece) pieces.back().ids.push_back(id_of[uint8_t(c)]);
  }
  return pieces;
}

// Merges the pair wherever a piece has it, from the left; tells `changed` of each pair that comes or goes.
template <class Changed>
void merge(std::vector<int32_t>& ids, const BytePairs::Pair& pair, int32_t merged, const Changed& changed) {
  size_t to = 0;
  for (size_t i = 0; i < ids.size(); ++to) {
    const bool is_pair = i + 1 < ids.size() && ids[i] == pair.first && ids[i + 1] == pair.second;
    if (!is_pair) {
      ids[to] = ids[i++];
      continue;
    }
    if (to > 0) changed(BytePairs::Pair(ids[to - 1], pair.first), -1), changed({ids[to - 1], merged}, 1);
    if (i + 2 < ids.size()) changed(BytePairs::Pair(pair.second, ids[i + 2]), -1), changed({merged, ids[i + 2]}, 1);
    ids[to] = merged, i += 2;
  }
  ids.resize(to);
}

}  // namespace

BytePairs BytePairs::learn(std::string_view text, int64_t merges) {
  check(merges >= 0 && merges < (int64_t(1) << 30), "byte pairs: ", merges, " merges; there may be 0 to 2^30 - 1");
  std::vector<Piece> pieces = pieces_of(text);
  Counts counts;
  for (size_t p = 0; p < pieces.size(); ++p)
    for (size_t i = 0; i + 1 < pieces[p].ids.size(); ++i) {
      PairCount& count = counts[{pieces[p].ids[i], pieces[p].ids[i + 1]}];
      count.times += pieces[p].times;
      if (count.in.empty() || count.in.back() != int32_t(p)) count.in.push_back(int32_t(p));
    }
  std::priority_queue<Candidate> line;
  for (const auto& [pair, count] : counts) line.push({count.times, pair});
  std::vector<std::string> tokens;
  for (int id = 0; id < 256; ++id) tokens.emplace_back(1, char(byte_order()[id]));
  std::unordered_map<std::string, int32_t> ids;
  std::vector<Pair> learned;
  while (int64_t(learned.size()) < merges && !line.empty()) {
    const Candidate best = line.top();
    line.pop();
    PairCount& count = counts[best.pair];
    if (count.times != best.times) {  // it has changed since
      if (count.times > 1) line.push({count.times, best.pair});
      continue;
    }
    if (best.times < 2) break;
    // Two pairs may make the same bytes, and then the same token.
    const std::string bytes = tokens[size_t(best.pair.first)] + tokens[size_t(best.pair.second)];
    const auto [token, is_new] = ids.try_emplace(bytes, int32_t(tokens.size()));
    const int32_t merged = token->second;
    if (is_new) tokens.push_back(bytes);
    learned.push_back(best.pair);
    std::vector<Pair> risen;
    const std::vector<int32_t> in = std::move(count.in);
    for (const int32_t p : in)
      merge(pieces[size_t(p)].ids, best.pair, merged, [&](const Pair& pair, int64_t sign) {
        PairCount& of = counts[pair];
        of.times += sign * pieces[size_t(p)].times;
        if (sign < 0) return;
        if (of.in.empty() || of.in.back() != p) of.in.push_back(p);
        risen.push_back(pair);
      });
    counts.erase(best.pair);
    std::sort(risen.begin(), risen.end());
    risen.erase(std::unique(risen.begin(), risen.end()), risen.end());
    for (const Pair& pair : risen) line.push({counts[pair].times, pair});
  }
  return BytePairs(std::move(tokens), std::move(learned));
}

}  // namespace gradus
