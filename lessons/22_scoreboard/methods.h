// The methods of the scoreboard, the table of what was measured, and the picture.
#pragma once
#include <string>
#include <vector>

#include "lessons/22_scoreboard/scoreboard.h"
#include "src/train/report.h"

namespace gradus {

// What a published table says: Hugging Face, "Efficient training on a single GPU". None: it is not in it.
enum class Claim : uint8_t { None, No, Yes, Maybe };
const char* text_of(Claim claim);

struct Method {
  std::string name, flags;  // of the trainer
  Claim faster, less_memory;
  bool saves;             // whether it takes less memory than `base`, as this course explains
  std::string base = {};  // flags of the run that it is compared with; "": the plain run
  std::string why = {};   // if a measurement disagrees with the claim
};
// batch: sequences of the plain run, a multiple of 4.
std::vector<Method> published_methods(int64_t batch);  // the ten of that table, two of them with two sizes
std::vector<Method> course_methods(int64_t batch);     // what the course adds, and combinations

// "agrees", or what differs, and why.
std::string verdict(const Method& method, const Measured& measured);

// Measures and prints them. Less memory decides the exit code; faster is only said.
std::vector<Measured> run_methods(const std::string& heading, const std::vector<Method>& methods,
                                  const Scoreboard& board, Report& report);

struct TimeAndMemory {
  double time, memory;
};
// Of some runs those that no other one beats: that needs less of one and no more of the other. By time; of
// equal runs the first.
std::vector<size_t> front_of(const std::vector<TimeAndMemory>& runs);

// Each method that computes the plain run's step on one device, as a point; and the front.
void draw_methods(const std::vector<Method>& methods, const std::vector<Measured>& measured,
                  const std::string& path);
void front_by_hand(std::ostream& out);  // the page's small example

}  // namespace gradus
