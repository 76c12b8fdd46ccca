/* SPDX-License-Identifier: Apache-2.0
 * The operations that a backend runs, one struct each, with all operands checked by lib/ops: a backend need not check
 * shapes again. The structs for lib/ops/schema/by_hand.def and points.def are here, all others in operation_structs.h.
 * Dense operands may have any strides (0 or negative ones for inputs only), batch dimensions before the last two, and
 * no elements. The padding of ragged blocks may hold anything, NaN included. Unused pointers are NULL. */
#ifndef TARTAN_BACKEND_OPERATION_H
#define TARTAN_BACKEND_OPERATION_H

#include "backend/operation_parts.h"
#include "kernels/points.h"

#include <math.h>

/* Every struct begins with the name of the public function, for messages. */

/* Gather (no `targets`): block i of `to` becomes block sources[i] of `from` (NULL: block i; -1: zeros), transposed if `transpose`.
 * Scatter (`targets`): block i of `from` is written to block targets[i] of `to` (-1: skipped; no block twice), and other blocks
 * keep their values. Elements are converted with one rounding. The padding of `from` is not read, and the padding of written blocks
 * becomes zero. The lists are in device memory. */
typedef struct tartan_op_block_copy {
    const char *function;
    const tartan_matrix *from;
    tartan_matrix *to;
    const int64_t *sources; /* [blocks of to] or NULL */
    const int64_t *targets; /* [blocks of from] or NULL */
    bool transpose;
} tartan_op_block_copy;

/* The tartan_norm of every block, in f64; NaN if the block holds one */
typedef struct tartan_op_block_norms {
    const char *function;
    const tartan_matrix *matrix;
    int32_t norm;
    const tartan_array *norms; /* [blocks] of f64, dense */
} tartan_op_block_norms;

/* Block i of `to` is computed from block a_sources[i] of a and block b_sources[i] of b (NULL: block i; -1: not stored). A block
 * that an operand does not store counts as 0. Elements are computed in f64: each product and sum is rounded separately, and the
 * result once to the dtype of `to`. With factors, an element is multiplied by the factor of its row, then by the factor of its
 * column, and the step is `scale` by 1. Without factors, `scale`, and `sum` of a block that only one operand stores, is a product
 * with a number; if that is 1, the block keeps its bits. `to` may be a or b, or share its values, if it has the same layout, dtype
 * and block order. The padding of `to` becomes zero. */
typedef struct tartan_op_elementwise {
    const char *function;
    tartan_i_step step; /* of elements x of a and y of b */
    double p, q;
    const tartan_matrix *a, *b;           /* b: NULL if there is one operand */
    const int64_t *a_sources, *b_sources; /* [blocks of to] in device memory, or NULL */
    const uint8_t *
        origins; /* of a union on the CPU, in place of both: [blocks of to], 1 if a has it, 2 if b has, 3 if both have */
    const tartan_array *row_factors; /* [heads, rows] of f32 or f64, or NULL; */
    const tartan_array *col_factors; /* [heads, cols]. A stride may be 0 */
    tartan_matrix *to;
} tartan_op_elementwise;

/* Single elements, by their positions among the values. Reading (no `to`): numbers[i] becomes element sources[i] of `from`, or 0 if
 * sources[i] is -1. Writing: element targets[i] of `to` (-1: none; no element twice) becomes numbers[i] or, if sources[i] is given
 * and not -1, alpha times element sources[i] plus numbers[i], in f64. */
typedef struct tartan_op_elements {
    const char *function;
    int64_t count;
    double alpha;
    const tartan_matrix *from;        /* NULL if there are no sources */
    const int64_t *sources, *targets; /* [count] in device memory, or NULL */
    const tartan_array *numbers;      /* [count] of f64, dense */
    tartan_matrix *to;
} tartan_op_elements;

/* A number for each row, column or block, over the stored elements only: a chain of f64 numbers that starts as its row of
 * kernels/steps.def says. The order of a sum depends only on the layout and the block order. NaN in an element makes the number
 * NaN. */
typedef struct tartan_op_reduce {
    const char *function;
    tartan_i_chain chain;
    int32_t each; /* a tartan_each, not HEAD */
    const tartan_matrix *matrix;
    const tartan_array *units;   /* of scaled squares: the chains' units. Like results */
    const tartan_array *results; /* [numbers] of f64, dense */
} tartan_op_reduce;

