#include "order.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace emu {
namespace {

constexpr unsigned kLanes = 32;

}  // namespace

ThreadOrder::ThreadOrder(const dim3& block, Order order, std::uint64_t seed) {
  const unsigned threads = block.x * block.y * block.z;
  std::vector<unsigned> numbers((threads + kLanes - 1) / kLanes);
  std::iota(numbers.begin(), numbers.end(), 0u);
  std::mt19937_64 random(seed);
  if (order == Order::kDescending) std::reverse(numbers.begin(), numbers.end());
  if (order == Order::kShuffled) std::shuffle(numbers.begin(), numbers.end(), random);

  ranks.reserve(threads);
  warps.reserve(numbers.size());
  for (unsigned number : numbers) {
    const unsigned first = static_cast<unsigned>(ranks.size());
    for (unsigned rank = number * kLanes; rank < std::min(threads, (number + 1) * kLanes); ++rank)
      ranks.push_back(rank);
    if (order == Order::kDescending) std::reverse(ranks.begin() + first, ranks.end());
    if (order == Order::kShuffled) std::shuffle(ranks.begin() + first, ranks.end(), random);
    warps.push_back({number, first, static_cast<unsigned>(ranks.size())});
  }
  indices.reserve(threads);
  for (unsigned rank : ranks) indices.push_back({rank % block.x, rank / block.x % block.y, rank / block.x / block.y});
}

BlockOrder::BlockOrder(const dim3& grid, Order order, std::uint64_t seed)
    : grid_(grid), count_(std::uint64_t{grid.x} * grid.y * grid.z), first_(0), step_(1) {
  if (order == Order::kDescending) {
    first_ = count_ - 1;
    step_ = count_ == 1 ? 1 : count_ - 1;
  } else if (order == Order::kShuffled) {
    std::mt19937_64 random(seed ^ 0x9e3779b97f4a7c15u);
    first_ = random() % count_;
    do {
      step_ = random() % count_ + 1;
    } while (std::gcd(step_, count_) != 1);
  }
}

std::uint64_t BlockOrder::rank_at(std::uint64_t turn) const {
  // A grid can have up to 2^31 * 2^16 * 2^16 blocks, so the product needs more than 64 bits.
  return static_cast<std::uint64_t>((first_ + static_cast<unsigned __int128>(turn) * step_) % count_);
}

uint3 BlockOrder::index(std::uint64_t rank) const {
  const std::uint64_t row = rank / grid_.x;
  return {static_cast<unsigned>(rank % grid_.x), static_cast<unsigned>(row % grid_.y),
          static_cast<unsigned>(row / grid_.y)};
}

}  // namespace emu
