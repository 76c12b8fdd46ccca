/* SPDX-License-Identifier: Apache-2.0
 * The internals of a layout: all its index sets, built at creation and never changed, so any thread may read them
 * without a lock. Backends add what they derive from them later (plans.h). */
#ifndef TARTAN_LAYOUT_LAYOUT_H
#define TARTAN_LAYOUT_LAYOUT_H

#include "core/context.h"
#include "core/memory.h"
#include "tartan/layout.h"

#include <pthread.h>

enum { TARTAN_I_MAX_BLOCK = 256, TARTAN_I_MAX_HEADS = 1 << 20, TARTAN_I_IDENTITY_CHARS = 32 };

/* What backends derived from an object: a list that only grows, newest first; see plans.h. */
typedef struct tartan_i_plans {
    struct tartan_i_plan_node *first;
    pthread_mutex_t lock; /* held while one is made */
} tartan_i_plans;

struct tartan_layout {
    uint32_t magic;     /* TARTAN_I_LAYOUT */
    int32_t references; /* by the __atomic builtins: C++ tests include this header */
    tartan_shape shape;
    int64_t grid_rows, grid_cols;
    int64_t blocks;
    int64_t *row_pointers; /* [heads * grid_rows + 1]: row lists, block ids ascending */
    int32_t *block_cols;   /* [blocks] */
    int32_t *block_rows;   /* [blocks]: with block_cols, the coordinate list */
    int64_t *col_pointers; /* [heads * grid_cols + 1]: column lists */
    int32_t *col_rows;     /* [blocks]: block rows, ascending within a column */
    int64_t *col_ids;      /* [blocks]: their block ids */
    char identity[TARTAN_I_IDENTITY_CHARS + 1];
    char *recipe; /* JSON or NULL */
    tartan_i_plans plans;
    /* For a dynamic layout (magic TARTAN_I_DYNAMIC): the backend keeps its index sets, made from masks on a device;
     * `blocks` is the capacity, the lists above are NULL, the identity is empty. */
    void *index;
    struct tartan_i_resource *resource; /* owns the index sets (lib/device/resource.h) */
    struct tartan_i_resource *bytes;    /* a mask of windows on the device, once there was one; or NULL */
    void (*release)(void *resource);
    int32_t device_type, device_id;
};

/* Whether it is an open layout of either kind; whether a layout is dynamic. */
static inline bool tartan_i_is_layout(const void *handle) {
    return tartan_i_is(handle, TARTAN_I_LAYOUT) || tartan_i_is(handle, TARTAN_I_DYNAMIC);
}
static inline bool tartan_i_is_dynamic(const tartan_layout *layout) {
    return layout->magic == TARTAN_I_DYNAMIC;
}

/* Checks the frame and computes the grid. Errors name the public function `function`. */
tartan_status tartan_i_shape_check(const char *function, const tartan_shape *shape, int64_t *out_grid_rows,
                                   int64_t *out_grid_cols);

/* tartan_i_layout_begin makes an unfinished layout with room for `blocks` blocks. Fill row_pointers and block_cols
 * (ascending, no repeats); tartan_i_layout_finish then checks them and builds the other index sets and the
 * identity, on the threads of `context` if there is one. Free it with tartan_layout_free at any time. */
tartan_status tartan_i_layout_begin(const tartan_shape *shape, int64_t blocks, tartan_layout **out);
tartan_status tartan_i_layout_finish(tartan_layout *layout);
tartan_status tartan_i_layout_finish_with(const tartan_context *context, tartan_layout *layout);

/* A dynamic layout of a checked shape on a device, for at most `capacity` blocks, not yet with an `index`. */
tartan_status tartan_i_layout_new_dynamic(const char *function, const tartan_shape *shape, int64_t capacity,
                                          int32_t device_type, int32_t device_id, tartan_layout **out);

/* Copies `recipe` into an unshared layout. */
tartan_status tartan_i_layout_set_recipe(tartan_layout *layout, const char *recipe);

/* Id of the block at (head, block row, block column), or -1. The position must be inside the grid. */
int64_t tartan_i_layout_find(const tartan_layout *layout, int64_t head, int64_t block_row, int64_t block_col);

/* Head of a block id, by bisection of row_pointers. */
int64_t tartan_i_layout_head(const tartan_layout *layout, int64_t id);

/* Whether the last block row or column is not full. */
static inline bool tartan_i_is_ragged(const tartan_layout *l) {
    return l->shape.rows % l->shape.block_rows != 0 || l->shape.cols % l->shape.block_cols != 0;
}

/* Rows (columns) of block row i (block column j) that are inside the matrix. */
static inline int64_t tartan_i_rows_of(const tartan_layout *l, int64_t i) {
    int64_t left = l->shape.rows - i * l->shape.block_rows;
    return left < l->shape.block_rows ? left : l->shape.block_rows;
}
static inline int64_t tartan_i_cols_of(const tartan_layout *l, int64_t j) {
    int64_t left = l->shape.cols - j * l->shape.block_cols;
    return left < l->shape.block_cols ? left : l->shape.block_cols;
}

/* The public operations, which also return the old block id of each block of the result in *out_sources (NULL: not
 * wanted; else the caller frees it with tartan_i_free). */
tartan_status tartan_i_layout_transpose(const tartan_layout *layout, int64_t **out_sources,
                                        tartan_layout **out);
tartan_status tartan_i_layout_permute(const tartan_layout *layout, const int64_t *row_order,
                                      int64_t nrow_order, const int64_t *col_order, int64_t ncol_order,
                                      int64_t **out_sources, tartan_layout **out);
tartan_status tartan_i_layout_slice(const tartan_layout *layout, int64_t row_begin, int64_t row_end,
                                    int64_t col_begin, int64_t col_end, int64_t **out_sources,
                                    tartan_layout **out);

#endif
