#include "kernels/cuda/attention_cudnn.h"

#ifdef GRADUS_CUDNN

// The front end looks up the library's functions when they are called, so the program starts without the
// library. The headers take half a minute to compile, so no other file includes them.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>
#include <dlfcn.h>

#define GRADUS_GPU cuda  // g++ compiles this file, because it has no kernels
#include "kernels/cuda/library.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace gradus::cuda {

namespace fe = cudnn_frontend;

namespace {

enum Id : int64_t { kQ, kK, kV, kY, kLse, kDy, kDq, kDk, kDv };

// The graph of scaled dot-product attention. Its log-sum-exps are those of entries.inc: natural logarithms,
// of the scaled scores, (B, H, T).
std::shared_ptr<fe::graph::Graph> graph_of(const AttentionShape& s, DType t, bool backward, int sm) {
  using Dims = std::vector<int64_t>;
  const auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_io_data_type(t == DType::BF16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT)
      .set_sm_version(sm);
  const auto place = [&](auto&& x, Id id, int64_t heads, const HeadLayout& l) {
    x.set_uid(id).set_dim(Dims{s.B, heads, s.T, s.D}).set_stride(Dims{l.batch, l.head, l.time, 1});
  };
  const auto input = [&](Id id, int64_t heads, const HeadLayout& l) {
    fe::graph::Tensor_attributes x;
    place(x, id, heads, l);
    return graph->tensor(x);
  };
  const auto as_lse = [&](auto&& x) {
    x.set_uid(kLse).set_dim(Dims{s.B, s.H, s.T, 1}).set_stride(Dims{s.H * s.T, s.T, 1, 1});
    x.set_data_type(fe::DataType_t::FLOAT);
  };
  const auto q = input(kQ, s.H, s.qkv), k = input(kK, s.KV, s.qkv), v = input(kV, s.KV, s.qkv);
  const bool causal = s.mask == Mask::Causal;
  if (!backward) {
    auto options = fe::graph::SDPA_attributes().set_name("attention");
#if CUDNN_FRONTEND_VERSION >= 11300
    options.set_generate_stats(true);
#else
    options.set_is_inference(false);
#endif
    options.set_attn_scale(s.scale).set_causal_mask(causal);
    const auto [y, lse] = graph->sdpa(q, k, v, options);
    place(y->set_output(true), kY, s.H, s.y);
    as_lse(lse->set_output(true));
    return graph;
  }
  fe::graph::Tensor_attributes lse;
  as_lse(lse);
  auto options = fe::graph::SDPA_backward_attributes().set_name("attention_bwd");
  options.set_attn_scale(s.scale).set_causal_mask(causal).set_deterministic_algorithm(true);
  const auto [dq, dk, dv] =
      graph->sdpa_backward(q, k, v, input(kY, s.H, s.y), input(kDy, s.H, s.y), graph->tensor(lse), options);
  place(dq->set_output(true), kDq, s.H, s.qkv);
  place(dk->set_output(true), kDk, s.KV, s.qkv);
  place(dv->set_output(true), kDv, s.KV, s.qkv);
  return graph;
}

int compute_capability() {
  int major = 0, minor = 0;
  const int gpu = current_gpu();
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu);
  return 10 * major + minor;
}

// How cuDNN computes an attention: the graph of a part, which has as many samples, or heads of one sample, as
// the device's workspace has room for. No graph: cuDNN cannot compute it.
struct Plan {
  bool backward;
  DType t;
  AttentionShape s, part = s;
  std::shared_ptr<fe::graph::Graph> graph = nullptr;
};
struct Handle {  // one per GPU and thread
  cudnnHandle_t cudnn = nullptr;
  int sm = compute_capability();
  std::vector<Plan> plans;
};

int64_t largest_divisor_below(int64_t n) {  // 0 for n = 1
  int64_t d = n / 2;
  while (d > 0 && n % d != 0) --d;
  return d;
}

// The front end throws if it does not find a library or a function.
void make(Plan& plan, Handle& handle) try {
  if (!handle.cudnn && fe::detail::create_handle(&handle.cudnn) != CUDNN_STATUS_SUCCESS) return;
  for (AttentionShape& part = plan.part; part.KV > 0;) {
    const auto graph = graph_of(part, plan.t, plan.backward, handle.sm);
    if (graph->validate().is_bad()) return;
    if (graph->build(handle.cudnn, {fe::HeurMode_t::A}).is_good() &&
        graph->get_workspace_size() <= kWorkspaceBytes) {
      plan.graph = graph;
      return;
    }
    if (part.B > 1)
      part.B = largest_divisor_below(part.B);
    else
      part.KV = largest_divisor_below(part.KV), part.H = plan.s.group() * part.KV;
  }
} catch (const std::exception&) {
}

