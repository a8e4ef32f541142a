// What the programs predict_NN share: questions with a student's own numbers, and the judge of a file of
// answers. An answer is compared with a measurement that the program makes, never with a formula.
//   predict_NN --answers=FILE                 judges; if there is no file, writes it, with the questions
//   predict_NN --answers=FILE --json=RESULT   judges, and writes only RESULT (the grader)
// --student=NAME: the student whose numbers are used; by default the name in the file's line `student: NAME`.
#pragma once
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "src/core/rng.h"

namespace gradus::predict {

// A student's own numbers for an exercise. The name is the seed, so different students have different
// numbers.
class Own {
 public:
  Own(const std::string& student, const std::string& exercise);
  int64_t between(int64_t least, int64_t most);  // both included
  int64_t of(std::initializer_list<int64_t>);    // one of them

 private:
  Rng rng_;
};

struct Verdict {
  enum State { Right, Wrong, Open } state;
  std::string message;
};
using Judge = std::function<Verdict(double answer)>;

struct Question {
  std::string exercise, name;  // "03.5", "weights": the answer is a line `03.5 weights = NUMBER`
  std::string text;            // one line
  Judge judge;                 // throws if the measurement needs an exercise that is open
};

// An answer is right if it differs from the measured number by at most 0.5 or, with a `share`, by at most
// this share of the number. For three different wrong answers to a question (FILE.tries counts them), the
// verdict says whether they are too high or too low, and by about how much, but not the right number. For
// further answers, and in a grader, it only says that they are wrong.
Judge measured(std::function<double()> measure, double share = 0);

// The whole program. Its exit code is 0 if no answer is wrong, 1 if one is, 2 if it was called wrongly. The
// function returns the questions for a student, with the student's own numbers.
struct Quiz {
  std::string setting;  // "Your model has …", the numbers that the questions are about
  std::vector<Question> questions;
};
int run(int argc, char** argv, const std::string& lesson, const std::function<Quiz(const std::string&)>&);

}  // namespace gradus::predict
