// Stacks that a CUDA thread can wait on, and the switch between them.
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

// Where something stopped running: its registers, which lie on its own stack unless the switch is the portable one.
struct Context {
#ifdef WARPGRADE_EMU_PORTABLE_SWITCH
  ucontext_t state;
#else
  void* stack_pointer = nullptr;
#endif
};

// Makes `context` start `entry`, which must not return, on the stack that ends at `stack_end` when first switched to.
void prepare(Context& context, char* stack_end, std::size_t stack_bytes, void (*entry)());

// Stops here, as `from`, and goes on where `to` stopped.
#ifdef WARPGRADE_EMU_PORTABLE_SWITCH
inline void switch_context(Context& from, const Context& to) { swapcontext(&from.state, &to.state); }
#else
// Saves the registers that a function call keeps, leaves the stack pointer in *from, and restores those of `to`.
// swapcontext would do the same with two system calls for the signal mask, some thirty times slower.
extern "C" void warpgrade_emu_switch(void** from, void* to);

inline void switch_context(Context& from, const Context& to) {
  warpgrade_emu_switch(&from.stack_pointer, to.stack_pointer);
}
#endif

// Stacks with a guard page below each, made on demand and kept: a block of 1024 threads needs 1024 of them. Memory is
// only used for the pages that a kernel touches.
class StackPool {
 public:
  // Local arrays live here. A GPU allows 512 KiB a thread, which hardly any kernel needs.
  static constexpr std::size_t kStackBytes = 256 * 1024;
  // What a fiber may use of it, wherever its end lies.
  static constexpr std::size_t kUsableBytes = kStackBytes - 4096;

  StackPool() = default;
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  // The end (highest address) of stack number `index`.
  char* stack_end(unsigned index);

  // Whether `address` lies in the guard page of a stack: a kernel's local variables did not fit.
  bool is_guard(std::uintptr_t address) const;

 private:
  std::vector<char*> slabs_;
};

}  // namespace emu

#endif  // WARPGRADE_EMU_FIBER_H
