// Files of any size arrive whole, also where the system takes them in parts.
#include "src/io/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "kernels/check.h"
#include "tests/folder_testing.h"
#include "tests/io/system_calls.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

class L01_AtomicFile : public FolderTest {
 protected:
  void TearDown() override { system_calls = {}; }
  static std::string numbered(size_t bytes) {
    std::string text(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) text[i] = char(i * 7 + i / 251);
    return text;
  }

  const std::string path_ = path("a.bin");
};

TEST_F(L01_AtomicFile, AWriteInPartsIsWhole) {
  for (const size_t part : {size_t(1), size_t(1000), size_t(4096), SIZE_MAX})
    for (const size_t bytes : {size_t(0), size_t(1), size_t(999), size_t(1000), size_t(1001), size_t(5000)}) {
      system_calls.most_at_once = part, system_calls.interruptions = INT64_MAX;
      AtomicFile file(path_);
      const std::string text = numbered(bytes);
      file.write(text.data(), int64_t(bytes));
      file.write("end", 3);
      file.commit();
      EXPECT_EQ(read(path_), text + "end") << bytes << " bytes, " << part << " at once";
    }
}

TEST_F(L01_AtomicFile, LargeFilesAreWhole) {
  for (const size_t bytes : {65535u, 65536u, 65537u, (1u << 20) + 3}) {
    system_calls.most_at_once = 40000;
    write_file(path_, numbered(bytes));
    EXPECT_EQ(read(path_), numbered(bytes)) << bytes;
  }
}

TEST_F(L01_AtomicFile, OnlyCommitReplacesAndALongerFileLeavesNoEnd) {
  write_file(path_, "a long earlier text");
  {
    AtomicFile file(path_);
    file.write("new", 3);
    EXPECT_EQ(read(path_), "a long earlier text");
    EXPECT_EQ(files(), 2) << "the temporary file is in the same folder";
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

TEST_F(L01_AtomicFile, FoldersAreMadeByWriteFileAlone) {
  const std::string deep = path("a/b/c.txt");
  EXPECT_THROW(AtomicFile{deep}, Error);
  EXPECT_FALSE(fs::exists(root_ / "a"));
  write_file(deep, "x");
  EXPECT_TRUE(fs::is_regular_file(deep));
  expect_refused(path("a") + " is there and is no regular file", [&] { AtomicFile file(path("a")); });
  fs::current_path(root_);
  write_file("here.txt", "in the present folder");
  EXPECT_TRUE(fs::is_regular_file(root_ / "here.txt"));
}

TEST_F(L01_AtomicFile, WhatCannotBeRenamedIsRemoved) {
  {
    AtomicFile file(path_);
    file.write("abc", 3);
    fs::create_directories(fs::path(path_) / "a folder by now");
    EXPECT_THROW(file.commit(), Error);
  }
  EXPECT_EQ(files(), 1) << "the folder alone";
  EXPECT_TRUE(fs::is_directory(path_));
}

}  // namespace
}  // namespace gradus
