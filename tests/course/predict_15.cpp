// The questions of exercise 15.3, with the student's own sizes: the bytes that attention_flash saves, the
// numbers that the program "tiles" loads, the bytes that the GPU kernel loads.
#include <sstream>

#include "kernels/emu/traffic.h"
#include "lessons/15_flash_attention/compare.h"
#include "lessons/15_flash_attention/one_head.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Own15 {
  AttentionSize saved;           // in bf16, with fewer KV heads than query heads
  int64_t head_T, head_D, rows;  // for the program; rows: queries per group
  int64_t kernel_T;              // for the kernel: a multiple of its tile
};

static Own15 own_run(const std::string& student) {
  Own own(student, "15.3");
  const int64_t kv = own.between(1, 4);
  return {.saved = {.B = own.between(1, 4),
                    .T = 64 * own.between(2, 16),
                    .heads = {kv * own.of({2, 4}), kv},
                    .D = 16 * own.between(2, 6),
                    .dtype = DType::BF16},
          .head_T = 16 * own.between(4, 12),
          .head_D = 8 * own.between(1, 4),
          .rows = own.of({8, 16}),
          .kernel_T = 64 * own.between(2, 5)};
}

static double saved_bytes(AttentionOp op, const AttentionSize& size) {
  const Context meta("meta");
  AttentionInput input(size, 1);
  Tape tape;
  op(input.qkv, size.heads, Mask::Causal, 0, 0);
  return double(tape.saved_bytes());
}
static double loaded_numbers(const Own15& o) {
  Memory memory;
  attend(Program::Tiles, Head::random(o.head_T, o.head_D, 1), o.rows, memory);
  return double(memory.loads);
}
static double loaded_bytes(const Own15& o) {
  const Context on_emu("emu");
  AttentionInput input({.B = 1, .T = o.kernel_T, .heads = 1, .D = 64}, 1);
  emu::reset_traffic();
  attention_flash(input.qkv, 1, Mask::Causal, 0, 0);
  return double(emu::traffic().loaded);
}

static Quiz quiz(const std::string& student) {
  const Own15 o = own_run(student);
  const AttentionSize& s = o.saved;
  std::ostringstream saved, program, kernel;
  saved << "attention_flash with B = " << s.B << " sequences of T = " << s.T << " tokens, " << s.heads.q
        << " query heads, " << s.heads.kv << " KV heads and head size D = " << s.D
        << ", in bf16: how many bytes does it save for its backward pass?";
  program << "The program \"tiles\" of table (a), without a mask, on one head with T = " << o.head_T
          << " and D = " << o.head_D << ", in groups of " << o.rows
          << " queries: how many numbers does it load?";
  kernel << "The forward kernel of attention_flash on a GPU, in fp32 with a causal mask, has tiles of "
            "64 queries and 64 keys. How many bytes does it load for one head with D = 64 and T = "
         << o.kernel_T << "?";
  const std::string id = "15.3";
  return {"Three questions about attention.",
          {{id, "saved", saved.str(), measured([s] { return saved_bytes(attention_flash, s); })},
           {id, "program", program.str(), measured([o] { return loaded_numbers(o); })},
           {id, "kernel", kernel.str(), measured([o] { return loaded_bytes(o); })}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "15", gradus::predict::quiz); }
