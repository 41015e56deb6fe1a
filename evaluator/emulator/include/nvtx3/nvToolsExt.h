// Location of the header in newer CUDA versions.
#ifndef WARPGRADE_EMU_NVTX3_NVTOOLSEXT_H
#define WARPGRADE_EMU_NVTX3_NVTOOLSEXT_H

#include <nvToolsExt.h>

#endif  // WARPGRADE_EMU_NVTX3_NVTOOLSEXT_H
