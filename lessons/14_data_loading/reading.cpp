#include "lessons/14_data_loading/reading.h"

#include <iostream>
#include <numbers>

#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/train/text.h"

namespace gradus {

constexpr int64_t kLeastBytes = 10'000, kMostBytes = int64_t(64) << 20;

LessonText map_text(const std::string& path, const std::string& made, int64_t bytes, uint64_t seed) {
  LessonText text;
  if (path.empty()) {
    const Text generated = generated_text("steps.grammar", bytes, seed);
    write_file(made, generated.corpus.bytes);
    text.file = std::make_shared<const MappedFile>(made);
    text.split = generated.corpus.split;
    text.floor = *generated.floor / std::numbers::ln2;
  } else {
    text.file = std::make_shared<const MappedFile>(path);
    check(text.file->bytes() >= kLeastBytes && text.file->bytes() <= kMostBytes, path, " has ",
          text.file->bytes(), " bytes; this lesson needs ", kLeastBytes, " to ", kMostBytes,
          " bytes, because it also encodes the whole text at once");
    text.split = text.file->bytes() - text.file->bytes() / 10;
  }
  return text;
}

constexpr int64_t kBatch = 8;  // of table (c)

TextSamples samples_of(const LessonText& text, const BytePairs& pairs, int64_t T, double bytes_per_token) {
  TextSamples samples(text.file, text.split, pairs, T,
                      std::max<int64_t>(int64_t(double(T) * bytes_per_token), 1));
  check(samples.count() >= kBatch, text.file->path(), " has ", samples.count(), " samples of ", T,
        " tokens in its training text; this lesson needs at least ", kBatch, " samples");
  return samples;
}

ReadCounts count_reads(Sharing how, const SampleOrder& order, int64_t batch, int64_t ranks, int64_t workers) {
  std::vector<int64_t> times(size_t(order.samples()));
  const int64_t steps = order.samples() / batch;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    Share share{.batch = batch, .rank = rank, .ranks = ranks};
    if (how == Sharing::EveryRankReadsAll) share = {.batch = batch / ranks};
    using Samples = std::vector<int64_t>;
    Samples made(size_t(workers), 0);  // steps that each worker has made
    const auto read = [&](int64_t step, int64_t worker, Samples& samples) {
      // The mistake: each worker reads all samples, as if there were no other worker.
      if (how == Sharing::EveryWorkerReadsAll) step = made[size_t(worker)]++;
      samples.clear();
      for (int64_t row = 0; row < share.rows(); ++row)
        samples.push_back(order.at(share.first_of(step) + row));
    };
    Prefetch<Samples> samples(workers, std::vector<Samples>(size_t(2 * workers)), read);
    for (int64_t step = 0; step < steps; ++step)
      for (const int64_t sample : samples.take()) ++times[size_t(sample)];
  }
  ReadCounts counts;
  for (const int64_t n : times)
    counts.read += n, counts.different += n > 0, counts.repeated += n > 1, counts.never += n == 0;
  return counts;
}

void check_reads(const ReadCounts& counts, Report& report) {
  report.check_equal("samples read more than once in an epoch", counts.repeated, 0);
  report.check_equal("samples never read in an epoch", counts.never, 0);
}

void report_sharing(int64_t samples, uint64_t seed, Report& report) {
  constexpr int64_t kRanks = 2, kWorkers = 4;
  const SampleOrder order(samples / kBatch * kBatch, seed);
  Table table({"division of the samples", "samples read", "different", "more than once", "never"});
  const std::pair<Sharing, const char*> kWays[] = {{Sharing::Shared, "among ranks and workers"},
                                                   {Sharing::EveryWorkerReadsAll, "among ranks only"},
                                                   {Sharing::EveryRankReadsAll, "among workers only"}};
  for (const auto& [how, name] : kWays) {
    const ReadCounts counts = count_reads(how, order, kBatch, kRanks, kWorkers);
    table.row({name, count_text(counts.read), count_text(counts.different), count_text(counts.repeated),
               count_text(counts.never)});
    if (how == Sharing::Shared) check_reads(counts, report);
  }
  std::cout << "\n(c) One epoch, " << count_text(order.samples()) << " samples in "
            << order.samples() / kBatch << " steps of " << kBatch
            << ": samples read by 2 ranks with 4 workers each\n\n"
            << table;
}

}  // namespace gradus
