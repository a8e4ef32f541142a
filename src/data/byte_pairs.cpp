#include "src/data/byte_pairs.h"

#include <algorithm>
#include <cstring>

#include "kernels/check.h"
#include "src/data/unicode.h"

namespace gradus {

static size_t end_of_run(CharClass is, std::string_view text, size_t at) {
  while (at < text.size()) {
    const Char c = first_char(text.substr(at));
    if (c.is != is) break;
    at += size_t(c.bytes);
  }
  return at;
}

size_t first_piece(std::string_view text) {
  if (text[0] == '\'')
    for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
      if (text.starts_with(ending)) return ending.size();
  const size_t begin = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const Char first = first_char(text.substr(begin));
  if (first.is != CharClass::Space) return end_of_run(first.is, text, begin);
  // White space: all of it at the end of the text; else all but its last character, which may belong to what
  // follows.
  size_t last = 0, end = 0;
  while (end < text.size()) {
    const Char c = first_char(text.substr(end));
    if (c.is != CharClass::Space) return last > 0 ? last : end;
    last = end, end += size_t(c.bytes);
  }
  return end;
}

BytePairs::BytePairs(std::vector<std::string> tokens, std::vector<Pair> merges)
    : tokens_(std::move(tokens)), merges_(std::move(merges)) {
  check(std::max(tokens_.size(), merges_.size()) <= INT32_MAX,
        "byte pairs: more than 2^31 - 1 tokens or merges");
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < tokens_.size(); ++id) {
    check(!tokens_[id].empty(), "byte pairs: token ", id, " has no bytes");
    const auto [same, is_new] = ids.emplace(tokens_[id], int32_t(id));
    check(is_new, "byte pairs: tokens ", same->second, " and ", id, " are the same");
  }
  std::vector<bool> made(tokens_.size());  // by no merge yet, but a byte needs none
  for (int b = 0; b < 256; ++b) {
    const char byte = char(b);
    const auto found = ids.find(std::string_view(&byte, 1));
    check(found != ids.end(), "byte pairs: byte ", b,
          " is no token; all 256 have to be tokens, because a text", " may have any byte");
    of_byte_[size_t(b)] = found->second;
    made[size_t(found->second)] = true;
  }
  ranks_.reserve(merges_.size());
  for (const auto& [left, right] : merges_) {
    const size_t rank = merged_.size();
    for (const int32_t id : {left, right}) {
      check(id >= 0 && id < vocabulary(), "byte pairs: merge ", rank, " is of token ", id, "; there are ",
            vocabulary(), " tokens");
      check(made[size_t(id)], "byte pairs: merge ", rank, " is of token ", id,
            ", which is no byte and which no", " earlier merge makes");
    }
    const auto merged = ids.find(tokens_[size_t(left)] + tokens_[size_t(right)]);
    check(merged != ids.end(), "byte pairs: merge ", rank, " joins tokens ", left, " and ", right, " to ",
          tokens_[size_t(left)].size() + tokens_[size_t(right)].size(), " bytes that are no token");
    check(ranks_.emplace(Pair(left, right), int32_t(rank)).second, "byte pairs: merge ", rank,
          " repeats an earlier merge, ", left, " with ", right);
    made[size_t(merged->second)] = true;
    merged_.push_back(merged->second);
  }
}

namespace {

// The parts of a piece in a row, and over them a tree of the lowest rank: its root is the rank of the pair to
// merge next. So a piece of n bytes takes n log n steps, however long it is.
class Parts {
 public:
  static constexpr int32_t kNone = INT32_MAX;  // the rank of a part that begins no pair that can be merged
  explicit Parts(size_t n) : row_(n) {
    while (leaves_ < n) leaves_ *= 2;
    ranks_.assign(2 * leaves_, kNone);
    for (size_t i = 0; i < n; ++i) row_[i] = {0, int32_t(i) - 1, i + 1 < n ? int32_t(i) + 1 : -1};
  }
  int32_t& id(int32_t i) { return row_[size_t(i)].id; }
  int32_t next(int32_t i) const { return row_[size_t(i)].next; }  // -1: none
  int32_t before(int32_t i) const { return row_[size_t(i)].before; }
  void set_rank(int32_t i, int32_t rank) {
    size_t at = leaves_ + size_t(i);
    for (ranks_[at] = rank; at > 1;) {
      at /= 2;
      const int32_t lowest = std::min(ranks_[2 * at], ranks_[2 * at + 1]);
      if (ranks_[at] == lowest) break;
      ranks_[at] = lowest;
    }
  }
  int32_t lowest_rank() const { return ranks_[1]; }
  int32_t lowest() const {  // the first part of this rank
    size_t at = 1;
    while (at < leaves_) at = ranks_[2 * at] == ranks_[1] ? 2 * at : 2 * at + 1;
    return int32_t(at - leaves_);
  }
  void remove_next(int32_t i) {
    const int32_t gone = next(i);
    row_[size_t(i)].next = next(gone);
    if (next(i) >= 0) row_[size_t(next(i))].before = i;
    set_rank(gone, kNone);
  }

