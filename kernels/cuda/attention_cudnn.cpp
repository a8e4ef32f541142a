#include "kernels/cuda/attention_cudnn.h"

#ifndef GRADUS_CUDNN

namespace gradus::cuda {
bool cudnn_attention_fwd(const Ctx&, const AttentionShape&, CBuf, CBuf, CBuf, Out, Out) { return false; }
bool cudnn_attention_bwd(const Ctx&, const AttentionShape&, CBuf, CBuf, CBuf, CBuf, CBuf, CBuf, Out, Out,
                         Out) {
  return false;
}
std::string cudnn_problem() { return "this program was built without cuDNN (CUDNN_FRONTEND=FOLDER)"; }
std::string cudnn_graph_problem(const AttentionShape&, DType, bool, int) { return cudnn_problem(); }
}  // namespace gradus::cuda

#else

// The front end looks the library's functions up when they are called, so that the program starts without it.
// Its headers take half a minute to compile: no other file includes them.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>
#include <dlfcn.h>

#define GRADUS_GPU cuda  // compiled by g++, as it has no kernels
#include "kernels/cuda/library.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace gradus::cuda {

namespace fe = cudnn_frontend;

namespace {

enum Id : int64_t { kQ, kK, kV, kY, kLse, kDy, kDq, kDk, kDv };

// The graph of scaled dot-product attention. The log-sum-exps are ours: of the scaled scores, natural, (B, H,
// T).
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

// How cuDNN computes an attention: the graph of a part, as many samples, or heads of one sample, as find room
// in the device's workspace. No graph: it cannot.
struct Plan {
  bool backward;
  DType t;
  AttentionShape s, part = s;
  std::shared_ptr<fe::graph::Graph> graph = nullptr;
};
struct Handle {  // of a GPU and a thread
  cudnnHandle_t cudnn = nullptr;
  int sm = compute_capability();
  std::vector<Plan> plans;  // that were made
};

int64_t largest_divisor(int64_t n) {  // but n; of 1: 0
  int64_t d = n / 2;
  while (d > 0 && n % d != 0) --d;
  return d;
}

const Plan& plan_of(Handle& handle, AttentionShape s, DType t, bool backward) {
  s.key = {};  // of dropout, which there is none of
  for (const Plan& p : handle.plans)
    if (p.backward == backward && p.t == t && p.s == s) return p;
  Plan p{backward, t, s};
  for (AttentionShape& part = p.part; part.KV > 0;) {
    const auto graph = graph_of(part, t, backward, handle.sm);
    graph->deselect_workspace_greater_than(kWorkspaceBytes);
    if (graph->build(handle.cudnn, {fe::HeurMode_t::A}).is_good()) {
      p.graph = graph;
      break;
    }
    if (part.B > 1)
      part.B = largest_divisor(part.B);
    else
      part.KV = largest_divisor(part.KV), part.H = s.group() * part.KV;
  }
  return handle.plans.emplace_back(p);
}

struct Operand {
  Id id;
  const void* first;
  HeadLayout layout;
};

bool run(const Ctx& ctx, const AttentionShape& s, DType t, bool backward, const std::vector<Operand>& all) {
  bool can = (t == DType::BF16 || t == DType::F16) && s.dropout == 0 && s.D <= 128 && s.B * s.H * s.T > 0;
  for (const int64_t n : {s.D, s.qkv.batch, s.qkv.head, s.qkv.time, s.y.batch, s.y.head, s.y.time})
    can &= n % 8 == 0;
  for (const Operand& x : all) can &= x.id == kLse || uintptr_t(x.first) % 16 == 0;
  if (!can || !cudnn_problem().empty()) return false;
  Handle& handle = of_gpu_and_thread<Handle>();
  if (handle.sm < 80) return false;
  const auto ok = [](cudnnStatus_t status, const char* what) {
    check(status == CUDNN_STATUS_SUCCESS, "attention: cuDNN could not ", what, ": ",
          fe::detail::get_error_string(status));
  };
  if (!handle.cudnn) ok(fe::detail::create_handle(&handle.cudnn), "start");
  const Plan& plan = plan_of(handle, s, t, backward);
  if (!plan.graph) return false;
  ok(fe::detail::set_stream(handle.cudnn, static_cast<cudaStream_t>(ctx.stream)), "take the device's stream");
  for (int64_t b = 0; b < s.B; b += plan.part.B)
    for (int64_t kv = 0; kv < s.KV; kv += plan.part.KV) {
      std::unordered_map<int64_t, void*> buffers;
      for (const auto& [id, first, layout] : all) {
        const bool shared = id == kK || id == kV || id == kDk || id == kDv;
        const int64_t element = b * layout.batch + (shared ? kv : kv * s.group()) * layout.head;
        const CBuf x{first, id == kLse ? DType::F32 : t};
        buffers[id] = const_cast<void*>(x.from(element).p);
      }
      fe::error_t e = plan.graph->execute(handle.cudnn, buffers, ctx.workspace);
      check(e.is_good(), "attention: cuDNN could not compute: ", e.get_message());
    }
  return true;
}

bool is_set(Out y) { return y.wanted() && y.w == Write::Set; }
HeadLayout lse_of(const AttentionShape& s) { return {.batch = s.H * s.T, .head = s.T, .time = 1}; }

}  // namespace

bool cudnn_attention_fwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, Out y, Out lse) {
  return is_set(y) && is_set(lse) &&
         run(ctx, s, q.t, false,
             {{kQ, q.p, s.qkv},
              {kK, k.p, s.qkv},
              {kV, v.p, s.qkv},
              {kY, y.p, s.y},
              {kLse, lse.p, lse_of(s)}});
}

bool cudnn_attention_bwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, CBuf y, CBuf lse,
                         CBuf dy, Out dq, Out dk, Out dv) {
  return is_set(dq) && is_set(dk) && is_set(dv) &&
         run(ctx, s, q.t, true,
             {{kQ, q.p, s.qkv},
              {kK, k.p, s.qkv},
              {kV, v.p, s.qkv},
              {kY, y.p, s.y},
              {kLse, lse.p, lse_of(s)},
              {kDy, dy.p, s.y},
              {kDq, dq.p, s.qkv},
              {kDk, dk.p, s.qkv},
              {kDv, dv.p, s.qkv}});
}

std::string cudnn_problem() {
  static const std::string problem = [] {  // the library is looked for once
    fe::cudnn_dlhandle = ::dlopen("libcudnn.so.9", RTLD_NOW);
    return fe::cudnn_dlhandle ? std::string() : std::string("cuDNN 9 is not there: ") + ::dlerror();
  }();
  return problem;
}

std::string cudnn_graph_problem(const AttentionShape& s, DType t, bool backward, int sm) {
  if (!cudnn_problem().empty()) return cudnn_problem();
  fe::error_t e = graph_of(s, t, backward, sm)->validate();
  return e.is_good() ? "" : e.get_message();
}

}  // namespace gradus::cuda

#endif
