// Xorshift part of XORWOW (Marsaglia, "Xorshift RNGs", 2003), with long jumps.
//
// One step is linear over bits: a matrix of 160 x 160 bits. 2^k steps are the matrix squared k times. Powers for
// subsequences and offsets are computed on first use, once per process.
#ifndef WARPGRADE_EMU_LIB_XORWOW_JUMP_H
#define WARPGRADE_EMU_LIB_XORWOW_JUMP_H

#include <array>
#include <cstdint>
#include <mutex>

namespace emu::lib {

// State of 5 words of 32 bits; bit i of the state is bit i % 32 of word i / 32.
inline void xorwow_step(unsigned (&v)[5]) {
  const unsigned t = v[0] ^ (v[0] >> 2);
  v[0] = v[1];
  v[1] = v[2];
  v[2] = v[3];
  v[3] = v[4];
  v[4] = (v[4] ^ (v[4] << 4)) ^ (t ^ (t << 1));
}

// Row i is the successor of a state with only bit i set.
class XorwowMatrix {
 public:
  static XorwowMatrix one_step() {
    XorwowMatrix matrix;
    for (int bit = 0; bit < kBits; ++bit) {
      unsigned v[5] = {};
      v[bit / 32] = 1u << bit % 32;
      xorwow_step(v);
      for (int word = 0; word < 5; ++word) matrix.rows_[bit][word] = v[word];
    }
    return matrix;
  }

  void apply(unsigned (&v)[5]) const {
    unsigned sum[5] = {};
    for (int bit = 0; bit < kBits; ++bit) {
      if ((v[bit / 32] >> bit % 32 & 1u) == 0) continue;
      for (int word = 0; word < 5; ++word) sum[word] ^= rows_[bit][word];
    }
    for (int word = 0; word < 5; ++word) v[word] = sum[word];
  }

  XorwowMatrix squared() const {
    XorwowMatrix square = *this;
    for (auto& row : square.rows_) apply(row);
    return square;
  }

 private:
  static constexpr int kBits = 160;
  unsigned rows_[kBits][5];
};

// Jumps `count` * 2^`exponent` steps ahead.
inline void xorwow_jump(unsigned (&v)[5], std::uint64_t count, int exponent) {
  // Fixed size, never moved: at most 67 + 64 powers, computed by whichever worker thread needs a power first.
  static std::array<XorwowMatrix, 67 + 64> powers;
  static int known = 0;
  static std::mutex mutex;
  for (; count != 0; count >>= 1, ++exponent) {
    if ((count & 1) == 0) continue;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      for (; known <= exponent; ++known) {
        powers[known] = known == 0 ? XorwowMatrix::one_step() : powers[known - 1].squared();
      }
    }
    powers[exponent].apply(v);
  }
}

}  // namespace emu::lib

#endif  // WARPGRADE_EMU_LIB_XORWOW_JUMP_H
