#include "src/parallel/flat.h"

namespace gradus {

void FlatParameters::add(Parameter& p, int64_t align) {
  check(parameters.empty() || p.precision == parameters[0]->precision, "'", p.name, "' and '",
        parameters.empty() ? "" : parameters[0]->name, "' have other precisions, and cannot share a buffer");
  numel = round_up(numel, align);
  parameters.push_back(&p);
  begin.push_back(numel);
  numel += p.leaf.shape.numel();
}

void check_gradient(const Parameter& p) {
  check(p.leaf.written, "parameter '", p.name,
        "' has no gradient on this rank; every rank's loss must depend on it");
}

}  // namespace gradus