 private:
  struct Part {
    int32_t id, before, next;
  };
  std::vector<Part> row_;
  size_t leaves_ = 1;
  std::vector<int32_t> ranks_;
};

}  // namespace

void BytePairs::encode_piece(std::string_view piece, std::vector<int32_t>& ids, MergeDropout* dropout) const {
  if (piece.empty()) return;
  check(piece.size() < size_t(1) << 30, "byte pairs: a piece of ", piece.size(),
        " bytes; the most are 2^30 - 1");
  Parts parts(piece.size());
  const auto find_rank = [&](int32_t i) {
    const int32_t next = parts.next(i);
    const auto found = next < 0 ? ranks_.end() : ranks_.find({parts.id(i), parts.id(next)});
    parts.set_rank(i, found == ranks_.end() ? Parts::kNone : found->second);
  };
  for (size_t i = 0; i < piece.size(); ++i) parts.id(int32_t(i)) = of_byte_[uint8_t(piece[i])];
  for (size_t i = 0; i < piece.size(); ++i) find_rank(int32_t(i));
  std::vector<int32_t> dropped;  // at this step
  while (parts.lowest_rank() != Parts::kNone) {
    const int32_t i = parts.lowest(), merged = merged_[size_t(parts.lowest_rank())];
    if (dropout && dropout->rng.uniform() < dropout->probability) {
      dropped.push_back(i);
      parts.set_rank(i, Parts::kNone);
      continue;
    }
    for (const int32_t d : dropped) find_rank(d);
    dropped.clear();
    parts.id(i) = merged;
    parts.remove_next(i);
    find_rank(i);
    if (parts.before(i) >= 0) find_rank(parts.before(i));
  }
  for (int32_t i = 0; i >= 0; i = parts.next(i)) ids.push_back(parts.id(i));
}

std::string BytePairs::decode(const std::vector<int32_t>& ids) const {
  std::string text;
  for (const int32_t id : ids) {
    check(id >= 0 && id < vocabulary(), "decode: there is no token ", id, "; there are ", vocabulary());
    text += tokens_[size_t(id)];
  }
  return text;
}

std::vector<int32_t> BytePairEncoder::encode(std::string_view text) {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3);
  encode(text, SIZE_MAX, ids);
  return ids;
}

void BytePairEncoder::encode(std::string_view text, size_t at_least, std::vector<int32_t>& ids,
                             MergeDropout* dropout) {
  check(!dropout || (dropout->probability >= 0 && dropout->probability <= 1),
        "byte pairs: merges cannot be dropped", " with probability ", dropout ? dropout->probability : 0);
  while (ids.size() < at_least && !text.empty()) {
    const std::string_view piece = text.substr(0, first_piece(text));
    text.remove_prefix(piece.size());
    if (dropout)
      pairs_.encode_piece(piece, ids, dropout);
    else
      encode_piece(piece, ids);
  }
}

void BytePairEncoder::encode_piece(std::string_view piece, std::vector<int32_t>& ids) {
  Remembered& r = remembered_[std::hash<std::string_view>()(piece) % kRemembered];
  if (piece == std::string_view(r.piece.data(), r.bytes)) {
    ids.insert(ids.end(), r.ids.begin(), r.ids.begin() + r.tokens);
    return;
  }
  const size_t before = ids.size();
  pairs_.encode_piece(piece, ids);
  const size_t tokens = ids.size() - before;
  if (piece.size() > r.piece.size() || tokens > r.ids.size()) return;
  r.bytes = uint8_t(piece.size()), r.tokens = uint8_t(tokens);
  std::copy(piece.begin(), piece.end(), r.piece.begin());
  std::copy(ids.begin() + ptrdiff_t(before), ids.end(), r.ids.begin());
}

}  // namespace gradus
