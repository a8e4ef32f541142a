// A context with the profiler under test, and the paths of its events.
#pragma once
#include "src/optim/optimizer.h"
#include "src/tensor/profile_range.h"
#include "src/train/dummy.h"
#include "src/train/profiler.h"
#include "tests/devices.h"

namespace gradus {

struct ProfilerTest : ::testing::TestWithParam<const char*> {
  Context context{GetParam(), 3};
};
#define ON_ALL_DEVICES(Suite)                                                      \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, ::testing::ValuesIn([] {                \
                             std::vector<const char*> names = devices_with_data(); \
                             names.push_back("meta");                              \
                             return names;                                         \
                           }()),                                                   \
                           [](const auto& info) { return std::string(info.param); })

inline const TransformerConfig kProfiled{.vocab = 20, .context = 5, .layers = 2, .heads = 2, .channels = 8};

struct ProfiledTraining {
  ProfiledTraining() { model.initialize(1); }
  double step() {
    const DummyBatch batch = dummy_batch(model.config, 2, 5);
    Tape tape;
    const Tensor loss = batch.loss(model);
    model.parameters.zero_grad();
    tape.backward(loss);
    optimizer.clip_grad_norm(1);
    optimizer.step(0.01);
    return item(loss);
  }
  Transformer model{kProfiled};
  AdamW optimizer{model.parameters};
};

// "forward/h.1/linear", with the step if there is one.
inline std::string event_path(const Profiler& p, int64_t event) {
  if (event < 0) return "";
  const ProfileEvent& e = p.events()[size_t(event)];
  return event_path(p, e.parent) + "/" + *e.name;
}
inline std::vector<std::string> paths(const Profiler& p, ProfileTrack track) {
  std::vector<std::string> all;
  for (size_t i = 0; i < p.events().size(); ++i)
    if (p.events()[i].track == track) all.push_back(event_path(p, int64_t(i)));
  return all;
}
inline int64_t count_of(const std::vector<std::string>& of, const std::string& wanted) {
  return std::count(of.begin(), of.end(), wanted);
}
inline void run_fill(const Tensor& y) {
  be(y).fill(ctx(y, cost::fill(y.numel(), y.dtype())), y.numel(), Tensor(y).set(), 1.0);
}

}  // namespace gradus
