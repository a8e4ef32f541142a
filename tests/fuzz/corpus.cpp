// Corpora: a folder of files, links, pipes and folders, made from the input, is rejected with a message or
// read without files outside it; and the windows of the corpus score each held-out byte once.
#include "src/data/corpus.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "src/data/loader.h"
#include "tests/fuzz/fuzz.h"

namespace gradus::fuzz {

namespace fs = std::filesystem;

std::string sample(Rng& rng) { return random_bytes(rng, 400); }

namespace {

constexpr std::string_view kElsewhere = "of another folder";

std::string content(Choices& choices) {
  static constexpr std::string_view kPieces[] = {"the stone ", "\n",   "a",        "\xC3\xA9", "\xFF",
                                                 "\x01",       "\xC3", "the end ", {"\0", 1}};
  std::string text;
  for (int64_t n = choices.between(0, 12); n > 0; --n) {
    const std::string_view piece = kPieces[choices.between(0, choices.between(0, 9) ? 2 : 8)];
    for (int64_t times = choices.between(0, 40); times > 0; --times) text += piece;
  }
  return text;
}

// Makes up to 8 entries below data/, and the folder other/ next to it.
void make_files(Choices& choices) {
  for (const char* folder : {"data", "other"}) fs::remove_all(folder);
  for (const char* folder : {"data/inner", "other/folder"}) fs::create_directories(folder);
  std::ofstream("other/folder/text") << kElsewhere;
  std::ofstream("other/file") << "linked to";
  const fs::path here = fs::current_path();
  const fs::path targets[] = {
      here / "other", here / "other/folder", here / "other/file", here / "data", "nowhere", ".", "0"};
  for (int64_t i = 0, n = choices.between(0, 8); i < n; ++i) {
    const fs::path path = fs::path(choices.yes() ? "data" : "data/inner") / std::to_string(i);
    switch (choices.between(0, 9)) {
      case 0: check(mkfifo(path.c_str(), 0600) == 0, "cannot make a pipe"); break;
      case 1:
      case 2: fs::create_symlink(choices.one_of(targets), path); break;
      case 3: fs::create_directory(path); break;
      default: std::ofstream(path, std::ios::binary) << content(choices);
    }
  }
}

void check_windows(const Corpus& corpus, int64_t T) {
  std::unique_ptr<Loader> loader;
  try {
    loader = std::make_unique<Loader>(corpus, T, 1);
  } catch (const Error&) {  // too little text
    return;
  }
  std::vector<int32_t> inputs(3 * T), targets(3 * T);
  loader->train_windows(5, 0, 3, inputs.data(), targets.data());
  for (int64_t i = 0; i < 3 * T; ++i)
    EXPECT_TRUE((i + 1) % T == 0 || targets[i] == inputs[i + 1]) << "target " << i << ", windows of " << T;
  std::string scored;
  for (int64_t w = 0; w < loader->held_out_windows(); ++w) {
    const int64_t rows = loader->held_out_windows(w, 1, inputs.data(), targets.data())[0];
    for (int64_t t = T - rows; t < T; ++t) scored += char(targets[t]);
  }
  EXPECT_EQ(scored, corpus.held_out()) << "windows of " << T;
}

}  // namespace
}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace gradus;
  fuzz::Choices choices(bytes, size);
  const std::string path = choices.one_of(std::vector<std::string>{"data", "data/", "data/inner", "data/0"});
  const int64_t T = choices.between(1, 40);
  fuzz::make_files(choices);
  Corpus corpus;
  try {
    corpus = load_corpus(path);
  } catch (const Error& e) {
    EXPECT_NE(std::string_view(e.what()).find(path), std::string_view::npos) << e.what();
    return 0;
  }
  EXPECT_TRUE(0 <= corpus.split && corpus.split <= int64_t(corpus.bytes.size())) << corpus.split;
  const bool is_elsewhere = path == "data/0";  // it may be a link to the folder other/ itself
  EXPECT_TRUE(is_elsewhere || corpus.bytes.find(fuzz::kElsewhere) == std::string::npos) << corpus.summary;
  fuzz::check_windows(corpus, T);
  return 0;
}
