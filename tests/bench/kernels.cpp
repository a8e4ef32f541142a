// Times every kernel of the kernel table: JSON lines on standard output, a table for people on standard
// error. Memory-bound kernels are compared with the copy bandwidth, which is measured before each of them,
// because the speed of a shared machine changes every second; contractions with the peak rate of the dtype's
// products.
#include <iostream>
#include <nlohmann/json.hpp>

#include "src/core/json.h"
#include "src/core/table.h"
#include "src/train/lesson.h"
#include "tests/bench/experts_kernels.h"
#include "tests/bench/fused_kernels.h"
#include "tests/bench/llama_kernels.h"

using namespace gradus;

static void add_elementwise(Data& d, Cases& cases) {
  const int64_t n = d.n;
  const DType t = d.t;
  const Backend& k = d.k;
  const std::string shape = std::to_string(n);
  const RowShape samples = d.rows_of(1 << 16);
  cases.insert(
      cases.end(),
      {{"fill", shape, cost::fill(n, t), [&, n](const Ctx& c) { k.fill(c, n, d.y.out(), 1); }},
       {"cast", shape, cost::cast(n, t, t), [&, n](const Ctx& c) { k.cast(c, n, d.x.in(), d.y.out()); }},
       {"add", shape, cost::add(n, t), [&, n](const Ctx& c) { k.add(c, n, d.x.in(), d.y.in(), d.z.out()); }},
       {"scale", shape, cost::scale(n, t),
        [&, n](const Ctx& c) { k.scale(c, n, d.x.in(), d.y.out(), 0.5f); }},
       {"scale_by_ratio_inplace", shape, cost::scale_by_ratio_inplace(n, t),
        [&, n](const Ctx& c) { k.scale_by_ratio_inplace(c, n, d.loss.in(), d.stats.in(), d.y.out()); }},
       {"gelu_fwd", shape, cost::gelu_fwd(n, t),
        [&, n](const Ctx& c) { k.gelu_fwd(c, n, d.x.in(), d.y.out()); }},
       {"gelu_bwd", shape, cost::gelu_bwd(n, t),
        [&, n](const Ctx& c) { k.gelu_bwd(c, n, d.x.in(), d.y.in(), d.z.out()); }},
       {"gelu_erf_fwd", shape, cost::gelu_erf_fwd(n, t),
        [&, n](const Ctx& c) { k.gelu_erf_fwd(c, n, d.x.in(), d.y.out()); }},
       {"gelu_erf_bwd", shape, cost::gelu_erf_bwd(n, t),
        [&, n](const Ctx& c) { k.gelu_erf_bwd(c, n, d.x.in(), d.y.in(), d.z.out()); }},
       {"tanh_fwd", shape, cost::tanh_fwd(n, t),
        [&, n](const Ctx& c) { k.tanh_fwd(c, n, d.x.in(), d.y.out()); }},
       {"tanh_bwd", shape, cost::tanh_bwd(n, t),
        [&, n](const Ctx& c) { k.tanh_bwd(c, n, d.x.in(), d.y.in(), d.z.out()); }},
       {"dropout", text(samples), cost::dropout(samples, t), [&, samples](const Ctx& c) {
          k.dropout(c, samples, d.x.in(), d.y.out(), 0.1f, {.seed = 1, .ordinal = 1});
        }}});
}

static void add_rows(Data& d, Cases& cases) {
  const DType t = d.t;
  const Backend& k = d.k;
  const RowShape wide = d.rows_of(3072), norm = d.rows_of(768), soft = d.rows_of(1024);
  const int64_t T = std::min<int64_t>(wide.rows, 1024);
  const RotaryShape turned{.B = wide.rows / T, .T = T, .H = 8, .KV = 8, .D = 128, .dims = 64};
  cases.insert(cases.end(),
               {{"bias_fwd", text(wide), cost::bias_fwd(wide, t),
                 [&, wide](const Ctx& c) { k.bias_fwd(c, wide, d.x.in(), d.beta.in(), d.y.out()); }},
                {"bias_bwd", text(wide), cost::bias_bwd(wide, t),
                 [&, wide](const Ctx& c) { k.bias_bwd(c, wide, d.x.in(), d.beta.out()); }},
                {"layernorm_fwd", text(norm), cost::layernorm_fwd(norm, t),
                 [&, norm](const Ctx& c) {
                   k.layernorm_fwd(c, norm, d.x.in(), d.gamma.in(), d.beta.in(), d.y.out(), d.stats.out(),
                                   1e-5f);
                 }},
                {"layernorm_bwd", text(norm), cost::layernorm_bwd(norm, t),
                 [&, norm](const Ctx& c) {
                   k.layernorm_bwd(c, norm, d.x.in(), d.gamma.in(), d.stats.in(), d.y.in(), d.z.out(),
                                   d.u.out(), d.beta.out());
                 }},
                {"rotary", text(wide), cost::rotary(turned, t),
                 [&, turned](const Ctx& c) { k.rotary(c, turned, d.x.in(), d.y.out()); }},
                {"softmax_fwd", text(soft), cost::softmax_fwd(soft, t),
                 [&, soft](const Ctx& c) { k.softmax_fwd(c, soft, d.x.in(), d.y.out()); }},
                {"softmax_bwd", text(soft), cost::softmax_bwd(soft, t),
                 [&, soft](const Ctx& c) { k.softmax_bwd(c, soft, d.x.in(), d.y.in(), d.z.out()); }}});
}

