// The judge's look at outputs inside of the clock: elements at positions that it chose, copied to memory of its own.
//
// Shapes are the judge's. Places (offsets and strides) are what the runner wrote into the shared page, one for each
// shape and in that order, and hostile: an address is used only if the whole element lies in the region.

#include <cstdint>

// As in evaluator/devices/memory.py and evaluator/judge/clock/clock_kernels.py.
constexpr int kPlaces = 1024, kMaxDimensions = 64, kSlotBytes = 16;
// A block holds so many places at once (33 KiB of shared memory). Most blocks have samples of one or two tensors.
constexpr int kHeld = 64;

struct Place {
  std::uint64_t offset;
  std::uint32_t item_bytes;
  std::uint32_t dimensions;
  std::int64_t strides[kMaxDimensions];
};

struct Shape {
  std::uint32_t item_bytes;
  std::uint32_t dimensions;
  std::int64_t sizes[kMaxDimensions];
};

constexpr int kPlaceWords = sizeof(Place) / 8, kHeadWords = 2;

// Where element `position` of an output lies, or -1 if that is nowhere in the region.
__device__ std::int64_t locate(const Shape& shape, const Place& place, std::int64_t position,
                               std::uint64_t region_bytes) {
  if (place.item_bytes != shape.item_bytes || place.dimensions != shape.dimensions) return -1;
  std::uint64_t element = 0;
  for (int dimension = static_cast<int>(shape.dimensions) - 1; dimension >= 0; --dimension) {
    const auto coordinate = static_cast<std::uint64_t>(position % shape.sizes[dimension]);
    position /= shape.sizes[dimension];
    const auto stride = static_cast<std::uint64_t>(place.strides[dimension]);
    if (__umul64hi(coordinate, stride) != 0) return -1;
    const std::uint64_t step = coordinate * stride;
    if (step > region_bytes) return -1;  // Both terms of the sum are far below 2^63 then.
    element += step;
    if (element > region_bytes) return -1;
  }
  if (place.offset > region_bytes) return -1;
  const std::uint64_t start = place.offset + element * shape.item_bytes;
  return start + shape.item_bytes <= region_bytes ? static_cast<std::int64_t>(start) : -1;
}

// `which` says for each sample whose it is, and ascends. A block takes samples that follow each other.
extern "C" __global__ void warpgrade_gather(const unsigned char* region, std::uint64_t region_bytes,
                                            const volatile unsigned char* page, const Shape* shapes,
                                            const std::int32_t* which, const std::int64_t* positions,
                                            std::int64_t count, unsigned char* slots) {
  __shared__ Place places[kHeld];
  const std::int64_t share = (count + gridDim.x - 1) / gridDim.x;
  const std::int64_t begin = blockIdx.x * share;
  const std::int64_t end = begin + share < count ? begin + share : count;
  if (begin >= end) return;
  const std::int32_t last = which[end - 1];
  auto* words = reinterpret_cast<std::uint64_t*>(places);
  const auto* said = reinterpret_cast<const volatile std::uint64_t*>(page + kPlaces);
  for (std::int32_t first = which[begin]; first <= last; first += kHeld) {
    const std::int32_t held = last - first + 1 < kHeld ? last - first + 1 : kHeld;
    for (int word = threadIdx.x; word < held * kPlaceWords; word += blockDim.x) {
      const std::int32_t tensor = first + word / kPlaceWords;
      // Strides that the shape has no dimension for are not read.
      if (word % kPlaceWords >= kHeadWords + static_cast<int>(shapes[tensor].dimensions)) continue;
      words[word] = said[static_cast<std::int64_t>(tensor) * kPlaceWords + word % kPlaceWords];
    }
    __syncthreads();
    for (std::int64_t index = begin + threadIdx.x; index < end; index += blockDim.x) {
      const std::int32_t tensor = which[index];
      if (tensor < first || tensor >= first + held) continue;
      const Shape& shape = shapes[tensor];
      const std::int64_t start = locate(shape, places[tensor - first], positions[index], region_bytes);
      if (start < 0) continue;
      const auto item = static_cast<int>(shape.item_bytes);
      for (int byte = 0; byte < item; ++byte) slots[index * kSlotBytes + byte] = region[start + byte];
    }
    __syncthreads();
  }
}
