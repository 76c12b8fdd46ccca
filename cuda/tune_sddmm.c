/* SPDX-License-Identifier: Apache-2.0
 * Tuning of sampled products of dense matrices. */
#include "dtype.h"
#include "stream_k.h"
#include "tune_model.h"

/* ---- Data, measured on an H100 and an H200 ---- */

static const design sddmm_plain = {.peak = {[F64] = {3, 6, 8, 8, 8},
                                            [F32] = {5, 9, 14, 13, 13},
                                            [TF32] = {5, 9, 14, 13, 13},
                                            [HALF] = {5, 9, 14, 13, 13}}};
/* H200, 4096 x 4096 with 512 terms, a tenth of the blocks; tf32 was not measured. */
static const design sddmm_gather = {.peak = {[F64] = {9, 14, 17, 15, 16},
                                             [F32] = {13, 18, 21, 25, 25},
                                             [TF32] = {18, 25, 33, 42, 42},
                                             [HALF] = {24, 32, 50, 65, 58}},
                                    .log2_lines = {4, 3, 2, 1, 0}};
static const design sddmm_mma = {
    .peak = {[F64] = {10, 12, 12, 17, 17}, [TF32] = {15, 30, 60, 100, 100}, [HALF] = {20, 40, 80, 120, 120}},
    .log2_lines = {3, 2, 1, 0, 0}};
static const design sddmm_wgmma = {.peak = {[HALF] = {76, 131, 248, 477, 580}},
                                   .log2_lines = {6, 5, 4, 3, 1}};

/* sddmm_wgmma. A stage loads rows * 128 + columns * 128 bytes: 72 KB for a tile of 64 x 512, 48 KB for 128 x 256. */
static const double stage_kb_64 = 72, stage_kb_128 = 48;
/* Costs of a step of a tile, in the time that L2 takes for 256 bytes (two lines) when all SMs read: the least for the
 * boxes of an entry, of which blocks of 8 have many, and for the products of a whole tile. */
static const int32_t sddmm_least_entry_cost = 6, sddmm_products_cost = 152;
/* Boxes of Y with contiguous columns may read up to this many times the width of a block. */
static const double sddmm_most_read = 1.5;
/* sddmm_gather: parts of its time that it loses by loading a factor element by element, and how much wider than a block its columns
 * of a tile may be. */
static const double sddmm_single_part[KINDS] = {[F64] = 0.4, [F32] = 0.5, [TF32] = 0.7, [HALF] = 1},
                    sddmm_most_places = 1.5;
static const int32_t sddmm_whole_from =
    32; /* smaller blocks are limited by the number of boxes, never by products */
static const double sddmm_whole_slack = 1.08;
/* A copy of Y with k contiguous: what a step gains for blocks of 8 and 16, in us, and what the copy costs. */
static const double sddmm_step_us = 0.6, sddmm_copy_bytes_us = 3.5e6, sddmm_copy_us = 4;
enum { WARPGROUP_COLS = 256 };

/* ---- Rates ---- */

/* `near` blocks share a row panel of X, and each reads its own column panel of Y:
 *   L2: l2_bytes * 2 block near / (bytes of an element * (1 + near)). */
static double sddmm_rate(const design *d, const tartan_cuda_sddmm *p) {
    const int32_t size = tartan_cuda_size_of(p->block_m);
    const double near = 1 << d->log2_lines[size], bytes = tartan_cuda_bytes_of(p->dtype);
    double k = 0;
    for (int32_t i = 0; i < p->pairs; i++) k += (double)p->pair[i].k * (double)p->pair[i].batch.entries;
    const double elements = (double)p->blocks * p->block_m * p->block_n;
    const double arithmetic = d->peak[tartan_cuda_kind_of(p->dtype, p->tf32)][size];
    const double l2 = l2_bytes * 2 * p->block_m * near / (bytes * (1 + near));
    const double moved = bytes * (elements + (double)p->heads * k * (double)(p->m + p->n));
    const double memory = moved > 0 ? memory_bytes * 2 * elements * k / moved : l2;
    return smaller(arithmetic, smaller(l2, memory));
}

/* Edges below 8 have their share of the rate of 8. */
static double of_small_edge(const tartan_cuda_sddmm *p) {
    return smaller(1, p->block_m / 8.0);
}

double tartan_cuda_sddmm_plain_rate(const void *problem) {
    return sddmm_rate(&sddmm_plain, problem) * of_small_edge(problem);
}

