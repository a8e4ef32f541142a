// Writing Python's pickle format: only for files that tools written in Python want in it.
#pragma once
#include <string>

#include "src/core/json.h"

namespace gradus {

// The value as protocol 2 with a dozen opcodes (Lib/pickletools.py describes them all): what
// pickle.loads(...) makes None, bool, int, float, str, list and dict of.
std::string pickle(const Json& value);

}  // namespace gradus
