// Reads the tree of gradus in the current folder: lessons, the exercises on their pages, the marks in the
// sources, the tests that record exercises, hints, mutants.
#pragma once
#include <string>
#include <vector>

#include "tests/course/text.h"

namespace gradus::course {

Lines lessons();                               // the names of their folders, 08_checkpointing
std::string folder_of(const std::string& nn);  // lessons/08_checkpointing; refuses if there is none
inline std::string page_of(const std::string& nn) { return folder_of(nn) + "/README.md"; }
inline std::string lesson_of(const std::string& id) { return id.substr(0, 2); }

// An exercise on a lesson's page: "- 08.2 *fill in*, 10 points: …". `judge` is tests (the lesson's), predict
// (predict_NN), faster (faster_NN) or none (a bug's test passes in the given sources; a discussion has none).
struct Exercise {
  struct Part {
    std::string test;  // L08_Policies.SegmentsOfKBlocks; L08_Policies.S*: all tests that begin like this
    int points;
    bool has(const std::string& name) const;
  };
  std::string id, kind, judge;
  int points = 0;  // 0: without points
  std::vector<Part>
      parts;  // "`L08_Policies.SegmentsOfKBlocks` (6 points)", on one line: what one test is worth
};
std::vector<Exercise> exercises_on(const std::string& page);
std::vector<Exercise> exercises();  // of all pages

// The place of an exercise in the sources. Between BEGIN SOLUTION NN.k and END SOLUTION NN.k there are at
// most 15 lines and one "// STUB:" line; each mark has a line of its own.
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

// A file as a student gets it, without marks. An open exercise has its stub in place of the solution, below a
// comment that names the exercise and its page; the other exercises keep their solutions.
std::string as_student(const std::string& text, const Names& open);

// A test with RecordProperty("exercise", id).
struct Recorded {
  std::string id, program, test;  // 08.2, autograd/recompute_test, L08_Recompute.Gradients
};
std::vector<Recorded> recorded(const Lines& test_files);
std::vector<Recorded> recorded();
std::vector<Recorded> tests_of(const std::string& id, const std::vector<Recorded>& all = recorded());
std::string filter_of(const std::vector<Recorded>& tests);  // the GoogleTest filter for them, on all devices

// The three hints of an exercise; fewer if they are not numbered 1. 2. 3. below **NN.k**.
Lines hints_for(const std::string& id, const std::string& text);

// A mistake that compiles, for the tests to detect or a student to find. In tests/mutants/NN.txt each is a
// paragraph:
//   NAME: the kind of mistake: what is wrong
//   survives: why the tests cannot detect it (rare)
//   says: words that the exercise's tests print for it, because it is a usual mistake (tests/mistakes.h)
//   FILE
//   -a line of FILE that the mutant removes
//   +a line that it adds
//    a line that stays (after a blank), needed if the removed lines alone are not unique
// and, for further changes, FILE and lines again. The old text of a change, its lines without +, is in FILE
// exactly once.
struct Mutant {
  struct Change {
    std::string file, old_text, new_text;
  };
  std::string name;  // NN.k_what changes a line of exercise NN.k; NN_what other code of the lesson
  std::string why, survives, says;
  std::vector<Change> changes;
  // The files with the mistake in them. Throws a Refusal that says why it does not apply.
  std::vector<std::pair<std::string, std::string>> changed(const fs::path& tree) const;
};
std::vector<Mutant> mutants(const std::string& nn);

}  // namespace gradus::course
