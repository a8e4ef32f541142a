#include "lessons/18_zero/units.h"

#include <deque>
#include <iostream>

#include "lessons/18_zero/step.h"
#include "src/core/table.h"
#include "src/dist/cluster.h"
#include "src/nn/layers.h"

namespace gradus {

constexpr int64_t kRanks = 4, kLayers = 100, kWidth = 64, kUnitBytes = (kWidth + 1) * kWidth * 4;

static std::string layer_of(const Parameter& p) { return p.name.substr(0, p.name.find('.')); }

// The most that is gathered, and what the elements that a rank sends are of Psi (N-1)/N.
static std::pair<int64_t, double> hundred_layers(const ZeroArgs& args) {
  int64_t most = 0;
  double sent = 0;
  run_cluster({.ranks = kRanks, .device = "meta"}, [&](Comm& comm) {
    Parameters parameters(Allocate::Later);
    std::deque<Linear> layers;
    for (int64_t i = 0; i < kLayers; ++i) layers.emplace_back(parameters, std::to_string(i), kWidth, kWidth);
    Zero zero(comm, parameters, args);
    Tape tape;
    Tensor x(current().device, {8, kWidth}, DType::F32, Kind::Data, "x");
    for (const Linear& layer : layers) x = layer(x);
    zero.end_forward();
    tape.backward(x, empty_like(x, "dy"));
    zero.end_backward();
    most = zero.most_gathered();
    sent = double(comm.traffic().elements) / double(zero.numel() / kRanks * (kRanks - 1));
  });
  return {most, sent};
}

void units_table(Report& report) {
  std::cout << "\n(c) A hundred linear layers in stage 3: weights gathered at once\n";
  Table table({"units", "gathered", "of all", "sent, Psi (N-1)/N"});
  const auto row = [&](const std::string& name, const ZeroArgs& args, int64_t units) {
    const auto [most, sent] = hundred_layers(args);
    table.row({name, bytes_text(most), percent_text(double(most) / double(kLayers * kUnitBytes)),
               number_text(sent)});
    report.check_equal("(c) " + name + ": bytes gathered at once", most, units * kUnitBytes);
  };
  row("one", {}, kLayers);
  row("one a layer", {.unit = layer_of}, 1);
  row("and the next fetched ahead", {.unit = layer_of, .overlap = true}, 2);
  row("kept for backward (SHARD_GRAD_OP)", {.unit = layer_of, .keep_gathered = true}, kLayers);
  std::cout << table;
}

}  // namespace gradus
