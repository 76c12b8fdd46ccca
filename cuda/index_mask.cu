/* SPDX-License-Identifier: Apache-2.0
 * From a mask of bytes to index sets in three launches: bitmaps of both directions; the number of entries of every line (or
 * group of lines) and prefix sums; entries and pointers. At the sizes of attention masks, launches and latency are the
 * cost, so no kernel waits for a single CTA, and all but the first read bitmaps, an eighth of the mask. */
#include "index_mask.h"

#include "device_memory.h"

namespace {

/* A CTA counts a bundle of groups, one warp each; prefix sums go over bundles. */
enum { TILE = 32, WARPS = 8, BUNDLE = 32, COUNT_THREADS = 32 * BUNDLE };

/* One index set: a direction of the mask, and groups of its lines. */
struct lines {
    tartan_cuda_mask_index is;
    const uint32_t *bits;
    int32_t words, grid, group, group_shift, groups_per_head, groups, bundles;
    int32_t *lengths; /* [groups]: entries of each group */
    int32_t *before;  /* [groups][words]: entries of the bundle before that word of the group */
    int32_t *sums;    /* [bundles]: entries of each bundle, then of all earlier bundles */
};

struct work {
    tartan_cuda_mask mask;
    int32_t row_words, col_words; /* words of a line of each direction */
    uint32_t tiles;               /* heads * col_words * row_words */
    uint32_t *row_bits;           /* [heads * grid_rows][row_words] */
    uint32_t *col_bits;           /* [heads * grid_cols][col_words] */
    uint32_t *counted;            /* [count]: bundles that have been counted */
    int32_t *blocks;
    int32_t capacity, count;
    lines index[TARTAN_CUDA_MAX_INDEXES];
};

__device__ __forceinline__ int32_t lane_number() {
    return (int32_t)(threadIdx.x % 32);
}

__device__ __forceinline__ uint32_t below(int32_t bit) {
    return (1u << bit) - 1;
}

/* Inclusive prefix sum over the lanes. */
__device__ __forceinline__ int32_t running_sum(int32_t value) {
    const int32_t lane = lane_number();
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int32_t left = __shfl_up_sync(0xffffffffu, value, step);
        if (lane >= step) value += left;
    }
    return value;
}

/* A tile of 32 x 32 positions, for one warp. */
struct tile {
    int64_t head;
    int32_t row, col; /* the first ones */
};

__device__ __forceinline__ bool find_tile(const work &w, tile *t) {
    const uint32_t number = blockIdx.x * WARPS + threadIdx.x / 32, rest = number / (uint32_t)w.row_words;
    if (number >= w.tiles) return false;
    t->head = rest / (uint32_t)w.col_words;
    t->row = (int32_t)(rest % (uint32_t)w.col_words) * TILE;
    t->col = (int32_t)(number % (uint32_t)w.row_words) * TILE;
    return true;
}

/* A warp writes the bitmaps of a tile, of its rows and, by ballots, of its columns. */
__global__ void __launch_bounds__(32 * WARPS) make_bits(const __grid_constant__ work w) {
    if (blockIdx.x == 0 && (int32_t)threadIdx.x < w.count) w.counted[threadIdx.x] = 0;
    const int32_t lane = lane_number(), cols = w.mask.grid_cols;
    tile t;
    if (!find_tile(w, &t)) return;
    const int32_t rows_here = w.mask.grid_rows - t.row;
    const bool inside = t.col + lane < cols;
    const uint8_t *from = w.mask.bytes + (t.head * w.mask.grid_rows + t.row) * cols + t.col + lane;
    uint8_t bytes[TILE]; /* all loads are issued before the first use */
#pragma unroll
    for (int32_t r = 0; r < TILE; r++)
        bytes[r] = inside && r < rows_here ? __ldg(from + (int64_t)r * cols) : (uint8_t)0;
    uint32_t mine = 0, across = 0;
#pragma unroll
    for (int32_t r = 0; r < TILE; r++) {
        const uint32_t word = __ballot_sync(0xffffffffu, bytes[r] != 0);
        if (lane == r) mine = word;
    }
#pragma unroll
    for (int32_t c = 0; c < TILE; c++) {
        const uint32_t word = __ballot_sync(0xffffffffu, mine >> c & 1);
        if (lane == c) across = word;
    }
    const int64_t row = t.head * w.mask.grid_rows + t.row + lane, col = t.head * cols + t.col + lane;
    if (lane < rows_here) w.row_bits[row * w.row_words + t.col / TILE] = mine;
    if (inside) w.col_bits[col * w.col_words + t.row / TILE] = across;
}

