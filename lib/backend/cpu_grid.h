/* SPDX-License-Identifier: Apache-2.0
 * Several dense arrays of any strides over one grid of positions, gone through in tiles of rows x cols elements that stay in L1. */
#ifndef TARTAN_BACKEND_CPU_GRID_H
#define TARTAN_BACKEND_CPU_GRID_H

#include "kernels/kernels.h"
#include "tartan/array.h"

enum { TARTAN_I_GRID_ARRAYS = 17, TARTAN_I_GRID_TILE = 1024 };

typedef struct tartan_i_grid {
    const tartan_i_kernels *kernels; /* of the reals that arrays become */
    int32_t ndim, arrays;
    int64_t shape[TARTAN_MAX_NDIM];
    struct {
        char *data;
        int32_t dtype;
        int64_t strides[TARTAN_MAX_NDIM]; /* in elements; 0 where the array is repeated */
    } array[TARTAN_I_GRID_ARRAYS];
    int64_t rows, cols; /* of a tile, in the last two dimensions */
    int64_t tiles;
} tartan_i_grid;

typedef struct tartan_i_grid_tile {
    int64_t rows, cols;
    int64_t at[TARTAN_I_GRID_ARRAYS]; /* its first element in each array */
} tartan_i_grid_tile;

/* A grid without arrays yet, with the first `ndim` dimensions of `shape`. */
tartan_i_grid tartan_i_grid_of(const tartan_i_kernels *kernels, const int64_t *shape, int32_t ndim);

/* Adds an array of at most ndim dimensions, which are the grid's last ones, and returns its number. Dimensions of length 1 are
 * repeated, and so are dimensions that it lacks. If an array has more dimensions, its last ones are left out. */
int32_t tartan_i_grid_add(tartan_i_grid *g, const tartan_array *array);

/* After all arrays: drops dimensions of length 1, orders the others by the strides of array `lead`, the smallest last, and joins
 * those that continue each other in all arrays. At least two dimensions are left, the first of length 1 if need be. */
void tartan_i_grid_order(tartan_i_grid *g, int32_t lead);

/* After that: the size of tiles. Where an array is contiguous along another dimension than the last, that dimension becomes the
 * rows of tiles that are about square. Returns the number of tiles, 0 if the grid is empty. */
int64_t tartan_i_grid_cut(tartan_i_grid *g);

/* The same with tiles of the given size. */
int64_t tartan_i_grid_cut_to(tartan_i_grid *g, int64_t rows, int64_t cols);

/* Tile i. */
tartan_i_grid_tile tartan_i_grid_take(const tartan_i_grid *g, int64_t i);

/* The elements of a tile of an array as contiguous reals: where they are if that is how they lie, else in `room`. */
const void *tartan_i_grid_load(const tartan_i_grid *g, const tartan_i_grid_tile *t, int32_t array,
                               void *room);

/* Prefetches these elements if they are used in place. Processors prefetch by themselves, but stop at the end of a page, and while much is
 * computed. -1: there is no such array. */
void tartan_i_grid_fetch(const tartan_i_grid *g, const tartan_i_grid_tile *t, int32_t array);

/* Where to write the reals of a tile: in place or in `room`. Stores them if they are not in place. */
void *tartan_i_grid_place(const tartan_i_grid *g, const tartan_i_grid_tile *t, int32_t array, void *room);
void tartan_i_grid_store(const tartan_i_grid *g, const tartan_i_grid_tile *t, int32_t array,
                         const void *values);

/* The random numbers of a tile in `room`. The strides of the array say which it has: offset + i for its element i. */
const void *tartan_i_grid_draw(const tartan_i_grid *g, const tartan_i_grid_tile *t, int32_t array,
                               const tartan_i_drawing *drawing, int64_t offset, void *room);

/* The same for rows x cols elements with given strides from `in` on. */
const void *tartan_i_rows_load(const tartan_i_kernels *k, int32_t dtype, const char *in, int64_t row,
                               int64_t col, int64_t rows, int64_t cols, void *room);
void *tartan_i_rows_place(const tartan_i_kernels *k, int32_t dtype, char *out, int64_t row, int64_t col,
                          int64_t rows, int64_t cols, void *room);
void tartan_i_rows_store(const tartan_i_kernels *k, int32_t dtype, const void *values, char *out, int64_t row,
                         int64_t col, int64_t rows, int64_t cols);

#endif
