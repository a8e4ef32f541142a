// Byte-pair encoding (Sennrich et al. 2016, "Neural machine translation of rare words with subword units";
// of bytes: Radford et al. 2019, GPT-2). A text is split into pieces. Each piece begins as bytes; then the
// earliest learned pair among the pairs of neighbours is merged, repeatedly, until no pair of neighbours is a
// learned one.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/core/rng.h"

namespace gradus {

// The length of the first piece of a text that is not empty, by GPT-2's pattern:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t first_piece(std::string_view text);

// BPE-dropout (Provilkov et al. 2020, algorithm 1): at each step every possible merge is dropped with this
// probability, and the best of the others is made; if none remains, the piece is finished. So the model sees
// a word in several segmentations.
struct MergeDropout {
  double probability;  // 0 to 1
  Rng rng;
};

class BytePairs {
 public:
  using Pair = std::pair<int32_t, int32_t>;  // of token ids
  struct HashOfPair {
    size_t operator()(const Pair& pair) const {
      return size_t((uint64_t(pair.first) << 32 | uint64_t(pair.second)) * 0x9E3779B97F4A7C15u >> 20);
    }
  };
  template <class Value>
  using ByPair = std::unordered_map<Pair, Value, HashOfPair>;

  // Makes the most frequent pair of neighbours in the text's pieces a token, `merges` times (0 to 2^30 - 1),
  // or until no pair occurs twice; of equally frequent pairs it takes the one with the smaller ids. Tokens 0
  // to 255 are the bytes, in the order of byte_order().
  static BytePairs learn(std::string_view text, int64_t merges);
  // tokens[id]: the token's bytes; all 256 single bytes must be tokens. merges: pairs of tokens in the order
  // in which they were learned; the joined bytes of a pair must be a token. An Error says what is wrong.
  BytePairs(std::vector<std::string> tokens, std::vector<Pair> merges);

  int64_t vocabulary() const { return int64_t(tokens_.size()); }
  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<Pair>& merges() const { return merges_; }

  std::string decode(const std::vector<int32_t>& ids) const;  // an Error for an id without a token

  // Appends the tokens of one piece.
  void encode_piece(std::string_view piece, std::vector<int32_t>& ids, MergeDropout* dropout = nullptr) const;

 private:
  std::vector<std::string> tokens_;
  std::vector<Pair> merges_;
  std::vector<int32_t> merged_;  // by rank (index in merges_): the token that a merge makes
  std::array<int32_t, 256> of_byte_;
  ByPair<int32_t> ranks_;
};

// Encodes texts, with a cache of short pieces (4 MiB), because most pieces occur many times. Each thread
// needs its own encoder; encoders can share the BytePairs, which must outlive them.
class BytePairEncoder {
 public:
  explicit BytePairEncoder(const BytePairs& pairs) : pairs_(pairs), remembered_(kRemembered) {}
  std::vector<int32_t> encode(std::string_view text);
  // Appends tokens of the text, piece by piece, until `ids` has `at_least` tokens or more, or the text ends.
  // With dropout the cache is not used.
  void encode(std::string_view text, size_t at_least, std::vector<int32_t>& ids,
              MergeDropout* dropout = nullptr);

 private:
  void encode_piece(std::string_view piece, std::vector<int32_t>& ids);

  static constexpr size_t kRemembered = 1 << 16;
  struct alignas(64) Remembered {  // a piece and its tokens, in one cache line
    uint8_t bytes = 0, tokens = 0;
    std::array<char, 30> piece;
    std::array<int32_t, 8> ids;
  };
  const BytePairs& pairs_;
  std::vector<Remembered> remembered_;  // the cache, by hash; a new piece replaces the old one
};

// GPT-2's files name a byte by a printable character: itself, or one from U+0100 on. byte_order()[id] is the
// byte of token `id` in them; character_of(byte) is its name in UTF-8.
const std::array<uint8_t, 256>& byte_order();
std::string character_of(uint8_t byte);

// Reads the folder's tokenizer.json or, without one, its merges.txt and vocab.json. Hugging Face's tokenizers
// reads and writes both forms. Tokens that no merge makes, such as "<|endoftext|>", have these bytes, but
// encoding never returns them; in vocab.json their names must be <...>, because any other name shows that
// merges.txt was cut. An Error names the file and what is wrong in it.
BytePairs load_byte_pairs(const std::string& folder);
std::string merges_text(const BytePairs& pairs);
std::string vocabulary_text(const BytePairs& pairs);
std::string tokenizer_text(const BytePairs& pairs);

}  // namespace gradus
