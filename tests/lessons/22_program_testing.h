// Runs the program of lesson 22 in the folder of a test.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/core/json.h"
#include "src/io/safetensors.h"
#include "tests/folder_testing.h"
#include "tests/program_testing.h"

namespace gradus {

struct ProgramTest : FolderTest {
  static constexpr const char* kProgram = "lessons/22_scoreboard";
  // Flags of a tiny run.
  static constexpr const char* kModel = "--model=gpt-2x16x2 --context=16 ";
  static constexpr const char* kTiny = "--model=gpt-2x16x2 --context=16 --text-bytes=20000 --batch=4 ";

  Outcome gradus(const std::string& words, const std::string& before = "") const {
    return run(kProgram, words, "cd '" + path() + "'; " + before);
  }
  void expect_done(const std::string& words) const {
    const Outcome outcome = gradus(words);
    EXPECT_EQ(outcome.code, 0) << words << "\n" << outcome.output;
  }
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(root_))
      all[entry.path().lexically_relative(root_)] =
          entry.is_regular_file() ? read(entry.path().lexically_relative(root_)) : "";
    return all;
  }
  Metadata metadata(const std::string& name) const { return SafetensorsFile(path(name)).metadata(); }
  Json settings(const std::string& name) const { return Json::parse(metadata(name).at("settings")); }
};

}  // namespace gradus
