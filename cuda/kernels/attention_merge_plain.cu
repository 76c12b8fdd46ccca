/* SPDX-License-Identifier: Apache-2.0
 * Merging two attentions: a CTA owns some tokens of a head, each with as many threads as it has units of V elements. */
#include "device/units.cuh"
#include "dtype.h"
#include "kernels.h"

namespace {

constexpr int THREADS = 256;

using problem = tartan_cuda_attention_merge;

struct cut {
    int64_t units;  /* of V elements, in a token */
    int32_t across; /* threads of a token */
    int32_t tokens; /* of a CTA */
    int64_t chunks; /* CTAs of a head */
    int64_t pieces;
};

__device__ __forceinline__ int64_t offset_of(const tartan_cuda_tensor &x, int64_t entry, int64_t head,
                                             int64_t token) {
    return entry * x.batch + head * x.head + token * x.token;
}

template <typename S, int V>
__device__ __forceinline__ void load(const tartan_cuda_tensor &x, int64_t at, S (&out)[V]) {
    tartan_cuda_by_unit<S>(x.dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const tartan_cuda_pack<T, V> unit = tartan_cuda_load_unit<T, V>(x.data, at);
#pragma unroll
        for (int v = 0; v < V; v++) out[v] = tartan_cuda_to<S>(unit.at[v]);
    });
}

template <typename S, int V>
__global__ void __launch_bounds__(THREADS) merge(const __grid_constant__ problem p, const cut c) {
    const int thread = threadIdx.x;
    for (int64_t piece = blockIdx.x; piece < c.pieces; piece += gridDim.x) {
        const int64_t which = piece / c.chunks, entry = which / p.heads, head = which % p.heads;
        const int64_t token = piece % c.chunks * c.tokens + thread / c.across;
        const bool exists = thread / c.across < c.tokens && token < p.tokens;
        S lse_a = -(S)INFINITY, lse_b = -(S)INFINITY;
        if (exists) {
            lse_a = ((const S *)p.lse_a.data)[offset_of(p.lse_a, entry, head, token)];
            lse_b = ((const S *)p.lse_b.data)[offset_of(p.lse_b, entry, head, token)];
        }
        __syncthreads(); /* lse may be lse_a or lse_b: all threads of a token have read it */
        if (!exists) continue;
        const bool has_a = lse_a != -(S)INFINITY, has_b = lse_b != -(S)INFINITY;
        const S most = lse_a != lse_a || lse_a > lse_b ? lse_a : lse_b; /* NaN if one of them is */
        const S weight_a = has_a ? exp(lse_a - most) : (S)0, weight_b = has_b ? exp(lse_b - most) : (S)0;
        const S total = weight_a + weight_b;
        for (int64_t unit = thread % c.across; unit < c.units; unit += c.across) {
            const int64_t element = unit * V;
            S a[V] = {}, b[V] = {};
            if (has_a)
                load<S, V>(p.out_a, offset_of(p.out_a, entry, head, token) + element * p.out_a.element, a);
            if (has_b)
                load<S, V>(p.out_b, offset_of(p.out_b, entry, head, token) + element * p.out_b.element, b);
            if (!has_a) {
#pragma unroll
                for (int v = 0; v < V; v++) a[v] = b[v];
            } else if (has_b) {
#pragma unroll
                for (int v = 0; v < V; v++) a[v] = weight_a / total * a[v] + weight_b / total * b[v];
            }
            tartan_cuda_by_unit<S>(p.out.dtype, [&](auto tag) {
                tartan_cuda_store_unit<typename decltype(tag)::type>(
                    p.out.data, offset_of(p.out, entry, head, token) + element * p.out.element, a, V);
            });
        }
        if (p.lse.data != nullptr && thread % c.across == 0)
            ((S *)p.lse.data)[offset_of(p.lse, entry, head, token)] =
                has_a && has_b ? most + log(total) : most;
    }
}

/* Whether units of 16 bytes of the widest element can be moved at once. */
bool is_even(const tartan_cuda_tensor &x, int64_t d, int64_t unit) {
    return x.element == 1 && (uintptr_t)x.data % 16 == 0 && d % unit == 0 && x.token % unit == 0 &&
           x.head % unit == 0 && x.batch % unit == 0;
}

template <typename S, int V>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const problem *p) {
    cut c = {};
    c.units = p->d / V;
    c.across = c.units < 1 ? 1 : c.units < THREADS ? (int32_t)c.units : THREADS;
    c.tokens = THREADS / c.across;
    c.chunks = (p->tokens - 1) / c.tokens + 1;
    c.pieces = p->batch * p->heads * c.chunks;
    return tartan_cuda_launch(function, queue, merge<S, V>, tartan_cuda_grid(c.pieces), dim3(THREADS), *p, c);
}

} // namespace

tartan_status tartan_cuda_attention_merge_plain(const char *function, tartan_cuda_queue *queue,
                                                const void *of) {
    const problem *p = (const problem *)of;
    int32_t bytes = 2;
    for (const tartan_cuda_tensor *x : {&p->out_a, &p->out_b, &p->out})
        if (tartan_cuda_bytes_of(x->dtype) > bytes) bytes = tartan_cuda_bytes_of(x->dtype);
    const int64_t unit = 16 / bytes;
    const bool even =
        is_even(p->out_a, p->d, unit) && is_even(p->out_b, p->d, unit) && is_even(p->out, p->d, unit);
    if (p->sum_dtype == TARTAN_F64)
        return even ? launch<double, 2>(function, queue, p) : launch<double, 1>(function, queue, p);
    if (!even) return launch<float, 1>(function, queue, p);
    return unit == 8 ? launch<float, 8>(function, queue, p) : launch<float, 4>(function, queue, p);
}
