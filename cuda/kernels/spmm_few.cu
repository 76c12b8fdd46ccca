/* SPDX-License-Identifier: Apache-2.0
 * Sparse times dense with few columns, for blocks of any edges and types of 16 bits or more, where reading A is most of the work. A team of
 * threads has the rows of a block row, or some of them, for a few columns. A thread has the same place in each block that it takes: a unit of
 * neighbours in memory, so a team reads a block from end to end, and several small blocks at a time. It adds up its products in registers;
 * then the sums of threads with the same rows are added by halves. The order follows from shape, number of blocks and processors. */
#include "device/launch.cuh"
#include "device/tile.cuh"
#include "index_cache.h"
#include "kernels.h"

namespace tartan_cuda {
namespace few {
namespace {

enum { kThreads = 256, kAhead = 4 /* units that a thread loads before it multiplies any */ };

/* CTAs of an SM at least, which bounds the registers; 0: any. */
template <int LINES, int COLS> constexpr int kResident = LINES > 1 ? 2 : COLS == 1 ? 4 : 0;

/* Rows of a thread with units along k, which share what it reads of B, where there are several columns. */
template <typename T> constexpr int kLines = sizeof(T) == 8 ? 2 : 4;

/* How teams share the work: a unit is `along_k` part of a row of a block, else part of a column. */
struct Teams {
    int32_t threads;                       /* of a team, a power of 2 */
    int32_t row_threads, k_threads, slots; /* of a team: down the rows, along k, and blocks at a time */
    int32_t rows, pieces;                  /* rows of a team, teams of a block row */
    int32_t col_tiles;
    int64_t count;
};

struct Args {
    tartan_cuda_spmm p;
    tartan_cuda_row_index lists;
    Teams teams;
    bool b_along_k, b_along_n; /* one access moves a unit of B along k, or all columns of a row of B */
};

/* The factors of B for a thread's unit: TERMS rows of B, COLS columns of each. */
template <typename T, int TERMS, int COLS>
__device__ __forceinline__ void load_b(const Args &g, const T *b, int32_t terms, int32_t cols,
                                       T (&to)[TERMS][COLS]) {
    if (g.b_along_k && terms == TERMS) {
#pragma unroll
        for (int c = 0; c < COLS; c++) {
            tartan_cuda_pack<T, TERMS> unit = {};
            if (c < cols) unit = *(const tartan_cuda_pack<T, TERMS> *)(b + c * g.p.b.col_stride);
#pragma unroll
            for (int k = 0; k < TERMS; k++) to[k][c] = unit.at[k];
        }
    } else if (g.b_along_n && cols == COLS) {
        constexpr int EACH = 16 / (int)sizeof(T) < COLS ? 16 / (int)sizeof(T) : COLS;
#pragma unroll
        for (int k = 0; k < TERMS; k++)
#pragma unroll
            for (int c = 0; c < COLS; c += EACH) {
                tartan_cuda_pack<T, EACH> unit = {};
                if (k < terms) unit = *(const tartan_cuda_pack<T, EACH> *)(b + k * g.p.b.row_stride + c);
#pragma unroll
                for (int e = 0; e < EACH; e++) to[k][c + e] = unit.at[e];
            }
    } else {
#pragma unroll
        for (int k = 0; k < TERMS; k++)
#pragma unroll
            for (int c = 0; c < COLS; c++)
                to[k][c] = k < terms && c < cols ? b[k * g.p.b.row_stride + c * g.p.b.col_stride] : T();
    }
}

/* x: tiles of columns of a team, teams of a CTA; y: batch entries. */
template <typename T, int UNIT, bool ALONG_K, int COLS, int LINES>
__global__ void __launch_bounds__(kThreads, (kResident<LINES, COLS>))
    multiply(const __grid_constant__ Args g) {
    using S = tartan_cuda_sum<T>;
    constexpr int ROWS = ALONG_K ? LINES : UNIT, TERMS = ALONG_K ? UNIT : 1, AHEAD = kAhead / LINES;
    __shared__ S room[ROWS * COLS][kThreads];
    const Teams &teams = g.teams;
    const tartan_cuda_spmm &p = g.p;
    let_next_kernel_begin();
    const int32_t thread = (int32_t)threadIdx.x & (teams.threads - 1), first = (int32_t)threadIdx.x - thread;
    const int64_t cta = blockIdx.x / (uint32_t)teams.col_tiles;
    const int64_t col = (int64_t)(blockIdx.x - cta * teams.col_tiles) * COLS;
    const int64_t team = cta * (kThreads / teams.threads) + first / teams.threads;
    const bool exists = team < teams.count;
    const int64_t line = exists ? team / teams.pieces : 0, head = line / p.grid_m;
    const int32_t top = exists ? (int32_t)(team - line * teams.pieces) * teams.rows : 0;
    const int64_t row = (line - head * p.grid_m) * p.block_m + top;
    const int32_t cols = (int32_t)(p.n - col < COLS ? p.n - col : COLS);
    int32_t rows = teams.rows < p.block_m - top ? teams.rows : p.block_m - top;

    /* The thread's place: down the rows, and among the threads with the same rows, which are along k and in several slots. */
    const int32_t alike = teams.k_threads * teams.slots;
    const int32_t down = ALONG_K ? thread / teams.k_threads % teams.row_threads : thread % teams.row_threads;
    const int32_t k_thread =
        ALONG_K ? thread % teams.k_threads : thread / teams.row_threads % teams.k_threads;
    const int32_t slot = thread / (teams.k_threads * teams.row_threads);
    const int32_t own = slot * teams.k_threads + k_thread;
    const auto place =
        [&](int32_t other) { /* the thread with the same rows that is number `other` of them */
                             return first +
                                    (ALONG_K ? other % teams.k_threads +
                                                   teams.k_threads *
                                                       (down + teams.row_threads * (other / teams.k_threads))
                                             : down + teams.row_threads * other);
        };
    const bool works = exists && slot < teams.slots && down * ROWS < rows;
    const int32_t begin = works ? g.lists.pointers[line] : 0, end = works ? g.lists.pointers[line + 1] : 0;
    wait_for_kernels_before();

    const T *const a = (const T *)p.values + (int64_t)(top + down * ROWS) * p.a_m;
    const T *const b = (const T *)p.b.data + head * p.b.head_stride + col * p.b.col_stride +
                       tartan_cuda_batch_offset(p.batch, p.batch.first, blockIdx.y);
    const int64_t block = (int64_t)p.block_m * p.block_k;
    S sums[ROWS][COLS] = {};
    for (int32_t k = k_thread * TERMS; k < p.block_k; k += teams.k_threads * TERMS) {
        for (int64_t at = begin + slot; at < end; at += AHEAD * teams.slots) {
            tartan_cuda_pack<T, UNIT> units[AHEAD][LINES];
            int64_t from_b[AHEAD]; /* a row of B, or -1 */
            S gates[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                const int64_t e = at + i * teams.slots;
                from_b[i] = -1;
                if (e >= end) continue;
                const int64_t id = g.lists.ids == nullptr ? e : g.lists.ids[e];
                const int64_t term = (int64_t)g.lists.cols[e] * p.block_k + k;
                gates[i] = tartan_cuda_gate<S>(p.gates, id);
                if (term >= p.k || gates[i] == 0) continue;
                from_b[i] = term;
                const T *const from = a + id * block + (int64_t)k * p.a_k;
#pragma unroll
                for (int l = 0; l < LINES; l++)
                    if (l == 0 || down * ROWS + l < rows)
                        units[i][l] = *(const tartan_cuda_pack<T, UNIT> *)(from + (int64_t)l * p.a_m);
                    else
                        units[i][l] = {};
            }
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                if (from_b[i] < 0) continue;
                const int32_t terms = p.k - from_b[i] < TERMS ? (int32_t)(p.k - from_b[i]) : TERMS;
                T factors[TERMS][COLS];
                load_b<T, TERMS, COLS>(g, b + from_b[i] * p.b.row_stride, terms, cols, factors);
#pragma unroll
                for (int l = 0; l < LINES; l++)
#pragma unroll
                    for (int u = 0; u < UNIT; u++) {
                        const int r = ALONG_K ? l : u, t = ALONG_K ? u : 0;
                        if (ALONG_K && t >= terms) continue;
                        S x = tartan_cuda_to<S>(units[i][l].at[u]);
                        if (p.gates.data != nullptr) x *= gates[i];
#pragma unroll
                        for (int c = 0; c < COLS; c++)
                            sums[r][c] = fma(x, tartan_cuda_to<S>(factors[t][c]), sums[r][c]);
                    }
            }
        }
    }

