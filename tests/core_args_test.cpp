// Command-line flags: values, bounds, the generated help, and a clear sentence for every mistake.
#include "src/core/args.h"

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

// The sentence that a use of the flags ends with, or "" if it is accepted.
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

TEST(L01_CoreArgs, ByteSizes) {
  const auto bytes = [](const std::string& text) {
    return made_from({"--memory=" + text}).bytes("memory", 0, "");
  };
  EXPECT_EQ(bytes("4096"), 4096);
  EXPECT_EQ(bytes("0"), 0);
  EXPECT_EQ(bytes("7B"), 7);
  EXPECT_EQ(bytes("3KiB"), 3072);
  EXPECT_EQ(bytes("64MiB"), int64_t(64) << 20);
  EXPECT_EQ(bytes("1.5GiB"), int64_t(3) << 29);
  EXPECT_EQ(bytes("2TiB"), int64_t(2) << 40);
  for (const char* bad : {"", "x", "-1", "64MB", "64 MiB", "MiB", ".", "1.2.3", "1e3", "0x10", "+1", "nan"})
    EXPECT_THROW(bytes(bad), BadArguments) << bad;
  EXPECT_THROW(bytes("9999999999TiB"), BadArguments);
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
                        Case{"--steps=ten", "--steps=ten is not a whole number"},
                        Case{"--steps=1.5", "--steps=1.5 is not a whole number"},
                        Case{"--steps=3x", "--steps=3x is not a whole number"},
                        Case{"--steps=99999999999999999999", "has too many digits for a whole number"},
                        Case{"--steps=0", "--steps=0 is out of range; it can be 1 to 1000"},
                        Case{"--steps=1001", "--steps=1001 is out of range"},
                        Case{"--steps=-3", "out of range"},
                        Case{"--rate=fast", "--rate=fast is not a number"},
                        Case{"--rate=1.1", "--rate=1.1 is out of range"},
                        Case{"--rate=nan", "out of range"},
                        Case{"--rate=inf", "out of range"},
                        Case{"--rate=1e999", "has too many digits for a number"},
                        Case{"--memory=64MB", "--memory=64MB is not a size; write 4096, 64MiB or 1.5GiB"},
                        Case{"--device=gpu", "--device=gpu is unknown; it can be: cpu, meta"},
                        Case{"--quick=yes", "--quick takes no value"}}) {
    const std::string text = refusal({c.word}, declare_all);
    EXPECT_NE(text.find(c.says), std::string::npos) << "for " << c.word << ": \"" << text << "\"";
  }
  EXPECT_EQ(refusal({"--steps=3", "--steps=3"}, declare_all), "--steps is given twice");
  EXPECT_EQ(refusal({"--steps=3", "--quick"}, declare_all), "");
  EXPECT_NE(refusal({"--x"}, [](Args&) {}).find("did you mean --help?"), std::string::npos);
}

using L01_CoreArgsDeathTest = testing::Test;
TEST(L01_CoreArgsDeathTest, HelpListsAllAndExitsWith0EvenBesideMistakes) {
  const auto help = [] {
    Args args = made_from({"--steps=ten", "--help", "--nonsense"});
    dup2(STDERR_FILENO, STDOUT_FILENO);  // EXPECT_EXIT reads stderr
    declare_all(args);
    args.done();
  };
  EXPECT_EXIT(help(), testing::ExitedWithCode(0),
              "05_test: what it shows\n\n"
              "  --steps=10              training steps\n"
              "  --rate=0.5              learning rate\n"
              "  --memory=64MiB          budget\n"
              "  --data=...              a file\n"
              "  --device=cpu            where \\(cpu, meta\\)\n"
              "  --quick                 skip the slow part\n"
              "  --help                  this text\n");
}

}  // namespace
}  // namespace gradus
