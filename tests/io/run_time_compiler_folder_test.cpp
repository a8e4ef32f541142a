// The folder of compiled code when the disk is full, a file is damaged, or several processes use it at once;
// and special characters of a shell in its name.
#include <sys/resource.h>
#include <sys/wait.h>

#include <functional>
#include <map>

#include "tests/io/run_time_compiler_testing.h"

namespace gradus {
namespace {

using L16_CodeFolder = RunTimeCompilerTest;

// A disk that is full at the first byte of the mark, the source or the library.
TEST_F(L16_CodeFolder, AFullDiskIsASentenceAndNothingIsLost) {
  for (const size_t room : {0, 10, 50, 1000}) {
    const std::string folder = "room for " + std::to_string(room);
    RunTimeCompiler same = compiler(folder);
    system_calls.room = room, system_calls.disk_error = ENOSPC;
    EXPECT_NE(error_of(same, source_of("11")).find("No space left on device"), std::string::npos) << folder;
    system_calls = {};
    EXPECT_EQ(result_of(same, source_of("11")), 11) << folder << ": now there is space";
    expect_works(folder);
  }
}

// The limit holds for the compiler's files, too.
TEST_F(L16_CodeFolder, ALimitOnTheSizeOfFilesIsASentence) {
  RunTimeCompiler same = compiler();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string said = error_of(same, source_of("11"));
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(said.find("File too large"), std::string::npos) << "the reason is missing: " << said;
  expect_works();
}

// A new file for each kind of damage, because the program has already loaded the undamaged library.
TEST_F(L16_CodeFolder, ADamagedLibraryIsCompiledAnew) {
  RunTimeCompiler before = compiler("whole");
  ASSERT_EQ(result_of(before, source_of("11")), 11);
  const std::string bytes = read(library("whole"));
  std::string last = bytes, first = bytes;
  last.back() ^= 1, first.front() ^= 1;
  const std::map<std::string, std::string> kinds{{"half of it", bytes.substr(0, bytes.size() / 2)},
                                                 {"no byte", ""},
                                                 {"all but the last byte", bytes.substr(0, bytes.size() - 1)},
                                                 {"other last byte", last},
                                                 {"other first byte", first}};
  for (const auto& [kind, damaged] : kinds) {
    fs::copy(path("whole"), path(kind));
    write(library(kind), damaged);
    RunTimeCompiler same = compiler(kind);
    EXPECT_EQ(result_of(same, source_of("11")), 11) << kind;
    EXPECT_EQ(same.compiled(), 1) << kind << ": the damaged library was used";
    RunTimeCompiler next = compiler(kind);
    EXPECT_EQ(result_of(next, source_of("11")), 11) << kind;
    EXPECT_EQ(next.from_folder(), 1) << kind << ": the library was not replaced";
  }
}

TEST_F(L16_CodeFolder, AShellsCharactersAreTakenAsTheyAre) {
  fs::current_path(root_);
  const std::string folder = "a b; touch x $(touch y) `touch y` 'q' \"&| > x";
  RunTimeCompiler same(folder, plain() + " -DTEXT=\"a;$(touch${IFS}y)&\"");
  EXPECT_EQ(result_of(same, source_of("sizeof TEXT")), 19) << "the flag was changed";
  expect_works(folder);
  RunTimeCompiler with_semicolon(path("code"), plain() + "; touch x");
  EXPECT_NE(error_of(with_semicolon, source_of("11")), "");
  for (const char* file : {"x", "y"})
    EXPECT_FALSE(fs::exists(file)) << "a shell has run 'touch " << file << "'";
}

// Calls f in several processes that begin together. Returns how many of them fail.
int failures_of(int processes, const std::function<bool(int)>& f) {
  int gate[2];
  if (::pipe(gate) != 0) return processes;
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    char byte = 0;
    ::close(gate[1]);
    int succeeded = 0;
    try {
      succeeded = ::read(gate[0], &byte, 1) == 0 && f(i);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "process %d: %s\n", i, e.what());
    }
    ::_exit(succeeded ? 0 : 1);
  }
  ::close(gate[1]), ::close(gate[0]);  // now all begin
  int failures = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    failures += status != 0;
  }
  return failures;
}

TEST_F(L16_CodeFolder, SeveralProcessesMayBeginInOneNewFolder) {
  for (int round = 0; round < 5; ++round) {
    const std::string folder = "round " + std::to_string(round);
    EXPECT_EQ(failures_of(4,
                          [&](int) {
                            RunTimeCompiler own = compiler(folder);
                            return result_of(own, source_of("11")) == 11;
                          }),
              0)
        << "of 4 processes, in " << folder;
    expect_works(folder);
    EXPECT_EQ(names(folder).size(), 3u);
  }
}

TEST_F(L16_CodeFolder, SeveralProcessesMayCompileOneSourceInAFolder) {
  RunTimeCompiler before = compiler();
  result_of(before, source_of("1"));
  for (int round = 0; round < 3; ++round) {
    const std::string source = source_of("11 + 0 * " + std::to_string(round));
    EXPECT_EQ(failures_of(4,
                          [&](int) {
                            RunTimeCompiler own = compiler();
                            return result_of(own, source) == 11;
                          }),
              0);
  }
  expect_works();
}

// The files of a process that was killed while it created the folder.
TEST_F(L16_CodeFolder, AFolderWhoseMarkWasNeverFinishedIsUsed) {
  write("code/version.tmp-1-0", "0123");
  expect_works();
}

}  // namespace
}  // namespace gradus
