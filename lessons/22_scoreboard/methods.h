// The methods of the scoreboard, the tables of their measurements, and the figure.
#pragma once
#include <string>
#include <vector>

#include "lessons/22_scoreboard/scoreboard.h"
#include "src/train/report.h"

namespace gradus {

// The answer of a published table: Hugging Face, "Efficient training on a single GPU". None: the table does
// not have the method.
enum class Claim : uint8_t { None, No, Yes, Maybe };

struct Method {
  std::string name, flags;  // flags of the trainer
  Claim faster, less_memory;
  bool saves;             // whether this course expects a lower peak than that of `base`
  std::string base = {};  // flags of the run that the method is compared with; "": the plain run
  std::string why = {};   // the reason, if the measurement contradicts a claim
};
// batch: sequences per step of the plain run, a multiple of 4.
std::vector<Method> published_methods(int64_t batch);  // ten methods of that table, two of them in two sizes
std::vector<Method> course_methods(int64_t batch);     // more methods of the course, and combinations

std::string published_gain(const Method& m);  // such as "speed, maybe memory"
// "agrees", or the claims that the measurement contradicts, and the reason.
std::string verdict(const Method& method, const Measured& measured);

// Measures the methods and prints their table, `plain` first. The checks compare only memory: times vary.
std::vector<Measured> run_methods(const std::string& heading, const std::vector<Method>& methods,
                                  const Scoreboard& board, Report& report, const Measured* plain = nullptr);

// Table (c): all published figures of BERT-large and polyglot-ko-1.3b, next to those of the reproduced
// program (lessons/published) and of gradus, with the largest differences between the two.
void scoreboard_published(Report& report);
void check_reproduced(double worst, Report& report);  // worst: the largest difference in MiB

struct TimeAndMemory {
  double time, memory;
};
// The indices of the runs that no other run beats, sorted by time; of equal runs only the first. A run beats
// another if it needs less of one quantity and no more of the other.
std::vector<size_t> front_of(const std::vector<TimeAndMemory>& runs);

// Draws a dot for each method that computes the same step as the plain run on one device, and the front.
void draw_methods(const std::vector<Method>& methods, const std::vector<Measured>& measured,
                  const std::string& path);
void front_by_hand(std::ostream& out);  // the page's example

}  // namespace gradus
