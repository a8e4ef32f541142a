// What tensor parallelism sends and keeps, and several models at a time.
#include "src/parallel/data_parallel.h"
#include "src/parallel/shards.h"
#include "tests/parallel/tensor_parallel_model.h"

namespace gradus {
namespace {

struct Pass {
  int64_t forward, elements, bytes, summed, saved;
};
// For one forward and backward pass; what sum_gradients sends is counted separately.
Pass count_pass(Comm& comm, const TransformerConfig& c, Sequence sequence) {
  ModelOfRanks m(comm, c, sequence);
  const Device& device = current().device;
  const auto tokens = [&](const Shape& s) {
    return from_host(const_cast<Device&>(device), std::vector<int32_t>(size_t(s.numel()), 0), s, DType::I32,
                     Kind::Data, "tokens");
  };
  const bool pooled = c.output_head == OutputHead::Pooled;
  const Shape ids{2, c.context};
  const Sent before = comm.sent();
  Tape tape;
  const Tensor loss =
      m.model.loss(tokens(ids), tokens(pooled ? Shape{2} : ids), c.token_types > 0 ? tokens(ids) : Tensor());
  const int64_t forward = comm.sent().elements - before.elements, saved = tape.saved_bytes();
  tape.backward(loss);
  const Sent after = comm.sent();
  m.parallel.sum_gradients();
  return {forward, after.elements - before.elements, after.bytes - before.bytes,
          comm.sent().elements - after.elements, saved};
}
Pass of_a_layer(Comm& comm, TransformerConfig c, Sequence sequence) {
  c.layers = 1;
  const Pass one = count_pass(comm, c, sequence);
  c.layers = 2;
  const Pass two = count_pass(comm, c, sequence);
  return {two.forward - one.forward, two.elements - one.elements, two.bytes - one.bytes,
          two.summed - one.summed, two.saved - one.saved};
}

// b s h (t-1)/t: 8 times per layer (4 all-reduces, or 4 all-gathers and 4 reduce-scatters), or 10 times.
TEST(L19_TensorParallel, ElementsSentInALayer) {
  for (const std::string device : {"cpu", "meta"})
    for (const std::string recipe : {"fp32", "mixed"})
      for (TransformerConfig c : {gpt(0.1), bert(0.1), neox(0.1)})
        for (const int64_t t : {1, 2, 4})
          if (device == "meta" || (t == 2 && recipe == "fp32"))
            run_cluster({.ranks = t, .device = device}, [&](Comm& comm) {
              c.precision = precision_recipe(recipe);
              const int64_t one = 2 * c.context * c.channels * (t - 1) / t;
              for (const Sequence sequence : kSequences) {
                const Pass p = of_a_layer(comm, c, sequence);
                const std::string what =
                    device + ", " + recipe + ", " + text_of(sequence) + ", " + std::to_string(t) + " ranks";
                EXPECT_EQ(p.forward, 4 * one) << what;
                EXPECT_EQ(p.elements, (sequence == Sequence::GatherAgain ? 10 : 8) * one) << what;
                EXPECT_EQ(p.bytes, size_of(c.precision.value) * p.elements) << what;
                // Per block: both norms, and the biases of the second products.
                EXPECT_EQ(p.summed, sequence == Sequence::Whole ? 0 : 2 * 6 * c.channels * (t - 1) / t)
                    << what;
              }
            });
}

// The inputs of both first products are kept whole, or as parts.
TEST(L19_TensorParallel, BytesThatGatheringAgainSaves) {
  for (const char* recipe : {"fp32", "mixed"})
    for (TransformerConfig c : {gpt(0.1), neox(0.1)})
      for (const int64_t t : {1, 2, 4})
        run_cluster({.ranks = t, .device = "meta"}, [&](Comm& comm) {
          c.precision = precision_recipe(recipe);
          const int64_t n = 2 * c.context * c.channels, less = 2 * (n - n / t) * size_of(c.precision.value);
          const int64_t whole = of_a_layer(comm, c, Sequence::Whole).saved,
                        keeps = of_a_layer(comm, c, Sequence::KeepGathered).saved,
                        again = of_a_layer(comm, c, Sequence::GatherAgain).saved;
          EXPECT_EQ(keeps - again, less) << recipe << ", " << t << " ranks";
          EXPECT_TRUE(t == 1 ? keeps <= whole : keeps < whole) << recipe << ": " << keeps << ", " << whole;
        });
}

// Tensor parallel over some ranks, data parallel over the others: equal to one device.
TEST(L19_TensorParallel, WithDataParallelismInTheOtherDirection) {
  for (const TransformerConfig& c : {gpt(0.1, 31), bert(0.1), neox(0.1)}) {
    const ModelSetting set{.name = "2 x 2",
                           .model = c,
                           .B = 4,
                           .micro_batches = 1,
                           .some_do_not_count = true,
                           .with_count = true};
    const Learned plain = learn_on_one_device(set);
    for (const Sequence sequence : kSequences)
      for (const bool near : {true, false})
        run_cluster({.ranks = 4, .seed = 7}, [&](Comm& all) {
          const int64_t high = all.rank() / 2, low = all.rank() % 2;
          const auto tensor = all.split("tensor", near ? high : low),
                     data = all.split("data", near ? low : high);
          ModelOfRanks m(*tensor, c, sequence);
          const auto sum = [&] {
            m.parallel.sum_gradients();
            sum_gradients(*data, m.model.parameters);
          };
          Learned got = learn(set, m.model, sum, 2 * data->rank(), 2);
          got.losses[0] = sum_over_ranks(*data, got.losses[0]);
          expect_learned(got, plain, m.model, {}, std::string("2 x 2, ") + text_of(sequence));
        });
  }
}

// Two models on the same ranks, or on groups in both directions: their passes are interleaved.
TEST(L19_TensorParallel, TwoModelsAtATime) {
  const ModelSetting a{.name = "a", .model = gpt(), .data = 1}, b{.name = "b", .model = neox(), .data = 2};
  const Learned plain_a = learn_on_one_device(a), plain_b = learn_on_one_device(b);
  for (const bool in_groups : {false, true})
    for (const Sequence sequence : kSequences)
      run_cluster({.ranks = 4, .seed = 7}, [&](Comm& all) {
        const auto rows = all.split("rows", all.rank() / 2), columns = all.split("columns", all.rank() % 2);
        Comm &of_a = in_groups ? *rows : all, &of_b = in_groups ? *columns : all;
        ModelOfRanks first(of_a, a.model, sequence), second(of_b, b.model, Sequence::KeepGathered);
        const auto loss_of = [](const ModelSetting& set, const Transformer& model) {
          const HostBatch batch = batch_of(set);
          return model.loss(rows_of(batch.ids, 0, set.B, set.T), rows_of(batch.targets, 0, set.B, set.T));
        };
        Tape tape_a;
        const Tensor loss_a = loss_of(a, first.model);
        Tape tape_b;
        const Tensor loss_b = loss_of(b, second.model);
        tape_a.backward(loss_a);
        tape_b.backward(loss_b);
        second.parallel.sum_gradients();
        first.parallel.sum_gradients();
        const auto learned = [](const Tensor& loss, Transformer& model) {
          Learned l{.losses = {item(loss)}, .gradients = {}, .weights = {}};
          Sgd sgd(model.parameters);
          for (const Parameter& p : model.parameters) l.gradients[p.name] = to_host<double>(p.leaf.grad);
          sgd.clip_grad_norm(1e9);
          l.norm = sgd.scalars().grad_norm;
          sgd.step(0.1);
          for (const Parameter& p : model.parameters) l.weights[p.name] = to_host<double>(p.kept());
          return l;
        };
        const Learned got_b = learned(loss_b, second.model), got_a = learned(loss_a, first.model);
        const std::string what =
            std::string(in_groups ? "in groups, " : "on all ranks, ") + text_of(sequence);
        expect_learned(got_a, plain_a, first.model, {}, "a, " + what);
        expect_learned(got_b, plain_b, second.model, {}, "b, " + what);
      });
}

// The tokens of a rank are a property of one model: in computations that follow in this rank's context,
// dropout uses the same masks as without this model.
TEST(L19_TensorParallel, DropoutOfTheModelsThatFollow) {
  const ModelSetting before{"before", gpt(0.1)}, after{"after", gpt(0.3)};
  const Learned plain = learn_on_one_device(after);
  for (const Sequence sequence : kSequences)
    run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
      ModelOfRanks first(comm, before.model, sequence);
      pass(before, first.model, 0, before.B);
      const std::string what = std::string(text_of(sequence)) + ", rank " + std::to_string(comm.rank());
      expect_as_on_one_device(after, comm, Sequence::Whole, plain, {}, ", after " + what);
    });
  for (const Sequence sequence : kSequences)
    run_cluster({.ranks = 2, .seed = 7}, [&](Comm& comm) {
      ModelOfRanks first(comm, before.model, sequence);
      pass(before, first.model, 0, before.B);
      Transformer model(after.model);
      model.initialize(3);
      expect_learned(learn(after, model), plain, model, {0, 0},
                     std::string("one device's model, after ") + text_of(sequence));
    });
}

