// Tokens of any vocabulary, in memory and in mapped files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "tests/data/loader_testing.h"
#include "tests/folder_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

using Ids = std::vector<int32_t>;
Ids random_ids(int64_t n, int64_t vocabulary) {
  Rng rng(3, uint64_t(vocabulary));
  Ids ids{0, int32_t(vocabulary - 1)};
  while (int64_t(ids.size()) < n) ids.push_back(int32_t(rng.below(uint64_t(vocabulary))));
  return ids;
}
Ids all(const Tokens& t) {
  Ids ids(size_t(t.size()));
  t.copy(0, t.size(), ids.data());
  return ids;
}

struct L14_Tokens : FolderTest {
  Tokens in_file(const Tokens& tokens, const std::string& name = "tokens") {
    write(name, tokens.file_bytes());
    return Tokens::of_file(path(name));
  }
};

TEST_F(L14_Tokens, OfEveryWidthInMemoryAndInAFile) {
  const std::pair<int64_t, int64_t> kWidths[] = {{1, 1},      {256, 1},    {257, 2},
                                                 {65'536, 2}, {65'537, 4}, {INT32_MAX, 4}};
  for (const auto& [vocabulary, width] : kWidths) {
    const Ids ids = random_ids(1000, vocabulary);
    const Tokens memory(ids, 900, vocabulary), file = in_file(memory);
    EXPECT_EQ(int64_t(read("tokens").size()), 32 + 1000 * width) << vocabulary;
    for (const Tokens& t : {memory, file}) {
      EXPECT_EQ(all(t), ids) << vocabulary;
      EXPECT_EQ(t.size(), 1000);
      EXPECT_EQ(t.split(), 900);
      EXPECT_EQ(t.held_out(), 100);
      EXPECT_EQ(t.vocabulary(), vocabulary);
      Ids part(3, -7);
      t.copy(997, 2, part.data());
      for (const auto& [begin, n] : {std::pair(-1, 1), {1000, 1}, {999, 2}, {0, -1}})
        expect_refused(" on were requested, but there are 1000",
                       [&, begin = begin, n = n] { t.copy(begin, n, part.data()); });
      EXPECT_EQ(part, (Ids{ids[997], ids[998], -7}));
      EXPECT_TRUE(t.file_bytes() == read("tokens"));
    }
  }
}

