#include "lessons/19_tensor_parallel/layer.h"

#include <iostream>

#include "src/core/table.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/parallel/comm/cluster.h"
#include "src/train/dummy.h"

namespace gradus {

static LayerUse use_of_layers(const LayerSetting& set, int64_t layers) {
  TransformerConfig c{.vocab = 512, .context = set.s, .layers = layers, .heads = set.a, .channels = set.h};
  c.dropout = 0.1, c.precision = precision_recipe("zero");
  LayerUse use;
  run_cluster({.ranks = set.t, .device = "meta"}, [&](Comm& comm) {
    Transformer model(c, Allocate::Later);
    TensorParallel ranks(comm, model, set.sequence);
    if (set.selective) model.segments.assign(size_t(layers), {1, Keep::LessAttention});
    const DummyBatch batch = dummy_batch(c, set.b, set.s);
    Tape tape;
    const Tensor loss = batch.loss(model);
    const int64_t kept = current().device.meter().now()[Kind::Activation];
    tape.backward(loss);
    if (comm.rank() == 0) use = {kept, comm.sent().elements, comm.sent().messages};
  });
  return use;
}

LayerUse measure_layer(const LayerSetting& set) {
  const LayerUse one = use_of_layers(set, 1), two = use_of_layers(set, 2);
  return {two.bytes - one.bytes, two.elements - one.elements, two.messages - one.messages};
}

int64_t published_bytes(const LayerSetting& set) {
  const auto [b, s, h, a, t, sequence, selective] = set;
  const int64_t sbh = s * b * h;
  const int64_t same = sequence == Sequence::Whole ? 10 : sequence == Sequence::KeepGathered ? 4 : 0;
  return same * sbh + (34 - same) * sbh / t + (selective ? 0 : 5 * a * s * s * b / t);
}

int64_t not_saved_here(const LayerSetting& set) {
  const auto [b, s, h, a, t, sequence, selective] = set;
  const int64_t tokens = s * b / (sequence == Sequence::Whole ? 1 : t);
  return 2 * tokens * h + (selective ? 0 : 3 * a * s * s * b / t) - 16 * tokens;
}

int64_t predicted_elements(const LayerSetting& set) {
  // BEGIN SOLUTION 19.1
  const int64_t collectives = set.sequence == Sequence::GatherAgain ? 10 : 8;  // an all-reduce is two
  return collectives * (set.b * set.s * set.h / set.t) * (set.t - 1);
  // STUB: todo("19.1", "the elements that a rank sends per layer in both passes", set);
  // END SOLUTION 19.1
}

void layer_table(const std::string& picture, Report& report, LayerUse (*measure)(const LayerSetting&)) {
  std::cout << "\n(a) One layer of the 22B model of Korthikanti et al. 2023, 16 bits, on 8 ranks (b 4, "
               "s 2,048, h 6,144, a 64):\n    bytes saved, elements and messages sent in a step, per rank\n";
  Table table({"parallelism", "paper's count", "omitted by gradus", "measured", "elements sent", "messages"});
  BarChart chart{"MiB of activations per rank, layer of 22B model", {}, {"same on all 8 ranks", "sharded"}};
  int64_t wrong_bytes = 0, wrong_elements = 0, rows = 0, nothing_shared[2] = {};
  for (const auto& [name, sequence, t] :
       {std::tuple("none", Sequence::Whole, 1),
        {"tensor parallel", Sequence::Whole, 8},
        {"tensor + sequence parallel", Sequence::KeepGathered, 8},
        {"tensor + sequence parallel, gathered again", Sequence::GatherAgain, 8}})
    for (const bool selective : {false, true}) {
      const LayerSetting set{4, 2048, 6144, 64, t, sequence, selective};
      const LayerUse use = measure(set);
      const std::string row_name = std::string(name) + (selective ? ", selective recomputation" : "");
      wrong_bytes += use.bytes != published_bytes(set) - not_saved_here(set);
      wrong_elements += use.elements != predicted_elements(set);
      ++rows;
      int64_t& alone = nothing_shared[selective];
      if (t == 1) alone = use.bytes;
      // A rank saves same + own / t bytes; one that divides nothing saves same + own.
      const double mib = 1 << 20, all = double(use.bytes) / mib,
                   same = double(t * use.bytes - alone) / 7 / mib;
      if (t > 1) chart.bars.push_back({row_name, all, number_text(all), {same, all - same}});
      table.row({row_name, bytes_text(published_bytes(set)), bytes_text(not_saved_here(set)),
                 bytes_text(use.bytes), std::to_string(use.elements), std::to_string(use.messages)});
    }
  std::cout << table;
  write_file(picture, draw(chart));
  const std::string of = ", of " + std::to_string(rows);
  report.check_equal("(a) rows where measured differs from paper's count - omitted" + of, wrong_bytes, 0);
  report.check_equal("(a) rows whose elements sent differ from the prediction" + of, wrong_elements, 0);
}

}  // namespace gradus