// A segment is recomputed in the backward pass, after the forward pass of a model with different tokens.
TEST(L19_TensorParallel, DropoutOfSegmentsThatAreRecomputedLater) {
  const ModelSetting a{.name = "a", .model = gpt(0.1), .data = 1},
      b{.name = "b", .model = gpt(0.1), .T = 4, .data = 2};
  const Learned plain = learn_on_one_device(a);
  const auto loss_of = [](const ModelSetting& set, const Transformer& model) {
    const HostBatch batch = batch_of(set);
    return model.loss(rows_of(batch.ids, 0, set.B, set.T), rows_of(batch.targets, 0, set.B, set.T));
  };
  for (const auto& [sequence, of_second] : {std::pair(Sequence::Whole, Sequence::Whole),
                                            {Sequence::Whole, Sequence::KeepGathered},
                                            {Sequence::KeepGathered, Sequence::GatherAgain},
                                            {Sequence::GatherAgain, Sequence::Whole}})
    run_cluster({.ranks = 2, .seed = 7}, [&, sequence = sequence, of_second = of_second](Comm& comm) {
      ModelOfRanks first(comm, a.model, sequence), second(comm, b.model, of_second);
      first.model.segments = {{2, Keep::Input}};
      Tape tape_a;
      const Tensor loss_a = loss_of(a, first.model);
      {
        const Tape tape_b;
        loss_of(b, second.model);
      }
      tape_a.backward(loss_a);
      first.parallel.sum_gradients();
      for (const Parameter& p : first.model.parameters) {
        const Values& whole = plain.gradients.at(p.name);
        Values difference = to_host<double>(p.leaf.grad);
        const Values own = p.shard ? p.shard->of_values(whole) : whole;
        for (size_t i = 0; i < own.size(); ++i) difference[i] -= own[i];
        EXPECT_LE(norm_of(difference), 2e-6 * norm_of(whole))
            << text_of(sequence) << " then " << text_of(of_second) << ", rank " << comm.rank() << ", "
            << p.name;
      }
    });
}

}  // namespace
}  // namespace gradus
