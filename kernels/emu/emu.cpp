#include "kernels/emu/emu.h"

#include "kernels/cpu/parallel.h"
#include "kernels/emu/block.h"
#include "kernels/emu/traffic.h"

namespace gradus::emu {

constexpr int64_t kMostThreads = 1024, kMostShared = 227 << 10;  // limits of a block on an H100

static Order order_now = Order::Forward;
static int64_t launches_so_far = 0;

void set_order(Order order) { order_now = order; }
int64_t launches() { return launches_so_far; }
void* dynamic_shared() { return Block::current().shared(); }
void wait_for_block(Here where) { Block::current().wait_for_block(where); }
uint64_t exchange(WarpOp op, uint32_t mask, uint64_t bits, int source, Here where) {
  return Block::current().exchange(op, mask, bits, source, where);
}
int lane() { return Block::current().lane(); }

void launch(const Launch& l, void (*call)(const void*), const void* arguments) {
  const auto limit = [&](int64_t value, int64_t most, const char* what) {
    check(value > 0 && value <= most, "emu: ", l.kernel, ": ", what, " is ", value, "; a GPU allows 1 to ",
          most);
  };
  limit(l.grid.x, INT32_MAX, "grid.x");
  limit(l.grid.y, 65535, "grid.y");
  limit(l.grid.z, 65535, "grid.z");
  limit(l.block.z, 64, "block.z");
  limit(volume(l.block), kMostThreads, "the number of threads in a block");
  limit(l.shared_bytes + 1, kMostShared + 1, "dynamic shared memory, plus 1,");
  ++launches_so_far;
  const Turns blocks(order_now, volume(l.grid));
  cpu::parallel_for(blocks.n, 1, [&](int64_t begin, int64_t end) {
    loaded_here = stored_here = 0;  // not 0 after a launch that failed
    for (int64_t b = begin; b < end; ++b) Block::current().run(l, call, arguments, blocks(b), order_now);
    collect_traffic();
  });
}

}  // namespace gradus::emu
