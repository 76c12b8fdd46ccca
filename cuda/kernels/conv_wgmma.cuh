/* SPDX-License-Identifier: Apache-2.0
 * The kernel of conv_wgmma.cu. */
#ifndef TARTAN_CUDA_CONV_WGMMA_CUH
#define TARTAN_CUDA_CONV_WGMMA_CUH

#include "conv_tables.h"
#include "device/ptx_wgmma.cuh"
#include "device/ring.cuh"
#include "kernels/conv_epilogue.cuh"

namespace tartan_cuda {

namespace {

enum {
    kConvThreads = 192, /* a warpgroup that multiplies, a warp that loads pixels, one that loads weights */
    kConvWeights = 4,   /* steps of weights in shared memory */
    kConvTiles = 2,     /* handed out ahead */
    kConvStages = 8,    /* of pixels, at most */
    kConvWeightBytes = 8192,
    kConvStepBytes = kConvWeightBytes + 32,
    kConvRoom = 1024, /* staging of a warp's results */
};

/* A unit of a tile: its first pixel, and the pixels that are written: those inside [begin, end). */
struct ConvUnit {
    int32_t image, d, h, w;
    int32_t h_end, w_end;
};

struct ConvTile {
    int32_t group; /* < 0: there are no more tiles */
    int32_t first_step, steps;
    ConvUnit unit[4];
};

struct ConvProblem {
    tartan_cuda_conv_form form;
    tartan_cuda_conv_lists lists;
    const char *packed; /* weights of each step */
    int32_t *counters;
    uint32_t units; /* of all images or windows; of a dynamic layout, of its capacity */
    uint32_t depth; /* planes of an image */
    int32_t stride[TARTAN_I_DIMS], base[TARTAN_I_DIMS]; /* from a pixel to those of its first tap */
    uint32_t stage_boxed;                               /* bytes that the boxes of a stage write */
    int32_t size[TARTAN_I_DIMS];                        /* of `to` */
    bool restricted;                                    /* to windows: */
    Windows windows;
    const int32_t *windows_at; /* the number of each, counted over all images */
    /* Results: 16 bits of contiguous channels, or f32 of any strides. */
    char *to;
    bool to_f32;
    int64_t to_image, to_step[TARTAN_I_DIMS], to_channel; /* in bytes */
    int32_t channels;
    const float *gain, *bias;
    int64_t gain_channel, bias_channel;
    bool relu, bias_first;
    /* For sums that are computed again. */
    tartan_cuda_row_index filter;
    const void *values, *from;
    tartan_cuda_taps taps;
    bool adjoint;
    tartan_cuda_image from_image;
    tartan_cuda_slots from_slots, to_slots;
};

/* The shared memory of a CTA. */
struct ConvRing {
    uint8_t *memory;
    uint32_t base, weights_at, room_at, barriers_at, board_at;
    __device__ ConvRing(uint8_t *shared, const tartan_cuda_conv_form &f)
        : memory(shared), base(shared_address(shared)), weights_at((uint32_t)(f.stages * f.stage_bytes)),
          room_at(weights_at + kConvWeights * kConvStepBytes), barriers_at(room_at + 4 * kConvRoom),
          board_at(barriers_at + 16 * (kConvStages + kConvWeights + kConvTiles)) {}
    __device__ uint32_t pixels(const tartan_cuda_conv_form &f, uint32_t stage) const {
        return base + stage * (uint32_t)f.stage_bytes;
    }
    __device__ uint32_t weights(uint32_t step) const { return base + weights_at + step * kConvStepBytes; }
    __device__ uint32_t room(uint32_t warp) const { return base + room_at + warp * kConvRoom; }
    __device__ uint32_t full(uint32_t stage) const { return base + barriers_at + 16 * stage; }
    __device__ uint32_t empty(uint32_t stage) const { return full(stage) + 8; }
    __device__ uint32_t weights_full(uint32_t step) const { return full(kConvStages + step); }
    __device__ uint32_t weights_empty(uint32_t step) const { return weights_full(step) + 8; }
    __device__ uint32_t posted(uint32_t tile) const { return full(kConvStages + kConvWeights + tile); }
    __device__ uint32_t read(uint32_t tile) const { return posted(tile) + 8; }
    __device__ volatile ConvTile *tile(uint32_t tile) const {
        return (volatile ConvTile *)(memory + board_at) + tile;
    }
    __device__ void init(int32_t stages) const {
        for (int32_t s = 0; s < stages; s++) {
            barrier_init(full(s), 1);
            barrier_init(empty(s), 4);
        }
        for (uint32_t s = 0; s < kConvWeights; s++) {
            barrier_init(weights_full(s), 1);
            barrier_init(weights_empty(s), 4);
        }
        for (uint32_t t = 0; t < kConvTiles; t++) {
            barrier_init(posted(t), 1);
            barrier_init(read(t), 5);
        }
        barrier_init_fence();
    }
};

constexpr uint32_t conv_fixed_bytes = kConvWeights * kConvStepBytes + 4 * kConvRoom +
                                      16 * (kConvStages + kConvWeights + kConvTiles) +
                                      kConvTiles * (uint32_t)sizeof(ConvTile);
static_assert(conv_fixed_bytes <= TARTAN_CUDA_CONV_FIXED, "shared memory beside the stages");

/* A place in a ring whose size is known at run time. */
struct ConvStage {
    uint32_t at = 0, parity = 0;
    __device__ __forceinline__ void next(int32_t stages) {
        if ((int32_t)++at == stages) at = 0, parity ^= 1;
    }
};

/* ---- Tiles ---- */

__device__ __forceinline__ ConvUnit find_unit(const ConvProblem &p, uint32_t units, uint32_t number) {
    const tartan_cuda_conv_form &f = p.form;
    ConvUnit u = {-1, 0, 0, 0, 0, 0};
    if (number >= units) return u;
    const uint32_t strips = (uint32_t)f.strips, blocks = (uint32_t)f.row_blocks;
    const uint32_t strip = number % strips, block = number / strips % blocks, rest = number / strips / blocks;
    int32_t h = 0, w = 0;
    u.h_end = p.size[1], u.w_end = p.size[2];
    if (p.restricted) {
        const tartan_cuda_active &of = p.windows.of;
        const uint32_t planes = (uint32_t)of.size[0];
        uint32_t window = (uint32_t)p.windows_at[rest / planes];
        const auto origin = [&](int d) {
            const uint32_t count = (uint32_t)of.count[d], i = window % count;
            window /= count;
            return (int32_t)of.offset[d] + (int32_t)(i * (uint32_t)of.stride[d]);
        };
        w = origin(2), h = origin(1), u.d = origin(0) + (int32_t)(rest % planes);
        if (u.d < 0 || u.d >= p.size[0]) return u;
        u.image = (int32_t)window;
        u.h_end = min(u.h_end, h + (int32_t)of.size[1]), u.w_end = min(u.w_end, w + (int32_t)of.size[2]);
    } else {
        u.d = (int32_t)(rest % p.depth);
        u.image = (int32_t)(rest / p.depth);
    }
    u.h = h + (int32_t)(block * (f.lines ? 1 : (uint32_t)f.rows));
    u.w = w + (int32_t)(strip * (f.lines ? 8 * (uint32_t)f.rows : 8));
    return u;
}

/* What the warp that loads pixels knows of a tile; a lane has the unit whose boxes it loads. */
struct ConvWork {
    int32_t group, first_stage, stages, first_step, steps;
    ConvUnit unit;
};

template <int kUnits>
__device__ __forceinline__ ConvWork find_work(const ConvProblem &p, uint32_t units, uint32_t tiles,
                                              uint32_t number) {
    ConvWork t = {-1, 0, 0, 0, 0, {-1, 0, 0, 0, 0, 0}};
    if (number >= tiles) return t;
    const uint32_t groups = (uint32_t)p.lists.groups;
    t.group = (int32_t)(number % groups);
    t.first_stage = p.lists.stages_of[t.group], t.stages = p.lists.stages_of[t.group + 1] - t.first_stage;
    t.first_step = p.lists.steps_of[t.group], t.steps = p.lists.steps_of[t.group + 1] - t.first_step;
    t.unit = find_unit(p, units, number / groups * kUnits + threadIdx.x % kUnits);
    return t;
}

template <int kUnits>
__device__ __forceinline__ void post_work(const ConvRing &ring, PipelineState<kConvTiles> &board,
                                          const ConvWork &t) {
    const int32_t lane = threadIdx.x % 32;
    volatile ConvTile *to = ring.tile(board.at);
    barrier_wait(ring.read(board.at), board.parity ^ 1);
    if (lane < kUnits) {
        volatile ConvUnit *unit = &to->unit[lane];
        unit->image = t.unit.image, unit->d = t.unit.d, unit->h = t.unit.h, unit->w = t.unit.w;
        unit->h_end = t.unit.h_end, unit->w_end = t.unit.w_end;
    }
    if (lane == 0) to->group = t.group, to->first_step = t.first_step, to->steps = t.steps;
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.posted(board.at));
    board.next();
}

/* Hands out tiles and loads their pixels. By a warp: a lane has a box. What is needed of a tile is read while the one before
 * is loaded. */
template <int kUnits>
__device__ __forceinline__ void load_pixels(const ConvProblem &p, const ConvRing &ring,
                                            const CUtensorMap *map) {
    const tartan_cuda_conv_form &f = p.form;
    const int32_t lane = threadIdx.x % 32, box = lane / kUnits;
    const bool loads = box < f.boxes;
    uint32_t units = p.units;
    if (p.restricted)
        units = (uint32_t)p.windows.lists.pointers[p.windows.lines] * (uint32_t)p.windows.of.size[0] *
                (uint32_t)f.row_blocks * (uint32_t)f.strips;
    const uint32_t tiles = (units + kUnits - 1) / kUnits * (uint32_t)p.lists.groups;
    ConvStage stage;
    PipelineState<kConvTiles> board;
    const auto next_number = [&]() { return lane == 0 ? next_tile_number(p.counters) : 0; };
    ConvWork now = find_work<kUnits>(p, units, tiles, blockIdx.x);
    int32_t number = __shfl_sync(~0u, next_number(), 0);
    while (true) {
        post_work<kUnits>(ring, board, now);
        if (now.group < 0) break;
        const ConvWork after = find_work<kUnits>(p, units, tiles, (uint32_t)number);
        const int32_t later = next_number();
        const int32_t *table = p.lists.stage_table + 8 * (int64_t)now.first_stage;
        int32_t channel = 0;
        int4 shift = make_int4(0, 0, 0, 0);
        const auto look_up = [&]() {
            if (loads) channel = table[box];
            shift = *(const int4 *)(table + 4);
            table += 8;
        };
        if (now.stages > 0) look_up();
        for (int32_t s = 0; s < now.stages; s++) {
            const int32_t c = channel, w = now.unit.w * p.stride[2] + p.base[2] + shift.z,
                          h = now.unit.h * p.stride[1] + p.base[1] + shift.y,
                          d = now.unit.d * p.stride[0] + p.base[0] + shift.x;
            if (s + 1 < now.stages) look_up();
            barrier_wait(ring.empty(stage.at), stage.parity ^ 1);
            if (lane == 0) barrier_expect(ring.full(stage.at), p.stage_boxed);
            __syncwarp();
            /* Of a unit that does not exist, pixels outside of the images are loaded: zeros. */
            if (loads)
                tensor_load_5d(ring.pixels(f, stage.at) + (uint32_t)(lane * f.unit_bytes), map,
                               ring.full(stage.at), c, w, h, d, now.unit.image);
            stage.next(f.stages);
        }
        number = __shfl_sync(~0u, later, 0);
        now = after;
    }
    if (lane == 0) reset_counters<TARTAN_CUDA_COUNTERS>(p.counters);
}

/* By one thread. */
__device__ __forceinline__ void load_weights(const ConvProblem &p, const ConvRing &ring) {
    PipelineState<kConvWeights> step;
    PipelineState<kConvTiles> board;
    while (true) {
        barrier_wait(ring.posted(board.at), board.parity);
        volatile const ConvTile *tile = ring.tile(board.at);
        const int32_t group = tile->group, first = tile->first_step, end = first + tile->steps;
        barrier_arrive(ring.read(board.at));
        board.next();
        if (group < 0) return;
        for (int32_t s = first; s < end; s++) {
            const uint32_t full = ring.weights_full(step.at), to = ring.weights(step.at);
            barrier_wait(ring.weights_empty(step.at), step.parity ^ 1);
            barrier_expect(full, kConvStepBytes);
            bulk_load(to, p.packed + (int64_t)s * kConvWeightBytes, kConvWeightBytes, full);
            bulk_load(to + kConvWeightBytes, p.lists.step_table + 8 * (int64_t)s, 32, full);
            step.next();
        }
    }
}

/* ---- Results ---- */

/* Which rows of a lane's column of a unit are written: from `low` to `high`. */
struct ConvRows {
    int32_t low, high;
};

__device__ __forceinline__ ConvRows rows_of(const ConvProblem &p, const ConvUnit &u, int32_t col) {
    const int32_t w = u.w + col;
    if (u.image < 0) return {0, 0};
    if (p.form.lines) {
        if (u.h < 0 || u.h >= u.h_end) return {0, 0};
        return {w < 0 ? (7 - w) / 8 : 0, u.w_end > w ? (u.w_end - w + 7) / 8 : 0};
    }
    if (w < 0 || w >= u.w_end) return {0, 0};
    return {u.h < 0 ? -u.h : 0, u.h_end - u.h};
}

__device__ __forceinline__ char *result_of(const ConvProblem &p, const ConvUnit &u, int32_t row, int32_t col,
                                           int32_t channel) {
    const int64_t h = u.h + (p.form.lines ? 0 : row), w = u.w + col + (p.form.lines ? 8 * row : 0);
    return p.to + u.image * p.to_image + u.d * p.to_step[0] + h * p.to_step[1] + w * p.to_step[2] +
           channel * p.to_channel;
}

/* Gain, and the bias after it, of a channel. */
struct ConvAffine {
    float gain, bias;
};

__device__ __forceinline__ ConvAffine affine_of(const ConvProblem &p, int32_t channel) {
    ConvAffine a = {1, 0};
    if (channel >= p.channels) return a;
    if (p.gain != nullptr) a.gain = p.gain[channel * p.gain_channel];
    if (p.bias != nullptr) a.bias = p.bias[channel * p.bias_channel];
    if (p.bias_first) a.bias *= a.gain;
    return a;
}

__device__ __forceinline__ float apply(const ConvProblem &p, const ConvAffine &a, float x) {
    x = fmaf(a.gain, x, a.bias);
    return p.relu && x < 0 ? 0.f : x;
}

/* The sum of one element, its terms in ascending order, of the stored blocks alone. */
template <typename T>
__device__ __noinline__ float exact_result(const ConvProblem &p, const Position &at, int32_t row) {
    const tartan_cuda_slots &from = p.from_slots, &to = p.to_slots;
    const int64_t line = row / to.edge, taps = p.adjoint ? p.taps.taps : 1;
    float sum = 0;
    for (int64_t t = 0; t < taps; t++) {
        const int64_t list = t * to.grid + line;
        for (int32_t e = p.filter.pointers[list]; e < p.filter.pointers[list + 1]; e++) {
            const int64_t id = p.filter.ids != nullptr ? p.filter.ids[e] : e;
            int64_t tap = p.adjoint ? t : p.filter.cols[e] / from.grid, taps_at[TARTAN_I_DIMS];
            const int64_t first = (p.adjoint ? p.filter.cols[e] : p.filter.cols[e] % from.grid) * from.edge;
            for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
                taps_at[d] = tap % p.taps.kernel[d];
                tap /= p.taps.kernel[d];
            }
            Position x;
            const bool there = step_tap(p.taps, p.adjoint, taps_at, at, p.from_image.size, &x);
            const T *w =
                (const T *)p.values + id * from.edge * to.edge + (int64_t)(row % to.edge) * to.stride;
            const T *pixel = (const T *)p.from + (there ? element_of(p.from_image, x) : 0);
            for (int32_t i = 0; i < from.edge && first + i < p.from_image.channels; i++)
                sum =
                    fmaf(tartan_cuda_to<float>(w[(int64_t)i * from.stride]),
                         there ? tartan_cuda_to<float>(pixel[(first + i) * p.from_image.channel]) : 0.f, sum);
        }
    }
    return sum;
}

