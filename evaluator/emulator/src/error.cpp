#include "emu/error.h"

#include <assert.h>

#include "worker.h"

namespace emu {
namespace {

std::string text(const uint3& index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

std::string launched_in(const Kernel& kernel) {
  return kernel.line > 0 ? " (launched in line " + std::to_string(kernel.line) + ")" : std::string();
}

[[noreturn]] void throw_error(const char* code, const std::string& who, const std::string& detail, const void* pc) {
  std::string message = std::string("emulator[") + code + "]: ";
  if (worker == nullptr) throw KernelError(message + detail);
  message += std::string("kernel ") + worker->kernel->name + " block " + text(blockIdx) + who + ": " + detail;
  // Without line tables, report the line of the launch.
  const std::string line = worker->lines.describe(pc);
  throw KernelError(message + (line.empty() ? launched_in(*worker->kernel) : line));
}

}  // namespace

void fail(const char* code, const std::string& detail, const void* pc) {
  throw_error(code, " thread " + text(threadIdx), detail,
              pc != nullptr ? pc : static_cast<const char*>(__builtin_return_address(0)) - 1);
}

void fail_in_block(const char* code, const std::string& detail) { throw_error(code, "", detail, nullptr); }

void fail_after(const Kernel& kernel, const char* code, const std::string& detail) {
  throw KernelError(std::string("emulator[") + code + "]: kernel " + kernel.name + ": " + detail + launched_in(kernel));
}

void assert_failed(const char* expression, const char* file, unsigned line, const char* function) {
  if (worker == nullptr) __assert_fail(expression, file, line, function);
  fail("assert", std::string("assertion `") + expression + "` failed",
       static_cast<const char*>(__builtin_return_address(0)) - 1);
}

}  // namespace emu