/* *count is the number of elements that differ (tartan_matrix_count_different) between blocks a_ids[i] of a and b_ids[i] of b at
 * the same position (-1: not stored, zeros; not both). */
typedef struct tartan_op_compare {
    const char *function;
    const tartan_matrix *a, *b;
    int64_t pairs;
    const int64_t *a_ids, *b_ids; /* [pairs] in device memory; both NULL: block i and block i */
    double relative, absolute;
    bool equal_nan;
    const tartan_array *count; /* [1] of f64 */
} tartan_op_compare;

/* active = 1 for windows whose largest element, or average, is NaN or exceeds the tolerance; else 0. Positions outside the image
 * count as 0 in the average and are ignored in the maximum. */
typedef struct tartan_op_window_pool {
    const char *function;
    const tartan_array *mask;        /* [n, spatial...], also of u8 */
    const tartan_i_windows *windows; /* with their count */
    bool average;
    double tolerance;           /* a number of the mask's dtype, if that is not u8 */
    const tartan_array *active; /* u8, contiguous: [n, the grid of the windows] */
} tartan_op_window_pool;

/* Convolution in one of two directions, with the geometry of the cross-correlation out = filter * in:
 * from `in` positions to `out` positions, from the channels of the filter's columns to the channels of its rows; or
 * with `adjoint` the other way round, where to[q] has the sum over taps and p with p * stride + t * dilation - before = q. Then,
 * for each channel of `to` and with e the edge class of the position: to = gain[e] to + bias[e], or with bias_first gain[e] (to +
 * bias[e]), max(to, 0) with relu, plus the old value with add. relu and add also apply without gain and bias. */
typedef struct tartan_op_conv {
    const char *function;
    const tartan_conv *conv;
    tartan_i_geometry geometry;
    bool adjoint;
    const tartan_matrix *filter;     /* on conv->layout */
    const tartan_array *from, *to;   /* [n, channels, spatial...] */
    const char *from_name, *to_name; /* of the arguments */
    const tartan_array *gain, *bias; /* [channels] or [classes, channels], or NULL */
    const tartan_i_edges *edges;     /* classes of positions of `to`, if one of them has these, */
    tartan_i_edges own_edges;        /* which the call makes and ends */
    bool relu, bias_first, add;
    const tartan_layout *active; /* or NULL: layout of windows, which do not overlap */
    tartan_i_windows windows;    /* of `to`: the rest of it keeps its values; with active_from of `from`, */
    bool active_from;            /* whose other positions count as 0 */
} tartan_op_conv;

/* One step of an optimiser over all its parameters: a rule of kernels/updates.def computes the new p, m and v of each element.
 * Gradients pass the filter and are then multiplied by `factor` and by the scale. If the scale is 0 or not finite, nothing changes.
 * The dtype of an array of p decides the type in which its elements are computed. */
typedef struct tartan_op_update {
    const char *function;
    const char *p_name, *g_name, *m_name, *m_scales_name; /* of the arguments */
    tartan_i_update_row row;
    int64_t count;
    const tartan_array *p, *g, *m,
        *v; /* [count] arrays of any strides, place by place of one shape; m and v: NULL */
    const tartan_array *gates, *rates; /* [count] of [slices] along the first axis, or of [0]; or NULL */
    const tartan_array *m_scales, *v_scales; /* likewise, for moments of 8 bits */
    const tartan_array *scale;               /* [1], or NULL */
    tartan_i_gradient_filter filter;
    double factor, rate;
    double numbers[TARTAN_I_UPDATE_NUMBERS];
    bool
        lazy; /* slices along the first axis whose gradients are all 0, before the filter, stay as with a gate of 0 */

    /* Rounds 16-bit parameters at random: element i in row-major order takes number i of the drawing at the parameter's place.
     * 8-bit moments are always rounded at random, with streams of their own. */
    bool stochastic;
    tartan_i_drawing drawing;
} tartan_op_update;

/* x_grad[..., i] = sum of values[..., j] over all j with indices[..., j] = i, in their order, in the type of sums. If `distinct`,
 * the indices of a line differ. Indices and values may lack the last axis; a line then has one of each. */
