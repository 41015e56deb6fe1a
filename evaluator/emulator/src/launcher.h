// State shared by all launches.
#ifndef WARPGRADE_EMU_LAUNCHER_H
#define WARPGRADE_EMU_LAUNCHER_H

#include <cstddef>
#include <cstdint>
#include <string>

#include "order.h"

namespace emu {

void set_schedule(const Schedule& schedule);

// Number of set_schedule() calls. The count reveals calls by code other than the runner, even if the schedule is
// restored.
std::uint64_t schedule_setting_count();

// Launches to skip: the submission's own, or those of emulated libraries.
enum class LeftOut { kNothing = 0, kOwn = 1, kLibrary = 2 };
void leave_out(LeftOut what);

std::uint64_t launch_count();
std::uint64_t library_launch_count();

// Message of the first KernelError of any launch in this process; empty without an error. Catching the exception does
// not clear the message: a GPU context is unusable after a fault.
std::string first_fault();

// Describes the first refused launch since the last call, and forgets it; empty without a refused launch.
std::string take_refusal();

// Largest dynamic shared memory size requested by any kernel through cudaFuncSetAttribute. CUDA keeps one value per
// kernel. Here all kernels share the value, because a launch does not know its kernel's address.
void allow_dynamic_shared(std::size_t bytes);

}  // namespace emu

#endif  // WARPGRADE_EMU_LAUNCHER_H
