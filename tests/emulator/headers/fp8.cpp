// The 8-bit types, for tests/emulator/test_headers.py to call on whole arrays.
#include <cuda_fp8.h>

#define CONVERSIONS(T, Pair, Quad, N, kind)                                                                   \
  extern "C" void N##_widen(const unsigned char* in, float* out, long count) {                                \
    for (long i = 0; i < count; ++i) {                                                                        \
      T value;                                                                                                \
      value.__x = in[i];                                                                                      \
      out[i] = static_cast<float>(value);                                                                     \
    }                                                                                                         \
  }                                                                                                           \
  extern "C" void N##_narrow(const float* in, unsigned char* out, long count) {                               \
    for (long i = 0; i < count; ++i) out[i] = T(in[i]).__x;                                                   \
  }                                                                                                           \
  extern "C" void N##_narrow_without_saturation(const float* in, unsigned char* out, long count) {            \
    for (long i = 0; i < count; ++i) out[i] = __nv_cvt_float_to_fp8(in[i], __NV_NOSAT, kind);                 \
  }                                                                                                           \
  extern "C" void N##_in_vectors(const float* in, float* out, long count) {                                   \
    for (long i = 0; i + 4 <= count; i += 4) {                                                                \
      const float4 four = static_cast<float4>(Quad(float4{in[i], in[i + 1], in[i + 2], in[i + 3]}));          \
      const float2 two = static_cast<float2>(Pair(float2{in[i], in[i + 1]}));                                 \
      const __half2 halves = static_cast<__half2>(Pair(float2{in[i + 2], in[i + 3]}));                        \
      out[i] = two.x == four.x ? four.x : -1.0f;                                                              \
      out[i + 1] = two.y == four.y ? four.y : -1.0f;                                                          \
      out[i + 2] = __half2float(__low2half(halves)) == four.z ? four.z : -1.0f;                               \
      out[i + 3] = __half2float(__high2half(halves)) == four.w ? four.w : -1.0f;                              \
    }                                                                                                         \
  }

CONVERSIONS(__nv_fp8_e4m3, __nv_fp8x2_e4m3, __nv_fp8x4_e4m3, e4m3, __NV_E4M3)
CONVERSIONS(__nv_fp8_e5m2, __nv_fp8x2_e5m2, __nv_fp8x4_e5m2, e5m2, __NV_E5M2)
