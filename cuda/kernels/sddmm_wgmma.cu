/* SPDX-License-Identifier: Apache-2.0
 * Sampled dense times dense on Hopper's tensor cores: the pipeline of spmm_wgmma.cu with the sparse matrix as output. A
 * tile takes a group of neighbouring block rows, 64 or 128 rows together, and some entries of the merged list of their
 * block columns: X is loaded once for the group, and each entry brings its columns of Y. Blocks that are not square or no
 * powers of two are cut into slices of rows (index.h). k-steps run over the summed index;
 * sums at positions where the group has no block are not stored.
 *
 * What limits it: bytes from L2 to the SMs, 72 KB a stage for 64 x 512 sums, 48 KB for 128 x 256; entries that a tile
 * lacks are not loaded. A warp issues TMA loads one after another, so three warps do; for blocks of 8 and 16 columns the
 * number of boxes still counts.
 *
 * How tiles become work (the choice is in tune.h and stream_k.h):
 *   whole     Many tiles: CTAs take whole ones, ordered by their first column, so that all CTAs read near columns of Y. The
 *             tiles of a dynamic layout, which a kernel before this one makes, always go whole.
 *   stream-K  Fewer tiles: split all k-steps into one range of equal cost per CTA; a CTA that does not finish a tile
 *             writes partial sums, and the one that does adds them in a fixed order. Whole tiles in the middle of a range
 *             start anywhere in their sum and wrap around, so that most CTAs read the same part of X and Y at a time.
 *   split-K   So few tiles that each can have a cluster of two to four CTAs: they split the sum evenly, all clusters in
 *             step, and exchange partial sums through distributed shared memory. */
#include "kernels/sddmm_wgmma.cuh"

#include "device/tensor_map.h"
#include "device_memory.h"
#include "index_cache.h"
#include "kernels.h"
#include "kernels/align.h"
#include "kernels/transpose.h"

