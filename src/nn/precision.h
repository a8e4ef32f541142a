// Precision: the number formats in which a model trains. Five recipes have names; their bytes per parameter
// are published (weights + master + gradient + AdamW's two states):
//
//   fp32        4 + 0 + 4 + 8 = 16
//   mixed       2 + 4 + 4 + 8 = 18   weights and activations in bf16; the optimizer keeps the weights in fp32
//                                    and rounds them after each update (Micikevicius et al. 2018, sec. 3.1)
//   mixed-fp16  2 + 4 + 4 + 8 = 18   the same in fp16; needs loss scaling (sec. 3.2; start_loss_scaling)
//   zero        2 + 4 + 2 + 8 = 16   as mixed-fp16, gradients in fp16 (Rajbhandari et al. 2020, sec. 3.1)
//   half        2 + 0 + 2 + 4 =  8   all in fp16: the least memory, but small updates round away
#pragma once
#include <string_view>

#include "kernels/check.h"
#include "kernels/dtype.h"

namespace gradus {

struct Precision {
  DType value = DType::F32;     // weights that kernels read, activations and their gradients
  DType gradient = DType::F32;  // gradients of the weights: as `value`, or fp32
  DType state = DType::F32;     // states of the optimizer: as `value`, or fp32
  bool master = false;          // also keep a copy of the weights in fp32: value = round(master)
  bool operator==(const Precision&) const = default;
};

constexpr Precision uniform(DType t) { return {t, t, t, false}; }
constexpr Precision mixed(DType t) { return {t, DType::F32, DType::F32, true}; }
inline constexpr std::string_view kRecipes[] = {"fp32", "mixed", "mixed-fp16", "zero", "half"};

inline Precision precision_recipe(std::string_view name) {
  if (name == "fp32") return uniform(DType::F32);
  if (name == "mixed") return mixed(DType::BF16);
  if (name == "mixed-fp16") return mixed(DType::F16);
  if (name == "zero") return {DType::F16, DType::F16, DType::F32, true};
  if (name == "half") return uniform(DType::F16);
  fail("precision '", name, "' is unknown; it can be: fp32, mixed, mixed-fp16, zero, half");
}

}  // namespace gradus
