// Lists of parameters inside a kernel: the launch rejects dtypes that an update cannot have; if such a dtype
// reaches a kernel nevertheless, the kernel throws and does not read it as fp16. (In its own file, because
// emu's names conflict with CUDA's.)
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/param_list.h"

namespace gradus {
namespace {

TEST(L03_ParamListOnEmu, AKernelDoesNotReadWhatItDoesNotKnow) {
  std::vector<double> x(emu::kEach * emu::kThreads);
  for (const DType t : {DType::F64, DType::I64, DType::I32, DType::I8, DType::U8}) {
    const auto thrown_by = [&](const auto& body) -> std::string {
      try {
        emu::launch(emu::Launch{"test", 1, emu::kThreads, 0}, body);
      } catch (const Error& e) {
        return e.what();
      }
      return "";
    };
    float r[emu::kEach] = {};
    const Out y{x.data(), t, Write::Set};
    for (const std::string& text :
         {thrown_by([&] { emu::read(y, 0, 1, r); }), thrown_by([&] { emu::write(y, 0, 1, r); })})
      EXPECT_NE(text.find("is not fp32, bf16 or fp16"), std::string::npos) << name_of(t) << ": " << text;
  }
}

}  // namespace
}  // namespace gradus