typedef struct tartan_op_put_along {
    const char *function, *values_name;
    const tartan_array *indices, *values; /* [lines..., k] or [lines...] */
    const tartan_array *x_grad;           /* [lines..., n] */
    int64_t base;
    bool distinct;
} tartan_op_put_along;

/* to = from, in another dtype; of one shape and any strides. `to` may be `from`. */
typedef struct tartan_op_cast {
    const char *function, *from_name, *to_name;
    const tartan_array *from, *to;
} tartan_op_cast;

/* The parameters of the row of kernels/fused.def that rounds to a dtype of 16 bits, or F8E4M3, at random. */
static inline void tartan_i_rounding_of(int32_t dtype, double p[TARTAN_I_FUSED_PARAMETERS]) {
    const bool wide = dtype == TARTAN_BF16, small = dtype == TARTAN_F8E4M3;
    p[0] = wide ? 0x1p-7 : small ? 0x1p-3 : 0x1p-10;
    p[1] = wide ? 0x1p-126 : small ? 0x1p-6 : 0x1p-14;
    p[2] = wide ? 0x1p128 : small ? 480 : 0x1p16;
    p[3] = small ? NAN : HUGE_VAL;
    p[4] = 0;
}

/* Moments of 8 bits: the largest and the smallest number of F8E4M3, and the least scale. */
#define TARTAN_I_MOMENT_LARGEST 448.0
#define TARTAN_I_MOMENT_LEAST   0x1p-9
#define TARTAN_I_MOMENT_SCALE   0x1p-126

/* Whether a parameter has moments of 8 bits. */
static inline bool tartan_i_has_small_moments(const tartan_op_update *op, int64_t place) {
    return (op->m != NULL && op->m[place].dtype == TARTAN_F8E4M3) ||
           (op->v != NULL && op->v[place].dtype == TARTAN_F8E4M3);
}

/* ---- Element-wise functions of dense arrays of any strides (kernels/points.def). `row` is the function's position in its table,
 * and p holds its parameters. Elements are computed in f64 if an operand is f64, else in f32, and rounded once. ---- */

/* A row of kernels/fused.def: outputs of the shape `shape`, to which inputs are broadcast. An operand of several parts is
 * [..., parts, n]. */
typedef struct tartan_i_fused_operand {
    const char *name;
    const tartan_array *array; /* NULL: not given */
    int32_t parts;
} tartan_i_fused_operand;

typedef struct tartan_op_fused {
    const char *function;
    int32_t row; /* a tartan_i_fused_row */
    double p[TARTAN_I_FUSED_PARAMETERS], flops;
    tartan_i_fused_operand in[TARTAN_I_FUSED_INPUTS], out[TARTAN_I_FUSED_OUTPUTS];
    tartan_array shape;   /* without data */
    tartan_array view[4]; /* operands that are no arguments of the call may be here */

    /* Element i of `numbers` takes random number offset + i. `numbers` is an array without data, broadcast to `shape`, whose
     * strides give i. */
    tartan_i_drawing drawing;
    int64_t offset;
    tartan_array numbers;
} tartan_op_fused;

/* The first part of an array, and the way to the next in elements. */
static inline tartan_array tartan_i_fused_part(const tartan_array *array) {
    tartan_array part = *array;
    const int32_t last = --part.ndim;
    part.shape[last - 1] = array->shape[last];
    part.strides[last - 1] = array->strides[last];
    return part;
}
static inline int64_t tartan_i_fused_step(const tartan_array *array) {
    return array->strides[array->ndim - 2];
}

/* y = f(x) */
typedef struct tartan_op_point1 {
    const char *function;
    int32_t row;
    double p[TARTAN_I_POINT_PARAMETERS];
    const tartan_array *x, *y; /* of one shape; y may be x */
} tartan_op_point1;

/* x_grad = f'(x) y_grad. Operands that the expression does not mention are NULL. */
typedef struct tartan_op_point1_gradient {
    const char *function;
    int32_t row;
    double p[TARTAN_I_POINT_PARAMETERS];
    const tartan_array *x, *y, *y_grad, *x_grad; /* of one shape; x_grad may be any of the others */
} tartan_op_point1_gradient;

/* y = f(a, b), where a and b are repeated along dimensions of length 1, and along those that they lack on the left. */
typedef struct tartan_op_point2 {
    const char *function;
    int32_t row;
    const tartan_array *a, *b, *y; /* y may be an operand of the same shape */
} tartan_op_point2;

