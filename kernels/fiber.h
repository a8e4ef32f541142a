// A fiber: a function with a stack of its own, which can stop in the middle and be continued later. Switching
// saves the registers that a call must preserve and moves the stack pointer: a few instructions on x86-64.
// Elsewhere ucontext does it, some 20 times slower, because it also asks the system for the signal mask.
// Each fiber has the exceptions that it handles to itself, so it may stop within a catch.
#pragma once
#include <cstddef>

#if !defined(__x86_64__) || defined(GRADUS_UCONTEXT)
#define GRADUS_UCONTEXT
#include <ucontext.h>
#endif

namespace gradus {

class Fiber {
 public:
  Fiber() = default;  // stands for the stack that it is made on: something to leave, and to come back to
  explicit Fiber(size_t stack_bytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;

  // The next switch to this fiber calls entry(argument), which must not return, on an empty stack. What the
  // fiber may have been in the middle of is forgotten; no destructors run.
  void start(void (*entry)(void*), void* argument = nullptr);
  // Leaves this fiber, which must be the running one, and continues `to`. Returns when something switches
  // back.
  void switch_to(Fiber& to);

 private:
  static void first_call();
  void arrived();

  char* stack_ = nullptr;  // its lowest address
  size_t bytes_ = 0;
  bool mapped_ = false;  // by the constructor, with a page below that nobody may touch
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  struct Exceptions {  // of a thread, in C++'s runtime: those that are being handled, and how many are thrown
    void* handled = nullptr;
    unsigned thrown = 0;
  } exceptions_;
#ifdef GRADUS_UCONTEXT
  ucontext_t saved_;
#else
  void* saved_ = nullptr;  // the stack pointer; what it points to are the registers
#endif
  void* fake_stack_ = nullptr;  // AddressSanitizer's
};

}  // namespace gradus
