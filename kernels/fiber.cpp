#include "kernels/fiber.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "kernels/check.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef GRADUS_UCONTEXT
// gradus_switch_stack(save, load): pushes the registers that a call must preserve, stores the stack pointer
// in *save, switches to the stack `load`, pops the registers saved there and returns to the address on that
// stack.
extern "C" void gradus_switch_stack(void** save, void* load);
asm(R"(
  .text
  .p2align 4
  .globl gradus_switch_stack
  .hidden gradus_switch_stack
  .type gradus_switch_stack, @function
gradus_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size gradus_switch_stack, .-gradus_switch_stack
)");
#endif

namespace gradus {

// The two fibers of this thread's current switch.
static thread_local Fiber *from, *to;

static const size_t kPage = size_t(sysconf(_SC_PAGESIZE));

Fiber::Fiber(size_t stack_bytes) : bytes_(stack_bytes), mapped_(true) {
  void* p = mmap(nullptr, kPage + bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check(p != MAP_FAILED && mprotect(static_cast<char*>(p) + kPage, bytes_, PROT_READ | PROT_WRITE) == 0,
        "fiber: no memory for a stack of ", stack_bytes, " bytes");
  stack_ = static_cast<char*>(p) + kPage;
}

// Calls that were abandoned leave red zones, which AddressSanitizer would find in whatever is mapped here
// next.
void Fiber::forget_calls() {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(stack_, bytes_);
#endif
}

Fiber::~Fiber() {
  if (!mapped_) return;
  forget_calls();
  munmap(stack_ - kPage, kPage + bytes_);
}

void Fiber::start(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  exceptions_ = {};
  forget_calls();
  fake_stack_ = nullptr;
#ifdef GRADUS_UCONTEXT
  getcontext(&saved_);
  saved_.uc_stack.ss_sp = stack_;
  saved_.uc_stack.ss_size = bytes_;
  saved_.uc_link = nullptr;
  makecontext(&saved_, &Fiber::first_call, 0);
#else
  // The stack looks as if a function that does not exist had called first_call, with the alignment of 16
  // bytes. Below the address of first_call are the six registers.
  void** top = reinterpret_cast<void**>(stack_ + bytes_ / 16 * 16);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&Fiber::first_call);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  saved_ = top;
#endif
}

void Fiber::switch_to(Fiber& next) {
  from = this;
  to = &next;
  // The C++ ABI (Itanium, 2.2.2) defines the layout of the result.
  auto* const exceptions = static_cast<Exceptions*>(static_cast<void*>(abi::__cxa_get_globals()));
  exceptions_ = std::exchange(*exceptions, next.exceptions_);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&fake_stack_, next.stack_, next.bytes_);
#endif
#ifdef GRADUS_UCONTEXT
  swapcontext(&saved_, &next.saved_);
#else
  gradus_switch_stack(&saved_, next.saved_);
#endif
  arrived();
}

void Fiber::first_call() {
  to->arrived();
  to->entry_(to->argument_);
}

// Tells AddressSanitizer that the switch is done, and asks it for the bounds of the stack that was left: for
// the stack of a thread there is no other source.
void Fiber::arrived() {
#ifdef __SANITIZE_ADDRESS__
  const void* bottom;
  size_t bytes;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
  if (from->mapped_) return;
  from->stack_ = static_cast<char*>(const_cast<void*>(bottom));
  from->bytes_ = bytes;
#endif
}

}  // namespace gradus
