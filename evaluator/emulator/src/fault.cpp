#include "fault.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <new>

#include "heap.h"
#include "worker.h"

namespace emu {
namespace {

constexpr std::size_t kHandlerStackBytes = 64 * 1024;
constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr int kCount = sizeof kSignals / sizeof *kSignals;

std::mutex install_mutex;
int installed = 0;
struct sigaction previous[kCount];

#if defined(__aarch64__)
// The kernel appends records to the machine context. The record with this magic number holds the fault syndrome.
constexpr std::uint32_t kSyndromeMark = 0x45535201;

Access access_of(const ucontext_t& context) {
  const unsigned char* record = reinterpret_cast<const unsigned char*>(context.uc_mcontext.__reserved);
  for (;;) {
    struct Header {
      std::uint32_t magic, size;
    };
    const Header* header = reinterpret_cast<const Header*>(record);
    if (header->magic == 0 || header->size == 0) return Access::kUnknown;
    if (header->magic == kSyndromeMark) {
      const std::uint64_t syndrome = *reinterpret_cast<const std::uint64_t*>(record + sizeof(Header));
      return (syndrome >> 6 & 1) != 0 ? Access::kWrite : Access::kRead;  // WnR: write, not read
    }
    record += header->size;
  }
}

const void* pc_of(const ucontext_t& context) { return reinterpret_cast<const void*>(context.uc_mcontext.pc); }
#elif defined(__x86_64__)
Access access_of(const ucontext_t& context) {
  return (context.uc_mcontext.gregs[REG_ERR] & 2) != 0 ? Access::kWrite : Access::kRead;
}

const void* pc_of(const ucontext_t& context) {
  return reinterpret_cast<const void*>(context.uc_mcontext.gregs[REG_RIP]);
}
#else
Access access_of(const ucontext_t&) { return Access::kUnknown; }
const void* pc_of(const ucontext_t&) { return nullptr; }
#endif

void handle(int signal, siginfo_t* info, void* raw) {
  const ucontext_t& context = *static_cast<const ucontext_t*>(raw);
  // Positive codes denote processor faults; other signals were sent by a process.
  if (worker != nullptr && info->si_code > 0) {
    worker->faults.escape(
        {signal, info->si_code, reinterpret_cast<std::uintptr_t>(info->si_addr), pc_of(context), access_of(context)});
  }
  // Not a kernel's fault: restore the previous handler, and let the instruction fault again.
  for (int i = 0; i < kCount; ++i) {
    if (kSignals[i] == signal) sigaction(signal, &previous[i], nullptr);
  }
  if (info->si_code <= 0) ::raise(signal);
}

const char* verb(Access access) {
  switch (access) {
    case Access::kRead:
      return "READ ";
    case Access::kWrite:
      return "WRITE ";
    case Access::kUnknown:
      break;
  }
  return "access ";
}

}  // namespace

FaultCatcher::FaultCatcher() {
  void* stack = mmap(nullptr, kHandlerStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) throw std::bad_alloc();
  stack_ = static_cast<char*>(stack);
}

FaultCatcher::~FaultCatcher() { munmap(stack_, kHandlerStackBytes); }

void FaultCatcher::guard(void (*f)(void*), void* argument) {
  stack_t own{};
  own.ss_sp = stack_;
  own.ss_size = kHandlerStackBytes;
  struct Restored {
    stack_t before{};
    ~Restored() { sigaltstack(&before, nullptr); }
  } restored;
  sigaltstack(&own, &restored.before);
  is_described_ = false;
  // Saving the signal mask would cost a system call. SA_NODEFER leaves the mask unchanged.
  if (_setjmp(landing_) == 0) {
    f(argument);
    return;
  }
  Lines::left_by_jump();
  if (is_described_) {  // The look-up of the line faulted, in a library whose file was cut: describe without a line.
    fault_ = described_;
    fault_.pc = nullptr;
  }
  is_described_ = true;
  described_ = fault_;
  raise();
}

void FaultCatcher::escape(const Fault& fault) {
  fault_ = fault;
  _longjmp(landing_, 1);
}

void FaultCatcher::raise() {
  if (fault_.signal == SIGFPE)
    fail("integer-division", "division by zero, whose result is undefined on a GPU", fault_.pc);
  if (fault_.signal == SIGILL) fail("trap", "an illegal instruction", fault_.pc);
  const std::uintptr_t address = fault_.address;
  if (fault_.alignment != 0) {
    const std::string where = heap_describe(address) + ", at an address that is no multiple of ";
    fail("misaligned-address", verb(fault_.access) + where + std::to_string(fault_.alignment), fault_.pc);
  }
  if (worker->stacks.is_guard(address)) {
    fail("stack-overflow", "the thread's local variables need more than the emulator's 256 KiB", fault_.pc);
  }
  if (std::string text = worker->shared.describe(address); !text.empty()) {
    fail("shared-out-of-bounds", verb(fault_.access) + text, fault_.pc);
  }
#if defined(__x86_64__)
  // x86 reports no address for misaligned and non-canonical addresses.
  if (fault_.code == SI_KERNEL) {
    fail("misaligned-address", "a misaligned vector, or an address outside of all memory", fault_.pc);
  }
#endif
  if (fault_.signal == SIGBUS && fault_.code == BUS_ADRALN) {
    fail("misaligned-address", "the address is not a multiple of the access's size", fault_.pc);
  }
  fail("illegal-access", verb(fault_.access) + heap_describe(address), fault_.pc);
}

void misaligned(std::uintptr_t address, std::uintptr_t alignment, Access access, const void* pc) {
  // A GPU access covers at most 16 bytes, and the emulator aligns tensor data to 16 bytes.
  alignment = std::min<std::uintptr_t>(alignment, 16);
  if (worker == nullptr || address % alignment == 0) return;
  // The host compiler places a thread's local variables. Only tensor memory has the same alignment as on a GPU.
  if (heap_bytes_from(reinterpret_cast<const void*>(address)) == 0) return;
  worker->faults.escape({SIGBUS, BUS_ADRALN, address, pc, access, alignment});
}

HandlersInstalled::HandlersInstalled() {
  std::lock_guard lock(install_mutex);
  if (installed++ != 0) return;
  struct sigaction action{};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int i = 0; i < kCount; ++i) sigaction(kSignals[i], &action, &previous[i]);
}

HandlersInstalled::~HandlersInstalled() {
  std::lock_guard lock(install_mutex);
  if (--installed != 0) return;
  for (int i = 0; i < kCount; ++i) sigaction(kSignals[i], &previous[i], nullptr);
}

}  // namespace emu
