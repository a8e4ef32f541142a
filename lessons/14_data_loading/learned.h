// What byte pairs were learned of a text, and how fast they encode.
#pragma once
#include "lessons/14_data_loading/reading.h"

namespace gradus {

// Of the text to train on: `tokens` of vocabulary, fewer if there is no pair twice any more.
BytePairs learn_byte_pairs(const LessonText& text, int64_t tokens);
// Writes merges.txt, vocab.json and tokenizer.json.
void save_byte_pairs(const BytePairs& pairs, const std::string& folder);
void report_byte_pairs(const BytePairs& pairs, const LessonText& text, Report& report);

}  // namespace gradus