const Plan& plan_of(Handle& handle, AttentionShape s, DType t, bool backward) {
  s.key = {};  // only dropout uses it
  for (const Plan& p : handle.plans)
    if (p.backward == backward && p.t == t && p.s == s) return p;
  Plan& plan = handle.plans.emplace_back(backward, t, s);
  if (handle.sm >= 80) make(plan, handle);
  return plan;
}

// `operands` are in the order of Id.
bool run(const Ctx& ctx, const AttentionShape& s, DType t, bool backward,
         const std::vector<const void*>& operands) {
  bool can = cudnn_takes(s, t, backward) && cudnn_problem().empty();
  for (const void* x : operands) can &= uintptr_t(x) % 16 == 0;
  if (!can) return false;
  Handle& handle = of_gpu_and_thread<Handle>();
  const Plan& plan = plan_of(handle, s, t, backward);
  if (!plan.graph) return false;
  check(fe::detail::set_stream(handle.cudnn, static_cast<cudaStream_t>(ctx.stream)) == CUDNN_STATUS_SUCCESS,
        "attention: cuDNN could not use the device's stream");
  const HeadLayout lse{.batch = s.H * s.T, .head = s.T, .time = 1};
  for (int64_t b = 0; b < s.B; b += plan.part.B)
    for (int64_t kv = 0; kv < s.KV; kv += plan.part.KV) {
      std::unordered_map<int64_t, void*> buffers;
      for (int64_t id = 0; id < int64_t(operands.size()); ++id) {
        const HeadLayout& layout = id == kLse ? lse : id == kY || id == kDy ? s.y : s.qkv;
        const bool shared = id == kK || id == kV || id == kDk || id == kDv;
        const CBuf x{operands[id], id == kLse ? DType::F32 : t};
        const int64_t element = b * layout.batch + (shared ? kv : kv * s.group()) * layout.head;
        buffers[id] = const_cast<void*>(x.from(element).p);
      }
      fe::error_t e = plan.graph->execute(handle.cudnn, buffers, ctx.workspace);
      check(e.is_good(), "attention: cuDNN could not compute: ", e.get_message());
    }
  return true;
}

bool is_set(Out y) { return y.wanted() && y.w == Write::Set; }

}  // namespace

bool cudnn_takes(const AttentionShape& s, DType t, bool backward) {
  bool takes = (t == DType::BF16 || t == DType::F16) && s.dropout == 0 && s.D <= 128 && s.B * s.H * s.T > 0;
  for (const int64_t n : {s.D, s.qkv.batch, s.qkv.head, s.qkv.time, s.y.batch, s.y.head, s.y.time})
    takes &= n % 8 == 0;
  // For other lengths some versions of cuDNN copy from host memory, which a captured step could not replay.
  return takes && (!backward || s.T % 128 == 0);
}
bool cudnn_attention_fwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, Out y, Out lse) {
  return is_set(y) && is_set(lse) && run(ctx, s, q.t, false, {q.p, k.p, v.p, y.p, lse.p});
}

bool cudnn_attention_bwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, CBuf y, CBuf lse,
                         CBuf dy, Out dq, Out dk, Out dv) {
  return is_set(dq) && is_set(dk) && is_set(dv) &&
         run(ctx, s, q.t, true, {q.p, k.p, v.p, y.p, lse.p, dy.p, dq.p, dk.p, dv.p});
}

const std::string& cudnn_problem() {
  static const std::string problem = [] {  // searches for the library only once
    fe::cudnn_dlhandle = ::dlopen("libcudnn.so.9", RTLD_NOW);
    return fe::cudnn_dlhandle ? std::string() : std::string("cuDNN 9 was not found: ") + ::dlerror();
  }();
  return problem;
}

std::string cudnn_graph_problem(const AttentionShape& s, DType t, bool backward, int sm) {
  if (!cudnn_problem().empty()) return cudnn_problem();
  try {
    fe::error_t e = graph_of(s, t, backward, sm)->validate();
    return e.is_good() ? "" : e.get_message();
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace gradus::cuda

#endif
