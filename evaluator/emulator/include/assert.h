// The system's assert. In a kernel, a failed assertion ends the launch with an error instead of ending the process. No
// include guard: assert.h may be included repeatedly to follow changes of NDEBUG.
#include_next <assert.h>

#if defined(__cplusplus) && !defined(NDEBUG)
#include "emu/error.h"
#undef assert
#define assert(...)                         \
  (static_cast<bool>(__VA_ARGS__) ? void(0) \
                                  : ::emu::assert_failed(#__VA_ARGS__, __FILE__, __LINE__, __PRETTY_FUNCTION__))
#endif
