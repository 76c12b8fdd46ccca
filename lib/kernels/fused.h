/* SPDX-License-Identifier: Apache-2.0
 * The functions of fused.def on n contiguous reals, and random numbers for them. An output may be an input. */
#ifndef TARTAN_KERNELS_FUSED_H
#define TARTAN_KERNELS_FUSED_H

#include <stdint.h>

/* Operands of a row, the parts of all of them, and parameters. */
enum {
    TARTAN_I_FUSED_INPUTS = 7,
    TARTAN_I_FUSED_OUTPUTS = 2,
    TARTAN_I_FUSED_IN = 11,
    TARTAN_I_FUSED_OUT = 5,
    TARTAN_I_FUSED_PARAMETERS = 5,
};

typedef enum tartan_i_fused_row {
#define FUSED(name, in, drawn, out, ...) TARTAN_I_FUSED_##name,
#include "kernels/fused.def"
#undef FUSED
    TARTAN_I_FUSED_ROWS
} tartan_i_fused_row;

/* `in` are all parts of the inputs, and the random numbers; `out` all parts of the outputs. None is NULL. */
typedef void (*tartan_i_fused_kernel)(int64_t n, const double *p, const void *const *in, void *const *out);

/* What random numbers are. Number i of a stream is made of the words of Philox4x32-10 (core/random.h) with this seed and stream,
 * counter `place` and index i / 4 or i / 2. */
typedef enum tartan_i_draw {
    TARTAN_I_DRAW_NONE,
    TARTAN_I_DRAW_KEPT, /* 1 if word i % 4 is `threshold` or more, else 0 */
    TARTAN_I_DRAW_UNIFORM, /* words 2 (i % 2), the high one, and the one after it: 53 bits as a fraction, of f32 the first 24 */
    TARTAN_I_DRAW_WORD,  /* word i % 4 as a fraction; of f32 the highest 24 bits */
    TARTAN_I_DRAW_NORMAL /* number i % 2 of tartan_i_normal_pair */
} tartan_i_draw;

typedef struct tartan_i_drawing {
    tartan_i_draw draw;
    uint32_t stream, threshold, place;
    uint64_t seed;
} tartan_i_drawing;

#endif
