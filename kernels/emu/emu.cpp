#include "kernels/emu/emu.h"

#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/emu/fiber.h"

namespace gradus::emu {

namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr size_t kStackBytes = 256 << 10;  // red zones around every local variable
#else
constexpr size_t kStackBytes = 64 << 10;
#endif
constexpr int64_t kMostThreads = 1024, kMostShared = 227 << 10;  // of a block, on an H100
constexpr int64_t kGuard = 64;  // bytes after the dynamic shared memory, which nobody may write

Order order_now = Order::Forward;

std::string text(const dim3& d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}
int64_t volume(const dim3& d) { return int64_t(d.x) * d.y * d.z; }
dim3 place(int64_t i, const dim3& d) {
  return {unsigned(i % d.x), unsigned(i / d.x % d.y), unsigned(i / d.x / d.y)};
}

// The present order of n things: the i-th is (first + i step) mod n. Shuffled: in steps that look random.
struct Turns {
  explicit Turns(int64_t n) : n(n) {
    if (order_now == Order::Reverse) first = n - 1, step = n - 1;
    if (order_now != Order::Shuffled) return;
    first = n / 3, step = 7919 % n;
    while (std::gcd(step, n) != 1) ++step;  // without a common factor everybody has a turn
  }
  int64_t operator()(int64_t i) const { return (first + i * step) % n; }
  int64_t n, first = 0, step = 1;
};

}  // namespace

// The block that a CPU thread is running. Its GPU threads are started one after the other, each on the stack of
// the one before if that has finished, so that kernels that never wait need a single stack.
class Block {
 public:
  void run(const Launch& launch, void (*call)(const void*), const void* arguments, int64_t block);
  void wait_for_block(Where where);
  uint64_t exchange(WarpOp op, uint32_t mask, uint64_t bits, int source, Where where);
  void* shared() { return shared_.get(); }
  int lane() const { return int(running_ - threads_.data()) % 32; }
  static Block& current() {
    static thread_local Block block;
    return block;
  }

 private:
  enum class State : uint8_t { New, Ready, Running, AtBarrier, InWarp, Done };
  struct Thread {
    State state = State::New;
    Fiber* fiber = nullptr;
    Where where;          // of the function it waits in
    WarpOp op{};          // InWarp: what it waits for, and its part in it
    uint32_t mask = 0;
    uint64_t bits = 0, result = 0;
    int source = 0;
  };

  static void threads_main();  // what every fiber runs
  Thread* next();
  void pass_turn();
  void start(Thread& t);
  void continue_with(Thread& t);
  void finish_exchange(Thread* warp, uint32_t mask);
  [[noreturn]] void stop(const std::string& problem);
  std::string name_of(const Thread& t) const;
  std::string waiting(const Thread& t) const;
  [[noreturn]] void stop_because_stuck();

  const Launch* launch_ = nullptr;
  void (*call_)(const void*) = nullptr;
  const void* arguments_ = nullptr;
  std::vector<Thread> threads_;
  Thread* running_ = nullptr;
  Turns turns_{1};
  int64_t count_ = 0, done_ = 0, at_barrier_ = 0, turn_ = 0;
  Where barrier_;
  Fiber outside_;  // the CPU thread itself
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> unused_;
  std::unique_ptr<char[]> shared_;  // exactly as long as asked for under AddressSanitizer, else with a guard
  std::exception_ptr error_;
};

// Whose turn it is: the next thread, in the present order, that can go on. nullptr: none.
Block::Thread* Block::next() {
  for (int64_t i = 0; i < count_; ++i) {
    if (++turn_ >= count_) turn_ = 0;
    Thread& t = threads_[turns_(turn_)];
    if (t.state == State::New || t.state == State::Ready) return &t;
  }
  return nullptr;
}

// Called by a GPU thread that has set its state to one of waiting.
void Block::pass_turn() {
  Thread& me = *running_;
  Thread* t = next();
  if (!t) stop_because_stuck();
  if (t == &me) {
    me.state = State::Running;
    return;
  }
  if (t->state == State::New) start(*t);
  Fiber& mine = *me.fiber;
  continue_with(*t);
  mine.switch_to(*t->fiber);
  // Back: whoever switched here has made this thread the running one.
}

