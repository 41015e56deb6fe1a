// Fiber stacks for waiting CUDA threads, and the context switch.
#ifndef WARPGRADE_EMU_FIBER_H
#define WARPGRADE_EMU_FIBER_H

#include <cstddef>
#include <cstdint>
#include <vector>

#if (!defined(__x86_64__) && !defined(__aarch64__)) || defined(WARPGRADE_EMU_UCONTEXT)
#define WARPGRADE_EMU_PORTABLE_SWITCH 1
#include <ucontext.h>
#endif

namespace emu {

// Suspended context: registers, stored on the context's own stack except with the portable switch.
struct Context {
#ifdef WARPGRADE_EMU_PORTABLE_SWITCH
  ucontext_t state;
#else
  void* stack_pointer = nullptr;
#endif
};

// Prepares `context` to run `entry` on the stack that ends at `stack_end`. `entry` must not return.
void prepare(Context& context, char* stack_end, std::size_t stack_bytes, void (*entry)());

// Suspends the caller as `from` and resumes `to`.
#ifdef WARPGRADE_EMU_PORTABLE_SWITCH
inline void switch_context(Context& from, const Context& to) { swapcontext(&from.state, &to.state); }
#else
// Saves the callee-saved registers, stores the stack pointer in *from, and restores the registers of `to`. swapcontext
// would add two system calls for the signal mask: thirty times slower.
extern "C" void warpgrade_emu_switch(void** from, void* to);

inline void switch_context(Context& from, const Context& to) {
  warpgrade_emu_switch(&from.stack_pointer, to.stack_pointer);
}
#endif

// Stacks with a guard page below each stack, created on demand and kept: a block of 1024 threads needs 1024 stacks.
// Only touched pages use memory.
class StackPool {
 public:
  // Holds the kernel's local arrays. A GPU allows 512 KiB per thread, which few kernels need.
  static constexpr std::size_t kStackBytes = 256 * 1024;
  // Usable size of a stack, for any colour offset.
  static constexpr std::size_t kUsableBytes = kStackBytes - 4096;

  StackPool() = default;
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  // End (highest address) of stack number `index`.
  char* stack_end(unsigned index);

  // Returns whether `address` lies in a guard page: the kernel's local variables overflowed the stack.
  bool is_guard(std::uintptr_t address) const;

 private:
  std::vector<char*> slabs_;
};

}  // namespace emu

#endif  // WARPGRADE_EMU_FIBER_H
