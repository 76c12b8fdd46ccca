/* SPDX-License-Identifier: Apache-2.0
 * Arrays of one shape that a kernel visits together, element by element: in which order, and how many neighbours at once.
 * Plain C, tested without a GPU. */
#ifndef TARTAN_CUDA_SWEEP_H
#define TARTAN_CUDA_SWEEP_H

#include <stdbool.h>

#include "core/array.h"

#ifdef __cplusplus
extern "C" {
#endif

/* number / divisor for 0 <= number < 2^31: the upper half of number * factor, shifted. */
typedef struct tartan_cuda_divider {
    uint32_t factor, shift;
} tartan_cuda_divider;

tartan_cuda_divider tartan_cuda_divider_of(int64_t divisor);

/* Some of the dimensions of a sweep. Dimension 0 changes fastest. */
typedef struct tartan_cuda_axes {
    int32_t ndim;
    bool small; /* there are fewer than 2^31 elements, so the dividers suffice */
    int64_t length[TARTAN_MAX_NDIM];
    tartan_cuda_divider by[TARTAN_MAX_NDIM]; /* the lengths */
    int64_t elements;                        /* product of the lengths; 1 if ndim is 0 */
} tartan_cuda_axes;

/* Axes whose elements have results of their own, and those that are summed over. */
enum { TARTAN_CUDA_KEPT, TARTAN_CUDA_SUMMED };

typedef struct tartan_cuda_swept {
    void *data; /* NULL: there is no such array */
    int32_t dtype;
    bool gathered; /* the elements of a unit are read one by one */
    int64_t
        next; /* step from neighbour to neighbour in a unit: 1, 0 if all are the same element, any if it is gathered */
    int64_t step[2][TARTAN_MAX_NDIM]; /* in elements; 0 where the array is repeated */
} tartan_cuda_swept;

/* Element (i, j) of an array is at the sum of i_d step[KEPT][d] and of j_d step[SUMMED][d].
 *
 * If `unit` is more than 1, the first dimension of the axes `inner` counts units of so many neighbours, each of which is read and
 * written in one access. It is a multiple of `unit`, or the only one of a sweep without sums: then `rest` elements follow, at
 * the end of it. */
enum { TARTAN_CUDA_SWEPT = 8 };
typedef struct tartan_cuda_sweep {
    int32_t count; /* of arrays */
    tartan_cuda_axes axes[2];
    tartan_cuda_swept array[TARTAN_CUDA_SWEPT];
    int32_t inner; /* the axes that have the dimension of the smallest steps */
    int32_t unit;
    int64_t rest;
} tartan_cuda_sweep;

/* What a sweep is made of: arrays that are NULL or broadcast to `shape`. Dimensions are ordered by the steps of array `first`;
 * where these do not decide, by the steps of the array after it, and so on, around. Neighbours that all arrays step through as one
 * are merged. Where `first` has negative steps, or has none and the array after it has, all arrays are turned round. */
typedef struct tartan_cuda_sweeping {
    int32_t ndim;
    int64_t shape[TARTAN_MAX_NDIM];
    uint32_t summed; /* bit d: dimension d */
    int32_t count, first;
    bool keep_direction; /* nothing is turned round */
    const tartan_array *array[TARTAN_CUDA_SWEPT];
} tartan_cuda_sweeping;

tartan_cuda_sweep tartan_cuda_sweep_of(const tartan_cuda_sweeping *of);

/* Chooses `unit`: 16 bytes of all arrays that have 16-bit elements alone, else 16 bytes of sums, if all arrays allow this; else 1.
 * Arrays below `outputs` may repeat an element along the unit, and do not count then. LINES: nor do those that are repeated along all other
 * dimensions than the first. GATHER: as LINES, and arrays whose elements have gaps between them, or addresses that fit no unit, are gathered. */
enum tartan_cuda_unit_rule { TARTAN_CUDA_UNITS_ALIKE, TARTAN_CUDA_UNITS_LINES, TARTAN_CUDA_UNITS_GATHER };
void tartan_cuda_sweep_choose_unit(tartan_cuda_sweep *s, int32_t outputs, enum tartan_cuda_unit_rule rule);

/* Where lines of summed elements that fit no units follow each other along the only kept dimension in all arrays, whose dtypes are one: units go
 * from line to line, and kept elements are groups of as many lines as a unit has elements. False, and nothing changes, where that can't be. */
bool tartan_cuda_sweep_join_lines(tartan_cuda_sweep *s);

/* Where an array has its neighbours along another dimension than the first, a large sweep without sums goes through tiles of these two
 * dimensions, which come first then, so that all bytes are used of what a CTA's accesses move. It has units, but can't do without them any
 * more. */
void tartan_cuda_sweep_tile(tartan_cuda_sweep *s);

/* A sweep of one dimension becomes one of lines, if its units divide into these. */
void tartan_cuda_sweep_fold(tartan_cuda_sweep *s);

/* The elements after the last unit, as a sweep of their own. */
tartan_cuda_sweep tartan_cuda_sweep_rest(const tartan_cuda_sweep *s);

/* The same sweep without units. */
tartan_cuda_sweep tartan_cuda_sweep_one_by_one(const tartan_cuda_sweep *s);

#ifdef __cplusplus
}
#endif
#endif
