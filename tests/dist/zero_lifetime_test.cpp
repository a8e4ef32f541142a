// What a model is while nobody trains it, when a rank fails, and after its Zero has ended.
#include "tests/dist/layered_model.h"
#include "tests/dist/parallel_training.h"
#include "tests/refusal_testing.h"

namespace gradus {
namespace {

void declare_five(LayeredModel& m) {
  for (int i = 0; i < 5; ++i) m.linear("l" + std::to_string(i), 4, 4);
  m.forward = [&m](const Tensor& x) {
    Tensor y = x;
    for (const Linear& l : m.linears) y = l(y);
    return y;
  };
}

// Without a tape, in every stage: what one rank with the whole model says; and then the memory is given back.
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
      LayeredModel model(Allocate::Later);
      declare_five(model);
      Zero zero(comm, model.parameters, args);
      for (Parameter& p : model.parameters) zero.assign(p, first_values(p));
      const Usage before = current().device.meter().now();
      for (int i = 0; i < 3; ++i) {
        const Evaluation evaluation;
        const Tensor y = model.forward(rows_of(0, 0, 4, 1));
        if (i < 2) zero.end_forward();  // and twice in a row
        EXPECT_EQ(to_host<double>(y), expected) << text_of(args);
      }
      zero.end_forward();
      for (const Kind k : {Kind::Weight, Kind::Gradient})
        EXPECT_EQ(current().device.meter().now()[k], before[k]) << text_of(args) << name_of(k);
      EXPECT_LE(current().device.meter().now()[Kind::Comm], 256 << 10) << text_of(args);
    });
  }
}

// Between steps, and between a step's forward passes with a tape: training does not notice.
TEST(L18_ZeroEvaluation, DoesNotChangeTraining) {
  for (const bool between : {false, true})
    for (ZeroArgs args : all_ways()) {
      args.unit = unit_per_layer;
      const LayeredRun run{.declare = declare_five, .ranks = 2};
      const Weights expected = layered_on_one_rank(run);
      run_cluster({.ranks = 2}, [&](Comm& comm) {
        LayeredModel model(Allocate::Later);
        declare_five(model);
        Zero zero(comm, model.parameters, args);
        for (Parameter& p : model.parameters) zero.assign(p, first_values(p));
        Sgd optimizer(zero.shards, {.momentum = 0.9f});
        const auto evaluate = [&] {
          const Evaluation evaluation;
          model.forward(rows_of(9, 0, 4, 5));
          zero.end_forward();
        };
        for (int64_t step = 0; step < run.steps; ++step) {
          zero.zero_grad();
          Tape tape;
          const Tensor y = model.forward(rows_of(step, comm.rank(), 4, 0));
          zero.end_forward();
          if (between) evaluate();
          tape.backward(y, rows_of(step, comm.rank(), 4, 1));
          zero.end_backward();
          if (between) evaluate();
          optimizer.step(0.01);
          zero.end_update();
          evaluate();
        }
        size_t i = 0;
        for (const Parameter& p : model.parameters)
          EXPECT_EQ(to_host<double>(p.value), expected[i++])
              << text_of(args) << (between ? ", also between, " : ", ") << p.name;
      });
    }
}

// A forward pass that ends in the middle leaves nothing in memory, also of what was gathered ahead; the next
// one is not disturbed.
TEST(L18_ZeroEvaluation, APassThatEndsInTheMiddle) {
  for (ZeroArgs args : all_ways()) {
    if (args.keep_gathered) continue;
    args.unit = unit_per_layer;
    run_cluster({.ranks = 2}, [&](Comm& comm) {
      LayeredModel model(Allocate::Later);
      declare_five(model);
      Zero zero(comm, model.parameters, args);
      for (Parameter& p : model.parameters) zero.assign(p, first_values(p));
      const Usage before = current().device.meter().now();
      const Tensor x = rows_of(0, 0, 4, 1);
      for (size_t layers = 1; layers < 5; ++layers) {
        const Evaluation evaluation;
        Tensor y = x;
        for (size_t i = 0; i < layers; ++i) y = model.linears[i](y);
        zero.end_forward();
        for (const Kind k : {Kind::Weight, Kind::Comm})
          EXPECT_EQ(current().device.meter().now()[k], before[k]) << text_of(args) << ", " << layers;
      }
    });
  }
}

