// Shared memory of one worker, reused by successive blocks.
#ifndef WARPGRADE_EMU_SHARED_ARENA_H
#define WARPGRADE_EMU_SHARED_ARENA_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "pages.h"

namespace emu {

class SharedArena {
 public:
  SharedArena() = default;
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  // Starts a launch with `dynamic_bytes` of `extern __shared__` memory per block.
  void begin_launch(std::size_t dynamic_bytes);

  // Starts a block: shared memory is filled again on first use.
  void begin_block() { ++block_; }

  // Returns a static array of the current block; null if the static arrays exceed a GPU's 48 KiB.
  void* statically(const void* unit, int id, std::size_t bytes, std::size_t alignment);
  void* dynamically();
  std::size_t dynamic_bytes() const { return dynamic_.bytes; }

  // Starts to watch dynamic shared memory for threads of the current block that run one after another, and wait for no
  // other thread.
  void watch() { content_.clear(); }

  // Returns whether the thread that has just run changed bytes of dynamic shared memory that an earlier thread of the
  // block had changed. The memory is watched from its first thread on. Static arrays are not: instances of a template
  // have arrays of their own on a GPU, and one here.
  bool is_written_twice();

  // Describes bytes around an array overwritten by the current block; empty without damage.
  std::string damage() const;

  // Describes a faulting address near an array: "4 bytes past the end of a ...".
  std::string describe(std::uintptr_t address) const;

 private:
  struct Site {
    const void* unit;
    int id;
    std::uint64_t block;  // last block that used the site
    GuardedPages pages;
  };

  std::vector<Site> sites_;
  GuardedPages dynamic_;
  std::uint64_t block_ = 0;
  std::uint64_t dynamic_block_ = 0;  // last block that used dynamic_
  std::vector<char> content_;        // of dynamic_, after the thread before
  std::vector<bool> is_changed_;     // bytes of dynamic_ that a thread has changed
};

}  // namespace emu

#endif  // WARPGRADE_EMU_SHARED_ARENA_H
