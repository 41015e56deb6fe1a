// Global memory: each allocation lies between two guard pages and ends at one. Tensors and cudaMalloc share it.
#ifndef WARPGRADE_EMU_HEAP_H
#define WARPGRADE_EMU_HEAP_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace emu {

// Gives fresh memory (see fresh.h); null when there is none. `kind` ("tensor") names it in messages and must
// live for ever.
void* heap_allocate(std::size_t bytes, const char* kind);

// Takes memory back; its addresses fault from now on, for a while. Gives false for what is not from here.
bool heap_free(void* data);

// How many bytes there are from `data`, which may point into an allocation, to its end; 0 for what is not from here.
std::size_t heap_bytes_from(const void* data);

// Says where an address lies: "12 bytes past the end of a tensor of 400 bytes".
std::string heap_describe(std::uintptr_t address);

// How many allocations, of those alive and those freed since the last call, had bytes written just before their start
// or after their end. Describes the first one.
std::size_t heap_damage(std::string* first);

// Makes PyTorch allocate all CPU tensors here.
void install_torch_allocator();

}  // namespace emu

#endif  // WARPGRADE_EMU_HEAP_H
