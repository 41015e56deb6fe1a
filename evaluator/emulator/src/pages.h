// Anonymous memory between two pages that cannot be touched.
#ifndef WARPGRADE_EMU_PAGES_H
#define WARPGRADE_EMU_PAGES_H

#include <cstddef>
#include <cstdint>

namespace emu {

std::size_t page_bytes();

// Data is aligned as the most demanding vector type is; so up to 15 bytes can lie between its end and the guard page.
constexpr std::size_t kAlignment = 16;
// What the bytes around data hold. Looked at as floats it is a large negative number: a read past the end shows in a
// sum, and what relu and its like write there is something else.
constexpr unsigned char kCanary = 0xfe;
// Bytes before the data that are watched too.
constexpr std::size_t kWatchedBefore = 64;

// [guard page | unused, canary | data | slack, canary | guard page]. A value: copying it copies no memory.
struct GuardedPages {
  char* mapping = nullptr;
  std::size_t mapping_bytes = 0;
  char* data = nullptr;
  std::size_t bytes = 0;

  // Maps memory for `bytes` of data and writes the canaries. `mapping` stays null when there is no memory.
  static GuardedPages map(std::size_t bytes, std::size_t alignment = kAlignment);
  void unmap();

  // Writes the canaries anew.
  void write_canaries();

  // Makes every access fault from now on and gives the memory back, but keeps the addresses.
  void retire();

  // Whether canaries were overwritten, and where: the nearest run of such bytes before the data begins at a negative
  // offset from the data's start; bytes behind the data have one from its end.
  bool is_damaged(std::ptrdiff_t* first) const;

  bool covers(std::uintptr_t address) const;
  char* end() const { return data + bytes; }

 private:
  std::size_t watched_before() const;
  std::size_t slack() const;
};

}  // namespace emu

#endif  // WARPGRADE_EMU_PAGES_H
