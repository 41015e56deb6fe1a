// Launch limits of an H200 (compute capability 9.0).
#ifndef WARPGRADE_EMU_LIMITS_H
#define WARPGRADE_EMU_LIMITS_H

#include <cstddef>

namespace emu::limits {

constexpr unsigned kThreadsPerBlock = 1024;
constexpr unsigned kBlockZ = 64;
constexpr unsigned kGridX = 2147483647;
constexpr unsigned kGridYZ = 65535;
constexpr std::size_t kStaticSharedBytes = 48 * 1024;
constexpr std::size_t kOptInSharedBytes = 227 * 1024;
constexpr std::size_t kSharedBytesPerMultiprocessor = 228 * 1024;
constexpr int kMultiprocessors = 132;
constexpr int kThreadsPerMultiprocessor = 2048;
constexpr int kBlocksPerMultiprocessor = 32;

}  // namespace emu::limits

#endif  // WARPGRADE_EMU_LIMITS_H
