/* SPDX-License-Identifier: Apache-2.0
 * What the kernel conv_filter_gradient_mma computes, as tables made of a layout. Plain C, tested without a GPU.
 *
 * The gradient of a block at a tap is a product whose inner dimension runs over the pixels of y; its rows are output slots,
 * its columns input slots. Eight columns are a fragment: 8 input slots at one tap. A job is up to 64 output slots of a block
 * line and some fragments of that line; a CTA computes a job over a share of the tiles of pixels, and keeps the sums in
 * registers. Each tile is loaded as pieces of 8 channels: pieces of y, and pieces of x with a halo that all taps of a plane
 * share. A tap is then another address of the same pixels. */
#ifndef TARTAN_CUDA_CONV_JOBS_H
#define TARTAN_CUDA_CONV_JOBS_H

#include "problem.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TARTAN_CUDA_JOB_WARPS = 8,
    TARTAN_CUDA_JOB_SUMS = 16, /* products of 16 x 8 sums that a warp has */
    TARTAN_CUDA_JOB_PIXELS = 128,
    TARTAN_CUDA_JOB_STAGES = 4,
    TARTAN_CUDA_JOB_SHARED = 113 * 1024 /* of a CTA; an SM has two */
};

/* How pixels lie in tiles and in shared memory. */
typedef struct tartan_cuda_conv_job_form {
    int32_t high;                      /* 16 output slots that a warp multiplies together: 1 or 2 times 16 */
    int32_t rows, cols, steps;         /* of a tile, in pixels of y; its products of 16 pixels */
    bool per_tap;                      /* pieces of x are the pixels of one tap, without a halo */
    int32_t box_rows, box_cols, pitch; /* of a piece of x; pixels from one row to the next in shared memory */
    int32_t box_step[2];        /* pixels of the image from one of the box to the next, along h and w */
    int32_t pixel[2];           /* pixels of the box from one neighbour in y to the next */
    int32_t x_bytes, y_bytes;   /* of a piece */
    int32_t x_pieces, y_pieces; /* of a job, at most */
    int32_t list_bytes; /* lists of pixels, before the stages: 8 for each of a box, 12 for each of a tile */
    int32_t stage_bytes, stages;
    int32_t shared;           /* bytes of all */
    int32_t origin[2];        /* where tiles begin along h and w: 0, or before it to fit windows */
    int32_t tiles_h, tiles_w; /* of a plane of an image */
} tartan_cuda_conv_job_form;

/* The form for a problem. There is always one. */
tartan_cuda_conv_job_form tartan_cuda_conv_job_form_of(const tartan_cuda_conv_filter_gradient *p);

/* The share of a tile's pixels that lie in the image, or its windows. */
double tartan_cuda_conv_job_share(const tartan_cuda_conv_filter_gradient *p,
                                  const tartan_cuda_conv_job_form *form);

/* Into how many shares the tiles are divided, so that `processors` SMs with two CTAs each are busy for the shortest time. */
int32_t tartan_cuda_conv_job_splits(const tartan_cuda_conv_job_form *form, int64_t jobs, int64_t tiles,
                                    int64_t weights, int32_t processors);

/* One array of int32 with the tables one after another, at multiples of 32 values:
 *   jobs       [jobs][8]: first piece of x, number of pieces; first fragment, number of fragments; first channel of y, its
 *              pieces of 8; output slots; groups of 16 * high slots, each with its own warps
 *   pieces     [pieces][4]: first channel; shift along d, h, w in pixels of x
 *   fragments  [fragments][2]: where its pixels begin in the x of a stage, in bytes; where its weights begin */
typedef struct tartan_cuda_conv_jobs {
    int64_t jobs, pieces, fragments;
    int64_t job_table, piece_table, fragment_table; /* in values */
    int64_t size;
    int32_t *values; /* the caller frees it with host->free */
} tartan_cuda_conv_jobs;

/* Errors: MEMORY. */
tartan_status tartan_cuda_conv_jobs_make(const tartan_host *host, const tartan_cuda_conv_filter_gradient *p,
                                         const tartan_cuda_conv_job_form *form, tartan_cuda_conv_jobs *out);

#ifdef __cplusplus
}
#endif
#endif
