#include "heap.h"

#include <cstdio>
#include <deque>
#include <map>
#include <mutex>

#include "fresh.h"
#include "nearby.h"
#include "pages.h"

namespace emu {
namespace {

// Freed allocations with reserved addresses: a stale pointer faults instead of reading another tensor.
constexpr std::size_t kRetiredCount = 256;
constexpr std::size_t kRetiredBytes = std::size_t{4} << 30;  // address space without backing memory
// Maximal distance at which a fault is attributed to an allocation.
constexpr std::uintptr_t kNearBytes = std::uintptr_t{16} << 20;

struct Allocation {
  GuardedPages pages;
  const char* kind;
  bool freed;
};

struct Heap {
  std::mutex mutex;
  std::map<std::uintptr_t, Allocation> by_mapping;  // by mapping address, which precedes the data
  std::deque<std::uintptr_t> retired;
  std::size_t retired_bytes = 0;
  std::size_t damaged = 0;  // damaged allocations freed since the last report
  std::string first_damage;
};

// Never destroyed: tensors outlive static objects.
Heap& heap() {
  static Heap* const instance = new Heap;
  return *instance;
}

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

std::string words_for(const Allocation& allocation) {
  return std::string("a ") + (allocation.freed ? "freed " : "") + allocation.kind + " of " +
         std::to_string(allocation.pages.bytes) + " bytes";
}

// Returns the allocation whose mapping, including guard pages, contains the address.
std::map<std::uintptr_t, Allocation>::iterator find(Heap& heap, std::uintptr_t address) {
  auto after = heap.by_mapping.upper_bound(address);
  if (after == heap.by_mapping.begin()) return heap.by_mapping.end();
  auto entry = std::prev(after);
  return entry->second.pages.covers(address) ? entry : heap.by_mapping.end();
}

// The data pointer of an empty allocation is the first byte of its guard page, as is the end of any other allocation.
// The guard page belongs to the same allocation.
std::map<std::uintptr_t, Allocation>::iterator find_data(Heap& heap, const void* data) {
  auto entry = find(heap, address_of(data));
  return entry != heap.by_mapping.end() && entry->second.pages.data == data && !entry->second.freed
             ? entry
             : heap.by_mapping.end();
}

void note_damage(const Allocation& allocation, std::size_t* count, std::string* first) {
  std::ptrdiff_t offset = 0;
  if (allocation.freed || !allocation.pages.is_damaged(&offset)) return;
  if ((*count)++ == 0) *first = "WRITE " + nearby::distance(offset, words_for(allocation));
}

}  // namespace

void* heap_allocate(std::size_t bytes, const char* kind) {
  const GuardedPages pages = GuardedPages::map(bytes);
  if (pages.mapping == nullptr) return nullptr;
  fill_fresh(pages.data, bytes);
  std::lock_guard lock(heap().mutex);
  heap().by_mapping.emplace(address_of(pages.mapping), Allocation{pages, kind, false});
  return pages.data;
}

bool heap_free(void* data) {
  Heap& heap = emu::heap();
  std::lock_guard lock(heap.mutex);
  const auto entry = find_data(heap, data);
  if (entry == heap.by_mapping.end()) return false;
  Allocation& allocation = entry->second;
  note_damage(allocation, &heap.damaged, &heap.first_damage);
  allocation.freed = true;
  allocation.pages.retire();
  heap.retired.push_back(entry->first);
  heap.retired_bytes += allocation.pages.mapping_bytes;
  while (heap.retired.size() > kRetiredCount || heap.retired_bytes > kRetiredBytes) {
    const auto oldest = heap.by_mapping.find(heap.retired.front());
    heap.retired.pop_front();
    heap.retired_bytes -= oldest->second.pages.mapping_bytes;
    oldest->second.pages.unmap();
    heap.by_mapping.erase(oldest);
  }
  return true;
}

std::size_t heap_bytes_from(const void* data) {
  Heap& heap = emu::heap();
  std::lock_guard lock(heap.mutex);
  const auto entry = find(heap, address_of(data));
  if (entry == heap.by_mapping.end() || entry->second.freed) return 0;
  const GuardedPages& pages = entry->second.pages;
  return data >= pages.data && data < pages.end()
             ? static_cast<std::size_t>(pages.end() - static_cast<const char*>(data))
             : 0;
}

std::string heap_describe(std::uintptr_t address) {
  char hexadecimal[2 + 2 * sizeof address + 1];
  std::snprintf(hexadecimal, sizeof hexadecimal, "0x%llx", static_cast<unsigned long long>(address));
  if (address < 65536) return std::string("at ") + hexadecimal + ", through a null pointer";
  Heap& heap = emu::heap();
  std::lock_guard lock(heap.mutex);
  // Guard pages of adjacent allocations can touch: the mapping with the address takes precedence, then the nearest
  // data.
  auto after = heap.by_mapping.upper_bound(address);
  const Allocation* nearest = nullptr;
  std::uintptr_t least = kNearBytes;
  const auto consider = [&](const Allocation& allocation) {
    const std::uintptr_t start = address_of(allocation.pages.data);
    const std::uintptr_t end = address_of(allocation.pages.end());
    const std::uintptr_t away = address < start ? start - address : address >= end ? address - end : 0;
    if (away >= least) return;
    least = away;
    nearest = &allocation;
  };
  if (after != heap.by_mapping.begin()) consider(std::prev(after)->second);
  if (after != heap.by_mapping.end()) consider(after->second);
  if (nearest == nullptr) return std::string("at ") + hexadecimal + ", far from any tensor";
  return nearby::describe(nearest->pages, address, words_for(*nearest));
}

std::size_t heap_damage(std::string* first) {
  Heap& heap = emu::heap();
  std::lock_guard lock(heap.mutex);
  std::size_t count = heap.damaged;
  *first = heap.first_damage;
  heap.damaged = 0;
  heap.first_damage.clear();
  for (auto& [address, allocation] : heap.by_mapping) {
    const std::size_t before = count;
    note_damage(allocation, &count, first);
    if (count != before) allocation.pages.write_canaries();  // reports the damage only once
  }
  return count;
}

}  // namespace emu
