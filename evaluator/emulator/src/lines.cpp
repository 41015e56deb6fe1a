#include "lines.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#ifdef WARPGRADE_EMU_BACKTRACE
#include <backtrace.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mutex>
#include <vector>
#endif

namespace emu {
namespace {

// A fault inside libbacktrace leaves the look-up of a line by a jump, with a mutex locked for ever.
thread_local bool is_looking_up = false;
std::atomic<bool> is_lost{false};

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

// Returns whether the file ends before one of its sections, as it does while a linker writes it anew. libbacktrace skips
// an unreadable file, a pipe or device, and a file of another kind: /proc/self/fd/N, the name of a library loaded from
// memory, may stand for another file by now. An empty file would fault.
bool is_cut(const char* path) {
  struct File {
    int descriptor;
    ~File() {
      if (descriptor >= 0) ::close(descriptor);
    }
  } const file{::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  struct stat status{};
  if (file.descriptor < 0 || ::fstat(file.descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  const auto is_behind_end = [bytes](std::uint64_t offset, std::uint64_t size) {
    return offset > bytes || size > bytes - offset;
  };
  ElfW(Ehdr) header;
  if (::pread(file.descriptor, &header, sizeof header, 0) != sizeof header) return true;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
  std::vector<ElfW(Shdr)> sections(header.e_shnum);
  const std::size_t table = sections.size() * sizeof(ElfW(Shdr));
  if (is_behind_end(header.e_shoff, table)) return true;
  if (::pread(file.descriptor, sections.data(), table, static_cast<off_t>(header.e_shoff)) !=
      static_cast<ssize_t>(table)) {
    return true;
  }
  for (const ElfW(Shdr)& section : sections) {
    if (section.sh_type != SHT_NOBITS && is_behind_end(section.sh_offset, section.sh_size)) return true;
  }
  return false;
}

// Returns whether the file of any loaded library is cut. libbacktrace maps the files of all loaded libraries inside
// dl_iterate_phdr, which holds a lock of the dynamic linker. A fault there would leave the lock held for ever.
bool any_library_is_cut() {
  bool found = false;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        const bool is_file = info->dlpi_name != nullptr && info->dlpi_name[0] != '\0';
        *static_cast<bool*>(result) = is_file && is_cut(info->dlpi_name);
        return *static_cast<bool*>(result) ? 1 : 0;
      },
      &found);
  return found;
}

Lines::Place look_up(const void* pc) {
  static std::timed_mutex mutex;
  static backtrace_state* state = nullptr;
  static unsigned long long loaded = 0;
  std::unique_lock lock(mutex, std::defer_lock);
  // The first look-up of a process takes half a second, and longer on a busy machine.
  do {
    if (is_lost) return {};
  } while (!lock.try_lock_for(std::chrono::milliseconds(50)));
  const struct LookingUp {
    LookingUp() { is_looking_up = true; }
    ~LookingUp() { is_looking_up = false; }
  } looking_up;
  // A libbacktrace state only knows the libraries loaded before its first use, and cannot be freed. Extensions load
  // later.
  if (const unsigned long long now = libraries_loaded(); state == nullptr || loaded != now) {
    if (any_library_is_cut()) return {};
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

void Lines::left_by_jump() {
  if (is_looking_up) is_lost = true;
}

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