/* One word of the merged bitmap of a group; 0 past the end. */
__device__ __forceinline__ uint32_t merged_word(const lines &l, int64_t first, int32_t count, int32_t word) {
    uint32_t bits = 0;
    if (word < l.words)
        for (int32_t r = 0; r < count; r++) bits |= __ldg(l.bits + (first + r) * l.words + word);
    return bits;
}

/* First line of a group, counted over all heads, and the number of its lines. */
__device__ __forceinline__ int64_t group_lines(const lines &l, int32_t group, int32_t *count) {
    const int32_t head = group / l.groups_per_head, line = group % l.groups_per_head * l.group;
    *count = min(l.group, l.grid - line);
    return (int64_t)head * l.grid + line;
}

/* Replaces each bundle's sum by the sum of all earlier bundles; returns the total. By a whole CTA. */
__device__ int32_t sum_bundles(int32_t *sums, int32_t bundles) {
    __shared__ int32_t of_warps[32];
    const int32_t lane = lane_number(), warp = (int32_t)(threadIdx.x / 32);
    int32_t total = 0;
    for (int32_t begin = 0; begin < bundles; begin += COUNT_THREADS) {
        const int32_t i = begin + (int32_t)threadIdx.x;
        const int32_t own = i < bundles ? __ldcg(sums + i) : 0, sum = running_sum(own);
        if (lane == 31) of_warps[warp] = sum;
        __syncthreads();
        if (warp == 0) of_warps[lane] = running_sum(of_warps[lane]);
        __syncthreads();
        if (i < bundles) sums[i] = total + (warp > 0 ? of_warps[warp - 1] : 0) + sum - own;
        total += of_warps[31];
        __syncthreads();
    }
    return total;
}

/* A CTA counts a bundle of groups, and the entries of the bundle before each word. The last CTA of an index set to finish
 * computes the prefix sums. */