/* Computes the warp's 16 channels of a unit again. */
template <typename T>
__device__ __noinline__ void store_exact_unit(const ConvProblem &p, const ConvUnit &u, int32_t channel) {
    for (int32_t e = threadIdx.x % 32; e < 16 * 8 * p.form.rows; e += 32) {
        const int32_t k = channel + e % 16, col = e / 16 % 8, row = e / 128;
        const ConvRows rows = rows_of(p, u, col);
        if (k >= p.channels || row < rows.low || row >= rows.high) continue;
        const Position at = {u.image,
                             {u.d, u.h + (p.form.lines ? 0 : row), u.w + col + (p.form.lines ? 8 * row : 0)}};
        const float y = apply(p, affine_of(p, k), exact_result<T>(p, at, k));
        if (p.to_f32)
            *(float *)result_of(p, u, row, col, k) = y;
        else
            *(T *)result_of(p, u, row, col, k) = tartan_cuda_to<T>(y);
    }
}

template <Factor kFactor> __device__ __forceinline__ uint32_t pack_pair(float low, float high) {
    if constexpr (kFactor == Factor::f16) {
        const __half2 pair = __floats2half2_rn(low, high);
        return *(const uint32_t *)&pair;
    } else {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return *(const uint32_t *)&pair;
    }
}

