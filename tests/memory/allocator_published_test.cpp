// The allocator against figures that real GPUs printed: whole models, tensor by tensor, in the order in which
// Hugging Face's models go to the device (Module.to: a module's children first, then its own parameters, then
// its buffers).
#include "tests/memory/allocator_fixture.h"

namespace gradus {
namespace {

struct Model : Fixture {
  Model() : Fixture(int64_t(16) << 30) {}
  ~Model() {
    for (Block* b : blocks) allocator.free(b);
  }
  void add(int64_t elements, int64_t bytes_each) {
    blocks.push_back(allocator.allocate(elements * bytes_each, Kind::Weight, "tensor"));
    requested += elements * bytes_each;
  }
  void linear(int64_t out, int64_t in, int64_t bytes_each) {
    add(out * in, bytes_each);
    add(out, bytes_each);
  }
  void norm(int64_t channels, int64_t bytes_each) {
    add(channels, bytes_each);
    add(channels, bytes_each);
  }
  std::vector<Block*> blocks;
  int64_t requested = 0;
};

// "Model training anatomy" (huggingface.co/docs/transformers): torch.ones((1, 1)).to("cuda") leaves 1343 MB
// in use on a V100, bert-large-uncased with a head of two labels then 2631 MB (MB are MiB there).
TEST(L05_Published, BertLargeReservesWhatAV100Printed) {
  constexpr int64_t kPrinted = 2631 - 1343, C = 1024, kVocabulary = 30'522, kPositions = 512;
  Model m;
  m.add(1, 4);
  const int64_t before = m.meter.reserved();
  for (const int64_t rows : {kVocabulary, kPositions, int64_t(2)}) m.add(rows * C, 4);
  m.norm(C, 4);
  m.add(kPositions, 8);  // the buffer position_ids
  for (int layer = 0; layer < 24; ++layer) {
    for (int i = 0; i < 4; ++i) m.linear(C, C, 4);  // query, key, value, output
    m.norm(C, 4);
    m.linear(4 * C, C, 4);
    m.linear(C, 4 * C, 4);
    m.norm(C, 4);
  }
  m.linear(C, C, 4);  // pooler
  m.linear(2, C, 4);  // classifier
  EXPECT_EQ(m.requested, 4 + 4 * 335'143'938 + 8 * kPositions);
  EXPECT_EQ((m.meter.reserved() - before) / kMiB, kPrinted);
  EXPECT_EQ((m.meter.reserved() - before) % kMiB, 0);
}

// The textbook of source 001: polyglot-ko-1.3b in fp16, loaded: torch.cuda.memory_allocated() is 2.599 GiB.
// With the buffers of that version: masks of 2048 x 2048 bools and their scalar, cosines and sines in fp32.
TEST(L05_Published, PolyglotAllocatesWhatWasPrinted) {
  constexpr int64_t C = 2048, kVocabulary = 30'080, kContext = 2048, kRotary = 64;
  Model m;
  m.add(kVocabulary * C, 2);
  for (int layer = 0; layer < 24; ++layer) {
    m.norm(C, 2);
    m.norm(C, 2);
    m.add(kRotary / 2, 4);
    for (int i = 0; i < 2; ++i) m.add(kContext * kRotary, 4);
    m.linear(3 * C, C, 2);
    m.linear(C, C, 2);
    m.add(kContext * kContext, 1);
    m.add(1, 2);
    m.linear(4 * C, C, 2);
    m.linear(C, 4 * C, 2);
  }
  m.norm(C, 2);
  m.add(kVocabulary * C, 2);
  const double gib = double(m.meter.now().allocated()) / double(int64_t(1) << 30);
  EXPECT_NEAR(gib, 2.599, 0.0005);
  EXPECT_EQ(m.blocks.front()->size, 118 * kMiB);  // 117.5 MiB; the rest is too small to be split off
}

}  // namespace
}  // namespace gradus
