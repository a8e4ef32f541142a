// How far AdamW8bit moves weights. `build/bench/adam8bit_moves` measures the same for more models and seeds.
#include <gtest/gtest.h>

#include "lessons/11_adam8bit/quantized_adamw.h"
#include "tests/optim/adam8bit_moves.h"

namespace gradus {
namespace {

const MakeOptimizer kCoded = [](Parameters& p) { return std::make_unique<AdamW8bit>(p); };

// Rare tokens of an embedding that is not the output head. With the nearest codes some moved by hundreds.
TEST(L11_AdamW8bitMoves, NoWeightMovesFarInAModelOfRareTokens) {
  for (const char* shape : {"gpt", "neox"}) {
    const MovesCase c{.shape = shape, .vocab = 1000, .tied = false, .steps = 25};
    const TrainedMoves t = train_moves(c, 1, kCoded, true);
    EXPECT_LE(t.moves.largest, 8) << c.name();
    EXPECT_LE(t.moves.above_4_of_100000(), 1) << c.name();
    EXPECT_LE(t.shadow.largest, 2.5) << "AdamW in fp32 with the same gradients";
    EXPECT_EQ(t.moves.count, t.shadow.count);
    const TrainedMoves nearest = train_moves(
        c, 1, [](Parameters& p) { return std::make_unique<QuantizedAdamW>(p, state_formats()[3]); }, false);
    EXPECT_GT(nearest.moves.largest, 100) << c.name() << ": else this model shows nothing";
  }
}

}  // namespace
}  // namespace gradus
