// A compiler with a folder of the test, and its errors.
#pragma once
#include "src/io/run_time_compiler.h"

#include <set>

#include "tests/folder_testing.h"
#include "tests/io/system_calls.h"
#include "tests/refusal_testing.h"

namespace gradus {

inline std::string source_of(const std::string& expression) {
  return "extern \"C\" int f() { return " + expression + "; }\n";
}
inline int result_of(RunTimeCompiler& compiler, const std::string& source) {
  return reinterpret_cast<int (*)()>(compiler.function(source, "f"))();
}

class RunTimeCompilerTest : public FolderTest {
 protected:
  void TearDown() override { system_calls = {}; }
  // The compiler of this build, without the need to optimize.
  static std::string plain() {
    const std::string command = RunTimeCompiler::built_with("cpu");
    return command.substr(0, command.find(' ')) + " -O0 -shared -fPIC";
  }
  RunTimeCompiler compiler(const std::string& folder = "code", const std::string& flags = "") const {
    return RunTimeCompiler(path(folder), plain() + flags);
  }
  std::set<std::string> names(const std::string& folder = "code") const {
    std::set<std::string> all;
    for (const fs::directory_entry& entry : fs::directory_iterator(root_ / folder))
      all.insert(entry.path().filename().string());
    return all;
  }
  std::string library(const std::string& folder = "code") const {
    for (const std::string& name : names(folder))
      if (name.ends_with(".so")) return folder + "/" + name;
    return "";
  }
  // The Error for this source, which must be one sentence.
  static std::string error_of(RunTimeCompiler& compiler, const std::string& source) {
    const std::string said = refusal([&] { compiler.function(source, "f"); });
    EXPECT_NE(said, "") << "no error";
    EXPECT_EQ(said.find('\n'), std::string::npos) << "more than one line: " << said;
    EXPECT_FALSE(said.ends_with(": ")) << "the reason is missing: " << said;
    return said;
  }
  void expect_works(const std::string& folder = "code") const {
    RunTimeCompiler after = compiler(folder);
    EXPECT_EQ(result_of(after, source_of("11")), 11);
    for (const std::string& name : names(folder))
      EXPECT_TRUE(name == "version" || name.ends_with(".cpp") || name.ends_with(".so"))
          << "a temporary file is left: " << name;
  }
};

}  // namespace gradus
