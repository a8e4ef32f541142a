// What a rank keeps and sends with ZeRO, exact in bytes and elements.
#include <set>

#include "tests/parallel/parallel_training.h"

namespace gradus {
namespace {

// Bytes per parameter in a precision, with AdamW's states.
struct Psi {
  const char* recipe;
  int64_t weight, gradient, master;
};
constexpr Psi kPrecisions[] = {{"fp32", 4, 4, 0}, {"zero", 2, 2, 4}};

// (N-1)/N of: 2 Psi; 2 Psi; (k+1) Psi; 3 k Psi, and 2 k Psi if weights stay gathered.
int64_t psis(const ZeroArgs& args, int64_t k) {
  if (args.stage < 2) return 2;
  if (args.stage == 2) return k + 1;
  return args.keep_gathered ? 2 * k : 3 * k;
}

void expect_kept(const ShardedSetting& set, const ZeroArgs& args, const Psi& psi, Transformer& model,
                 Zero& zero, const std::string& what) {
  const int64_t n = zero.numel(), N = set.ranks, stage = args.stage;
  std::set<std::string> units;
  for (const Parameter& p : model.parameters) units.insert(args.unit(p));
  const int64_t padding = n - model.parameters.numel(), elements = zero.shards.numel();
  EXPECT_EQ(n % N, 0);
  EXPECT_TRUE(padding >= 0 && padding <= int64_t(units.size()) * (N - 1)) << what << ": " << padding;
  const Usage& now = current().device.meter().now();
  EXPECT_EQ(now[Kind::Weight], psi.weight * (stage == 3 ? n / N : n)) << what;
  EXPECT_EQ(now[Kind::Gradient], psi.gradient * (stage >= 2 ? n / N : n)) << what;
  EXPECT_EQ(now[Kind::Optimizer], 8 * elements) << what;
  EXPECT_EQ(now[Kind::Master], psi.master * (stage == 0 ? n : n / N)) << what;
  EXPECT_EQ(now[Kind::Comm], 256 << 10) << what;
  for (const Kind other : {Kind::Activation, Kind::Temporary, Kind::Data})
    EXPECT_EQ(now[other], 0) << what << ", " << name_of(other);
  EXPECT_LE(elements, stage == 0 ? n : n / N);
  if (set.model.channels == 16 && N != 3) {  // all parameters have multiples of 8 elements
    EXPECT_EQ(padding, 0) << what;
    EXPECT_EQ(elements, stage == 0 ? n : n / N) << what;
  }
}

void expect_sent(const ShardedSetting& set, const ZeroArgs& args, const Psi& psi, const Sent& sent, int64_t n,
                 const std::string& what) {
  const int64_t others = set.ranks - 1;
  const int64_t of_updates = set.steps * psis(args, set.micro_batches) * n * others / set.ranks;
  // For clipping: one sum of squares to each other rank.
  const int64_t sums = set.max_norm >= 0 && args.stage > 0 ? set.steps * others : 0;
  EXPECT_GE(sent.elements, of_updates + sums) << what;
  EXPECT_LE(sent.elements, of_updates + (set.max_norm >= 0 ? set.steps * others : 0)) << what;
  EXPECT_EQ(sent.bytes, psi.weight * of_updates + 8 * (sent.elements - of_updates)) << what;
}

// Each rank's peak bytes.
std::vector<Usage> expect_bytes(const ShardedSetting& set, const ZeroArgs& args, const Psi& psi) {
  const std::string what = text_of(args) + ", " + text_of(set);
  int64_t owned = 0, all = 0;
  std::vector<Usage> peaks(size_t(set.ranks));
  run_cluster(cluster_of(set), [&](Comm& comm) {
    ShardedSetting mine = set;
    int64_t requests = 0;
    mine.before_update = [&](int64_t step, Optimizer&) {  // the first step allocates all states
      const int64_t now = current().device.meter().device_requests();
      EXPECT_TRUE(step <= 1 || now == requests) << what;
      requests = now;
    };
    train_with_zero(mine, comm, args, [&](Transformer& model, Zero& zero, Optimizer&) {
      EXPECT_EQ(current().device.meter().device_requests(), requests) << what;
      expect_kept(set, args, psi, model, zero, what);
      expect_sent(set, args, psi, comm.sent(), zero.numel(), what);
      owned += zero.shards.numel(), all = model.parameters.numel();
      peaks[size_t(comm.rank())] = current().device.meter().at_peak();
    });
  });
  EXPECT_EQ(owned, args.stage == 0 ? set.ranks * all : all) << what;
  return peaks;
}

TEST(L18_ZeroBytes, AreKeptAndSentAsTheFormulasSay) {
  for (const int64_t ranks : {1, 2, 3, 4, 8})
    for (const Psi& psi : kPrecisions)
      for (const ZeroArgs& args : all_ways())
        for (const int64_t k : {1, 2, 3}) {
          ShardedSetting set{
              .name = psi.recipe, .ranks = ranks, .micro_batches = k, .steps = 3, .batch = ranks * k};
          set.model.layers = 2, set.model.precision = precision_recipe(psi.recipe);
          if (k == 2) set.model.vocab = 40, set.model.channels = 16;
          if (k != 1) set.max_norm = 1;
          const std::vector<Usage> on_cpu = expect_bytes(set, args, psi);
          set.device = "meta";
          EXPECT_EQ(expect_bytes(set, args, psi), on_cpu) << text_of(args) << ", " << text_of(set);
        }
}

}  // namespace
}  // namespace gradus