namespace tartan_cuda {

namespace {

/* A factor in five dimensions, so that heads and batch entries are coordinates: `lines` rows of X or columns of Y,
 * `line_stride` apart, of k elements `k_stride` apart, in boxes of `box` lines. The stride of a dimension of length 1 may
 * be any multiple of 16 bytes. */
struct Factors {
    const void *data;
    int32_t dtype;
    int64_t lines, k, line_stride, k_stride, heads, head_stride, entries, entry_stride;
    uint32_t box;
};

tartan_status map_factors(const char *function, const Factors &f, bool mn_major, CUtensorMap *out) {
    const int64_t head = f.heads > 1 ? f.head_stride : 8, entry = f.entries > 1 ? f.entry_stride : 8;
    Tensor t = {f.data,
                f.dtype,
                5,
                {f.k, f.lines, 1, f.heads, f.entries},
                {1, f.line_stride, 8, head, entry},
                {kStepK, f.box, 1, 1, 1},
                kStageBytes};
    if (mn_major) {
        t.lengths[0] = f.lines;
        t.lengths[1] = f.k;
        t.strides[1] = f.k_stride;
        t.box[0] = f.box;
        t.box[1] = kStepK;
        t.span = (int32_t)(2 * f.box);
    }
    return tensor_map_make(function, &t, out);
}

/* The copy of Y that tartan_cuda_transpose_half makes. */
tartan_status map_transposed(const char *function, const Factors &f, CUtensorMap *out) {
    const int64_t parts = (f.k + kStepK - 1) / kStepK, size = parts * kStepK * f.lines;
    const Tensor t = {f.data,
                      f.dtype,
                      5,
                      {kStepK, f.lines, parts, f.heads, f.entries},
                      {1, kStepK, kStepK * f.lines, size, f.heads * size},
                      {kStepK, f.box, 1, 1, 1},
                      kStageBytes};
    return tensor_map_make(function, &t, out);
}

template <int kRows>
tartan_status map_pairs(const char *function, const tartan_cuda_sddmm *p, const Problem *g,
                        const char *transposed, Maps *maps) {
    for (int32_t i = 0; i < p->pairs; i++) {
        const auto &pair = p->pair[i];
        const int64_t entries = pair.batch.entries;
        Factors x = {pair.x.data,
                     p->dtype,
                     p->m,
                     pair.k,
                     pair.x.row_stride,
                     pair.x.col_stride,
                     p->heads,
                     pair.x.head_stride,
                     entries,
                     pair.batch.first[0],
                     g->x_mn_major ? 64u : (uint32_t)g->tile_rows};
        Factors y = {pair.y.data,
                     p->dtype,
                     p->n,
                     pair.k,
                     pair.y.col_stride,
                     pair.y.row_stride,
                     p->heads,
                     pair.y.head_stride,
                     entries,
                     pair.batch.second[0],
                     (uint32_t)g->box_cols};
        PASS(map_factors(function, x, g->x_mn_major, &maps->x[i]));
        if (g->y_transposed) {
            y.data = transposed;
            transposed += 2 * entries * p->heads * g->pair[i].per_entry * kStepK * p->n;
            PASS(map_transposed(function, y, &maps->y[i]));
        } else {
            PASS(map_factors(function, y, g->y_mn_major, &maps->y[i]));
        }
    }
    return TARTAN_OK;
}

void describe_sums(const tartan_cuda_sddmm *p, Problem *g) {
    g->pairs = p->pairs;
    for (int32_t i = 0; i < p->pairs; i++) {
        const int64_t entries = p->pair[i].batch.entries, per_entry = (p->pair[i].k + kStepK - 1) / kStepK;
        g->pair[i] = {(int32_t)p->pair[i].k, (int32_t)entries, g->steps, (int32_t)per_entry};
        g->steps += (int32_t)(entries * per_entry);
    }
}

void describe_blocks(const tartan_cuda_sddmm *p, const tartan_cuda_tiling *t, const tartan_cuda_columns *c,
                     const tartan_cuda_group_index *u, Blocks *b) {
    const int32_t elements = p->block_m * p->block_n;
    const bool whole = elements == t->edge * t->edge;
    b->values = (char *)p->values;
    b->dtype = p->s_dtype;
    b->edge = t->edge;
    while (1 << b->shift < t->edge) b->shift++;
    b->width = p->block_n;
    b->pitch = c->pitch;
    b->per_pitch = (65536 + (uint32_t)b->pitch / 8 - 1) / ((uint32_t)b->pitch / 8);
    b->id_shift = whole ? 2 * b->shift : b->shift;
    b->units = whole ? 1 : elements / t->edge;
    b->stride_m = p->s_m, b->stride_n = p->s_n;
    b->vectors = p->beta == 0 && p->s_dtype != TARTAN_F32 && (uintptr_t)p->values % 16 == 0;
    b->by_cols = p->s_n != 1;
    b->alpha = (float)p->alpha, b->beta = (float)p->beta;
    b->gates = p->gates;
    b->m = p->m, b->n = p->n;
    b->group = u->group;
    b->cols = u->cols, b->ids = u->ids;
}

/* The layout of stages, and the boxes that fill them. */
template <int kRows> void describe_stages(Problem *g) {
    const uint32_t cols = Form<kRows>::kCols, piece = (uint32_t)g->piece; /* if Y is MN-major */
    g->feed_x =
        g->x_mn_major ? feed_mn_major(kRows / 64, 1, 128, kStageBytes) : feed_k_major(kRows, 64, kStageBytes);
    g->boxes_x = g->x_mn_major ? kRows / 64 : 1;
    g->feed_y = g->y_mn_major ? feed_mn_major(cols / piece, kTileCols / piece, 2 * piece, kStageBytes)
                              : feed_k_major(cols, kTileCols, kStageBytes);
    g->box_cols = g->y_mn_major ? (int32_t)piece : g->blocks.width;
    g->boxes_y = g->blocks.pitch / g->box_cols;
    g->box_bytes_x = (g->x_mn_major ? 64 : g->tile_rows) * kStageBytes;
    g->box_bytes_y = g->box_cols * kStageBytes;
    g->sides = kRows == 64;
}

/* ---- A copy of Y with k contiguous ---- */

/* Y of a pair, MN-major. */
tartan_cuda_transpose_source source_of(const tartan_cuda_sddmm *p, int32_t i) {
    const auto &pair = p->pair[i];
    return {pair.y.data,
            pair.k,
            p->n,
            pair.y.row_stride,
            p->heads,
            pair.y.head_stride,
            pair.batch.entries,
            pair.batch.second[0]};
}

/* Copies of Y of all pairs, one after another; NULL, which is no error, if memory is short. */
tartan_status transpose_pairs(const char *function, tartan_cuda_queue *queue, const tartan_cuda_sddmm *p,
                              void **out) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < p->pairs; i++) {
        const tartan_cuda_transpose_source source = source_of(p, i);
        bytes += tartan_cuda_transposed_bytes(&source);
    }
    tartan_status status = tartan_cuda_scratch(function, queue, bytes, out);
    if (status == TARTAN_ERR_MEMORY) return TARTAN_OK;
    char *to = (char *)*out;
    for (int32_t i = 0; i < p->pairs && status == TARTAN_OK; i++) {
        const tartan_cuda_transpose_source source = source_of(p, i);
        status = tartan_cuda_transpose_half(function, queue, &source, to);
        to += tartan_cuda_transposed_bytes(&source);
    }
    if (status == TARTAN_OK) return TARTAN_OK;
    tartan_cuda_scratch_free(queue, *out);
    *out = nullptr;
    return status;
}