/* The gradients, each summed in f64 over the dimensions along which its operand is repeated; CUDA first adds groups of up to 8 terms. */
typedef struct tartan_op_point2_gradient {
    const char *function;
    int32_t row;
    const tartan_array *a, *b, *y, *y_grad; /* y: NULL where no expression mentions it */
    const tartan_array *a_grad, *b_grad;    /* each may be NULL */
} tartan_op_point2_gradient;

/* The structs of the operations that the schema describes completely, and TARTAN_I_OPERATIONS(X), one row for each struct: its
 * enumerator, and the name of its struct and union member. Written by lib/ops/schema/generate_c.py. */
#include "backend/operation_structs.h"

typedef enum tartan_op_kind {
#define TARTAN_I_KIND(NAME, name) TARTAN_OP_##NAME,
    TARTAN_I_OPERATIONS(TARTAN_I_KIND)
#undef TARTAN_I_KIND
        TARTAN_OP_COUNT
} tartan_op_kind;

/* The same by the names of the structs, for tables made of rows of .def files. */
enum {
#define TARTAN_I_KIND(NAME, name) TARTAN_I_OP_##name = TARTAN_OP_##NAME,
    TARTAN_I_OPERATIONS(TARTAN_I_KIND)
#undef TARTAN_I_KIND
};

/* One operand: a matrix, an array, a layout or a list of block ids; the others are NULL. */
typedef struct tartan_i_operand {
    const char *name; /* of the argument */
    const tartan_matrix *matrix;
    const tartan_array *array;
    const tartan_layout *layout;
    const int64_t *list;
    int64_t length; /* of the list */
    int64_t arrays; /* from `array` on */
    bool written;
} tartan_i_operand;

typedef struct tartan_i_schema tartan_i_schema;

/* Any one of them. */
struct tartan_op {
    tartan_op_kind kind;
    const tartan_i_schema *schema;    /* of the operation; NULL where checks are written by hand */
    const tartan_i_operand *operands; /* [noperands], or NULL: not listed yet */
    int32_t noperands;
    union {
        const char *function; /* the first member of each */
#define TARTAN_I_MEMBER(NAME, name) tartan_op_##name name;
        TARTAN_I_OPERATIONS(TARTAN_I_MEMBER)
#undef TARTAN_I_MEMBER
#define TARTAN_I_CALL(name) tartan_op_##name name;
        TARTAN_I_CALLS(TARTAN_I_CALL)
#undef TARTAN_I_CALL
    };
};

/* "spmm", "sddmm", ... */
const char *tartan_i_op_name(const tartan_op *op);

/* Writes the operands of an operation to `out` and returns their number. */
enum { TARTAN_I_MAX_OPERANDS = 2 * TARTAN_I_MAX_PAIRS + 4 };
int32_t tartan_i_op_operands(const tartan_op *op, tartan_i_operand out[TARTAN_I_MAX_OPERANDS]);

/* Lists the operands in `room`. */
static inline void tartan_i_op_list(tartan_op *op, tartan_i_operand room[TARTAN_I_MAX_OPERANDS]) {
    op->noperands = tartan_i_op_operands(op, room);
    op->operands = room;
}

/* Elements of the stored blocks without padding; for a dynamic layout, of all blocks of its capacity; 0 for NULL. */
double tartan_i_stored_elements(const tartan_matrix *matrix);

/* Useful operations that need more than an expression: of a product; the length of the sums over k and the batch, without the head
 * dimension; of growth scores; and of a convolution, where each weight meets each position of `out` once, or only those in windows
 * of `windowed` if `active` is not NULL. */
double tartan_i_spmm_flops(const tartan_op_spmm *op);
double tartan_i_terms(const tartan_array *x, int64_t pairs, int64_t heads);
enum { TARTAN_I_NORM_OF_GRADIENT = 0 }; /* of a growth score, beside tartan_norm */
double tartan_i_growth_score_flops(const tartan_op_growth_score *op);
double tartan_i_conv_flops(const tartan_layout *layout, const tartan_array *out, const tartan_array *windowed,
                           const tartan_layout *active, const tartan_i_windows *windows);

double tartan_i_muon_flops(const tartan_op_muon *op);

/* The number of useful floating-point operations, on stored elements only. */
double tartan_i_op_flops(const tartan_op *op);

#endif
