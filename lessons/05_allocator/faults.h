// Two faults, planted into a training program as debugging code brings them in, and found again.
#pragma once
#include <string>

#include "lessons/05_allocator/stream.h"
#include "src/train/lesson.h"

namespace gradus {

// Trains on the lesson's device, clean and with both faults; prints what the histories tell, and adds the
// checks. The history with the faults is written to `folder` as a page and a snapshot, and as a picture.
void find_faults(Report&, const Stream&, const Lesson&, const std::string& folder);

}  // namespace gradus