/* A warp's 16 channels of a unit, through shared memory, so that whole sectors of 16 channels are written: 4 rows at a time. */
template <Factor kFactor, int kRows>
__device__ __forceinline__ void store_halves(const ConvProblem &p, const ConvUnit &u, uint32_t room,
                                             int32_t channel, const float (&d)[4 * kRows]) {
    const uint32_t lane = threadIdx.x % 32, half = lane % 2;
    const int32_t col = lane / 2 % 8, begin = lane / 16;
    const ConvAffine low = affine_of(p, channel + lane / 4), high = affine_of(p, channel + lane / 4 + 8);
    ConvRows rows = rows_of(p, u, col);
    if (channel + 8 * (int32_t)half >= p.channels) rows.high = 0;
    char *to = result_of(p, u, begin, col, channel + 8 * half);
    const int64_t step = 2 * (p.form.lines ? 8 * p.to_step[2] : p.to_step[1]);
    const uint32_t put = lane / 16 * 8 + lane % 8, put_half = lane / 8 % 2, get = lane / 2;
    const uint32_t put_at = room + put * 32 + ((put_half ^ (put / 4 % 2)) * 16),
                   get_at = room + get * 32 + ((half ^ (get / 4 % 2)) * 16);
#pragma unroll
    for (int r = 0; r < kRows; r += 4) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const float *x = &d[4 * (r + i)];
            store_matrices_transposed(put_at + i * 8 * 32,
                                      pack_pair<kFactor>(apply(p, low, x[0]), apply(p, low, x[1])),
                                      pack_pair<kFactor>(apply(p, high, x[2]), apply(p, high, x[3])),
                                      pack_pair<kFactor>(apply(p, low, x[4]), apply(p, low, x[5])),
                                      pack_pair<kFactor>(apply(p, high, x[6]), apply(p, high, x[7])));
        }
        __syncwarp();
