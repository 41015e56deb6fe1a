"""CUDA C++ rewritten to C++: launches, shared memory, launch bounds, unsupported features."""
