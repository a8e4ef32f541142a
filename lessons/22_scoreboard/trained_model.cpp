#include "lessons/22_scoreboard/trained_model.h"

#include <numeric>

#include "src/optim/adamw_8bit.h"
#include "src/parallel/shards.h"
#include "src/tensor/context.h"

namespace gradus {

namespace {

struct OnOneDevice : TrainedModel {
  explicit OnOneDevice(const TrainSettings& s) : settings(s), whole(config_of(s)) { prepare(whole, s); }
  Transformer& model() override { return whole; }
  Parameters& own() override { return whole.parameters; }
  double add_gradients(const TextBatch& batch) override {
    whole.parameters.zero_grad();
    return accumulate(whole, batch, even_split(batch.sequences, settings.micro_batches)).loss;
  }
  const TrainSettings settings;
  Transformer whole;
};

// Every rank has its own sequences, and shards of states, gradients and weights according to ZeRO's stage.
struct OnDataRanks : TrainedModel {
  OnDataRanks(const TrainSettings& s, Comm& comm)
      : settings(s),
        comm(comm),
        whole(config_of(s), Allocate::Later),
        zero(comm, whole.parameters,
             {.stage = int(s.zero),
              .unit = unit_per_block,
              .align = s.optimizer == "adamw8bit" ? kStateBlock : 1}) {
    prepare(whole, s, [this](Parameter& p, const auto& values) { zero.assign(p, values); });
  }
  Transformer& model() override { return whole; }
  Parameters& own() override { return zero.shards; }

  double add_gradients(const TextBatch& batch) override {
    const Split shares = even_split(batch.sequences, comm.size());
    const int64_t mine = shares[size_t(comm.rank())],
                  first = std::accumulate(shares.begin(), shares.begin() + comm.rank(), int64_t(0));
    const std::vector<TextBatch> parts =
        batch.part(first, mine).parts(even_split(mine, settings.micro_batches));
    const auto count = float(batch.counted());
    whole.parameters.zero_grad();
    double loss = 0;
    for (const TextBatch& part : parts) {
      zero.last_micro_batch = &part == &parts.back();
      current().first_sample = part.first_sample;
      Tape tape;
      const Tensor share = whole.loss(
          on_device(part.ids, part.T, "inputs"), on_device(part.targets, part.T, "targets"), {},
          from_host<float>(current().device, {count}, {}, DType::F32, Kind::Data, "targets of all ranks"));
      zero.end_forward();
      loss += item(share);
      tape.backward(share);
      zero.end_backward();
    }
    current().first_sample = 0;
    return sum_over_ranks(comm, loss);
  }
  const TrainSettings settings;
  Comm& comm;
  Transformer whole;
  Zero zero;
};

struct InLayout : TrainedModel {
  InLayout(const TrainSettings& s, Comm& comm)
      : settings(s),
        rank(comm, s.layout, config_of(s), even_cuts(config_of(s).layers, s.layout.pipeline * s.chunks),
             s.tokens == "parts"   ? Sequence::KeepGathered
             : s.tokens == "again" ? Sequence::GatherAgain
                                   : Sequence::Whole),
        schedule(interleaved(s.layout.pipeline, s.micro_batches, s.chunks)) {
    prepare(rank.model, s, [this](Parameter& p, const auto& values) { rank.zero.assign(p, values); });
  }
  Transformer& model() override { return rank.model; }
  Parameters& own() override { return rank.zero.shards; }
  double add_gradients(const TextBatch& batch) override {
    rank.model.parameters.zero_grad();
    return rank.run(schedule, rank.micro_batches(batch, settings.micro_batches), batch.counted());
  }
  const TrainSettings settings;
  RankModel rank;
  const Schedule schedule;
};

}  // namespace

std::unique_ptr<TrainedModel> trained_model(const TrainSettings& s, Comm* ranks) {
  if (!ranks) return std::make_unique<OnOneDevice>(s);
  check(s.lora == 0 && s.frozen == "kept" && s.weights.empty(),
        "--lora, --frozen and --weights are for one device only; use --ranks=1");
  check(s.calls == "each", "--calls=", s.calls, ": a step that waits for other ranks cannot be captured");
  if (s.layout.data == ranks->size()) return std::make_unique<OnDataRanks>(s, *ranks);
  check(s.zero == 1, "--zero=", s.zero, ": with tensor, context or pipeline ranks the stage must be 1");
  return std::make_unique<InLayout>(s, *ranks);
}

}  // namespace gradus