/* ---- Tiles of dynamic layouts, made on the device ---- */

enum { kCutThreads = 1024 };

/* As tartan_cuda_index_tiles, in the order of the group index (the longest groups of a head first). One CTA. */
__global__ void __launch_bounds__(kCutThreads)
    cut_tiles(tartan_cuda_group_index u, int32_t groups, int32_t entries, int4 *tiles, int32_t *count) {
    __shared__ int32_t warps[32];
    const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int32_t before = 0;
    for (int32_t first = 0; first < groups; first += kCutThreads) {
        const int32_t place = first + (int32_t)threadIdx.x, group = place < groups ? u.order[place] : -1;
        const int32_t begin = group < 0 ? 0 : u.pointers[group];
        const int32_t length = group < 0 ? 0 : u.pointers[group + 1] - begin;
        const int32_t mine = (length + entries - 1) / entries;
        int32_t upto = mine;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const int32_t left = __shfl_up_sync(~0u, upto, step);
            if (lane >= step) upto += left;
        }
        if (lane == 31) warps[warp] = upto;
        __syncthreads();
        int32_t others = 0, all = 0; /* of earlier warps, of all */
        for (int32_t w = 0; w < 32; w++) {
            if (w < warp) others += warps[w];
            all += warps[w];
        }
        int4 *to = tiles + before + others + upto - mine;
        for (int32_t i = 0, at = begin; i < mine; i++) {
            const int32_t next = at + length / mine + (i < length % mine);
            to[i] = make_int4(group, at, next, 0);
            at = next;
        }
        before += all;
        __syncthreads();
    }
    if (threadIdx.x == 0) *count = before;
}

/* Has them made in scratch memory, the count first; tiles->count is an upper bound. */
tartan_status make_tiles(const char *function, tartan_cuda_queue *queue, const tartan_cuda_group_index *u,
                         int64_t heads, int32_t entries, void **out_scratch, tartan_cuda_tile_index *tiles) {
    enum { kHead = 128 };
    const int64_t groups = heads * u->groups_per_head, most = groups + u->entries / entries;
    PASS(tartan_cuda_scratch(function, queue, kHead + most * (int64_t)sizeof(int4), out_scratch));
    int32_t *values = (int32_t *)((char *)*out_scratch + kHead);
    *tiles = {most, nullptr, values};
    cut_tiles<<<1, kCutThreads, 0, queue->stream>>>(*u, (int32_t)groups, entries, (int4 *)values,
                                                    (int32_t *)*out_scratch);
    const tartan_status status = tartan_cuda_check(function, cudaGetLastError(), "making tiles");
    if (status != TARTAN_OK) tartan_cuda_scratch_free(queue, *out_scratch);
    return status;
}

/* ---- Launching ---- */

using Kernel = void (*)(Problem, Maps);

template <Factor kFactor, int kRows> Kernel kernel_of(bool x_mn_major, bool y_mn_major) {
    if (x_mn_major) return y_mn_major ? sddmm<kFactor, 1, 1, kRows> : sddmm<kFactor, 1, 0, kRows>;
    return y_mn_major ? sddmm<kFactor, 0, 1, kRows> : sddmm<kFactor, 0, 0, kRows>;
}

/* Decides how tiles become work; allocates room for partial sums if there are any. */
tartan_status divide(const char *function, tartan_cuda_queue *queue, const tartan_cuda_tile_index &tiles,
                     Problem *g, int32_t *out_ctas) {
    const int32_t most = queue->chip.processors < kMaxCtas ? queue->chip.processors : kMaxCtas;
    g->count = (int32_t)tiles.count;
    g->tiles = (const int4 *)tiles.values;
    g->counters = queue->counters + TARTAN_CUDA_SIDED_SETS * TARTAN_CUDA_SIDED_COUNTERS;
    g->flags = g->counters + TARTAN_CUDA_COUNTERS;
    g->whole = g->made != nullptr || tartan_cuda_sddmm_whole(tiles.count, tiles.costs[tiles.count],
                                                             g->blocks.width, g->steps, most);
    if (g->whole) {
        *out_ctas = g->count < most ? g->count : most;
        return TARTAN_OK;
    }
    g->sharers = tartan_cuda_sharers_of(tiles.count, g->steps, most);
    if (g->sharers > 1) {
        *out_ctas = g->sharers * g->count;
        return TARTAN_OK;
    }
    *out_ctas = tartan_cuda_parts_of(tiles.count, g->steps, most);
    tartan_cuda_cuts_of(&tiles, g->steps, *out_ctas, g->cuts);
    void *sums = nullptr;
    PASS(tartan_cuda_scratch(function, queue, (int64_t)*out_ctas * kSumBytes, &sums));
    g->sums = (char *)sums;
    return TARTAN_OK;
}

