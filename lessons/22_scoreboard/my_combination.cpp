#include "lessons/22_scoreboard/my_combination.h"

#include "kernels/check.h"

namespace gradus {

std::string my_combination() {
  // BEGIN SOLUTION 22.6
  return "--attention=flash --keep=each-block --micro-batches=16";
  // STUB: todo("22.6", "flags with which GPT-2 fits into 2.5 GiB and is at most 20 % slower than without them");
  // END SOLUTION 22.6
}

}  // namespace gradus
