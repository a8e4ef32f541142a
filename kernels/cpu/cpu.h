// The CPU backend's functions.
#pragma once
#include "kernels/kernels.h"

namespace gradus::cpu {

#include "kernels/entries.inc"

}  // namespace gradus::cpu
