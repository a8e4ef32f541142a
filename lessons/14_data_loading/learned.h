// What byte pairs were learned of a text, and how fast they encode.
#pragma once
#include "lessons/14_data_loading/reading.h"

namespace gradus {

// `tokens`: how many there are to be, with the 256 bytes; they are learned from the text to train on, fewer
// if no pair occurs twice any more. Or the folder of a tokenizer.
BytePairs byte_pairs_for(const LessonText& text, const std::string& tokens);
// Writes merges.txt, vocab.json and tokenizer.json.
void save_byte_pairs(const BytePairs& pairs, const std::string& folder);
void report_byte_pairs(const BytePairs& pairs, const LessonText& text, Report& report);

}  // namespace gradus