#pragma unroll
        for (int part = 0; part < 2; part++) {
            const int32_t row = r + 2 * part + begin;
            const uint4 value = shared_load_16(get_at + part * 16 * 32);
            if (row >= rows.low && row < rows.high) *(uint4 *)to = value;
            to += step;
        }
    }
}

/* The same for f32 of any strides: 8 lanes write 8 channels. */
template <int kRows>
__device__ __forceinline__ void store_floats(const ConvProblem &p, const ConvUnit &u, int32_t channel,
                                             const float (&d)[4 * kRows]) {
    const int32_t lane = threadIdx.x % 32, k = channel + lane / 4, col = 2 * (lane % 4);
    const ConvAffine affine[2] = {affine_of(p, k), affine_of(p, k + 8)};
    const ConvRows rows[2] = {rows_of(p, u, col), rows_of(p, u, col + 1)};
    char *to = result_of(p, u, 0, col, k);
    const int64_t step = p.form.lines ? 8 * p.to_step[2] : p.to_step[1];
#pragma unroll
    for (int r = 0; r < kRows; r++) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (k + 8 * (e / 2) < p.channels && r >= rows[e % 2].low && r < rows[e % 2].high)
                *(float *)(to + e % 2 * p.to_step[2] + e / 2 * 8 * p.to_channel) =
                    apply(p, affine[e / 2], d[4 * r + e]);
        to += step;
    }
}

