// Ring attention after an error inside it (src/parallel/ring_attention.h).
#include <set>

#include "tests/parallel/ring_attention_testing.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

void expect_no_error(const std::string& what, const ClusterArgs& args,
                     const std::function<void(Comm&)>& body) {
  EXPECT_EQ(refusal([&] { run_cluster(args, body); }), "") << what;
}
// Every rank runs out of memory at the same place, somewhere in the ring. Then, with enough memory, the ring
// runs on different numbers: no message of the failed pass may arrive in it or be left over.
TEST(L19_RingAttention, IsRunAgainAfterAnErrorInside) {
  const int64_t B = 1, T = 256, heads = 3, C = 12, budget = 24 << 20;
  const Values all = normal_numbers(B * T * 3 * C, 1), all_dy = normal_numbers(B * T * C, 2);
  Attention plain;
  {
    Context context;
    plain = attend(tensor_of(all, {B, T, 3 * C}), all_dy,
                   [&](const Tensor& x) { return attention_flash(x, heads, Mask::Causal, 0); });
  }
  std::set<std::string> refused;
  for (const bool in_backward : {false, true})
    for (int64_t holes = 0; holes < 16; ++holes)
      expect_no_error(
          std::string(in_backward ? "backward" : "forward") + " with " + std::to_string(holes) + " pieces",
          {.ranks = 2, .memory_budget = budget}, [&](Comm& comm) {
            const auto own = [&](const Values& x, int64_t columns) {
              return chunks(x, B, T, columns, comm.rank(), comm.size());
            };
            Tensor qkv = tensor_of(own(all, 3 * C), {B, T / 2, 3 * C});
            Tensor before = tensor_of(times(own(all, 3 * C), -1), qkv.shape());
            Leaf leaf, of_before;
            attach(qkv, leaf, "qkv"), attach(before, of_before, "before");
            const Tensor dy = tensor_of(own(all_dy, C), {B, T / 2, C});
            Tensor warm(current().device, {2}, DType::F32, Kind::Other, "x");
            comm.all_reduce(warm)->wait();  // allocates what sums need
            // Takes all memory but `holes` pieces of 12 KiB.
            const auto fill = [&] {
              const auto take = [](int64_t bytes) {
                return Tensor(current().device, {bytes}, DType::U8, Kind::Other, "ballast");
              };
              std::vector<Tensor> taken, pieces;
              for (int64_t i = 0; i < holes; ++i)
                pieces.push_back(take(12 << 10)), taken.push_back(take(512));
              for (int64_t bytes = budget; bytes >= 256; bytes /= 2)
                while (refusal([&] { taken.push_back(take(bytes)); }).empty()) {
                }
              return taken;
            };
            const std::string text = refusal([&] {
              Tape tape;
              std::vector<Tensor> taken;
              if (!in_backward) taken = fill();
              const Tensor y = ring_attention(comm, before, heads, Mask::Causal);
              if (in_backward) taken = fill();
              tape.backward(y, dy);
            });
            if (!text.empty()) refused.insert(std::to_string(in_backward) + " " + std::to_string(holes));
            Tape tape;
            const Tensor y = ring_attention(comm, qkv, heads, Mask::Causal);
            tape.backward(y, dy);
            const std::string what = std::string(in_backward ? "backward" : "forward") + " with " +
                                     std::to_string(holes) + " pieces: " + text;
            expect_near(to_host<double>(y), own(plain.y, C), 4e-6, "y, after a " + what);
            expect_near(to_host<double>(leaf.grad), own(plain.dqkv, 3 * C), 1e-5, "dqkv, after a " + what);
          });
  EXPECT_GT(refused.size(), 8u);
}

}  // namespace
}  // namespace gradus
