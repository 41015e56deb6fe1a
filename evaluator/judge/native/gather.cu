// The judge's look at outputs inside of the clock: elements at positions that it chose, copied to memory of its own.
//
// Shapes are the judge's. Places (offsets and strides) are what the runner wrote into the shared page, and hostile:
// an address is used only if the whole element lies in the region.

#include <cstdint>

// As in evaluator/devices/page.py and evaluator/judge/sealed_clock.py.
constexpr int kCount = 128, kPlaces = 256, kMaxPlaces = 384, kMaxDimensions = 8, kSlotBytes = 16;

struct Place {
  std::uint64_t key;
  std::uint64_t offset;
  std::uint32_t item_bytes;
  std::uint32_t dimensions;
  std::int64_t strides[kMaxDimensions];
};

struct Shape {
  std::uint64_t key;
  std::uint32_t item_bytes;
  std::uint32_t dimensions;
  std::int64_t sizes[kMaxDimensions];
};

// Where element `position` of an output lies, or -1 if that is nowhere in the region.
__device__ std::int64_t locate(const Shape& shape, const Place* places, std::uint32_t found, std::int64_t position,
                               std::uint64_t region_bytes) {
  for (std::uint32_t index = 0; index < found; ++index) {
    const Place& place = places[index];
    if (place.key != shape.key) continue;
    if (place.item_bytes != shape.item_bytes || place.dimensions != shape.dimensions) return -1;
    std::uint64_t element = 0;
    for (int dimension = static_cast<int>(shape.dimensions) - 1; dimension >= 0; --dimension) {
      const std::int64_t coordinate = position % shape.sizes[dimension];
      position /= shape.sizes[dimension];
      const auto stride = static_cast<std::uint64_t>(place.strides[dimension]);
      if (stride > region_bytes) return -1;  // Keeps the sums below far from overflow: 8 terms of at most 2^40 x 2^37.
      element += static_cast<std::uint64_t>(coordinate) * stride;
      if (element > region_bytes) return -1;
    }
    if (place.offset > region_bytes) return -1;
    const std::uint64_t start = place.offset + element * shape.item_bytes;
    return start + shape.item_bytes <= region_bytes ? static_cast<std::int64_t>(start) : -1;
  }
  return -1;
}

extern "C" __global__ void warpgrade_gather(const unsigned char* region, std::uint64_t region_bytes,
                                            const volatile unsigned char* page, const Shape* shapes,
                                            const std::int32_t* which, const std::int64_t* positions,
                                            std::int64_t count, unsigned char* slots) {
  __shared__ Place places[kMaxPlaces];
  __shared__ std::uint32_t found;
  if (threadIdx.x == 0) {
    const std::uint32_t said = *reinterpret_cast<const volatile std::uint32_t*>(page + kCount);
    found = said < kMaxPlaces ? said : kMaxPlaces;
  }
  __syncthreads();
  auto* words = reinterpret_cast<std::uint64_t*>(places);
  const auto* said = reinterpret_cast<const volatile std::uint64_t*>(page + kPlaces);
  for (std::uint32_t word = threadIdx.x; word < found * (sizeof(Place) / 8); word += blockDim.x) {
    words[word] = said[word];
  }
  __syncthreads();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t index = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; index < count;
       index += step) {
    const Shape& shape = shapes[which[index]];
    const std::int64_t start = locate(shape, places, found, positions[index], region_bytes);
    if (start < 0) continue;
    const auto item = static_cast<int>(shape.item_bytes);
    for (int byte = 0; byte < item; ++byte) slots[index * kSlotBytes + byte] = region[start + byte];
  }
}
