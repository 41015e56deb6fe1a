// threadIdx and the other built-in variables, for sources that include no other CUDA header.
#ifndef WARPGRADE_EMU_DEVICE_LAUNCH_PARAMETERS_H
#define WARPGRADE_EMU_DEVICE_LAUNCH_PARAMETERS_H

#include "emu/context.h"

#endif  // WARPGRADE_EMU_DEVICE_LAUNCH_PARAMETERS_H
