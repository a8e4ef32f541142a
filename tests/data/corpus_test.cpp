// The bytes that become a corpus, and those of them that are held out.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "src/data/corpus.h"
#include "tests/folder_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

class L03_Corpus : public FolderTest {
 protected:
  static bool holds(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
  }
  void expect_error(const std::string& where, const std::string& part) const {
    const std::string text = refusal([&] { load_corpus(where); });
    EXPECT_TRUE(holds(text, part)) << where << ": " << text;
  }
};

// n bytes of text that start with a name, so that no two files are equal.
std::string file_text(const std::string& name, size_t n) {
  std::string text = name + "\n";
  while (text.size() < n) text += "one step after the other; ";
  return text.substr(0, n);
}

TEST_F(L03_Corpus, TheEndOfASingleFileIsHeldOut) {
  const std::string text = file_text("only", 1005);
  write("a.txt", text);
  for (const std::string& where : {path("a.txt"), path()}) {
    const Corpus corpus = load_corpus(where);
    EXPECT_EQ(corpus.bytes, text);
    EXPECT_EQ(corpus.held_out().size(), 100u);
    EXPECT_TRUE(holds(corpus.summary, "905 bytes to train on, 100 bytes held out")) << corpus.summary;
  }
}

TEST_F(L03_Corpus, AboutATenthOfTheFilesIsHeldOutSpreadOverTheList) {
  for (int i = 0; i < 40; ++i) {
    const std::string name = std::string("f") + std::to_string(10 + i);
    write((i % 2 ? name : "sub/" + name) + (i % 3 ? ".txt" : ".a"), file_text(name, 1000));
  }
  const Corpus corpus = load_corpus(path());
  EXPECT_EQ(corpus.held_out().size(), 4 * 1001u);  // each with its end-of-document byte
  EXPECT_EQ(corpus.train().size(), 36 * 1001u);
  EXPECT_EQ(load_corpus(path()).bytes, corpus.bytes);
  // The list is f11 f13 ... f49, then sub/f10 ...: its 5th, 15th, 25th and 35th entries.
  for (const char* name : {"f19\n", "f39\n", "f18\n", "f38\n"})
    EXPECT_TRUE(holds(corpus.held_out(), name)) << name;
}

TEST_F(L03_Corpus, HeldOutBytesStayNearATenthForAnySizes) {
  const std::vector<std::vector<size_t>> cases = {
      {1000, 10},
      {10, 1000},
      {500, 500},
      {100, 200, 300},
      {5000, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100},
      {50, 60, 70, 80, 90, 100, 110, 120, 130, 140, 150, 160, 170, 180, 190, 200}};
  for (const std::vector<size_t>& sizes : cases) {
    fs::remove_all(root_);
    size_t total = 0, largest = 0, smallest = SIZE_MAX;
    for (size_t i = 0; i < sizes.size(); ++i) {
      std::string name = "n";
      name += std::to_string(100 + i);
      write(name, file_text(name, sizes[i]));
      total += sizes[i] + 1, largest = std::max(largest, sizes[i] + 1),
                             smallest = std::min(smallest, sizes[i] + 1);
    }
    const Corpus corpus = load_corpus(path());
    EXPECT_EQ(corpus.bytes.size(), total);
    const size_t held = corpus.held_out().size();
    EXPECT_GT(held, 0u);
    EXPECT_GT(corpus.train().size(), held - 1);  // never more than half
    EXPECT_LE(double(held), std::max(0.1 * double(total) + double(largest) / 2, double(smallest)) + 1);
  }
}

TEST_F(L03_Corpus, ExactCopiesAreReadOnceSoThatNoTrainingFileIsHeldOut) {
  for (int i = 0; i < 60; ++i) {
    const std::string content = std::string("c") + std::to_string(i % 20);  // three copies of each
    write(std::string("d") + std::to_string(100 + i), file_text(content, 500));
  }
  const Corpus corpus = load_corpus(path());
  EXPECT_EQ(corpus.bytes.size(), 20 * 501u);
  EXPECT_EQ(corpus.held_out().size(), 2 * 501u) << "a tenth of the files that are read";
  EXPECT_TRUE(holds(corpus.summary, "40 exact copies")) << corpus.summary;
  for (int i = 0; i < 20; ++i) {
    const std::string content = file_text(std::string("c") + std::to_string(i), 500) + std::string(1, '\0');
    EXPECT_NE(holds(corpus.train(), content), holds(corpus.held_out(), content)) << i;
  }
}

