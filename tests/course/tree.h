// What a course finds in the tree of gradus that is the current folder: lessons, exercises on their pages,
// their marks in the sources, the tests that record them, hints, mutants.
#pragma once
#include <string>
#include <vector>

#include "tests/course/text.h"

namespace gradus::course {

Lines lessons();                               // the names of their folders, 08_checkpointing
std::string folder_of(const std::string& nn);  // lessons/08_checkpointing; refuses, where there is none
inline std::string page_of(const std::string& nn) { return folder_of(nn) + "/README.md"; }
inline std::string lesson_of(const std::string& id) { return id.substr(0, 2); }

// An exercise on a lesson's page: "- 08.2 *fill in*, 10 points: …". Judged by the lesson's tests, by
// predict_NN or faster_NN, or by none here (a bug's test passes in the given sources; a discussion has none).
struct Exercise {
  std::string id, kind, judge;
  int points = 0;  // 0: none are given
};
std::vector<Exercise> exercises_on(const std::string& page);
std::vector<Exercise> exercises();  // of all pages

// Where exercises stand in the sources. Between BEGIN SOLUTION NN.k and END SOLUTION NN.k there are at most
// 15 lines and one "// STUB:" line; each mark has a line of its own.
struct Place {
  std::string id, file;
  int line = 0;
};
struct Marks {
  std::vector<Place> places;
  Lines faults;  // "FILE:LINE: what is wrong"
};
Marks marks(const Lines& files);
Lines sources();  // kernels, src, lessons

// A file as a student gets it: of an exercise that is open, its stub in place of the solution, below a
// comment that names it and its page; of the others the solution. The marks are gone.
std::string as_student(const std::string& text, const Names& open);

// A test with RecordProperty("exercise", id).
struct Recorded {
  std::string id, program, test;  // 08.2, autograd/recompute_test, L08_Recompute.Gradients
};
std::vector<Recorded> recorded(const Lines& test_files);
std::vector<Recorded> recorded();
std::vector<Recorded> tests_of(const std::string& id, const std::vector<Recorded>& all = recorded());
std::string filter_of(const std::vector<Recorded>& tests);  // GoogleTest's, of all devices

// The three hints of an exercise, fewer where they are not numbered 1. 2. 3. below **NN.k**.
Lines hints_for(const std::string& id, const std::string& text);

// A mistake that compiles, for the tests to notice or a student to find. In tests/mutants/NN.txt they are
// paragraphs:
//   NAME: the kind of mistake: what is wrong
//   survives: why the tests cannot notice it (hardly ever there)
//   says: words by which the exercise's tests name it, for it is a usual mistake (tests/mistakes.h)
//   FILE
//   -a line of FILE that the mutant takes out
//   +a line that it puts there
//    a line that stays (there is a blank before it), where the others would not be found without it
// and, where it makes several changes, FILE and lines again. The lines of the old text stand once in FILE,
// one after the other.
struct Mutant {
  struct Change {
    std::string file, old_text, new_text;
  };
  std::string name;  // NN.k_what changes a line of exercise NN.k; NN_what other code that it reads
  std::string why, survives, says;
  std::vector<Change> changes;
  // The files with the mistake in them; why it does not apply is thrown.
  std::vector<std::pair<std::string, std::string>> changed(const fs::path& tree) const;
};
std::vector<Mutant> mutants(const std::string& nn);

}  // namespace gradus::course
