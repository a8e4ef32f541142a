#include "lessons/07_accumulation/mistakes.h"

#include <cmath>
#include <iostream>

#include "lessons/07_accumulation/ways.h"
#include "src/core/table.h"
#include "src/optim/optimizer.h"
#include "src/tensor/context.h"

namespace gradus {

using Flat = std::vector<double>;  // the values of all parameters, concatenated

static void append(Flat& all, const Tensor& x) {
  const std::vector<double> values = to_host<double>(x);
  all.insert(all.end(), values.begin(), values.end());
}
static Flat gradient_of(const Parameters& parameters) {
  Flat all;
  for (const Parameter& p : parameters) append(all, p.leaf.grad);
  return all;
}
static Flat values_of(const Parameters& parameters) {
  Flat all;
  for (const Parameter& p : parameters) append(all, p.value);
  return all;
}
static double norm(const Flat& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}
static void add(Flat& sum, double weight, const Flat& x) {
  sum.resize(x.size());
  for (size_t i = 0; i < x.size(); ++i) sum[i] += weight * x[i];
}

// A dropout mask belongs to a sequence, by its index in the whole batch or in its micro-batch.
enum class Masks { OfTheBatch, FromZero };

// For each micro-batch, the gradient of the mean over its own targets.
static std::vector<Flat> means_of(Transformer& model, const TextBatch& batch, const Split& split,
                                  Masks masks) {
  std::vector<Flat> means;
  for (TextBatch& micro : batch.parts(split)) {
    if (masks == Masks::FromZero) micro.first_sample = 0;
    model.parameters.zero_grad();
    accumulate(model, micro, {micro.sequences});
    means.push_back(gradient_of(model.parameters));
  }
  return means;
}

static Flat sum_of(const std::vector<Flat>& gradients, const std::vector<double>& weights) {
  Flat sum;
  for (size_t i = 0; i < gradients.size(); ++i) add(sum, weights[i], gradients[i]);
  return sum;
}

// Clips after each backward pass, so the sum of the gradients so far.
static Flat sum_of_clipped(const std::vector<Flat>& gradients, const std::vector<double>& weights,
                           double most) {
  Flat sum;
  for (size_t i = 0; i < gradients.size(); ++i) {
    add(sum, weights[i], gradients[i]);
    const double factor = std::min(1.0, most / norm(sum));
    for (double& v : sum) v *= factor;
  }
  return sum;
}

// If SGD makes an update after each micro-batch: the sum of the updates, divided by the learning rate.
static Flat sum_of_updates(Transformer& model, const TextBatch& batch, const Split& split) {
  constexpr double kRate = 0.1;
  const Flat before = values_of(model.parameters);
  Sgd optimizer(model.parameters);
  for (const TextBatch& micro : batch.parts(split)) {
    model.parameters.zero_grad();
    accumulate(model, micro, {micro.sequences});
    optimizer.step(kRate);
  }
  Flat moved;
  add(moved, 1 / kRate, before);
  add(moved, -1 / kRate, values_of(model.parameters));
  return moved;
}

static Flat gradient_at_once(Transformer& model, const TextBatch& batch) {
  model.parameters.zero_grad();
  accumulate(model, batch, {batch.sequences});
  return gradient_of(model.parameters);
}

void mistakes_table(Transformer& model, const TextBatch& batch, const TextBatch& even, Report& report) {
  const Split split{7, 1, 5, 3}, fours = even_split(even.sequences, 4);
  const Flat right = gradient_at_once(model, batch), right_even = gradient_at_once(model, even);
  std::vector<int64_t> counted;
  std::string counts;
  for (const TextBatch& micro : batch.parts(split)) {
    counted.push_back(micro.counted());
    counts += (counts.empty() ? "" : ", ") + std::to_string(counted.back());
  }
  const std::vector<double> weights = weights_of_means(counted), ones(4, 1.0), quarters(4, 0.25);
  const double most = norm(right) / 2;
  Table table({"gradients of micro-batches combined as", "norm / correct norm", "relative difference"});
  const auto row = [&](const std::string& name, const Flat& g, const Flat& should_be, bool wrong = true) {
    const double off = distance(g, should_be);
    table.row({name, number_text(norm(g) / norm(should_be)), number_text(off)});
    check_put_together(name, off, wrong, report);
  };
  const std::vector<Flat> means = means_of(model, batch, split, Masks::OfTheBatch);
  row("means weighted by targets", sum_of(means, weights), right, false);
  row("sum of the means, even batch in 4 x 4", sum_of(means_of(model, even, fours, Masks::OfTheBatch), ones),
      right_even);
  row("sum of the means", sum_of(means, ones), right);
  row("mean of the means", sum_of(means, quarters), right);
  row("weighted means, clipped after each micro-batch (compared with: clipped once)",
      sum_of_clipped(means, weights, most), sum_of_clipped({right}, {1.0}, most));
  row("weighted means, dropout masks numbered from 0 in each micro-batch",
      sum_of(means_of(model, batch, split, Masks::FromZero), weights), right);
  row("sum of one SGD update per micro-batch / learning rate", sum_of_updates(model, batch, split), right);
  std::cout << "\n(a) Gradient of a ragged batch, from micro-batches of 7, 1, 5 and 3 sequences with "
            << counts
            << " targets,\n    compared with the gradient of the whole batch; all rows except the first are "
               "mistakes\n\n"
            << table;
}

void check_put_together(const std::string& name, double off, bool wrong, Report& report) {
  if (wrong)
    report.check_at_least(name + ": relative difference of the gradient", off, 0.02);
  else
    report.check_at_most(name + ": relative difference of the gradient", off, 1e-6);
}

enum class Divided { Yes, No };
static double last_loss(const Lesson& lesson, const TransformerConfig& config, const Loader& loader,
                        int64_t sequences, double sgd_rate, double max_norm, Divided divided) {
  LessonContext context(lesson);
  Transformer model(config);
  model.initialize(lesson.seed);
  std::unique_ptr<Optimizer> optimizer = std::make_unique<Sgd>(model.parameters);
  if (sgd_rate == 0) optimizer = std::make_unique<AdamW>(model.parameters);
  double loss = 0;
  for (int64_t step = 0; step < lesson.steps; ++step) {
    const TextBatch batch = read_batch(loader, step, sequences, config.context, false);
    model.parameters.zero_grad();
    const Split fours = even_split(sequences, 4);
    if (divided == Divided::Yes) {
      loss = accumulate(model, batch, fours).loss;
    } else {
      loss = 0;
      for (const TextBatch& micro : batch.parts(fours))  // divided by its own targets only
        loss += accumulate(model, micro, {micro.sequences}).loss / 4;
    }
    optimizer->clip_grad_norm(max_norm);
    optimizer->step(sgd_rate == 0 ? 1e-3 : sgd_rate);
  }
  return loss;
}

void symptoms_table(const Lesson& lesson, const TransformerConfig& model, const Loader& loader, int64_t batch,
                    Report& report) {
  constexpr double kNever = 0;  // the norm to which gradients are clipped: none
  Table table({"optimizer", "correct gradient", "sum of the means"});
  const auto row = [&](const char* name, double sgd_rate, double max_norm) {
    const auto loss = [&](Divided d) {
      return last_loss(lesson, model, loader, batch, sgd_rate, max_norm, d);
    };
    const double right = loss(Divided::Yes), wrong = loss(Divided::No);
    table.row({name, number_text(right), number_text(wrong)});
    return LastLosses{right, wrong};
  };
  const LastLosses sgd = row("SGD, learning rate 0.2", 0.2, kNever);
  row("SGD, learning rate 0.2, clipped to norm 1", 0.2, 1);
  const LastLosses adamw = row("AdamW, learning rate 0.001, not clipped", 0, kNever);
  std::cout << "\n(b) Last loss of 4 x 4 with the correct gradient and with the sum of the means;\n"
               "    nan: the loss has overflowed, and the check counts it as infinite\n\n"
            << table;
  check_symptoms(sgd, adamw, lesson.steps, report);
}

void check_symptoms(const LastLosses& sgd, const LastLosses& adamw, int64_t steps, Report& report) {
  const std::string skip = needs_steps(20, steps);
  const bool grew_out_of_range = std::isnan(sgd.not_divided) && !std::isnan(sgd.divided);
  report.check_at_least("SGD: last loss, sum of the means / correct gradient",
                        grew_out_of_range ? INFINITY : sgd.not_divided / sgd.divided, 1.2, skip);
  report.check_at_most("AdamW: last loss, relative difference of the sum of the means",
                       std::abs(adamw.not_divided / adamw.divided - 1), 0.05, skip);
}

}  // namespace gradus
