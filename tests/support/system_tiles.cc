// SPDX-License-Identifier: Apache-2.0
#include "system_tiles.h"

#include <cerrno>
#include <cstdarg>
#include <cstdint>

#include <sys/syscall.h>

namespace tartan_test {
Tiles system_tiles = Tiles::kAsItIs;
int tiles_asked_for;
} // namespace tartan_test

extern "C" {
long __real_syscall(long number, ...);

// Replaces syscall in the library, which calls it only for tiles, with two arguments.
long __wrap_syscall(long number, ...) {
    using namespace tartan_test;
    va_list list;
    va_start(list, number);
    const long code = va_arg(list, long), argument = va_arg(list, long);
    va_end(list);
#if defined(SYS_arch_prctl)
    enum { kGetSupported = 0x1021, kAskPermission = 0x1023, kTileData = 18 };
    const bool ask = number == SYS_arch_prctl && code == kAskPermission;
    tiles_asked_for += ask;
    if (system_tiles != Tiles::kAsItIs && number == SYS_arch_prctl) {
        if (ask || system_tiles == Tiles::kUnknown) {
            errno = system_tiles == Tiles::kRefused ? EPERM : EINVAL;
            return -1;
        }
        if (code == kGetSupported) {
            *(uint64_t *)argument = 7 | (uint64_t)(system_tiles == Tiles::kRefused) << kTileData;
            return 0;
        }
    }
#endif
    return __real_syscall(number, code, argument);
}
}
