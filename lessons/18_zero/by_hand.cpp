#include "lessons/18_zero/by_hand.h"

#include <bit>
#include <cmath>

#include "lessons/18_zero/step.h"
#include "src/core/table.h"
#include "src/ops/ops.h"
#include "src/optim/optimizer.h"
#include "src/parallel/comm/cluster.h"

namespace gradus {

constexpr int64_t kFourRanks = 4;

void shards_by_hand(std::ostream& out) {
  constexpr int64_t kNumel = 8, kShown = 1;
  out << "8 parameters on 4 ranks: the elements that rank 1 keeps. Bytes per parameter: weight 2, gradient 2,"
         "\nmaster copy and AdamW's states 12\n\n";
  Table table({"stage", "weights", "gradients", "states", "bytes on rank 1", "bytes on all ranks"});
  for (const int stage : {0, 1, 2, 3}) {
    Part part{0, kNumel};
    int64_t mine = 0, all = 0;
    run_cluster({.ranks = kFourRanks, .device = "meta"}, [&](Comm& comm) {
      Parameters parameters(Allocate::Later);
      parameters.add("w", {kNumel}, precision_recipe("zero"));
      Zero zero(comm, parameters, {.stage = stage});
      const AdamW optimizer(zero.shards);
      const int64_t bytes = state_bytes(current().device.meter().now());
      all += bytes;
      if (comm.rank() != kShown) return;
      mine = bytes;
      if (const auto& shard = zero.shards.begin()->shard) part = {shard->first, shard->count};
    });
    const std::string whole = "0 to 7",
                      own = std::to_string(part.begin) + " to " + std::to_string(part.begin + part.count - 1);
    table.row({std::to_string(stage), stage >= 3 ? own : whole, stage >= 2 ? own : whole, own,
               std::to_string(mine), std::to_string(all)});
  }
  out << table << "\n";
}

constexpr int64_t kUnits = 3, kWidths[kUnits + 1] = {2, 2, 4, 4};  // units of 4, 8 and 16 elements

static void step_of_units(Comm& comm, const ZeroArgs& args, int64_t& most_gathered) {
  Parameters input, layers(Allocate::Later);
  Tensor y = input.add("x", {4, kWidths[0]}, {}).value;  // it trains, so the first layer needs dx, too
  for (int64_t u = 0; u < kUnits; ++u) layers.add(std::to_string(u), {kWidths[u + 1], kWidths[u]}, {});
  Zero zero(comm, layers, args);
  Tape tape;
  for (const Parameter& p : layers) y = linear(y, p.value, {});
  zero.end_forward();
  tape.backward(y, empty_like(y, "dy"));
  zero.end_backward();
  most_gathered = zero.most_gathered();
}

UnitTimeline unit_timeline(bool prefetch, bool keep_gathered) {
  UnitTimeline timeline;
  const auto unit = [](const Parameter& p) { return p.name; };
  const ZeroArgs zero{.unit = unit, .overlap = prefetch, .keep_gathered = keep_gathered};
  ClusterArgs args{.ranks = kFourRanks, .device = "meta", .network = {"", "", {1.0 / (kFourRanks - 1)}}};
  args.keep_timeline = true;
  args.computed = [](auto, Context& c) { return c.device.meter().totals(OpClass::Contraction).calls; };
  const ClusterRun run =
      run_cluster(args, [&](Comm& comm) { step_of_units(comm, zero, timeline.most_gathered); });
  timeline.units.assign(kUnits, std::string(size_t(std::llround(run.seconds[0])), '.'));
  int64_t products = 0;  // so far, forward and then backward
  for (const Span& s : run.timeline)
    for (int64_t t = std::llround(s.begin); s.rank == 0 && t < std::llround(s.end); ++t) {
      const bool forward = products < kUnits;
      int64_t u = forward ? products : kUnits - 1 - (products - kUnits) / 2;
      if (s.communicates)  // "all_gather of 4 fp32" is for the first unit
        u = std::bit_width(std::stoull(s.name.substr(s.name.find(" of ") + 4))) - 3;
      timeline.units[size_t(u)][size_t(t)] = s.communicates ? (s.name[0] == 'a' ? 'G' : 'R')
                                             : forward      ? 'F'
                                                            : 'B';
      products += !s.communicates;
    }
  for (std::string& line : timeline.units)  // weights stay in memory from their all-gather to their last use
    for (size_t t = 0, last = 0; t < line.size(); ++t) {
      if (line[t] == 'F' || line[t] == 'B') line.replace(last + 1, t - last - 1, t - last - 1, '-');
      if (line[t] != '.') last = t;
    }
  return timeline;
}

void print_unit_timelines(std::ostream& out) {
  const UnitTimeline runs[] = {unit_timeline(false, false), unit_timeline(true, false),
                               unit_timeline(true, true)};
  out << "Stage 3; units: three layers of 4, 8 and 16 weights in fp32. One letter per time step.\n"
         "G: all-gather of the weights, F: forward, B: backward (gradient of the weight or of the input),\n"
         "R: reduce-scatter of the gradients, -: weights kept, .: weights dropped\n\n";
  Table table({"", "no prefetch", "prefetch", "prefetch, kept until backward (SHARD_GRAD_OP)"});
  for (size_t u = 0; u < size_t(kUnits); ++u)
    table.row({"unit " + std::to_string(u + 1), runs[0].units[u], runs[1].units[u], runs[2].units[u]});
  std::vector<std::string> time{"time steps"}, bytes{"largest gathered, bytes"};
  for (const UnitTimeline& t : runs)
    time.push_back(std::to_string(t.units[0].size())), bytes.push_back(std::to_string(t.most_gathered));
  table.row(time), table.row(bytes), out << table;
}

}  // namespace gradus
