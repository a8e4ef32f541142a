// A fiber: a function with a stack of its own, which can stop in the middle and be continued later. Switching
// saves the registers that a call must preserve and moves the stack pointer: a few instructions on x86-64.
// On other processors ucontext does it, about 20 times slower, because it also reads the signal mask from the
// system. Each fiber has its own list of exceptions that it handles, so it may stop inside a catch block.
#pragma once
#include <cstddef>

#if !defined(__x86_64__) || defined(GRADUS_UCONTEXT)
#define GRADUS_UCONTEXT
#include <ucontext.h>
#endif

namespace gradus {

class Fiber {
 public:
  Fiber() = default;  // stands for the stack of the calling thread, to leave it and to return to it
  explicit Fiber(size_t stack_bytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;

  // The next switch to this fiber calls entry(argument), which must not return, on an empty stack. If the
  // fiber was in the middle of a function, that call is abandoned; no destructors run.
  void start(void (*entry)(void*), void* argument = nullptr);
  // Leaves this fiber, which must be the running one, and continues `to`. Returns when something switches
  // back.
  void switch_to(Fiber& to);

 private:
  static void first_call();
  void arrived();
  void forget_calls();

  char* stack_ = nullptr;  // its lowest address
  size_t bytes_ = 0;
  bool mapped_ = false;  // the constructor mapped the stack, with an inaccessible page below it
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  struct Exceptions {  // the C++ runtime's, per thread: those being handled, and the number of uncaught ones
    void* handled = nullptr;
    unsigned thrown = 0;
  } exceptions_;
#ifdef GRADUS_UCONTEXT
  ucontext_t saved_;
#else
  void* saved_ = nullptr;  // the stack pointer; it points to the saved registers
#endif
  void* fake_stack_ = nullptr;  // AddressSanitizer's
};

}  // namespace gradus