    /* Each of the first half of the threads with the same rows adds the sums of one of the second. */
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int c = 0; c < COLS; c++) room[r * COLS + c][threadIdx.x] = sums[r][c];
    for (int32_t left = alike; left > 1; left = (left + 1) / 2) {
        __syncthreads();
        const int32_t other = own + (left + 1) / 2;
        if (!works || other >= left) continue;
        const int32_t from = place(other);
#pragma unroll
        for (int i = 0; i < ROWS * COLS; i++) room[i][threadIdx.x] += room[i][from];
    }
    __syncthreads();

    if (!exists) return;
    if (row + rows > p.m) rows = (int32_t)(p.m - row);
    const bool down_first = tartan_cuda_is_along(p.c.row_stride, p.c.col_stride);
    const int64_t c_at = head * p.c.head_stride + row * p.c.row_stride + col * p.c.col_stride +
                         tartan_cuda_batch_offset(p.batch, p.batch.second, blockIdx.y);
    for (int32_t i = thread; i < rows * cols; i += teams.threads) {
        const int32_t r = down_first ? i % rows : i / cols, c = down_first ? i / rows : i % cols;
        const int32_t from = first + r / ROWS * (ALONG_K ? teams.k_threads : 1);
        tartan_cuda_combine_at<T>(p.c.data, p.c.dtype, c_at + r * p.c.row_stride + c * p.c.col_stride,
                                  (S)p.alpha, room[r % ROWS * COLS + c][from], (S)p.beta);
    }
}

/* ---- On the host ---- */

int32_t at_most(int64_t x, int64_t most) {
    return (int32_t)(x < most ? x : most);
}

/* Teams small enough that a thread has a few units, and numerous enough that all processors have some. */
Teams teams_of(const tartan_cuda_spmm &p, int32_t unit, bool along_k, int32_t cols, int32_t lines_each,
               int32_t processors) {
    const int64_t lines = p.heads * p.grid_m, listed = p.blocks / lines + 1;
    const int32_t rows_each = along_k ? lines_each : unit, down = (p.block_m + rows_each - 1) / rows_each,
                  along = along_k ? p.block_k / unit : p.block_k;
    const int32_t each = 8 / lines_each, fewest = 4;
    const int64_t busy = (int64_t)processors * (lines_each > 1 ? 256 : 512); /* threads */
    Teams t = {};
    t.threads = fewest;
    while (t.threads < kThreads && (int64_t)t.threads * each < listed * down * along) t.threads *= 2;
    t.k_threads = along_k ? at_most(along, t.threads) : 0;
    t.row_threads = at_most(down, along_k ? t.threads / t.k_threads : t.threads);
    t.col_tiles = (int32_t)((p.n - 1) / cols + 1);
    for (;; t.row_threads = (t.row_threads + 1) / 2) {
        if (!along_k) t.k_threads = at_most(along, t.threads / t.row_threads);
        t.slots = at_most(t.threads / (t.row_threads * t.k_threads), listed);
        t.rows = t.row_threads * rows_each;
        t.pieces = (p.block_m + t.rows - 1) / t.rows;
        t.count = lines * t.pieces;
        if (t.row_threads == 1 || t.threads < kThreads ||
            t.count * t.col_tiles * p.batch.entries * t.threads >= busy)
            return t;
    }
}

/* Whether an access can move `each` elements of an operand whose neighbours have stride `unit`; `other` is the other stride. */
bool moves(const tartan_cuda_spmm &p, int64_t unit, int64_t other, int64_t count, int32_t each,
           int32_t bytes) {
    bool fits = unit == 1 && (count == 1 || other % each == 0) && (uintptr_t)p.b.data % (each * bytes) == 0 &&
                (p.heads == 1 || p.b.head_stride % each == 0);
    for (int32_t d = 0; d < p.batch.ndim; d++) fits = fits && p.batch.first[d] % each == 0;
    return fits;
}

template <typename T, int UNIT, bool ALONG_K, int COLS, int LINES>
tartan_status launch(const char *function, tartan_cuda_queue *queue, Args &g) {
    constexpr int EACH = 16 / (int)sizeof(T) < COLS ? 16 / (int)sizeof(T) : COLS;
    const tartan_cuda_spmm &p = g.p;
    g.teams = teams_of(p, UNIT, ALONG_K, COLS, LINES, queue->chip.processors);
    g.b_along_k = ALONG_K && UNIT > 1 && moves(p, p.b.row_stride, p.b.col_stride, p.n, UNIT, sizeof(T));
    g.b_along_n = COLS > 1 && moves(p, p.b.col_stride, p.b.row_stride, p.k, EACH, sizeof(T));
    const int64_t at_once = kThreads / g.teams.threads,
                  ctas = (g.teams.count + at_once - 1) / at_once * g.teams.col_tiles;
    const dim3 grid((unsigned)ctas, (unsigned)p.batch.entries);
    return tartan_cuda_check(function,
                             tartan_cuda_launch_early(queue, tartan_cuda_starts_early(queue, p.layout),
                                                      multiply<T, UNIT, ALONG_K, COLS, LINES>, grid,
                                                      dim3(kThreads), 0, g),
                             "launching the kernel spmm_few");
}

template <typename T, int UNIT, bool ALONG_K, int COLS>
tartan_status launch_lines(const char *function, tartan_cuda_queue *queue, Args &g) {
    if constexpr (ALONG_K)
        if (g.p.block_m >= 16) return launch<T, UNIT, ALONG_K, COLS, kLines<T>>(function, queue, g);
    return launch<T, UNIT, ALONG_K, COLS, 1>(function, queue, g);
}

template <typename T, int UNIT, bool ALONG_K>
tartan_status launch_cols(const char *function, tartan_cuda_queue *queue, Args &g) {
    if (g.p.n == 1) return launch<T, UNIT, ALONG_K, 1, 1>(function, queue, g);
    if (g.p.n <= 4) return launch_lines<T, UNIT, ALONG_K, 4>(function, queue, g);
    return launch_lines<T, UNIT, ALONG_K, 8>(function, queue, g);
}

template <typename T> tartan_status launch_unit(const char *function, tartan_cuda_queue *queue, Args &g) {
    constexpr int UNIT = sizeof(T) == 8 ? 2 : 4;
    const tartan_cuda_spmm &p = g.p;
    const bool along_k = p.a_k == 1 && !(p.a_m == 1 && p.block_m > 1);
    const bool units =
        (along_k ? p.block_k : p.block_m) % UNIT == 0 && (uintptr_t)p.values % (UNIT * sizeof(T)) == 0;
    if (along_k)
        return units ? launch_cols<T, UNIT, true>(function, queue, g)
                     : launch_cols<T, 1, true>(function, queue, g);
    return units ? launch_cols<T, UNIT, false>(function, queue, g)
                 : launch_cols<T, 1, false>(function, queue, g);
}

} // namespace
} // namespace few
} // namespace tartan_cuda

tartan_status tartan_cuda_spmm_few(const char *function, tartan_cuda_queue *queue, const void *problem) {
    tartan_cuda::few::Args g = {};
    g.p = *(const tartan_cuda_spmm *)problem;
    PASS(tartan_cuda_index_get_rows(function, queue, g.p.layout, g.p.by_columns, &g.lists));
    return tartan_cuda_by_dtype(g.p.dtype, [&](auto tag) {
        return tartan_cuda::few::launch_unit<typename decltype(tag)::type>(function, queue, g);
    });
}