// Somebody looks at the weights when a backward pass is over, and they are updated then.
TEST(L18_ZeroEvaluation, AReadBeforeTheUpdateDoesNotKeepOldWeights) {
  for (const bool layers : {false, true})
    for (ZeroArgs args : all_ways()) {
      if (layers) args.unit = unit_per_layer;
      const LayeredRun run{.declare = declare_five, .ranks = 2};
      const Weights expected = layered_on_one_rank(run);
      run_cluster({.ranks = 2}, [&](Comm& comm) {
        LayeredModel model(Allocate::Later);
        declare_five(model);
        Zero zero(comm, model.parameters, args);
        for (Parameter& p : model.parameters) zero.assign(p, first_values(p));
        Sgd optimizer(zero.shards, {.momentum = 0.9f});
        for (int64_t step = 0; step < run.steps; ++step) {
          zero.zero_grad();
          Tape tape;
          const Tensor y = model.forward(rows_of(step, comm.rank(), 4, 0));
          zero.end_forward();
          tape.backward(y, rows_of(step, comm.rank(), 4, 1));
          zero.end_backward();
          to_host<double>(model.parameters.find("l2.weight").value);
          optimizer.step(0.01);
          zero.end_update();
        }
        EXPECT_EQ(to_host<double>(model.parameters.find("l2.weight").value), expected[4])
            << text_of(args) << (layers ? ", a unit a layer" : ", root");
      });
    }
}

// x, and an error of one rank: on the way forward, or on the way back.
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

TEST(L18_ZeroErrors, OfOneRankEndsAllAndTheNextRunIsAsIfNothingHadBeen) {
  for (const bool forward : {false, true})
    for (const size_t layer : {0, 2, 4})
      for (ZeroArgs args : all_ways()) {
        args.unit = unit_per_layer;
        for (const int64_t at : {0, 1})
          expect_refused("rank 1: boom", [&] {
            run_cluster({.ranks = 3}, [&](Comm& comm) {
              bool fails = false;
              LayeredRun run{.declare = failing_at(layer, forward, fails)};
              const auto declare = run.declare;
              run.declare = [&](LayeredModel& m) {
                declare(m);
                const auto inner = m.forward;
                m.forward = [&, inner, calls = int64_t(0)](const Tensor& x) mutable {
                  fails = comm.rank() == 1 && calls++ == at;
                  return inner(x);
                };
              };
              layered_with_zero(run, comm, args, [](LayeredModel&, Zero&) {});
            });
          });
      }
  expect_layered_trains({.declare = declare_five}, {.unit = unit_per_layer, .overlap = true});
}

// All ranks fail at the same place, one after the other, and each goes on with another Zero.
TEST(L18_ZeroErrors, ThatAreCaughtLeaveNothingBehind) {
  for (const bool forward : {false, true})
    for (ZeroArgs args : all_ways()) {
      args.unit = unit_per_layer;
      run_cluster({.ranks = 2}, [&](Comm& comm) {
        const bool fails = true;
        expect_refused("boom", [&] {
          layered_with_zero({.declare = failing_at(2, forward, fails)}, comm, args,
                            [](LayeredModel&, Zero&) {});
        });
        comm.barrier();  // until the other has come to what was begun it is not over
        const Usage& now = current().device.meter().now();
        for (const Kind k : {Kind::Weight, Kind::Gradient, Kind::Master, Kind::Optimizer, Kind::Activation})
          EXPECT_EQ(now[k], 0) << text_of(args) << name_of(k);
      });
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
        zero.zero_grad();
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
        // Another one is made, or refused; what is read is there, or the error says that it is not.
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

// Twice in one cluster, with models of their own.
TEST(L18_ZeroEnds, AnotherModelComesAfterIt) {
  const LayeredRun run{.declare = declare_five};
  const Weights expected = layered_on_one_rank(run);
  for (ZeroArgs args : all_ways()) {
    args.unit = unit_per_layer;
    run_cluster({.ranks = run.ranks}, [&](Comm& comm) {
      for (int i = 0; i < 2; ++i)
        layered_with_zero(run, comm, args, [&](LayeredModel& model, Zero&) {
          size_t k = 0;
          for (const Parameter& p : model.parameters) EXPECT_EQ(to_host<double>(p.value), expected[k++]);
        });
    });
  }
}

}  // namespace
}  // namespace gradus