// Kernels with an axis of the vocabulary: logits and embeddings.
static void add_tables(Data& d, Cases& cases) {
  const DType t = d.t;
  const Backend& k = d.k;
  const RowShape logits = d.rows_of(Data::kVocab), words = d.rows_of(768);
  const int64_t vocab = std::min(Data::kVocab, words.rows);
  cases.insert(
      cases.end(),
      {{"cross_entropy_fwd", text(logits), cost::cross_entropy_fwd(logits, t),
        [&, logits](const Ctx& c) {
          k.cross_entropy_fwd(c, logits, d.x.in(), d.ids.in(), {}, d.loss.out(), d.stats.out());
        }},
       {"cross_entropy_bwd_inplace", text(logits), cost::cross_entropy_bwd_inplace(logits, t),
        [&, logits](const Ctx& c) {
          k.cross_entropy_bwd_inplace(c, logits, d.ids.in(), {}, d.stats.in(), d.loss.in(), d.x.out());
        }},
       {"count_targets", std::to_string(d.n), cost::count_targets(d.n),
        [&](const Ctx& c) { k.count_targets(c, d.n, d.ids.in(), d.loss.out()); }},
       {"embedding_fwd", text(words), cost::embedding_fwd(words, t),
        [&, words, vocab](const Ctx& c) {
          k.embedding_fwd(c, words, vocab, d.x.in(), d.ids.in(), d.y.out());
        }},
       {"embedding_bwd", text(words), cost::embedding_bwd(words, t), [&, words, vocab](const Ctx& c) {
          k.embedding_bwd(c, words, vocab, d.ids.in(), d.x.in(), d.y.out());
        }}});
}

static void add_optimizers(Data& d, Cases& cases) {
  const int64_t n = d.n;
  const Backend& k = d.k;
  const std::string shape = std::to_string(n);
  const ParamUpdate sgd{
      .n = n, .value = d.x.out(), .grad = d.y.in(), .m = d.z.out(), .v = {}, .master = {}, .decay = true};
  ParamUpdate plain = sgd, adamw = sgd, adafactor = sgd;
  plain.m = {}, adamw.v = d.u.out();
  const RowShape matrix = d.rows_of(1024);
  adafactor.n = matrix.rows * matrix.cols, adafactor.rows = matrix.rows;
  adafactor.m = d.stats.out(), adafactor.v = d.stats.out(matrix.cols);
  ParamUpdate adamw8 = sgd;
  adamw8.m = {d.z.out().p, DType::U8}, adamw8.m_scales = d.stats.out();
  adamw8.v = {d.u.out().p, DType::U8}, adamw8.v_scales = d.stats.out(state_shape(n).blocks());
  cases.insert(
      cases.end(),
      {{"sum_squares", shape, cost::sum_squares(n, d.t),
        [&, n](const Ctx& c) {
          const CBuf grad = d.x.in();
          k.sum_squares(c, {1, &grad, &n}, d.squares.out());
        }},
       {"sgd, plain", shape, cost::sgd({1, &plain}),
        [&, plain](const Ctx& c) {
          k.sgd(c, {1, &plain}, {.weight_decay = 0.1f});
        }},
       {"sgd", shape, cost::sgd({1, &sgd}),
        [&, sgd](const Ctx& c) {
          k.sgd(c, {1, &sgd}, {.momentum = 0.9f, .weight_decay = 0.1f});
        }},
       {"adamw", shape, cost::adamw({1, &adamw}),
        [&, adamw](const Ctx& c) {
          k.adamw(c, {1, &adamw}, {.weight_decay = 0.1f});
        }},
       {"adamw_8bit", shape, cost::adamw_8bit({1, &adamw8}),
        [&, adamw8](const Ctx& c) {
          k.adamw_8bit(c, d.dynamic.in(), d.second_moments.in(), {1, &adamw8}, {.weight_decay = 0.1f});
        }},
       {"adafactor", text(matrix), cost::adafactor({1, &adafactor}, StepSize::Relative),
        [&, adafactor](const Ctx& c) {
          k.adafactor(c, {1, &adafactor}, {});
        }},
       {"muon_direction", shape, cost::muon_direction(n, d.t, d.t, d.t),
        [&, n](const Ctx& c) { k.muon_direction(c, n, d.y.in(), d.z.out(), d.x.out(), 0.95f); }}});
}

