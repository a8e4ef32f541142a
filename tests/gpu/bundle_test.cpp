// What gpu-bundle (bundle.sh) writes from this clone.
#include <sys/wait.h>

#include <regex>

#include "tests/folder_testing.h"

namespace gradus {
namespace {

struct GpuBundle : FolderTest {
  void SetUp() override {
    if (std::system("git rev-parse --git-dir >/dev/null 2>&1") != 0) GTEST_SKIP() << "this is not a clone";
    if (!fs::exists("/usr/src/googletest")) GTEST_SKIP() << "the sources of GoogleTest are missing";
  }
  int bundle() const {
    return WEXITSTATUS(
        std::system(("sh tests/gpu/bundle.sh '" + path("bundle") + "' >'" + path("out") + "' 2>&1").c_str()));
  }
};

TEST_F(GpuBundle, HasWhateverIsIncludedOfPackages) {
  ASSERT_EQ(bundle(), 0) << read("out");
  const std::regex included("#include <((gtest|nlohmann|stb|utf8proc)[^>]*)>");
  int64_t found = 0;
  for (const auto& entry : fs::recursive_directory_iterator(path("bundle"))) {
    const std::string name = fs::relative(entry.path(), root_);
    if (!entry.is_regular_file() || name.starts_with("bundle/packages/")) continue;
    const std::string text = read(name);
    EXPECT_FALSE(
        text.starts_with("\x7f"
                         "ELF"))
        << name << " is a binary";
    for (std::sregex_iterator at(text.begin(), text.end(), included), end; at != end; ++at, ++found)
      EXPECT_TRUE(fs::exists(path("bundle/packages/include/" + (*at)[1].str())))
          << (*at)[1] << ", in " << name;
  }
  EXPECT_GT(found, 100);
  for (const char* file :
       {"Makefile", "packages/gtest/src/gtest-all.cc", "packages/utf8proc.c", "packages.commit"})
    EXPECT_TRUE(fs::exists(path(std::string("bundle/") + file))) << file;
}

TEST_F(GpuBundle, WritesOverNothing) {
  write("bundle/mine", "1");
  EXPECT_EQ(bundle(), 1);
  EXPECT_NE(read("out").find("already exists; name a new folder, or remove it"), std::string::npos)
      << read("out");
  EXPECT_EQ(read("bundle/mine"), "1");
}

}  // namespace
}  // namespace gradus
