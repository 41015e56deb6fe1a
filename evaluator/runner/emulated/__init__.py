"""Device `emulated` inside a runner: the emulator's runtime, a fake CUDA, Triton's interpreter."""
