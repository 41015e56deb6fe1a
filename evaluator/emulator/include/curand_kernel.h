// curand's device API for the generators Philox4x32-10 and XORWOW, with curand's own sequences: equal seed, subsequence
// and offset produce the same bits as on a GPU. Numbers computed with log, sin or cos may differ from a GPU's in their
// last bits.
#ifndef WARPGRADE_EMU_CURAND_KERNEL_H
#define WARPGRADE_EMU_CURAND_KERNEL_H

#include <cmath>
#include <cstdint>

#include <curand.h>

#include "emu_lib/xorwow_jump.h"
#include "vector_types.h"

namespace emu::lib {

// Normal numbers are generated in pairs. The second number is stored for the next call of the same kind; a call of the
// other kind discards the stored number.
enum class ExtraKind : unsigned char { kNone, kNormal, kLogNormal };
template <class Real>
struct Extra {
  ExtraKind kind;
  Real value;
};

}  // namespace emu::lib

struct curandStateXORWOW {
  unsigned int d;
  unsigned int v[5];
  emu::lib::Extra<float> extra;
  emu::lib::Extra<double> extra_double;
};

struct curandStatePhilox4_32_10 {
  uint4 ctr;     // 128-bit counter, x lowest
  uint4 output;  // the counter's four encrypted words
  uint2 key;
  unsigned int STATE;  // number of used words
  emu::lib::Extra<float> extra;
  emu::lib::Extra<double> extra_double;
};

using curandStateXORWOW_t = curandStateXORWOW;
using curandState_t = curandStateXORWOW;
using curandState = curandStateXORWOW;
using curandStatePhilox4_32_10_t = curandStatePhilox4_32_10;

namespace emu::lib {

// Philox4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
inline uint4 philox4x32_10(uint4 counter, uint2 key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t left = std::uint64_t{0xd2511f53u} * counter.x;
    const std::uint64_t right = std::uint64_t{0xcd9e8d57u} * counter.z;
    counter = uint4{static_cast<unsigned>(right >> 32) ^ counter.y ^ key.x, static_cast<unsigned>(right),
                    static_cast<unsigned>(left >> 32) ^ counter.w ^ key.y, static_cast<unsigned>(left)};
    key.x += 0x9e3779b9u;
    key.y += 0xbb67ae85u;
  }
  return counter;
}

// Adds to the upper half of the counter, the subsequence number.
inline void philox_skip_sequences(uint4& counter, std::uint64_t count) {
  const std::uint64_t high = (std::uint64_t{counter.w} << 32 | counter.z) + count;
  counter.z = static_cast<unsigned>(high);
  counter.w = static_cast<unsigned>(high >> 32);
}

// Adds to the whole counter.
inline void philox_skip_blocks(uint4& counter, std::uint64_t count) {
  const std::uint64_t before = std::uint64_t{counter.y} << 32 | counter.x;
  const std::uint64_t low = before + count;
  counter.x = static_cast<unsigned>(low);
  counter.y = static_cast<unsigned>(low >> 32);
  if (low < before) philox_skip_sequences(counter, 1);
}

// Returns a word of a uint4 by index.
inline unsigned word(const uint4& words, unsigned index) {
  return index == 0 ? words.x : index == 1 ? words.y : index == 2 ? words.z : words.w;
}

// Range (0, 1]: half a step is added to exclude 0.
inline float uniform(unsigned bits) { return bits * 0x1p-32f + 0x1p-33f; }
// From one word, with a whole step added.
inline double uniform_double(unsigned bits) { return bits * 0x1p-32 + 0x1p-32; }
// 53 bits from two words.
inline double uniform_double(unsigned low, unsigned high) {
  const std::uint64_t bits = low ^ std::uint64_t{high} << (53 - 32);
  return static_cast<double>(bits) * 0x1p-53 + 0x1p-54;
}

// Two normal numbers from two words.
inline float2 box_muller(unsigned a, unsigned b) {
  constexpr float kTwoPi = 6.2831855f;
  const float radius = std::sqrt(-2.0f * std::log(uniform(a)));
  const float angle = b * (0x1p-32f * kTwoPi) + 0x1p-33f * kTwoPi;
  return float2{radius * std::sin(angle), radius * std::cos(angle)};
}
inline double2 box_muller_double(double a, double b) {
  constexpr double kPi = 3.14159265358979323846;
  const double radius = std::sqrt(-2.0 * std::log(a));
  return double2{radius * std::sin(2.0 * kPi * b), radius * std::cos(2.0 * kPi * b)};
}

// Returns the stored number, or the first number of a new pair, storing the second.
template <class Real, class MakePair>
inline Real one_of_pair(Extra<Real>& extra, ExtraKind kind, MakePair make_pair) {
  if (extra.kind == kind) {
    extra.kind = ExtraKind::kNone;
    return extra.value;
  }
  const auto pair = make_pair();
  extra = Extra<Real>{kind, pair.y};
  return pair.x;
}

}  // namespace emu::lib

// Initialization and skipping.

inline void skipahead(unsigned long long n, curandStatePhilox4_32_10_t* state) {
  state->STATE += static_cast<unsigned>(n & 3);
  n /= 4;
  if (state->STATE > 3) {
    ++n;
    state->STATE -= 4;
  }
  emu::lib::philox_skip_blocks(state->ctr, n);
  state->output = emu::lib::philox4x32_10(state->ctr, state->key);
}
inline void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10_t* state) {
  emu::lib::philox_skip_sequences(state->ctr, n);
  state->output = emu::lib::philox4x32_10(state->ctr, state->key);
}
inline void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                        curandStatePhilox4_32_10_t* state) {
  *state = curandStatePhilox4_32_10_t{};
  state->key = uint2{static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32)};
  skipahead_sequence(subsequence, state);
  skipahead(offset, state);
}

