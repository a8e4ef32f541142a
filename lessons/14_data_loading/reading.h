// Lesson 14's text as a mapped file, and how ranks and workers divide its samples.
#pragma once
#include <optional>

#include "src/data/text_samples.h"
#include "src/train/lesson.h"

namespace gradus {

struct LessonText {
  std::shared_ptr<const MappedFile> file;
  int64_t split = 0;            // bytes of the training text; the rest is held out
  std::optional<double> floor;  // entropy in bits per byte of the held-out part, if a grammar made the text
  std::string_view train() const { return {file->data(), size_t(split)}; }
  std::string_view held_out() const { return {file->data() + split, size_t(file->bytes() - split)}; }
};
// The file `path`, of which the last tenth is held out. If `path` is empty: `bytes` bytes from the grammar,
// which are written to `made`.
LessonText map_text(const std::string& path, const std::string& made, int64_t bytes, uint64_t seed);

// Samples of the training text, one per T * bytes_per_token bytes. An Error if they are too few.
TextSamples samples_of(const LessonText& text, const BytePairs& pairs, int64_t T, double bytes_per_token);

// Counts the samples that all ranks and workers read in the steps of one epoch.
enum class Sharing : uint8_t { Shared, EveryWorkerReadsAll, EveryRankReadsAll };
struct ReadCounts {
  int64_t read = 0, different = 0, repeated = 0, never = 0;  // samples
};
ReadCounts count_reads(Sharing how, const SampleOrder& order, int64_t batch, int64_t ranks, int64_t workers);
void check_reads(const ReadCounts& counts, Report& report);
void report_sharing(int64_t samples, uint64_t seed, Report& report);

}  // namespace gradus
