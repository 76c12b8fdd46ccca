// SPDX-License-Identifier: Apache-2.0
#include "launches.h"

extern "C" {
#include "kernels.h"
}

static const char *last = "";

std::string tartan_test::last_launch() {
    return last;
}

#define LAUNCH(name)                                                                                         \
    tartan_status tartan_cuda_##name(const char *, tartan_cuda_queue *, const void *) {                      \
        last = #name;                                                                                        \
        return TARTAN_OK;                                                                                    \
    }
#define KERNEL(name, ...) LAUNCH(name)
#define MANY(op, ...)     __VA_ARGS__
#define MADE(op)          LAUNCH(op##_plain)
#define PLAIN(op)         LAUNCH(op##_plain)
#include "kernels.def"
