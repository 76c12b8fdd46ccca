/* SPDX-License-Identifier: Apache-2.0
 * The internals of a layout: its index sets. Row lists and coordinates are built at creation and never changed, so any thread may
 * read them without a lock; column lists and the identity are made when they are first asked for. Backends add what they derive
 * from them later (plans.h). */
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

/* The column lists of a layout. */
typedef struct tartan_i_columns {
    int64_t *pointers; /* [heads * grid_cols + 1] */
    int32_t *rows;     /* [blocks]: block rows, ascending within a column */
    int64_t *ids;      /* [blocks]: their block ids */
} tartan_i_columns;

struct tartan_layout {
    uint32_t magic;     /* TARTAN_I_LAYOUT, TARTAN_I_VARIABLE or TARTAN_I_DYNAMIC */
    int32_t references; /* by the __atomic builtins: C++ tests include this header */
    tartan_shape shape;
    int64_t grid_rows, grid_cols;
    int64_t blocks;
    int64_t *row_pointers;    /* [heads * grid_rows + 1]: row lists, block ids ascending */
    int32_t *block_cols;      /* [blocks] */
    int32_t *block_rows;      /* [blocks]: with block_cols, the coordinate list */
    tartan_i_columns columns; /* read them by tartan_i_layout_columns, or tartan_i_columns_of */
    /* Of a variable layout, whose blocks differ in size (shape has the largest): where block rows and columns begin,
     * [grid_rows + 1] and [grid_cols + 1]. NULL in others. */
    int64_t *row_bounds, *col_bounds;
    char identity[TARTAN_I_IDENTITY_CHARS + 1]; /* read it by tartan_i_layout_identity */
    int32_t identity_made;                      /* 0: not yet; 1: a thread writes it; 2: it is there */
    char *recipe;                               /* JSON or NULL */
    tartan_i_plans plans;
    /* For a dynamic layout (magic TARTAN_I_DYNAMIC): the backend keeps its index sets, made from masks on a device;
     * `blocks` is the capacity, the lists above are NULL, the identity is empty. */
    void *index;
    struct tartan_i_resource *resource; /* owns the index sets (lib/device/resource.h) */
    struct tartan_i_resource *bytes;    /* a mask of windows on the device, once there was one; or NULL */
    void (*release)(void *resource);
    int32_t device_type, device_id;
    int32_t columns_made; /* as identity_made */
};

/* Whether it is an open layout whose blocks the host knows, or one of any kind; whether a layout is dynamic, or variable. */
static inline bool tartan_i_is_host_layout(const void *handle) {
    return tartan_i_is(handle, TARTAN_I_LAYOUT) || tartan_i_is(handle, TARTAN_I_VARIABLE);
}
static inline bool tartan_i_is_layout(const void *handle) {
    return tartan_i_is_host_layout(handle) || tartan_i_is(handle, TARTAN_I_DYNAMIC);
}
static inline bool tartan_i_is_dynamic(const tartan_layout *layout) {
    return layout->magic == TARTAN_I_DYNAMIC;
}
static inline bool tartan_i_is_variable(const tartan_layout *layout) {
    return layout->row_bounds != NULL;
}

