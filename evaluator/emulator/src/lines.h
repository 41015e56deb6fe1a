// Mapping from code addresses to source lines of the submission.
#ifndef WARPGRADE_EMU_LINES_H
#define WARPGRADE_EMU_LINES_H

#include <map>
#include <string>

namespace emu {

// Reads the line tables of loaded libraries (compiled with -g1) on first use. Without libbacktrace no lines are known.
class Lines {
 public:
  // Source position in the submission. `file` is the path as the compiler saw it. Line 0: unknown.
  struct Place {
    std::string file;
    int line = 0;

    bool operator==(const Place&) const = default;
  };

  // Returns the submission's source position for the call that returns to `pc`, skipping inlined calls from emulator
  // and system headers.
  const Place& at(const void* pc);

  // Returns " (/build/csrc/tile.cuh:12)", or an empty string. The judge shortens the path.
  std::string describe(const void* pc);

  // Called on a thread after a fault. If the fault left a look-up by a jump, later errors have no line.
  static void left_by_jump();

  // Returns whether two addresses are known to be in different lines.
  bool differ(const void* a, const void* b);

 private:
  std::map<const void*, Place> known_;
};

}  // namespace emu

#endif  // WARPGRADE_EMU_LINES_H
