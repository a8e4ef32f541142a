#include "lessons/07_accumulation/mistakes.h"

#include <cmath>
#include <iostream>

#include "src/core/table.h"
#include "src/optim/optimizer.h"
#include "src/tensor/context.h"

namespace gradus {

using Flat = std::vector<double>;  // of all parameters, one after the other

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
static double distance(const Flat& x, const Flat& y) {
  Flat difference = x;
  add(difference, -1, y);
  return norm(difference) / norm(y);
}

enum class Masks { OfTheBatch, FromZero };  // dropout's: by the sequence's place in the batch, or in its part

// Of each micro-batch, the gradient of the mean over its own targets.
static std::vector<Flat> means_of(Transformer& model, const TextBatch& batch, const Split& split,
                                  Masks masks) {
  std::vector<Flat> means;
  int64_t first = 0;
  for (const int64_t n : split) {
    TextBatch micro = batch.part(first, n);
    if (masks == Masks::FromZero) micro.first_sample = 0;
    model.parameters.zero_grad();
    accumulate(model, micro, {n});
    means.push_back(gradient_of(model.parameters));
    first += n;
  }
  return means;
}

static Flat sum_of(const std::vector<Flat>& gradients, const std::vector<double>& weights) {
  Flat sum;
  for (size_t i = 0; i < gradients.size(); ++i) add(sum, weights[i], gradients[i]);
  return sum;
}

// Clipping after each backward pass clips the sum so far.
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

// What the weights moved by, if SGD makes an update after each micro-batch, as a gradient.
static Flat sum_of_updates(Transformer& model, const TextBatch& batch, const Split& split) {
  constexpr double kRate = 0.1;
  const Flat before = values_of(model.parameters);
  Sgd optimizer(model.parameters);
  int64_t first = 0;
  for (const int64_t n : split) {
    model.parameters.zero_grad();
    accumulate(model, batch.part(first, n), {n});
    optimizer.step(kRate);
    first += n;
  }
  Flat moved;
  add(moved, 1 / kRate, before);
  add(moved, -1 / kRate, values_of(model.parameters));
  return moved;
}

void mistakes_table(Transformer& model, const TextBatch& batch, const Split& split, Report& report) {
  model.parameters.zero_grad();
  accumulate(model, batch, {batch.sequences});
  const Flat right = gradient_of(model.parameters);
  std::vector<int64_t> counted;
  int64_t first = 0;
  for (const int64_t n : split) {
    counted.push_back(batch.part(first, n).counted());
    first += n;
  }
  const std::vector<Flat> means = means_of(model, batch, split, Masks::OfTheBatch);
  const std::vector<double> weights = weights_of_means(counted), ones(split.size(), 1.0),
                            equal(split.size(), 1 / double(split.size()));
  const double most = norm(right) / 2;
  Table table({"micro-batches put together as", "size", "off by"});
  const auto row = [&](const std::string& name, const Flat& g, const Flat& should_be, bool wrong = true) {
    const double off = distance(g, should_be);
    table.row({name, number_text(norm(g) / norm(should_be)), number_text(off)});
    if (wrong)
      report.check_at_least(name + ": seen", off, 0.02);
    else
      report.check_at_most(name + ": the batch's gradient", off, 1e-6);
  };
  row("means, weighted by their targets", sum_of(means, weights), right, false);
  row("not divided", sum_of(means, ones), right);
  row("mean of the means", sum_of(means, equal), right);
  row("clipped after each", sum_of_clipped(means, weights, most), sum_of_clipped({right}, {1.0}, most));
  row("dropout masks from 0 in each", sum_of(means_of(model, batch, split, Masks::FromZero), weights), right);
  row("an update after each", sum_of_updates(model, batch, split), right);
  std::cout << "\n(a) What the usual mistakes make of a gradient, beside the right one\n\n" << table;
}

}  // namespace gradus
