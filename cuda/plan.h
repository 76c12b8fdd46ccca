/* SPDX-License-Identifier: Apache-2.0
 * Planning on the host: index sets in the form of problem.h, in host memory, ready to be copied. Plain C. */
#ifndef TARTAN_CUDA_PLAN_H
#define TARTAN_CUDA_PLAN_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TARTAN_CUDA_SHARES = 5, /* groups of 1, 2, 4, 8, 16 lines */
};

/* What is counted of a layout once, for the choice of kernels; [by_columns]. */
typedef struct tartan_cuda_figures {
    double
        share[2]
             [TARTAN_CUDA_SHARES]; /* blocks per entry of the merged lists of 2^i lines; 1 without blocks */
} tartan_cuda_figures;

/* One block of int32 values that holds all lists of a plan one after another; offsets in values. */
typedef struct tartan_cuda_lists_plan {
    int64_t pointers, cols, ids; /* where each list starts; ids is -1: entry i is block i */
    int64_t size;                /* values in all */
    int32_t *values;             /* freed by the caller with host->free */
} tartan_cuda_lists_plan;

typedef struct tartan_cuda_unions_plan {
    int32_t group, groups_per_head;
    int64_t entries, longest;
    int64_t pointers, cols, ids, order, size;
    int32_t *values;
} tartan_cuda_unions_plan;

/* The lists of block rows, or with by_columns of block columns. Lists start at multiples of 128 bytes. The
 * layout has fewer than 2^31 blocks. Errors: MEMORY. */
tartan_status tartan_cuda_plan_lists(const tartan_host *host, const tartan_layout *layout, bool by_columns,
                                     tartan_cuda_lists_plan *out);

/* The merged lists of groups of `group` (at least 1) neighbouring block rows (columns).
 * Errors: MEMORY. */
tartan_status tartan_cuda_plan_unions(const tartan_host *host, const tartan_layout *layout, bool by_columns,
                                      int32_t group, tartan_cuda_unions_plan *out);

/* How a kernel works on merged lists: at most `entries` at a time, and a step of the sum costs
 * base + each * entries of the tile, but no less than `least`. */
typedef struct tartan_cuda_tile_form {
    int32_t entries;
    int32_t base, each, least;
    bool by_column; /* tiles of a head in the order of their first block columns, else of their groups */
} tartan_cuda_tile_form;

typedef struct tartan_cuda_tiles_plan {
    int64_t count;
    int64_t *costs; /* as tartan_cuda_tiles has them; both freed by the caller with host->free */
    int32_t *values;
} tartan_cuda_tiles_plan;

/* The tiles of merged lists, of which pointers and cols are in host memory here, head after head. A head has
 * `across` block columns. Errors: MEMORY. */
tartan_status tartan_cuda_plan_tiles(const tartan_host *host, const tartan_cuda_unions *unions, int64_t heads,
                                     int64_t across, const tartan_cuda_tile_form *form,
                                     tartan_cuda_tiles_plan *out);

/* Sums of fewer steps are not cut. */
enum { TARTAN_CUDA_FEW_STEPS = 16 };

/* A place in the work on tiles that lie one after another, each of them `steps` steps of the sum. */
typedef struct tartan_cuda_cut {
    int32_t tile, step;
} tartan_cuda_cut;

/* How many parts the work on `tiles` tiles is cut into for `processors`: no more than can share a tile with
 * gain. */
int32_t tartan_cuda_parts_of(int64_t tiles, int64_t steps, int32_t processors);

/* How many neighbouring blocks of threads share each tile, if that is better than such parts: they have even shares of
 * its sum and exchange sums quickly, but must be close to each other. 1 if it is not. */
enum { TARTAN_CUDA_MOST_SHARERS = 4 };
int32_t tartan_cuda_sharers_of(int64_t tiles, int64_t steps, int32_t processors);

/* Cuts it into parts of even cost: part i is from cuts[i] to cuts[i + 1]. A cut near the edge of a tile is
 * put on the edge, and tiles of few steps are not cut. */
void tartan_cuda_cuts_of(const tartan_cuda_tiles *tiles, int64_t steps, int32_t parts, tartan_cuda_cut *cuts);

/* Takes shares from up to 1024 groups; of a layout whose blocks change, what is expected of a mask that fills it.
 * Kept in the layout by tartan_cuda_figures_get (device.h). Errors: MEMORY (*out may be written in part). */
tartan_status tartan_cuda_figures_of(const tartan_host *host, const tartan_layout *layout,
                                     tartan_cuda_figures *out);

#ifdef __cplusplus
}
#endif
#endif