/* ---- The kernel ---- */

template <Factor kFactor, int kUnits, int kRows>
__device__ __forceinline__ void multiply(const ConvProblem &p, const ConvRing &ring) {
    using T = std::conditional_t<kFactor == Factor::f16, __half, __nv_bfloat16>;
    const tartan_cuda_conv_form &f = p.form;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    /* Weights: core matrices of 8 slots x 16 bytes, those of the same 8 channels side by side. */
    const uint64_t a_form = (uint64_t)(1024 >> 4) << 16 | (uint64_t)(128 >> 4) << 32;
    const uint64_t kind = f.span == 64 ? 2 : f.span == 32 ? 3 : 0;
    const uint64_t b_form = (uint64_t)(f.pitch * f.span >> 4) << 32 | kind << 62;
    const uint32_t next_unit = (uint32_t)f.unit_bytes >> 4;
    ConvStage full, ended;
    PipelineState<kConvWeights> step;
    PipelineState<kConvTiles> board;
    uint32_t pixels = 0;
    while (true) {
        barrier_wait(ring.posted(board.at), board.parity);
        const int32_t group = ring.tile(board.at)->group;
        if (group < 0) return;
        const int32_t steps = ring.tile(board.at)->steps;
        float d[kUnits][4 * kRows];
        if (steps == 0) {
#pragma unroll
            for (int u = 0; u < kUnits; u++)
#pragma unroll
                for (int i = 0; i < 4 * kRows; i++) d[u][i] = 0;
        }
        uint32_t released = 0, ends = 0;
        const auto release = [&]() {
            if (lane != 0) return;
            if (released != 0) barrier_arrive(released);
            for (uint32_t i = 0; i < ends; i++) {
                barrier_arrive(ring.empty(ended.at));
                ended.next(f.stages);
            }
        };
        for (int32_t s = 0; s < steps; s++) {
            barrier_wait(ring.weights_full(step.at), step.parity);
            const uint32_t weights = ring.weights(step.at);
            const uint4 words = shared_load_16(weights + kConvWeightBytes);
            const uint4 marks = shared_load_16(weights + kConvWeightBytes + 16);
            if (marks.z != 0) { /* it may hold the stages that this one waits for */
                wgmma_wait<0>();
                release();
                released = ends = 0;
            }
            uint32_t start[TARTAN_CUDA_CONV_ITEMS] = {words.x, words.y, words.z, words.w};
#pragma unroll
            for (int i = 0; i < TARTAN_CUDA_CONV_ITEMS; i++) {
                if (marks.x >> i & 1) {
                    barrier_wait(ring.full(full.at), full.parity);
                    pixels = in_descriptor(ring.pixels(f, full.at));
                    full.next(f.stages);
                }
                start[i] += pixels;
            }
            const uint64_t a = a_form + in_descriptor(weights);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < TARTAN_CUDA_CONV_ITEMS; i++)
#pragma unroll
                for (int u = 0; u < kUnits; u++)
                    wgmma_shared<kFactor, 8 * kRows>(d[u], a + i * (2048 >> 4),
                                                     b_form + (start[i] + u * next_unit), s > 0 || i > 0);
            wgmma_commit();
            wgmma_wait<1>();
            release();
            released = ring.weights_empty(step.at), ends = marks.y;
            step.next();
        }
        wgmma_wait<0>();
        release();
        bool broken = false;
#pragma unroll
        for (int u = 0; u < kUnits; u++) {
            volatile const ConvUnit *from = &ring.tile(board.at)->unit[u];
            const ConvUnit unit = {from->image, from->d, from->h, from->w, from->h_end, from->w_end};
            const int32_t channel = TARTAN_CUDA_CONV_GROUP * group + 16 * (int32_t)warp;
            float probe[4] = {0, 0, 0, 0};
#pragma unroll
            for (int i = 0; i < 4 * kRows; i++) probe[i % 4] = fmaf(d[u][i], 0.f, probe[i % 4]);
            broken = broken || (probe[0] + probe[1]) + (probe[2] + probe[3]) != 0;
            if (p.to_f32)
                store_floats<kRows>(p, unit, channel, d[u]);
            else
                store_halves<kFactor, kRows>(p, unit, ring.room(warp), channel, d[u]);
        }
        if (__any_sync(~0u, broken)) {
            for (int u = 0; u < kUnits; u++) {
                volatile const ConvUnit *from = &ring.tile(board.at)->unit[u];
                const ConvUnit unit = {from->image, from->d, from->h, from->w, from->h_end, from->w_end};
                store_exact_unit<T>(p, unit, TARTAN_CUDA_CONV_GROUP * group + 16 * (int32_t)warp);
            }
        }
        __syncwarp(); /* all lanes have read the tile */
        if (lane == 0) barrier_arrive(ring.read(board.at));
        board.next();
    }
}

