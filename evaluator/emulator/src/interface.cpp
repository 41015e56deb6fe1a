// C interface of the runtime, called by the runner through ctypes.
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

// Copies a zero-terminated prefix of a text into a buffer.
void give(const std::string& text, char* to, std::uint64_t bytes) {
  if (to == nullptr || bytes == 0) return;
  const std::size_t length = std::min<std::size_t>(text.size(), bytes - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

// Access description of g++ -fsanitize=alignment.
struct Checked {
  const char* file;
  std::uint32_t line, column;
  const void* type;
  unsigned char log_alignment;
  unsigned char kind;  // 0: load, 1: store; other kinds only form an address, such as `&p->x`
};

}  // namespace

extern "C" {

// Target of the checks of g++ -fsanitize=alignment, redirected by the linker's --wrap. The sanitizer's own library
// would print a message and continue.
EMU_API void __wrap___ubsan_handle_type_mismatch_v1(const Checked* checked, std::uintptr_t address) {
  if (checked->kind > 1) return;
  emu::misaligned(address, std::uintptr_t{1} << checked->log_alignment,
                  checked->kind == 0 ? emu::Access::kRead : emu::Access::kWrite,
                  static_cast<const char*>(__builtin_return_address(0)) - 1);
}

// Makes all further CPU tensors end at a guard page.
EMU_API void warpgrade_emu_install() { emu::install_torch_allocator(); }

// Sets the scheduling order of blocks and threads (0 ascending, 1 descending, 2 shuffled), and the fill of fresh memory
// (0 NaN, 1 large numbers, 2 negative numbers, 3 ordinary numbers).
EMU_API void warpgrade_emu_schedule(int order, std::uint64_t seed, int workers, int fill) {
  emu::set_fill(static_cast<emu::Fill>(std::clamp(fill, 0, 3)), seed);
  emu::set_schedule({static_cast<emu::Order>(std::clamp(order, 0, 2)), seed, std::max(workers, 1)});
}

// Returns the number of schedule changes in this process, by any caller.
EMU_API std::uint64_t warpgrade_emu_schedules() { return emu::schedule_setting_count(); }

// Skips the execution of further launches: 1 the submission's own, 2 those of libraries. Skipped launches are counted.
EMU_API void warpgrade_emu_leave_out(int what) {
  emu::leave_out(static_cast<emu::LeftOut>(std::clamp(what, 0, 2)));
}

// Returns the number of kernel launches in this process, without refused launches.
EMU_API std::uint64_t warpgrade_emu_launches() { return emu::launch_count(); }

// Returns the number of library launches: each stands for a cuBLAS kernel.
EMU_API std::uint64_t warpgrade_emu_library_launches() { return emu::library_launch_count(); }

// Returns the number of allocations whose surrounding bytes were overwritten by host code since the last call or
// launch; describes the first one.
EMU_API std::uint64_t warpgrade_emu_guard_damage(char* text, std::uint64_t bytes) {
  std::string first;
  const std::size_t count = emu::heap_damage(&first);
  if (count != 0) first = "emulator[illegal-access]: code of the host: " + first;
  give(first, text, bytes);
  return count;
}

// Describes the first kernel fault in this process; returns 0 without a fault.
EMU_API std::uint64_t warpgrade_emu_fault(char* text, std::uint64_t bytes) {
  const std::string first = emu::first_fault();
  give(first, text, bytes);
  return first.empty() ? 0 : 1;
}

// Describes the first refused launch since the last call; returns 0 without a refused launch.
EMU_API std::uint64_t warpgrade_emu_refusal(char* text, std::uint64_t bytes) {
  const std::string first = emu::take_refusal();
  give(first, text, bytes);
  return first.empty() ? 0 : 1;
}

}  // extern "C"
