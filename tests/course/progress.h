// The results of the exercises, in build/progress.tsv: one line per result, with the id, passed|failed|open,
// the hash of the sources that the result depends on, and a message. The last line of an id counts. A line is
// written in one piece, so runs at the same time lose nothing.
#pragma once
#include <string>

namespace gradus::course {

// The hash of the sources that a result depends on: the engine, the lesson's own sources, its tests. With
// `answers` (a prediction) also the answers and the sources of their judges.
std::string hash_of_sources(const std::string& nn, bool answers = false);
void record(const std::string& id, const std::string& state, const std::string& hash, std::string detail);

}  // namespace gradus::course
