/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu_dense.h"

#include <string.h>

/* Lines are copied through the stack in pieces of this many elements, tiles in pieces of TILE_LONG x TILE_SHORT. */
enum { PIECE = 256, TILE_LONG = 64, TILE_SHORT = 16, LINE = 64, FAR = 1024, ROWS_AHEAD = 16 };

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

void tartan_i_dense_of(const tartan_array *array, bool exchange, int64_t head, tartan_i_dense *out) {
    const int32_t last = array->ndim - 1;
    out->data = array->data;
    out->dtype = array->dtype;
    out->bytes = tartan_dtype_bytes(array->dtype);
    out->row = array->strides[exchange ? last : last - 1];
    out->col = array->strides[exchange ? last - 1 : last];
    out->nbatch = array->ndim - 2;
    for (int32_t i = 0; i < out->nbatch; i++) {
        out->batch[i] = array->shape[i];
        out->batch_strides[i] = array->strides[i];
    }
    if (head >= 0) {
        out->nbatch--;
        if (out->data != NULL) out->data += head * out->batch_strides[out->nbatch] * out->bytes;
    }
}

int64_t tartan_i_dense_entries(const tartan_i_dense *d) {
    int64_t entries = 1;
    for (int32_t i = 0; i < d->nbatch; i++) entries *= d->batch[i];
    return entries;
}

char *tartan_i_dense_entry(const tartan_i_dense *d, int64_t entry) {
    int64_t offset = 0;
    for (int32_t i = d->nbatch - 1; i >= 0; i--) {
        offset += entry % d->batch[i] * d->batch_strides[i];
        entry /= d->batch[i];
    }
    return d->data + offset * d->bytes;
}

void tartan_i_dense_fold(tartan_i_dense *a, int64_t *a_stride, tartan_i_dense *b, int64_t *b_stride,
                         int64_t *count) {
    while (a->nbatch > 0) {
        const int32_t last = a->nbatch - 1;
        const int64_t more = a->batch[last], a_next = a->batch_strides[last], b_next = b->batch_strides[last];
        if (*count == 1) { /* nothing to step on from */
            *a_stride = a_next;
            *b_stride = b_next;
        } else if (more != 1 && (a_next != *count * *a_stride || b_next != *count * *b_stride)) {
            return;
        }
        *count *= more;
        a->nbatch = b->nbatch = last;
    }
}

/* Unrolled, the loops take the same time wherever the linker puts them. */
#define EACH_ELEMENT(type, to, from)                                                                         \
    do {                                                                                                     \
        const type *source = (const void *)in;                                                               \
        type *target = (void *)out;                                                                          \
        _Pragma("GCC unroll 8") for (int64_t i = 0; i < n; i++) target[to] = source[from];                   \
    } while (0)

static void gather(int64_t bytes, const char *in, int64_t stride, int64_t n, void *out) {
    if (bytes == 8)
        EACH_ELEMENT(uint64_t, i, i * stride);
    else if (bytes == 4)
        EACH_ELEMENT(uint32_t, i, i * stride);
    else if (bytes == 2)
        EACH_ELEMENT(uint16_t, i, i * stride);
    else
        EACH_ELEMENT(uint8_t, i, i * stride);
}

static void scatter(int64_t bytes, const void *in, int64_t n, char *out, int64_t stride) {
    if (bytes == 8)
        EACH_ELEMENT(uint64_t, i * stride, i);
    else if (bytes == 4)
        EACH_ELEMENT(uint32_t, i * stride, i);
    else
        EACH_ELEMENT(uint16_t, i * stride, i);
}

void tartan_i_line_load(const tartan_i_kernels *k, int32_t dtype, const char *in, int64_t stride, int64_t n,
                        void *out) {
    const int64_t bytes = tartan_dtype_bytes(dtype);
    if (stride == 1) {
        k->load[dtype](n, in, out);
    } else if (dtype == k->dtype) {
        gather(bytes, in, stride, n, out);
    } else {
        uint16_t piece[PIECE];
        for (int64_t i = 0; i < n; i += PIECE) {
            const int64_t m = smaller(PIECE, n - i);
            gather(bytes, in + i * stride * bytes, stride, m, piece);
            k->load[dtype](m, piece, (char *)out + i * k->bytes);
        }
    }
}

void tartan_i_line_store(const tartan_i_kernels *k, int32_t dtype, const void *in, int64_t n, char *out,
                         int64_t stride) {
    const int64_t bytes = tartan_dtype_bytes(dtype);
    if (stride == 1) {
        k->store[dtype](n, in, out);
    } else if (dtype == k->dtype) {
        scatter(bytes, in, n, out, stride);
    } else {
        uint16_t piece[PIECE];
        for (int64_t i = 0; i < n; i += PIECE) {
            const int64_t m = smaller(PIECE, n - i);
            k->store[dtype](m, (const char *)in + i * k->bytes, piece);
            scatter(bytes, piece, m, out + i * stride * bytes, stride);
        }
    }
}

