// Writes Python's pickle format, for files that tools in Python read only in this format.
#pragma once
#include <string>

#include "src/core/json.h"

namespace gradus {

// The value in protocol 2, with a dozen opcodes (Lib/pickletools.py describes them all). pickle.loads(...)
// turns it into None, bool, int, float, str, list and dict.
std::string pickle(const Json& value);

}  // namespace gradus
