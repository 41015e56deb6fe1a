// The judge's own kernels, as one cubin.

#include "compare.cu"
#include "gather.cu"
#include "read.cu"
#include "spot.cu"
