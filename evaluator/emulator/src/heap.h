// Global memory of the emulator. Each allocation lies between two guard pages and ends at the upper guard page. Tensors
// and cudaMalloc share the heap.
#ifndef WARPGRADE_EMU_HEAP_H
#define WARPGRADE_EMU_HEAP_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace emu {

// Allocates fresh memory (see fresh.h); returns null if memory is exhausted. `kind` ("tensor") appears in messages and
// must have static lifetime.
void* heap_allocate(std::size_t bytes, const char* kind);

// Frees memory; accesses to the addresses fault for some time. Returns false for foreign memory.
bool heap_free(void* data);

// Returns the number of bytes from `data`, possibly an interior pointer, to the end of the allocation; 0 for foreign
// memory.
std::size_t heap_bytes_from(const void* data);

// Describes an address relative to an allocation: "12 bytes past the end of a tensor of 400 bytes".
std::string heap_describe(std::uintptr_t address);

// Counts allocations, live or freed since the last call, with damaged bytes just before the start or behind the end.
// Describes the first one.
std::size_t heap_damage(std::string* first);

// Makes PyTorch allocate all CPU tensors in this heap.
void install_torch_allocator();

}  // namespace emu

#endif  // WARPGRADE_EMU_HEAP_H
