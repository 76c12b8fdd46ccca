/* SPDX-License-Identifier: Apache-2.0
 * Parts of the structs of operations (operation.h) that kernels also use. They are in a file of their own so that adding or changing an operation recompiles no CUDA kernels but its own. */
#ifndef TARTAN_BACKEND_OPERATION_PARTS_H
#define TARTAN_BACKEND_OPERATION_PARTS_H

#include "conv/conv.h"
#include "conv/windows.h"
#include "kernels/fused.h"
#include "kernels/steps.h"
#include "kernels/updates.h"
#include "layout/block_mask.h"
#include "matrix/matrix.h"
#include "tartan/arithmetic.h"

/* Parameters of an element-wise function (kernels/points.def). */
enum { TARTAN_I_POINT_PARAMETERS = 4 };

/* Arrays of a list, and pairs of factors of a product. */
enum { TARTAN_I_MAX_PAIRS = 8 };

/* The form of attention's bias array. */
typedef enum tartan_i_bias {
    TARTAN_I_BIAS_NONE,
    TARTAN_I_BIAS_SLOPES,   /* [heads], times j - i - query_offset */
    TARTAN_I_BIAS_DISTANCE, /* [heads or 1, 2r + 1], by j - i - query_offset */
    TARTAN_I_BIAS_BLOCK,    /* [heads or 1, blocks] */
    TARTAN_I_BIAS_DENSE,    /* [batch or 1, heads or 1, tq, tk] */
} tartan_i_bias;

/* The inputs and options that all operations of attention share. */
typedef struct tartan_i_attention {
    const tartan_layout *layout;
    const tartan_array *q, *k, *v;       /* [batch, heads or kv_heads, tq or tk, d], v may have another d */
    const tartan_block_mask *block_mask; /* or NULL */
    const tartan_array *bias;            /* or NULL */
    tartan_i_bias bias_kind;
    double scale, softcap; /* softcap: 0 if there is none */
    bool by_batch;         /* the heads of the layout belong to batch entries */
    bool causal;
    int64_t query_offset, causal_from;
    double dropout; /* 0 <= dropout < 1 */
    int64_t seed;
    bool any_order; /* of sums: results may depend on the run */
} tartan_i_attention;

/* A list of whole numbers, such as the lengths of an image. */
typedef struct tartan_i_sizes {
    const int64_t *data; /* NULL: not given */
    int64_t count;
} tartan_i_sizes;

typedef struct tartan_op tartan_op; /* operation.h */

#endif
