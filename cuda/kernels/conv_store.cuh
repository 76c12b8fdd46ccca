/* SPDX-License-Identifier: Apache-2.0
 * How conv_wgmma.cu stores its results. */
#ifndef TARTAN_CUDA_CONV_STORE_CUH
#define TARTAN_CUDA_CONV_STORE_CUH

#include "kernels/conv_epilogue.cuh"
#include "kernels/conv_ring.cuh"

namespace tartan_cuda {

namespace {

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

__device__ __forceinline__ char *result_of(const ConvProblem &p, const ConvPart &part, const ConvUnit &u,
                                           int32_t row, int32_t col, int32_t channel) {
    const int64_t h = u.h + (p.form.lines ? 0 : row), w = u.w + col + (p.form.lines ? 8 * row : 0);
    return part.to + u.image * p.to_image + u.d * p.to_step[0] + h * p.to_step[1] + w * p.to_step[2] +
           channel * p.to_channel;
}

/* What becomes of a channel's sums: gain, the bias after it, the least value. */
struct ConvAffine {
    float gain, bias, least;
};

__device__ __forceinline__ ConvAffine affine_of(const ConvProblem &p, int32_t channel) {
    ConvAffine a = {1, 0, p.relu ? 0.f : -INFINITY};
    if (channel >= p.channels) return a;
    if (p.gain != nullptr) a.gain = p.gain[channel * p.gain_channel];
    if (p.bias != nullptr) a.bias = p.bias[channel * p.bias_channel];
    if (p.bias_first) a.bias *= a.gain;
    return a;
}

__device__ __forceinline__ float apply(const ConvAffine &a, float x) {
    return larger_or_nan(fmaf(a.gain, x, a.bias), a.least);
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

/* Where channel `channel` of 64 is in the box of a unit's results: rows of 128 bytes, swizzled. */
__device__ __forceinline__ uint32_t place_in_box(uint32_t pixel, uint32_t channel) {
    return pixel * 128 + ((channel / 8 ^ pixel % 8) * 16) + channel % 8 * 2;
}

/* Computes the warp's 16 channels of a unit again; results go to its box, if there is one. */
template <typename T>
__device__ __noinline__ void store_exact_unit(const ConvProblem &p, const ConvPart &part, const ConvUnit &u,
                                              int32_t channel, uint8_t *box) {
    for (int32_t e = threadIdx.x % 32; e < 16 * 8 * p.form.rows; e += 32) {
        const int32_t k = channel + e % 16, col = e / 16 % 8, row = e / 128;
        const ConvRows rows = rows_of(p, u, col);
        if (k >= p.channels || row < rows.low || row >= rows.high) continue;
        const int32_t inside[] = {u.d, u.h + (p.form.lines ? 0 : row),
                                  u.w + col + (p.form.lines ? 8 * row : 0)};
        Position at = {u.image, {}};
        for (int d = 0; d < TARTAN_I_DIMS; d++) at.at[d] = inside[d] * p.spread[d] + part.phase[d];
        const float y = apply(affine_of(p, k), exact_result<T>(p, at, k));
        if (box != nullptr)
            *(T *)(box + place_in_box(8 * row + col, k % TARTAN_CUDA_CONV_GROUP)) = tartan_cuda_to<T>(y);
        else if (p.to_f32)
            *(float *)result_of(p, part, u, row, col, k) = y;
        else
            *(T *)result_of(p, part, u, row, col, k) = tartan_cuda_to<T>(y);
    }
}

/* The dtype of images and filters. */
template <Factor kFactor>
using ConvElement = std::conditional_t<kFactor == Factor::tf32, float,
                                       std::conditional_t<kFactor == Factor::f16, __half, __nv_bfloat16>>;

template <Factor kFactor> __device__ __forceinline__ uint32_t pack_pair(float low, float high) {
    if constexpr (kFactor == Factor::f16) {
        const __half2 pair = __floats2half2_rn(low, high);
        return *(const uint32_t *)&pair;
    } else {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return *(const uint32_t *)&pair;
    }
}

/* Finds sums that are not finite: x * 0 is NaN then. For bf16, they are checked two at a time after rounding; for f16, whose
 * range is small, before. */
template <Factor kFactor> struct ConvProbe {
    float sums[2] = {0, 0};
    __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(0, 0), __floats2bfloat162_rn(0, 0)};
    __device__ __forceinline__ void take(const float *x) {
        if constexpr (kFactor == Factor::f16)
#pragma unroll
            for (int i = 0; i < 8; i++) sums[i % 2] = fmaf(x[i], 0.f, sums[i % 2]);
    }
    __device__ __forceinline__ void take(int i, uint32_t pair) {
        if constexpr (kFactor != Factor::f16)
            pairs[i] = __hfma2(*(const __nv_bfloat162 *)&pair, __floats2bfloat162_rn(0, 0), pairs[i]);
    }
    __device__ __forceinline__ bool found() const {
        const __nv_bfloat162 sum = __hadd2(pairs[0], pairs[1]);
        return *(const uint32_t *)&sum != 0 || sums[0] + sums[1] != 0;
    }
};

/* A warp's 16 channels of a unit, through shared memory, so that whole sectors of 16 channels are written: two rows at a time;
 * the next two are written while these are read. kAsTheyAre: without gain, bias and ReLU. Returns whether a sum is not
 * finite. */
template <Factor kFactor, int kRows, bool kAsTheyAre>
__device__ __forceinline__ bool store_halves(const ConvProblem &p, const ConvPart &part, const ConvUnit &u,
                                             uint32_t room, int32_t channel, const float (&d)[4 * kRows]) {
    const uint32_t lane = threadIdx.x % 32, half = lane % 2;
    const int32_t col = lane / 2 % 8, begin = lane / 16;
    ConvAffine low = {}, high = {};
    if (!kAsTheyAre) low = affine_of(p, channel + lane / 4), high = affine_of(p, channel + lane / 4 + 8);
    ConvRows rows = rows_of(p, u, col);
    if (channel + 8 * (int32_t)half >= p.channels) rows.high = 0;
    char *to = result_of(p, part, u, begin, col, channel + 8 * half);
    const int64_t step = 2 * (p.form.lines ? 8 * p.to_step[2] : p.to_step[1]);
    const uint32_t put = lane / 16 * 8 + lane % 8, put_half = lane / 8 % 2, get = lane / 2;
    const uint32_t put_at = room + put * 32 + ((put_half ^ (put / 4 % 2)) * 16),
                   get_at = room + get * 32 + ((half ^ (get / 4 % 2)) * 16);
    ConvProbe<kFactor> probe;
    const auto pack = [&](int i, const ConvAffine &a, float x, float y) {
        const uint32_t pair =
            kAsTheyAre ? pack_pair<kFactor>(x, y) : pack_pair<kFactor>(apply(a, x), apply(a, y));
        probe.take(i, pair);
        return pair;
    };
    const auto put_down = [&](int r) {
        const float *x = &d[4 * r];
        probe.take(x);
        store_matrices_transposed(put_at + r / 2 % 2 * (kConvRoom / 2), pack(0, low, x[0], x[1]),
                                  pack(1, high, x[2], x[3]), pack(0, low, x[4], x[5]),
                                  pack(1, high, x[6], x[7]));
    };
    __syncwarp();
    put_down(0);
#pragma unroll
    for (int r = 0; r < kRows; r += 2) {
        __syncwarp();
        const uint4 value = shared_load_16(get_at + r / 2 % 2 * (kConvRoom / 2));
        if (r + 2 < kRows) put_down(r + 2);
        if (r + begin >= rows.low && r + begin < rows.high) *(uint4 *)to = value;
        to += step;
    }
    return probe.found();
}

/* A warp's 16 channels of a unit to its box. */
template <Factor kFactor, int kRows, bool kAsTheyAre>
__device__ __forceinline__ bool stage_halves(const ConvProblem &p, uint32_t box, int32_t channel,
                                             const float (&d)[4 * kRows]) {
    const uint32_t lane = threadIdx.x % 32;
    ConvAffine low = {}, high = {};
    if (!kAsTheyAre) low = affine_of(p, channel + lane / 4), high = affine_of(p, channel + lane / 4 + 8);
    const uint32_t to =
        box + place_in_box(lane / 16 * 8 + lane % 8, channel % TARTAN_CUDA_CONV_GROUP + lane / 8 % 2 * 8);
    ConvProbe<kFactor> probe;
    const auto pack = [&](int i, const ConvAffine &a, float x, float y) {
        const uint32_t pair =
            kAsTheyAre ? pack_pair<kFactor>(x, y) : pack_pair<kFactor>(apply(a, x), apply(a, y));
        probe.take(i, pair);
        return pair;
    };
#pragma unroll
    for (int r = 0; r < kRows; r += 2) {
        const float *x = &d[4 * r];
        probe.take(x);
        store_matrices_transposed(to + 1024 * r, pack(0, low, x[0], x[1]), pack(1, high, x[2], x[3]),
                                  pack(0, low, x[4], x[5]), pack(1, high, x[6], x[7]));
    }
    return probe.found();
}

/* Lets the boxes of a tile leave shared memory once they are staged. By a warp: a lane has the box of a unit. */
template <int kUnits>
__device__ __forceinline__ void drain_results(const ConvProblem &p, const ConvRing &ring,
                                              const CUtensorMap *map) {
    const uint32_t lane = threadIdx.x % 32;
    PipelineState<kConvTiles> board;
    uint32_t team = 0;
    while (true) {
        barrier_wait(ring.posted(board.at), board.parity);
        volatile const ConvTile *tile = ring.tile(board.at);
        volatile const ConvUnit *from = &tile->unit[lane % kUnits];
        const int32_t list = tile->list, image = from->image, d = from->d, h = from->h, w = from->w;
        barrier_arrive(ring.read(board.at));
        board.next();
        if (list < 0) return;
        barrier_wait(ring.staged(), team);
        if (lane < kUnits && image >= 0) {
            tensor_store_5d(map, ring.room(0) + lane * 1024 * (uint32_t)p.form.rows,
                            TARTAN_CUDA_CONV_GROUP * list, w, h, d, image); /* there is one phase */
            bulk_commit();
            bulk_wait_read<0>();
        }
        barrier_arrive(ring.drained(team));
        team ^= 1;
    }
}

/* A lane's unit, for all lanes. */
__device__ __forceinline__ ConvUnit unit_of_lane(const ConvUnit &u, int32_t lane) {
    const auto of = [&](int32_t x) { return __shfl_sync(~0u, x, lane); };
    return {of(u.image), of(u.d), of(u.h), of(u.w), of(u.h_end), of(u.w_end)};
}

/* The results of a unit that depend on no pixel: a lane has 8 channels of two columns. */
template <Factor kFactor>
__device__ __forceinline__ void store_blank(const ConvProblem &p, const ConvPart &part,
                                            const ConvUnit &unit) {
    const int32_t lane = threadIdx.x % 32, channel = TARTAN_CUDA_CONV_GROUP * part.group + 8 * (lane % 8);
    const int64_t step = p.form.lines ? 8 * p.to_step[2] : p.to_step[1];
    float y[8];
#pragma unroll
    for (int i = 0; i < 8; i++) y[i] = p.as_they_are ? 0 : apply(affine_of(p, channel + i), 0);
    uint4 value = {};
    if constexpr (kFactor != Factor::tf32)
        value = make_uint4(pack_pair<kFactor>(y[0], y[1]), pack_pair<kFactor>(y[2], y[3]),
                           pack_pair<kFactor>(y[4], y[5]), pack_pair<kFactor>(y[6], y[7]));
    for (int32_t col = lane / 8; col < 8; col += 4) {
        const ConvRows rows = rows_of(p, unit, col);
        const int32_t end = min(rows.high, p.form.rows);
        char *to = result_of(p, part, unit, rows.low, col, channel);
        if (p.to_wide) {
            if (channel >= p.channels) continue;
            for (int32_t r = rows.low; r < end; r++, to += step) {
                *(float4 *)to = make_float4(y[0], y[1], y[2], y[3]);
                *(float4 *)(to + 16) = make_float4(y[4], y[5], y[6], y[7]);
            }
            continue;
        }
        if (!p.to_f32) {
            if (channel >= p.channels) continue;
#pragma unroll 4
            for (int32_t r = rows.low; r < end; r++, to += step) *(uint4 *)to = value;
            continue;
        }
        for (int32_t r = rows.low; r < end; r++, to += step)
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (channel + i < p.channels) *(float *)(to + i * p.to_channel) = y[i];
    }
}

/* The results of lists without steps. By a warp that has nothing else to do. A single warp waits for each of its
 * instructions, so finding units, which takes many, is done for 32 units at once. */
template <Factor kFactor> __device__ __forceinline__ void store_blanks(const ConvProblem &p) {
    const uint32_t busy = (uint32_t)p.lists.busy, blanks = (uint32_t)p.lists.count - busy;
    if (blanks == 0) return;
    wait_for_kernels_before();
    const uint32_t units = count_units(p), all = units * blanks;
    for (uint32_t first = blockIdx.x; first < all; first += 32 * gridDim.x) {
        const uint32_t mine = first + threadIdx.x % 32 * gridDim.x;
        const int32_t list = mine < all ? p.lists.order[busy + mine / units] : 0;
        const ConvUnit unit = find_unit(p, part_of(p, list), units, mine < all ? mine % units : units);
        for (uint32_t i = 0; i < 32 && first + i * gridDim.x < all; i++)
            store_blank<kFactor>(p, part_of(p, __shfl_sync(~0u, list, (int32_t)i)),
                                 unit_of_lane(unit, (int32_t)i));
    }
}

/* A warp of f32 of any strides: 8 lanes write 8 channels. */
template <int kRows>
__device__ __forceinline__ bool store_floats(const ConvProblem &p, const ConvPart &part, const ConvUnit &u,
                                             int32_t channel, const float (&d)[4 * kRows]) {
    const int32_t lane = threadIdx.x % 32, k = channel + lane / 4, col = 2 * (lane % 4);
    const ConvAffine affine[2] = {affine_of(p, k), affine_of(p, k + 8)};
    const ConvRows rows[2] = {rows_of(p, u, col), rows_of(p, u, col + 1)};
    char *to = result_of(p, part, u, 0, col, k);
    const int64_t step = p.form.lines ? 8 * p.to_step[2] : p.to_step[1];
    float probe[4] = {0, 0, 0, 0};
#pragma unroll
    for (int r = 0; r < kRows; r++) {
#pragma unroll
        for (int e = 0; e < 4; e++) probe[e] = fmaf(d[4 * r + e], 0.f, probe[e]);
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (k + 8 * (e / 2) < p.channels && r >= rows[e % 2].low && r < rows[e % 2].high)
                *(float *)(to + e % 2 * p.to_step[2] + e / 2 * 8 * p.to_channel) =
                    apply(affine[e / 2], d[4 * r + e]);
        to += step;
    }
    return (probe[0] + probe[1]) + (probe[2] + probe[3]) != 0;
}

} // namespace

} // namespace tartan_cuda

#endif
