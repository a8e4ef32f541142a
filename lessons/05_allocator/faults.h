// Two faults, such as debugging code brings into a training program: planted here, and found in the history.
#pragma once
#include <string>

#include "lessons/05_allocator/workload.h"
#include "src/train/lesson.h"

namespace gradus {

// Trains on the lesson's device, without faults and with both; prints the findings in the two histories, and
// adds the checks. Writes the history with the faults to `folder` as a page and a snapshot, and draws it.
void find_faults(Report&, const Workload&, const Lesson&, const std::string& folder);

}  // namespace gradus
