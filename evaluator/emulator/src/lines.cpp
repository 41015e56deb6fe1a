#include "lines.h"

#include <chrono>
#include <cstdint>
#include <cstring>

#ifdef WARPGRADE_EMU_BACKTRACE
#include <backtrace.h>
#include <dlfcn.h>
#include <link.h>

#include <mutex>
#endif

namespace emu {
namespace {

#ifdef WARPGRADE_EMU_BACKTRACE

void ignore(void*, const char*, int) {}

// Excludes headers of the emulator, PyTorch and the system.
bool is_own(const char* file) {
  for (const char* part : {"/emulator/include/", "/torch/include/", "/usr/include/", "/usr/lib/"}) {
    if (std::strstr(file, part) != nullptr) return false;
  }
  return true;
}

// libbacktrace callback for each call inlined at an address, innermost first. A nonzero result stops the iteration.
int take_first_own(void* place, std::uintptr_t, const char* file, int line, const char*) {
  if (file == nullptr || line == 0 || !is_own(file)) return 0;
  *static_cast<Lines::Place*>(place) = {file, line};
  return 1;
}

// Returns the number of libraries ever loaded into this process.
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

// Returns a readable library: the library that contains `pc`. By default libbacktrace starts with the program file, and
// fails if the sandbox hides the file.
const char* library_of(const void* pc) {
  Dl_info info{};
  return dladdr(pc, &info) != 0 ? info.dli_fname : nullptr;
}

Lines::Place look_up(const void* pc) {
  static std::timed_mutex mutex;
  static backtrace_state* state = nullptr;
  static unsigned long long loaded = 0;
  // A fault inside libbacktrace leaves this function by a jump, with the mutex locked: later errors then have no line.
  const std::unique_lock lock(mutex, std::chrono::seconds(1));
  if (!lock.owns_lock()) return {};
  // A libbacktrace state only knows the libraries loaded before its first use, and cannot be freed. Extensions load
  // later.
  if (const unsigned long long now = libraries_loaded(); state == nullptr || loaded != now) {
    state = backtrace_create_state(library_of(pc), 0, ignore, nullptr);
    loaded = now;
  }
  Lines::Place place;
  backtrace_pcinfo(state, reinterpret_cast<std::uintptr_t>(pc), take_first_own, ignore, &place);
  return place;
}

#else

Lines::Place look_up(const void*) { return {}; }

#endif

}  // namespace

const Lines::Place& Lines::at(const void* pc) {
  const auto [entry, is_new] = known_.try_emplace(pc);
  if (is_new && pc != nullptr) entry->second = look_up(pc);
  return entry->second;
}

std::string Lines::describe(const void* pc) {
  const Place& place = at(pc);
  return place.line == 0 ? std::string() : " (" + place.file + ":" + std::to_string(place.line) + ")";
}

bool Lines::differ(const void* a, const void* b) {
  const Place& first = at(a);
  const Place& second = at(b);
  return first.line != 0 && second.line != 0 && first != second;
}

}  // namespace emu
