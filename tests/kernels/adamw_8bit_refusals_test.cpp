// What adamw_8bit refuses: dtypes, and states that are not there.
#include "tests/kernels/adamw_8bit_testing.h"

namespace gradus {
namespace {

ON_EVERY_DEVICE(L11_KernelRefusals);

TEST_P(L11_KernelRefusals, AdamW8BitRefusesWhatItCannotDo) {
  const QuantBook m_book = dynamic_book(Sign::Signed), v_book = dynamic_book(Sign::Unsigned);
  const Books books(m_book, v_book);
  Update u(DType::F32, DType::F32, 300, true, false, m_book, v_book);
  TestCtx ctx;
  ctx.scalars().updates = 1;
  const auto refused = [&](const std::function<void(ParamUpdate&)>& change) {
    ParamUpdate item = u.item();
    change(item);
    return refusal([&] {
      table().adamw_8bit(ctx, books.in(0), books.in(1), {1, &item}, kArgs);
      wait_for_kernels();
    });
  };
  EXPECT_EQ(refused([](ParamUpdate&) {}), "");
  EXPECT_NE(refused([](ParamUpdate& u) { u.value.t = DType::F64; }).find("fp64"), std::string::npos);
  EXPECT_NE(refused([](ParamUpdate& u) { u.m.t = DType::F32; }).find("m is fp32"), std::string::npos);
  EXPECT_NE(refused([](ParamUpdate& u) { u.v.t = DType::I8; }).find("v is"), std::string::npos);
  EXPECT_NE(refused([](ParamUpdate& u) { u.m_scales.t = DType::F16; }).find("m's scales"), std::string::npos);
  EXPECT_NE(refused([](ParamUpdate& u) { u.v_scales.t = DType::F64; }).find("v's scales"), std::string::npos);
  EXPECT_NE(refused([](ParamUpdate& u) { u.grad.t = DType::BF16; }).find("a gradient"), std::string::npos);
  EXPECT_NE(refused([](ParamUpdate& u) { u.v_scales.p = nullptr; }).find("must be there"), std::string::npos);
  EXPECT_NE(refused([](ParamUpdate& u) { u.m.p = nullptr; }).find("must be there"), std::string::npos);
  const ParamUpdate item = u.item();
  for (int i = 0; i < 2; ++i) {
    CBuf wrong[2] = {books.in(0), books.in(1)};
    wrong[i].t = DType::F32;
    EXPECT_NE(refusal([&] {
                table().adamw_8bit(ctx, wrong[0], wrong[1], {1, &item}, kArgs);
              }).find("the book"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace gradus
