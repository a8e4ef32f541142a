// The table whose kernels compute nothing: shapes, dtypes and memory are real, but no values are written.
#include "kernels/kernels.h"

namespace gradus {

template <class... Arguments>
static void nothing(Arguments...) {}

static constexpr Backend kMeta = {
    .name = "meta",
#define GRADUS_KERNEL(entry, ...) .entry = nothing,
#include "kernels/entries.inc"
};

const Backend& meta_backend() { return kMeta; }

}  // namespace gradus
