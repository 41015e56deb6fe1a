// Masks of inputs and digests of outputs, for calls that the judge releases one at a time.
//
// Both kernels run on both sides: the judge masks the inputs and repeats the digests, the runner removes the masks and
// computes the digests behind the submission's work. evaluator/devices/spot_kernels.py has the launches.
//
// A submission has seconds and a whole GPU to work against masks and digests, so both use ChaCha with 8 rounds
// (Bernstein, ChaCha, a variant of Salsa20, 2008). Inputs have known words, such as the upper halves of indices. A mask
// of which some words are known must not show its key. Outputs have bits that no tolerance decides. A digest that was
// published must not be reached afterwards by a choice of these bits, so digests are not added up.

#include <cstdint>

__device__ void quarter_round(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c, std::uint32_t& d) {
  a += b; d ^= a; d = d << 16 | d >> 16;
  c += d; b ^= c; b = b << 12 | b >> 20;
  a += b; d ^= a; d = d << 8 | d >> 24;
  c += d; b ^= c; b = b << 7 | b >> 25;
}

// Eight rounds of ChaCha on 16 words.
__device__ void permute(std::uint32_t* words) {
  for (int round = 0; round < 8; round += 2) {
    quarter_round(words[0], words[4], words[8], words[12]);
    quarter_round(words[1], words[5], words[9], words[13]);
    quarter_round(words[2], words[6], words[10], words[14]);
    quarter_round(words[3], words[7], words[11], words[15]);
    quarter_round(words[0], words[5], words[10], words[15]);
    quarter_round(words[1], words[6], words[11], words[12]);
    quarter_round(words[2], words[7], words[8], words[13]);
    quarter_round(words[3], words[4], words[9], words[14]);
  }
}

// Waits until the 32-bit word is at least `least`, in the cyclic sense, then copies a key of 128 bits. One thread does
// both: blocks that read the same word of host memory are served one after the other, each in about a microsecond. A
// stream that waits by a memory operation instead is looked at again only after many microseconds when a host writes
// the word.
extern "C" __global__ void warpgrade_await(const volatile std::uint32_t* word, std::uint32_t least,
                                           const volatile std::uint64_t* from, std::uint64_t* key) {
  while (static_cast<std::int32_t>(*word - least) < 0) {
  }
  __threadfence_system();
  const std::uint64_t low = from[0], high = from[1];
  key[0] = low;
  key[1] = high;
}

// XOR of `words` 32-bit words with the stream of a key of 128 bits. Word k of a thread's block of the stream belongs to
// the k-th word of the thread in its tile, so that neighbours read neighbours. The stream is the same with any number of
// blocks, not with other blocks.
extern "C" __global__ void warpgrade_mask(std::uint32_t* memory, std::uint64_t words, const std::uint64_t* key) {
  const std::uint32_t keys[4] = {static_cast<std::uint32_t>(key[0]), static_cast<std::uint32_t>(key[0] >> 32),
                                 static_cast<std::uint32_t>(key[1]), static_cast<std::uint32_t>(key[1] >> 32)};
  const std::uint64_t tile = std::uint64_t{16} * blockDim.x;
  for (std::uint64_t start = blockIdx.x * tile; start + threadIdx.x < words; start += gridDim.x * tile) {
    const std::uint64_t count = start / 16 + threadIdx.x;
    const std::uint32_t given[16] = {0x61707865, 0x3120646e, 0x79622d36, 0x6b206574, keys[0], keys[1], keys[2], keys[3],
                                     keys[0], keys[1], keys[2], keys[3], static_cast<std::uint32_t>(count),
                                     static_cast<std::uint32_t>(count >> 32), 0, 0};
    std::uint32_t stream[16];
    for (int word = 0; word < 16; ++word) stream[word] = given[word];
    permute(stream);
    for (int word = 0; word < 16; ++word) {
      const std::uint64_t index = start + threadIdx.x + std::uint64_t{blockDim.x} * word;
      if (index < words) memory[index] ^= stream[word] + given[word];
    }
  }
}

constexpr int kChain = 4, kData = 8;
constexpr int kMostBlocks = 264;  // As in evaluator/devices/spot_kernels.py; a block has fewer threads.
constexpr std::uint32_t kLeaf = 1, kNode = 2, kPart = 3;

// One-way: a chain of 128 bits takes 256 bits of data in. `kind` and `place` tell uses apart.
__device__ void take_in(std::uint32_t* chain, const std::uint32_t* data, std::uint32_t kind, std::uint32_t place) {
  std::uint32_t words[16] = {0x70726177, 0x64617267, kind, place};
  for (int word = 0; word < kChain; ++word) words[4 + word] = chain[word];
  for (int word = 0; word < kData; ++word) words[8 + word] = data[word];
  permute(words);
  for (int word = 0; word < kChain; ++word) chain[word] += words[4 + word];
}

