#include "src/data/byte_pairs.h"

#include <algorithm>
#include <functional>
#include <queue>

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
  // White space: all of it at the end of the text; else all but its last character, which may belong to the
  // next piece.
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
  std::vector<bool> made(tokens_.size());  // by an earlier merge, or because it is a byte
  for (int b = 0; b < 256; ++b) {
    const char byte = char(b);
    const auto found = ids.find(std::string_view(&byte, 1));
    check(found != ids.end(), "byte pairs: byte ", b,
          " is not a token; all 256 must be tokens, because a text may have any byte");
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
            ", which is not a byte and which no earlier merge makes");
    }
    const auto merged = ids.find(tokens_[size_t(left)] + tokens_[size_t(right)]);
    check(merged != ids.end(), "byte pairs: merge ", rank, " joins tokens ", left, " and ", right, " to ",
          tokens_[size_t(left)].size() + tokens_[size_t(right)].size(), " bytes that are not a token");
    check(ranks_.emplace(Pair(left, right), int32_t(rank)).second, "byte pairs: merge ", rank,
          " repeats an earlier merge, ", left, " with ", right);
    made[size_t(merged->second)] = true;
    merged_.push_back(merged->second);
  }
}

// A queue holds the possible merges, so a piece of n bytes takes about n log n steps.
void BytePairs::encode_piece(std::string_view piece, std::vector<int32_t>& ids, MergeDropout* dropout) const {
  if (piece.empty()) return;
  struct Part {
    int32_t id, rank;  // rank of its pair with the next part; -1: the pair was not learned
    Part *before, *next;
  };
  std::vector<Part> parts(piece.size());
  using Candidate = std::pair<int32_t, Part*>;  // the least is merged next; of equal ranks, the first part
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto find_rank = [&](Part* part) {
    const auto found = part->next ? ranks_.find({part->id, part->next->id}) : ranks_.end();
    part->rank = found == ranks_.end() ? -1 : found->second;
    if (part->rank >= 0) queue.emplace(part->rank, part);
  };
  for (size_t i = 0; i < parts.size(); ++i)
    parts[i] = {of_byte_[uint8_t(piece[i])], -1, i > 0 ? &parts[i - 1] : nullptr,
                i + 1 < parts.size() ? &parts[i + 1] : nullptr};
  for (Part& part : parts) find_rank(&part);
  std::vector<Candidate> dropped;  // in this step
  while (!queue.empty()) {
    const auto [rank, part] = queue.top();
    queue.pop();
    if (part->rank != rank) continue;  // a part of this pair has been merged since
    if (dropout && dropout->rng.uniform() < dropout->probability) {
      dropped.emplace_back(rank, part);
      continue;
    }
    for (const Candidate& d : dropped) queue.push(d);
    dropped.clear();
    part->id = merged_[size_t(rank)];
    part->next->rank = -1;
    part->next = part->next->next;
    if (part->next) part->next->before = part;
    find_rank(part);
    if (part->before) find_rank(part->before);
  }
  for (const Part* part = parts.data(); part; part = part->next) ids.push_back(part->id);
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
        "byte pairs: merges cannot be dropped with probability ", dropout ? dropout->probability : 0);
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
