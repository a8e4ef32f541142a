#include "src/data/byte_pairs.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "kernels/check.h"
#include "src/data/unicode.h"

namespace gradus {

static size_t run_of(CharClass is, std::string_view text, size_t at) {
  while (at < text.size()) {
    const Char c = first_char(text.substr(at));
    if (c.is != is) break;
    at += size_t(c.bytes);
  }
  return at;
}

size_t first_piece(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (text.starts_with(ending)) return ending.size();
  const bool behind_space = text[0] == ' ' && text.size() > 1;
  const size_t begin = behind_space ? 1 : 0;
  if (const Char c = first_char(text.substr(begin)); c.is != CharClass::Space) return run_of(c.is, text, begin);
  // White space: all of it at the end of the text, else all but its last character, which may belong to what
  // follows.
  size_t last = 0, end = 0;
  while (end < text.size()) {
    const Char c = first_char(text.substr(end));
    if (c.is != CharClass::Space) return last > 0 ? last : end;
    last = end, end += size_t(c.bytes);
  }
  return end;
}

constexpr uint64_t key_of(int32_t left, int32_t right) {
  return uint64_t(uint32_t(left)) << 32 | uint32_t(right);
}

BytePairs::BytePairs(std::vector<std::string> tokens, std::vector<Pair> merges)
    : tokens_(std::move(tokens)), merges_(std::move(merges)) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < tokens_.size(); ++id) {
    const auto [same, is_new] = ids.emplace(tokens_[id], int32_t(id));
    check(is_new, "byte pairs: tokens ", same->second, " and ", id, " are the same");
  }
  for (int b = 0; b < 256; ++b) {
    const char byte = char(b);
    const auto found = ids.find(std::string_view(&byte, 1));
    check(found != ids.end(), "byte pairs: byte ", b, " is no token; all 256 must be, or not every text has one");
    of_byte_[b] = found->second;
  }
  by_pair_.reserve(merges_.size());
  for (size_t rank = 0; rank < merges_.size(); ++rank) {
    const auto [left, right] = merges_[rank];
    const auto is_token = [&](int32_t id) { return id >= 0 && id < vocabulary(); };
    check(is_token(left) && is_token(right), "byte pairs: merge ", rank, " is of tokens ", left, " and ", right,
          ", and there are ", vocabulary());
    const auto merged = ids.find(tokens_[size_t(left)] + tokens_[size_t(right)]);
    check(merged != ids.end(), "byte pairs: merge ", rank, " makes ", tokens_[size_t(left)].size(), " + ",
          tokens_[size_t(right)].size(), " bytes that are no token; vocabulary and merges are of different files");
    check(by_pair_.emplace(key_of(left, right), Merge{int32_t(rank), merged->second}).second,
          "byte pairs: merge ", rank, " is there twice");
  }
}

const BytePairs::Merge* BytePairs::find(int32_t left, int32_t right) const {
  const auto found = by_pair_.find(key_of(left, right));
  return found == by_pair_.end() ? nullptr : &found->second;
}

namespace {

// Parts of a piece in a row, and over them a tree of the lowest rank: its root is the pair to merge next, the
// first of several. So a piece of n bytes takes n log n steps, however long it is.
class Parts {
 public:
  static constexpr int32_t kNone = INT32_MAX;
  explicit Parts(size_t n) : leaves_(1) {
    while (leaves_ < n) leaves_ *= 2;
    ranks_.assign(2 * leaves_, kNone), ids_.resize(n), next_.resize(n), before_.resize(n);
    std::iota(next_.begin(), next_.end(), int32_t(1));
    std::iota(before_.begin(), before_.end(), int32_t(-1));
  }
  int32_t& id(size_t i) { return ids_[i]; }
  int32_t next(size_t i) const { return size_t(next_[i]) < ids_.size() ? next_[i] : -1; }
  int32_t before(size_t i) const { return before_[i]; }
  void set_rank(size_t i, int32_t rank) {
    size_t at = leaves_ + i;
    for (ranks_[at] = rank; at > 1;) {
      at /= 2;
      const int32_t lowest = std::min(ranks_[2 * at], ranks_[2 * at + 1]);
      if (ranks_[at] == lowest) break;
      ranks_[at] = lowest;
    }
  }
  // The part that begins the pair of the lowest rank; -1: there is none.
  int32_t lowest() const {
    if (ranks_[1] == kNone) return -1;
    size_t at = 1;
    while (at < leaves_) at = ranks_[2 * at] == ranks_[1] ? 2 * at : 2 * at + 1;
    return int32_t(at - leaves_);
  }
  void take_in_next(size_t i) {
    const int32_t gone = next_[i];
    next_[i] = next_[size_t(gone)];
    if (size_t(next_[i]) < ids_.size()) before_[size_t(next_[i])] = int32_t(i);
    set_rank(size_t(gone), kNone);
  }

 private:
  size_t leaves_;
  std::vector<int32_t> ranks_, ids_, next_, before_;
};

}  // namespace

void BytePairs::encode_piece(std::string_view piece, std::vector<int32_t>& ids) const {
  Parts parts(piece.size());
  const auto rank = [&](int32_t i) {
    const Merge* const m = i >= 0 && parts.next(size_t(i)) >= 0
                               ? find(parts.id(size_t(i)), parts.id(size_t(parts.next(size_t(i)))))
                               : nullptr;
    if (i >= 0) parts.set_rank(size_t(i), m ? m->rank : Parts::kNone);
  };
  for (size_t i = 0; i < piece.size(); ++i) parts.id(i) = of_byte_[uint8_t(piece[i])];
  for (size_t i = 0; i < piece.size(); ++i) rank(int32_t(i));
  for (int32_t i = parts.lowest(); i >= 0; i = parts.lowest()) {
    parts.id(size_t(i)) = find(parts.id(size_t(i)), parts.id(size_t(parts.next(size_t(i)))))->id;
    parts.take_in_next(size_t(i));
    rank(i), rank(parts.before(size_t(i)));
  }
  for (int32_t i = 0; i >= 0; i = parts.next(size_t(i))) ids.push_back(parts.id(size_t(i)));
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
  constexpr size_t kLongest = 32, kMost = 200'000;  // pieces that are worth remembering, and how many
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3);
  while (!text.empty()) {
    const std::string_view piece = text.substr(0, first_piece(text));
    text.remove_prefix(piece.size());
    const auto seen = seen_.find(piece);
    if (seen != seen_.end()) {
      ids.insert(ids.end(), seen->second.begin(), seen->second.end());
      continue;
    }
    const size_t before = ids.size();
    pairs_.encode_piece(piece, ids);
    if (piece.size() <= kLongest && seen_.size() < kMost)
      seen_.emplace(piece, std::vector<int32_t>(ids.begin() + ptrdiff_t(before), ids.end()));
  }
  return ids;
}

}  // namespace gradus
