#include "fresh.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>

namespace emu {
namespace {

constexpr std::size_t kTableBytes = std::size_t{1} << 16;
using Table = std::array<unsigned char, kTableBytes>;

std::atomic<Fill> current{Fill::kNan};
std::atomic<std::uint64_t> start{0};

// Generated in units of two bytes, with sign and most of the exponent in the upper byte. A floating-point number of any
// type at an even address therefore has an ordinary value. Generated once: copying is as fast as filling.
const Table& ordinary() {
  static const Table* const table = [] {
    auto* made = new Table;
    std::mt19937_64 random(0x0dd5eed);
    for (std::size_t i = 0; i < kTableBytes; i += 2) {
      const std::uint64_t bits = random();
      (*made)[i] = static_cast<unsigned char>(bits);
      (*made)[i + 1] = (bits & 0x100) != 0 ? 0xbf : 0x3f;
    }
    return made;
  }();
  return *table;
}

void fill_ordinary(unsigned char* data, std::size_t bytes) {
  const Table& table = ordinary();
  // A different, even table offset for each allocation. Even offsets preserve the byte order within a unit.
  std::size_t from = start.fetch_add(0x9e3779b97f4a7c16u) % kTableBytes & ~std::size_t{1};
  while (bytes != 0) {
    const std::size_t part = std::min(bytes, kTableBytes - from);
    std::memcpy(data, table.data() + from, part);
    data += part;
    bytes -= part;
    from = 0;
  }
}

}  // namespace

void set_fill(Fill fill, std::uint64_t seed) {
  current.store(fill);
  start.store(seed);
}

void fill_fresh(void* data, std::size_t bytes) {
  switch (current.load(std::memory_order_relaxed)) {
    case Fill::kNan:
      std::memset(data, 0xff, bytes);
      return;
    case Fill::kLarge:
      std::memset(data, 0x7b, bytes);
      return;
    case Fill::kNegative:
      std::memset(data, 0xfb, bytes);
      return;
    case Fill::kOrdinary:
      fill_ordinary(static_cast<unsigned char*>(data), bytes);
      return;
  }
}

}  // namespace emu