// Gives a new thread a stack.
void Block::start(Thread& t) {
  if (unused_.empty()) unused_.push_back(fibers_.emplace_back(std::make_unique<Fiber>(kStackBytes)).get());
  t.fiber = unused_.back();
  unused_.pop_back();
  t.fiber->start(threads_main);
}

void Block::continue_with(Thread& t) {
  t.state = State::Running;
  running_ = &t;
  threadIdx = place(&t - threads_.data(), launch_->block);
}

void Block::threads_main() {
  Block& b = current();
  for (;;) {
    Thread& me = *b.running_;
    try {
      b.call_(b.arguments_);
    } catch (...) {
      b.error_ = std::current_exception();
      me.fiber->switch_to(b.outside_);
    }
    me.state = State::Done;
    Fiber* const fiber = me.fiber;
    if (++b.done_ == b.count_) fiber->switch_to(b.outside_);
    Thread* const t = b.next();
    if (!t) b.stop_because_stuck();
    if (t->state == State::New) {
      t->fiber = fiber;
      b.continue_with(*t);
    } else {
      b.unused_.push_back(fiber);
      b.continue_with(*t);
      fiber->switch_to(*t->fiber);  // for good: when this fiber is needed again, it is started anew
    }
  }
}

void Block::run(const Launch& launch, void (*call)(const void*), const void* arguments, int64_t block) {
  launch_ = &launch, call_ = call, arguments_ = arguments;
  count_ = volume(launch.block), done_ = at_barrier_ = 0, turn_ = -1;
  turns_ = Turns(count_);
  blockIdx = place(block, launch.grid), blockDim = launch.block, gridDim = launch.grid;
  threads_.assign(count_, Thread());
  unused_.clear();
  for (const auto& f : fibers_) unused_.push_back(f.get());
#ifdef __SANITIZE_ADDRESS__
  shared_.reset(new char[launch.shared_bytes]);
  std::memset(shared_.get(), 0xFF, launch.shared_bytes);
#else
  shared_.reset(new char[launch.shared_bytes + kGuard]);
  std::memset(shared_.get(), 0xFF, launch.shared_bytes + kGuard);
#endif
  Thread& first = *next();
  start(first);
  continue_with(first);
  outside_.switch_to(*first.fiber);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
#ifndef __SANITIZE_ADDRESS__
  for (int64_t i = 0; i < kGuard; ++i)
    check(shared_[launch.shared_bytes + i] == char(0xFF), "emu: ", launch.kernel, ", block ", text(blockIdx),
          " wrote past its ", launch.shared_bytes, " bytes of dynamic shared memory");
#endif
}

void Block::wait_for_block(Where where) {
  Thread& me = *running_;
  if (at_barrier_ == 0) barrier_ = where;
  me.where = where;
  if (where.line() != barrier_.line() || where.file_name() != barrier_.file_name())
    stop("divergent barrier: " + name_of(me) + " is at " + waiting(me) + ", others of its block at line " +
         std::to_string(barrier_.line()));
  if (++at_barrier_ < count_) {
    me.state = State::AtBarrier;
    return pass_turn();
  }
  at_barrier_ = 0;
  for (Thread& t : threads_)
    if (t.state == State::AtBarrier) t.state = State::Ready;
  me.state = State::Ready;
  turn_ = -1;
  pass_turn();
}

uint64_t Block::exchange(WarpOp op, uint32_t mask, uint64_t bits, int source, Where where) {
  Thread& me = *running_;
  const int64_t first = (&me - threads_.data()) / 32 * 32, lanes = std::min<int64_t>(32, count_ - first);
  Thread* const warp = &threads_[first];
  me.where = where, me.op = op, me.mask = mask, me.bits = bits, me.source = source;
  if (!(mask >> lane() & 1)) stop(name_of(me) + " calls a warp function at " + waiting(me) + " with a mask without itself");
  me.state = State::InWarp;
  bool all = true;
  for (int64_t l = 0; l < lanes && all; ++l)
    all = !(mask >> l & 1) || (warp[l].state == State::InWarp && warp[l].mask == mask);
  if (all) finish_exchange(warp, mask);
  pass_turn();
  return me.result;
}

