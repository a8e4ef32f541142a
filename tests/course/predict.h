// What the programs predict_NN share: questions made of a student's own numbers, and the judge of a file of
// answers. An answer is compared with a measurement that runs here, never with a formula.
//   predict_NN --answers=FILE                 judges; if the file is not there, writes it, with the questions
//   predict_NN --answers=FILE --json=RESULT   judges, and writes nothing but RESULT (the grader)
// --student=NAME says whose numbers; by default those of the file's line `student: NAME`.
#pragma once
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "src/core/rng.h"

namespace gradus::predict {

// A student's own numbers for an exercise: drawn from the name, so two students have different ones.
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
  std::string exercise, name;  // "03.3", "weights": the answer is a line `03.3 weights = NUMBER`
  std::string text;            // one line
  Judge judge;                 // may throw: the measurement needs an exercise that is open
};

// Right if the answer, rounded, is the measured number, or differs by at most this share of it. A wrong
// answer is told on which side it lies and how far off, not what would be right; of three different ones of a
// question (FILE.tries counts them), later ones and a grader are told only that it is wrong.
Judge measured(std::function<double()> measure, double share = 0);

// A whole program: its exit code is 0 if no answer is wrong, 1 if one is, 2 if it was called wrongly. The
// questions come with the own numbers of the student, whom this is given.
struct Quiz {
  std::string setting;  // "Your model has …", the numbers that the questions are about
  std::vector<Question> questions;
};
int run(int argc, char** argv, const std::string& lesson, const std::function<Quiz(const std::string&)>&);

}  // namespace gradus::predict
