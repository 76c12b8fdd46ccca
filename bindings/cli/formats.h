/* SPDX-License-Identifier: Apache-2.0
 * The file formats that `tartan convert` reads and writes besides Tartan's own. Readers return entries or a dense
 * array, to be freed with content_free. On failure they print an error and return EXIT_FAILED. */
#ifndef TARTAN_CLI_FORMATS_H
#define TARTAN_CLI_FORMATS_H

#include "cli.h"
#include "npy.h"

/* The content of a foreign file: either entries (rows_of, cols_of, values as f64) or a dense matrix. */
typedef struct content {
    int64_t rows, cols;
    int64_t heads;                  /* of a dense matrix */
    int64_t block_rows, block_cols; /* 0 if the file has no blocks */
    int32_t dtype;                  /* the file's; F64 if that is not one of ours */
    bool is_dense;
    int64_t entries;
    int64_t *rows_of, *cols_of;
    double *values;
    tartan_array dense; /* data in `memory` */
    void *memory;
} content;

void content_free(content *c);

/* Makes room for n entries; if out of memory, prints an error and returns false. */
bool content_reserve(content *c, const char *path, int64_t n);

/* Adds duplicate entries in the order of the file, as other programs do. */
int content_add_duplicates(content *c);

/* Renumbers rows and columns of a square matrix of entries by reverse Cuthill-McKee. */
int content_reorder(content *c);

/* Makes `c` a dense matrix [rows, cols], or [heads, rows, cols], of the bytes at `data`, which are in c->memory and are
 * moved to its start, because files do not align them. `strides` as in tartan_array_init. */
int content_use_dense(content *c, const char *path, const unsigned char *data, int32_t dtype, int ndim,
                      const int64_t *shape, const int64_t *strides);

/* `part`: of a complex matrix; MTX_WHOLE for others. */
typedef enum mtx_part { MTX_WHOLE, MTX_REAL, MTX_IMAGINARY } mtx_part;
int read_mtx(const char *path, mtx_part part, content *out);
int read_npy(const char *path, content *out);
int read_npz(const char *path, content *out);
int read_safetensors(const char *path, const char *tensor, content *out);

int write_mtx(const tartan_matrix *matrix, const char *path);
int write_npy(const tartan_matrix *matrix, const char *path);
int write_npz(const tartan_matrix *matrix, const char *path);
int write_safetensors(const tartan_matrix *matrix, const char *name, const char *path);

/* Turns the three arrays of scipy's csr, csc, bsr (`first` are the pointers, `second` the indices) or coo (rows and
 * columns) into entries, having checked them. c->rows and c->cols are set. The other: scipy's dia, whose data [diagonals,
 * width] has column j of the diagonal at offsets[i] in data[i, j]; zeros are left out. */
int content_from_lists(content *c, const char *path, const char *format, const npy *first, const npy *second,
                       const npy *data);
int content_from_diagonals(content *c, const char *path, const npy *offsets, const npy *data);

/* Reads a whole file into memory aligned to 64 bytes, to be freed with free(). On failure prints an error and
 * returns NULL. */
unsigned char *read_whole(const char *path, size_t *out_size);

/* tartan_matrix_cast on the CPU. */
tartan_status cast_matrix(const tartan_matrix *matrix, int32_t dtype, int32_t block_order,
                          tartan_matrix **out);

/* The stored blocks of a matrix of one head, row-major, in a dtype, with its row lists. */
typedef struct bsr {
    int64_t blocks, pointers;
    int64_t *row_pointers, *block_cols;
    tartan_matrix *matrix;
    tartan_array values;
    tartan_layout *layout;
} bsr;
bool bsr_of(const tartan_matrix *matrix, int32_t dtype, bsr *out);
void bsr_free(bsr *b);

#endif
