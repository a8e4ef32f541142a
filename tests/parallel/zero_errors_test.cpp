// A sharded model after a rank fails, after its Zero has been destroyed, and while it does not train.
#include "tests/parallel/layered_model.h"
#include "tests/parallel/parallel_training.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

// Returns x; one rank throws an error, in the forward or in the backward pass.
Tensor failing(const Tensor& x, bool forward, bool fails) {
  if (forward) {
    check(!fails, "boom");
    return x;
  }
  return record("failing", {x}, {}, x.detach(), [fails](const Node&, const Tensor& dy, Grads& dx) {
    check(!fails, "boom");
    dx.pass(0, dy);
  });
}
Declare failing_at(size_t layer, bool forward, const bool& fails) {
  return [=, &fails](LayeredModel& m) {
    declare_five(m);
    m.forward = [=, &m, &fails](const Tensor& x) {
      Tensor y = x;
      for (size_t i = 0; i < m.linears.size(); ++i) {
        y = m.linears[i](y);
        if (i == layer) y = failing(y, forward, fails);
      }
      return y;
    };
  };
}

// All ranks fail at the same place, one after the other, and each goes on with a new model and its Zero.
TEST(L18_ZeroErrors, ThatAreCaughtLeaveNothingBehind) {
  const LayeredRun next{.declare = declare_five};
  const Weights expected = layered_with_sums(next);
  for (const bool forward : {false, true})
    for (ZeroArgs args : all_ways()) {
      args.unit = unit_per_layer;
      run_cluster({.ranks = 2}, [&](Comm& comm) {
        const bool fails = true;
        expect_refused("boom", [&] {
          layered_with_zero({.declare = failing_at(2, forward, fails)}, comm, args,
                            [](LayeredModel&, Zero&) {});
        });
        comm.barrier();  // the collective is over when the other rank has come to it
        const Usage& now = current().device.meter().now();
        for (const Kind k : {Kind::Weight, Kind::Gradient, Kind::Master, Kind::Optimizer, Kind::Activation})
          EXPECT_EQ(now[k], 0) << text_of(args) << name_of(k);
        layered_with_zero(next, comm, args, [&](LayeredModel& model, Zero&) {
          expect_weights(model.parameters, expected, text_of(args));
        });
      });
    }
}

// An error on every rank, which the program catches: when it repeats the step, the result is the same as
// without the error, or an error, but never a different result.
TEST(L18_ZeroErrors, AStepThatFailedEverywhereIsTakenAgain) {
  for (const bool forward : {true, false})
    for (ZeroArgs args : all_ways()) {
      args.unit = unit_per_layer;
      const LayeredRun run{.declare = declare_five, .ranks = 2};
      const Weights expected = layered_with_sums(run);
      const std::string text = refusal([&] {
        run_cluster({.ranks = 2}, [&](Comm& comm) {
          bool now = false;
          ShardedLayers sharded(comm, args, failing_at(2, forward, now));
          LayeredModel& model = sharded.model;
          Zero& zero = *sharded.zero;
          Sgd optimizer(zero.shards, {.momentum = 0.9f});
          for (int64_t step = 0; step < run.steps; ++step) {
            for (const bool f : {true, false}) {
              now = f && step == 1;
              try {
                layered_gradients(run, step, comm, model, &zero);
              } catch (const Error& e) {
                if (std::string(e.what()) != "boom") throw;
                EXPECT_TRUE(now);
                continue;
              }
            }
            optimizer.step(0.01);
          }
          expect_weights(model.parameters, expected, text_of(args) + (forward ? ", forward" : ", backward"));
        });
      });
      EXPECT_TRUE(text.empty() || !forward) << text_of(args) << ": " << text;
    }
}