TEST_F(L03_Corpus, SkipsWhatIsNoTextAndSaysSo) {
  for (int i = 0; i < 12; ++i) write("t" + std::to_string(100 + i), file_text("t" + std::to_string(i), 300));
  write("empty", "");
  write("nul", std::string("text with a") + '\0' + "NUL");
  std::string junk;
  for (int i = 0; i < 1000; ++i) junk += char(1 + i * 37 % 255);
  write("junk", junk);
  write("latin1", "caf\xE9 " + file_text("l", 300));  // a few bytes that are not UTF-8: still text
  write("korean",
        "\xEA\xB3\x84\xEB\x8B\xA8 "
        "steps \x1B[1mbold\x1B[0m");  // UTF-8 and terminal codes
  ASSERT_EQ(::symlink("t100", path("second-name").c_str()), 0);
  const Corpus corpus = load_corpus(path());
  EXPECT_TRUE(holds(corpus.summary, "14 files")) << corpus.summary;
  EXPECT_TRUE(holds(corpus.summary, "left out: 1 empty, 2 not text")) << corpus.summary;
  EXPECT_TRUE(holds(corpus.bytes, "caf\xE9") && holds(corpus.bytes, "\xEB\x8B\xA8"));
  EXPECT_FALSE(holds(corpus.bytes, "with a"));
}

TEST_F(L03_Corpus, LinksToFilesAreReadOnceAndLinksToFoldersAreNotFollowed) {
  write("real/a", file_text("a", 400));
  write("real/b", file_text("b", 400));
  write("outside", file_text("outside", 400));
  fs::create_directories(root_ / "view/sub");
  ASSERT_EQ(::symlink("../real/a", path("view/one").c_str()), 0);
  ASSERT_EQ(::symlink("../real/a", path("view/again").c_str()), 0);
  ASSERT_EQ(::symlink("../../outside", path("view/sub/file").c_str()), 0);
  ASSERT_EQ(::symlink("../..", path("view/sub/up").c_str()), 0);
  ASSERT_EQ(::symlink("../../real", path("view/sub/folder").c_str()), 0);
  ASSERT_EQ(::symlink("folder", path("view/sub/of-a-link").c_str()), 0);
  const Corpus corpus = load_corpus(path("view"));
  EXPECT_EQ(corpus.bytes, file_text("outside", 400) + '\0' + file_text("a", 400) + '\0');  // a is held out
  EXPECT_TRUE(holds(corpus.summary, "left out: 3 links to folders")) << corpus.summary;
  // A link given to --data is followed.
  ASSERT_EQ(::symlink("real", path("named").c_str()), 0);
  EXPECT_EQ(load_corpus(path("named")).bytes.size(), 802u);
  EXPECT_EQ(load_corpus(path("view/one")).bytes.size(), 400u);
}

TEST_F(L03_Corpus, TextHasAtMostATenthOfStrangeBytes) {
  const auto is_text = [&](const std::string& bytes) {
    write("t", bytes);
    try {
      EXPECT_EQ(load_corpus(path("t")).bytes, bytes);
      return true;
    } catch (const Error& e) {
      EXPECT_TRUE(holds(e.what(), "1 not text")) << e.what();
      return false;
    }
  };
  for (const char* strange : {"\x01", "\xFF", "\xE9"}) {  // a control code, two bytes that are not UTF-8
    std::string ten, more;
    for (int i = 0; i < 10; ++i) ten += strange;
    more = ten + strange;
    EXPECT_TRUE(is_text(std::string(90, 'a') + ten));
    EXPECT_FALSE(is_text(std::string(89, 'a') + more));
    EXPECT_FALSE(is_text(std::string(98, 'a') + more));
    EXPECT_TRUE(is_text(std::string(99, 'a') + more));
  }
  EXPECT_FALSE(is_text(std::string(1000, 'a') + '\0'));
  for (const char* letter : {"\u00E4", "\u20AC", "\U0001F600"}) {  // of two, three and four bytes
    std::string text;
    for (int i = 0; i < 30; ++i) text += letter;
    EXPECT_TRUE(is_text(text)) << letter;
    EXPECT_TRUE(is_text(std::string(500, 'a') + text + "\xF0\x9F\x98")) << "the last one is cut off";
  }
  for (int c = 1; c < 256; ++c) {
    const bool strange = (c < 32 && !std::strchr("\t\n\f\r\x1B", c)) || c >= 0x80;
    EXPECT_EQ(is_text(std::string("text") + char(c)), !strange) << c;
  }
}

