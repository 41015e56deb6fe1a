// Errors inside a kernel, thrown as C++ exceptions out of the launch. pybind11 converts them to RuntimeError.
#ifndef WARPGRADE_EMU_ERROR_H
#define WARPGRADE_EMU_ERROR_H

#include <stdexcept>
#include <string>

// Exports of libwarpgrade_emu.so; extensions are built with hidden symbols.
#define EMU_API __attribute__((visibility("default")))

namespace emu {

// Kernel error, described on one line: "emulator[CODE]: kernel NAME ...".
class EMU_API KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws a KernelError about the current thread of the current kernel: "emulator[CODE]: kernel NAME block (..) thread
// (..): DETAIL (line L)". `pc` is a code address for the line number; null selects the caller's address.
[[noreturn]] EMU_API void fail(const char* code, const std::string& detail, const void* pc = nullptr);

// Target of `assert` in device code; aborts as usual in host code.
[[noreturn]] EMU_API void assert_failed(const char* expression, const char* file, unsigned line, const char* function);

}  // namespace emu

#endif  // WARPGRADE_EMU_ERROR_H
