#include "lessons/22_scoreboard/trainer.h"

#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/core/input_file.h"
#include "src/core/progress.h"
#include "src/io/atomic_file.h"
#include "src/parallel/sharded_file.h"
#include "src/parallel/shards.h"
#include "src/train/chains.h"

namespace gradus {

Text text_of(const TrainSettings& s) {
  return s.data.ends_with(".grammar") ? generated_text(s.data, s.text_bytes, uint64_t(s.seed))
                                      : load_text(s.data, s.text_bytes, uint64_t(s.seed));
}

Training::Training(const TrainSettings& s, const Text& text, Comm* ranks)
    : settings(s),
      ranks(ranks),
      loader(text.corpus, config_of(s).context, uint64_t(s.seed)),
      trained(trained_model(s, ranks)),
      optimizer(optimizer_of(s, trained->own())) {
  check(s.calls == "each" || s.micro_batches == 1, "--calls=", s.calls,
        ": a captured step has one micro-batch");
  start_scaling(s);
}

double Training::step() {
  const TrainSettings& s = settings;
  const int64_t T = trained->model().config.context;
  if (!batches_) {
    const auto make = [this, T, first = steps_](int64_t i, int64_t, TextBatch& batch) {
      const auto n = size_t(settings.batch * T);
      batch = {settings.batch, T, std::vector<int32_t>(n), std::vector<int32_t>(n)};
      loader.train_windows(first + i, 0, settings.batch, batch.ids.data(), batch.targets.data());
    };
    batches_ =
        std::make_unique<Prefetch<TextBatch>>(s.workers, std::vector<TextBatch>(size_t(s.workers) + 1), make);
  }
  const TextBatch& batch = batches_->take();
  const double rate = warmup_cosine(steps_, s.warmup, s.steps, s.learning_rate, s.last_rate);
  ++steps_;
  if (s.empty_every > 0 && steps_ % s.empty_every == 0) current().device.allocator().empty_cache();
  if (s.calls != "each") return replayed_step(batch, rate);
  const double loss = trained->add_gradients(batch);
  optimizer->clip_grad_norm(s.clip);
  optimizer->step(rate);
  return loss;
}

// The same step as a captured step, which records its kernel calls and later replays them (lesson 16).
double Training::replayed_step(const TextBatch& batch, double learning_rate) {
  Device& device = current().device;
  if (!replay_) {
    replay_.reset(new Replay{on_device(batch.ids, batch.T, "inputs"),
                             on_device(batch.targets, batch.T, "targets"),
                             {},
                             {},
                             {"build/chains", RunTimeCompiler::built_with(device.name())}});
  }
  Replay& r = *replay_;
  device.copy_in(r.inputs.set().p, batch.ids.data(), r.inputs.bytes());
  device.copy_in(r.targets.set().p, batch.targets.data(), r.targets.bytes());
  if (settings.calls == "compiled" && r.captured.replays() && !r.fused)
    fuse_chains(r.captured, r.compiler), r.fused = true;
  optimizer->set_learning_rate(learning_rate);
  r.captured.run({r.inputs, r.targets}, [&] {
    r.loss = {};
    for (const TransformerBlock& b : trained->model().blocks) b.routed = {};
    trained->own().zero_grad();
    Tape tape;
    r.loss = trained->model().loss(r.inputs, r.targets);
    tape.backward(r.loss);
    optimizer->clip_grad_norm(settings.clip);
    optimizer->step();
  });
  return item(r.loss);
}

double Training::held_out() {
  return held_out_loss(trained->model(), loader, even_split(settings.batch, settings.micro_batches).front());
}

void Training::save(const std::string& path) const {
  const Metadata metadata{{"settings", settings.used}, {"steps", std::to_string(steps_)}};
  if (ranks)
    save_sharded(path, *ranks, trained->own(), *optimizer, metadata);
  else
    save_training(path, trained->own(), *optimizer, metadata);
}

void Training::load(const std::string& path) {
  const Metadata metadata = ranks ? load_sharded(path, *ranks, trained->own(), *optimizer)
                                  : load_training(path, trained->own(), *optimizer);
  const std::string steps = metadata.contains("steps") ? metadata.at("steps") : "";
  const auto [end, error] = std::from_chars(steps.data(), steps.data() + steps.size(), steps_);
  check(error == std::errc() && *end == 0 && steps_ >= 0, path, ": '", steps, "' is not a number of steps");
  batches_ = nullptr;  // they are those of earlier steps
}

static volatile std::sig_atomic_t signal_received = 0;

StopSignals::StopSignals() {
  signal_received = 0;
  struct sigaction action {};
  action.sa_handler = [](int number) {
    signal_received = number;
    for (const int s : {SIGINT, SIGTERM}) std::signal(s, SIG_DFL);
  };
  action.sa_flags = SA_RESTART;
  for (const int s : {SIGINT, SIGTERM}) sigaction(s, &action, nullptr);
}
StopSignals::~StopSignals() {
  for (const int s : {SIGINT, SIGTERM}) std::signal(s, SIG_DFL);
}
int StopSignals::received() { return signal_received; }

// Keeps the lines of the first `steps` steps, so the curve of a resumed run has one line per step.
static std::ofstream open_curve(const std::string& path, int64_t steps) {
  std::string kept;
  if (steps > 0 && std::filesystem::exists(path)) {
    std::istringstream lines(read_text_file(path));
    std::string line;
    for (int64_t i = 0; i < steps && std::getline(lines, line); ++i) kept += line + "\n";
  }
  write_file(path, kept);
  return std::ofstream(path, std::ios::app);
}

StepRecorder train(Training& training, const TrainFiles& files) {
  const int64_t last = training.settings.steps;
  std::ofstream curve;
  const bool writes = !training.ranks || training.ranks->rank() == 0;
  StepRecorder recorder;
  Progress progress("training", last);
  bool stopped = false;
  while (training.steps() < last && !stopped) {
    recorder.begin();
    const double loss = training.step();
    recorder.end(loss);
    if (writes) progress.step(training.steps(), loss);
    if (writes && !files.curve.empty()) {
      if (!curve.is_open()) curve = open_curve(files.curve, training.steps() - 1);
      curve << json_text({{"step", training.steps()}, {"loss", loss}, {"seconds", recorder.seconds.back()}})
            << std::endl;
      check(curve.good(), files.curve, " cannot be written; is the disk full?");
    }
    // All ranks end after the same step, so each must know whether any rank has received a signal.
    const auto signal = double(StopSignals::received());
    stopped = (training.ranks ? sum_over_ranks(*training.ranks, signal) : signal) != 0;
    const bool due = training.steps() % files.save_every == 0 || training.steps() == last || stopped;
    if (due && !files.save.empty()) training.save(files.save);
  }
  return recorder;
}

}  // namespace gradus
