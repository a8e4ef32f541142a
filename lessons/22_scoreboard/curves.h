// Loss curves that are normal for some runs of the course: what `make curves` has measured with three seeds.
#pragma once
#include <string>
#include <vector>

namespace gradus {

struct ExpectedLoss {  // mean loss of the steps since the previous one's: of all seeds, the least, the most
  int64_t step;
  double mean, least, most;
};
// A line of JSON each, in the order of the steps. Errors name the file.
std::vector<ExpectedLoss> read_expected(const std::string& path);

// Of the losses of steps first + 1, first + 2, ... : how many of the expected means were reached, and how
// many of these are outside of what is expected, by more than the seeds differ among each other, or 2 %.
struct CurveVerdict {
  int64_t compared = 0, outside = 0;
};
CurveVerdict compare_curve(const std::vector<double>& losses, int64_t first,
                           const std::vector<ExpectedLoss>& expected);
// Both as a picture.
void draw_curve(const std::vector<double>& losses, int64_t first, const std::vector<ExpectedLoss>& expected,
                const std::string& path);

}  // namespace gradus