template <Factor kFactor, int kUnits, int kRows>
__global__ void __launch_bounds__(kConvThreads, 2)
    conv(const __grid_constant__ ConvProblem p, const __grid_constant__ CUtensorMap map) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) uint8_t shared[];
    const ConvRing ring(shared, p.form);
    if (threadIdx.x == 0) {
        tensor_prefetch(&map);
        ring.init(p.form.stages);
    }
    __syncthreads();
    wait_for_kernels_before();
    if (threadIdx.x < 128)
        multiply<kFactor, kUnits, kRows>(p, ring);
    else if (threadIdx.x < 160)
        load_pixels<kUnits>(p, ring, &map);
    else if (threadIdx.x == 160)
        load_weights(p, ring);
#endif
}

/* ---- Weights ---- */

/* Packs the 8 x 8 weights of each source as 8 rows of 8 channels; further CTAs, `windows_from` on, number the active
 * windows. */
template <typename T>
__global__ void __launch_bounds__(128)
    conv_pack(const int32_t *sources, int64_t count, const T *values, int32_t to_stride, int32_t from_stride,
              uint4 *packed, uint32_t windows_from, const __grid_constant__ Windows w, int32_t *windows_at) {
    let_next_kernel_begin();
    if (blockIdx.x >= windows_from) {
        const int64_t entry = (int64_t)(blockIdx.x - windows_from) * 128 + threadIdx.x;
        if (entry < w.lists.pointers[w.lines])
            windows_at[entry] = (int32_t)(tartan_cuda_row_of(w.lists.pointers, w.lines, entry) * w.grid_cols +
                                          w.lists.cols[entry]);
        return;
    }
    const int64_t i = (int64_t)blockIdx.x * 128 + threadIdx.x;
    if (i >= count) return;
    const int32_t source = sources[i];
    alignas(16) T rows[8][8];
#pragma unroll
    for (int r = 0; r < 8; r++) *(uint4 *)rows[r] = make_uint4(0, 0, 0, 0);
    if (source >= 0) {
        const T *at = values + (int64_t)source * 8;
#pragma unroll
        for (int r = 0; r < 8; r++)
            *(uint4 *)rows[r] =
                *(const uint4 *)(at + (int64_t)r * (from_stride == 1 ? to_stride : from_stride));
        if (from_stride != 1) {
#pragma unroll
            for (int r = 0; r < 8; r++)
#pragma unroll
                for (int c = 0; c < r; c++) {
                    const T x = rows[r][c];
                    rows[r][c] = rows[c][r];
                    rows[c][r] = x;
                }
        }
    }
#pragma unroll
    for (int r = 0; r < 8; r++) packed[8 * i + r] = *(const uint4 *)rows[r];
}

