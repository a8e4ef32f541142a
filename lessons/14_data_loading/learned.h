// The byte pairs learned from a text, and their speed of encoding.
#pragma once
#include "lessons/14_data_loading/reading.h"

namespace gradus {

// `tokens`: the size of the vocabulary, including the 256 bytes, or the folder of a tokenizer's files. The
// byte pairs are learned from the training text; the vocabulary stays smaller if all pairs have become
// rare.
BytePairs byte_pairs_for(const LessonText& text, const std::string& tokens);
// Writes merges.txt, vocab.json and tokenizer.json.
void save_byte_pairs(const BytePairs& pairs, const std::string& folder);
void check_decoded(std::string_view decoded, std::string_view held_out, Report& report);
void report_byte_pairs(const BytePairs& pairs, const LessonText& text, Report& report);

}  // namespace gradus
