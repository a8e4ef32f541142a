// The questions of 13.4: what a profiler counts in a step of the student's own model, and which roof limits
// the student's own matrix product.
#include <algorithm>
#include <sstream>

#include "lessons/13_profiler/plants.h"
#include "src/optim/optimizer.h"
#include "src/train/dummy.h"
#include "src/train/machine.h"
#include "src/train/profiler.h"
#include "tests/course/predict.h"

namespace gradus::predict {

struct Own13 {
  int64_t layers, channels, batch, rows, intensity;  // intensity: the ridge point, in FLOPs per byte
};

static Own13 own_run(const std::string& student) {
  Own own(student, "13.4");
  Own13 o{};
  o.layers = own.between(2, 9), o.channels = 8 * own.between(3, 12), o.batch = own.between(2, 6);
  o.rows = 64 * own.between(1, 6), o.intensity = own.between(4, 40);
  return o;
}

// Kernel calls and bytes copied to the host, in a step with these bottlenecks.
struct Counts {
  int64_t calls = 0, bytes = 0;
};
static Counts profiled(const Own13& o, bool unfused, bool watches) {
  Context meta("meta");
  Transformer model({.vocab = 50,
                     .context = 16,
                     .layers = o.layers,
                     .heads = 4,
                     .channels = o.channels,
                     .activation = unfused ? unfused_gelu : gelu});
  const DummyBatch batch = dummy_batch(model.config, o.batch, 16);
  Profiler profiler(meta);
  profiler.begin();
  Tape tape;
  tape.backward(batch.loss(model));
  std::vector<float> host;
  if (watches) largest_gradient(model.parameters, host);
  profiler.end();
  Counts counts;
  for (const ProfileEvent& e : profiler.events()) {
    counts.calls += e.track == ProfileTrack::Kernels;
    if (*e.name == "copy to the host") counts.bytes += e.cost.bytes;
  }
  return counts;
}

// The least time of a square product of size `rows`, divided by the time of its FLOPs at the peak.
static double stretched(const Own13& o) {
  Machine m{};
  m.fp32_flops = 1e12, m.bandwidth = 1e12 / double(o.intensity);
  const MatmulShape s{.M = o.rows, .N = o.rows, .K = o.rows, .lda = o.rows, .ldb = o.rows, .ldc = o.rows};
  const Cost cost = cost::matmul(s, DType::F32);
  return least_seconds(cost, m) / (double(cost.flops) / m.fp32_flops);
}

static Quiz quiz(const std::string& student) {
  const Own13 o = own_run(student);
  std::ostringstream setting, roofs;
  setting << "Your model is a GPT in fp32 with " << o.layers << " layers, " << o.channels
          << " channels, 4 heads, a vocabulary of 50 tokens, 16 positions and a tied head; a step has "
          << o.batch << " sequences of 16 tokens.";
  roofs << "On your machine the roofs meet at " << o.intensity
        << " FLOPs per byte (the ridge point). A product of two fp32 matrices (" << o.rows << ", " << o.rows
        << ") reads both and writes a third, each once. What is its least time, divided by the time of its "
           "FLOPs at the peak?";
  const std::string id = "13.4";
  return {
      setting.str(),
      {{id, "calls", "how many more kernel calls does a step have with unfused_gelu() than with gelu()?",
        measured([o] { return double(profiled(o, true, false).calls - profiled(o, false, false).calls); })},
       {id, "bytes", "how many bytes does largest_gradient() copy to the host per step?",
        measured([o] { return double(profiled(o, false, true).bytes); })},
       {id, "stretched", roofs.str(), measured([o] { return stretched(o); }, 0.01)}}};
}

}  // namespace gradus::predict

int main(int argc, char** argv) { return gradus::predict::run(argc, argv, "13", gradus::predict::quiz); }
