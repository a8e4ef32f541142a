#include "lessons/18_zero/units.h"

#include <deque>
#include <iostream>

#include "lessons/18_zero/step.h"
#include "src/core/table.h"
#include "src/nn/layers.h"
#include "src/parallel/comm/cluster.h"

namespace gradus {

constexpr int64_t kRanks = 4, kWidth = 64;

static std::string layer_of(const Parameter& p) { return p.name.substr(0, p.name.find('.')); }

static UnitsRun hundred_layers(const std::string& name, const ZeroArgs& args, int64_t at_once) {
  UnitsRun ran{name, 0, at_once, 0};
  run_cluster({.ranks = kRanks, .device = "meta"}, [&](Comm& comm) {
    Parameters parameters(Allocate::Later);
    std::deque<Linear> layers;
    for (int64_t i = 0; i < kUnitLayers; ++i)
      layers.emplace_back(parameters, std::to_string(i), kWidth, kWidth);
    Zero zero(comm, parameters, args);
    Tape tape;
    Tensor x(current().device, {8, kWidth}, DType::F32, Kind::Data, "x");
    for (const Linear& layer : layers) x = layer(x);
    zero.end_forward();
    tape.backward(x, empty_like(x, "dy"));
    zero.end_backward();
    ran.gathered = zero.most_gathered();
    ran.sent = double(comm.sent().elements) / double(zero.numel() / kRanks * (kRanks - 1));
  });
  return ran;
}

std::vector<UnitsRun> run_units() {
  return {hundred_layers("one unit", {}, kUnitLayers),
          hundred_layers("a unit per layer", {.unit = layer_of}, 1),
          hundred_layers("a unit per layer, prefetch", {.unit = layer_of, .overlap = true}, 2),
          hundred_layers("a unit per layer, SHARD_GRAD_OP", {.unit = layer_of, .keep_gathered = true},
                         kUnitLayers)};
}

void units_table(const std::vector<UnitsRun>& runs, Report& report) {
  std::cout << "\n(c) A hundred linear layers in stage 3; SHARD_GRAD_OP keeps weights until backward\n";
  Table table({"units", "largest gathered at once", "share of the model", "elements sent, Psi (N-1)/N"});
  for (const UnitsRun& r : runs) {
    table.row({r.name, bytes_text(r.gathered),
               percent_text(double(r.gathered) / double(kUnitLayers * kLayerBytes)), number_text(r.sent)});
    report.check_equal("(c) " + r.name + ": bytes gathered at once", r.gathered, r.layers * kLayerBytes);
  }
  std::cout << table;
}

}  // namespace gradus
