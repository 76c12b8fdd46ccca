/* SPDX-License-Identifier: Apache-2.0
 * Tuning of attention. */
#include "tune.h"

#include <math.h>

/* What a plain kernel takes for a pair of a query and a key, in 1e-12 s: `scores` products of tokens, and `sums` of weighted
 * tokens. A CTA owns up to `most_rows` tokens of a block and `most_cols` elements of their sums. */
static double plain_time(const tartan_cuda_attention *p, int32_t block, int32_t most_rows, int32_t most_cols,
                         int32_t scores, int32_t sums) {
    const int32_t rows = block <= 16 ? 16 : block <= 32 || most_rows == 32 ? 32 : 64;
    const int32_t pieces = (block + rows - 1) / rows;
    const int64_t cols = p->d <= 64 || most_cols == 64 ? 64 : 128,
                  strips = p->d > cols ? (p->d - 1) / cols + 1 : 1;
    const double work = 2.0 * (double)strips * (double)(scores * p->d + sums * cols);
    const double rate = p->dtype == TARTAN_F64 ? 6 : rows == 64 ? 12 : rows == 32 ? 10 : 7;
    return work / rate * pieces * rows / block;
}

double tartan_cuda_attention_forward_plain_rate(const void *problem) {
    const tartan_cuda_attention *p = &((const tartan_cuda_attention_forward *)problem)->in;
    const int32_t rows = p->dtype == TARTAN_F64 ? 32 : 64;
    return 4.0 * (double)p->d / plain_time(p, p->block_q, rows, 128, 1, 1);
}

double tartan_cuda_attention_backward_plain_rate(const void *problem) {
    const tartan_cuda_attention *p = &((const tartan_cuda_attention_backward *)problem)->in;
    const int32_t cols = p->dtype == TARTAN_F64 ? 64 : 128;
    return 10.0 * (double)p->d /
           (plain_time(p, p->block_q, 32, 128, 2, 1) + plain_time(p, p->block_k, 32, cols, 2, 2));
}

/* What a bias and dropout leave of the rate: a number from memory for each score, and random words, cost more than the
 * products. */
static double extras_share(const tartan_cuda_attention *p) {
    const double bias = p->bias == NULL ? 1 : p->bias_kind == TARTAN_I_BIAS_DISTANCE ? 0.4 : 0.8;
    return bias * (p->dropout > 0 ? 0.35 : 1);
}

/* A CTA takes 64 or 128 rows, all with the merged list of the block rows in them. Rates for heads of up to 64, 128 and 256
 * elements where all blocks are stored, H100. */
static const double wgmma_rates[2][3] = {{330, 520, 490}, {460, 715, 800}};

double tartan_cuda_attention_forward_wgmma_rate(const void *problem) {
    const tartan_cuda_attention *p = &((const tartan_cuda_attention_forward *)problem)->in;
    int32_t lines = 0;
    while (p->block_q << lines < 64) lines++;
    const double rate = wgmma_rates[p->block_q == 128][p->d <= 64 ? 0 : p->d <= 128 ? 1 : 2];
    return rate * extras_share(p) * p->figures.share[0][lines] / (1 << lines);
}

/* What part of a tile of `rows` tokens, of blocks of that edge, counts on average: `by_keys` says which side is kept. */
static double counting(const tartan_cuda_attention *p, bool by_keys, int32_t rows) {
    const int32_t edge = by_keys ? p->block_k : p->block_q;
    int32_t lines = 0;
    while (edge << lines < rows) lines++;
    return p->figures.share[by_keys][lines] / (1 << lines);
}

/* A backward pass that comes near `rate` where queries see many keys, and takes `each` * d / 128 more for a query, in 1e-12 s: its
 * share of the beginnings and ends of tiles, and what the pass moves whatever the layout. */
static double with_fixed_cost(const tartan_cuda_attention *p, double rate, double each) {
    const double lines = (double)p->layout_heads * (double)p->grid_q;
    const double keys = lines > 0 ? (double)p->blocks * p->block_k / lines : 0; /* that a query sees */
    if (keys <= 0) return rate;
    const double work = 10.0 * (double)p->d * keys;
    return work / (work / rate + each * (double)p->d / 128);
}

