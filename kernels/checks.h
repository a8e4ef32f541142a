// What every backend's functions begin with: the checks of dtypes, and the dispatch on Write.
#pragma once
#include "kernels/kernels.h"

namespace gradus {

// Calls f.operator()<W>() with the Write as a constant, so that loops have no branch.
template <class F>
void visit_write(Write w, F&& f) {
  if (w == Write::Set)
    f.template operator()<Write::Set>();
  else
    f.template operator()<Write::Add>();
}

// The one dtype T of a call: every buffer that is present must have it.
inline void check_dtype(const char* op, DType expected, DType t, const void* p, const char* what) {
  check(p == nullptr || t == expected, op, ": ", what, " is ", name_of(t), " where ", name_of(expected),
        " is needed; cast it first");
}
// Statistics are fp32, or fp64 when T is.
template <class T>
void check_stats(const char* op, DType t, const void* p) {
  check_dtype(op, dtype_of<acc_t<T>>(), t, p, "a statistic");
}
// Gradients of parameters and states of optimizers may be T or fp32.
inline void check_t_or_fp32(const char* op, DType T, DType t, const void* p, const char* what) {
  if (t != DType::F32) check_dtype(op, T, t, p, what);
}
inline void check_rotary(const RotaryShape& s) {
  check(s.dims >= 0 && s.dims % 2 == 0 && s.dims <= s.D, "rotary: ", s.dims, " of the ", s.D,
        " dimensions of a head cannot turn; it must be an even number, at most ", s.D);
  check(s.first >= 0, "rotary: the first position is ", s.first, "; positions count from 0");
}
// The dtypes of an optimizer's update of one parameter.
inline void check_update(const char* op, const ParamUpdate& u) {
  const DType T = u.value.t;
  check_t_or_fp32(op, T, u.grad.t, u.grad.p, "a gradient");
  check_t_or_fp32(op, T, u.m.t, u.m.p, "the first moment (momentum)");
  check_t_or_fp32(op, T, u.v.t, u.v.p, "the second moment");
  check_dtype(op, DType::F32, u.master.t, u.master.p, "the master copy");
  check(!u.master.wanted() || T != DType::F64, op, ": a value in fp64 needs no master copy");
}

}  // namespace gradus
