// A folder for the files of a test.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace gradus {
namespace fs = std::filesystem;

// Each test has its own folder. At its end the working directory is restored and the folder removed.
class FolderTest : public ::testing::Test {
 protected:
  FolderTest() { fs::create_directories(root_); }
  ~FolderTest() override {
    fs::current_path(before_);
    fs::remove_all(root_);
  }

  std::string path(const std::string& name = "") const { return (root_ / name).string(); }
  // Writes a file of these bytes; missing folders are created.
  void write(const std::string& name, const std::string& bytes) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
  std::string read(const std::string& name) const {
    std::ostringstream content;
    content << std::ifstream(path(name), std::ios::binary).rdbuf();
    return content.str();
  }
  int64_t files() const { return std::distance(fs::directory_iterator(root_), fs::directory_iterator()); }

  const fs::path before_ = fs::current_path();
  const fs::path root_ =
      fs::path(::testing::TempDir()) / ("gradus-" + std::to_string(::getpid()) + "-" +
                                        ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

}  // namespace gradus
