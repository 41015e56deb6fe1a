// Conversion of signals raised by a kernel's instructions to KernelError.
//
// The signal handler only records the fault and jumps out of the kernel into FaultCatcher::guard, which continues in an
// ordinary context. Destructors between handler and guard do not run; kernels have no relevant destructors.
#ifndef WARPGRADE_EMU_FAULT_H
#define WARPGRADE_EMU_FAULT_H

#include <setjmp.h>
#include <signal.h>

#include <cstdint>

namespace emu {

enum class Access { kRead, kWrite, kUnknown };

struct Fault {
  int signal;
  int code;  // si_code
  std::uintptr_t address;
  const void* pc;
  Access access;
  std::uintptr_t alignment = 0;  // required alignment in bytes for a misaligned access; else 0
};

class FaultCatcher {
 public:
  FaultCatcher();
  ~FaultCatcher();
  FaultCatcher(const FaultCatcher&) = delete;
  FaultCatcher& operator=(const FaultCatcher&) = delete;

  // Calls f(argument) with fault handling, and throws a KernelError after a fault.
  void guard(void (*f)(void*), void* argument);

  // Called by the signal handler on the same thread.
  [[noreturn]] void escape(const Fault& fault);

 private:
  [[noreturn]] void raise();

  jmp_buf landing_;
  Fault fault_{};
  Fault described_{};  // the fault of the kernel, while its description may fault as well
  bool is_described_ = false;
  char* stack_;  // for the handler: a fiber with a full stack could not run the handler
};

// Called for an access whose address violates the alignment of the pointer's type. Ends the launch if a GPU would
// fault; returns in uncertain cases.
void misaligned(std::uintptr_t address, std::uintptr_t alignment, Access access, const void* pc);

// Installs the handlers while at least one launch runs, and restores the previous handlers. Other code (such as
// Python's faulthandler) may install handlers at any time. Faults outside kernels are passed on.
class HandlersInstalled {
 public:
  HandlersInstalled();
  ~HandlersInstalled();
  HandlersInstalled(const HandlersInstalled&) = delete;
  HandlersInstalled& operator=(const HandlersInstalled&) = delete;
};

}  // namespace emu

#endif  // WARPGRADE_EMU_FAULT_H