/* Prefetches the next n columns of some bytes, if they lie too far apart for the processor to do so by itself. GCC removes calls
 * of a function that only prefetches, hence inline. */
static inline __attribute__((always_inline)) void foresee(const char *columns, int64_t step, int64_t n,
                                                          int64_t bytes) {
    if (step < FAR) return;
    for (int64_t c = 0; c < n; c++)
        for (int64_t b = 0; b < bytes; b += LINE) __builtin_prefetch(columns + c * step + b);
}

/* The columns are contiguous in memory: tiles are transposed, as many columns at a time as a line of `out` has, from top to bottom,
 * so that the hardware fetches the columns ahead. Short ones it does not. */
static void pack_columns(const tartan_i_kernels *k, int32_t dtype, const char *in, int64_t in_col,
                         int64_t rows, int64_t cols, char *out, int64_t out_row) {
    const int64_t bytes = tartan_dtype_bytes(dtype), across = LINE / k->bytes;
    double tile[TILE_LONG * TILE_SHORT];
    for (int64_t j = 0; j < cols; j += across) {
        const int64_t n = smaller(across, cols - j);
        for (int64_t i = 0; i < rows; i += TILE_LONG) {
            const int64_t m = smaller(TILE_LONG, rows - i);
            const char *from = in + (i + j * in_col) * bytes;
            char *to = out + (i * out_row + j) * k->bytes;
            if (rows <= TILE_LONG)
                foresee(from + n * in_col * bytes, in_col * bytes, smaller(across, cols - j - n), m * bytes);
            if (dtype == k->dtype) {
                k->transpose(n, m, from, in_col, to, out_row);
                continue;
            }
            for (int64_t c = 0; c < n; c++)
                k->load[dtype](m, from + c * in_col * bytes, (char *)tile + c * TILE_LONG * k->bytes);
            k->transpose(n, m, tile, TILE_LONG, to, out_row);
        }
    }
}

void tartan_i_pack(const tartan_i_kernels *k, int32_t dtype, const char *in, int64_t in_row, int64_t in_col,
                   int64_t rows, int64_t cols, char *out, int64_t out_row) {
    if (in_row == 1 && in_col != 1) {
        pack_columns(k, dtype, in, in_col, rows, cols, out, out_row);
        return;
    }
    const int64_t step = in_row * tartan_dtype_bytes(dtype);
    const int64_t bytes = cols * tartan_dtype_bytes(dtype);
    for (int64_t i = 0; i < rows; i++) {
        if (in_col == 1) foresee(in + (i + ROWS_AHEAD) * step, step, 1, bytes);
        tartan_i_line_load(k, dtype, in + i * step, in_col, cols, out + i * out_row * k->bytes);
    }
}

/* Stores one line of sums, `stride` elements apart. */
static void commit_line(const tartan_i_kernels *k, const char *sums, int64_t n, double alpha, double beta,
                        int32_t dtype, char *out, int64_t stride) {
    const int64_t step = stride * tartan_dtype_bytes(dtype);
    double piece[PIECE];
    for (int64_t i = 0; i < n; i += PIECE) {
        const int64_t m = smaller(PIECE, n - i);
        if (beta != 0) tartan_i_line_load(k, dtype, out + i * step, stride, m, piece);
        k->commit[k->dtype](1, m, alpha, sums + i * k->bytes, 0, beta, piece, 0);
        tartan_i_line_store(k, dtype, piece, m, out + i * step, stride);
    }
}

void tartan_i_commit(const tartan_i_kernels *k, const char *sums, int64_t sums_row, int64_t rows,
                     int64_t cols, double alpha, double beta, int32_t dtype, char *out, int64_t out_row,
                     int64_t out_col) {
    const int64_t bytes = tartan_dtype_bytes(dtype);
    if (out_col == 1) {
        k->commit[dtype](rows, cols, alpha, sums, sums_row, beta, out, out_row);
        return;
    }
    if (out_row != 1) {
        for (int64_t i = 0; i < rows; i++)
            commit_line(k, sums + i * sums_row * k->bytes, cols, alpha, beta, dtype,
                        out + i * out_row * bytes, out_col);
        return;
    }
    double tile[TILE_LONG * TILE_SHORT]; /* columns of `out` are contiguous: transpose first */
    for (int64_t j = 0; j < cols; j += TILE_SHORT) {
        const int64_t n = smaller(TILE_SHORT, cols - j);
        for (int64_t i = 0; i < rows; i += TILE_LONG) {
            const int64_t m = smaller(TILE_LONG, rows - i);
            foresee(out + (i + (j + n) * out_col) * bytes, out_col * bytes, smaller(TILE_SHORT, cols - j - n),
                    m * bytes);
            k->transpose(m, n, sums + (i * sums_row + j) * k->bytes, sums_row, tile, TILE_LONG);
            k->commit[dtype](n, m, alpha, tile, TILE_LONG, beta, out + (i + j * out_col) * bytes, out_col);
        }
    }
}
