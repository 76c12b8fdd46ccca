// SPDX-License-Identifier: Apache-2.0
// A backend that poses as a CUDA device, with memory that is the host's and plain loops in f64 as kernels. It shows
// that operations reach a backend through the table alone, and what a backend that cannot do a case does.
#ifndef TARTAN_TESTS_DUMMY_BACKEND_H
#define TARTAN_TESTS_DUMMY_BACKEND_H

extern "C" {
#include "backend/backend.h"
}

namespace tartan_test {

enum { kDummyDevices = 2 };

// It refuses gates of bf16 matrices in spmm, and has no growth score at all.
extern const tartan_backend dummy_backend;
extern const char *const kDummyRefusal;

// How often devices were opened, closed and waited for.
struct DummyCounts {
    int opened, closed, synced;
};
DummyCounts dummy_counts();

// Lets the next open or sync fail with DEVICE.
void dummy_fail_next();

// Serves TARTAN_CUDA by the dummy while it lives.
struct DummyInstalled {
    DummyInstalled() { tartan_i_backend_install(TARTAN_CUDA, &dummy_backend); }
    ~DummyInstalled() { tartan_i_backend_install(TARTAN_CUDA, nullptr); }
};

} // namespace tartan_test

#endif
