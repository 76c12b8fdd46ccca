/* SPDX-License-Identifier: Apache-2.0
 * File formats that `tartan convert` reads and writes besides Tartan's own. Readers give entries or a dense
 * array; what they hand over is freed with content_free. Each prints what is wrong and returns EXIT_FAILED. */
#ifndef TARTAN_CLI_FORMATS_H
#define TARTAN_CLI_FORMATS_H

#include "cli.h"

/* What a foreign file holds: either entries (rows_of, cols_of, values as f64) or a dense matrix. */
typedef struct content {
    int64_t rows, cols;
    int64_t block_rows, block_cols; /* 0 where the file has no blocks */
    int32_t dtype;                  /* that the file used; F64 where it has none of ours */
    bool is_dense;
    int64_t entries;
    int64_t *rows_of, *cols_of;
    double *values;
    tartan_array dense; /* data in `memory` */
    void *memory;
} content;

void content_free(content *c);

/* Room for n entries; false after saying so when out of memory. */
bool content_reserve(content *c, const char *path, int64_t n);

/* Renumbers rows and columns of a square matrix of entries by reverse Cuthill-McKee. */
int content_reorder(content *c);

/* Makes it a dense matrix of the bytes at `data`, which lie in c->memory and are moved to its front: files do
 * not align them. `strides` as in tartan_array_init. */
int content_use_dense(content *c, const char *path, const unsigned char *data, int32_t dtype,
                      const int64_t *shape, const int64_t *strides);

int read_mtx(const char *path, content *out);
int read_npy(const char *path, content *out);
int read_npz(const char *path, content *out);
int read_safetensors(const char *path, const char *tensor, content *out);

int write_mtx(const tartan_matrix *matrix, const char *path);
int write_npy(const tartan_matrix *matrix, const char *path);
int write_npz(const tartan_matrix *matrix, const char *path);
int write_safetensors(const tartan_matrix *matrix, const char *name, const char *path);

/* An array as files hold it, little-endian. Kinds are numpy's, and 'h' for bfloat16. */
typedef struct npy {
    char kind; /* 'f', 'h', 'i', 'u', 'b', 'S', 'U' */
    int bytes;
    bool fortran_order;
    int ndim;
    int64_t shape[8];
    int64_t elements;
    const unsigned char *data;
} npy;

/* Parses `size` bytes of an .npy file; `what` names it in messages. */
bool npy_parse(const char *what, const unsigned char *bytes, size_t size, npy *out);
bool npy_is_integer(const npy *array);
/* The dtype of an array; F64 for integers and truth values; 0 where it holds no numbers that we know. */
int32_t npy_dtype(const npy *array);
/* Element i, in storage order, of an array that has a dtype, or is an array of integers. */
double npy_number(const npy *array, int64_t i);
int64_t npy_integer(const npy *array, int64_t i);
/* The header of an .npy with `descr` such as "<f8"; its length is a multiple of 64. Returns the length. */
int npy_header(const char *descr, int ndim, const int64_t *shape, char *out, int size);
/* "<f8", "<f4", "<f2"; NULL for a dtype that numpy lacks. */
const char *npy_descr(int32_t dtype);
enum { NPY_HEADER_ROOM = 512 };

/* Turns the three arrays of scipy's csr, csc, bsr (`first` are the pointers, `second` the indices) or coo (rows and
 * columns) into entries, having checked them. c->rows and c->cols are set. */
int content_from_lists(content *c, const char *path, const char *format, const npy *first, const npy *second,
                       const npy *data);

/* The whole file in memory aligned to 64 bytes; free with free(). NULL after saying what is wrong. */
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
