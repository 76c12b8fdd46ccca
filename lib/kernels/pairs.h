/* SPDX-License-Identifier: Apache-2.0
 * What product kernels on pairs of 16-bit numbers share, after a vocabulary that has pairs_zip. */
#ifndef TARTAN_KERNELS_PAIRS_H
#define TARTAN_KERNELS_PAIRS_H

#include <stdint.h>

static void pair_lines(int64_t n, const void *even, const void *odd, void *out) {
    for (int64_t i = 0; i < n; i += PAIR_LINE)
        pairs_zip(n - i < PAIR_LINE ? n - i : PAIR_LINE, (const uint16_t *)even + i,
                  (const uint16_t *)odd + i, (uint32_t *)out + i);
}

#endif
