// The tables of published runs.
#include <cmath>
#include <cstdio>
#include <iostream>

#include "lessons/published/measure.h"
#include "lessons/published/runs.h"
#include "src/core/table.h"

namespace gradus {

static std::string decimals(int count, double x) {
  char text[32];
  snprintf(text, sizeof text, "%.*f", count, x);
  return text;
}
static std::string verdict_detail(const Verdict& v) {
  if (v.reproduced) return "reproduced: " + bytes_text(v.reproduced_room) + " left";
  std::string text = "failed allocation, reproduced: " + bytes_text(v.reproduced_request);
  return text + "; published: " + bytes_text(v.published_request);
}

std::ostream& operator<<(std::ostream& out, const PublishedRuns& all) {
  Table figures({"run", "figure", "unit", "published", "reproduced", "difference", "gradus",
                 "published - gradus", "reason"});
  for (const PublishedFigure& f : all.figures) {
    const auto text = [&](double x) { return decimals(f.unit == "GiB" ? 3 : 0, x); };
    figures.row({f.run, f.figure, f.unit, text(f.published), text(f.reproduced),
                 text(f.published - f.reproduced), text(f.ours), text(f.published - f.ours), f.why});
  }
  Table differences({all.gap.runs, "MiB", "reason"});
  const auto mib = [](int64_t bytes) { return decimals(1, double(bytes) / kMiB); };
  for (const Difference& d : all.gap.differences)
    differences.row({d.name, mib(d.bytes), std::abs(d.bytes) < kMiB / 20 ? "equal" : d.why});
  differences.row({"= sum of the differences", mib(all.gap.named),
                   percent_text(double(all.gap.named) / double(all.gap.whole)) + " of the gap"});
  differences.row({"unexplained", mib(all.gap.unexplained),
                   "for example the code of CUDA kernels; allocations that are not reproduced"});
  differences.row({"= gap: " + all.gap.figures, mib(all.gap.whole), all.gap.bytes});
  Table verdicts({"on a GPU of 16 GB", "published", "reproduced", "gradus", "detail"});
  const auto word = [](bool fits) { return fits ? "fits" : "out of memory"; };
  for (const Verdict& v : all.verdicts)
    verdicts.row({v.run, word(v.published), word(v.reproduced), word(v.ours), verdict_detail(v)});
  out << figures << "\n" << differences;
  if (!all.verdicts.empty()) out << "\n" << verdicts;
  return out;
}

void report_published(const char* heading, const PublishedRuns& runs, Report& report) {
  std::cout << "\n"
            << heading << "\n    published: printed by the authors' program; reproduced: its allocations, "
            << "repeated on meta; gradus: our model\n\n"
            << runs;
  for (const PublishedFigure& f : runs.figures)
    report.check_at_most(f.run + ", " + f.figure + ": |published - reproduced|, " + f.unit,
                         std::abs(f.published - f.reproduced), f.unit == "GiB" ? 0.0005 : 100);
}

void check_verdicts(const PublishedRuns& runs, Report& report) {
  int64_t contradicted = 0;
  for (const Verdict& v : runs.verdicts) contradicted += v.reproduced != v.published || v.ours != v.published;
  report.check_equal("published verdicts that the reproduced run or gradus contradicts", contradicted, 0);
  report.check_at_most("BERT-large: unexplained share of the gap",
                       std::abs(double(runs.gap.unexplained) / double(runs.gap.whole)), 0.03);
}

}  // namespace gradus
