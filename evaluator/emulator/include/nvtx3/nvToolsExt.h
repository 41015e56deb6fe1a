// Where newer versions of CUDA have it.
#ifndef WARPGRADE_EMU_NVTX3_NVTOOLSEXT_H
#define WARPGRADE_EMU_NVTX3_NVTOOLSEXT_H

#include <nvToolsExt.h>

#endif  // WARPGRADE_EMU_NVTX3_NVTOOLSEXT_H
