#include "lines.h"

#include <cstdint>
#include <cstring>

#ifdef WARPGRADE_EMU_BACKTRACE
#include <backtrace.h>
#include <link.h>

#include <mutex>
#endif

namespace emu {
namespace {

#ifdef WARPGRADE_EMU_BACKTRACE

void ignore(void*, const char*, int) {}

// Headers of ours, of PyTorch and of the system are nobody's own code.
bool is_own(const char* file) {
  for (const char* part : {"/emulator/include/", "/torch/include/", "/usr/include/", "/usr/lib/"}) {
    if (std::strstr(file, part) != nullptr) return false;
  }
  return true;
}

// Called for each call that was inlined at an address, the innermost first, until it gives something other than 0.
int take_first_own(void* line, std::uintptr_t, const char* file, int number, const char*) {
  if (file == nullptr || number == 0 || !is_own(file)) return 0;
  *static_cast<int*>(line) = number;
  return 1;
}

// How many libraries were ever loaded into this process.
unsigned long long libraries_loaded() {
  unsigned long long count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        *static_cast<unsigned long long*>(result) = info->dlpi_adds;
        return 1;
      },
      &count);
  return count;
}

int look_up(const void* pc) {
  static std::mutex mutex;
  static backtrace_state* state = nullptr;
  static unsigned long long loaded = 0;
  std::lock_guard lock(mutex);
  // A state knows the libraries of the time when it was first used, and cannot be freed. Extensions come later.
  if (const unsigned long long now = libraries_loaded(); state == nullptr || loaded != now) {
    state = backtrace_create_state(nullptr, 0, ignore, nullptr);
    loaded = now;
  }
  int line = 0;
  backtrace_pcinfo(state, reinterpret_cast<std::uintptr_t>(pc), take_first_own, ignore, &line);
  return line;
}

#else

int look_up(const void*) { return 0; }

#endif

}  // namespace

int Lines::at(const void* pc) {
  if (pc == nullptr) return 0;
  const auto [entry, is_new] = known_.try_emplace(pc, 0);
  if (is_new) entry->second = look_up(pc);
  return entry->second;
}

std::string Lines::describe(const void* pc) {
  const int line = at(pc);
  return line == 0 ? std::string() : " (line " + std::to_string(line) + ")";
}

bool Lines::differ(const void* a, const void* b) {
  const int first = at(a);
  const int second = at(b);
  return first != 0 && second != 0 && first != second;
}

}  // namespace emu
