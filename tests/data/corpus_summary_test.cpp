// The report's line about a corpus, generated text, and finding the files of the repository.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/data/corpus.h"
#include "tests/folder_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

class L03_CorpusSummary : public FolderTest {};

TEST_F(L03_CorpusSummary, SizesAreDecimal) {
  for (const auto& [size, text] :
       std::vector<std::pair<size_t, std::string>>{{9, "9 bytes to train on, 0 bytes held out"},
                                                   {1110, "999 bytes to train on, 111 bytes held out"},
                                                   {1111, "1.0 kB to train on, 111 bytes held out"},
                                                   {10'000, "9.0 kB to train on, 1.0 kB held out"},
                                                   {1'100'000, "990.0 kB to train on, 110.0 kB held out"},
                                                   {1'112'000, "1.0 MB to train on, 111.2 kB held out"},
                                                   {12'345'678, "11.1 MB to train on, 1.2 MB held out"}}) {
    write("a.txt", std::string(size, 'a'));
    EXPECT_EQ(load_corpus(path("a.txt")).summary, path("a.txt") + ": " + text + " (its end)");
  }
}

TEST_F(L03_CorpusSummary, OfAFolderItCountsTheFilesAndWhatIsLeftOut) {
  for (int i = 0; i < 20; ++i)
    write("t/" + std::to_string(10 + i), std::to_string(10 + i) + std::string(97, 'a'));
  EXPECT_EQ(load_corpus(path("t")).summary,
            path("t") + ", 20 files: 1.8 kB to train on, 200 bytes held out (2 files)");
  write("t/copy", "10" + std::string(97, 'a'));
  write("t/empty", ""), write("t/empty2", "");
  write("t/nul", std::string(5, '\0'));
  ASSERT_EQ(::symlink("nowhere", path("t/dangling").c_str()), 0);
  ASSERT_EQ(::symlink(".", path("t/loop").c_str()), 0);
  ASSERT_EQ(::mkfifo(path("t/pipe").c_str(), 0600), 0);
  EXPECT_EQ(
      load_corpus(path("t")).summary,
      path("t") +
          ", 20 files: 1.8 kB to train on, 200 bytes held out (2 files); left out: 2 empty, 1 not text, "
          "1 exact copies, 1 links to folders, 1 unreadable (no permission, or a link to nothing), "
          "1 no regular file");
}

TEST_F(L03_CorpusSummary, OfTheOnlyTextOfAFolderItSaysWhatIsLeftOutToo) {
  write("t/text", std::string(1000, 'a')), write("t/empty", "");
  EXPECT_EQ(load_corpus(path("t")).summary,
            path("t/text") + ": 900 bytes to train on, 100 bytes held out (its end); left out: 1 empty");
}

TEST_F(L03_CorpusSummary, GeneratedTextIsWholeSentencesUpToTheFirstThatIsEnough) {
  const Grammar g = Grammar::parse("s -> \"ab\" rest\nrest -> 0.5 s | 0.5 \".\"");
  for (const int64_t bytes : {1, 4, 5, 100, 1000, 5000}) {
    const Corpus corpus = generate_corpus(g, 3, bytes);
    const int64_t size = int64_t(corpus.bytes.size());
    EXPECT_GE(size, bytes);
    const size_t last = corpus.bytes.rfind('\n', corpus.bytes.size() - 2) + 1;  // npos + 1 is 0
    EXPECT_LT(int64_t(last), bytes) << "without the last sentence there would be too few bytes";
    EXPECT_TRUE(corpus.split == 0 || corpus.bytes[size_t(corpus.split - 1)] == '\n') << bytes;
    EXPECT_LE(corpus.split, bytes - bytes / 10) << "at least a tenth is held out";
    const size_t next = corpus.bytes.find('\n', size_t(corpus.split)) + 1;
    EXPECT_GE(int64_t(next), bytes - bytes / 10) << "and not one sentence more";
  }
  const Grammar fixed = Grammar::parse("s -> \"ab\" \".\"");  // 4 bytes each
  EXPECT_EQ(generate_corpus(fixed, 1, 4001).summary,
            "text generated from the grammar: 3.6 kB to train on, 404 bytes held out");
  for (const int64_t bytes : {int64_t(0), int64_t(-1), kMaxCorpusBytes + 1})
    expect_refused("data: " + std::to_string(bytes) + " bytes of generated text; it must be 1 to 1073741824",
                   [&] { generate_corpus(fixed, 1, bytes); });
}

TEST_F(L03_CorpusSummary, FilesAreFoundFromHereAndFromTheProgram) {
  fs::current_path(root_);
  const std::string ours = find_data_file("steps.grammar");
  EXPECT_TRUE(fs::path(ours).is_absolute() && ours.ends_with("/data/steps.grammar")) << ours;
  EXPECT_NE(read_text_file(ours).find("sentence"), std::string::npos);
  write("data/steps.grammar", "here");
  EXPECT_EQ(read_text_file(find_data_file("steps.grammar")), "here") << "the current folder comes first";
  fs::create_directories(root_ / "below/data/steps.grammar");
  fs::current_path(root_ / "below");
  EXPECT_EQ(read_text_file(find_data_file("steps.grammar")), "here") << "a folder of that name is not a file";
  expect_refused("data/no.grammar was found neither in the current folder nor in the program's",
                 [] { find_data_file("no.grammar"); });
  write("empty", "");
  expect_refused(path("empty") + " is empty", [&] { read_text_file(path("empty")); });
  expect_refused(path("missing") + " cannot be opened", [&] { read_text_file(path("missing")); });
}

}  // namespace
}  // namespace gradus
