// CPU allocator of a runner: tensors live in memory shared with the judge.
//
// The judge reads outputs in place, so the timed interval contains no copies. The judge does not trust this allocator:
// it checks each reported location against the region and compares the contents.
//
// First fit over a map of free blocks; adjacent free blocks are merged. An allocation that does not fit comes from the
// C library, and such an output is copied (finding T304).
//
// A block allocated before a call and freed inside the call stays quarantined until the next poisoning. Memory
// allocated by a call therefore held only poison at the start of the call, or was written during the call. The judge
// uses the poison to distinguish honest outputs from outputs prepared before the call's inputs existed.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

constexpr size_t kAlignment = 64;  // alignment of PyTorch's own allocator, and a cache line

size_t rounded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class Arena {
 public:
  Arena(char* base, size_t bytes) : base_(base), bytes_(bytes) { free_[0] = bytes; }

  bool owns(const void* pointer) const {
    const char* place = static_cast<const char*>(pointer);
    return place >= base_ && place < base_ + bytes_;
  }

  void* take(size_t bytes) {
    const size_t wanted = rounded(bytes);
    const std::lock_guard<std::mutex> guard(mutex_);
    for (auto block = free_.begin(); block != free_.end(); ++block) {
      const auto [offset, size] = *block;
      if (size < wanted) continue;
      free_.erase(block);
      if (size > wanted) free_[offset + wanted] = size - wanted;
      used_[offset] = {wanted, epoch_};
      if (offset + wanted > touched_) touched_ = offset + wanted;
      return base_ + offset;
    }
    return nullptr;
  }

  void give_back(void* pointer) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto found = used_.find(static_cast<char*>(pointer) - base_);
    if (found == used_.end()) return;
    const auto [offset, block] = *found;
    used_.erase(found);
    if (block.epoch == epoch_) {
      make_free(offset, block.bytes);
    } else {
      resting_.emplace_back(offset, block.bytes);
    }
  }

  // Begins a call: fills free memory with `byte`, up to `ahead` bytes past the highest offset ever used. The call's
  // allocations then contain neither an old output nor the zeros of a fresh page.
  void poison(int byte, size_t ahead) {
    const std::lock_guard<std::mutex> guard(mutex_);
    ++epoch_;
    for (const auto& [offset, size] : resting_) make_free(offset, size);
    resting_.clear();
    const size_t limit = touched_ + ahead < bytes_ ? touched_ + ahead : bytes_;
    for (const auto& [offset, size] : free_) {
      if (offset >= limit) break;
      std::memset(base_ + offset, byte, offset + size < limit ? size : limit - offset);
    }
  }

 private:
  struct Block {
    size_t bytes;
    uint64_t epoch;  // call of the allocation
  };

  // Adds a block to the free map and merges adjacent blocks. Requires the mutex.
  void make_free(size_t offset, size_t size) {
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && offset + size == next->first) {
      size += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second == offset) {
        previous->second += size;
        return;
      }
    }
    free_[offset] = size;
  }

  char* const base_;
  const size_t bytes_;
  size_t touched_ = 0;
  uint64_t epoch_ = 0;  // number of calls
  std::mutex mutex_;
  std::map<size_t, size_t> free_;  // offset -> bytes
  std::unordered_map<size_t, Block> used_;
  std::vector<std::pair<size_t, size_t>> resting_;  // offset, bytes
};

Arena* arena = nullptr;

void release(void* pointer) {
  if (pointer == nullptr) return;
  if (arena->owns(pointer)) {
    arena->give_back(pointer);
  } else {
    std::free(pointer);
  }
}

class ArenaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* pointer = nullptr;
    if (bytes > 0) {
      pointer = arena->take(bytes);
      if (pointer == nullptr && posix_memalign(&pointer, kAlignment, bytes) != 0) throw std::bad_alloc();
    }
    return {pointer, pointer, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
};

}  // namespace

// Allocates all further CPU tensors in `bytes` bytes at `base`, while space lasts.
extern "C" void warpgrade_arena_install(void* base, uint64_t bytes) {
  arena = new Arena(static_cast<char*>(base), bytes);
  static ArenaAllocator allocator;
  c10::SetCPUAllocator(&allocator, 255);
}

extern "C" void warpgrade_arena_poison(int byte, uint64_t ahead) {
  if (arena != nullptr) arena->poison(byte, ahead);
}
