/* SPDX-License-Identifier: Apache-2.0
 * The vocabulary of AMX with tiles in memory, so that kernels on tiles can be tested on a CPU that has AVX-512 but no AMX. What
 * an instruction does is written after the description of TDPBF16PS in Intel's manual: fused multiply-adds in f32, rounded to
 * nearest even, where numbers below 2^-126 are zeros; even and odd numbers of a row apart, then added to each other and to the
 * sum. */
#ifndef TARTAN_TESTS_AMX_MODEL_H
#define TARTAN_TESTS_AMX_MODEL_H

#define tiles_begin amx_tiles_begin
#include "simd/amx.h"
#undef tiles_begin
#undef tiles_end
#undef tile_zero
#undef tile_load
#undef tile_load_once
#undef tile_store
#undef tile_fma

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL_TILES = 8 };
typedef struct model_tile {
    uint64_t rows, row_bytes;
    char data[16][64];
} model_tile;
static _Thread_local model_tile model_tiles[MODEL_TILES];

static inline void tiles_begin(int64_t rows, int64_t pairs) {
    if (rows < 1 || rows > 16 || pairs < 1 || pairs > 16) abort();
    for (int n = 0; n < MODEL_TILES; n++) {
        model_tile *t = &model_tiles[n];
        memset(t, 0, sizeof *t);
        t->rows = (uint64_t)(n < 6 ? rows : pairs);
        t->row_bytes = n == 4 || n == 5 ? (uint64_t)(4 * pairs) : 64;
    }
}

/* As on a CPU, a tile that is used without a configuration is a fault. */
static inline model_tile *model_at(int n) {
    if (model_tiles[n].rows == 0) abort();
    return &model_tiles[n];
}

static inline void model_zero(int n) {
    memset(model_at(n)->data, 0, sizeof model_tiles[n].data);
}
static inline void model_load(int n, const void *from, int64_t stride) {
    model_zero(n);
    for (uint64_t i = 0; i < model_tiles[n].rows; i++)
        memcpy(model_tiles[n].data[i], (const char *)from + (int64_t)i * stride, model_tiles[n].row_bytes);
}
static inline void model_store(int n, void *to, int64_t stride) {
    for (uint64_t i = 0; i < model_at(n)->rows; i++)
        memcpy((char *)to + (int64_t)i * stride, model_tiles[n].data[i], model_tiles[n].row_bytes);
}

static inline float model_flushed(float x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}
static inline float model_number(const char *row, uint64_t at) {
    uint16_t half;
    float x;
    memcpy(&half, row + 2 * at, sizeof half);
    const uint32_t bits = (uint32_t)half << 16;
    memcpy(&x, &bits, sizeof x);
    return model_flushed(x);
}

static inline void model_fma(int d, int a, int b) {
    model_tile *sums = model_at(d);
    const model_tile *left = model_at(a), *right = model_at(b);
    if (sums->rows != left->rows || left->row_bytes != 4 * right->rows) abort();
    for (uint64_t m = 0; m < sums->rows; m++) {
        float parts[32] = {0};
        for (uint64_t k = 0; k < right->rows; k++)
            for (uint64_t n = 0; n < 32; n++)
                parts[n] = model_flushed(fmaf(model_number(left->data[m], 2 * k + n % 2),
                                              model_number(right->data[k], n), parts[n]));
        for (uint64_t n = 0; n < 16; n++) {
            float sum;
            memcpy(&sum, sums->data[m] + 4 * n, sizeof sum);
            sum = model_flushed(model_flushed(sum) + model_flushed(parts[2 * n] + parts[2 * n + 1]));
            memcpy(sums->data[m] + 4 * n, &sum, sizeof sum);
        }
    }
}

/* What tiles_parts.c defines with this vocabulary. */
void tartan_i_kernels_amx_model_bf16x3(struct tartan_i_kernels *kernels);
void tartan_i_kernels_amx_model_bf16x6(struct tartan_i_kernels *kernels);

#define tiles_end()                     memset(model_tiles, 0, sizeof model_tiles)
#define tile_zero(n)                    model_zero(n)
#define tile_load(n, p, row_bytes)      model_load(n, p, row_bytes)
#define tile_load_once(n, p, row_bytes) model_load(n, p, row_bytes)
#define tile_store(n, p, row_bytes)     model_store(n, p, row_bytes)
#define tile_fma(sums, left, right)     model_fma(sums, left, right)

#endif
