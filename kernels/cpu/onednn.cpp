// Matrix products by oneDNN: a library to compare with (lesson 01, tests). Compiles with oneDNN 2 and 3.
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/io.h"

#ifdef GRADUS_ONEDNN
#include <array>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace gradus::cpu {

#ifdef GRADUS_ONEDNN

static dnnl::memory::data_type onednn_type(DType t) {
  return t == DType::F32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

// A (batch, batch, rows, cols) matrix as oneDNN describes it; a transposed one has its last two strides
// swapped. The stride of a batch dimension of 1 has no meaning here, but oneDNN's fast code only takes one
// that is no less than the matrix.
static dnnl::memory::desc describe(const MatmulShape& s, DType t, int64_t rows, int64_t cols, Trans trans,
                                   int64_t ld, int64_t Batch::*stride) {
  const int64_t row = trans == Trans::Yes ? 1 : ld, col = trans == Trans::Yes ? ld : 1;
  const int64_t whole = ld * (trans == Trans::Yes ? cols : rows);
  const auto batch = [&](const Batch& b) { return b.count == 1 ? whole : b.*stride; };
  return {{s.batch[0].count, s.batch[1].count, rows, cols},
          onednn_type(t),
          {s.batch[0].count == 1 ? batch(s.batch[1]) * s.batch[1].count : batch(s.batch[0]),
           batch(s.batch[1]), row, col}};
}

// Making a primitive compiles code, so they are kept by what they depend on.
struct Product {
  dnnl::memory::desc a, b, c;
  dnnl::matmul primitive;
};

static Product make_product(const dnnl::engine& engine, const MatmulShape& s, DType t, DType tc) {
  Product p{describe(s, t, s.M, s.K, s.ta, s.lda, &Batch::stride_a),
            describe(s, t, s.K, s.N, s.tb, s.ldb, &Batch::stride_b),
            describe(s, tc, s.M, s.N, Trans::No, s.ldc, &Batch::stride_c),
            {}};
#if DNNL_VERSION_MAJOR >= 3
  p.primitive = dnnl::matmul(dnnl::matmul::primitive_desc(engine, p.a, p.b, p.c));
#else
  p.primitive = dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(p.a, p.b, p.c), engine));
#endif
  return p;
}

bool onednn_matmul(const Ctx&, const MatmulShape& s, CBuf a, CBuf b, Out c) {
  const bool floats = a.t == DType::F32 && c.t == DType::F32;
  const bool halves = a.t == DType::BF16 && (c.t == DType::BF16 || c.t == DType::F32);
  // Adding through oneDNN's `sum` starts the sum from C instead of adding the finished product, so it is not
  // used.
  if (!(floats || halves) || b.t != a.t || c.w != Write::Set || s.alpha != 1 || s.M * s.N * s.K == 0)
    return false;
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  static dnnl::stream stream(engine);
  const auto& [b0, b1] = s.batch;
  using Key = std::array<int64_t, 18>;
  const Key key{s.M,      s.N,         s.K,         int64_t(s.ta), int64_t(s.tb), s.lda,
                s.ldb,    s.ldc,       b0.count,    b0.stride_a,   b0.stride_b,   b0.stride_c,
                b1.count, b1.stride_a, b1.stride_b, b1.stride_c,   int64_t(a.t),  int64_t(c.t)};
  static std::map<Key, Product> products;
  auto found = products.find(key);
  if (found == products.end()) found = products.emplace(key, make_product(engine, s, a.t, c.t)).first;
  Product& p = found->second;
  p.primitive.execute(stream, {{DNNL_ARG_SRC, {p.a, engine, const_cast<void*>(a.p)}},
                               {DNNL_ARG_WEIGHTS, {p.b, engine, const_cast<void*>(b.p)}},
                               {DNNL_ARG_DST, {p.c, engine, c.p}}});
  stream.wait();
  return true;
}

#else

bool onednn_matmul(const Ctx&, const MatmulShape&, CBuf, CBuf, Out) { return false; }

#endif

}  // namespace gradus::cpu
