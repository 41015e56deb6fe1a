// What the runner calls through ctypes.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "emu/error.h"
#include "fault.h"
#include "fresh.h"
#include "heap.h"
#include "launcher.h"

namespace {

// Writes as much of a text as there is room for, and a zero.
void give(const std::string& text, char* to, std::uint64_t bytes) {
  if (to == nullptr || bytes == 0) return;
  const std::size_t length = std::min<std::size_t>(text.size(), bytes - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

// What g++ tells about an access, as its -fsanitize=alignment lays it out.
struct Checked {
  const char* file;
  std::uint32_t line, column;
  const void* type;
  unsigned char log_alignment;
  unsigned char kind;  // 0: a load, 1: a store; others only name a place, as `&p->x` does
};

}  // namespace

extern "C" {

// Where code that g++ checks with -fsanitize=alignment ends up, by the linker's --wrap. Not in the sanitizer's library:
// that prints and goes on.
EMU_API void __wrap___ubsan_handle_type_mismatch_v1(const Checked* checked, std::uintptr_t address) {
  if (checked->kind > 1) return;
  emu::misaligned(address, std::uintptr_t{1} << checked->log_alignment,
                  checked->kind == 0 ? emu::Access::kRead : emu::Access::kWrite,
                  static_cast<const char*>(__builtin_return_address(0)) - 1);
}

// Makes every CPU tensor from now on end at a guard page.
EMU_API void warpgrade_emu_install() { emu::install_torch_allocator(); }

// Sets in which order blocks and threads take their turns from now on, 0 ascending, 1 descending, 2 shuffled; and what
// fresh memory holds, 0 NaN, 1 large numbers, 2 negative ones, 3 ordinary ones.
EMU_API void warpgrade_emu_schedule(int order, std::uint64_t seed, int workers, int fill) {
  emu::set_fill(static_cast<emu::Fill>(std::clamp(fill, 0, 3)), seed);
  emu::set_schedule({static_cast<emu::Order>(std::clamp(order, 0, 2)), seed, std::max(workers, 1)});
}

// Gives how often that was called in this process, by whoever it was.
EMU_API std::uint64_t warpgrade_emu_schedules() { return emu::schedule_setting_count(); }

// Has launches run nothing from now on: 1 the submission's own, 2 those of libraries. They count all the same.
EMU_API void warpgrade_emu_leave_out(int what) {
  emu::leave_out(static_cast<emu::LeftOut>(std::clamp(what, 0, 2)));
}

// Gives how many kernels have run in this process. A launch that was refused does not count.
EMU_API std::uint64_t warpgrade_emu_launches() { return emu::launch_count(); }

// Gives how many of them were a library's: what stands for a kernel of cuBLAS.
EMU_API std::uint64_t warpgrade_emu_library_launches() { return emu::library_launch_count(); }

// Gives how many allocations had bytes around them overwritten since the last call or launch, by code of the host;
// describes the first one.
EMU_API std::uint64_t warpgrade_emu_guard_damage(char* text, std::uint64_t bytes) {
  std::string first;
  const std::size_t count = emu::heap_damage(&first);
  if (count != 0) first = "emulator[illegal-access]: code of the host: " + first;
  give(first, text, bytes);
  return count;
}

// Describes the first fault of any kernel in this process; gives 0 where there was none.
EMU_API std::uint64_t warpgrade_emu_fault(char* text, std::uint64_t bytes) {
  const std::string first = emu::first_fault();
  give(first, text, bytes);
  return first.empty() ? 0 : 1;
}

}  // extern "C"
