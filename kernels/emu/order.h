#pragma once

namespace gradus::emu {

// The order in which the threads of a block take turns, for all later launches.
enum class Order { Forward, Reverse, Shuffled };
void set_order(Order);

}  // namespace gradus::emu
