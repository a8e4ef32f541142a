#include "lessons/11_adam8bit/formats.h"

#include "src/optim/adamw_8bit.h"

namespace gradus {

static StateFormat linear(const char* name, int64_t block) {
  return {
      name,
      {.name = "linear, signed", .codebook = absmax_codebook(8), .block = block},
      {.name = "linear, unsigned", .codebook = zero_point_codebook(8), .block = block}};  // 0 to 1, no offset
}
static StateFormat dynamic(const char* name, int64_t block, const Codebook& of_v) {
  return {name,
          {.name = "dynamic, signed", .codebook = dynamic_codebook(Sign::Signed), .block = block},
          {.name = "dynamic, unsigned", .codebook = of_v, .block = block}};
}

const std::vector<StateFormat>& state_formats() {
  static const std::vector<StateFormat> all{
      linear("linear, tensor", 0), linear("linear, blocks", kStateBlock),
      dynamic("dynamic, tensor", 0, dynamic_codebook(Sign::Unsigned)),
      dynamic("dynamic, blocks", kStateBlock, dynamic_codebook(Sign::Unsigned)),
      dynamic("dynamic, v rounded up", kStateBlock, second_moment_codebook())};
  return all;
}

int64_t state_bytes(int64_t n, int64_t block) {
  // BEGIN SOLUTION 11.1
  if (n < AdamW8bit::kLeastCoded) return 8 * n;
  const int64_t blocks = block > 0 ? (n + block - 1) / block : 1;
  return 2 * n + 2 * 4 * blocks;
  // STUB: todo("11.1", "the bytes of the codes and scales of m and v", n, block);
  // END SOLUTION 11.1
}

}  // namespace gradus
