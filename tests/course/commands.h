// What the program `course` can do; course.cpp says how each is called. What is said goes to std::cout; the
// result is the exit code: 0, 1 (something does not hold), and 2 by a Refusal.
#pragma once
#include <string>

#include "tests/course/text.h"

namespace gradus::course {

// ---- for students -------------------------------------------------------------------------------------
// Judges the exercises of lesson NN, or one, NN.k (make test-08, make test-08.2). Each is judged by its own
// tests, in a program and a process of their own: what is open in a loop of several threads, or crashes, ends
// no other's. What each is, passed, failed (with what) or open, is said and kept for `make progress`. With NN
// the other tests of the lesson follow. What is open is no failure.
int test(const std::string& what);
// The next of the three hints for an exercise; after the third, all of them. build/hints has a line for each
// shown.
int hint(const std::string& id);
// What of all exercises is solved, on one screen, from build/progress.tsv.
int progress();
// Runs a program predict_NN on the lesson's answers.txt, or faster_NN, and keeps how each exercise went.
int predict(const std::string& nn, const std::string& program, std::string student);
int faster(const std::string& command);
// Puts a mutant of lesson NN into the tree, for a student to find; with `undo` takes it out. A `seed` always
// chooses the same.
int bug(const std::string& nn, bool undo, const std::string& seed);

// ---- for teachers -------------------------------------------------------------------------------------
// Writes the tree that is handed out for one lesson ("08", or "all") to the folder `out`, empty or not there.
// It is made of the files that git tracks, as they are in the working tree:
//   lessons before NN    solved
//   lesson NN            every exercise open: its stub in place of its solution
//   lessons after NN     not there, nor their tests, nor their rows in the lists of lessons
// With "all", every exercise of every lesson is open. The tree is one git commit without a history: two runs
// on the same files give the same commit. A line of an open solution that stands somewhere in the tree is a
// leak, and the tree is not handed out.
int student(const std::string& lesson, const std::string& out);
// The same, with these exercises open. Returns what is to be said.
std::string hand_out(const std::string& lesson, const std::string& out, const Names& open);

// Proves for each exercise of these lessons (none: all) that a student can be given it; each fault is a line.
//   on paper   the marks are right; the id is on the lesson's page; it has three hints, a test that records
//              it, and a mutant that the test names (`says:`); what is to be predicted or made faster is
//              judged by predict_NN or faster_NN; every mutant's old text stands once in its file
//   built      in the tree that is handed out, where later lessons are not there: with the exercise and
//              those after it open, its test fails and names it, and the tests of those before it pass;
//              with it solved too, its test passes; with all solved, `make test-NN` passes; with a bug that
//              is to be found put in, the tree builds and the bug's test fails
//   mutants    of the lines of its exercises (tests/mutants/NN.txt) are all killed by the lesson's tests,
//              and named where they say so
// `parts` names those after the first. A lesson without a fault is kept as checked, in
// tests/course/checked.txt.
int check(const Lines& lessons, const Names& parts);
// The lessons that are not as `check` last found them good, a line each.
int changed();
// Do the tests of a lesson notice when its code is wrong? Of these lessons (none: all), or of those that are
// named, each mutant is put into a tree of its own, build/mutants/tree, and the tests of its lesson (L02_…)
// run until one fails, crashes or takes far too long: killed. Those of its exercise come first, then the
// quick programs. 1 if of a lesson fewer than 95 % are killed, one cannot be judged, or the tests fail
// without any.
int judge_mutants(const Lines& what);
// The exercises in the sources, "exercise NN.k FILE:LINE", and what is wrong with their marks.
int show_marks();

// Points for what a student handed in for one lesson, in the file `out` and, beside it, results.json
// (Gradescope), junit.xml and autolab.txt; grade.cpp says how.
int grade(const std::string& lesson, const std::string& submission, std::string out,
          const std::string& student);

// `course COMMAND WORD…`, as make calls it, from the root of the tree; the exit code.
int main_of(const Lines& words);

}  // namespace gradus::course
