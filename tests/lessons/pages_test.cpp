// The small example on each lesson's page is what the lesson prints with --print=example.
#include "src/data/corpus.h"
#include "tests/program_testing.h"

namespace gradus {
namespace {

TEST(L01_Pages, HaveTheExamplesThatTheLessonsPrint) {
  const std::string begin = "<!-- example -->\n```\n", end = "```\n<!-- end of example -->";
  ASSERT_FALSE(lessons().empty());
  for (const std::string& lesson : lessons()) {
    if (!std::filesystem::exists(lesson + "/README.md"))
      continue;  // an earlier build's program, in a tree without it
    const Outcome outcome = run(lesson, "--print=example");
    if (outcome.output.find("is open") != std::string::npos) continue;  // an exercise in a student's tree
    EXPECT_EQ(outcome.code, 0) << lesson;
    const std::string page = read_text_file(lesson + "/README.md");
    const size_t from = page.find(begin), to = page.find(end);
    ASSERT_LT(from, to) << lesson << "/README.md has no example, or no end of it";
    ASSERT_NE(to, std::string::npos) << lesson;
    EXPECT_EQ(page.substr(from + begin.size(), to - from - begin.size()), outcome.output)
        << lesson << "/README.md: the example is not what the program prints; run make readme";
  }
}

}  // namespace
}  // namespace gradus
