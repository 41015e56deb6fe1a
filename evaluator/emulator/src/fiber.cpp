#include "fiber.h"

#include <sys/mman.h>

#include <new>

#include "pages.h"

namespace emu {
namespace {

constexpr unsigned kStacksPerSlab = 64;

std::size_t stride_bytes() { return StackPool::kStackBytes + page_bytes(); }

}  // namespace

StackPool::~StackPool() {
  for (char* slab : slabs_) munmap(slab, kStacksPerSlab * stride_bytes());
}

char* StackPool::stack_end(unsigned index) {
  while (slabs_.size() <= index / kStacksPerSlab) {
    void* slab = mmap(nullptr, kStacksPerSlab * stride_bytes(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab == MAP_FAILED) throw std::bad_alloc();
    slabs_.push_back(static_cast<char*>(slab));
    for (unsigned i = 0; i < kStacksPerSlab; ++i) mprotect(slabs_.back() + i * stride_bytes(), page_bytes(), PROT_NONE);
  }
  // Cache colouring: stacks that end at the same page offset would compete for the same cache lines.
  const std::size_t colour = index * 320u % 4096u;
  return slabs_[index / kStacksPerSlab] + (index % kStacksPerSlab + 1) * stride_bytes() - colour;
}

bool StackPool::is_guard(std::uintptr_t address) const {
  for (char* slab : slabs_) {
    const std::uintptr_t start = reinterpret_cast<std::uintptr_t>(slab);
    if (address < start || address >= start + kStacksPerSlab * stride_bytes()) continue;
    return (address - start) % stride_bytes() < page_bytes();
  }
  return false;
}

#ifdef WARPGRADE_EMU_PORTABLE_SWITCH

void prepare(Context& context, char* stack_end, std::size_t stack_bytes, void (*entry)()) {
  getcontext(&context.state);
  context.state.uc_stack.ss_sp = stack_end - stack_bytes;
  context.state.uc_stack.ss_size = stack_bytes;
  context.state.uc_link = nullptr;
  makecontext(&context.state, entry, 0);
}

#else

#if defined(__x86_64__)

// An indirect jump instead of `ret`: return prediction assumes matching calls and returns, which never occur here.
asm(R"(
.text
.p2align 4
.hidden warpgrade_emu_switch
.globl warpgrade_emu_switch
.type warpgrade_emu_switch, @function
warpgrade_emu_switch:
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
  popq %rcx
  jmpq *%rcx
.size warpgrade_emu_switch, . - warpgrade_emu_switch
)");

void prepare(Context& context, char* stack_end, std::size_t, void (*entry)()) {
  void** top = reinterpret_cast<void**>(stack_end);
  *--top = nullptr;                         // null return address of `entry`; aligns the stack as after a call
  *--top = reinterpret_cast<void*>(entry);  // target of the switch
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  context.stack_pointer = top;
}

#else  // aarch64

asm(R"(
.text
.p2align 4
.hidden warpgrade_emu_switch
.globl warpgrade_emu_switch
.type warpgrade_emu_switch, %function
warpgrade_emu_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size warpgrade_emu_switch, . - warpgrade_emu_switch
)");

void prepare(Context& context, char* stack_end, std::size_t, void (*entry)()) {
  void** top = reinterpret_cast<void**>(stack_end) - 20;
  for (int i = 0; i < 20; ++i) top[i] = nullptr;
  top[11] = reinterpret_cast<void*>(entry);  // x30, target of the switch's `ret`
  context.stack_pointer = top;
}

#endif

#endif

}  // namespace emu
