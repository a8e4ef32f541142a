#include "kernels/emu/block.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace gradus::emu {

#ifdef __SANITIZE_ADDRESS__
constexpr size_t kStackBytes = 256 << 10;  // room for red zones around every local variable
constexpr int64_t kGuard = 0;              // none: AddressSanitizer finds all writes past shared memory
#else
constexpr size_t kStackBytes = 64 << 10;
constexpr int64_t kGuard = 64;  // bytes after the dynamic shared memory that no thread may write
#endif

Turns::Turns(Order order, int64_t n) : order(order), n(n) {
  if (order == Order::Reverse) first = n - 1, step = n - 1;
  if (order != Order::Shuffled) return;
  first = n / 3, step = 7919 % n;
  while (std::gcd(step, n) != 1) ++step;  // without a common factor the steps reach all n
}
int64_t Turns::before_warp(int64_t first_thread, int64_t lanes, int64_t now) const {
  if (order == Order::Forward) return (first_thread + n - 1) % n;
  if (order == Order::Reverse) return (first_thread + lanes) % n;
  return now;
}

// The next thread, in the current order, that can run; nullptr if none can.
Block::Thread* Block::next() {
  for (int64_t i = 0; i < count_; ++i) {
    last_ = turns_.after(last_);
    Thread& t = threads_[last_];
    if (t.state == State::New || t.state == State::Ready) return &t;
  }
  return nullptr;
}

// Called by a GPU thread that has set its state to a waiting one.
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
  // This thread continues: the thread that switched here has made it the running one.
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
  threadIdx = t.index;
}

void Block::threads_main(void*) {
  Block& b = current();
  for (;;) {
    Thread& me = *b.running_;
    Fiber* const fiber = me.fiber;
    Thread* t = nullptr;
    try {
      b.call_(b.arguments_);
      me.state = State::Done;
      if (++b.done_ < b.count_ && !(t = b.next())) b.stop_because_stuck();
    } catch (...) {
      b.error_ = std::current_exception();
    }
    if (b.error_ || b.done_ == b.count_) fiber->switch_to(b.outside_);
    if (t->state == State::New) {
      t->fiber = fiber;
      b.continue_with(*t);
    } else {
      b.unused_.push_back(fiber);
      b.continue_with(*t);
      fiber->switch_to(*t->fiber);  // does not return: before this fiber is used again, it is restarted
    }
  }
}

void Block::run(const Launch& launch, void (*call)(const void*), const void* arguments, int64_t block,
                Order order) {
  launch_ = &launch, call_ = call, arguments_ = arguments;
  count_ = volume(launch.block), done_ = at_barrier_ = 0;
  turns_ = Turns(order, count_), last_ = turns_.before_first();
  std::fill(std::begin(meeting_), std::end(meeting_), 0);
  blockIdx = place(block, launch.grid), blockDim = launch.block, gridDim = launch.grid;
  threads_.assign(count_, Thread());
  for (int64_t i = 0; i < count_; ++i) threads_[i].index = place(i, launch.block);
  unused_.clear();
  for (const auto& f : fibers_) unused_.push_back(f.get());
  shared_.reset(new char[launch.shared_bytes + kGuard]);
  std::memset(shared_.get(), 0xFF, launch.shared_bytes + kGuard);
  Thread& first = *next();
  start(first);
  continue_with(first);
  outside_.switch_to(*first.fiber);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  const char* const guard = shared_.get() + launch.shared_bytes;
  if (std::any_of(guard, guard + kGuard, [](char c) { return c != char(0xFF); }))
    fail("emu: ", launch.kernel, ", block ", text(blockIdx), " wrote past its ", launch.shared_bytes,
         " bytes of dynamic shared memory");
}

void Block::wait_for_block(Here where) {
  Thread& me = *running_;
  if (at_barrier_ == 0) barrier_ = &where;
  me.where = &where;
  if (!(where == *barrier_))
    stop("divergent barrier: " + name_of(me) + " is at " + waiting(me) + ", others of its block at line " +
         std::to_string(barrier_->line));
  if (++at_barrier_ < count_) {
    me.state = State::AtBarrier;
    return pass_turn();
  }
  at_barrier_ = 0;
  for (Thread& t : threads_)
    if (t.state == State::AtBarrier) t.state = State::Ready;
  me.state = State::Ready;
  last_ = turns_.before_first();
  pass_turn();
}

uint64_t Block::exchange(WarpOp op, uint32_t mask, uint64_t bits, int source, Here where) {
  Thread& me = *running_;
  const int64_t first = (&me - threads_.data()) / 32 * 32, lanes = std::min<int64_t>(32, count_ - first);
  Thread* const warp = &threads_[first];
  me.where = &where, me.op = op, me.mask = mask, me.bits = bits, me.source = source;
  if (!(mask >> lane() & 1))
    stop(name_of(me) + " calls a warp function at " + waiting(me) + " with a mask that lacks its own lane");
  me.state = State::InWarp;
  const int wanted = std::popcount(lanes == 32 ? mask : mask & ((1u << lanes) - 1));
  bool all = ++meeting_[first / 32] >= wanted;
  for (int64_t l = 0; l < lanes && all; ++l)
    all = !(mask >> l & 1) || (warp[l].state == State::InWarp && warp[l].mask == mask);
  if (all) {
    finish_exchange(warp, mask);
    meeting_[first / 32] -= wanted;
    last_ = turns_.before_warp(first, lanes, last_);
  }
  pass_turn();
  return me.result;
}

void Block::finish_exchange(Thread* warp, uint32_t mask) {
  const int64_t lanes = std::min<int64_t>(32, threads_.data() + count_ - warp);
  uint32_t ballot = 0;
  for (int64_t l = 0; l < lanes; ++l) {
    if (!(mask >> l & 1)) continue;
    if (!(*warp[l].where == *running_->where) || warp[l].op != running_->op)
      stop("divergent warp: " + name_of(warp[l]) + " is at " + waiting(warp[l]) + ", " + name_of(*running_) +
           " at " + waiting(*running_));
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

std::string Block::name_of(const Thread& t) const { return "thread " + text(t.index); }
std::string Block::waiting(const Thread& t) const {
  return std::string(t.where->file) + ":" + std::to_string(t.where->line) +
         (t.state == State::AtBarrier ? " (__syncthreads)" : "");
}

// Ends the running GPU thread, and with it the block.
void Block::stop(const std::string& problem) {
  throw Error(std::string("emu: ") + launch_->kernel + ", block " + text(blockIdx) + ": " + problem);
}

// No thread can run: some wait for threads that have returned, or that wait at a different place.
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
    problem += name_of(*other) + " has returned without reaching it";
  else if (other)
    problem += name_of(*other) + " waits at " + waiting(*other);
  else
    problem += "not all lanes of its mask reach it";
  stop((waits->state == State::AtBarrier ? "divergent barrier: " : "deadlock in a warp: ") + problem);
}

}  // namespace gradus::emu
