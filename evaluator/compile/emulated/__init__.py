"""Builds of inline CUDA for the emulator, by g++."""
