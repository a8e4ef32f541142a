// What a rank keeps and what it sends with ZeRO, to the byte and to the element.
#include "tests/dist/parallel_training.h"

namespace gradus {
namespace {

// Bytes a parameter in a precision, with AdamW's states.
struct Psi {
  const char* recipe;
  int64_t weight, gradient, master;
};
constexpr Psi kPrecisions[] = {{"fp32", 4, 4, 0}, {"zero", 2, 2, 4}};

ShardedSetting small(int64_t ranks, const char* recipe, const char* device, int64_t k = 1) {
  ShardedSetting set{.ranks = ranks, .micro_batches = k, .steps = 3, .batch = ranks * k, .device = device};
  set.model.layers = 2, set.model.precision = precision_recipe(recipe);
  return set;
}

// Where nothing is padded: 12 channels and 32 tokens give numbers of 8 ranks.
void expect_bytes(const ShardedSetting& set, const ZeroArgs& args, const Psi& psi, int64_t psis_padding) {
  const std::string what = std::string(psi.recipe) + ", " + text_of(args) + ", " + text_of(set);
  int64_t owned = 0, all = 0;
  run_cluster(cluster_of(set), [&](Comm& comm) {
    ShardedSetting mine = set;
    int64_t requests = 0;
    mine.before_update = [&](int64_t step, Optimizer&) {  // the first step asked for all that there will be
      const int64_t now = current().device.meter().device_requests();
      if (step > 1) {
        EXPECT_EQ(now, requests) << what;
      }
      requests = now;
    };
    train_with_zero(mine, comm, args, [&](Transformer& model, Zero& zero, Optimizer&) {
      const int64_t n = zero.numel(), N = comm.size(), stage = args.stage;
      EXPECT_EQ(current().device.meter().device_requests(), requests) << what;
      EXPECT_EQ(n % N, 0);
      EXPECT_GE(n, model.parameters.numel());
      EXPECT_LE(n - model.parameters.numel(), psis_padding) << what;
      const Usage& now = current().device.meter().now();
      EXPECT_EQ(now[Kind::Weight], psi.weight * (stage == 3 ? n / N : n)) << what;
      EXPECT_EQ(now[Kind::Gradient], psi.gradient * (stage >= 2 ? n / N : n)) << what;
      const int64_t elements = zero.shards.numel();
      EXPECT_EQ(now[Kind::Optimizer], 8 * elements) << what;
      EXPECT_EQ(now[Kind::Master], psi.master * (stage == 0 ? n : n / N)) << what;
      EXPECT_EQ(now[Kind::Comm], 256 << 10) << what;
      for (const Kind other : {Kind::Activation, Kind::Temporary, Kind::Data})
        EXPECT_EQ(now[other], 0) << what << ", " << name_of(other);
      owned += elements, all = model.parameters.numel();
      EXPECT_LE(elements, stage == 0 ? all : n / N);
      if (psis_padding == 0) {
        EXPECT_EQ(elements, stage == 0 ? all : n / N) << what;
      }
    });
  });
  EXPECT_EQ(owned, args.stage == 0 ? set.ranks * all : all) << what;
}

// Also with micro-batches and clipping, and where weights stay for backward.
TEST(L18_ZeroBytes, OfEveryStage) {
  for (const char* device : {"meta", "cpu"})
    for (const int64_t ranks : {1, 2, 3, 4, 8})
      for (const Psi& psi : kPrecisions)
        for (const int stage : {0, 1, 2, 3})
          for (const auto& [overlap, k] : {std::pair(false, 1), {true, 1}, {false, 3}}) {
            ShardedSetting set = small(ranks, psi.recipe, device, k);
            ZeroArgs args{.stage = stage, .overlap = overlap};
            if (k > 1) set.max_norm = 1, args.keep_gathered = stage == 3;
            expect_bytes(set, args, psi, ranks - 1);
            args.unit = unit_per_block;
            expect_bytes(set, args, psi, 3 * (ranks - 1));
            set.model.vocab = 40, set.model.channels = 16;  // all parameters have multiples of 8
            if (ranks != 3) expect_bytes(set, args, psi, 0);
          }
}

// The peak of a step on meta is that on cpu.
TEST(L18_ZeroBytes, ThePeakIsThatOfMeta) {
  for (const ZeroArgs& args : all_ways()) {
    std::vector<Usage> peaks;
    for (const char* device : {"meta", "cpu"}) {
      const ShardedSetting set = small(2, "zero", device, 2);
      run_cluster(cluster_of(set), [&](Comm& comm) {
        train_with_zero(set, comm, args, [&](Transformer&, Zero& zero, Optimizer&) {
          if (comm.rank() == 1) peaks.push_back(current().device.meter().at_peak());
          if (args.stage == 3) {
            EXPECT_GT(zero.most_gathered(), 0);
          }
        });
      });
    }
    EXPECT_EQ(peaks[0], peaks[1]) << text_of(args);
  }
}

// (N-1)/N of: 2 Psi; 2 Psi; (k+1) Psi; 3 k Psi, and 2 k Psi if weights stay.
int64_t psis(const ZeroArgs& args, int64_t k) {
  if (args.stage < 2) return 2;
  if (args.stage == 2) return k + 1;
  return args.keep_gathered ? 2 * k : 3 * k;
}
TEST(L18_ZeroTraffic, IsWhatTheFormulasSay) {
  for (const int64_t ranks : {1, 2, 3, 4, 8})
    for (const int64_t k : {1, 2, 3})
      for (const bool clips : {false, true})
        for (const ZeroArgs& args : all_ways()) {
          ShardedSetting set = small(ranks, "zero", "meta", k);
          if (clips) set.max_norm = 1;
          const std::string what = text_of(args) + ", " + text_of(set) + (clips ? ", clipped" : "");
          run_cluster(cluster_of(set), [&](Comm& comm) {
            train_with_zero(set, comm, args, [&](Transformer&, Zero& zero, Optimizer&) {
              const int64_t of_update = psis(args, k) * zero.numel() * (ranks - 1) / ranks;
              const int64_t sent = comm.traffic().elements - set.steps * of_update;
              // a sum of squares to each of the others
              EXPECT_LE(sent, clips ? set.steps * (ranks - 1) : 0) << what;
              EXPECT_GE(sent, clips && args.stage > 0 ? set.steps * (ranks - 1) : 0) << what;
              EXPECT_EQ(comm.traffic().bytes, 2 * set.steps * of_update + 8 * sent) << what;
            });
          });
        }
}

}  // namespace
}  // namespace gradus
