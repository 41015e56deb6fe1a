// CUDA's vector types, with CUDA's sizes and alignments (a kernel may cast a tensor's pointer to float4*).
#ifndef WARPGRADE_EMU_VECTOR_TYPES_H
#define WARPGRADE_EMU_VECTOR_TYPES_H

#define WARPGRADE_EMU_VECTORS(NAME, T, ALIGN2, ALIGN4) \
  struct NAME##1 { T x; };                             \
  struct alignas(ALIGN2) NAME##2 { T x, y; };          \
  struct NAME##3 { T x, y, z; };                       \
  struct alignas(ALIGN4) NAME##4 { T x, y, z, w; };

WARPGRADE_EMU_VECTORS(char, signed char, 2, 4)
WARPGRADE_EMU_VECTORS(uchar, unsigned char, 2, 4)
WARPGRADE_EMU_VECTORS(short, short, 4, 8)
WARPGRADE_EMU_VECTORS(ushort, unsigned short, 4, 8)
WARPGRADE_EMU_VECTORS(int, int, 8, 16)
WARPGRADE_EMU_VECTORS(uint, unsigned int, 8, 16)
WARPGRADE_EMU_VECTORS(long, long int, 16, 16)
WARPGRADE_EMU_VECTORS(ulong, unsigned long int, 16, 16)
WARPGRADE_EMU_VECTORS(longlong, long long int, 16, 16)
WARPGRADE_EMU_VECTORS(ulonglong, unsigned long long int, 16, 16)
WARPGRADE_EMU_VECTORS(float, float, 8, 16)
WARPGRADE_EMU_VECTORS(double, double, 16, 16)

#undef WARPGRADE_EMU_VECTORS

struct dim3 {
  unsigned int x, y, z;

  constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};

#endif  // WARPGRADE_EMU_VECTOR_TYPES_H
