/* SPDX-License-Identifier: Apache-2.0
 * Preloaded, this imitates HDF5 on a damaged file: it crashes, or never returns if TARTAN_TEST_HDF5 is "hang". */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int64_t H5Fopen(const char *name, unsigned flags, int64_t access);
int64_t H5Fopen(const char *name, unsigned flags, int64_t access) {
    (void)name, (void)flags, (void)access;
    const char *how = getenv("TARTAN_TEST_HDF5");
    volatile int forever = how != NULL && strcmp(how, "hang") == 0;
    while (forever) continue;
    abort();
}