/* What copies of the factors that are not aligned take, in us; *operations: of the product. */
static double align_us(const tartan_cuda_sddmm *p, double *operations) {
    double us = 0, k = 0;
    for (int32_t i = 0; i < p->pairs; i++) {
        const tartan_cuda_batch *b = &p->pair[i].batch;
        const double terms = (double)p->pair[i].k;
        us += tartan_cuda_align_us(&p->pair[i].x, p->heads, b->entries, b->first[0], terms * (double)p->m) +
              tartan_cuda_align_us(&p->pair[i].y, p->heads, b->entries, b->second[0], terms * (double)p->n);
        k += terms * (double)b->entries;
    }
    *operations = 2 * (p->variable ? p->figures.filled : 1) * (double)p->blocks * p->block_m * p->block_n * k;
    return us;
}

/* What copies take that let sddmm_gather load by 16 bytes what it would load element by element, and of how many factors. */
static double gather_copies_us(const tartan_cuda_sddmm *p, int32_t *single) {
    const bool half = tartan_cuda_is_half(p->dtype), across = tartan_cuda_sddmm_places(p) > 0;
    double us = 0;
    *single = 0;
    for (int32_t i = 0; i < p->pairs; i++) {
        const tartan_cuda_batch *b = &p->pair[i].batch;
        const tartan_cuda_dense *const d[] = {&p->pair[i].x, &p->pair[i].y};
        for (int32_t of_y = 0; of_y < 2; of_y++) {
            const int64_t along = of_y ? d[of_y]->row_stride : d[of_y]->col_stride;
            const double elements = (double)p->pair[i].k * (double)(of_y ? p->n : p->m);
            const int64_t batch_stride = of_y ? b->second[0] : b->first[0];
            const bool unaligned = !tartan_cuda_is_mappable(d[of_y], p->heads, b->entries, batch_stride),
                       turned = along != 1 && !across && (half || of_y); /* else it is loaded as it lies */
            const int32_t copies = half ? (int32_t)unaligned + (int32_t)turned : unaligned && !turned;
            us += copies * tartan_cuda_copy_us(d[of_y], p->heads, b->entries, elements);
            *single += copies > 0;
        }
    }
    return us;
}

double tartan_cuda_sddmm_gather_rate(const void *problem) {
    return sddmm_rate(&sddmm_gather, problem) * of_small_edge(problem);
}

bool tartan_cuda_sddmm_gather_copies(const tartan_cuda_sddmm *p) {
    int32_t single;
    const double us = gather_copies_us(p, &single);
    if (us == 0 || p->blocks == 0) return false;
    double operations;
    align_us(p, &operations);
    const double lost = sddmm_single_part[tartan_cuda_kind_of(p->dtype, p->tf32)] * single / (2 * p->pairs);
    return us < lost * operations / tartan_cuda_sddmm_gather_rate(p) / 1e6;
}

int32_t tartan_cuda_sddmm_places(const tartan_cuda_sddmm *p) {
    if (p->variable || p->pairs == 0) return 0;
    const bool half = tartan_cuda_is_half(p->dtype);
    for (int32_t i = 0; i < p->pairs; i++) {
        if (p->pair[i].y.col_stride != 1 || p->pair[i].y.row_stride == 1) return 0;
        if (half && (p->pair[i].x.row_stride != 1 || p->pair[i].x.col_stride == 1)) return 0;
    }
    const int32_t unit = 16 / tartan_cuda_bytes_of(p->dtype), power = p->block_n & -p->block_n;
    const int32_t shift = power < unit ? unit - power : 0; /* the first column in its piece, at most */
    const int32_t places = (p->block_n + shift + unit - 1) / unit * unit;
    return places <= sddmm_most_places * p->block_n ? places : 0;
}

/* Blocks that are taken as sub-blocks have the rate of these. */
static double mma_rate(const tartan_cuda_sddmm *p, bool *copies) {
    *copies = false;
    const int32_t edge = tartan_cuda_sddmm_edge(p);
    if (edge == 0) return 0;
    const tartan_cuda_sddmm q = tartan_cuda_sddmm_in_sub_blocks(p, edge);
    const double rate = sddmm_rate(&sddmm_mma, &q);
    for (int32_t i = 0; i < p->pairs; i++)
        if (p->pair[i].batch.ndim > 1) return rate;
    double operations;
    const double us = align_us(p, &operations);
    if (us == 0) return rate;
    return tartan_cuda_unaligned_rate(rate, tartan_cuda_kind_of(p->dtype, p->tf32), operations, us, copies);
}

bool tartan_cuda_sddmm_mma_copies(const tartan_cuda_sddmm *p) {
    bool copies;
    mma_rate(p, &copies);
    return copies;
}

double tartan_cuda_sddmm_mma_rate(const void *problem) {
    bool copies;
    return mma_rate(problem, &copies);
}