/* ---- Pixels ---- */

/* Copies an image of any strides to [images][d][h][w][channels], of which pixels outside of the active windows become 0. A
 * thread has 8 channels. */
__global__ void __launch_bounds__(256)
    conv_turn(const __grid_constant__ tartan_cuda_image from, const __grid_constant__ Windows windows,
              int64_t positions, uint4 *to) {
    const int64_t pieces = from.channels / 8, all = positions * pieces;
    const bool along = from.channel == 1;
    for (int64_t e = (int64_t)blockIdx.x * 256 + threadIdx.x; e < all; e += (int64_t)gridDim.x * 256) {
        const int64_t number = along ? e / pieces : e % positions, piece = along ? e % pieces : e / positions;
        const Position x = position_of(number, from.size);
        alignas(16) uint16_t values[8] = {};
        if (is_active(windows, x)) {
            const uint16_t *at = (const uint16_t *)from.data + element_of(from, x) + 8 * piece * from.channel;
#pragma unroll
            for (int i = 0; i < 8; i++) values[i] = at[i * from.channel];
        }
        to[number * pieces + piece] = *(const uint4 *)values;
    }
}

/* ---- Results that the kernel leaves as sums ---- */

/* [images][d][h][w][channels] of f32 to `to`. */
template <typename T>
__global__ void __launch_bounds__(256)
    conv_last(const __grid_constant__ tartan_cuda_conv p, const __grid_constant__ ConvEpilogue last,
              const __grid_constant__ Windows windows, bool restricted, const float *sums,
              int64_t positions) {
    const int64_t all = positions * p.to.channels;
    for (int64_t e = (int64_t)blockIdx.x * 256 + threadIdx.x; e < all; e += (int64_t)gridDim.x * 256) {
        const int64_t number = e / p.to.channels, channel = e % p.to.channels;
        const Position x =
            restricted ? window_position(windows, number, p.to.size) : position_of(number, p.to.size);
        if (x.image < 0) continue;
        const int64_t pixel =
            ((x.image * p.to.size[0] + x.at[0]) * p.to.size[1] + x.at[1]) * p.to.size[2] + x.at[2];
        const float y = conv_finish<float>(last, edge_class_of(last.edges, x), channel,
                                           sums[pixel * p.to.channels + channel]);
        conv_put<T>(last, p.to.data, p.to.dtype, element_of(p.to, x) + channel * p.to.channel, y);
    }
}

} // namespace

} // namespace tartan_cuda

#endif