static void add_products(Data& d, Cases& cases) {
  constexpr int64_t kSizes[][3] = {{512, 512, 512},    {1000, 1000, 1000}, {1023, 1023, 1023},
                                   {1024, 1024, 1024}, {1536, 1536, 1536}, {2048, 2048, 2048},
                                   {1024, 3072, 768},  {1024, 768, 3072},  {768, 3072, 1024}};
  const Backend& k = d.k;
  for (const auto& [M, N, K] : kSizes)
    for (const auto& [name, ta, tb] :
         {std::tuple("NN", Trans::No, Trans::No), std::tuple("NT", Trans::No, Trans::Yes),
          std::tuple("TN", Trans::Yes, Trans::No)}) {
      if (std::max({M * N, M * K, K * N}) > d.n) continue;
      const MatmulShape s{.M = M,
                          .N = N,
                          .K = K,
                          .ta = ta,
                          .tb = tb,
                          .lda = ta == Trans::Yes ? M : K,
                          .ldb = tb == Trans::Yes ? K : N,
                          .ldc = N};
      cases.push_back(
          {"matmul",
           std::string(name) + " " + std::to_string(M) + "x" + std::to_string(N) + "x" + std::to_string(K),
           cost::matmul(s, d.t), [&, s](const Ctx& c) { k.matmul(c, s, d.x.in(), d.y.in(), d.z.out()); }});
    }
}

static void add_attention(Data& d, Cases& cases) {
  const Backend& k = d.k;
  for (const auto& [T, KV] : {std::pair<int64_t, int64_t>(64, 12), {256, 12}, {1024, 12}, {1024, 3}}) {
    const int64_t B = 4, H = 12, D = 64, C = H * D, elements = B * T * C;
    if (B * H * T * std::max(T, 3 * D) > d.n) continue;
    const HeadLayout heads{.batch = T * C, .head = D, .time = C};
    const AttentionShape s{
        .B = B, .H = H, .KV = KV, .T = T, .D = D, .qkv = heads, .y = heads, .scale = 0.125f};
    const std::string shared = KV < H ? " KV" + std::to_string(KV) : "";
    const std::string shape = "B4 H12" + shared + " D64 T" + std::to_string(T);
    const CBuf q = d.x.in(), dy = d.y.in();
    const Out dq = d.u.out(), dk = d.u.out(elements), dv = d.u.out(2 * elements);
    cases.insert(
        cases.end(),
        {{"attention_plain_fwd", shape, cost::attention_plain_fwd(s, d.t),
          [=, &k, &d](const Ctx& c) { k.attention_plain_fwd(c, s, q, q, q, d.z.out(), d.u.out()); }},
         {"attention_flash_fwd", shape, cost::attention_flash_fwd(s, d.t),
          [=, &k, &d](const Ctx& c) { k.attention_flash_fwd(c, s, q, q, q, d.u.out(), d.stats.out()); }},
         {"attention_plain_bwd", shape, cost::attention_plain_bwd(s, d.t),
          [=, &k, &d](const Ctx& c) { k.attention_plain_bwd(c, s, q, q, q, d.z.in(), dy, dq, dk, dv); }},
         {"attention_flash_bwd", shape, cost::attention_flash_bwd(s, d.t), [=, &k, &d](const Ctx& c) {
            k.attention_flash_bwd(c, s, q, q, q, d.z.in(), d.stats.in(), dy, dq, dk, dv);
          }}});
  }
}

