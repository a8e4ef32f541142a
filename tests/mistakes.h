// Usual mistakes of students: a test adds one to a failed assertion if the wrong result shows what was done.
#pragma once
#include <initializer_list>
#include <string>

namespace gradus {

inline constexpr const char* kUsualMistake = "usual mistake: ";

struct Mistake {
  bool made;         // the result is that of this mistake
  const char* what;  // what is wrong and where to look, in one sentence; never the line to write
};

// The first mistake that was made, to stream after an assertion; make test-NN begins its verdict with it. In
// tests/mutants/NN.txt, the mutant that makes the mistake quotes it in `says:`.
inline std::string usual_mistake(std::initializer_list<Mistake> known) {
  for (const Mistake& m : known)
    if (m.made) return std::string("\n") + kUsualMistake + m.what + "\n";
  return "";
}

}  // namespace gradus
