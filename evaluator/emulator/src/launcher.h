// The state that launches share.
#ifndef WARPGRADE_EMU_LAUNCHER_H
#define WARPGRADE_EMU_LAUNCHER_H

#include <cstddef>
#include <cstdint>

#include "order.h"

namespace emu {

void set_schedule(const Schedule& schedule);
std::uint64_t launch_count();
std::uint64_t library_launch_count();

// The largest dynamic shared memory that any kernel asked for with cudaFuncSetAttribute. CUDA keeps one for each
// kernel; a launch here does not know its kernel's address, so all share one.
void allow_dynamic_shared(std::size_t bytes);

}  // namespace emu

#endif  // WARPGRADE_EMU_LAUNCHER_H
