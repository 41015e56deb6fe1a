// Page shared by judge and runner on a host: the release and the end of each call, and the memory of its outputs.
//
// The runner writes `done` and the blocks, so the judge reads each number once and checks it.

#pragma once

#include <atomic>
#include <cstdint>

namespace handshake {

constexpr uint32_t kEnd = 0xFFFFFFFFu;  // in `go`: no further call
constexpr uint32_t kMostBlocks = 64;

struct Block {
  std::atomic<uint64_t> offset;  // from the start of the output region
  std::atomic<uint64_t> bytes;
};

// Words of different writers lie in different cache lines.
struct Page {
  alignas(64) std::atomic<uint32_t> go;
  alignas(64) std::atomic<uint32_t> done;
  alignas(64) std::atomic<uint32_t> blocks;  // allocated since the release of the call; only the last ones are listed
  alignas(64) Block block[kMostBlocks];
};

static_assert(sizeof(Page) <= 4096, "the page is one page of memory");

}  // namespace handshake
