// Byte-pair encoding (Sennrich et al. 2016, "Neural machine translation of rare words with subword units";
// of bytes: Radford et al. 2019, GPT-2). A text is split into pieces; each begins as bytes, and the pair of
// neighbours that was learned first is merged, again and again, until none is left that was learned.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gradus {

// The length of the first piece of a text that is not empty, by GPT-2's pattern:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t first_piece(std::string_view text);

class BytePairs {
 public:
  using Pair = std::pair<int32_t, int32_t>;  // of token ids

  // The most frequent pair of neighbours in the text's pieces becomes a token, `merges` times, or until no pair
  // is there twice; of equally frequent ones that with the smaller ids. Tokens 0 to 255 are the bytes, in
  // the order of byte_order().
  static BytePairs learn(std::string_view text, int64_t merges);
  // tokens[id]: its bytes, all 256 single ones among them. merges: pairs of them in the order in which they were
  // learned, whose bytes together are a token's, too. An Error says what does not fit.
  BytePairs(std::vector<std::string> tokens, std::vector<Pair> merges);

  int64_t vocabulary() const { return int64_t(tokens_.size()); }
  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<Pair>& merges() const { return merges_; }

  std::string decode(const std::vector<int32_t>& ids) const;  // an Error for an id that is no token's

  // Appends the tokens of one piece.
  void encode_piece(std::string_view piece, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    int32_t rank, id;
  };
  const Merge* find(int32_t left, int32_t right) const;

  std::vector<std::string> tokens_;
  std::vector<Pair> merges_;
  int32_t of_byte_[256];
  struct HashOfPair {
    size_t operator()(uint64_t pair) const { return size_t((pair ^ pair >> 32) * 0x9E3779B97F4A7C15u); }
  };
  std::unordered_map<uint64_t, Merge, HashOfPair> by_pair_;
};

// Encodes texts, and remembers the pieces that it has seen, as most come again: one for each thread.
class BytePairEncoder {
 public:
  explicit BytePairEncoder(const BytePairs& pairs) : pairs_(pairs) {}
  std::vector<int32_t> encode(std::string_view text);

 private:
  struct HashOfText {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  const BytePairs& pairs_;
  std::unordered_map<std::string, std::vector<int32_t>, HashOfText, std::equal_to<>> seen_;
};

// GPT-2's files name a byte by a printable character: itself, or one from U+0100 on. byte_order()[id] is the
// byte of token `id` in them; character_of(byte) its name in UTF-8.
const uint8_t* byte_order();
std::string character_of(uint8_t byte);

// merges.txt and vocab.json, as GPT-2's, or one tokenizer.json; transformers load both.
BytePairs load_byte_pairs(const std::string& folder);
std::string merges_text(const BytePairs& pairs);
std::string vocabulary_text(const BytePairs& pairs);
std::string tokenizer_text(const BytePairs& pairs);

}  // namespace gradus
