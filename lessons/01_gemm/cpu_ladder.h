// The CPU's rungs: GFLOP/s at several sizes, as a table and as a picture.
#pragma once
#include <string>

#include "src/train/lesson.h"

namespace gradus {

void cpu_ladder(const Lesson& lesson, const std::string& picture, Report& report);

}  // namespace gradus
