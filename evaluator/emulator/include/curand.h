// curand's host API: a generator that fills arrays. The numbers have the correct distribution and repeat for equal
// seeds. The sequence differs from curand's, which depends on the work distribution of curand's kernels.
#ifndef WARPGRADE_EMU_CURAND_H
#define WARPGRADE_EMU_CURAND_H

#include <cmath>
#include <cstddef>
#include <random>

#include <driver_types.h>

enum curandStatus_t {
  CURAND_STATUS_SUCCESS = 0,
  CURAND_STATUS_VERSION_MISMATCH = 100,
  CURAND_STATUS_NOT_INITIALIZED = 101,
  CURAND_STATUS_ALLOCATION_FAILED = 102,
  CURAND_STATUS_TYPE_ERROR = 103,
  CURAND_STATUS_OUT_OF_RANGE = 104,
  CURAND_STATUS_LENGTH_NOT_MULTIPLE = 105,
  CURAND_STATUS_LAUNCH_FAILURE = 201,
  CURAND_STATUS_INTERNAL_ERROR = 999,
};

enum curandRngType_t {
  CURAND_RNG_PSEUDO_DEFAULT = 100,
  CURAND_RNG_PSEUDO_XORWOW = 101,
  CURAND_RNG_PSEUDO_MRG32K3A = 121,
  CURAND_RNG_PSEUDO_MTGP32 = 141,
  CURAND_RNG_PSEUDO_MT19937 = 142,
  CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161,
};

struct curandGenerator_st {
  std::mt19937_64 bits;
};
using curandGenerator_t = curandGenerator_st*;

inline curandStatus_t curandCreateGenerator(curandGenerator_t* generator, curandRngType_t) {
  *generator = new curandGenerator_st;
  return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandDestroyGenerator(curandGenerator_t generator) {
  delete generator;
  return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator, unsigned long long seed) {
  generator->bits.seed(seed);
  return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetGeneratorOffset(curandGenerator_t generator, unsigned long long offset) {
  generator->bits.discard(offset);
  return CURAND_STATUS_SUCCESS;
}
// All work is done in order, so streams have no effect.
inline curandStatus_t curandSetStream(curandGenerator_t, cudaStream_t) { return CURAND_STATUS_SUCCESS; }

inline curandStatus_t curandGenerate(curandGenerator_t generator, unsigned int* output, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) output[i] = static_cast<unsigned int>(generator->bits() >> 32);
  return CURAND_STATUS_SUCCESS;
}
// Range (0, 1].
inline curandStatus_t curandGenerateUniform(curandGenerator_t generator, float* output, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    output[i] = static_cast<float>((generator->bits() >> 40) + 1) * 0x1p-24f;
  }
  return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandGenerateUniformDouble(curandGenerator_t generator, double* output, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    output[i] = static_cast<double>((generator->bits() >> 11) + 1) * 0x1p-53;
  }
  return CURAND_STATUS_SUCCESS;
}
// Pseudo-random normal generators produce pairs, and reject an odd count.
inline curandStatus_t curandGenerateNormal(curandGenerator_t generator, float* output, std::size_t count, float mean,
                                           float stddev) {
  if (count % 2 != 0) return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
  std::normal_distribution<float> normal(mean, stddev);
  for (std::size_t i = 0; i < count; ++i) output[i] = normal(generator->bits);
  return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandGenerateNormalDouble(curandGenerator_t generator, double* output, std::size_t count,
                                                 double mean, double stddev) {
  if (count % 2 != 0) return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
  std::normal_distribution<double> normal(mean, stddev);
  for (std::size_t i = 0; i < count; ++i) output[i] = normal(generator->bits);
  return CURAND_STATUS_SUCCESS;
}

#endif  // WARPGRADE_EMU_CURAND_H
