// How the exercises went, in build/progress.tsv: a line for each result with id, passed|failed|open, the hash
// of the sources that it depends on, what is to be said. The last line of an id counts. A line is added in
// one piece, so two runs at once lose nothing.
#pragma once
#include <string>

namespace gradus::course {

// A result depends on the engine, on the lesson's own sources, on its tests; one of a prediction on the
// answers and on what judges them too.
std::string hash_of_sources(const std::string& nn, bool answers = false);
void record(const std::string& id, const std::string& state, const std::string& hash, std::string detail);

}  // namespace gradus::course
