#include "lessons/06_optimizers/contenders.h"

#include "src/optim/muon.h"

namespace gradus {

template <class O, class Args>
static auto maker(Args args) {
  return [args](Parameters& p) -> std::unique_ptr<Optimizer> { return std::make_unique<O>(p, args); };
}

const std::vector<Contender>& contenders() {
  static const std::vector<Contender> all{
      {"SGD", 0.5, maker<Sgd>(SgdArgs{})},
      {"momentum", 0.1, maker<Sgd>(SgdArgs{.momentum = 0.9f})},
      {"Nesterov", 0.1, maker<Sgd>(SgdArgs{.momentum = 0.9f, .nesterov = true})},
      {"AdamW", 4e-3, maker<AdamW>(AdamWArgs{.beta2 = 0.99f})},
      {"Adafactor", 6e-2, maker<Adafactor>(AdafactorArgs{})},
      {"Adafactor, given", 4e-3, maker<Adafactor>(AdafactorArgs{.step_size = StepSize::Given})},
      {"Muon", 0.02, maker<Muon>(MuonArgs{.others = {.beta2 = 0.99f}})}};
  return all;
}

int64_t state_bytes(const std::string& optimizer, int64_t out, int64_t in, bool in_block) {
  // BEGIN SOLUTION 06.3
  if (optimizer == "SGD") return 0;
  if (optimizer == "momentum" || optimizer == "Nesterov") return 4 * out * in;
  if (optimizer.starts_with("Adafactor")) return out == 1 ? 4 * in : 4 * (out + in);
  if (optimizer == "Muon" && in_block) return 4 * out * in;
  return 8 * out * in;
  // STUB: todo("06.3", "the bytes of this optimizer's states for a parameter", optimizer, out, in, in_block);
  // END SOLUTION 06.3
}

int64_t state_bytes(const std::string& optimizer, const Parameters& parameters) {
  int64_t bytes = 0;
  for (const Parameter& p : parameters)
    bytes += state_bytes(optimizer, p.value.numel() / p.value.last(), p.value.last(), Muon::is_for(p));
  return bytes;
}

}  // namespace gradus