// The rule holds for the whole file, wherever its strange bytes are.
TEST_F(L03_Corpus, LargeFilesAreReadByteForByteAndJudgedAsAWhole) {
  const size_t block = 1 << 16;
  for (const size_t size : {block - 1, block, block + 1, 3 * block + 5}) {
    std::string text;
    while (text.size() < size) text += "\xEA\xB3\x84 " + std::to_string(text.size());
    text.resize(size), text.back() = '.';
    write("large", text);
    EXPECT_TRUE(load_corpus(path("large")).bytes == text) << size;
  }
  const std::string noise(block / 4, '\x01'), clean(block, 'a');
  write("large", noise + clean + clean + clean);
  EXPECT_EQ(load_corpus(path("large")).bytes.size(), noise.size() + 3 * block);
  write("large", clean + noise + noise);
  expect_error(path("large"), "1 not text");
  write("large", clean + clean + '\0');
  expect_error(path("large"), "1 not text");
}

TEST_F(L03_Corpus, ATenthIsTheLargestThatIsHeldOut) {
  const auto held_out = [&](const std::vector<size_t>& sizes) {
    fs::remove_all(root_);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const std::string name(1, char('a' + i));
      write(name, file_text(name, sizes[i]));
    }
    std::string names;
    const Corpus corpus = load_corpus(path());
    bool begins = true;
    for (const char c : corpus.held_out()) {
      if (begins) names += c;
      begins = c == '\0';
    }
    return names;
  };
  EXPECT_EQ(held_out({100, 860, 40}), "a");  // exactly a tenth of all bytes
  EXPECT_EQ(held_out({101, 859, 40}), "c");  // above a tenth: it stays in training
  EXPECT_EQ(held_out({101, 898}), "a");      // unless all are above: then the smallest one
  EXPECT_EQ(held_out({898, 101}), "b");
  EXPECT_EQ(held_out({500, 500}), "a");  // of equal files, the first one
  // Of small files, here 80 bytes, at most half is held out: the second file is taken when half of the bytes
  // so far allow it.
  EXPECT_EQ(held_out({40, 40, 920}), "a");
  EXPECT_EQ(held_out({920, 40, 40}), "b");
  EXPECT_EQ(held_out({10, 60, 930}), "a");
  // A tenth of eleven equal files is 1.1 of them: the file at which the share has reached its middle.
  EXPECT_EQ(held_out(std::vector<size_t>(11, 100)), "e");
  EXPECT_EQ(held_out({96, 104, 100, 100, 100, 100, 100, 100, 100, 100}), "f");
}

TEST_F(L03_Corpus, NothingToReadIsASentenceWithAHint) {
  expect_error(path("missing"), "no such file or folder; give --data");
  expect_error(path(), "holds no text; give --data");
  write("empty", "");
  expect_error(path("empty"), "holds no text; left out: 1 empty; give --data");
  write("binary", std::string(100, '\0'));
  expect_error(path(), "left out: 1 empty, 1 not text; give --data");
  expect_error("/dev/null", "1 no regular file");
}

TEST_F(L03_Corpus, TooLargeIsRefusedBeforeItIsRead) {
  write("large", file_text("large", 1 << 16));
  ASSERT_EQ(::truncate(path("large").c_str(), kMaxCorpusBytes + 1), 0);  // a hole: takes no disk space
  expect_error(path(), "over 1073741824 bytes");
  // A large file whose beginning is not text does not count.
  write("large", std::string(100, '\0'));
  ASSERT_EQ(::truncate(path("large").c_str(), kMaxCorpusBytes + 1), 0);
  write("small", file_text("small", 100));
  EXPECT_EQ(load_corpus(path()).bytes.size(), 100u);
}

}  // namespace
}  // namespace gradus
