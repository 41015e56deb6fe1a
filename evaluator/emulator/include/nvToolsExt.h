// Profiler annotations without effect: no profiler exists.
#ifndef WARPGRADE_EMU_NVTOOLSEXT_H
#define WARPGRADE_EMU_NVTOOLSEXT_H

#include <cstdint>

typedef std::uint64_t nvtxRangeId_t;

inline void nvtxMarkA(const char*) {}
inline int nvtxRangePushA(const char*) { return 0; }
inline int nvtxRangePop() { return 0; }
inline nvtxRangeId_t nvtxRangeStartA(const char*) { return 0; }
inline void nvtxRangeEnd(nvtxRangeId_t) {}

#define nvtxMark nvtxMarkA
#define nvtxRangePush nvtxRangePushA
#define nvtxRangeStart nvtxRangeStartA

#endif  // WARPGRADE_EMU_NVTOOLSEXT_H
