/* SPDX-License-Identifier: Apache-2.0
 * Steps of optimisers whose moments have 8 bits. A slice along the first axis belongs to a thread, a warp or a CTA, which goes through it
 * twice: the largest of the new moments decide the scales, then moments are computed again and rounded. */
#ifndef TARTAN_CUDA_UPDATE_SLICES_CUH
#define TARTAN_CUDA_UPDATE_SLICES_CUH

#include "kernels/update.cuh"

namespace tartan_cuda {
namespace {

struct slice_tensor : any_tensor {
    float *scales[2]; /* of M and V; NULL: not of 8 bits */
    int64_t scale_strides[2], slices;
    int32_t lanes; /* threads of a slice: 1, a warp, or all */
};
using slice_tensors = batch<slice_tensor, 60>;
static_assert(sizeof(slice_tensors) < 32000, "parameters of kernels have 32764 bytes");

/* ---- Threads of a slice ---- */

__device__ __forceinline__ bool any_of(int lanes, bool mine) {
    return lanes == 1 ? mine : lanes == 32 ? __any_sync(~0u, mine) : __syncthreads_or(mine);
}

__device__ __forceinline__ void largest_of(int lanes, float (&x)[2]) {
    __shared__ float room[2][THREADS / 32];
    if (lanes == 1) return;
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int step = 1; step < 32; step *= 2) x[n] = fmaxf(x[n], __shfl_xor_sync(~0u, x[n], step));
    if (lanes == 32) return;
    if (threadIdx.x % 32 == 0) room[0][threadIdx.x / 32] = x[0], room[1][threadIdx.x / 32] = x[1];
    __syncthreads();
    for (int warp = 0; warp < THREADS / 32; warp++)
        x[0] = fmaxf(x[0], room[0][warp]), x[1] = fmaxf(x[1], room[1][warp]);
}

/* ---- Numbers of 8 bits ---- */

/* The smallest power of two by which all numbers can be divided to fit in the dtype. */
__device__ __forceinline__ float scale_for(float largest) {
    int exponent;
    if (!(largest > 0)) return (float)TARTAN_I_MOMENT_SCALE;
    const double part = frexp((double)largest / TARTAN_I_MOMENT_LARGEST, &exponent);
    return (float)fmax(ldexp(1.0, part > 0.5 ? exponent : exponent - 1), TARTAN_I_MOMENT_SCALE);
}

__device__ __forceinline__ float finite_size(float x) {
    return isfinite(x) ? fabsf(x) : 0;
}

/* The words of QUAD elements from i on. */
__device__ __forceinline__ Words words_from(const Drawing &of, uint32_t stream, int32_t place, int64_t i) {
    Drawing drawing = of;
    drawing.stream = stream;
    drawing.place = (uint32_t)place;
    Words words = words_of(drawing, (uint64_t)i / QUAD);
    if (i % QUAD == 0) return words;
    Words found;
#pragma unroll
    for (int k = 0; k < QUAD; k++) {
        const int64_t at = i + k;
        if (at % QUAD == 0) words = words_of(drawing, (uint64_t)at / QUAD);
        found.v[k] = at % QUAD == 0   ? words.v[0]
                     : at % QUAD == 1 ? words.v[1]
                     : at % QUAD == 2 ? words.v[2]
                                      : words.v[3];
    }
    return found;
}

/* ---- The kernel ---- */

template <typename Rule, bool ROUNDED>
__global__ void __launch_bounds__(THREADS)
    update_slices(const __grid_constant__ slice_tensors all, const __grid_constant__ numbers_of_call call) {
    const double factor = call.factor * call.scale.get();
    if (call.scale.get() == 0 || !isfinite(call.scale.get())) return;
    const slice_tensor &t = all.tensors[place_of(all, (int)blockIdx.x)];
    const int lanes = t.lanes, lane = (int)threadIdx.x % lanes;
    const int64_t slice = (int64_t)((int)blockIdx.x - t.first) * (THREADS / lanes) + threadIdx.x / lanes,
                  begin = slice * t.slice, end = begin + t.slice, step = (int64_t)QUAD * lanes;
    if (slice >= t.slices || of_slice<float>(t.gates, t.gate_stride, slice) == 0) return;
    if (call.lazy) {
        bool found = false;
        for (int64_t i = begin + lane; i < end && !found; i += lanes) found = !is_zero(t, i);
        if (!any_of(lanes, found)) return;
    }
    const float rate = (float)call.rate * of_slice<float>(t.rates, t.rate_stride, slice);
    float numbers[TARTAN_I_UPDATE_NUMBERS], old_scale[2], largest[2] = {};
#pragma unroll
    for (int i = 0; i < TARTAN_I_UPDATE_NUMBERS; i++) numbers[i] = (float)call.numbers[i];
#pragma unroll
    for (int n = 0; n < 2; n++)
        old_scale[n] = t.scales[n] != nullptr ? t.scales[n][slice * t.scale_strides[n]] : 0;

    const auto load_moments = [&](int64_t i, float(&m)[QUAD], float(&v)[QUAD]) {
        if (t.scales[0] != nullptr)
            load_as<__nv_fp8_e4m3>(t, M, i, end, m);
        else
            load(t, M, i, end, m);
        if constexpr (Rule::STATES > 1) {
            if (t.scales[1] != nullptr)
                load_as<__nv_fp8_e4m3>(t, V, i, end, v);
            else
                load(t, V, i, end, v);
        }
#pragma unroll
        for (int k = 0; k < QUAD; k++) {
            if (t.scales[0] != nullptr) m[k] *= old_scale[0];
            if (t.scales[1] != nullptr) row_square_of_small::apply(&v[k], &old_scale[1], &v[k]);
        }
    };
    const auto compute = [&](int64_t i, float(&p)[QUAD], float(&m)[QUAD], float(&v)[QUAD]) {
        float g[QUAD];
        load(t, P, i, end, p);
        load(t, G, i, end, g);
        load_moments(i, m, v);
#pragma unroll
        for (int k = 0; k < QUAD; k++)
            Rule::apply(p[k], call.filter(g[k]) * (float)factor, m[k], v[k], rate, numbers);
    };
    for (int64_t i = begin + QUAD * lane; i < end; i += step) {
        float p[QUAD], m[QUAD] = {}, v[QUAD] = {};
        compute(i, p, m, v);
#pragma unroll
        for (int k = 0; k < QUAD; k++) {
            largest[0] = fmaxf(largest[0], finite_size(m[k]));
            largest[1] = fmaxf(largest[1], finite_size(v[k]));
        }
    }
    largest_of(lanes, largest);
    const float scale[2] = {scale_for(largest[0]), scale_for(sqrtf(largest[1]))};

    const float *const format = call.formats[2];
    const auto store_moments = [&](int64_t i, float(&m)[QUAD], float(&v)[QUAD]) {
        if (t.scales[0] != nullptr) {
            const Words words = words_from(call.drawing, TARTAN_I_STREAM_MEAN, t.place, i);
#pragma unroll
            for (int k = 0; k < QUAD; k++) m[k] = round_by(words.v[k], format, m[k] * (1 / scale[0]));
            store_as<__nv_fp8_e4m3>(t, M, i, end, m);
        } else {
            store(t, M, i, end, m);
        }
        if constexpr (Rule::STATES > 1) {
            if (t.scales[1] == nullptr) {
                store(t, V, i, end, v);
                return;
            }
            const float small[] = {1 / scale[1], (float)TARTAN_I_MOMENT_LEAST};
            const Words words = words_from(call.drawing, TARTAN_I_STREAM_SQUARE, t.place, i);
#pragma unroll
            for (int k = 0; k < QUAD; k++) {
                float root;
                row_small_of_square::apply(&v[k], small, &root);
                v[k] = round_by(words.v[k], format, root);
            }
            store_as<__nv_fp8_e4m3>(t, V, i, end, v);
        }
    };
    for (int64_t i = begin + QUAD * lane; i < end; i += step) {
        float p[QUAD], m[QUAD] = {}, v[QUAD] = {};
        compute(i, p, m, v);
        if (ROUNDED && (t.dtypes[P] == TARTAN_F16 || t.dtypes[P] == TARTAN_BF16)) {
            const Words words = words_from(call.drawing, TARTAN_I_STREAM_UPDATE, t.place, i);
#pragma unroll
            for (int k = 0; k < QUAD; k++)
                p[k] = round_by(words.v[k], call.formats[t.dtypes[P] == TARTAN_BF16], p[k]);
        }
        store(t, P, i, end, p);
        store_moments(i, m, v);
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
        if (lane == 0 && t.scales[n] != nullptr) t.scales[n][slice * t.scale_strides[n]] = scale[n];
}

/* ---- On the host ---- */

inline void take_scales(const tartan_array *moments, const tartan_array *scales, int64_t place, int n,
                        slice_tensor *to) {
    if (moments == nullptr || moments[place].dtype != TARTAN_F8E4M3) return;
    to->scales[n] = (float *)scales[place].data;
    to->scale_strides[n] = scales[place].strides[0];
}

template <typename Rule, bool ROUNDED>
tartan_status run_slices(const char *function, tartan_cuda_queue *queue, const tartan_op_update *op,
                         const numbers_of_call &call) {
    constexpr int64_t FEW = 32, MANY = 2048; /* elements of a slice */
    if constexpr (Rule::STATES > 0) {
        auto to = collector_of<slice_tensors>([&](const slice_tensors &all) {
            return launch_many(function, queue, update_slices<Rule, ROUNDED>, THREADS, all, call);
        });
        for (int64_t i = 0; i < op->count; i++) {
            const tartan_array *const arrays[] = {&op->p[i], &op->g[i],
                                                  op->m != nullptr ? &op->m[i] : nullptr,
                                                  op->v != nullptr ? &op->v[i] : nullptr};
            const int64_t elements = tartan_i_array_elements(arrays[0]);
            if (elements == 0 || !tartan_i_has_small_moments(op, i)) continue;
            slice_tensor *t = to.next();
            describe(arrays, LISTS, elements, t);
            describe_strides(arrays, LISTS, t);
            t->place = (int32_t)i;
            t->gates = slices_of(op->gates, i, &t->gate_stride);
            t->rates = slices_of(op->rates, i, &t->rate_stride);
            take_scales(op->m, op->m_scales, i, 0, t);
            take_scales(op->v, op->v_scales, i, 1, t);
            t->slices = elements / t->slice;
            t->lanes = t->slice < FEW ? 1 : t->slice <= MANY ? 32 : THREADS;
            PASS(to.add((t->slices - 1) / (THREADS / t->lanes) + 1));
        }
        return to.flush();
    }
    return TARTAN_OK;
}

} // namespace
} // namespace tartan_cuda

#endif
