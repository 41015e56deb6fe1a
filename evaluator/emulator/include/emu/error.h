// Errors inside a kernel. They leave the launch as C++ exceptions, which pybind11 turns into RuntimeError.
#ifndef WARPGRADE_EMU_ERROR_H
#define WARPGRADE_EMU_ERROR_H

#include <stdexcept>
#include <string>

// What libwarpgrade_emu.so exports; extensions are built with hidden symbols.
#define EMU_API __attribute__((visibility("default")))

namespace emu {

// What went wrong in a kernel, in one line: "emulator[CODE]: kernel NAME ...".
class EMU_API KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws a KernelError about the current thread of the current kernel: "emulator[CODE]: kernel NAME block
// (..) thread (..): DETAIL (line L)". `pc` is an address in the code to blame, for the line; null: the caller's.
[[noreturn]] EMU_API void fail(const char* code, const std::string& detail, const void* pc = nullptr);

// What `assert` in device code ends in; on the host it aborts as usual.
[[noreturn]] EMU_API void assert_failed(const char* expression, const char* file, unsigned line, const char* function);

}  // namespace emu

#endif  // WARPGRADE_EMU_ERROR_H
