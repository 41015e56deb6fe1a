#include "pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace emu {

std::size_t page_bytes() {
  static const std::size_t bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

GuardedPages GuardedPages::map(std::size_t bytes, std::size_t alignment) {
  GuardedPages pages;
  const std::size_t page = page_bytes();
  if (bytes > PTRDIFF_MAX - 4 * page) return pages;
  const std::size_t span = (bytes + alignment - 1) / alignment * alignment;
  const std::size_t inner = (span + page - 1) / page * page;
  const std::size_t total = inner + 2 * page;
  void* mapping = mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return pages;
  char* start = static_cast<char*>(mapping) + page;
  if (inner != 0 && mprotect(start, inner, PROT_READ | PROT_WRITE) != 0) {
    munmap(mapping, total);
    return pages;
  }
  pages.mapping = static_cast<char*>(mapping);
  pages.mapping_bytes = total;
  pages.data = start + inner - span;
  pages.bytes = bytes;
  pages.write_canaries();
  return pages;
}

std::size_t GuardedPages::watched_before() const {
  return std::min<std::size_t>(kWatchedBefore, data - (mapping + page_bytes()));
}

std::size_t GuardedPages::slack() const { return mapping + mapping_bytes - page_bytes() - end(); }

void GuardedPages::write_canaries() {
  std::memset(data - watched_before(), kCanary, watched_before());
  std::memset(end(), kCanary, slack());
}

void GuardedPages::unmap() {
  if (mapping != nullptr) munmap(mapping, mapping_bytes);
  mapping = nullptr;
}

void GuardedPages::retire() {
  // A new mapping at the same address releases the old pages; mprotect alone would keep the pages.
  mmap(mapping, mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

bool GuardedPages::is_damaged(std::ptrdiff_t* first) const {
  const auto intact = [](const char* at) { return static_cast<unsigned char>(*at) == kCanary; };
  const char* const lowest = data - watched_before();
  for (const char* at = data; at != lowest; --at) {
    if (intact(at - 1)) continue;
    while (at != lowest && !intact(at - 1)) --at;
    *first = at - data;
    return true;
  }
  for (const char* at = end(); at != end() + slack(); ++at) {
    if (intact(at)) continue;
    *first = at - end();
    return true;
  }
  return false;
}

bool GuardedPages::covers(std::uintptr_t address) const {
  const std::uintptr_t start = reinterpret_cast<std::uintptr_t>(mapping);
  return mapping != nullptr && address >= start && address < start + mapping_bytes;
}

}  // namespace emu
