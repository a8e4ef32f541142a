#include "kernels/cuda/attention_cudnn.h"

#ifndef GRADUS_CUDNN

namespace gradus {
bool cudnn_attention_fwd(const Ctx&, const AttentionShape&, CBuf, CBuf, CBuf, Out, Out) { return false; }
bool cudnn_attention_bwd(const Ctx&, const AttentionShape&, CBuf, CBuf, CBuf, CBuf, CBuf, CBuf, Out, Out,
                         Out) {
  return false;
}
std::string cudnn_problem() {
  return "this program was built without cuDNN's front end (CUDNN_FRONTEND=FOLDER)";
}
std::string cudnn_graph_problem(const AttentionShape&, DType, bool, int) { return cudnn_problem(); }
}  // namespace gradus

#else

// The front end looks the library's functions up when they are called, so that the program starts without it.
// Its headers take half a minute to compile: no other file includes them.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <map>
#include <tuple>

#define GRADUS_GPU cuda  // compiled by g++, as it has no kernels
#include "kernels/cuda/library.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace gradus {

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

// "" where the library is there. It is looked for once.
const std::string& library_problem() {
  static const std::string problem = [] {
    fe::cudnn_dlhandle = ::dlopen("libcudnn.so.9", RTLD_NOW);
    return fe::cudnn_dlhandle ? std::string() : std::string("cuDNN 9 is not there: ") + ::dlerror();
  }();
  return problem;
}

int compute_capability() {
  int major = 0, minor = 0;
  const int gpu = GRADUS_GPU::current_gpu();
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu);
  return 10 * major + minor;
}

// Of a GPU and a thread: cuDNN's handle, and the graphs that were built, by what they depend on. A graph that
// cannot be built here is nullptr.
struct Graphs {
  cudnnHandle_t handle = nullptr;
  using Key = std::tuple<bool, DType, int64_t, int64_t, int64_t, int64_t, int64_t, std::array<int64_t, 6>,
                         float, Mask>;
  std::map<Key, std::shared_ptr<fe::graph::Graph> > built;
};

bool run(const Ctx& ctx, const AttentionShape& s, DType t, bool backward,
         std::unordered_map<int64_t, void*> buffers) {
  const bool can = (t == DType::BF16 || t == DType::F16) && s.dropout == 0 && s.D <= 128 && s.D % 8 == 0 &&
                   s.B * s.H * s.T > 0;
  if (!can || !library_problem().empty()) return false;
  static const int sm = compute_capability();
  if (sm < 80) return false;
  Graphs& graphs = GRADUS_GPU::of_gpu_and_thread<Graphs>();
  const auto ok = [](cudnnStatus_t status, const char* what) {
    check(status == CUDNN_STATUS_SUCCESS, "attention: cuDNN could not ", what, ": ",
          fe::detail::get_error_string(status));
  };
  if (!graphs.handle) ok(fe::detail::create_handle(&graphs.handle), "start");
  ok(fe::detail::set_stream(graphs.handle, static_cast<cudaStream_t>(ctx.stream)),
     "take the device's stream");
  const Graphs::Key key{
      backward, t,     s.B, s.H,
      s.KV,     s.T,   s.D, {s.qkv.batch, s.qkv.head, s.qkv.time, s.y.batch, s.y.head, s.y.time},
      s.scale,  s.mask};
  const auto [at, is_new] = graphs.built.try_emplace(key);
  if (is_new) {
    const auto graph = graph_of(s, t, backward, sm);
    graph->deselect_workspace_greater_than(kWorkspaceBytes);
    if (graph->build(graphs.handle, {fe::HeurMode_t::A}).is_good()) at->second = graph;
  }
  if (!at->second) return false;
  fe::error_t e = at->second->execute(graphs.handle, buffers, ctx.workspace);
  check(e.is_good(), "attention: cuDNN could not compute: ", e.get_message());
  return true;
}

void* in(CBuf x) { return const_cast<void*>(x.p); }
bool is_set(Out y) { return y.wanted() && y.w == Write::Set; }

}  // namespace

bool cudnn_attention_fwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, Out y, Out lse) {
  return is_set(y) && is_set(lse) &&
         run(ctx, s, q.t, false, {{kQ, in(q)}, {kK, in(k)}, {kV, in(v)}, {kY, y.p}, {kLse, lse.p}});
}

bool cudnn_attention_bwd(const Ctx& ctx, const AttentionShape& s, CBuf q, CBuf k, CBuf v, CBuf y, CBuf lse,
                         CBuf dy, Out dq, Out dk, Out dv) {
  return is_set(dq) && is_set(dk) && is_set(dv) &&
         run(ctx, s, q.t, true,
             {{kQ, in(q)},
              {kK, in(k)},
              {kV, in(v)},
              {kY, in(y)},
              {kLse, in(lse)},
              {kDy, in(dy)},
              {kDq, dq.p},
              {kDk, dk.p},
              {kDv, dv.p}});
}

std::string cudnn_problem() { return library_problem(); }

std::string cudnn_graph_problem(const AttentionShape& s, DType t, bool backward, int sm) {
  if (!library_problem().empty()) return library_problem();
  fe::error_t e = graph_of(s, t, backward, sm)->validate();
  return e.is_good() ? "" : e.get_message();
}

}  // namespace gradus

#endif
