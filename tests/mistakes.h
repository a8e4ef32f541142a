// A student's usual mistake, by name: what a test adds to a failed assertion when it knows what was done.
#pragma once
#include <initializer_list>
#include <string>

namespace gradus {

inline constexpr const char* kUsualMistake = "usual mistake: ";

struct Mistake {
  bool made;         // what was got is what this mistake gives
  const char* what;  // what is wrong and where to look, in one sentence; never the line to write
};

// The first that was made, to be streamed after an assertion: make test-NN begins its verdict with it. In
// tests/mutants/NN.txt a mutant that makes the mistake says so, in `says:`.
inline std::string usual_mistake(std::initializer_list<Mistake> known) {
  for (const Mistake& m : known)
    if (m.made) return std::string("\n") + kUsualMistake + m.what + "\n";
  return "";
}

}  // namespace gradus
