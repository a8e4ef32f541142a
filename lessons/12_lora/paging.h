// (c) Training with the optimizer's states on the host while the device has no room for them.
#pragma once
#include "src/train/lesson.h"

namespace gradus {

// The same steps without a budget, and with one that the states exceed: without a host and with it. Checks
// that the last completes, and that its weights are equal to the bit.
void paged_run(const Lesson& lesson, Report& report);

}  // namespace gradus
