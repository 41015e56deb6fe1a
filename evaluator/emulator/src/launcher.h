// The state that launches share.
#ifndef WARPGRADE_EMU_LAUNCHER_H
#define WARPGRADE_EMU_LAUNCHER_H

#include <cstddef>
#include <cstdint>
#include <string>

#include "order.h"

namespace emu {

void set_schedule(const Schedule& schedule);

// How often set_schedule() was called: somebody else than the runner may have put back what was there.
std::uint64_t schedule_setting_count();

// Which launches run nothing from now on: the submission's own, or those of the libraries that the emulator has.
enum class LeftOut { kNothing = 0, kOwn = 1, kLibrary = 2 };
void leave_out(LeftOut what);

std::uint64_t launch_count();
std::uint64_t library_launch_count();

// The message of the first KernelError that any launch of this process threw; empty: there was none. It stays, whoever
// caught the exception: on a GPU, too, nothing works any more after a fault.
std::string first_fault();

// The largest dynamic shared memory that any kernel asked for with cudaFuncSetAttribute. CUDA keeps one for each
// kernel; a launch here does not know its kernel's address, so all share one.
void allow_dynamic_shared(std::size_t bytes);

}  // namespace emu

#endif  // WARPGRADE_EMU_LAUNCHER_H
