// The 16-bit types, for tests/emulator/test_headers.py to call on whole arrays.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>

template <class T>
T of_bits(unsigned short bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
template <class T>
unsigned short bits_of(T value) {
  unsigned short bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

#define CONVERSIONS(T, N)                                                                               \
  extern "C" void N##_widen(const unsigned short* in, float* out, long count) {                         \
    for (long i = 0; i < count; ++i) out[i] = static_cast<float>(of_bits<T>(in[i]));                    \
  }                                                                                                     \
  extern "C" void N##_narrow(const float* in, unsigned short* out, long count) {                        \
    for (long i = 0; i < count; ++i) out[i] = bits_of(T(in[i]));                                        \
  }                                                                                                     \
  extern "C" void N##_narrow_double(const double* in, unsigned short* out, long count) {                \
    for (long i = 0; i < count; ++i) out[i] = bits_of(__double2##N(in[i]));                             \
  }                                                                                                     \
  extern "C" void N##_arithmetic(const unsigned short* a, const unsigned short* b, unsigned short* sum, \
                                 unsigned short* product, unsigned short* quotient, long count) {       \
    for (long i = 0; i < count; ++i) {                                                                  \
      const T left = of_bits<T>(a[i]), right = of_bits<T>(b[i]);                                        \
      sum[i] = bits_of(left + right);                                                                   \
      product[i] = bits_of(left * right);                                                               \
      quotient[i] = bits_of(left / right);                                                              \
    }                                                                                                   \
  }                                                                                                     \
  extern "C" void N##_functions(const unsigned short* in, unsigned short* out, long count) {            \
    T (*const functions[])(T) = {hexp, hlog, hsqrt, hrsqrt, hsin, hcos, htanh, hrcp};                   \
    for (int k = 0; k < 8; ++k) {                                                                       \
      for (long i = 0; i < count; ++i) out[k * count + i] = bits_of(functions[k](of_bits<T>(in[i])));   \
    }                                                                                                   \
  }
CONVERSIONS(__half, half)
CONVERSIONS(__nv_bfloat16, bfloat16)

// A digest of each operation's results on random operands, as the same program gives it on a GPU.

