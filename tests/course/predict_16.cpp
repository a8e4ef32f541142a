// The questions of exercise 16.3, with the student's own sizes: the bytes that a chain moves, the FLOPs of
// the head in chunks, the chains of a training step.
#include <sstream>

#include "lessons/16_fusion_and_graphs/elements.h"
#include "lessons/16_fusion_and_graphs/head.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Own16 {
  int64_t operations, numbers;  // of the chain; numbers per tensor
  HeadSize head;
  int64_t rows;  // per chunk
  TransformerConfig model;
};

static Own16 own_run(const std::string& student) {
  Own own(student, "16.3");
  Own16 o{};
  o.operations = own.between(3, 8), o.numbers = 1000 * own.between(2, 50);
  o.rows = 32 * own.between(1, 4);
  o.head = {o.rows * own.between(4, 9), 16, 100 * own.between(20, 60)};
  o.model = {.vocab = 50, .context = 8, .layers = own.between(2, 9), .heads = 2, .channels = 16};
  return o;
}

// The chains of a training step with SGD.
static FusedChains fused_step(Parameters& parameters, const std::vector<Tensor>& inputs,
                              const std::function<Tensor()>& forward) {
  Sgd sgd(parameters);
  CapturedStep captured;
  Tensor loss;
  for (int step = 0; step < 3; ++step) {
    sgd.set_learning_rate(0);
    captured.run(inputs, [&] {
      loss = {};
      parameters.zero_grad();
      Tape tape;
      loss = forward();
      tape.backward(loss);
      sgd.step();
    });
  }
  RunTimeCompiler unused("build/chains", RunTimeCompiler::built_with("cpu"));
  return fuse_chains(captured, unused);
}

static double moved_by_chain(const Own16& o) {
  const Context meta("meta");
  const Tensor x = random_tensor({o.numbers}, 1, 1), z = random_tensor({o.numbers}, 1, 2);
  Parameters one;
  const Parameter& p = one.add("one", {1}, Precision{});
  Tensor y;
  const FusedChains fused = fused_step(one, {x, z}, [&] {
    y = {};
    y = x;
    for (int64_t i = 0; i < o.operations; ++i) y = add(y, z);
    return scale(p.value, 0);
  });
  const int64_t each_moves = 3 * o.numbers * size_of(DType::F32);
  return double(o.operations * each_moves - (fused.bytes_before - fused.bytes_after));
}

static double flops_of_head(const Own16& o) {
  const Context meta("meta");
  Leaf of_x, of_weight;
  Tensor x = random_tensor({o.head.rows, o.head.channels}, 1, 1),
         weight = random_tensor({o.head.vocab, o.head.channels}, 1, 2);
  attach(x, of_x, "x"), attach(weight, of_weight, "weight");
  Tape tape;
  tape.backward(
      linear_cross_entropy(x, weight, random_tokens({o.head.rows}, o.head.vocab, 1, "targets"), {}, o.rows));
  return double(current().device.meter().totals(OpClass::Contraction).flops);
}

static double norms_in_chains(const Own16& o) {
  const Context meta("meta");
  Transformer model(o.model);
  const DummyBatch batch = dummy_batch(o.model, 2, o.model.context);
  const FusedChains fused =
      fused_step(model.parameters, {batch.ids, batch.targets}, [&] { return batch.loss(model); });
  return double(fused.chains.at("add + layernorm_fwd"));
}

static Quiz quiz(const std::string& student) {
  const Own16 o = own_run(student);
  std::ostringstream moved, flops, chains;
  moved << "A chain of " << o.operations << " additions y = y + z, always with the same z, on tensors of "
        << o.numbers << " numbers in fp32: how many bytes does it load and store?";
  flops << "linear_cross_entropy of N = " << o.head.rows << " rows with C = " << o.head.channels
        << " channels and V = " << o.head.vocab << " classes, in chunks of " << o.rows
        << " rows, forward and backward: how many FLOPs do its matrix products need?";
  chains
      << "A GPT with " << o.model.layers
      << " layers, without dropout, is captured, and its chains are compiled: how many chains of a residual "
         "addition and the norm that follows it does a training step have?";
  const std::string id = "16.3";
  return {"Three questions about fusion.",
          {{id, "moved", moved.str(), measured([o] { return moved_by_chain(o); })},
           {id, "flops", flops.str(), measured([o] { return flops_of_head(o); })},
           {id, "chains", chains.str(), measured([o] { return norms_in_chains(o); })}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "16", gradus::predict::quiz); }
