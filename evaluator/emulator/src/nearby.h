// Descriptions of addresses near an allocation.
#ifndef WARPGRADE_EMU_NEARBY_H
#define WARPGRADE_EMU_NEARBY_H

#include <cstdint>
#include <string>

#include "pages.h"

namespace emu::nearby {

// Returns "12 bytes past the end of WHAT" for an offset from the end, "4 bytes before the start of WHAT" for a negative
// offset from the start. The offset denotes the first forbidden byte: a 16-byte access that starts at the end or
// crosses the end has offset 0. The processor does not report the access size.
inline std::string distance(std::ptrdiff_t offset, const std::string& what) {
  if (offset == 0) return "just past the end of " + what;
  const std::ptrdiff_t bytes = offset < 0 ? -offset : offset;
  const std::string count = std::to_string(bytes) + (bytes == 1 ? " byte " : " bytes ");
  return count + (offset < 0 ? "before the start of " : "past the end of ") + what;
}

// Returns the description of an address. An address inside the allocation faults only after the memory is freed.
inline std::string describe(const GuardedPages& pages, std::uintptr_t address, const std::string& what) {
  const std::uintptr_t start = reinterpret_cast<std::uintptr_t>(pages.data);
  if (address < start) return distance(-static_cast<std::ptrdiff_t>(start - address), what);
  if (address >= start + pages.bytes) return distance(static_cast<std::ptrdiff_t>(address - start - pages.bytes), what);
  return std::to_string(address - start) + " bytes into " + what;
}

}  // namespace emu::nearby

#endif  // WARPGRADE_EMU_NEARBY_H
