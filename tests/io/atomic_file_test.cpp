// A file gets its name when it is complete; a write that fails is reported in one sentence, and never damages
// the earlier file.
#include "src/io/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>

#include "tests/folder_testing.h"
#include "tests/io/system_calls.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

class L01_AtomicFile : public FolderTest {
 protected:
  void TearDown() override { system_calls = {}; }
  const std::string path_ = path("a.bin");
};

TEST_F(L01_AtomicFile, OnlyCommitReplacesAndALongerFileLeavesNoEnd) {
  write_file(path_, "a long earlier text");
  {
    AtomicFile file(path_);
    file.write("new", 3);
    file.write(nullptr, 0);
    EXPECT_EQ(read(path_), "a long earlier text");
    EXPECT_EQ(files(), 2) << "the temporary file must be in the same folder";
  }
  EXPECT_EQ(read(path_), "a long earlier text");
  EXPECT_EQ(files(), 1);
  write_file(path_, "new");
  EXPECT_EQ(read(path_), "new");
  EXPECT_EQ(files(), 1);
}

TEST_F(L01_AtomicFile, TheBytesAreOnTheDiskBeforeTheyTakeTheName) {
  system_calls.sequence.clear();
  write_file(path_, "bytes");
  EXPECT_EQ(system_calls.sequence, "sync the file, rename, sync the folder, ");
}

TEST_F(L01_AtomicFile, AnErrorSaysWhatFailedAfterHowMuchAndLeavesTheEarlierFile) {
  write_file(path_, "as it was");
  const std::string full = ". Free some space or choose another folder";
  const std::vector<std::pair<int, std::string>> hints{
      {ENOSPC, full}, {EDQUOT, full}, {EFBIG, full}, {EIO, ""}};
  for (const auto& [error, hint] : hints) {
    const auto says = [&, error = error, &hint = hint](const std::string& what) {
      return path_ + ": " + what + " bytes: " + std::strerror(error) +
             "; an earlier file of this name is unchanged" + hint;
    };
    const auto write = [&] {
      AtomicFile file(path_);
      file.write("12345", 5);
      file.write("6789", 4);
      file.commit();
    };
    system_calls.room = 7, system_calls.disk_error = error;
    EXPECT_EQ(refusal(write), says("writing failed after 7"));
    system_calls.room = SIZE_MAX, system_calls.sync_error = error;
    EXPECT_EQ(refusal(write), says("syncing failed after 9"));
    system_calls.sync_error = 0;
    EXPECT_EQ(read(path_), "as it was");
    EXPECT_EQ(files(), 1);
  }
}

TEST_F(L01_AtomicFile, FoldersAreMadeByWriteFileAloneAndWhereTheyCanBe) {
  const std::string deep = path("a/b/c.txt");
  EXPECT_THROW(AtomicFile{deep}, Error);
  EXPECT_FALSE(fs::exists(root_ / "a"));
  write_file(deep, "x");
  EXPECT_TRUE(fs::is_regular_file(deep));
  for (const std::string& other : {path("a"), std::string("/dev/full")}) {  // neither may be replaced
    expect_refused(other + " exists and is no regular file", [&] { AtomicFile file(other); });
    expect_refused("no regular file", [&] { write_file(other, "x"); });
  }
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  for (const char* none : {"/dev/null/x", "/proc/none/x"})
    expect_refused("cannot be made", [&] { write_file(none, "x"); });
  fs::current_path(root_);
  write_file("here.txt", "in the current folder");
  EXPECT_TRUE(fs::is_regular_file(root_ / "here.txt"));
}

TEST_F(L01_AtomicFile, WhatALinkLeadsToIsWrittenAndTheLinkStays) {
  fs::create_directories(path("elsewhere"));
  fs::create_symlink("elsewhere/b.bin", path("one"));
  fs::create_symlink("one", path("two"));
  expect_refused("is a link to a file that does not exist", [&] { write_file(path("two"), "x"); });
  write("elsewhere/b.bin", "");
  for (const std::string bytes : {"it was empty", "it was not"}) {
    write_file(path("two"), bytes);
    EXPECT_TRUE(fs::is_symlink(path("one")) && fs::is_symlink(path("two")));
    EXPECT_EQ(read("elsewhere/b.bin"), bytes);
    EXPECT_EQ(files(), 3) << "a temporary file was left";
  }
}

// As set by a shell's `ulimit -f`: the system's signal would end the program without a message.
TEST_F(L01_AtomicFile, ALimitOnTheSizeOfFilesIsASentence) {
  write_file(path_, "as it was");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string said = refusal([&] { write_file(path_, std::string(5000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(said.find("writing failed after 1000 bytes: File too large"), std::string::npos) << said;
  EXPECT_EQ(read(path_), "as it was");
  EXPECT_EQ(files(), 1);
}

TEST_F(L01_AtomicFile, WhatCannotBeRenamedIsRemoved) {
  {
    AtomicFile file(path_);
    file.write("abc", 3);
    fs::create_directories(fs::path(path_) / "a folder by now");
    EXPECT_THROW(file.commit(), Error);
  }
  EXPECT_EQ(files(), 1) << "only the folder";
  EXPECT_TRUE(fs::is_directory(path_));
}

}  // namespace
}  // namespace gradus
