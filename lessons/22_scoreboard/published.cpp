#include "lessons/22_scoreboard/methods.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "lessons/published/measure.h"
#include "src/core/table.h"

namespace gradus {

using Update = HuggingFaceBert::Update;

struct PublishedRow {
  std::string name;
  double published;  // BERT: MiB at the peak, from NVML; polyglot: GiB allocated after the update
  MetaSetting set;
};

static const std::vector<PublishedRow>& rows() {
  const auto bert = [](int64_t batch, int64_t micro_batches, Update update, bool checkpoints, bool mixed) {
    return MetaSetting{"bert-large", batch, 512, micro_batches, false, update, checkpoints, mixed};
  };
  const auto polyglot = [](int64_t batch, int64_t micro_batches, bool checkpoints, Tuning tuning) {
    return MetaSetting{"polyglot-ko-1.3b", batch,       256,   micro_batches, true,
                       Update::AdamW,      checkpoints, false, tuning};
  };
  static const std::vector<PublishedRow> all{
      {"BERT, batch 4", 14'949, bert(4, 1, Update::AdamW, false, false)},
      {"BERT, 4 x 1", 8'681, bert(1, 4, Update::AdamW, false, false)},
      {"BERT, 4 x 1, checkpointing", 6'775, bert(1, 4, Update::AdamW, true, false)},
      {"BERT, batch 4, fp16", 13'939, bert(4, 1, Update::AdamW, false, true)},
      {"BERT, 4 x 1, checkpointing, fp16", 7'275, bert(1, 4, Update::AdamW, true, true)},
      {"BERT, batch 4, Adafactor", 12'295, bert(4, 1, Update::Adafactor, false, false)},
      {"BERT, 4 x 1, checkpointing, fp16, Adafactor", 4'847, bert(1, 4, Update::Adafactor, true, true)},
      {"BERT, batch 4, 8-bit Adam", 13'085, bert(4, 1, Update::Adam8bit, false, false)},
      {"BERT, 4 x 1, checkpointing, fp16, 8-bit Adam", 5'363, bert(1, 4, Update::Adam8bit, true, true)},
      {"polyglot, batch 4", 10.586, polyglot(4, 1, false, Tuning::All)},
      {"polyglot, batch 8", 11.113, polyglot(8, 1, false, Tuning::All)},
      {"polyglot, batch 16", 12.164, polyglot(16, 1, false, Tuning::All)},
      {"polyglot, 4 x 4", 10.586, polyglot(4, 4, false, Tuning::All)},
      {"polyglot, batch 16, checkpointing", 10.290, polyglot(16, 1, true, Tuning::All)},
      {"polyglot, batch 16, LoRA", 4.732, polyglot(16, 1, false, Tuning::Lora)},
      {"polyglot, batch 16, QLoRA", 1.722, polyglot(16, 1, true, Tuning::QLora)},
  };
  return all;
}

// The names and MiB of the two largest differences.
static std::string largest(std::vector<Difference> differences) {
  std::stable_sort(differences.begin(), differences.end(), [](const Difference& a, const Difference& b) {
    return std::abs(a.bytes) > std::abs(b.bytes);
  });
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(differences.size(), 2); ++i)
    text += (i ? "; " : "") + differences[i].name + " " + std::to_string(differences[i].bytes / kMiB);
  return text;
}

void scoreboard_published(Report& report) {
  Table table(
      {"run", "published", "reproduced", "gradus", "two largest differences, reproduced - gradus, MiB"});
  double worst = 0;
  for (const PublishedRow& r : rows()) {
    const MetaRun reproduced = run_reproduced(r.set), ours = run_ours(r.set);
    const PublishedFigure f =
        r.set.half
            ? gib_figure(r.name, r.published, reproduced.updated.allocated(), ours.updated.allocated(), "")
            : peak_figure(r.name.c_str(), int64_t(r.published), reproduced, ours, "");
    const double mib = r.set.half ? 1024 : 1;
    worst = std::max(worst, mib * std::abs(f.reproduced - f.published));
    const auto text = [&](double x) { return std::to_string(int64_t(std::lround(mib * x))); };
    table.row({r.name, text(f.published), text(f.reproduced), text(f.ours),
               largest(r.set.half ? take_apart_updated(reproduced.updated, ours.updated)
                                  : take_apart(reproduced, ours))});
  }
  std::cout << table << "\n";
  check_reproduced(worst, report);
}

void check_reproduced(double worst, Report& report) {
  report.check_at_most("(c) largest difference of a reproduced figure from the published one, MiB", worst,
                       100);
}

}  // namespace gradus