static void add_quantization(Data& d, Cases& cases) {
  const Backend& k = d.k;
  for (const auto& [name, codebook, bits, block] :
       {std::tuple("absmax", &d.absmax8, 8, 256), std::tuple("absmax", &d.absmax4, 4, 64),
        std::tuple("nf4", &d.nf4, 4, 64), std::tuple("dynamic", &d.dynamic, 8, 256)}) {
    const QuantShape s{d.n, block, bits};
    const CBuf in = codebook->in();
    const std::string shape =
        std::string(name) + ", " + std::to_string(bits) + " bits, blocks of " + std::to_string(block);
    const auto codes = [&d] { return Out{d.z.out().p, DType::U8}; };
    cases.push_back({"quantize", shape, cost::quantize(s, d.t), [=, &k, &d](const Ctx& c) {
                       k.quantize(c, s, in, d.x.in(), codes(), d.stats.out(), {});
                     }});
    cases.push_back({"dequantize", shape, cost::dequantize(s, d.t), [=, &k, &d](const Ctx& c) {
                       k.dequantize(c, s, in, {codes().p, DType::U8}, d.stats.in(), {}, d.y.out());
                     }});
  }
}

static Json json_line(const Case& c, const Device& device, DType t, const Timing& time, double copy,
                      double gemm) {
  const bool contraction = c.cost.op_class == OpClass::Contraction;
  const double gb = double(c.cost.bytes) / time.median * 1e-9,
               gflop = double(c.cost.flops) / time.median * 1e-9;
  Json line = Json::object();
  line["bench"] = "kernels";
  line["device"] = device.name();
  line["threads"] = cpu::thread_count();
  line["kernel"] = c.name;
  line["dtype"] = name_of(t);
  line["shape"] = c.shape;
  line["ms"] = time.median * 1e3;
  line["ms_min"] = time.min * 1e3;
  line["gb_per_s"] = gb;
  line["gflop_per_s"] = gflop;
  line["peak"] = contraction ? "products" : "copy";
  line["measured_peak"] = contraction ? gemm * 1e-9 : copy * 1e-9;
  line["share_of_peak"] = contraction ? gflop / (gemm * 1e-9) : gb / (copy * 1e-9);
  return line;
}

static int bench_kernels(int argc, char** argv) {
  Args args(argc, argv, "kernels", "time every kernel");
  const int64_t mb = args.integer("size-mb", 256, "size of a buffer, in MiB", 1, 1 << 14);
  const std::string only = args.text("only", "", "only kernels whose name contains this");
  const DType t = dtype_flag(args, "type of the buffers");
  const std::string device_name = args.choice("device", "auto", "where to run", device_names());
  args.done();

  Device device(device_name);
  check(device.has_data(), "kernels: meta computes nothing, so there is nothing to time");
  const UpdateScalars scalars{.learning_rate = 1e-3f, .updates = 1};
  const BenchBuffer update(device, DType::U8, sizeof scalars);
  device.copy_in(update.out().p, &scalars, sizeof scalars);
  Data data(device, t, mb << 20);
  Cases cases;
  add_elementwise(data, cases);
  add_rows(data, cases);
  add_fused(data, cases);
  add_llama(data, cases);
  add_tables(data, cases);
  add_optimizers(data, cases);
  add_products(data, cases);
  add_attention(data, cases);
  add_quantization(data, cases);
  add_experts(device, data, cases);

  const double gemm = measure_gemm_peak(device, t);
  Table table({"kernel", "shape", "ms", "GB/s", "GFLOP/s", "fraction of peak"});
  for (const Case& c : cases) {
    if (c.name.find(only) == std::string::npos) continue;
    data.randomize();
    const double copy = copy_bandwidth(device, data.z.out().p, data.x.in().p, data.x.bytes());
    const BenchBuffer scratch(device, DType::U8, c.cost.scratch + 1);
    Ctx ctx = device.ctx();
    ctx.scratch = scratch.out().p;
    ctx.update = update.out().as<UpdateScalars>();
    const Timing time = measure(
        device, [&] { c.run(ctx); }, 5, 0.1);
    const Json line = json_line(c, device, t, time, copy, gemm);
    std::cout << line.dump() << std::endl;
    const auto figure = [&](const char* key) { return number_text(line.at(key).get<double>()); };
    table.row({c.name, c.shape, figure("ms"), figure("gb_per_s"), figure("gflop_per_s"),
               percent_text(line.at("share_of_peak").get<double>())});
  }
  std::cerr << name_of(t) << " on " << device.name() << ", " << cpu::thread_count() << " threads, " << mb
            << " MiB per buffer; peak: the copy bandwidth at that moment, or " << number_text(gemm * 1e-9)
            << " GFLOP/s of matrix products\n"
            << table;
  return 0;
}

int main(int argc, char** argv) {
  return run_lesson([&] { return bench_kernels(argc, argv); });
}
