// Files of weights: any bytes are rejected with a message, or are a file whose tensors stay the same when
// they are read, written and read. An input without bytes stands for a pipe, and one of a single byte for a
// folder.
#include "src/io/safetensors.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace gradus::fuzz {
namespace {

std::string file_of(std::string header, const std::string& data, Rng& rng) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  constexpr uint64_t kWrong[] = {0, 7, 100'000'001, uint64_t(1) << 63, ~uint64_t(0)};
  const uint64_t size = rng.below(20) ? header.size() : one_of(rng, kWrong);
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + data;
}

std::string tensors_of(Rng& rng) {
  struct {
    const char* name;
    uint64_t size;
  } constexpr kTypes[] = {{"F64", 8}, {"F32", 4}, {"BF16", 2}, {"I64", 8}, {"I8", 1}, {"F8_E4M3", 1}};
  std::string header = "{";
  uint64_t at = 0;
  if (rng.below(3) == 0) header += R"("__metadata__":{"format":"pt"},)";
  for (uint64_t n = rng.below(4), i = 0; i < n; ++i) {
    const auto& type = kTypes[rng.below(20) ? rng.below(5) : 5];
    uint64_t bytes = type.size;
    std::string shape;
    for (uint64_t d = rng.below(7); d > 0; --d) {
      const uint64_t length = rng.below(100) ? rng.below(4) : rng.bits64();
      bytes *= length;
      shape += (shape.empty() ? "" : ",") + std::to_string(length);
    }
    header += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":{\"dtype\":\"" + type.name + "\",\"shape\":[" +
              shape + "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(at + bytes) + "]}";
    at += bytes;
  }
  std::string data = random_bytes(rng, 0);
  data.resize(std::min<uint64_t>(at, 1 << 16), 'x');
  return file_of(header + "}", data, rng);
}

}  // namespace

std::string sample(Rng& rng) {
  if (rng.below(400) != 0) return tensors_of(rng);
  // A header of up to the longest allowed size, with very many values or a very long one.
  constexpr const char* kBegins[] = {"{\"a\":[", "{\"__metadata__\":{\"a\":\"", "{", "{\"a\":"};
  constexpr const char* kPieces[] = {"0,", "0", " ", "[", "[],", "\"\",", "\\n", "\"a\":{},"};
  std::string header = one_of(rng, kBegins);
  const std::string piece = one_of(rng, kPieces);
  const size_t size = size_t(1) << (10 + rng.below(17));
  header.reserve(size + 8);
  while (header.size() + piece.size() <= std::min<size_t>(size, 98'000'000)) header += piece;
  return file_of(std::move(header), "", rng);
}

namespace {

constexpr const char* kFile = "weights.safetensors";

struct Contents {
  std::vector<std::vector<char>> bytes;
  std::vector<TensorEntry> tensors;
  Metadata metadata;
  explicit Contents(const SafetensorsFile& file) : metadata(file.metadata()) {
    bytes.reserve(file.tensors().size());
    for (const auto& t : file.tensors()) {
      bytes.emplace_back(t.bytes);
      file.read(t.name, t.dtype, t.shape, bytes.back().data());
      tensors.push_back({t.name, t.dtype, t.shape, bytes.back().data()});
    }
  }
};

void prepare(const uint8_t* bytes, size_t size) {
  namespace fs = std::filesystem;
  fs::remove_all(kFile);
  if (size == 0)
    check(mkfifo(kFile, 0600) == 0, "cannot make a pipe");
  else if (size == 1)
    fs::create_directory(kFile);
  else
    std::ofstream(kFile, std::ios::binary).write(reinterpret_cast<const char*>(bytes), std::streamsize(size));
}

}  // namespace
}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace gradus;
  fuzz::prepare(bytes, size);
  std::unique_ptr<SafetensorsFile> file;
  try {
    file = std::make_unique<SafetensorsFile>(fuzz::kFile);
  } catch (const Error& e) {
    EXPECT_TRUE(std::string_view(e.what()).starts_with(fuzz::kFile)) << e.what();
    return 0;
  }
  const fuzz::Contents read(*file);
  write_safetensors("again.safetensors", read.tensors, read.metadata);
  const SafetensorsFile again("again.safetensors");
  EXPECT_EQ(again.metadata(), read.metadata);
  EXPECT_EQ(again.tensors().size(), read.tensors.size());
  for (size_t i = 0; i < read.tensors.size(); ++i) {
    const TensorEntry& t = read.tensors[i];
    std::vector<char> out(read.bytes[i].size());
    again.read(t.name, t.dtype, t.shape, out.data());
    EXPECT_EQ(out, read.bytes[i]) << t.name;
  }
  return 0;
}
