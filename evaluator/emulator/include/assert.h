// The system's assert, which in a kernel ends the launch with an error instead of the process.
// No include guard: assert.h may be included again, to follow a change of NDEBUG.
#include_next <assert.h>

#if defined(__cplusplus) && !defined(NDEBUG)
#include "emu/error.h"
#undef assert
#define assert(...)                         \
  (static_cast<bool>(__VA_ARGS__) ? void(0) \
                                  : ::emu::assert_failed(#__VA_ARGS__, __FILE__, __LINE__, __PRETTY_FUNCTION__))
#endif