void Block::finish_exchange(Thread* warp, uint32_t mask) {
  const int64_t lanes = std::min<int64_t>(32, threads_.data() + count_ - warp);
  uint32_t ballot = 0;
  for (int64_t l = 0; l < lanes; ++l) {
    if (!(mask >> l & 1)) continue;
    if (warp[l].where.line() != running_->where.line() || warp[l].op != running_->op)
      stop("divergent warp: " + name_of(warp[l]) + " is at " + waiting(warp[l]) + ", " + name_of(*running_) + " at " +
           waiting(*running_));
    ballot |= uint32_t(warp[l].bits != 0) << l;
  }
  for (int64_t l = 0; l < lanes; ++l) {
    if (!(mask >> l & 1)) continue;
    Thread& t = warp[l];
    const bool given = t.source >= 0 && t.source < lanes && (mask >> t.source & 1);
    t.result = t.op == WarpOp::Ballot ? ballot : given ? warp[t.source].bits : t.bits;
    t.state = State::Ready;
  }
}

std::string Block::name_of(const Thread& t) const {
  return "thread " + text(place(&t - threads_.data(), launch_->block));
}
std::string Block::waiting(const Thread& t) const {
  const std::string file = t.where.file_name();
  return file + ":" + std::to_string(t.where.line()) + (t.state == State::AtBarrier ? " (__syncthreads)" : "");
}

void Block::stop(const std::string& problem) {
  error_ = std::make_exception_ptr(
      Error(std::string("emu: ") + launch_->kernel + ", block " + text(blockIdx) + ": " + problem));
  running_->fiber->switch_to(outside_);
  __builtin_unreachable();
}

// Nobody can go on: some wait for threads that have returned, or that wait elsewhere.
void Block::stop_because_stuck() {
  const Thread *waits = nullptr, *other = nullptr;
  for (const Thread& t : threads_) {
    const bool is_waiting = t.state == State::AtBarrier || t.state == State::InWarp;
    if (is_waiting && !waits)
      waits = &t;
    else if (!other && (t.state == State::Done || (waits && t.state != waits->state)))
      other = &t;
  }
  std::string problem = name_of(*waits) + " waits at " + waiting(*waits) + " for ever: ";
  if (other && other->state == State::Done)
    problem += name_of(*other) + " has returned without coming there";
  else if (other)
    problem += name_of(*other) + " waits at " + waiting(*other);
  else
    problem += "not all lanes of its mask come there";
  stop((waits->state == State::AtBarrier ? "divergent barrier: " : "deadlock in a warp: ") + problem);
}

void set_order(Order order) { order_now = order; }
void* dynamic_shared() { return Block::current().shared(); }
void wait_for_block(Where where) { Block::current().wait_for_block(where); }
uint64_t exchange(WarpOp op, uint32_t mask, uint64_t bits, int source, Where where) {
  return Block::current().exchange(op, mask, bits, source, where);
}
int lane() { return Block::current().lane(); }

void launch(const Launch& l, void (*call)(const void*), const void* arguments) {
  const auto limit = [&](int64_t value, int64_t most, const char* what) {
    check(value > 0 && value <= most, "emu: ", l.kernel, ": ", what, " is ", value, "; a GPU takes 1 to ", most);
  };
  limit(l.grid.x, INT32_MAX, "grid.x");
  limit(l.grid.y, 65535, "grid.y");
  limit(l.grid.z, 65535, "grid.z");
  limit(volume(l.block), kMostThreads, "the number of threads in a block");
  limit(l.shared_bytes + 1, kMostShared + 1, "dynamic shared memory, plus 1,");
  const Turns blocks(volume(l.grid));
  cpu::parallel_for(blocks.n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) Block::current().run(l, call, arguments, blocks(b));
  });
}

}  // namespace gradus::emu