__global__ void __launch_bounds__(COUNT_THREADS) count_entries(const __grid_constant__ work w) {
    __shared__ int32_t lengths[BUNDLE];
    __shared__ bool last;
    const int32_t number = (int32_t)blockIdx.y, lane = lane_number(), warp = (int32_t)(threadIdx.x / 32);
    const lines &l = w.index[number];
    const int32_t bundle = (int32_t)blockIdx.x, group = bundle * BUNDLE + warp;
    if (bundle >= l.bundles) return;
    int32_t lines_here = 0, length = 0;
    const int64_t first = group < l.groups ? group_lines(l, group, &lines_here) : 0;
    for (int32_t word = lane; word < l.words; word += 32)
        length += __popc(merged_word(l, first, lines_here, word));
    length = (int32_t)__reduce_add_sync(0xffffffffu, (uint32_t)length);
    if (lane == 0) {
        lengths[warp] = length;
        if (group < l.groups) l.lengths[group] = length;
    }
    __syncthreads();
    const int32_t sum = running_sum(lengths[lane]), all = __shfl_sync(0xffffffffu, sum, 31);
    if (group < l.groups) {
        int32_t at = __shfl_sync(0xffffffffu, sum, warp) - length;
        for (int32_t begin = 0; begin < l.words; begin += 32) {
            const int32_t here = __popc(merged_word(l, first, lines_here, begin + lane)),
                          upto = running_sum(here);
            if (begin + lane < l.words) l.before[(int64_t)group * l.words + begin + lane] = at + upto - here;
            at += __shfl_sync(0xffffffffu, upto, 31);
        }
    }
    if (threadIdx.x == 0) {
        __stcg(l.sums + bundle, all);
        __threadfence();
        last = atomicAdd(w.counted + number, 1u) == (uint32_t)l.bundles - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    const int32_t total = sum_bundles(l.sums, l.bundles);
    if (number == 0 && threadIdx.x == 0) *w.blocks = total;
}

/* The place of the first entry of a group in a word. */
__device__ __forceinline__ int32_t entry_at(const lines &l, int64_t group, int32_t word) {
    return __ldg(l.sums + group / BUNDLE) + __ldg(l.before + group * l.words + word);
}

/* A lane's row of a tile: its positions, and the id of the first of them. */
struct row_of_tile {
    uint32_t positions;
    int32_t id;
};

__device__ __forceinline__ int32_t within(int32_t id, int32_t capacity) {
    return id < capacity ? id : -1;
}

/* The entries of a tile in an index by rows: group by group, a lane for each column. */
template <int GROUP>
__device__ __forceinline__ void fill_rows(const work &w, const lines &l, const tile &t,
                                          const row_of_tile &row) {
    const int32_t lane = lane_number(), group = (t.row + lane) >> l.group_shift;
    uint32_t merged = row.positions;
#pragma unroll
    for (int32_t step = 1; step < GROUP; step *= 2) merged |= __shfl_xor_sync(0xffffffffu, merged, step);
    const int32_t at =
        t.row + lane < l.grid ? entry_at(l, t.head * l.groups_per_head + group, t.col / TILE) : 0;
    int32_t *cols = l.is.cols, *ids = l.is.ids;
#pragma unroll 4
    for (int32_t first = 0; first < TILE; first += GROUP) {
        const uint32_t bits = __shfl_sync(0xffffffffu, merged, first);
        const int32_t e = __shfl_sync(0xffffffffu, at, first) + __popc(bits & below(lane));
        const bool there = (bits >> lane & 1) != 0 && e < w.capacity;
        if (there) cols[e] = t.col + lane;
        if (ids == nullptr) continue;
#pragma unroll
        for (int32_t r = 0; r < GROUP; r++) {
            const uint32_t line = __shfl_sync(0xffffffffu, row.positions, first + r);
            const int32_t id = __shfl_sync(0xffffffffu, row.id, first + r) + __popc(line & below(lane));
            if (there) ids[(int64_t)e * GROUP + r] = line >> lane & 1 ? within(id, w.capacity) : -1;
        }
    }
}

/* The same by columns: a lane for each row. */
template <int GROUP>
__device__ __forceinline__ void fill_cols(const work &w, const lines &l, const tile &t,
                                          const row_of_tile &row) {
    const int32_t lane = lane_number(), group = (t.col + lane) >> l.group_shift;
    const uint32_t mask = GROUP < TILE ? below(GROUP % TILE) : 0xffffffffu;
    const int32_t at =
        t.col + lane < l.grid ? entry_at(l, t.head * l.groups_per_head + group, t.row / TILE) : 0;
    int32_t *cols = l.is.cols, *ids = l.is.ids, id = row.id;
#pragma unroll 4
    for (int32_t first = 0; first < TILE; first += GROUP) {
        const uint32_t here = row.positions >> first & mask, bits = __ballot_sync(0xffffffffu, here != 0);
        const int32_t e = __shfl_sync(0xffffffffu, at, first) + __popc(bits & below(lane));
        const bool there = here != 0 && e < w.capacity;
        if (there) cols[e] = t.row + lane;
#pragma unroll
        for (int32_t r = 0; r < GROUP; r++) {
            const int32_t has = (int32_t)(here >> r & 1);
            if (there && ids != nullptr) ids[(int64_t)e * GROUP + r] = has ? within(id, w.capacity) : -1;
            id += has;
        }
    }
}

template <int GROUP>
__device__ __forceinline__ void fill(const work &w, const lines &l, const tile &t, const row_of_tile &row) {
    if (l.is.by_columns)
        fill_cols<GROUP>(w, l, t, row);
    else
        fill_rows<GROUP>(w, l, t, row);
}

/* A warp writes the entries of a tile. */
__device__ __forceinline__ void fill_tile(const work &w, const lines &l) {
    tile t;
    if (!find_tile(w, &t)) return;
    row_of_tile row = {0, 0};
    const int32_t lane = lane_number();
    if (t.row + lane < w.mask.grid_rows) {
        const int64_t number = t.head * w.mask.grid_rows + t.row + lane;
        row.positions = __ldg(w.row_bits + number * w.row_words + t.col / TILE);
        row.id = entry_at(w.index[0], number, t.col / TILE);
    }
    switch (l.group) {
    case 1:
        return fill<1>(w, l, t, row);
    case 2:
        return fill<2>(w, l, t, row);
    case 4:
        return fill<4>(w, l, t, row);
    case 8:
        return fill<8>(w, l, t, row);
    case 16:
        return fill<16>(w, l, t, row);
    default:
        return fill<32>(w, l, t, row);
    }
}

/* The rank of a group in its head by descending length; stable. */
__device__ __forceinline__ int32_t rank_of(const lines &l, int32_t begin, int32_t group) {
    const int32_t length = __ldg(l.lengths + group);
    int32_t before = 0;
    for (int32_t other = begin + lane_number(); other < begin + l.groups_per_head; other += 32) {
        const int32_t its = __ldg(l.lengths + other);
        before += its > length || (its == length && other < group);
    }
    return (int32_t)__reduce_add_sync(0xffffffffu, (uint32_t)before);
}

/* A warp writes the pointer of a group, and the group's place in the order. */
__device__ __forceinline__ void fill_pointer(const work &w, const lines &l) {
    const int32_t group = (int32_t)(blockIdx.x * WARPS + threadIdx.x / 32), lane = lane_number();
    if (l.groups == 0 && group == 0 && lane == 0) l.is.pointers[0] = 0;
    if (group >= l.groups) return;
    const int32_t start = l.words > 0 ? entry_at(l, group, 0) : 0, end = start + __ldg(l.lengths + group);
    const bool fits = __ldg(w.blocks) <= w.capacity; /* else there are no blocks */
    if (lane == 0) l.is.pointers[group] = fits ? start : 0;
    if (lane == 0 && group == l.groups - 1) l.is.pointers[l.groups] = fits ? end : 0;
    if (l.is.group == 0) return;
    const int32_t begin = group / l.groups_per_head * l.groups_per_head, rank = rank_of(l, begin, group);
    if (lane == 0) l.is.order[begin + rank] = group;
}

/* The first half of the grid's rows writes the entries of each index set, the second half the pointers. */
__global__ void __launch_bounds__(32 * WARPS) fill_indexes(const __grid_constant__ work w) {
    const int32_t number = (int32_t)blockIdx.y;
    if (number < w.count)
        fill_tile(w, w.index[number]);
    else
        fill_pointer(w, w.index[number - w.count]);
}

/* ---- On the host ---- */

void set_lines(work *w, const tartan_cuda_mask_index *index, lines *l) {
    l->is = *index;
    l->words = index->by_columns ? w->col_words : w->row_words;
    l->grid = index->by_columns ? w->mask.grid_cols : w->mask.grid_rows;
    l->group = index->group > 1 ? index->group : 1;
    while (1 << l->group_shift < l->group) l->group_shift++;
    l->groups_per_head = (l->grid + l->group - 1) / l->group;
    l->groups = l->groups_per_head * w->mask.heads;
    l->bundles = (l->groups + BUNDLE - 1) / BUNDLE;
}

/* Divides scratch memory into lists; with base NULL it only counts bytes. */
struct parts {
    char *base;
    int64_t bytes;
    template <typename T> T *take(int64_t count) {
        T *at = base == nullptr ? nullptr : (T *)(base + bytes);
        bytes += (count * (int64_t)sizeof(T) + 127) / 128 * 128;
        return at;
    }
};

int64_t divide(work *w, void *scratch) {
    parts p = {(char *)scratch, 0};
    const int64_t row_size = (int64_t)w->mask.heads * w->mask.grid_rows * w->row_words;
    const int64_t col_size = (int64_t)w->mask.heads * w->mask.grid_cols * w->col_words;
    w->row_bits = p.take<uint32_t>(row_size);
    w->col_bits = p.take<uint32_t>(col_size);
    w->counted = p.take<uint32_t>(w->count);
    for (int32_t i = 0; i < w->count; i++) {
        lines *l = &w->index[i];
        l->bits = l->is.by_columns ? w->col_bits : w->row_bits;
        l->lengths = p.take<int32_t>(l->groups);
        l->before = p.take<int32_t>((int64_t)l->groups * l->words);
        l->sums = p.take<int32_t>(l->bundles);
    }
    return p.bytes;
}

tartan_status launch(const char *function, tartan_cuda_queue *queue, const work &w) {
    const uint32_t tiles = w.tiles > 0 ? w.tiles : 1, count = (uint32_t)w.count;
    uint32_t groups = 1;
    for (int32_t i = 0; i < w.count; i++) groups = max(groups, (uint32_t)w.index[i].groups);
    const dim3 threads(32 * WARPS), bundles((groups - 1) / BUNDLE + 1, count);
    const dim3 warps((max(groups, tiles) - 1) / WARPS + 1, 2 * count);
    cudaError_t error = cudaSuccess;
    if (w.tiles == 0) error = cudaMemsetAsync(w.blocks, 0, sizeof *w.blocks, queue->stream);
    make_bits<<<(tiles - 1) / WARPS + 1, threads, 0, queue->stream>>>(w);
    count_entries<<<bundles, COUNT_THREADS, 0, queue->stream>>>(w);
    fill_indexes<<<warps, threads, 0, queue->stream>>>(w);
    if (error == cudaSuccess) error = cudaGetLastError();
    return tartan_cuda_check(function, error, "building index sets");
}

} // namespace

tartan_status tartan_cuda_index_from_mask(const char *function, tartan_cuda_queue *queue,
                                          const tartan_cuda_mask *mask, int32_t capacity,
                                          const tartan_cuda_mask_index *indexes, int32_t count,
                                          int32_t *blocks) {
    work w = {};
    w.mask = *mask;
    w.row_words = (mask->grid_cols + TILE - 1) / TILE;
    w.col_words = (mask->grid_rows + TILE - 1) / TILE;
    w.tiles = (uint32_t)mask->heads * (uint32_t)w.row_words * (uint32_t)w.col_words;
    w.blocks = blocks;
    w.capacity = capacity;
    w.count = count;
    for (int32_t i = 0; i < count; i++) set_lines(&w, &indexes[i], &w.index[i]);
    void *scratch = nullptr;
    PASS(tartan_cuda_scratch(function, queue, divide(&w, nullptr), &scratch));
    (void)divide(&w, scratch);
    const tartan_status status = launch(function, queue, w);
    tartan_cuda_scratch_free(queue, scratch);
    return status;
}
