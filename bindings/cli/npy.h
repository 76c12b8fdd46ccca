/* SPDX-License-Identifier: Apache-2.0
 * numpy's .npy: a magic number, the text of a Python dictionary, the bytes of the array. */
#ifndef TARTAN_CLI_NPY_H
#define TARTAN_CLI_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An array of a file, with little-endian numbers. Kinds are numpy's, plus 'h' for bfloat16. */
typedef struct npy {
    char kind; /* 'f', 'h', 'i', 'u', 'b', 'S', 'U' */
    int bytes;
    bool fortran_order;
    int ndim;
    int64_t shape[8];
    int64_t elements;
    const unsigned char *data;
} npy;

/* Parses `size` bytes of an .npy file and makes its numbers little-endian in place; `what` names it in error texts. */
bool npy_parse(const char *what, unsigned char *bytes, size_t size, npy *out);
bool npy_is_integer(const npy *array);
/* The dtype of an array; F64 for integers and booleans; 0 for other kinds. */
int32_t npy_dtype(const npy *array);
/* Element i, in storage order, of an array of numbers. */
double npy_number(const npy *array, int64_t i);
int64_t npy_integer(const npy *array, int64_t i);
/* The header of an .npy with `descr` such as "<f8"; its length is a multiple of 64. Returns the length. */
int npy_header(const char *descr, int ndim, const int64_t *shape, char *out, int size);
/* "<f8", "<f4", "<f2"; NULL for a dtype that numpy lacks. */
const char *npy_descr(int32_t dtype);
enum { NPY_HEADER_ROOM = 512 };

#endif
