// Runs one of the engine's cases: NAME ORDER SEED WORKERS [ARGUMENT...], with both libraries in the current folder.

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

using Schedule = void (*)(int order, std::uint64_t seed, int workers, int fill);
using Case = void (*)(char* text, int size, int first, int second, int third);

int main(int argc, char** argv) {
  void* emulator = dlopen("./libemulator.so", RTLD_NOW | RTLD_GLOBAL);
  void* cases = emulator == nullptr ? nullptr : dlopen("./cases.so", RTLD_NOW);
  if (cases == nullptr || argc < 5) {
    std::puts(dlerror());
    return 1;
  }
  const auto schedule = reinterpret_cast<Schedule>(dlsym(emulator, "warpgrade_emu_schedule"));
  const auto run = reinterpret_cast<Case>(dlsym(cases, argv[1]));
  schedule(std::atoi(argv[2]), static_cast<std::uint64_t>(std::atoi(argv[3])), std::atoi(argv[4]), 0);
  int numbers[3] = {0, 0, 0};
  for (int index = 5; index < argc && index < 8; ++index) numbers[index - 5] = std::atoi(argv[index]);
  static char text[2000];
  run(text, sizeof text, numbers[0], numbers[1], numbers[2]);
  std::puts(text);
}
