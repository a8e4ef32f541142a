// Command-line flags: values, bounds, the generated help, and a clear sentence for every mistake.
#include "src/core/args.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

namespace gradus {
namespace {

Args made_from(std::vector<std::string> words) {
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return Args(int(argv.size()), argv.data(), "05_test", "what it shows");
}

// The error message of BadArguments, or "" if the flags are accepted.
std::string refusal(const std::vector<std::string>& words, const std::function<void(Args&)>& declare) {
  try {
    Args args = made_from(words);
    declare(args);
    args.done();
  } catch (const BadArguments& e) {
    return e.what();
  }
  return "";
}
void declare_all(Args& args) {
  args.integer("steps", 10, "training steps", 1, 1000);
  args.number("rate", 0.5, "learning rate", 0, 1);
  args.bytes("memory", 64 << 20, "budget");
  args.text("data", "", "a file");
  args.choice("device", "cpu", "where", {"cpu", "meta"});
  args.flag("quick", "skip the slow part");
}

TEST(L01_CoreArgs, DefaultsAndGivenValues) {
  Args none = made_from({});
  EXPECT_EQ(none.integer("steps", 10, "", 1, 1000), 10);
  EXPECT_EQ(none.number("rate", 0.5, "", 0, 1), 0.5);
  EXPECT_EQ(none.text("data", "x", ""), "x");
  EXPECT_EQ(none.bytes("memory", 0, ""), 0);
  EXPECT_EQ(none.choice("print", "", "", {"tape"}), "");
  EXPECT_FALSE(none.flag("quick", ""));
  none.done();

  Args args = made_from({"--rate=1e-3", "--steps=1000", "--quick", "--data=a=b c", "--device=meta"});
  EXPECT_EQ(args.integer("steps", 10, "", 1, 1000), 1000);
  EXPECT_EQ(args.number("rate", 0.5, "", 0, 1), 1e-3);
  EXPECT_EQ(args.text("data", "x", ""), "a=b c");
  EXPECT_EQ(args.choice("device", "cpu", "", {"cpu", "meta"}), "meta");
  EXPECT_TRUE(args.flag("quick", ""));
  args.done();
}

TEST(L01_CoreArgs, MistakesAreSentences) {
  struct Case {
    const char *word, *says;
  };
  for (const Case& c : {Case{"--stepz=3", "--stepz is unknown; did you mean --steps?"},
                        Case{"--quik", "--quik is unknown; did you mean --quick?"},
                        Case{"--hepl", "--hepl is unknown; did you mean --help?"},
                        Case{"--help=3", "--help takes no value"},
                        Case{"steps=3", "argument 'steps=3' is not a flag; flags are --name=value"},
                        Case{"-s", "argument '-s' is not a flag"},
                        Case{"--", "argument '--' is not a flag"},
                        Case{"", "argument '' is not a flag"},
                        Case{"--steps", "--steps needs a value: --steps=10"},
                        Case{"--steps=", "--steps needs a value: --steps=10"},
                        Case{"--data", "--data needs a value: --data=..."},
                        Case{"--data=", "--data needs a value: --data=..."},
                        Case{"--rate", "--rate needs a value: --rate=0.5"},
                        Case{"--memory=", "--memory needs a value: --memory=64MiB"},
                        Case{"--device=", "--device needs a value: --device=cpu"},
                        Case{"--steps=0", "--steps=0 is out of range; it can be 1 to 1000"},
                        Case{"--steps=1001", "--steps=1001 is out of range"},
                        Case{"--steps=-3", "out of range"},
                        Case{"--rate=1.1", "--rate=1.1 is out of range"},
                        Case{"--rate=nan", "out of range"},
                        Case{"--rate=inf", "out of range"},
                        Case{"--rate=1e999", "has too many digits for a number"},
                        Case{"--quick=yes", "--quick takes no value"}}) {
    const std::string text = refusal({c.word}, declare_all);
    EXPECT_NE(text.find(c.says), std::string::npos) << "for " << c.word << ": \"" << text << "\"";
  }
  EXPECT_NE(refusal({"--x"}, [](Args&) {}).find("did you mean --help?"), std::string::npos);
}

// A number is read to its last letter, or rejected with the flag and the text that was typed.
TEST(L01_CoreArgs, NumbersEndWhereTheTextEnds) {
  for (const char* bad :
       {"ten", "3x", "3 ", " 3", "3.", "3.0", "3e2", "0x10", "+3", "1_000", "1,000", "3-", "--3"})
    EXPECT_EQ(refusal({"--steps=" + std::string(bad)}, declare_all),
              "--steps=" + std::string(bad) + " is not a whole number");
  for (const char* bad :
       {"fast", "0.5x", "0.5 ", " 0.5", "0,5", "0.5.5", "1e", "1e+", "0x1", "+0.5", "0.5f", "-"})
    EXPECT_EQ(refusal({"--rate=" + std::string(bad)}, declare_all),
              "--rate=" + std::string(bad) + " is not a number");
  for (const char* bad : {"1KiBx", "1KiB ", " 1KiB", "1K", "1Ki", "1kib", "1KIB", "1KB", "1BB", "1KiB1", "B",
                          "x", "-1", "64MB", "64 MiB", "1e3", "0x10", "+1", "nan"})
    EXPECT_EQ(refusal({"--memory=" + std::string(bad)}, declare_all),
              "--memory=" + std::string(bad) + " is not a size; write 4096, 64MiB or 1.5GiB");
}

TEST(L01_CoreArgs, BoundsAreIncluded) {
  const auto whole = [](const std::string& text, int64_t least, int64_t most) -> std::string {
    return refusal({"--n=" + text}, [&](Args& args) {
      EXPECT_EQ(std::to_string(args.integer("n", least, "", least, most)), text);
    });
  };
  for (const char* text : {"-3", "0", "5"}) EXPECT_EQ(whole(text, -3, 5), "");
  EXPECT_EQ(whole("6", -3, 5), "--n=6 is out of range; it can be -3 to 5");
  EXPECT_EQ(whole("-4", -3, 5), "--n=-4 is out of range; it can be -3 to 5");
  for (const char* text : {"9223372036854775807", "-9223372036854775808"})
    EXPECT_EQ(whole(text, INT64_MIN, INT64_MAX), "");
  for (const char* text : {"9223372036854775808", "-9223372036854775809"})
    EXPECT_EQ(whole(text, INT64_MIN, INT64_MAX),
              "--n=" + std::string(text) + " has too many digits for a whole number");
  const auto number = [](const std::string& text) {
    return refusal({"--x=" + text}, [](Args& args) { args.number("x", 1, "", -0.5, 2); });
  };
  for (const char* text : {"-0.5", "2", "2.0", "-5e-1", "0"}) EXPECT_EQ(number(text), "") << text;
  EXPECT_EQ(number("2.5"), "--x=2.5 is out of range; it can be -0.5 to 2");
  for (const char* text : {"2.0000001", "-0.5000001"}) EXPECT_NE(number(text), "") << text;
}

TEST(L01_CoreArgs, SizesAreExact) {
  const auto bytes = [](const std::string& text) {
    return made_from({"--memory=" + text}).bytes("memory", 7, "");
  };
  for (const auto& [text, expected] :
       std::vector<std::pair<std::string, int64_t>>{{"1", 1},
                                                    {"1B", 1},
                                                    {"1023", 1023},
                                                    {"0.5KiB", 512},
                                                    {"1KiB", 1024},
                                                    {"16MiB", 16777216},
                                                    {"1.5MiB", 1572864},
                                                    {"1GiB", 1073741824},
                                                    {"0.25GiB", 268435456},
                                                    {"1TiB", 1099511627776},
                                                    {"1048576TiB", int64_t(1) << 60},
                                                    {"0KiB", 0},
                                                    {"0", 0},
                                                    {"0.001KiB", 1}})
    EXPECT_EQ(bytes(text), expected) << text;
  EXPECT_EQ(refusal({"--memory=1048577TiB"}, declare_all),
            "--memory=1048577TiB is more than any machine has");
  for (const char* bad : {".", "1.2.3", "0.5", "0.0001KiB"})  // the last two would become 0, no budget at all
    EXPECT_NE(refusal({"--memory=" + std::string(bad)}, declare_all), "") << bad;
  EXPECT_EQ(made_from({}).bytes("memory", 7, ""), 7);
}

TEST(L01_CoreArgs, AFlagIsGivenOnce) {
  const std::string twice = "--rate is given twice";
  EXPECT_EQ(refusal({"--rate=1", "--quick", "--rate=0"}, declare_all), twice);
  EXPECT_EQ(refusal({"--quick", "--rate=1", "--steps=3", "--rate=1"}, declare_all), twice);
  EXPECT_EQ(refusal({"--rate", "--rate=1"}, declare_all), twice);
  EXPECT_EQ(refusal({"--quick", "--quick"}, declare_all), "--quick is given twice");
  EXPECT_EQ(refusal({"--ratex=1", "--ratex=1"}, declare_all), "--ratex is given twice");
  EXPECT_EQ(
      refusal({"--steps=1", "--rate=1", "--memory=1", "--data=1", "--device=meta", "--quick"}, declare_all),
      "");
}

TEST(L01_CoreArgs, ChoicesAreWholeWordsAndTheUnknownFlagIsNamed) {
  for (const char* bad : {"cp", "cpus", "CPU", "cpu,", "cpu, meta", "met", "a"})
    EXPECT_EQ(refusal({"--device=" + std::string(bad)}, declare_all),
              "--device=" + std::string(bad) + " is unknown; it can be: cpu, meta");
  for (const char* good : {"cpu", "meta"})
    EXPECT_EQ(refusal({"--device=" + std::string(good)}, declare_all), "");
  EXPECT_EQ(refusal({"--steps=3", "--quick", "--step=3"}, declare_all)
                .find("--step is unknown; did you mean --steps?"),
            0u);
  EXPECT_EQ(refusal({"--quick="}, declare_all), "--quick takes no value");
  Args args = made_from({"--data==x", "--other=a=b"});
  EXPECT_EQ(args.text("data", "", ""), "=x");
  EXPECT_EQ(args.text("other", "", ""), "a=b");
}

TEST(L01_CoreArgs, WithHelpAllValuesAreTheDefaults) {
  Args args =
      made_from({"--steps=7", "--rate=x", "--memory=1KiB", "--help", "--data=y", "--device=meta", "--quick"});
  EXPECT_EQ(args.integer("steps", 10, "", 1, 1000), 10);
  EXPECT_EQ(args.number("rate", 0.5, "", 0, 1), 0.5);
  EXPECT_EQ(args.bytes("memory", 4096, ""), 4096);
  EXPECT_EQ(args.text("data", "x", ""), "x");
  EXPECT_EQ(args.choice("device", "cpu", "", {"cpu", "meta"}), "cpu");
  EXPECT_FALSE(args.flag("quick", ""));
  EXPECT_EQ(made_from({"--steps=7", "-h"}).integer("steps", 10, "", 1, 1000), 10) << "-h is --help";
}

using L01_CoreArgsDeathTest = testing::Test;
// EXPECT_EXIT reads stderr, so stdout is redirected to stderr and the output to stderr is discarded.
void show_the_output_alone() {
  dup2(STDERR_FILENO, STDOUT_FILENO);
  dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
}
TEST(L01_CoreArgsDeathTest, HelpListsAllAndExitsWith0EvenBesideMistakes) {
  const auto help = [] {
    Args args = made_from({"--steps=ten", "--help", "--nonsense"});
    show_the_output_alone();
    declare_all(args);
    args.done();
  };
  EXPECT_EXIT(help(), testing::ExitedWithCode(0),
              "05_test: what it shows\n\n"
              "  --steps=10              training steps\n"
              "  --rate=0\\.5              learning rate\n"
              "  --memory=64MiB          budget\n"
              "  --data=\\.\\.\\.              a file\n"
              "  --device=cpu            where \\(cpu, meta\\)\n"
              "  --quick                 skip the slow part\n"
              "  --help                  show this help\n");
}

TEST(L01_CoreArgsDeathTest, HelpShowsDefaultsAsTheyWouldBeTyped) {
  const auto help = [] {
    Args args = made_from({"--help"});
    show_the_output_alone();
    args.bytes("a", 0, "none");
    args.bytes("b", 1025, "bytes");
    args.bytes("c", int64_t(3) << 29, "no fraction");
    args.bytes("d", int64_t(2) << 40, "the largest unit");
    args.number("e", 1e-3, "a rate", 0, 1);
    args.integer("a-name-of-some-length", -12345, "one space at least", -99999, 0);
    args.flag("as-wide-as-the-column", "24 letters");
    args.flag("one-letter-less-than-it", "a");
    args.flag("so-wide-as-the-column-is", "b");
    args.choice("print", "", "what", {"tape"});
    args.done();
  };
  EXPECT_EXIT(help(), testing::ExitedWithCode(0),
              "  --a=0                   none\n"
              "  --b=1025                bytes\n"
              "  --c=1536MiB             no fraction\n"
              "  --d=2TiB                the largest unit\n"
              "  --e=0\\.001               a rate\n"
              "  --a-name-of-some-length=-12345 one space at least\n"
              "  --as-wide-as-the-column 24 letters\n"
              "  --one-letter-less-than-it a\n"
              "  --so-wide-as-the-column-is b\n"
              "  --print=\\.\\.\\.             what \\(tape\\)\n"
              "  --help                  show this help\n");
}

}  // namespace
}  // namespace gradus
