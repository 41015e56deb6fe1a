// Device memory for a runner's outputs: an allocator for torch.cuda.MemPool that allocates from one mapped range owned
// by the judge. Requests beyond the range get ordinary device memory; the runner copies such outputs.
//
// PyTorch's caching allocator sits on top, so requests are rare and cover whole segments (2 MiB and more).

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace {

constexpr std::uint64_t kGranularity = 1u << 21;  // PyTorch's rounding of large segments.

// Free blocks by address, for merging adjacent blocks.
std::mutex mutex;
std::map<std::uint64_t, std::uint64_t> free_pieces;
std::uint64_t range_start = 0;
std::uint64_t range_end = 0;
std::uint64_t outside = 0;  // Allocations that did not fit into the range.

using Allocate = int (*)(std::uint64_t* address, std::size_t size);
using Free = int (*)(std::uint64_t address);

void* driver(const char* name) {
  static void* library = dlopen("libcuda.so.1", RTLD_NOW);
  return library == nullptr ? nullptr : dlsym(library, name);
}

std::uint64_t rounded(std::uint64_t size) { return (size + kGranularity - 1) / kGranularity * kGranularity; }

// Best fit: takes the smallest sufficient block; returns 0 if none is large enough.
std::uint64_t take(std::uint64_t size) {
  auto best = free_pieces.end();
  for (auto piece = free_pieces.begin(); piece != free_pieces.end(); ++piece) {
    if (piece->second >= size && (best == free_pieces.end() || piece->second < best->second)) best = piece;
  }
  if (best == free_pieces.end()) return 0;
  const auto [address, length] = *best;
  free_pieces.erase(best);
  if (length > size) free_pieces.emplace(address + size, length - size);
  return address;
}

void give_back(std::uint64_t address, std::uint64_t size) {
  auto after = free_pieces.upper_bound(address);
  if (after != free_pieces.begin()) {
    auto before = std::prev(after);
    if (before->first + before->second == address) {
      address = before->first;
      size += before->second;
      free_pieces.erase(before);
    }
  }
  if (after != free_pieces.end() && address + size == after->first) {
    size += after->second;
    free_pieces.erase(after);
  }
  free_pieces.emplace(address, size);
}

}  // namespace

extern "C" {

// Sets the range: `size` bytes at `address`.
void warpgrade_device_arena_install(std::uint64_t address, std::uint64_t size) {
  const std::lock_guard<std::mutex> lock(mutex);
  range_start = address;
  range_end = address + size;
  free_pieces.clear();
  free_pieces.emplace(address, size / kGranularity * kGranularity);
}

std::uint64_t warpgrade_device_arena_outside() {
  const std::lock_guard<std::mutex> lock(mutex);
  return outside;
}

void* warpgrade_device_allocate(std::ptrdiff_t size, int /*device*/, void* /*stream*/) {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (const std::uint64_t address = take(rounded(static_cast<std::uint64_t>(size)))) {
      return reinterpret_cast<void*>(address);
    }
    ++outside;
  }
  static const auto allocate = reinterpret_cast<Allocate>(driver("cuMemAlloc_v2"));
  std::uint64_t address = 0;
  if (allocate == nullptr || allocate(&address, static_cast<std::size_t>(size)) != 0) return nullptr;
  return reinterpret_cast<void*>(address);
}

void warpgrade_device_free(void* pointer, std::ptrdiff_t size, int /*device*/, void* /*stream*/) {
  const auto address = reinterpret_cast<std::uint64_t>(pointer);
  if (range_start <= address && address < range_end) {
    const std::lock_guard<std::mutex> lock(mutex);
    give_back(address, rounded(static_cast<std::uint64_t>(size)));
    return;
  }
  static const auto release = reinterpret_cast<Free>(driver("cuMemFree_v2"));
  if (release != nullptr) release(address);
}

}  // extern "C"