template <int kRows>
tartan_status start(const char *function, tartan_cuda_queue *queue, const tartan_cuda_sddmm *p,
                    const tartan_cuda_tile_index &tiles, const char *transposed, bool early, Problem *g) {
    Maps maps = {};
    describe_stages<kRows>(g);
    PASS(map_pairs<kRows>(function, p, g, transposed, &maps));
    const Kernel kernel = p->dtype == TARTAN_F16
                              ? kernel_of<Factor::f16, kRows>(g->x_mn_major, g->y_mn_major)
                              : kernel_of<Factor::bf16, kRows>(g->x_mn_major, g->y_mn_major);
    const cudaError_t error = cudaFuncSetAttribute(
        (const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)Exchange<kRows>::kShared);
    PASS(tartan_cuda_check(function, error, "setting the kernel's shared memory"));
    int32_t ctas;
    PASS(divide(function, queue, tiles, g, &ctas));
    const cudaError_t launched =
        tartan_cuda_launch_clusters(queue, early, (uint32_t)g->sharers, kernel, dim3((unsigned)ctas),
                                    dim3(kThreads), Exchange<kRows>::kShared, *g, maps);
    tartan_cuda_scratch_free(queue, g->sums);
    return tartan_cuda_check(function, launched, "starting the kernel sddmm_wgmma");
}

template <int kRows>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const tartan_cuda_sddmm *p,
                     const tartan_cuda_tiling *tiling) {
    tartan_cuda_group_index u;
    tartan_cuda_tile_index tiles;
    const tartan_cuda_columns columns = tartan_cuda_sddmm_columns(p);
    const tartan_cuda_tile_form form = tartan_cuda_sddmm_form(kRows, &columns);
    const tartan_cuda_sub_blocks slices = {tiling->edge, p->s_m, p->s_n, TARTAN_CUDA_SLICES};
    if (tiling->edge == p->block_m && tiling->edge == p->block_n)
        PASS(tartan_cuda_index_get_groups(function, queue, p->layout, false, tiling->group, &u));
    else
        PASS(tartan_cuda_index_get_sub_groups(function, queue, p->layout, false, &slices, tiling->group, &u));
    void *made = nullptr;
    if (tartan_i_is_dynamic(p->layout))
        PASS(make_tiles(function, queue, &u, p->heads, form.entries, &made, &tiles));
    else
        PASS(tartan_cuda_index_get_tiles(function, queue, p->layout, &u, &form, &tiles));
    Problem g = {};
    g.sharers = 1;
    g.made = (const int32_t *)made;
    describe_blocks(p, tiling, &columns, &u, &g.blocks);
    g.piece = columns.piece;
    g.tile_rows = tiling->group * tiling->edge;
    describe_sums(p, &g);
    g.groups = u.groups_per_head;
    g.x_mn_major = p->pair[0].x.row_stride == 1;
    g.y_mn_major = p->pair[0].y.row_stride != 1;
    void *transposed = nullptr;
    tartan_status status = TARTAN_OK;
    if (g.y_mn_major && tartan_cuda_sddmm_transposes(p, tiles.count, queue->chip.processors))
        status = transpose_pairs(function, queue, p, &transposed);
    g.y_transposed = transposed != nullptr;
    if (g.y_transposed) g.y_mn_major = false;
    const bool early = tartan_cuda_starts_early(queue, p->layout);
    if (status == TARTAN_OK)
        status = start<kRows>(function, queue, p, tiles, (const char *)transposed, early, &g);
    tartan_cuda_scratch_free(queue, transposed);
    tartan_cuda_scratch_free(queue, made);
    return status;
}

} // namespace

} // namespace tartan_cuda

tartan_status tartan_cuda_sddmm_wgmma(const char *function, tartan_cuda_queue *queue, const void *problem) {
    using namespace tartan_cuda;
    tartan_cuda_sddmm p = *(const tartan_cuda_sddmm *)problem;
    void *copies[2 * TARTAN_I_MAX_PAIRS];
    tartan_status status = tartan_cuda_align_pairs(function, queue, &p, copies);
    const tartan_cuda_tiling tiling = tartan_cuda_sddmm_tiling(&p);
    if (status == TARTAN_OK)
        status = tiling.rows == 128 ? launch<128>(function, queue, &p, &tiling)
                                    : launch<64>(function, queue, &p, &tiling);
    for (void *copy : copies) tartan_cuda_scratch_free(queue, copy);
    return status;
}
