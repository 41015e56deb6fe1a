// threadIdx and its sisters, for those who include nothing else.
#ifndef WARPGRADE_EMU_DEVICE_LAUNCH_PARAMETERS_H
#define WARPGRADE_EMU_DEVICE_LAUNCH_PARAMETERS_H

#include "emu/context.h"

#endif  // WARPGRADE_EMU_DEVICE_LAUNCH_PARAMETERS_H