TEST_F(L14_Tokens, ALoaderReadsTheSameWindowsOfAllOfThem) {
  const Corpus corpus = random_corpus(5000, 700);
  Ids ids;
  for (const char c : corpus.bytes) ids.push_back(uint8_t(c));
  const Tokens memory(ids, corpus.split, 100'000);
  const Loader of_bytes(corpus, 33, 1), of_memory(memory, 33, 1), of_file(in_file(memory), 33, 1);
  EXPECT_EQ(of_bytes.tokens().vocabulary(), 256);
  EXPECT_EQ(of_file.tokens().vocabulary(), 100'000);
  EXPECT_EQ(of_file.scored_tokens(), of_bytes.scored_tokens());
  for (int64_t step = 0; step < 20; ++step) {
    const Windows w = training(of_bytes, step, 0, 4, 33);
    EXPECT_EQ(training(of_memory, step, 0, 4, 33), w);
    EXPECT_EQ(training(of_file, step, 0, 4, 33), w);
  }
  for (int64_t w = 0; w < of_bytes.held_out_windows(); ++w) {
    Windows a(33), b(33);
    EXPECT_EQ(of_bytes.held_out_windows(w, 1, a.inputs.data(), a.targets.data()),
              of_file.held_out_windows(w, 1, b.inputs.data(), b.targets.data()));
    EXPECT_EQ(a, b);
  }
}

TEST_F(L14_Tokens, WhatIsNoneOfTheVocabularyIsRefused) {
  for (const int32_t bad : {-1, 300, INT32_MAX, INT32_MIN})
    expect_refused("is not of a vocabulary of 300", [&] { Tokens({1, bad}, 1, 300); });
  for (const int64_t vocabulary : {int64_t(0), int64_t(-5), int64_t(INT32_MAX) + 1})
    expect_refused("a vocabulary of ", [&] { Tokens({}, 0, vocabulary); });
  for (const int64_t split : {-1, 3})
    expect_refused(" of 2 tokens to train on", [&] { Tokens({1, 2}, split, 9); });
  std::string bytes = Tokens({1, 2, 299}, 2, 300).file_bytes();
  bytes[32 + 2] = 44, bytes[32 + 3] = 1;  // the second is 300
  write("tokens", bytes);
  const Tokens t = Tokens::of_file(path("tokens"));
  Ids to(3);
  t.copy(0, 1, to.data());
  expect_refused("tokens: token 1 is 300, not of its vocabulary of 300", [&] { t.copy(0, 3, to.data()); });
  expect_refused("token 1 is 300", [&] { t.copy(1, 1, to.data()); });
}

TEST_F(L14_Tokens, OtherFilesAreRefused) {
  const std::string good = Tokens(random_ids(10, 300), 5, 300).file_bytes();
  const auto refused = [&](const std::string& bytes) {
    write("f", bytes);
    return refusal([&] { Tokens::of_file(path("f")); });
  };
  for (size_t n = 0; n < good.size(); ++n) EXPECT_NE(refused(good.substr(0, n)), "") << n << " bytes";
  EXPECT_NE(refused(good.substr(0, 51)).find("says that it has 10 tokens; was it cut"), std::string::npos);
  EXPECT_NE(refused(good + 'x'), "");
  EXPECT_NE(refused(good + "xx"), "");
  EXPECT_NE(refused("gradtok2" + good.substr(8)).find("is not a file of tokens"), std::string::npos);
  for (const size_t field : {8u, 16u, 24u})
    for (const int64_t value : {int64_t(-1), INT64_MIN, INT64_MAX, int64_t(1) << 32, int64_t(11)}) {
      std::string bytes = good;
      std::memcpy(&bytes[field], &value, sizeof value);
      if (field == 24 && value == 11) continue;  // the tokens would have one byte each
      EXPECT_NE(refused(bytes), "") << field << " " << value;
    }
  EXPECT_NE(refused("").find("is empty"), std::string::npos);
  expect_refused("cannot be opened", [&] { Tokens::of_file(path("nowhere")); });
  expect_refused("no regular file", [&] { Tokens::of_file(path()); });
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  expect_refused("no regular file", [&] { Tokens::of_file(path("pipe")); });
}

// A page of zeros replaces the missing part of the file, and an error reports it; reading goes on in other
// files.
TEST_F(L14_Tokens, AFileThatIsCutGrowsOrVanishesWhileItIsRead) {
  const Ids ids = random_ids(100'000, 60'000);
  const Tokens memory(ids, 90'000, 60'000), other = in_file(memory, "other");
  for (const int64_t left : {0, 1, 31, 4096, 100'001, 200'000, 200'031}) {
    const Tokens t = in_file(memory);
    ASSERT_EQ(truncate(path("tokens").c_str(), left), 0);
    Ids to(100'000);
    for (int round = 0; round < 2; ++round) {
      expect_refused(
          "tokens became shorter while it was read: it had 200032 bytes, and has " + std::to_string(left),
          [&] { t.copy(0, 100'000, to.data()); });
      expect_refused("became shorter", [&] { t.copy(99'999, 1, to.data()); });
      expect_refused("became shorter", [&] { training(Loader(t, 10, 1), 0, 0, 1, 10); });
    }
    EXPECT_EQ(all(other), ids);
  }
  {  // cut, then restored to its old length: the pages that were read in between are zeros
    const Tokens again = in_file(memory);
    ASSERT_EQ(truncate(path("tokens").c_str(), 0), 0);
    Ids to(100'000);
    expect_refused("became shorter", [&] { again.copy(0, 100'000, to.data()); });
    std::fstream(path("tokens"), std::ios::in | std::ios::out | std::ios::binary) << memory.file_bytes();
    expect_refused("became shorter", [&] { again.copy(50'000, 1, to.data()); });
  }
  const Tokens t = in_file(memory);
  std::ofstream(path("tokens"), std::ios::app) << "more";
  EXPECT_EQ(all(t), ids);
  fs::remove(path("tokens"));
  EXPECT_EQ(all(t), ids);
}

TEST_F(L14_Tokens, ManyFilesAtATimeAndAgain) {
  write("f", "some text");
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<MappedFile>> files;
    for (int i = 0; i < 64; ++i) files.push_back(std::make_unique<MappedFile>(path("f")));
    expect_refused("64 files are mapped already, the maximum", [&] { MappedFile(path("f")); });
    for (const auto& f : files) {
      f->check_whole();
      EXPECT_EQ(std::string(f->data(), size_t(f->bytes())), "some text");
    }
  }
}

TEST_F(L14_Tokens, AnotherFaultStillEndsTheProgram) {
  const Tokens t = in_file(Tokens({1}, 1, 300));
  EXPECT_DEATH(raise(SIGBUS), "");
  write("f", std::string(10'000, 'x'));
  const int fd = open(path("f").c_str(), O_RDONLY);
  const void* const p = mmap(nullptr, 10'000, PROT_READ, MAP_PRIVATE, fd, 0);
  ASSERT_EQ(truncate(path("f").c_str(), 0), 0);
  EXPECT_DEATH(EXPECT_EQ(*static_cast<const volatile char*>(p), 'x'), "");
  munmap(const_cast<void*>(p), 10'000);
  close(fd);
}

}  // namespace
}  // namespace gradus