inline void skipahead(unsigned long long n, curandStateXORWOW_t* state) {
  emu::lib::xorwow_jump(state->v, n, 0);
  state->d += 362437u * static_cast<unsigned>(n);
}
// A subsequence has 2^67 numbers; the Weyl sequence `d` repeats after each subsequence.
inline void skipahead_sequence(unsigned long long n, curandStateXORWOW_t* state) {
  emu::lib::xorwow_jump(state->v, n, 67);
}
inline void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                        curandStateXORWOW_t* state) {
  *state = curandStateXORWOW_t{};
  const unsigned low = 1099087573u * (static_cast<unsigned>(seed) ^ 0xaad26b49u);
  const unsigned high = 2591861531u * (static_cast<unsigned>(seed >> 32) ^ 0xf7dcefddu);
  state->v[0] = 123456789u + low;
  state->v[1] = 362436069u ^ low;
  state->v[2] = 521288629u + high;
  state->v[3] = 88675123u ^ high;
  state->v[4] = 5783321u + low;
  state->d = 6615241u + high + low;
  skipahead_sequence(subsequence, state);
  skipahead(offset, state);
}

// Bits.

inline unsigned int curand(curandStateXORWOW_t* state) {
  emu::lib::xorwow_step(state->v);
  state->d += 362437u;
  return state->v[4] + state->d;
}
inline unsigned int curand(curandStatePhilox4_32_10_t* state) {
  const unsigned bits = emu::lib::word(state->output, state->STATE++);
  if (state->STATE == 4) {
    emu::lib::philox_skip_blocks(state->ctr, 1);
    state->output = emu::lib::philox4x32_10(state->ctr, state->key);
    state->STATE = 0;
  }
  return bits;
}
inline uint4 curand4(curandStatePhilox4_32_10_t* state) {
  uint4 bits;
  bits.x = curand(state);
  bits.y = curand(state);
  bits.z = curand(state);
  bits.w = curand(state);
  return bits;
}

// Uniform and normal numbers of both generators. For doubles, Philox uses one word and XORWOW two.

template <class State>
inline float curand_uniform(State* state) {
  return emu::lib::uniform(curand(state));
}
inline double curand_uniform_double(curandStatePhilox4_32_10_t* state) {
  return emu::lib::uniform_double(curand(state));
}
inline double curand_uniform_double(curandStateXORWOW_t* state) {
  const unsigned low = curand(state);
  return emu::lib::uniform_double(low, curand(state));
}

template <class State>
inline float2 curand_normal2(State* state) {
  const unsigned first = curand(state);
  return emu::lib::box_muller(first, curand(state));
}
template <class State>
inline double2 curand_normal2_double(State* state) {
  unsigned words[4];
  for (unsigned& bits : words) bits = curand(state);
  return emu::lib::box_muller_double(emu::lib::uniform_double(words[0], words[1]),
                                     emu::lib::uniform_double(words[2], words[3]));
}
template <class State>
inline float curand_normal(State* state) {
  return emu::lib::one_of_pair(state->extra, emu::lib::ExtraKind::kNormal, [&] { return curand_normal2(state); });
}
template <class State>
inline double curand_normal_double(State* state) {
  return emu::lib::one_of_pair(state->extra_double, emu::lib::ExtraKind::kNormal,
                               [&] { return curand_normal2_double(state); });
}
template <class State>
inline float curand_log_normal(State* state, float mean, float stddev) {
  return emu::lib::one_of_pair(state->extra, emu::lib::ExtraKind::kLogNormal, [&] {
    const float2 pair = curand_normal2(state);
    return float2{std::exp(mean + stddev * pair.x), std::exp(mean + stddev * pair.y)};
  });
}
template <class State>
inline double curand_log_normal_double(State* state, double mean, double stddev) {
  return emu::lib::one_of_pair(state->extra_double, emu::lib::ExtraKind::kLogNormal, [&] {
    const double2 pair = curand_normal2_double(state);
    return double2{std::exp(mean + stddev * pair.x), std::exp(mean + stddev * pair.y)};
  });
}

// Four (or two) numbers at once, supported by Philox only.

inline float4 curand_uniform4(curandStatePhilox4_32_10_t* state) {
  const uint4 bits = curand4(state);
  return float4{emu::lib::uniform(bits.x), emu::lib::uniform(bits.y), emu::lib::uniform(bits.z),
                emu::lib::uniform(bits.w)};
}
inline double2 curand_uniform2_double(curandStatePhilox4_32_10_t* state) {
  const uint4 bits = curand4(state);
  return double2{emu::lib::uniform_double(bits.x, bits.y), emu::lib::uniform_double(bits.z, bits.w)};
}
inline float4 curand_normal4(curandStatePhilox4_32_10_t* state) {
  const uint4 bits = curand4(state);
  const float2 low = emu::lib::box_muller(bits.x, bits.y);
  const float2 high = emu::lib::box_muller(bits.z, bits.w);
  return float4{low.x, low.y, high.x, high.y};
}

#endif  // WARPGRADE_EMU_CURAND_KERNEL_H
