// Words for an address near an allocation.
#ifndef WARPGRADE_EMU_NEARBY_H
#define WARPGRADE_EMU_NEARBY_H

#include <cstdint>
#include <string>

#include "pages.h"

namespace emu::nearby {

// "12 bytes past the end of WHAT" for an offset from its end, "4 bytes before the start of WHAT" for a negative one
// from its start. The offset is that of the first byte that may not be touched: an access of 16 bytes that begins at
// the end, or reaches over it, has the offset 0. How many bytes it was to touch, a processor does not tell.
inline std::string distance(std::ptrdiff_t offset, const std::string& what) {
  if (offset == 0) return "just past the end of " + what;
  const std::ptrdiff_t bytes = offset < 0 ? -offset : offset;
  const std::string count = std::to_string(bytes) + (bytes == 1 ? " byte " : " bytes ");
  return count + (offset < 0 ? "before the start of " : "past the end of ") + what;
}

// The same for an address; one inside of the allocation can only fault when it was freed.
inline std::string describe(const GuardedPages& pages, std::uintptr_t address, const std::string& what) {
  const std::uintptr_t start = reinterpret_cast<std::uintptr_t>(pages.data);
  if (address < start) return distance(-static_cast<std::ptrdiff_t>(start - address), what);
  if (address >= start + pages.bytes) return distance(static_cast<std::ptrdiff_t>(address - start - pages.bytes), what);
  return std::to_string(address - start) + " bytes into " + what;
}

}  // namespace emu::nearby

#endif  // WARPGRADE_EMU_NEARBY_H
