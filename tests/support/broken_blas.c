/* SPDX-License-Identifier: Apache-2.0
 * A replacement for OpenBLAS whose products crash, or never return if TARTAN_TEST_BLAS is "hang". */
#include <stdlib.h>
#include <string.h>

void cblas_sgemm(void);
void cblas_dgemm(void);
void openblas_set_num_threads(int threads);

void cblas_sgemm(void) {
    const char *how = getenv("TARTAN_TEST_BLAS");
    volatile int forever = how != NULL && strcmp(how, "hang") == 0;
    while (forever) continue;
    abort();
}

void cblas_dgemm(void) {
    cblas_sgemm();
}

void openblas_set_num_threads(int threads) {
    (void)threads;
}
