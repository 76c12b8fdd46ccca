/* SPDX-License-Identifier: Apache-2.0
 * The products and sums of conv_filter_gradient_mma.cu. */
#ifndef TARTAN_CUDA_CONV_FILTER_GRADIENT_MMA_CUH
#define TARTAN_CUDA_CONV_FILTER_GRADIENT_MMA_CUH

#include "device/ptx_mma.cuh"
#include "kernels/conv_filter_gradient_tiles.cuh"

namespace tartan_cuda {
namespace conv_filter_gradient_mma {
namespace {

/* ---- The products ---- */

/* One of a list of pixels to load: where it is, in units of 8 elements from the first one; its row and column. */
struct Pixel {
    int32_t offset;
    uint32_t place;
};

struct Shared {
    Pixel *x, *y; /* pixels of a box; of a tile */
    uint32_t
        *offsets;    /* [16 * steps] bytes from the first pixel of a box to that of each pixel of the tile */
    uint32_t stages; /* address */
};

__device__ __forceinline__ Shared shared_of(const tartan_cuda_conv_job_form &f, uint8_t *memory) {
    Shared s;
    s.x = (Pixel *)memory;
    s.y = s.x + f.box_rows * f.box_cols;
    s.offsets = (uint32_t *)(s.y + 16 * f.steps);
    s.stages = shared_offset(memory + f.list_bytes);
    return s;
}

__device__ __forceinline__ void fill_lists(const Problem &g, const Shared &s) {
    const tartan_cuda_conv_job_form &f = g.form;
    for (int32_t i = threadIdx.x; i < f.box_rows * f.box_cols; i += kThreads) {
        const int32_t row = i / f.box_cols, col = i % f.box_cols;
        s.x[i] = {
            (int32_t)((row * f.box_step[0] * g.p.in.step[1] + col * f.box_step[1] * g.p.in.step[2]) / 8),
            (uint32_t)(row << 16 | col)};
    }
    for (int32_t i = threadIdx.x; i < 16 * f.steps; i += kThreads) {
        const bool exists = i < f.rows * f.cols;
        const int32_t row = exists ? i / f.cols : 0, col = exists ? i % f.cols : 0;
        s.y[i] = {(int32_t)((row * g.p.out.step[1] + col * g.p.out.step[2]) / 8),
                  exists ? (uint32_t)(row << 16 | col) : ~0u};
        s.offsets[i] = 16 * (uint32_t)(row * f.pixel[0] * f.pitch + col * f.pixel[1]);
    }
}

/* What a thread loads of each tile: one piece, at regular distances in pixels. `pieces`, rounded up to a power of 2,
 * share the threads. */
struct Loader {
    int32_t first, step; /* pixels; first is past all of them if the thread has no piece */
    int32_t channel, shift[TARTAN_I_DIMS];
    uint32_t to; /* bytes into the stage */
};

__device__ __forceinline__ Loader loader_of(int32_t pieces, int32_t bytes, int32_t first_byte) {
    int32_t wide = 1;
    while (wide < pieces) wide *= 2;
    const int32_t piece = threadIdx.x % wide;
    Loader l = {};
    l.first = piece < pieces ? (int32_t)threadIdx.x / wide : INT32_MAX;
    l.step = kThreads / wide;
    l.channel = piece;
    l.to = (uint32_t)(first_byte + piece * bytes);
    return l;
}

/* Starts the copies of a tile, `number` of the list if there is one, to a stage. */
__device__ __forceinline__ void load_tile(const Problem &g, const Shared &s, const Loader &x, const Loader &y,
                                          const Tile &t, int64_t number, uint32_t stage) {
    const tartan_cuda_conv_job_form &f = g.form;
    const tartan_cuda_image &in = g.p.in, &out = g.p.out;
    {
        const char *from =
            (const char *)out.data + 2 * (t.image * out.entry + t.at[0] * out.step[0] +
                                          t.at[1] * out.step[1] + t.at[2] * out.step[2] + y.channel);
        const int32_t size_h = (int32_t)out.size[1], size_w = (int32_t)out.size[2];
        uint4 active = {};
        if (g.list != nullptr) active = g.list[number].active;
        for (int32_t i = y.first; i < 16 * f.steps; i += y.step) {
            const Pixel pixel = s.y[i];
            const int32_t row = (int32_t)(pixel.place >> 16), col = (int32_t)(pixel.place & 0xffff);
            bool there = pixel.place != ~0u && (uint32_t)(t.at[1] + row) < (uint32_t)size_h &&
                         (uint32_t)(t.at[2] + col) < (uint32_t)size_w;
            if (g.list != nullptr) {
                const uint32_t word =
                    i < 64 ? (i < 32 ? active.x : active.y) : (i < 96 ? active.z : active.w);
                there = there && (word >> (i & 31) & 1);
            }
            copy_async<16>(stage + y.to + 16 * (uint32_t)i,
                           there ? from + (int64_t)pixel.offset * 16 : (const char *)out.data,
                           there ? 16 : 0);
        }
    }
    const int32_t d = t.at[0] * (int32_t)g.p.taps.stride[0] + x.shift[0],
                  h = t.at[1] * (int32_t)g.p.taps.stride[1] + x.shift[1],
                  w = t.at[2] * (int32_t)g.p.taps.stride[2] + x.shift[2];
    const char *from = (const char *)in.data + 2 * (t.image * in.entry + d * in.step[0] + h * in.step[1] +
                                                    w * in.step[2] + x.channel);
    const bool in_plane = (uint32_t)d < (uint32_t)in.size[0];
    const uint32_t size_h = (uint32_t)in.size[1], size_w = (uint32_t)in.size[2];
    const int32_t pixels = f.box_rows * f.box_cols;
#pragma unroll 4
    for (int32_t i = x.first; i < pixels; i += x.step) {
        const Pixel pixel = s.x[i];
        const int32_t row = (int32_t)(pixel.place >> 16), col = (int32_t)(pixel.place & 0xffff);
        const bool there = in_plane && (uint32_t)(h + row * f.box_step[0]) < size_h &&
                           (uint32_t)(w + col * f.box_step[1]) < size_w;
        copy_async<16>(stage + x.to + 16 * (uint32_t)(row * f.pitch + col),
                       there ? from + (int64_t)pixel.offset * 16 : (const char *)in.data, there ? 16 : 0);
    }
}

__device__ __forceinline__ Tile tile_at(const Problem &g, int64_t i) {
    return g.list != nullptr ? g.list[i].tile : tile_of(g, i);
}

/* The tile after t of whole images. */
__device__ __forceinline__ void step_tile(const Problem &g, int64_t next, int64_t end, Tile *t) {
    const tartan_cuda_conv_job_form &f = g.form;
    if (g.list != nullptr) {
        if (next < end) *t = g.list[next].tile;
        return;
    }
    t->at[2] += f.cols;
    if (t->at[2] < g.p.out.size[2]) return;
    t->at[2] = f.origin[1];
    t->at[1] += f.rows;
    if (t->at[1] < g.p.out.size[1]) return;
    t->at[1] = f.origin[0];
    if (++t->at[0] < g.p.out.size[0]) return;
    t->at[0] = 0;
    t->image++;
}

template <typename T>
__device__ __forceinline__ void multiply_pair(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                              uint32_t b1) {
    const uint32_t b[2] = {b0, b1};
    if constexpr (std::is_same_v<T, __half>)
        multiply_f16(d, a, b);
    else
        multiply_bf16(d, a, b);
}

/* Adds the products of a tile: HIGH times 16 output slots by the warp's fragments, two of which are loaded together. */
template <typename T, int HIGH, bool ALL>
__device__ __forceinline__ void
multiply_tile(int32_t steps, int32_t pairs, const uint32_t *offsets, const uint32_t (&a_at)[HIGH],
              const uint32_t (&b_at)[TARTAN_CUDA_JOB_SUMS / HIGH / 2], uint32_t a_stage, uint32_t b_stage,
              float (&d)[HIGH][TARTAN_CUDA_JOB_SUMS / HIGH][4]) {
    constexpr int PAIRS = TARTAN_CUDA_JOB_SUMS / HIGH / 2;
    for (int32_t step = 0; step < steps; step++, a_stage += 16 * 16) {
        const uint32_t pixels = b_stage + offsets[16 * step];
        uint32_t a[HIGH][4], b[2][4];
#pragma unroll
        for (int m = 0; m < HIGH; m++) load_pieces<true>(a[m], a_stage + a_at[m]);
        load_pieces<true>(b[0], pixels + b_at[0]);
#pragma unroll
        for (int j = 0; j < PAIRS; j++) {
            if (!ALL && j >= pairs) break;
            if (j + 1 < PAIRS && (ALL || j + 1 < pairs))
                load_pieces<true>(b[(j + 1) % 2], pixels + b_at[j + 1]);
#pragma unroll
            for (int m = 0; m < HIGH; m++) {
                multiply_pair<T>(d[m][2 * j], a[m], b[j % 2][0], b[j % 2][1]);
                multiply_pair<T>(d[m][2 * j + 1], a[m], b[j % 2][2], b[j % 2][3]);
            }
        }
    }
}

template <typename T, int HIGH>
__global__ void __launch_bounds__(kThreads, 2) gradient(const __grid_constant__ Problem g) {
    constexpr int SUMS = TARTAN_CUDA_JOB_SUMS / HIGH, PAIRS = SUMS / 2;
    extern __shared__ __align__(128) uint8_t memory[];
    const tartan_cuda_conv_job_form &f = g.form;
    const Shared s = shared_of(f, memory);
    const int32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int32_t *job = g.jobs.jobs + 8 * (blockIdx.x % g.jobs.count);
    const int32_t split = (int32_t)(blockIdx.x / g.jobs.count);
    fill_lists(g, s);
    wait_for_kernels_before();
    let_next_kernel_begin();

    /* The tiles. */
    const int64_t tiles = g.list != nullptr ? *g.count : g.tiles;
    const int64_t begin = tiles * split / g.splits, end = tiles * (split + 1) / g.splits;

    /* What the thread loads. */
    Loader x = loader_of(job[1], f.x_bytes, 0), y = loader_of(job[5], f.y_bytes, f.x_pieces * f.x_bytes);
    y.channel = job[4] + 8 * y.channel;
    if (x.first != INT32_MAX) {
        const int32_t *piece = g.jobs.pieces + 4 * (job[0] + x.channel);
        x.channel = piece[0];
        for (int d = 0; d < TARTAN_I_DIMS; d++) x.shift[d] = piece[1 + d] - (int32_t)g.p.taps.before[d];
    }

    /* What the warp multiplies: lanes 0 to 15 give the pixels of a pair's first fragment, the others of the second. */
    const int32_t groups = job[7], group = warp % groups, warps = TARTAN_CUDA_JOB_WARPS / groups;
    const int32_t first = job[3] * (warp / groups) / warps,
                  count = job[3] * (warp / groups + 1) / warps - first;
    const int32_t *fragments = g.jobs.fragments + 2 * (job[2] + first);
    const int32_t pairs = (count + 1) / 2;
    uint32_t a_at[HIGH], b_at[PAIRS];
#pragma unroll
    for (int m = 0; m < HIGH; m++) {
        const int32_t piece = 2 * (HIGH * group + m) + lane / 8 % 2;
        a_at[m] = (uint32_t)((piece < job[5] ? piece : 0) * f.y_bytes + 16 * (lane % 8 + lane / 16 * 8));
    }
#pragma unroll
    for (int j = 0; j < PAIRS; j++) {
        const int32_t at = 2 * j + lane / 16;
        b_at[j] = count > 0 ? (uint32_t)fragments[2 * (at < count ? at : count - 1)] : 0;
    }
    float d[HIGH][SUMS][4];
#pragma unroll
    for (int m = 0; m < HIGH; m++)
#pragma unroll
        for (int j = 0; j < SUMS; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) d[m][j][i] = 0;

    __syncthreads(); /* the lists are complete */
    Tile tile = {};
    if (begin < end) tile = tile_at(g, begin);
    int64_t next = begin; /* to load; `tile` is this one */
    int32_t to = 0, at = 0;
    for (int32_t i = 1; i < f.stages; i++) {
        if (next < end) {
            load_tile(g, s, x, y, tile, next, s.stages + (uint32_t)(to * f.stage_bytes));
            step_tile(g, ++next, end, &tile);
        }
        to++;
        copies_commit();
    }
    for (int64_t i = begin; i < end; i++) {
        if (f.stages == 2)
            copies_wait<0>();
        else if (f.stages == 3)
            copies_wait<1>();
        else
            copies_wait<2>();
        __syncthreads(); /* all copies of this tile are in, and the one before has been read */
        if (next < end) {
            load_tile(g, s, x, y, tile, next, s.stages + (uint32_t)(to * f.stage_bytes));
            step_tile(g, ++next, end, &tile);
        }
        copies_commit();
        to = to + 1 == f.stages ? 0 : to + 1;
        const uint32_t stage = s.stages + (uint32_t)(at * f.stage_bytes);
        at = at + 1 == f.stages ? 0 : at + 1;
        if (count == SUMS)
            multiply_tile<T, HIGH, true>(f.steps, pairs, s.offsets + lane % 16, a_at, b_at,
                                         stage + f.x_pieces * f.x_bytes, stage, d);
        else if (count > 0)
            multiply_tile<T, HIGH, false>(f.steps, pairs, s.offsets + lane % 16, a_at, b_at,
                                          stage + f.x_pieces * f.x_bytes, stage, d);
    }
    copies_wait<0>();

    /* Lane 4 r + c has sums (r, 2c), (r, 2c + 1), (r + 8, 2c), (r + 8, 2c + 1) of each product. */
    float *sums = g.sums + split * g.weights;
    const int32_t row_stride = g.p.rows.stride, col_stride = g.p.cols.stride;
#pragma unroll
    for (int j = 0; j < SUMS; j++) {
        if (j >= count) break;
        float *block = sums + fragments[2 * j + 1] + 2 * (lane % 4) * col_stride;
#pragma unroll
        for (int m = 0; m < HIGH; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int32_t row = 16 * (HIGH * group + m) + 8 * half + lane / 4;
                if (row >= job[6]) continue;
                float *place = block + row * row_stride;
                if (col_stride == 1) {
                    *(float2 *)place = make_float2(d[m][j][2 * half], d[m][j][2 * half + 1]);
                } else {
                    place[0] = d[m][j][2 * half];
                    place[col_stride] = d[m][j][2 * half + 1];
                }
            }
    }
}

/* ---- The sums of all shares ---- */

/* The sum of one weight without zeros for pixels that do not exist; the warp computes it together. */
template <typename T>
__device__ __noinline__ float exact_sum(const Problem &g, int64_t tap, int64_t row, int64_t col) {
    const int32_t lane = threadIdx.x % 32;
    const tartan_cuda_conv_filter_gradient &p = g.p;
    int64_t taps[TARTAN_I_DIMS];
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        taps[d] = tap % p.taps.kernel[d];
        tap /= p.taps.kernel[d];
    }
    const int64_t positions = p.entries * p.out.size[0] * p.out.size[1] * p.out.size[2];
    float sum = 0;
    for (int64_t i = lane; i < positions; i += 32) {
        const Position to = position_of(i, p.out.size);
        Position from;
        if (!step_tap(p.taps, false, taps, to, p.in.size, &from)) continue;
        if (!is_active(g.windows, p.active_in ? from : to)) continue;
        sum = fmaf(
            tartan_cuda_to<float>(((const T *)p.out.data)[element_of(p.out, to) + row * p.out.channel]),
            tartan_cuda_to<float>(((const T *)p.in.data)[element_of(p.in, from) + col * p.in.channel]), sum);
    }
    for (int32_t step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
}

/* Adds up the shares of each weight, in their order, and writes it. */
template <typename T> __global__ void __launch_bounds__(256) add_shares(const __grid_constant__ Problem g) {
    const tartan_cuda_conv_filter_gradient &p = g.p;
    const int64_t block = (int64_t)p.rows.edge * p.cols.edge;
    const bool ragged =
        p.rows.grid * p.rows.edge > p.out.channels || p.cols.grid * p.cols.edge > p.in.channels;
    const int64_t all = (g.weights + 31) / 32 * 32; /* by whole warps */
    for (int64_t e = (int64_t)blockIdx.x * 256 + threadIdx.x; e < all; e += (int64_t)gridDim.x * 256) {
        const bool there = e < g.weights;
        const int64_t id = there ? e / block : 0;
        const int32_t inside = (int32_t)(e - id * block);
        wait_for_kernels_before();
        float sum = 0;
        for (int32_t s = 0; there && s < g.splits; s++) sum += g.sums[s * g.weights + e];
        bool exists = there;
        int64_t tap = 0, row = 0, col = 0;
        const bool finite = isfinite(sum);
        if (there && (ragged || !finite)) {
            const int64_t number = g.rows.cols[id];
            const int32_t r = p.cols.stride == 1 ? inside / p.rows.stride : inside % p.cols.stride,
                          c = p.cols.stride == 1 ? inside % p.rows.stride : inside / p.cols.stride;
            tap = number / p.cols.grid;
            col = number % p.cols.grid * p.cols.edge + c;
            row = tartan_cuda_row_of(g.rows.pointers, p.rows.grid, id) * p.rows.edge + r;
            exists = row < p.out.channels && col < p.in.channels;
        }
        uint32_t broken = __ballot_sync(~0u, exists && !finite);
        while (broken != 0) {
            const int32_t lane = __ffs((int32_t)broken) - 1;
            broken &= broken - 1;
            const float exact = exact_sum<T>(g, __shfl_sync(~0u, tap, lane), __shfl_sync(~0u, row, lane),
                                             __shfl_sync(~0u, col, lane));
            if ((int32_t)threadIdx.x % 32 == lane) sum = exact;
        }
        if (there)
            tartan_cuda_combine_at<T>(p.values, p.s_dtype, e, 1.f, exists ? sum : 0.f,
                                      exists ? (float)p.beta : 0.f);
    }
}

} // namespace
} // namespace conv_filter_gradient_mma
} // namespace tartan_cuda

#endif
