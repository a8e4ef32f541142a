#include "src/parallel/pipeline.h"

#include <algorithm>
#include <functional>

#include "src/tensor/context.h"
#include "src/tensor/profile_range.h"

namespace gradus {

namespace {

// Communication for one task.
struct Exchange {
  Comm& ranks;
  const Schedule& schedule;
  const Shape& shape;
  DType dtype;

  struct Input {
    Tensor x;
    std::unique_ptr<Work> work;
  };
  Input begin(const Task& task) const {
    const std::optional<Task> from = schedule.input_of(task);
    if (!from) return {};
    Tensor x(current().device, shape, dtype, Kind::Temporary, "pipeline input");
    return {x, ranks.recv(x, from->chunk % ranks.size(), int64_t(schedule.index(*from)))};
  }
  // Returns null if no task waits for y.
  std::unique_ptr<Work> send(const Task& task, const Tensor& y) const {
    const std::optional<Task> to = schedule.receiver_of(task);
    return to ? ranks.send(y, to->chunk % ranks.size(), int64_t(schedule.index(task))) : nullptr;
  }
};

}  // namespace

void run_schedule(Comm& ranks, const Schedule& schedule, const Shape& shape, DType dtype, PipelineWork& work,
                  std::vector<TaskUse>* uses) {
  check(schedule.ranks() == ranks.size(), "pipeline: a schedule for ", schedule.ranks(), " ranks; there are ",
        ranks.size());
  check(ranks.size() > 1 || schedule.chunks == 1, "pipeline: one rank with ", schedule.chunks,
        " chunks; it can have one only");
  const Exchange exchange{ranks, schedule, shape, dtype};
  const std::vector<Task>& list = schedule.of_rank[size_t(ranks.rank())];
  Meter& meter = current().device.meter();
  Exchange::Input next = list.empty() ? Exchange::Input{} : exchange.begin(list[0]);
  std::unique_ptr<Work> sending;
  for (size_t i = 0; i < list.size(); ++i) {
    const Task& task = list[i];
    Exchange::Input input = std::move(next);
    if (input.work) input.work->wait();
    next = i + 1 < list.size() ? exchange.begin(list[i + 1]) : Exchange::Input{};
    const int64_t before = meter.now().allocated();
    const double begin = ranks.seconds();
    if (uses) meter.reset_peak();
    Tensor y = task.pass == Pass::Forward ? work.forward(task.micro_batch, task.chunk, std::move(input.x))
                                          : work.backward(task.micro_batch, task.chunk, std::move(input.x));
    if (uses)
      uses->push_back({task, before, meter.at_peak().allocated() - before, 0, ranks.seconds() - begin});
    if (sending) std::exchange(sending, nullptr)->wait();
    sending = exchange.send(task, y);
    y = {};
    if (uses) uses->back().kept = meter.now().allocated() - before;
  }
  if (sending) sending->wait();
}

ModelPart part_of_pipeline(const std::vector<int64_t>& ends, int64_t rank, int64_t ranks) {
  const auto chunks = int64_t(ends.size());
  check(ranks >= 1 && rank >= 0 && rank < ranks && chunks >= ranks && chunks % ranks == 0,
        "pipeline: ", chunks, " chunks for rank ", rank, " of ", ranks,
        "; every rank needs the same number of chunks, at least one");
  check(ends[0] > 0 && std::adjacent_find(ends.begin(), ends.end(), std::greater_equal<>()) == ends.end(),
        "pipeline: the ends of the chunks must increase; each chunk has at least one block");
  ModelPart part{.ranges = {}, .embedding = rank == 0, .head = rank == ranks - 1};
  for (int64_t c = rank; c < chunks; c += ranks)
    part.ranges.push_back({c == 0 ? 0 : ends[size_t(c - 1)], ends[size_t(c)]});
  return part;
}

Pipeline::Pipeline(Comm& ranks, Transformer& model) : ranks_(ranks), model_(model) {
  const TransformerConfig& c = model.config;
  check(model.part.embedding == first() && model.part.head == last(), "pipeline: rank ", ranks.rank(), " of ",
        ranks.size(), " has the wrong part of the model; see part_of_pipeline");
  const std::vector<BlockRange>& own = model.part.ranges;
  check((!first() || own.front().first == 0) && (!last() || own.back().end == c.layers), "pipeline: rank ",
        ranks.rank(), " has blocks ", own.front().first, " to ", own.back().end, " of ", c.layers,
        "; the first rank begins with block 0, and the last rank ends with the last block");
  check(c.token_types == 0 && c.output_head != OutputHead::Pooled,
        "pipeline: the model has token types or a pooled head; it must be like GPT-2 or GPT-NeoX");
  check(c.experts == 0 || c.balance == 0, "pipeline: the loss is computed on the last rank, but the balance ",
        "loss needs the routers' logits, which are on all ranks; set balance to 0");
  if (ranks.size() == 1 || c.output_head != OutputHead::Tied) return;
  ends_ = ranks.split("pipeline ends", first() || last() ? 0 : 1);
  if (last()) model.parameters.find("wte.weight").counted = false;
}

Pipeline::~Pipeline() {
  if (ends_ && last()) model_.parameters.find("wte.weight").counted = true;
}

double Pipeline::run(const Schedule& schedule, const std::vector<TextBatch>& micro_batches, int64_t targets) {
  const Timeline played = play(schedule, std::vector<ChunkTimes>(size_t(schedule.chunks)));
  check(played.problem.empty(), "pipeline: ", played.problem);
  check(schedule.micro_batches == int64_t(micro_batches.size()), "pipeline: ", micro_batches.size(),
        " micro-batches; the schedule has ", schedule.micro_batches);
  check(schedule.chunks == ranks_.size() * int64_t(model_.part.ranges.size()), "pipeline: the schedule has ",
        schedule.chunks, " chunks, the model ", model_.part.ranges.size(), " on each of ", ranks_.size(),
        " ranks");
  const int64_t B = micro_batches[0].sequences, T = micro_batches[0].T;
  for (const TextBatch& b : micro_batches)
    check(b.sequences == B && b.T == T, "pipeline: micro-batches of ", b.sequences, " x ", b.T, " and ", B,
          " x ", T, " tokens; all must have the same shape");
  struct Ends {  // cleans up also after an error, so that no tape goes on recording
    Pipeline& pipeline;
    ~Ends() {
      pipeline.in_flight_.clear(), pipeline.losses_.clear(), pipeline.batches_ = nullptr;
      current().first_sample = 0;
    }
  } const ends{*this};
  batches_ = &micro_batches;
  targets_ =
      from_host<float>(current().device, {float(targets)}, {}, DType::F32, Kind::Data, "targets of all");
  const Shape between{B, T / model_.ends->token_parts, model_.config.channels};
  run_schedule(ranks_, schedule, between, model_.config.precision.value, *this, uses);
  double loss = 0;
  for (const Tensor& l : losses_) loss += item(l);
  return loss;
}

Tensor Pipeline::forward(int64_t micro_batch, int64_t chunk, Tensor x) {
  const ProfileRange range("forward");
  const TextBatch& batch = (*batches_)[size_t(micro_batch)];
  InFlight& flight = in_flight_[{micro_batch, chunk}];
  flight.tape = std::make_unique<Tape>();
  current().first_sample = batch.first_sample;
  Tensor y = std::move(x);
  if (y.defined())
    attach(y, flight.input, "pipeline input");
  else
    y = model_.embed(on_device(batch.ids, batch.T, "inputs"));
  y = model_.through_blocks(y, size_t(chunk / ranks_.size()));
  const bool is_last = last() && chunk / ranks_.size() == int64_t(model_.part.ranges.size()) - 1;
  if (is_last)
    y = losses_.emplace_back(model_.head_loss(y, on_device(batch.targets, batch.T, "targets"), targets_));
  flight.output = {y.slot, y.shape(), y.dtype()};  // not y: backward does not need its numbers
  return y;
}

Tensor Pipeline::backward(int64_t micro_batch, int64_t chunk, Tensor dy) {
  const auto at = in_flight_.find({micro_batch, chunk});
  InFlight& flight = at->second;
  // If no parameter up to here trains, no gradient is wanted.
  if (flight.output.slot.wanted()) flight.tape->backward(flight.output, std::move(dy));
  const Tensor dx = flight.input.grad;
  in_flight_.erase(at);
  return dx;
}

void Pipeline::sum_tied_gradients() {
  // BEGIN SOLUTION 20.4
  if (ends_ && (first() || last())) ends_->all_reduce(model_.parameters.find("wte.weight").leaf.grad)->wait();
  // STUB: todo("20.4", "the first and the last rank each have a gradient of the same embedding: sum them");
  // END SOLUTION 20.4
}

}  // namespace gradus