/* CHECK_HANDLE for functions that take variable layouts as well as ordinary ones. */
#define CHECK_HOST_LAYOUT(layout)                                                                            \
    do {                                                                                                     \
        if (!tartan_i_is_host_layout(layout))                                                                \
            return tartan_i_fail_handle(__func__, #layout, (layout), "layout");                              \
    } while (0)

/* Checks the frame and computes the grid. Errors name the public function `function`. */
tartan_status tartan_i_shape_check(const char *function, const tartan_shape *shape, int64_t *out_grid_rows,
                                   int64_t *out_grid_cols);

/* tartan_i_layout_begin makes an unfinished layout with room for `blocks` blocks. Fill row_pointers and block_cols
 * (ascending, no repeats); tartan_i_layout_finish then checks them and builds the coordinate list. Free it with
 * tartan_layout_free at any time. */
tartan_status tartan_i_layout_begin(const tartan_shape *shape, int64_t blocks, tartan_layout **out);
tartan_status tartan_i_layout_finish(tartan_layout *layout);

/* The column lists of a layout whose blocks the host knows, made on first use; they live as long as the layout. Any thread may call
 * this. */
tartan_status tartan_i_layout_columns(const tartan_layout *layout, const tartan_i_columns **out);

/* The column lists, or NULL: not made yet. */
static inline const tartan_i_columns *tartan_i_columns_of(const tartan_layout *layout) {
    return __atomic_load_n(&layout->columns_made, __ATOMIC_ACQUIRE) == 2 ? &layout->columns : NULL;
}

/* For what is made once, by the first of several threads that need it. Each of them makes its own and then calls this, which is true
 * for one of them: that stores what it made and calls tartan_i_made. The others return when it did. `state` begins as 0. */
bool tartan_i_makes(int32_t *state);
void tartan_i_made(int32_t *state);

/* The identity, computed on first use; "" for a dynamic layout. Any thread may call this. */
const char *tartan_i_layout_identity(const tartan_layout *layout);

/* A dynamic layout of a checked shape on a device, for at most `capacity` blocks, not yet with an `index`. */
tartan_status tartan_i_layout_new_dynamic(const char *function, const tartan_shape *shape, int64_t capacity,
                                          int32_t device_type, int32_t device_id, tartan_layout **out);

/* Copies `recipe` into an unshared layout. */
tartan_status tartan_i_layout_set_recipe(tartan_layout *layout, const char *recipe);

/* Id of the block at (head, block row, block column), or -1. The position must be inside the grid. */
int64_t tartan_i_layout_find(const tartan_layout *layout, int64_t head, int64_t block_row, int64_t block_col);

/* Head of a block id, by bisection of row_pointers. */
int64_t tartan_i_layout_head(const tartan_layout *layout, int64_t id);

/* Whether blocks have padding: those at the edge, or any of a variable layout. */
static inline bool tartan_i_is_ragged(const tartan_layout *l) {
    return tartan_i_is_variable(l) || l->shape.rows % l->shape.block_rows != 0 ||
           l->shape.cols % l->shape.block_cols != 0;
}

/* The first row (column) of block row i (block column j). */
static inline int64_t tartan_i_row_begin(const tartan_layout *l, int64_t i) {
    return tartan_i_is_variable(l) ? l->row_bounds[i] : i * l->shape.block_rows;
}
static inline int64_t tartan_i_col_begin(const tartan_layout *l, int64_t j) {
    return tartan_i_is_variable(l) ? l->col_bounds[j] : j * l->shape.block_cols;
}

/* Rows (columns) of block row i (block column j) that are inside the matrix. */
static inline int64_t tartan_i_rows_of(const tartan_layout *l, int64_t i) {
    if (tartan_i_is_variable(l)) return l->row_bounds[i + 1] - l->row_bounds[i];
    int64_t left = l->shape.rows - i * l->shape.block_rows;
    return left < l->shape.block_rows ? left : l->shape.block_rows;
}
static inline int64_t tartan_i_cols_of(const tartan_layout *l, int64_t j) {
    if (tartan_i_is_variable(l)) return l->col_bounds[j + 1] - l->col_bounds[j];
    int64_t left = l->shape.cols - j * l->shape.block_cols;
    return left < l->shape.block_cols ? left : l->shape.block_cols;
}

/* Checks the boundaries of `grid` blocks of one side. */
tartan_status tartan_i_bounds_check(const char *function, const char *name, const int64_t *bounds,
                                    int64_t nbounds, int64_t grid);

/* The block row (column) of a row (column) inside the matrix. */
int64_t tartan_i_bounds_find(const int64_t *bounds, int64_t grid, int64_t line);
static inline int64_t tartan_i_block_row_at(const tartan_layout *l, int64_t row) {
    return tartan_i_is_variable(l) ? tartan_i_bounds_find(l->row_bounds, l->grid_rows, row)
                                   : row / l->shape.block_rows;
}
static inline int64_t tartan_i_block_col_at(const tartan_layout *l, int64_t col) {
    return tartan_i_is_variable(l) ? tartan_i_bounds_find(l->col_bounds, l->grid_cols, col)
                                   : col / l->shape.block_cols;
}

/* ---- Layouts made of other layouts: begin one on tartan_i_layout_frame, which has the same grid, finish it, and then
 * give it the boundaries (lib/layout/boundaries.c). ---- */

/* The frame of a layout or, if it is variable, a frame of the same grid with blocks of 1 x 1. */
tartan_shape tartan_i_layout_frame(const tartan_layout *layout);

/* Gives a finished layout that nobody shares yet these boundaries, [grid_rows + 1] and [grid_cols + 1], which are copied.
 * If they describe blocks of one size, it becomes, or stays, an ordinary layout. Errors: OVERFLOW, MEMORY. */
tartan_status tartan_i_layout_take_bounds(const char *function, tartan_layout *layout,
                                          const int64_t *row_bounds, const int64_t *col_bounds);

/* The same with the boundaries of `like`, if that is variable. */
static inline tartan_status tartan_i_layout_take_bounds_of(const char *function, tartan_layout *layout,
                                                           const tartan_layout *like) {
    if (!tartan_i_is_variable(like)) return TARTAN_OK;
    return tartan_i_layout_take_bounds(function, layout, like->row_bounds, like->col_bounds);
}

/* Whether two layouts have the same boundaries of blocks and as many heads. */
bool tartan_i_layout_same_frame(const tartan_layout *a, const tartan_layout *b);

/* The union of the blocks of a and b, or if `common` the intersection, and the ids that each block of the result has in a and in
 * b, or -1; the caller frees both with tartan_i_free. If a and b are equal, *out is a and both lists are NULL. */
tartan_status tartan_i_layout_merge(const char *function, tartan_layout *a, const tartan_layout *b,
                                    bool common, int64_t **out_a, int64_t **out_b, tartan_layout **out);

/* The union, and for each of its blocks 1 if a has it, 2 if b has it, 3 if both have, in a list that the caller frees with tartan_i_free:
 * a sixteenth of the memory of the ids. If a and b are equal, *out is a and the list is NULL. */
tartan_status tartan_i_layout_unite(const char *function, tartan_layout *a, const tartan_layout *b,
                                    uint8_t **out_origins, tartan_layout **out);

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