namespace {

unsigned next_random(unsigned& state) {
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return state;
}

unsigned mixed(unsigned digest, unsigned value) {
  digest ^= value;
  digest *= 0x9e3779b1u;
  return digest ^ (digest >> 15);
}

#define TAKE_VALUE(expression)                           \
  digests[i] = mixed(digests[i], bits_of((expression))); \
  ++i;
#define TAKE_INTEGER(expression)                                       \
  digests[i] = mixed(digests[i], static_cast<unsigned>((expression))); \
  ++i;

// Named conversions differ in their names alone.
#define NAMES(T, N)                                               \
  struct N##_names {                                              \
    static T rn(float v) { return __float2##N##_rn(v); }          \
    static T rz(float v) { return __float2##N##_rz(v); }          \
    static T rd(float v) { return __float2##N##_rd(v); }          \
    static T ru(float v) { return __float2##N##_ru(v); }          \
    static T from_double(double v) { return __double2##N(v); }    \
    static T from_int_rn(int v) { return __int2##N##_rn(v); }     \
    static T from_int_ru(int v) { return __int2##N##_ru(v); }     \
    static T from_ll(long long v) { return __ll2##N##_rn(v); }    \
    static int to_int_rn(T v) { return __##N##2int_rn(v); }       \
    static int to_int_rz(T v) { return __##N##2int_rz(v); }       \
    static int to_ushort_rd(T v) { return __##N##2ushort_rd(v); } \
    static long long to_ll(T v) { return __##N##2ll_rz(v); }      \
  };
NAMES(__half, half)
NAMES(__nv_bfloat16, bfloat16)

template <class T, class Names>
void digest_operations(unsigned* digests) {
  unsigned state = 7;
  for (int k = 0; k < 20000; ++k) {
    const unsigned r = next_random(state), q = next_random(state), w = next_random(state);
    T a = of_bits<T>(r), b = of_bits<T>(r >> 16), c = of_bits<T>(q);
    if (k % 2 != 0) {  // Operands of like size, where sums and products have something to round.
      b = of_bits<T>((r & 0x83ff) | 0x3800);
      a = of_bits<T>((q >> 16 & 0x83ff) | 0x3c00);
      if (k % 4 == 3) c = of_bits<T>(q & 0x83ff);
    }
    float f;
    std::memcpy(&f, &w, sizeof(f));
    const unsigned long long wide = static_cast<unsigned long long>((w & 0x8fffffff) | 0x30000000) << 32 | q;
    double d;
    std::memcpy(&d, &wide, sizeof(d));
    int i = 0;
    TAKE_VALUE(__hadd(a, b))
    TAKE_VALUE(__hsub(a, b))
    TAKE_VALUE(__hmul(a, b))
    TAKE_VALUE(__hdiv(a, b))
    TAKE_VALUE(__hfma(a, b, c))
    TAKE_VALUE(__hadd_sat(a, b))
    TAKE_VALUE(__hfma_sat(a, b, c))
    TAKE_VALUE(__hfma_relu(a, b, c))
    TAKE_VALUE(__hmax(a, b))
    TAKE_VALUE(__hmin(a, b))
    TAKE_VALUE(__hmax_nan(a, c))
    TAKE_VALUE(__hmin_nan(a, c))
    TAKE_VALUE(__hneg(a))
    TAKE_VALUE(__habs(a))
    TAKE_INTEGER(__hlt(a, b))
    TAKE_INTEGER(__hgeu(a, c))
    TAKE_INTEGER(__hne(a, b))
    TAKE_INTEGER(__hneu(a, a))
    TAKE_INTEGER(__heq(a, a))
    TAKE_INTEGER(__hisnan(a))
    TAKE_INTEGER(__hisinf(a))
    TAKE_VALUE(Names::rn(f))
    TAKE_VALUE(Names::rz(f))
    TAKE_VALUE(Names::rd(f))
    TAKE_VALUE(Names::ru(f))
    TAKE_VALUE(Names::from_double(d))
    TAKE_VALUE(Names::from_int_rn(static_cast<int>(w) >> (q & 31)))
    TAKE_VALUE(Names::from_int_ru(static_cast<int>(w) >> (q & 31)))
    TAKE_VALUE(Names::from_ll(static_cast<long long>(wide) >> (r & 63)))
    TAKE_INTEGER(Names::to_int_rn(a))
    TAKE_INTEGER(Names::to_int_rz(a))
    TAKE_INTEGER(Names::to_ushort_rd(a))
    TAKE_INTEGER(Names::to_ll(a))
    TAKE_INTEGER(Names::to_ll(a) >> 32)
    TAKE_VALUE(hsqrt(a))
    TAKE_VALUE(hfloor(a))
    TAKE_VALUE(hceil(a))
    TAKE_VALUE(htrunc(a))
    TAKE_VALUE(hrint(a))
    TAKE_VALUE(hrcp(a))
  }
}

}  // namespace

extern "C" void half_digests(unsigned* digests) { digest_operations<__half, half_names>(digests); }
extern "C" void bfloat16_digests(unsigned* digests) { digest_operations<__nv_bfloat16, bfloat16_names>(digests); }

// What vectors of two do, in one number per check; all must be 1.
extern "C" int vector_checks(int* passed) {
  int count = 0;
  const auto check = [&](bool good) { passed[count++] = good; };
  const half2 pair = __floats2half2_rn(1.5f, -2.0f);
  check(__low2float(pair) == 1.5f && __high2float(pair) == -2.0f);
  check(__half22float2(__hmul2(pair, pair)).y == 4.0f);
  check(__half22float2(__hfma2(pair, pair, __float2half2_rn(1.0f))).x == 3.25f);
  check(__half2float(__low2half(__lowhigh2highlow(pair))) == -2.0f);
  check(__hbgt2(pair, __half2half2(__float2half(-3.0f))) && !__hbgt2(pair, __float2half2_rn(0.0f)));
  check(__hgt2_mask(pair, __float2half2_rn(0.0f)) == 0xffffu);
  check(__half22float2(pair + __halves2half2(half(1), half(2))).x == 2.5f);
  check((pair == pair) && !(pair != pair) && pair < __float2half2_rn(2.0f));
  const __nv_bfloat162 other = __floats2bfloat162_rn(0.5f, 3.0f);
  check(__bfloat1622float2(__hadd2(other, __bfloat162bfloat162(nv_bfloat16(1.0f)))).y == 4.0f);
  check(__low2float(__hmax2(other, __lowhigh2highlow(other))) == 3.0f);
  half total = half(0.0f);
  for (int i = 0; i < 4; ++i) atomicAdd(&total, half(0.25f));
  check(total == half(1.0f));
  half2 both = __float2half2_rn(0.0f);
  const half2 before = atomicAdd(&both, pair);
  check(__low2float(before) == 0.0f && __high2float(both) == -2.0f);
  half counter = 3;
  check(float(counter++) == 3.0f && float(--counter) == 3.0f && int(half(-2.75f)) == -2 && bool(half(0.0f)) == false);
  check(__half_as_ushort(__ushort_as_half(0x1234)) == 0x1234 && sizeof(half2) == 4 && alignof(half2) == 4);
  return count;
}
