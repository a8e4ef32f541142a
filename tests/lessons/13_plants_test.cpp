// Twenty loops, each with a planted bottleneck of random kind, place and size (or none): the diagnosis must
// find it in the trace.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "lessons/13_profiler/diagnosis.h"
#include "lessons/13_profiler/plants.h"
#include "src/core/rng.h"
#include "src/optim/optimizer.h"
#include "src/tensor/profile_range.h"
#include "src/train/dummy.h"
#include "tests/folder_testing.h"

namespace gradus {
namespace {

struct RandomPlant {
  std::string what;  // of a Bottleneck; "" for none
  std::string where;
  double loading = 0;      // seconds per step
  int64_t layer = -1;      // -1: all
  int64_t chained = 0;     // element-wise ops in a row, 0: none
  int64_t copied = 0;      // elements of an activation; with `watch`, of a weight
  std::string watch = {};  // the range around it
};
RandomPlant plant;  // what planted_activation does
int64_t layer_now = 0;

// GELU, followed by a chain of scales or by a copy.
Tensor planted_activation(const Tensor& x) {
  const int64_t layer = layer_now++;
  Tensor y = gelu(x);
  if (plant.layer >= 0 && layer != plant.layer) return y;
  for (int64_t i = 0; i < plant.chained; ++i) y = scale(y, i % 2 == 0 ? 2.0 : 0.5);
  if (plant.copied > 0 && plant.watch.empty()) {
    std::vector<float> host(size_t(plant.copied));
    y.device().copy_out(host.data(), y.in().p, plant.copied * 4);
  }
  return y;
}

RandomPlant draw(Rng& rng, const TransformerConfig& c) {
  const auto any = [&](int64_t least, int64_t most) {
    return least + int64_t(rng.below(uint64_t(most - least + 1)));
  };
  RandomPlant p;
  p.layer = any(-1, c.layers - 1);
  const std::string layers = "forward/h." + (p.layer < 0 ? "*" : std::to_string(p.layer));
  switch (rng.below(5)) {
    case 0: return {"data loading", "data", 2e-3 + 6e-3 * rng.uniform()};
    case 1: p.what = "unfused kernels", p.where = layers, p.chained = any(6, 14); break;
    case 2: p.what = "copy to the host", p.where = layers, p.copied = any(2000, 8192); break;
    case 3:
      p.what = "copy to the host", p.copied = any(2000, 4096);
      p.where = p.watch = any(0, 1) ? "statistics" : "checks";
      break;
    default: break;
  }
  return p;
}

void train(const TransformerConfig& c, const std::string& file) {
  Context context("cpu");
  Transformer model(c);
  model.initialize(1);
  AdamW optimizer(model.parameters);
  Profiler profiler(context, {.wait = 1, .warm_up = 1, .record = 3});
  for (int step = 0; step < 5; ++step) {
    profiler.next_step();
    layer_now = 0;
    if (plant.loading > 0) {
      const ProfileRange range("data");
      std::this_thread::sleep_for(std::chrono::duration<double>(plant.loading));
    }
    const DummyBatch batch = dummy_batch(c, 4, c.context);
    Tape tape;
    const Tensor loss = batch.loss(model);
    item(loss);
    model.parameters.zero_grad();
    tape.backward(loss);
    if (!plant.watch.empty()) {
      const ProfileRange range(plant.watch.c_str());
      std::vector<float> host(size_t(plant.copied));
      context.device.copy_out(host.data(), model.parameters.find("wte.weight").value.in().p,
                              plant.copied * 4);
    }
    optimizer.clip_grad_norm(1.0);
    optimizer.step(1e-3);
  }
  profiler.end();
  write_trace(file, {{"training", &profiler}});
}

struct L13_Plants : FolderTest {};

TEST_F(L13_Plants, NineteenOfTwentyAreNamed) {
  const TransformerConfig c{
      .vocab = 64, .context = 32, .layers = 3, .heads = 4, .channels = 64, .activation = planted_activation};
  Rng rng(20, 13);
  int right = 0;
  std::string wrong;
  for (int i = 0; i < 20; ++i) {
    plant = draw(rng, c);
    train(c, path("trace.json"));
    const std::vector<Finding> found = diagnose(read_steps(path("trace.json")));
    const bool named = plant.what.empty() ? found.empty()
                                          : !found.empty() && name_of(found[0].what) == plant.what &&
                                                found[0].where == plant.where;
    right += named;
    if (named) continue;
    wrong += "\n" + plant.what + " in " + plant.where + ", found:";
    for (const Finding& f : found) wrong += std::string(" ") + name_of(f.what) + " in " + f.where;
  }
  EXPECT_GE(right, 19) << wrong;
  RecordProperty("right", right);
}

}  // namespace
}  // namespace gradus
