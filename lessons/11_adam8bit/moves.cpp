#include "lessons/11_adam8bit/moves.h"

#include <cmath>
#include <iostream>

#include "src/core/larger.h"
#include "src/core/rng.h"
#include "src/core/table.h"
#include "src/optim/adamw_8bit.h"

namespace gradus {

constexpr double kFar = 8, kRate = 1e-3;
constexpr int64_t kVocabulary = 1000;

double move_without_gradient(double m, double v, int64_t n, const AdamWArgs& args) {
  // BEGIN SOLUTION 11.7
  const double b1 = args.beta1, b2 = args.beta2, updates = double(n + 1);
  const double mean = b1 * m / (1 - std::pow(b1, updates)), square = b2 * v / (1 - std::pow(b2, updates));
  return std::abs(mean) / (std::sqrt(square) + double(args.eps));
  // STUB: todo("11.7", "decay m and v, then AdamW's step without the learning rate", m, v, n, args);
  // END SOLUTION 11.7
}

void Moved::add(const std::vector<float>& before, const std::vector<float>& after, double learning_rate) {
  for (size_t i = 0; i < before.size(); ++i) {
    const double move = std::abs(double(after[i]) - double(before[i])) / learning_rate;
    largest = larger(largest, move), far += !(move <= kFar), ++all;
  }
}

TextBatch zipf_batch(int64_t sequences, int64_t T, int64_t vocab, uint64_t seed, int64_t step) {
  Rng rng(seed, uint64_t(step));
  const auto drawn = [&] { return int32_t(std::pow(double(vocab), rng.uniform())) - 1; };
  TextBatch batch{sequences, T, {}, {}};
  for (int64_t b = 0; b < sequences; ++b) {
    int32_t token = drawn();
    for (int64_t t = 0; t < T; ++t) {
      batch.ids.push_back(token);
      token = rng.uniform() < 0.5 ? int32_t((token * 31 + 7) % vocab) : drawn();
      batch.targets.push_back(token);
    }
  }
  return batch;
}

// m (0) or v (1) of a parameter, dequantized.
static std::vector<float> numbers_of(const Optimizer::State& s, size_t i) {
  if (s.tensors.size() == 2) return to_host<float>(s.tensors[i]);
  const Codebook codebook = dynamic_codebook(i == 0 ? Sign::Signed : Sign::Unsigned);
  const std::vector<float> scales = to_host<float>(s.tensors[i + 2]);
  std::vector<float> numbers;
  for (const int32_t code : to_host<int32_t>(s.tensors[i]))
    numbers.push_back(scales[numbers.size() / kStateBlock] * codebook.value[code]);
  return numbers;
}

static double largest_next_move(const Optimizer& optimizer, int64_t updates, double most) {
  for (const Optimizer::State& s : optimizer.states) {
    if (!AdamW8bit::is_for(*s.parameter)) continue;
    const std::vector<float> m = numbers_of(s, 0), v = numbers_of(s, 1);
    for (size_t i = 0; i < m.size(); ++i)
      most = larger(most, move_without_gradient(double(m[i]), double(v[i]), updates, kAdamArgs));
  }
  return most;
}

static std::vector<std::vector<float>> weights_of(const Optimizer& optimizer) {
  std::vector<std::vector<float>> weights;
  for (const Optimizer::State& s : optimizer.states)
    if (AdamW8bit::is_for(*s.parameter)) weights.push_back(to_host<float>(s.parameter->value));
  return weights;
}

static Moved moves_of(const Lesson& lesson, const RunSetting& setting, int64_t steps,
                      const AdamContender& contender) {
  const LessonContext context(lesson);
  TransformerConfig config = setting.model;
  config.vocab = kVocabulary, config.output_head = OutputHead::Untied;
  Transformer model(config);
  model.initialize(lesson.seed);
  const std::unique_ptr<Optimizer> optimizer = contender.make(model.parameters);
  Moved moved;
  moved.name = contender.name;
  std::vector<std::vector<float>> before = weights_of(*optimizer);
  for (int64_t step = 0; step < steps; ++step) {
    const TextBatch batch = zipf_batch(setting.batch, config.context, config.vocab, lesson.seed, step);
    model.parameters.zero_grad();
    moved.losses.push_back(accumulate(model, batch, even_split(setting.batch, 1)).loss);
    optimizer->step(kRate);
    const std::vector<std::vector<float>> after = weights_of(*optimizer);
    for (size_t i = 0; i < after.size(); ++i) moved.add(before[i], after[i], kRate);
    before = after;
    if (step < 10) moved.largest_next = largest_next_move(*optimizer, step + 1, moved.largest_next);
  }
  return moved;
}

std::vector<Moved> moves_of_all(const Lesson& lesson, const RunSetting& setting, int64_t steps) {
  std::vector<Moved> all;
  for (const AdamContender& c : {fp32_contender(), contender_of(state_formats()[3]),
                                 contender_of(state_formats()[4]), coded_contender()})
    all.push_back(moves_of(lesson, setting, steps, c));
  return all;
}

void moves_table(const std::vector<Moved>& all, Report& report) {
  Table table({"AdamW's states", "largest move", "moves above 8", "largest next move if the gradient is 0",
               "last loss"});
  for (const Moved& m : all)
    table.row({m.name, number_text(m.largest), count_text(m.far), number_text(m.largest_next),
               number_text(m.losses.back())});
  std::cout << "\n(c) A different run, with 1,000 tokens, most of them rare, and an untied output head: "
               "moves of single weights by an update, in learning rates\n\n"
            << table;
  const Moved &nearest = all[1], &rounded_up = all[2], &fused = all[3];
  if (int64_t(nearest.losses.size()) == kMovesSteps) {
    report.check_at_least(nearest.name + ": largest move, in learning rates", nearest.largest, 20);
    report.check_at_least(nearest.name + ": largest next move if the gradient is 0", nearest.largest_next,
                          20);
  }
  for (const Moved* m : {&rounded_up, &fused}) {
    report.check_at_most(m->name + ": largest move, in learning rates", m->largest, kFar);
    report.check_at_most(m->name + ": largest next move if the gradient is 0", m->largest_next, kFar);
  }
  int64_t differ = 0;
  for (size_t i = 0; i < fused.losses.size(); ++i) differ += fused.losses[i] != rounded_up.losses[i];
  report.check_equal("AdamW8bit: losses that differ bitwise from 'dynamic, v rounded up'", differ, 0);
}

}  // namespace gradus
