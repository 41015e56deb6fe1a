// Signals that a kernel's instruction can raise, turned into KernelError.
//
// The handler does as little as can be: it notes what it was told and jumps out of the kernel, back into
// FaultCatcher::guard, where everything else happens in an ordinary context. Destructors between the two do not run;
// a kernel has none that matter.
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
  std::uintptr_t alignment = 0;  // in bytes, of an access whose address is no multiple of it; else 0
};

class FaultCatcher {
 public:
  FaultCatcher();
  ~FaultCatcher();
  FaultCatcher(const FaultCatcher&) = delete;
  FaultCatcher& operator=(const FaultCatcher&) = delete;

  // Calls f(argument) with faults caught, and throws the KernelError of one.
  void guard(void (*f)(void*), void* argument);

  // Called by the signal handler on this thread.
  [[noreturn]] void escape(const Fault& fault);

 private:
  [[noreturn]] void raise();

  jmp_buf landing_;
  Fault fault_{};
  char* stack_;  // for the handler: a fiber whose own stack is full could not run it
};

// Called for an access through a pointer whose type promises an alignment that its address has not. Ends the launch
// where a GPU would fault, and returns where that is not certain.
void misaligned(std::uintptr_t address, std::uintptr_t alignment, Access access, const void* pc);

// Installs the handlers while at least one launch runs, and puts back what was there. Others (Python's faulthandler,
// say) may install theirs at any time, and faults outside of kernels are none of our business.
class HandlersInstalled {
 public:
  HandlersInstalled();
  ~HandlersInstalled();
  HandlersInstalled(const HandlersInstalled&) = delete;
  HandlersInstalled& operator=(const HandlersInstalled&) = delete;
};

}  // namespace emu

#endif  // WARPGRADE_EMU_FAULT_H
