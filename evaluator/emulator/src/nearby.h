// Words for an address near an allocation.
#ifndef WARPGRADE_EMU_NEARBY_H
#define WARPGRADE_EMU_NEARBY_H

#include <cstdint>
#include <string>

#include "pages.h"

namespace emu::nearby {

// "12 bytes past the end of WHAT" for an offset from its end, "4 bytes before the start of WHAT" for a negative one
// from its start.
inline std::string distance(std::ptrdiff_t offset, const std::string& what) {
  if (offset < 0) return std::to_string(-offset) + " bytes before the start of " + what;
  return std::to_string(offset) + " bytes past the end of " + what;
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
