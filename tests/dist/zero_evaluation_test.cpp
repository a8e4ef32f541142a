// A model that is shared out, while nobody trains it.
#include "tests/dist/layered_model.h"
#include "tests/dist/parallel_training.h"

namespace gradus {
namespace {

// Without a tape, in every stage: what one rank with the whole model says; and then the memory is given back,
// also after a pass that ends in the middle, of what was gathered ahead.
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

// Between steps, and between a step's passes with a tape: training does not notice. Nor does it where somebody
// looks at the weights when a backward pass is over, and they are updated then.
TEST(L18_ZeroEvaluation, DoesNotChangeTraining) {
  const auto evaluate = [](LayeredModel& model, Zero& zero) {
    const Evaluation evaluation;
    model.forward(rows_of(9, 0, 4, 5));
    zero.end_forward();
  };
  const auto read = [](LayeredModel& model, Zero&) {
    to_host<double>(model.parameters.find("l2.weight").value);
  };
  const LayeredRun runs[] = {
      {.declare = declare_five, .after_update = evaluate},
      {.declare = declare_five, .after_forward = evaluate, .after_backward = evaluate, .after_update = evaluate},
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