std::vector<double> rounded(std::vector<double> values) {
  for (double& v : values) v = float(v);
  return values;
}
TEST(L18_ZeroEnds, BeforeItsModel) {
  for (const ZeroArgs& args : all_ways())
    run_cluster({.ranks = 2}, [&](Comm& comm) {
      LayeredModel model(Allocate::Later);
      declare_five(model);
      const auto pass = [&](Zero& zero, int until) {
        zero.model().zero_grad();
        Tape tape;
        const Tensor y = model.forward(rows_of(0, comm.rank(), 4, 1));
        if (until == 0) return;
        zero.end_forward();
        tape.backward(y, rows_of(0, comm.rank(), 4, 2));
        if (until == 2) zero.end_backward();
      };
      for (int until = 0; until < 3; ++until) {
        std::string text;
        {
          Zero zero(comm, model.parameters, args);
          for (Parameter& p : model.parameters) zero.assign(p, first_values(p));
          pass(zero, until);
        }
        for (const Parameter& p : model.parameters)
          EXPECT_TRUE(p.leaf.on_final == nullptr && !p.leaf.grad.defined()) << "no callback remains";
        // A new Zero can be made, or is rejected; the weights can be read, or an error says that they are not
        // there.
        for (Parameter& p : model.parameters)
          refusal([&] { EXPECT_EQ(to_host<double>(p.value), rounded(first_values(p))) << text_of(args); });
        refusal([&] { Tape().backward(model.forward(rows_of(0, 0, 4, 1)), rows_of(0, 0, 4, 2)); });
        text = refusal([&] { Zero(comm, model.parameters, args); });
        if (!text.empty()) {
          EXPECT_NE(text.find("has its memory already"), std::string::npos) << text;
          return;
        }
      }
    });
}

// ---- without training ----

// Without a tape, in every stage: the result is that of one rank with the whole model; then the memory is
// freed, also after a pass that ends in the middle, including units that were gathered ahead.
TEST(L18_ZeroEvaluation, IsThatOfTheWholeModel) {
  std::vector<double> expected;
  {
    const Context context("cpu", 3);
    LayeredModel model(Allocate::Now);
    declare_five(model);
    for (Parameter& p : model.parameters) p.assign(first_values(p));
    expected = to_host<double>(model.forward(rows_of(0, 0, 4, 1)));
  }
  for (ZeroArgs args : all_ways()) {
    args.unit = unit_per_layer;
    run_cluster({.ranks = 3}, [&](Comm& comm) {
      ShardedLayers sharded(comm, args);
      LayeredModel& model = sharded.model;
      Zero& zero = *sharded.zero;
      const Usage before = current().device.meter().now();
      const Tensor x = rows_of(0, 0, 4, 1);
      for (size_t layers = 1; layers < 5 && !args.keep_gathered; ++layers) {
        const Evaluation evaluation;
        Tensor y = x;
        for (size_t i = 0; i < layers; ++i) y = model.linears[i](y);
        zero.end_forward();
        for (const Kind k : {Kind::Weight, Kind::Comm})
          EXPECT_EQ(current().device.meter().now()[k], before[k]) << text_of(args) << ", " << layers;
      }
      for (int i = 0; i < 3; ++i) {
        const Evaluation evaluation;
        const Tensor y = model.forward(x);
        if (i < 2) zero.end_forward();  // also twice in a row
        EXPECT_EQ(to_host<double>(y), expected) << text_of(args);
      }
      zero.end_forward();
      for (const Kind k : {Kind::Weight, Kind::Gradient})
        EXPECT_EQ(current().device.meter().now()[k], before[k]) << text_of(args) << name_of(k);
      EXPECT_LE(current().device.meter().now()[Kind::Comm], 256 << 10) << text_of(args);
    });
  }
}

// Evaluations between steps, and between the passes of a step with a tape, do not change the training. Nor
// does reading the weights after a backward pass, before they are updated.
TEST(L18_ZeroEvaluation, DoesNotChangeTraining) {
  const auto evaluate = [](LayeredModel& model, Zero& zero) {
    const Evaluation evaluation;
    model.forward(rows_of(9, 0, 4, 5));
    zero.end_forward();
  };
  const auto read = [](LayeredModel& model, Zero&) {
    to_host<double>(model.parameters.find("l2.weight").value);
  };
  const LayeredRun runs[] = {{.declare = declare_five, .after_update = evaluate},
                             {.declare = declare_five,
                              .after_forward = evaluate,
                              .after_backward = evaluate,
                              .after_update = evaluate},
                             {.declare = declare_five, .after_backward = read}};
  for (const LayeredRun& run : runs)
    for (const bool layers : {false, true})
      for (ZeroArgs args : all_ways()) {
        if (layers) args.unit = unit_per_layer;
        expect_layered_trains(run, args);
      }
}

}  // namespace
}  // namespace gradus
