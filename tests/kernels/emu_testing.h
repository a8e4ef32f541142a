// Shared by the tests of emu.
#pragma once
#include <gtest/gtest.h>

#include "kernels/emu/emu.h"

namespace gradus {

using emu::Order;
constexpr Order kOrders[] = {Order::Forward, Order::Reverse, Order::Shuffled};

template <class Body>
void launch(const char* name, dim3 grid, dim3 block, int64_t shared_bytes, const Body& body) {
  emu::launch(emu::Launch{name, grid, block, shared_bytes}, body);
}

class EmuTest : public testing::Test {
 protected:
  ~EmuTest() override { emu::set_order(Order::Forward); }
};

}  // namespace gradus
