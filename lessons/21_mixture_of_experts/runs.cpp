#include "lessons/21_mixture_of_experts/runs.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "src/core/table.h"
#include "src/core/timing.h"
#include "src/io/atomic_file.h"
#include "src/io/plot.h"
#include "src/tensor/context.h"

namespace gradus {

MixtureSizes mixture_sizes(bool small) {
  const int64_t expert = small ? 16 : 32;  // width
  TransformerConfig dense{.vocab = 256,
                          .context = small ? 16 : 64,
                          .layers = small ? 1 : 2,
                          .heads = 4,
                          .channels = small ? 16 : 64,
                          .output_head = OutputHead::Untied,
                          .activation = swiglu,
                          .rotary = small ? 4 : 16,
                          .norm = NormKind::Rms,
                          .biases = false,
                          .kv_heads = 2};
  MixtureSizes sizes{dense, dense, dense};
  TransformerConfig& c = sizes.mixture;
  c.mlp_channels = expert, c.experts = 8, c.chosen = 2, c.capacity_factor = 1.25, c.balance = 0.01;
  sizes.dense_active.mlp_channels = c.chosen * expert;
  sizes.dense_total.mlp_channels = c.experts * expert;
  return sizes;
}

int64_t mixture_flops(const TransformerConfig& c, int64_t B, int64_t T) {
  const int64_t C = c.channels, hidden = c.hidden_channels(), D = C / c.heads;
  const int64_t attention = C * c.qkv_channels() + C * C, mlp = 3 * C * hidden;
  // Per sequence: weights times the rows that they are multiplied by.
  int64_t products = c.layers * attention * T + C * c.vocab * T;
  products +=
      c.layers * (c.experts > 0 ? C * c.experts * T + c.experts * c.expert_capacity(T) * mlp : mlp * T);
  const int64_t pairs = c.layers * c.heads * T * (T + 1) / 2;
  return B * (6 * products + 12 * D * pairs);
}

// The first evaluated step whose held-out loss is at most `loss`; NaN if there is none.
static double steps_to(double loss, const MixtureRun& run) {
  for (size_t i = 0; i < run.held_out.size(); ++i)
    if (run.held_out[i] <= loss) return run.held_out_at[i];
  return NAN;
}

// The held-out loss of the last evaluated step with at most `flops` until then; NaN if there is none.
static double loss_after(double flops, const MixtureRun& run) {
  double loss = NAN;
  for (size_t i = 0; i < run.held_out.size() && run.held_out_at[i] * double(run.flops) <= flops; ++i)
    loss = run.held_out[i];
  return loss;
}

std::string measured_text(double x) { return std::isnan(x) ? "-" : number_text(x); }

static void draw_runs(const std::vector<MixtureRun>& runs, const std::string& path) {
  LinePlot plot{.title = "Held-out loss, after the first third of the training",
                .x_label = "step",
                .y_label = "nats per byte",
                .series = {},
                .references = {}};
  for (const MixtureRun& run : runs) {
    const auto first = ptrdiff_t(run.held_out.size() / 3);
    plot.series.push_back({run.name,
                           {run.held_out_at.begin() + first, run.held_out_at.end()},
                           {run.held_out.begin() + first, run.held_out.end()},
                           Series::Marks::LineAndDots});
  }
  write_file(path, draw(plot));
  std::cout << "held-out losses: " << path << "\n";
}

void compare_runs(const std::vector<MixtureRun>& runs, int64_t batch, const std::string& plot,
                  Report& report) {
  const bool data = current().device.has_data();
  std::cout
      << "\n(a) A mixture of experts, and dense models without a router: one with its active parameters "
         "(those that one token uses), one with all\n"
         "loss after FLOPs of row 1: held-out loss of the last evaluated step with at most the FLOPs of the "
         "whole run of row 1\n"
         "steps to loss of row 1: first evaluated step with at most the final held-out loss of row 1; "
         "seconds: these steps times ms/step\n";
  Table table({"model", "parameters", "active", "MFLOP/step", "ms/step", "held-out loss",
               "loss after FLOPs of row 1", "steps to loss of row 1", "seconds to loss of row 1"});
  for (const MixtureRun& run : runs) {
    const int64_t T = run.model.context, flops = mixture_flops(run.model, batch, T);
    const double seconds = data ? summarize(run.seconds).median : NAN;
    const double loss = run.held_out.empty() ? NAN : run.held_out.back(),
                 steps = runs[0].held_out.empty() ? NAN : steps_to(runs[0].held_out.back(), run),
                 same_work = loss_after(double(runs[0].flops) * double(runs[0].losses.size()), run);
    table.row({run.name, count_text(run.model.parameter_count()),
               count_text(run.model.active_parameter_count()), number_text(double(run.flops) / 1e6),
               measured_text(seconds * 1e3), measured_text(loss), measured_text(same_work),
               measured_text(steps), measured_text(steps * seconds)});
    ReportRow& row = report.row(run.name);
    row.peak = run.peak, row.model_flops = run.flops;
    if (data) {
      row.ms_per_step = seconds * 1e3, row.tokens_per_s = double(batch * T) / seconds;
      row.loss_first = run.losses.front(), row.loss_last = run.losses.back(), row.loss_held_out = loss;
    }
    report.check_equal("(a) " + run.name + ": FLOPs of matrix products per step, counted = formula",
                       run.flops, flops);
  }
  std::cout << table;
  if (data) draw_runs(runs, plot);
  const double ratio = data ? runs[1].held_out.back() / runs[0].held_out.back() : NAN;
  report.check_at_most("(a) held-out loss of the mixture / of the dense model of its active size", ratio, 1,
                       needs_steps(3000, int64_t(runs[1].losses.size())));
}

}  // namespace gradus
