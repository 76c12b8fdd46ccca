/* SPDX-License-Identifier: Apache-2.0
 * Numbers of f32 as sums of bf16. A part is what is left of the number, rounded to the 8 significant bits of bf16, to nearest
 * (halves away from zero); what is left after it is exact. So x = h + l + e with |l| <= 2^-8 |x| and |e| <= 2^-17 |x|, or
 * x = h + m + l. Products of parts that are smaller than the error of the others are left out:
 *   bf16x3   h h, h l, l h             what is left out is at most 2^-15 |x y|
 *   bf16x6   h h, h m, m h, m m, h l, l h                       2^-24 (1 + 2^-9) |x y|
 * docs/numerics.md derives the bounds. Infinity, and numbers that round to it, have an infinite first part and any others. */
#ifndef TARTAN_KERNELS_PARTS_H
#define TARTAN_KERNELS_PARTS_H

#include <stdint.h>

enum { PARTS_MOST = 3, PRODUCTS_MOST = 6, PARTS_NAN = 0x7fc00000, PARTS_HALF = 0x8000 };
#define PARTS_HEAD 0xffff0000u /* the bits of an f32 that are a bf16 */

/* Products in the order in which they are added up: from one to the next only one factor changes, so that tiles stay loaded. All
 * are added to the same sums, whose rounding outweighs the small products'; so these need not come first. */
typedef struct parts_product {
    int a, b;
} parts_product;
static const parts_product parts_products[PARTS_MOST + 1][PRODUCTS_MOST] = {
    [2] = {{1, 0}, {0, 0}, {0, 1}},
    [3] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 0}, {0, 2}},
};

/* How many of them there are. */
static inline int parts_count(int parts) {
    return parts * (parts + 1) / 2;
}

#endif
