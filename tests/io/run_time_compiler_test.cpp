// Code that is compiled at run time: it is compiled once and found again in its folder; every error is one
// sentence, after which the folder still works.
#include <sys/stat.h>

#include "tests/io/run_time_compiler_testing.h"

namespace gradus {
namespace {

using L16_RunTimeCompiler = RunTimeCompilerTest;

TEST_F(L16_RunTimeCompiler, ASourceIsCompiledOnceAndThenFoundInTheFolder) {
  RunTimeCompiler first = compiler();
  EXPECT_EQ(result_of(first, source_of("7")), 7);
  EXPECT_EQ(result_of(first, source_of("7")), 7);
  EXPECT_EQ(first.compiled(), 1) << "the same source in one object must count once";
  EXPECT_EQ(first.from_folder(), 0);
  RunTimeCompiler second = compiler();
  EXPECT_EQ(result_of(second, source_of("7")), 7);
  EXPECT_EQ(result_of(second, source_of("7")), 7);
  EXPECT_EQ(second.compiled(), 0) << "it is in the folder";
  EXPECT_EQ(second.from_folder(), 1);
  EXPECT_FALSE(second.other_version());
  EXPECT_EQ(names().size(), 3u) << "version, source and library";
}

TEST_F(L16_RunTimeCompiler, TheCommandOfThisBuildCompilesWhatIncludesTheKernelsHeaders) {
  RunTimeCompiler with_headers(path("code"), RunTimeCompiler::built_with("cpu"));
  EXPECT_EQ(result_of(with_headers, "#include \"kernels/cpu/chain.h\"\n" +
                                        source_of("gradus::KernelChain::kCalls > 0 ? 5 : 0")),
            5);
}

TEST_F(L16_RunTimeCompiler, OtherSourcesAndOtherFlagsHaveLibrariesOfTheirOwn) {
  RunTimeCompiler one = compiler("code", " -DVALUE=1");
  EXPECT_EQ(result_of(one, source_of("VALUE")), 1);
  EXPECT_EQ(result_of(one, source_of("VALUE + 10")), 11) << "the library of a different source";
  const std::set<std::string> before = names();
  RunTimeCompiler two = compiler("code", " -DVALUE=2");
  EXPECT_EQ(result_of(two, source_of("VALUE")), 2) << "the library of different flags";
  EXPECT_EQ(two.compiled(), 1);
  EXPECT_FALSE(one.other_version());
  EXPECT_TRUE(two.other_version()) << "the folder was used with different flags";
  for (const std::string& name : before) EXPECT_TRUE(names().contains(name)) << name << " was removed";
  RunTimeCompiler again = compiler("code", " -DVALUE=1");
  EXPECT_EQ(result_of(again, source_of("VALUE")), 1);
  EXPECT_EQ(again.from_folder(), 1) << "the library of the first flags must still exist";
}

TEST_F(L16_RunTimeCompiler, ACompilerThatCannotBeStartedIsNamed) {
  RunTimeCompiler none(path("code"), "no-such-compiler -O2");
  EXPECT_NE(error_of(none, source_of("11")).find("'no-such-compiler' cannot be started: No such file"),
            std::string::npos);
  expect_works();
}

TEST_F(L16_RunTimeCompiler, ACommandOfBlanksOrNoFolderIsRefused) {
  for (const char* blanks : {"", " ", " \t  "})
    expect_refused("no command is named", [&] { RunTimeCompiler(path("code"), blanks); });
  expect_refused("no folder is named", [] { RunTimeCompiler("", "c++"); });
  EXPECT_FALSE(fs::exists(root_ / "code"));
}

TEST_F(L16_RunTimeCompiler, AnErrorInTheSourceIsTheCompilersOwnLine) {
  RunTimeCompiler same = compiler();
  const std::string said = error_of(same, "\n\nextern \"C\" int f() { return undeclared_name; }\n");
  EXPECT_NE(said.find(".cpp:3:"), std::string::npos) << said;
  EXPECT_NE(said.find("error: "), std::string::npos) << said;
  EXPECT_NE(said.find("undeclared_name"), std::string::npos) << said;
  EXPECT_EQ(result_of(same, source_of("3")), 3) << "the same object compiles the next source";
  EXPECT_EQ(same.compiled(), 1) << "a failed compilation does not count";
  expect_works();
}

// The word "error" also occurs in names, in lines before the compiler's error.
TEST_F(L16_RunTimeCompiler, TheWordErrorInANameIsNotTheErrorsLine) {
  RunTimeCompiler in_folder = compiler("my errors");
  const std::string said = error_of(in_folder, source_of("undeclared_name"));
  EXPECT_NE(said.find("undeclared_name"), std::string::npos)
      << "the folder's name is taken for the error: " << said;
  RunTimeCompiler in_function = compiler();
  const std::string of = error_of(in_function, "int error_count() { return undeclared_name; }\n");
  EXPECT_NE(of.find("undeclared_name"), std::string::npos)
      << "the function's name is taken for the error: " << of;
}

TEST_F(L16_RunTimeCompiler, ACompilerThatFailsWithoutAWordHasFailed) {
  RunTimeCompiler silent(path("code"), "false");
  EXPECT_NE(error_of(silent, source_of("11")).find("'false' failed"), std::string::npos);
  expect_works();
}

TEST_F(L16_RunTimeCompiler, ACompilerThatASignalEndsHasFailed) {
  write("killed", "#!/bin/sh\nkill -KILL $$\n");
  ASSERT_EQ(::chmod(path("killed").c_str(), 0700), 0);
  RunTimeCompiler killed(path("code"), path("killed"));
  EXPECT_NE(error_of(killed, source_of("11")).find("signal 9 ended it"), std::string::npos);
  expect_works();
}

TEST_F(L16_RunTimeCompiler, WhetherItWorksIsTriedWithoutBeingCounted) {
  for (int i = 0; i < 2; ++i) {  // compiled, then found
    RunTimeCompiler same = compiler();
    EXPECT_EQ(same.problem(), "");
    EXPECT_EQ(same.compiled() + same.from_folder(), 0);
    EXPECT_EQ(result_of(same, source_of("11")), 11);
    EXPECT_EQ(same.compiled() + same.from_folder(), 1);
  }
}

TEST_F(L16_RunTimeCompiler, ACompilerThatMakesNothingIsAnError) {
  RunTimeCompiler nothing(path("code"), "true");
  EXPECT_NE(error_of(nothing, source_of("11")).find("cannot be loaded"), std::string::npos);
  EXPECT_EQ(nothing.compiled(), 0);
  expect_works();
}

TEST_F(L16_RunTimeCompiler, AFunctionThatTheSourceLacksIsRefused) {
  RunTimeCompiler same = compiler();
  expect_refused("has no function 'missing'", [&] { same.function(source_of("3"), "missing"); });
  EXPECT_EQ(result_of(same, source_of("3")), 3);
}

TEST_F(L16_RunTimeCompiler, AFolderThatIsAFileIsRefusedAndStays) {
  write("code", "a file");
  RunTimeCompiler same = compiler();
  EXPECT_NE(error_of(same, source_of("11")).find("is not a folder"), std::string::npos);
  EXPECT_EQ(read("code"), "a file");
  fs::remove(path("code"));
  EXPECT_EQ(result_of(same, source_of("11")), 11) << "now the file is removed";
}

TEST_F(L16_RunTimeCompiler, AFolderInWhichOthersMayWriteIsRefused) {
  RunTimeCompiler before = compiler();
  result_of(before, source_of("11"));
  RunTimeCompiler same = compiler();
  for (const mode_t mode : {0777, 0770, 0702}) {
    ASSERT_EQ(::chmod(path("code").c_str(), mode), 0);
    EXPECT_NE(error_of(same, source_of("11")).find("others may write to the folder"), std::string::npos)
        << mode;
  }
  ASSERT_EQ(::chmod(path("code").c_str(), 0755), 0);
  EXPECT_EQ(result_of(same, source_of("11")), 11) << "now only its owner may write";
}

TEST_F(L16_RunTimeCompiler, TheFolderOfAnotherUserIsRefused) {
  const bool root = ::geteuid() == 0;
  fs::create_directories(path("code"));
  if (root) {
    ASSERT_EQ(::chown(path("code").c_str(), 65534, 65534), 0);
  }
  RunTimeCompiler same(root ? path("code") : "/usr", plain());
  EXPECT_NE(error_of(same, source_of("11")).find("belongs to another user"), std::string::npos);
  EXPECT_TRUE(names().empty()) << "nothing may be written into it";
}

TEST_F(L16_RunTimeCompiler, AFolderThatHoldsOtherThingsIsRefusedAndStays) {
  write("code/thesis.txt", "years of work");
  RunTimeCompiler same = compiler();
  EXPECT_NE(error_of(same, source_of("11")).find("holds files that are not compiled code"),
            std::string::npos);
  EXPECT_EQ(names(), std::set<std::string>{"thesis.txt"});
  EXPECT_EQ(read("code/thesis.txt"), "years of work");
}

}  // namespace
}  // namespace gradus
