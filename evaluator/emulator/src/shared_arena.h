// The shared memory of one worker, used by one block after the other.
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

  // Starts a launch, whose blocks have `dynamic_bytes` of `extern __shared__`.
  void begin_launch(std::size_t dynamic_bytes);

  // Starts a block: whatever it asks for is poisoned again.
  void begin_block() { ++block_; }

  // A static array of the current block. Gives null when the block's static arrays exceed a GPU's 48 KiB.
  void* statically(const void* unit, int id, std::size_t bytes, std::size_t alignment);
  void* dynamically();
  std::size_t dynamic_bytes() const { return dynamic_.bytes; }

  // Says which bytes around an array the current block overwrote; empty: none.
  std::string damage() const;

  // Says where a faulting address lies, if it is near an array: "4 bytes past the end of a ...".
  std::string describe(std::uintptr_t address) const;

 private:
  struct Site {
    const void* unit;
    int id;
    std::uint64_t block;  // the last one that used it
    GuardedPages pages;
  };

  std::vector<Site> sites_;
  GuardedPages dynamic_;
  std::uint64_t block_ = 0;
  std::uint64_t dynamic_block_ = 0;  // the last one that used dynamic_
};

}  // namespace emu

#endif  // WARPGRADE_EMU_SHARED_ARENA_H
