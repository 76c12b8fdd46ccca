/* SPDX-License-Identifier: Apache-2.0
 * What the functions of arithmetic.h share: checks, threads, and blocks in pieces of f64. */
#ifndef TARTAN_MATRIX_WORK_H
#define TARTAN_MATRIX_WORK_H

#include "core/parallel.h"
#include "matrix/matrix.h"

/* An open matrix `name` with an ordinary layout and values in host memory. Errors: HANDLE, UNSUPPORTED. */
tartan_status tartan_i_matrix_check_host(const char *function, const char *name, const tartan_matrix *matrix);

/* Two open matrices of one frame: shape, block size and heads. */
tartan_status tartan_i_matrix_check_frame(const char *function, const char *name, const tartan_matrix *matrix,
                                          const char *other_name, const tartan_matrix *other);

/* An open context. */
tartan_status tartan_i_work_check(const char *function, const tartan_context *context);

/* Runs task(data, w) for each of the context's threads w as tartan_i_parallel does. Errors: ARGUMENT (busy). */
tartan_status tartan_i_work_run(const char *function, tartan_context *context, double work, tartan_task task,
                                void *data);

/* The smallest dtype that holds the numbers of both. */
int32_t tartan_i_common_dtype(int32_t a, int32_t b);

/* A piece of a block: `runs` rows (columns if not by_row) from `first` on, each `length` elements long. In memory of
 * its own, the runs follow each other without gaps. */
typedef struct tartan_i_piece {
    bool by_row;
    int64_t first, runs, length;
} tartan_i_piece;
enum { TARTAN_I_PIECE = 1024 }; /* elements, at most */

/* Block `id` in pieces along its memory: `for (p = tartan_i_piece_begin(m, id); p.runs > 0; tartan_i_piece_next(m, id,
 * &p))`. Pieces have no padding. */
tartan_i_piece tartan_i_piece_begin(const tartan_matrix *m, int64_t id);
void tartan_i_piece_next(const tartan_matrix *m, int64_t id, tartan_i_piece *p);

/* Reads a piece of block `id` as f64; writes one. The block may have the other order. */
void tartan_i_piece_load(const tartan_matrix *m, int64_t id, const tartan_i_piece *p, double *to);
void tartan_i_piece_store(const tartan_matrix *m, int64_t id, const tartan_i_piece *p, const double *from);

#endif
