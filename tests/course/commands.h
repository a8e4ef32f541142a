// The commands of the program `course`; course.cpp says how each is called. They print to std::cout and
// return the exit code: 0, or 1 if a check failed. A Refusal gives the exit code 2.
#pragma once
#include <string>

#include "tests/course/text.h"

namespace gradus::course {

// ---- for students -------------------------------------------------------------------------------------
// Judges the exercises of lesson NN, or the exercise NN.k (make test-08, make test-08.5). The tests of each
// exercise run as a separate program, so a crash, or an open exercise within a parallel loop, does not end
// the tests of the others. Prints for each whether it passed, failed (and how) or is open, and keeps the
// result for `make progress`. With NN the other tests of the lesson follow. An open exercise is not a
// failure.
int test(const std::string& what);
// Prints the next of the three hints for an exercise; after the third, all of them. build/hints has one line
// per shown hint.
int hint(const std::string& id);
// Prints the states of all exercises on one screen, from build/progress.tsv.
int progress();
// Runs the program predict_NN on the lesson's answers.txt, or faster_NN, and keeps the result per exercise.
int predict(const std::string& nn, const std::string& program, std::string student);
int faster(const std::string& command);
// Puts a mutant of lesson NN into the tree, for a student to find; with `undo` takes it out. The same `seed`
// always chooses the same mutant.
int bug(const std::string& nn, bool undo, const std::string& seed);

// ---- for teachers -------------------------------------------------------------------------------------
// Writes the tree that is handed out for one lesson ("08", or "all") to the folder `out`, which is empty or
// does not exist. The tree has the files that git tracks, in their state in the working tree:
//   lessons before NN    solved
//   lesson NN            every exercise open: its stub in place of its solution
//   lessons after NN     left out, with their tests and their rows in the lists of lessons
//   tests/course/teacher left out, with the lines that link to it
// With "all", every exercise of every lesson is open. The tree is one git commit without a history: two runs
// on the same files give the same commit. A line of an open solution anywhere in the tree is a leak; the tree
// is then not handed out. With `github`, the tree also has the workflow of add_workflow.
int student(const std::string& lesson, const std::string& out, bool github);
// The same, with these exercises open. Returns a summary to print.
std::string hand_out(const std::string& lesson, const std::string& out, const Names& open,
                     bool github = false);
// Writes a workflow for GitHub Actions into the tree, which runs the tests of these exercises after each
// push.
void add_workflow(const fs::path& tree, const Names& open);

// Checks that each exercise of these lessons (none: all) can be handed out; prints one line per fault.
//   on paper   the marks are correct; the id is on the lesson's page; the exercise has three hints, a test
//              that records it, and a mutant that the test names (`says:`); predict_NN or faster_NN judges
//              exercises to predict or to make faster; each mutant's old text is in its file exactly once
//   built      in the tree that is handed out, without later lessons: with the exercise and those after it
//              open, its test fails and names it, and the tests of those before it pass; once it is solved,
//              its test passes; with all solved, `make test-NN` passes; with the patch of a bug that students
//              find, the tree builds and the bug's test fails
//   mutants    the lesson's tests kill all mutants of its exercises (tests/mutants/NN.txt), and print the
//              text of `says:`
// `parts` chooses among the last two. A lesson without a fault is recorded in tests/course/checked.txt.
int check(const Lines& lessons, const Names& parts);
// Prints the lessons that changed since `check` last found no fault in them, one per line.
int changed();
// Do the tests of a lesson fail when its code is wrong? Puts each mutant of these lessons (none given: all),
// or each mutant that is named, into the separate tree build/mutants/tree, and runs the tests of its lesson
// (L02_…) until one fails, crashes or takes far too long: then the mutant is killed. The tests of its
// exercise run first, then those that killed earlier mutants. Returns 1 if fewer than 95 % of a lesson's
// mutants are killed or one cannot be judged; refuses if the tests fail without a mutant.
int judge_mutants(const Lines& what);
// Prints the exercises in the sources, "exercise NN.k FILE:LINE", and the faults of their marks.
int show_marks();

// Grades a student's submission for one lesson; grade.cpp says how. Writes the points to the file `out` and,
// in the same folder, to results.json (Gradescope), junit.xml and autolab.txt.
int grade(const std::string& lesson, const std::string& submission, std::string out,
          const std::string& student);

// Runs `course COMMAND WORD…`, as make calls it, from the root of the tree; returns the exit code.
int main_of(const Lines& words);

}  // namespace gradus::course
