// Masks of inputs and digests of outputs, for calls that the judge releases one at a time.
//
// Both kernels run on both sides: the judge masks the inputs and repeats the digests, the runner removes the masks and
// computes the digests behind the submission's work. evaluator/devices/spot_kernels.py has the launches.

#include <cstdint>

// A bijection of 64 bits in which every input bit reaches every output bit (the finalizer of MurmurHash3 with the
// constants of Stafford's Mix13, as in SplitMix64).
__device__ std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15ull;

// Waits until the 32-bit word is at least `least`, in the cyclic sense, then copies a key. One thread does both: blocks
// that read the same word of host memory are served one after the other, each in about a microsecond. A stream that
// waits by a memory operation instead is looked at again only after many microseconds when a host writes the word.
extern "C" __global__ void warpgrade_await(const volatile std::uint32_t* word, std::uint32_t least,
                                           const volatile std::uint64_t* from, std::uint64_t* key) {
  while (static_cast<std::int32_t>(*word - least) < 0) {
  }
  __threadfence_system();
  *key = *from;
}

// XOR of `words` 32-bit words with the stream of a key.
extern "C" __global__ void warpgrade_mask(std::uint32_t* memory, std::uint64_t words, const std::uint64_t* key) {
  const std::uint64_t shared_key = *key;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t index = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; index < words; index += stride) {
    memory[index] ^= static_cast<std::uint32_t>(mixed(shared_key + (index + 1) * kStep));
  }
}

// Adds the digest of `size_bytes` at `memory` to state[0]. state[1] counts finished blocks. The last block of the last
// part publishes the digest at `slot`, never 0, and clears the state. The grid is part of the digest.
extern "C" __global__ void warpgrade_digest(const unsigned char* memory, std::uint64_t size_bytes, std::uint64_t part,
                                            std::uint64_t* state, volatile std::uint64_t* slot, int last) {
  const std::uint64_t words = (size_bytes + 3) / 4;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const bool aligned = reinterpret_cast<std::uintptr_t>(memory) % 4 == 0;
  std::uint64_t chain = mixed((part + 1) * kStep ^ (thread << 1 | 1));
  for (std::uint64_t index = thread; index < words; index += stride) {
    const std::uint64_t left = size_bytes - 4 * index;
    std::uint64_t word = 0;
    if (aligned && left >= 4) {
      word = reinterpret_cast<const std::uint32_t*>(memory)[index];
    } else {
      for (std::uint64_t byte = 0; byte < 4 && byte < left; ++byte) {
        word |= std::uint64_t{memory[4 * index + byte]} << (8 * byte);
      }
    }
    chain = mixed(chain ^ (index << 32 | word)) + kStep;
  }
  __shared__ unsigned long long sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, static_cast<unsigned long long>(chain));
  __syncthreads();
  if (threadIdx.x != 0) return;
  auto* total = reinterpret_cast<unsigned long long*>(state);
  atomicAdd(&total[0], mixed(sum ^ (part << 32 | blockIdx.x)));
  __threadfence();
  const unsigned long long finished = atomicAdd(&total[1], 1ull) + 1;
  if (finished != gridDim.x) return;
  total[1] = 0;
  if (!last) return;
  const unsigned long long digest = atomicExch(&total[0], 0ull) | 1ull;
  __threadfence_system();
  *slot = digest;
}