// Joins `count` chains into the first, three at a time. All threads of the block take part.
__device__ void join(std::uint32_t (*chains)[kChain], unsigned count) {
  while (count > 1) {
    const unsigned left = (count + 2) / 3;
    std::uint32_t chain[kChain], data[kData];
    if (threadIdx.x < left) {
      for (int word = 0; word < kChain; ++word) chain[word] = chains[3 * threadIdx.x][word];
      for (int word = 0; word < kData; ++word) {
        const unsigned from = 3 * threadIdx.x + 1 + word / kChain;
        data[word] = from < count ? chains[from][word % kChain] : 0;
      }
    }
    __syncthreads();
    if (threadIdx.x < left) {
      take_in(chain, data, kNode, count);
      for (int word = 0; word < kChain; ++word) chains[threadIdx.x][word] = chain[word];
    }
    __syncthreads();
    count = left;
  }
}

__device__ std::uint32_t word_at(const unsigned char* memory, std::uint64_t size_bytes, std::uint64_t index) {
  const std::uint64_t start = 4 * index;
  if (start >= size_bytes) return 0;
  if (reinterpret_cast<std::uintptr_t>(memory) % 4 == 0 && size_bytes - start >= 4) {
    return reinterpret_cast<const std::uint32_t*>(memory)[index];
  }
  std::uint32_t word = 0;
  for (std::uint64_t byte = 0; byte < 4 && byte < size_bytes - start; ++byte) {
    word |= std::uint32_t{memory[start + byte]} << (8 * byte);
  }
  return word;
}

// Takes `size_bytes` at `memory` into the digest of all parts so far. `state` has 64-bit words: a count of finished
// blocks, one that is unused, the digest of the parts (128 bits), and a chain for each block. The last block of the
// last part publishes the digest at `slot`, with a first word other than 0, and clears the state. The grid is part of
// the digest.
extern "C" __global__ void warpgrade_digest(const unsigned char* memory, std::uint64_t size_bytes, std::uint64_t part,
                                            std::uint64_t* state, volatile std::uint64_t* slot, int last) {
  __shared__ std::uint32_t chains[kMostBlocks][kChain];
  __shared__ bool is_last;
  const std::uint64_t words = (size_bytes + 3) / 4;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  std::uint32_t chain[kChain] = {}, data[kData];
  for (std::uint64_t first = thread; first < words; first += kData * stride) {
    for (int word = 0; word < kData; ++word) data[word] = word_at(memory, size_bytes, first + stride * word);
    take_in(chain, data, kLeaf, static_cast<std::uint32_t>(first));
  }
  for (int word = 0; word < kChain; ++word) chains[threadIdx.x][word] = chain[word];
  __syncthreads();
  join(chains, blockDim.x);
  auto* parts = reinterpret_cast<volatile std::uint32_t*>(state + 2);
  auto* of_blocks = reinterpret_cast<volatile std::uint32_t*>(state + 4);
  if (threadIdx.x == 0) {
    for (int word = 0; word < kChain; ++word) of_blocks[kChain * blockIdx.x + word] = chains[0][word];
    __threadfence();
    is_last = atomicAdd(reinterpret_cast<unsigned long long*>(state), 1ull) + 1 == gridDim.x;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  for (unsigned block = threadIdx.x; block < gridDim.x; block += blockDim.x) {
    for (int word = 0; word < kChain; ++word) chains[block][word] = of_blocks[kChain * block + word];
  }
  __syncthreads();
  join(chains, gridDim.x);
  if (threadIdx.x != 0) return;
  for (int word = 0; word < kChain; ++word) {
    chain[word] = parts[word];
    data[word] = chains[0][word];
    data[kChain + word] = 0;
  }
  data[kChain] = static_cast<std::uint32_t>(size_bytes);
  data[kChain + 1] = static_cast<std::uint32_t>(size_bytes >> 32);
  take_in(chain, data, kPart, static_cast<std::uint32_t>(part));
  state[0] = 0;
  for (int word = 0; word < kChain; ++word) parts[word] = last ? 0 : chain[word];
  if (!last) return;
  slot[1] = std::uint64_t{chain[3]} << 32 | chain[2];
  __threadfence_system();
  slot[0] = std::uint64_t{chain[1]} << 32 | chain[0] | 1ull;
}