/* 3 products for dq, whose tiles are of queries, and 4 for dk and dv. */
double tartan_cuda_attention_backward_wgmma_rate(const void *problem) {
    const tartan_cuda_attention *p = &((const tartan_cuda_attention_backward *)problem)->in;
    const double rate = p->d > 64 ? 490 : p->block_q == 128 && p->block_k == 128 ? 385 : 345;
    return with_fixed_cost(
        p, 7 * rate * extras_share(p) / (3 / counting(p, false, 64) + 4 / counting(p, true, 64)), 680);
}

/* A CTA has tiles of 128 keys, or two teams with tiles of 64. Sums of dq are cleared and rounded, so it pays where queries see
 * more than some 1000 keys. */
double tartan_cuda_attention_backward_fused_rate(const void *problem) {
    const tartan_cuda_attention *p = &((const tartan_cuda_attention_backward *)problem)->in;
    const bool one_team = p->d > 64 || p->block_k == 128;
    const double rate = p->d > 64 ? 583 : one_team ? 365 : 390;
    return with_fixed_cost(p, rate * counting(p, true, one_team ? 128 : 64), 1090);
}

/* With one head after the other, the long lists of the last head are begun last, and other CTAs wait for them; tiles of
 * several heads at a time balance that, but share fewer of the bytes that stream past. So there are as many heads as fit in
 * a part of L2, or as leave so many tiles of each head in work that each block is used by several of them. The constants are
 * from measurements (docs/lab/attention_gpu.md). */
int32_t tartan_cuda_attention_panel(const tartan_cuda_attention_tiles *t) {
    if (t->heads <= 1 || t->equal || t->lists <= 0) return 1;
    const double slot = t->entries * t->heads / t->slots; /* entries that a slot does in all */
    if (2 * t->longest > slot) return t->heads;
    const bool half = t->rows < 128; /* more bytes for each product */
    const double uses = half ? 26 : t->adds ? 10 : 8, room = half ? 4e6 : 17e6;
    const double share = t->columns > 0 ? t->entries / (t->lists * t->columns) : 0;
    const double fit = t->head_bytes > 0 ? room / t->head_bytes : t->heads;
    const double used = t->longest > 0 ? share * t->slots / uses : 0; /* else entries are a bound alone */
    const double panel = fit > used ? fit : used;
    return panel < 1 ? 1 : panel > t->heads ? t->heads : (int32_t)panel;
}

/* The SMs share the work equally, but for the last tile of each, which is half a long one on average, and nothing ends before
 * the longest tile. Which blocks there are must not matter here, so a tile of keys is assumed to see a quarter of the queries,
 * and the longest one half; causal ones as much as there can be. A step of 64 queries and 128 keys of 128 elements takes
 * 1.85e-6 s (600 TFLOP/s), a tile 3.4e-6 s beside its steps; sums in f32 are written and read at 3e12 bytes a second, after a
 * launch of 5e-6 s. */
int32_t tartan_cuda_attention_key_parts(const tartan_cuda_attention_keys *t) {
    const double step = 1.85 / (128 * 128) * t->tile * t->teams * t->d,
                 most = (t->causal ? 1 : 0.5) * t->queries / 64;
    const double bytes = 8 * t->matrices * t->keys * t->d;
    int32_t best = 1;
    double least = 0;
    if (bytes <= 0) return 1; /* nothing to add up */
    for (int32_t parts = 1; parts <= t->heads; parts++) {
        if (t->heads % parts != 0) continue;
        const double heads = t->heads / parts, tiles = t->matrices * ceil(t->keys / t->tile) * parts;
        const double longest = 3.4 + heads * most * step;
        const double share = tiles * (3.4 + heads * most / 2 * step) / t->slots;
        double time = tiles > t->slots ? share + longest / 2 : longest;
        if (time < longest) time = longest;
        if (parts > 1) time += 5 + 2 * parts * bytes / 3e6;
        if (parts == 1 || time < 0.97 * least) best = parts, least = time;
    }
    return best;
}
