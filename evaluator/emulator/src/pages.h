// Anonymous memory between two guard pages.
#ifndef WARPGRADE_EMU_PAGES_H
#define WARPGRADE_EMU_PAGES_H

#include <cstddef>
#include <cstdint>

namespace emu {

std::size_t page_bytes();

// Alignment of the strictest vector type. Up to 15 bytes can lie between the end of the data and the guard page.
constexpr std::size_t kAlignment = 16;
// Canary byte. As a float, canaries form a large negative number: a read past the end shows in a sum, and relu and
// similar functions overwrite canaries with other values.
constexpr unsigned char kCanary = 0xfe;
// Number of canary bytes before the data.
constexpr std::size_t kWatchedBefore = 64;

// [guard page | unused, canary | data | slack, canary | guard page]. Value type: copies do not copy memory.
struct GuardedPages {
  char* mapping = nullptr;
  std::size_t mapping_bytes = 0;
  char* data = nullptr;
  std::size_t bytes = 0;

  // Maps memory for `bytes` of data and writes the canaries. `mapping` is null if memory is exhausted.
  static GuardedPages map(std::size_t bytes, std::size_t alignment = kAlignment);
  void unmap();

  // Rewrites the canaries.
  void write_canaries();

  // Makes all accesses fault and releases the memory, but keeps the address range.
  void retire();

  // Returns whether canaries were overwritten, and the first overwritten offset. Damage before the data has a negative
  // offset from the start; damage behind the data has an offset from the end.
  bool is_damaged(std::ptrdiff_t* first) const;

  bool covers(std::uintptr_t address) const;
  char* end() const { return data + bytes; }

 private:
  std::size_t watched_before() const;
  std::size_t slack() const;
};

}  // namespace emu

#endif  // WARPGRADE_EMU_PAGES_H