double tartan_cuda_sddmm_wgmma_rate(const void *problem) {
    const tartan_cuda_sddmm *p = problem;
    double operations;
    const double us = align_us(p, &operations);
    const tartan_cuda_tiling t = tartan_cuda_sddmm_tiling(p);
    if (t.edge == 0) return 0;
    const double rows = (double)(t.group * t.edge) / t.rows;
    const int32_t pitch = tartan_cuda_sddmm_columns(p).pitch;
    const double cols = (double)(WARPGROUP_COLS / pitch * p->block_n) / WARPGROUP_COLS;
    return tartan_cuda_with_us(rows * cols * sddmm_rate(&sddmm_wgmma, p), operations, us);
}

/* For each merged entry of 64 rows, 64 x 512 loads half its stage; 128 x 256 loads its stage for each entry of 128
 * rows, of which there are fewer the more blocks share an entry. */
static bool is_wide(const tartan_cuda_sddmm *p) {
    if (p->block_m == 128) return true;
    int32_t i = 0; /* 2^i block rows make 64 rows */
    while (p->block_m << i < 64) i++;
    const double *share = p->figures.share[0];
    return stage_kb_128 * share[i] < stage_kb_64 / 2 * share[i + 1];
}

tartan_cuda_tiling tartan_cuda_sddmm_tiling(const tartan_cuda_sddmm *p) {
    const int32_t edge = tartan_cuda_sub_edge(p->block_m, p->block_m);
    if (edge == 0 || p->block_n % 8 != 0 || p->block_n > WARPGROUP_COLS) return (tartan_cuda_tiling){0};
    if (edge == p->block_m && edge == p->block_n) {
        const int32_t rows = is_wide(p) ? 128 : 64;
        return (tartan_cuda_tiling){edge, rows, rows / edge};
    }
    const int32_t rows = p->block_m > 64 && p->block_m <= 128 ? 128 : 64;
    const int32_t lines = rows / p->block_m; /* whole block rows */
    return (tartan_cuda_tiling){edge, rows, lines == 0 ? rows / edge : lines * (p->block_m / edge)};
}

/* Boxes of 64 columns cost as much as 64 columns one by one: as many lines. */
tartan_cuda_columns tartan_cuda_sddmm_columns(const tartan_cuda_sddmm *p) {
    const int32_t width = p->block_n, divisor = width & -width;
    tartan_cuda_columns c = {width, width, 0};
    if (p->pair[0].y.row_stride == 1) return c;
    for (c.piece = 8; c.piece < 64 && c.piece < width;) c.piece *= 2;
    const int32_t boxes = (width + c.piece - 1) / c.piece;
    if (boxes * STAGE_K <= sddmm_most_read * width)
        c.pitch = boxes * c.piece;
    else
        c.piece = divisor < 64 ? divisor : 64;
    return c;
}

tartan_cuda_tile_form tartan_cuda_sddmm_form(int32_t rows, const tartan_cuda_columns *c) {
    const int32_t each = c->pitch / 2;
    return (tartan_cuda_tile_form){.entries = (rows == 64 ? 2 : 1) * (WARPGROUP_COLS / c->pitch),
                                   .base = rows / 2,
                                   .each = each < sddmm_least_entry_cost ? sddmm_least_entry_cost : each,
                                   .least = sddmm_products_cost,
                                   .by_column = c->width >= sddmm_whole_from};
}

/* The last round of whole tiles may leave many SMs idle. The others then read faster, but they cannot multiply faster. */
bool tartan_cuda_sddmm_whole(int64_t tiles, int64_t cost, int32_t width, int64_t steps, int32_t sms) {
    if (steps < TARTAN_CUDA_FEW_STEPS) return true;
    const int64_t rounds = tartan_i_ceil_div(tiles, sms);
    return width >= sddmm_whole_from &&
           (double)rounds * sddmm_products_cost * sms <= sddmm_whole_slack * (double)cost;
}

bool tartan_cuda_sddmm_transposes(const tartan_cuda_sddmm *p, int64_t tiles, int32_t sms) {
    const tartan_cuda_columns c = tartan_cuda_sddmm_columns(p);
    if (c.piece == 0 || c.piece > 16) return false;
    double elements = 0, steps = 0;
    for (int32_t i = 0; i < p->pairs; i++) {
        const double k = (double)p->pair[i].k * (double)p->pair[i].batch.entries;
        elements += k * (double)p->n * (double)p->heads;
        steps += k / STAGE_K;
    }
    return sddmm_step_us * steps * (double)tiles / sms > 4 * elements / sddmm_copy_bytes_us + sddmm_copy_us;
}
