#include "tests/course/predict.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/core/args.h"
#include "src/core/json.h"
#include "src/train/lesson.h"

namespace gradus::predict {

static uint64_t hash(const std::string& text) {  // FNV-1a
  uint64_t h = 14695981039346656037u;
  for (const unsigned char c : text) h = (h ^ c) * 1099511628211u;
  return h;
}
Own::Own(const std::string& student, const std::string& exercise) : rng_(hash(student), hash(exercise)) {}
int64_t Own::between(int64_t least, int64_t most) {
  return least + int64_t(rng_.below(uint64_t(most - least + 1)));
}
int64_t Own::of(std::initializer_list<int64_t> list) { return list.begin()[rng_.below(list.size())]; }

static std::string far_off(double factor) {
  if (factor < 1.01) return "by less than 1 %; the question asks for the exact number";
  if (factor < 1.1) return "by less than 10 %";
  if (factor < 2.5) return "by a factor of up to 2.5";
  if (factor < 25) return "by a factor of up to 25";
  return "by a factor of more than 25";
}

Judge measured(std::function<double()> measure, double share) {
  return [=](double answer) -> Verdict {
    const double number = measure();
    if (std::abs(answer - number) <= (share > 0 ? share * number : 0.5)) return {Verdict::Right, ""};
    if (answer <= 0) return {Verdict::Wrong, "too low"};
    const bool high = answer > number;
    return {Verdict::Wrong,
            (high ? "too high, " : "too low, ") + far_off(high ? answer / number : number / answer)};
  };
}

// ---- the file of answers -------------------------------------------------------------------------------

struct Line {
  int number;
  std::string value;
};
struct Answers {
  std::string student;
  std::map<std::string, std::vector<Line>> lines;  // by "03.5 weights"
  std::vector<std::string> problems;               // lines that are no answers
};

// The parts as one text.
template <class... Parts>
static std::string say(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

static std::string trim(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r"), last = text.find_last_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}
static std::string quoted(std::string text) {
  for (char& c : text)
    if (c < ' ') c = '?';
  return say("'", text.substr(0, 40), text.size() > 40 ? "…'" : "'");
}
static std::string key_of(const Question& q) { return q.exercise + " " + q.name; }

static Answers read(const std::string& path, const std::string& lesson) {
  constexpr uintmax_t kMost = 1 << 16;
  Answers answers;
  std::ifstream file(path);
  check(bool(file), "predict: ", path, " cannot be read");
  check(std::filesystem::file_size(path) <= kMost, "predict: ", path, " is larger than 64 KiB");
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    text = trim(text);
    if (text.empty() || text[0] == '#') continue;
    const size_t equals = text.find('=');
    if (text.starts_with("student:")) {
      answers.student = trim(text.substr(8));
    } else if (equals == std::string::npos) {
      answers.problems.push_back(say("line ", number, ": ", quoted(text), " is not an answer; write ", lesson,
                                     ".k NAME = NUMBER, or begin the line with #"));
    } else {
      std::istringstream words(text.substr(0, equals));  // joined by one blank
      std::string key, word;
      while (words >> word) key += key.empty() ? word : " " + word;
      answers.lines[key].push_back({number, trim(text.substr(equals + 1))});
    }
  }
  return answers;
}

// 1234, 1_234, 21.5, 3e6, 12 MiB: the number, or NaN.
static double number_of(std::string text) {
  double unit = 1;
  for (const auto& [name, bytes] :
       {std::pair{"KiB", 0x1p10}, std::pair{"MiB", 0x1p20}, std::pair{"GiB", 0x1p30}})
    if (text.ends_with(name)) unit = bytes, text = trim(text.substr(0, text.size() - 3));
  std::erase(text, '_');
  double number = NAN;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(number) ? number * unit
                                                                                           : NAN;
}

// Whether a student is told that a wrong answer is too high or too low: only for three different answers to a
// question, because with more tries bisection would find any number. Each such answer is a line of `path`.
// Without a path (in a grader) a student is never told.
static bool may_say_side(const std::string& path, const std::string& student, const Question& q,
                         double answer) {
  constexpr int kTries = 3;
  if (path.empty()) return false;
  const std::string question = say(hash(student), " ", key_of(q), " ");
  const std::string line = question + std::to_string(answer);
  int tries = 0;
  std::ifstream before(path);
  for (std::string text; std::getline(before, text); tries += text.starts_with(question))
    if (text == line) return true;
  if (tries >= kTries) return false;
  std::ofstream file(path, std::ios::app);
  file << line << "\n";
  file.close();
  check(bool(file), "predict: ", path, ", which counts the tries, could not be written");
  return true;
}

static Verdict judge(const Question& q, const std::vector<Line>& lines, const std::string& student,
                     const std::string& tries) {
  if (lines.empty()) return {Verdict::Open, "there is no line '" + key_of(q) + " ='"};
  if (lines.size() > 1)
    return {Verdict::Wrong, say("answered in line ", lines[0].number, " and again in line ", lines[1].number,
                                "; keep only one of them")};
  const Line& line = lines[0];
  if (line.value.empty()) return {Verdict::Open, say("line ", line.number)};
  const double answer = number_of(line.value);
  if (std::isnan(answer))
    return {Verdict::Wrong, say("line ", line.number, ": ", quoted(line.value),
                                " is not a number; write digits, as in 4096, 1_000, 2.5, 12 KiB (MiB, GiB)")};
  Verdict v;
  try {
    v = q.judge(answer);
  } catch (const Error& e) {  // from todo()
    return {Verdict::Open, std::string("cannot be judged yet: ") + e.what()};
  }
  if (v.state != Verdict::Wrong) return v;
  if (!may_say_side(tries, student, q, answer))
    v.message = "the direction is told for the first three tries only";
  v.message += " (make hint-" + q.exercise + " helps)";
  return v;
}

// A comment in lines of at most 100 characters.
static std::string comment(const std::string& text) {
  std::istringstream words(text);
  std::string result = "#", word;
  for (size_t length = 1; words >> word; length += word.size() + 1) {
    if (length + word.size() >= 100) result += "\n#", length = 1;
    result += " " + word;
  }
  return result + "\n";
}

static void write_template(const std::string& path, const std::string& student, const Quiz& quiz) {
  std::ofstream file(path);
  const std::string lesson = quiz.questions.at(0).exercise.substr(0, 2);
  file << comment(
              "Your answers: a number after each =, such as 4096, 1_000, 2.5 or 12 KiB (MiB, GiB). Empty "
              "answers stay open. make predict-" +
              lesson + " judges them, make hint-" + quiz.questions.at(0).exercise + " helps.")
       << "student: " << student << "\n\n"
       << comment(quiz.setting);
  for (const Question& q : quiz.questions) file << "\n" << comment(q.text) << key_of(q) << " =\n";
  file.close();
  check(bool(file), "predict: ", path, " could not be written");
}

// ---- the program ---------------------------------------------------------------------------------------

static const char* word(Verdict::State s) {
  return s == Verdict::Right ? "right" : s == Verdict::Wrong ? "wrong" : "open";
}

// One line per exercise, which `course predict` reads: "03.5: failed: 2 of 4 right, 1 wrong, 1 open".
static void print_exercises(const Quiz& quiz, const std::vector<Verdict>& verdicts) {
  std::map<std::string, std::map<Verdict::State, int>> counts;
  for (size_t i = 0; i < verdicts.size(); ++i) ++counts[quiz.questions[i].exercise][verdicts[i].state];
  for (auto& [exercise, n] : counts) {
    const int right = n[Verdict::Right], wrong = n[Verdict::Wrong], open = n[Verdict::Open];
    std::cout << exercise << ": "
              << (wrong  ? "failed"
                  : open ? "open"
                         : "passed")
              << ": " << right << " of " << right + wrong + open << " right, " << wrong << " wrong, " << open
              << " open\n";
  }
}

static int judge_all(const Quiz& quiz, Answers answers, const std::string& student, const std::string& json,
                     const std::string& tries) {
  std::vector<Verdict> verdicts;
  Json list = Json::array(), problems = Json::array();
  for (const Question& q : quiz.questions) {
    const Verdict v = verdicts.emplace_back(judge(q, answers.lines[key_of(q)], student, tries));
    answers.lines.erase(key_of(q));
    std::cout << key_of(q) << ": " << word(v.state) << (v.message.empty() ? "" : ": ") << v.message << "\n";
    list.push_back(
        Json{{"exercise", q.exercise}, {"name", q.name}, {"state", word(v.state)}, {"message", v.message}});
  }
  for (const auto& [key, lines] : answers.lines)
    answers.problems.push_back(say("line ", lines[0].number, ": there is no question ", quoted(key)));
  for (const std::string& problem : answers.problems) {
    std::cout << problem << "\n";
    problems.push_back(problem);
  }
  print_exercises(quiz, verdicts);
  const Json result{{"student", student}, {"answers", list}, {"problems", problems}};
  if (!json.empty()) {
    std::ofstream file(json);
    file << json_text(result) << "\n";
    file.close();
    check(bool(file), "predict: ", json, " could not be written");
  }
  const bool wrong = std::any_of(verdicts.begin(), verdicts.end(),
                                 [](const Verdict& v) { return v.state == Verdict::Wrong; });
  return wrong || !answers.problems.empty();
}

static int predict(int argc, char** argv, const std::string& lesson,
                   const std::function<Quiz(const std::string&)>& quiz_of) {
  Args args(argc, argv, "predict_" + lesson, "judges predicted numbers by measuring them");
  const std::string path = args.text("answers", "answers.txt", "the file of answers");
  std::string student = args.text("student", "", "whose numbers are used; by default as in the file");
  const std::string json = args.text("json", "", "write the verdicts to this file, for a grader");
  args.done();
  const bool there = std::filesystem::exists(path);
  Answers answers = there ? read(path, lesson) : Answers{};
  if (student.empty()) student = answers.student;
  if (student.empty())
    throw BadArguments("predict: the student's name is missing; write make predict-" + lesson +
                       " STUDENT=name, or a line 'student: name' in the answers file");
  const Quiz quiz = quiz_of(student);
  if (!there && json.empty()) {
    write_template(path, student, quiz);
    std::cout << "wrote " << path << " with the questions of " << student << "; make predict-" << lesson
              << " judges your answers\n";
    return 0;
  }
  if (there && answers.student != student)
    answers.problems.push_back(say("the file belongs to student ", quoted(answers.student),
                                   "; it is judged with the numbers of ", quoted(student)));
  return judge_all(quiz, std::move(answers), student, json, json.empty() ? path + ".tries" : "");
}

int run(int argc, char** argv, const std::string& lesson,
        const std::function<Quiz(const std::string&)>& quiz_of) {
  return run_lesson([&] { return predict(argc, argv, lesson, quiz_of); });
}

}  // namespace gradus::predict
