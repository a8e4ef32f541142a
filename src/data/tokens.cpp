#include "src/data/tokens.h"

#include <bit>
#include <cstring>

#include "src/data/tokenizer.h"

namespace gradus {

static_assert(std::endian::native == std::endian::little, "files of tokens are read as they are");

constexpr char kMagic[] = "gradtok1";
struct Header {
  char magic[8];
  int64_t size, split, vocabulary;
};

static int64_t width_of(int64_t vocabulary) { return vocabulary <= 256 ? 1 : vocabulary <= 65'536 ? 2 : 4; }

static void check_sizes(const std::string& where, int64_t size, int64_t split, int64_t vocabulary) {
  check(vocabulary >= 1 && vocabulary <= INT32_MAX, where, ": a vocabulary of ", vocabulary,
        "; it must be 1 to ", INT32_MAX);
  check(split >= 0 && split <= size, where, ": ", split, " of ", size, " tokens to train on");
}

Tokens::Tokens(const Corpus& corpus)
    : data_(corpus.bytes.data()),
      size_(int64_t(corpus.bytes.size())),
      split_(corpus.split),
      vocabulary_(ByteTokenizer::kVocabulary) {}

Tokens::Tokens(const std::vector<int32_t>& tokens, int64_t split, int64_t vocabulary)
    : width_(width_of(vocabulary)), size_(int64_t(tokens.size())), split_(split), vocabulary_(vocabulary) {
  check_sizes("tokens", size_, split, vocabulary);
  auto bytes = std::make_shared<std::string>();
  for (const int32_t t : tokens) {
    check(t >= 0 && t < vocabulary, "tokens: ", t, " is not of a vocabulary of ", vocabulary);
    bytes->append(reinterpret_cast<const char*>(&t), size_t(width_));
  }
  data_ = bytes->data();
  owner_ = std::move(bytes);
}

Tokens Tokens::of_file(const std::string& path) {
  Tokens t;
  t.file_ = std::make_shared<const MappedFile>(path);
  Header h{};
  std::memcpy(&h, t.file_->data(), std::min(sizeof h, size_t(t.file_->bytes())));
  check(t.file_->bytes() >= int64_t(sizeof h) && std::memcmp(h.magic, kMagic, sizeof h.magic) == 0, path,
        " is not a file of tokens");
  check_sizes(path, h.size, h.split, h.vocabulary);
  t.width_ = width_of(h.vocabulary), t.size_ = h.size, t.split_ = h.split, t.vocabulary_ = h.vocabulary;
  const int64_t bytes = t.file_->bytes() - int64_t(sizeof h);
  check(bytes / t.width_ == h.size && bytes % t.width_ == 0, path, " has ", bytes, " bytes of tokens of ",
        t.width_, ", and says that it has ", h.size, " tokens; was it cut, or is it still written?");
  t.data_ = t.file_->data() + sizeof h;
  return t;
}

std::string Tokens::file_bytes() const {
  Header h{{}, size_, split_, vocabulary_};
  std::memcpy(h.magic, kMagic, sizeof h.magic);
  std::string bytes(reinterpret_cast<const char*>(&h), sizeof h);
  return bytes.append(data_, size_t(size_ * width_));
}

template <class T>
static void widen(const char* from, int64_t n, int32_t* to) {
  for (int64_t i = 0; i < n; ++i) {
    T token;
    std::memcpy(&token, from + i * int64_t(sizeof token), sizeof token);
    to[i] = int32_t(token);
  }
}

void Tokens::copy(int64_t begin, int64_t n, int32_t* to) const {
  check(begin >= 0 && n >= 0 && begin <= size_ - n, "tokens: ", n, " from token ", begin,
        " on were requested, but there are ", size_);
  const char* const from = data_ + begin * width_;
  if (width_ == 1) widen<uint8_t>(from, n, to);
  if (width_ == 2) widen<uint16_t>(from, n, to);
  if (width_ == 4) widen<int32_t>(from, n, to);
  if (!file_) return;
  file_->check_whole();
  for (int64_t i = 0; i < n; ++i)
    check(to[i] >= 0 && to[i] < vocabulary_, file_->path(), ": token ", begin + i, " is ", to[i],
          ", not of its vocabulary of ", vocabulary_);
}

}  // namespace gradus
