/* SPDX-License-Identifier: Apache-2.0
 * Lines that don't fill a whole number of units, but follow one another without gaps in the results: results, and operands like them,
 * are moved in units that reach from line to line. Other operands, such as one line for all or a number for each line, are read element
 * by element. */
#ifndef TARTAN_CUDA_SHORT_LINES_CUH
#define TARTAN_CUDA_SHORT_LINES_CUH

#include "kernels/bits.cuh"

namespace tartan_cuda {
namespace {

struct ShortLines {
    Access access;
    uint32_t flat; /* bit k: array k is moved in units */
};

/* Whether a sweep is one of these; arrays from `outputs` on are results. */
inline bool are_short_lines(tartan_cuda_sweep *s, int32_t outputs, ShortLines *out) {
    const tartan_cuda_axes &axes = s->axes[TARTAN_CUDA_KEPT];
    *out = {AT_ONCE, 0};
    if (s->unit != 1 || s->axes[TARTAN_CUDA_SUMMED].ndim != 0 || axes.ndim < 2 || !axes.small) return false;
    for (int32_t k = 0; k < s->count; k++) {
        const tartan_cuda_swept &a = s->array[k];
        const int32_t bytes = tartan_cuda_bytes_of(a.dtype);
        if (a.data == nullptr) continue;
        bool flat = (uintptr_t)a.data % 16 == 0;
        int64_t step = 1;
        for (int32_t d = 0; d < axes.ndim; step *= axes.length[d++])
            flat = flat && a.step[TARTAN_CUDA_KEPT][d] == step;
        if (!flat && k >= outputs) return false;
        if (!flat) continue;
        out->flat |= 1u << k;
        if (bytes > 2) out->access = BY_GROUP;
    }
    for (int32_t k = 0; k < s->count; k++)
        if (out->flat >> k & 1) s->array[k].next = 1;
    return true;
}

inline int64_t pieces_of(const tartan_cuda_sweep &s, const ShortLines &how, int slots) {
    const int64_t units = how.access == AT_ONCE ? 1 : GROUPS,
                  each = (int64_t)THREADS * units * (how.access == AT_ONCE ? slots : slots / GROUPS);
    return (s.axes[TARTAN_CUDA_KEPT].elements + each - 1) / each;
}

/* The elements of an array, from one on. */
struct Following {
    uint32_t number, column;
    int64_t at;

    __device__ __forceinline__ void find(const tartan_cuda_axes &axes, const int64_t (&step)[TARTAN_MAX_NDIM],
                                         uint32_t first) {
        uint32_t rest = number = first;
        at = 0;
        for (int32_t d = 0; d < axes.ndim; d++) {
            uint32_t here = rest;
            if (d + 1 < axes.ndim) {
                if (axes.by[d].factor != 0) rest = __umulhi(rest, axes.by[d].factor) >> axes.by[d].shift;
                here -= rest * (uint32_t)axes.length[d];
            }
            if (d == 0) column = here;
            at += (int64_t)((uint64_t)here * (uint64_t)step[d]);
        }
    }
    __device__ __forceinline__ void advance(const tartan_cuda_axes &axes,
                                            const int64_t (&step)[TARTAN_MAX_NDIM]) {
        const int64_t length = axes.length[0], to_next_line = step[1] - (length - 1) * step[0];
        const bool ends = column + 1 == (uint32_t)length;
        number++;
        if (ends && axes.ndim > 2) {
            find(axes, step, number);
            return;
        }
        at += ends ? to_next_line : step[0];
        column = ends ? 0 : column + 1;
    }
};

/* What a thread has of a piece: two groups of elements, or one twice as long. */
template <typename S> struct PieceOf {
    int64_t first[GROUPS], elements;
    bool at_once;

    __device__ __forceinline__ PieceOf(const tartan_cuda_sweep &s, const ShortLines &how, int64_t piece)
        : elements(s.axes[TARTAN_CUDA_KEPT].elements), at_once(how.access == AT_ONCE) {
        first[0] = at_once ? (piece * THREADS + threadIdx.x) * SLOTS<S>
                           : (piece * GROUPS * THREADS + threadIdx.x) * HALF<S>;
        first[1] = first[0] + (at_once ? 1 : THREADS) * HALF<S>;
    }
    __device__ __forceinline__ int64_t number(int i) const { return first[i / HALF<S>] + i % HALF<S>; }
    __device__ __forceinline__ bool is_whole() const { return first[1] + HALF<S> <= elements; }
};

template <typename S>
__device__ __forceinline__ void load_short(const tartan_cuda_sweep &s, const ShortLines &how, int k,
                                           const PieceOf<S> &piece, Bits &bits) {
    const tartan_cuda_swept &a = s.array[k];
    const int bytes = bytes_of<S>(a.dtype);
    if (a.data == nullptr) return;
    if ((how.flat >> k & 1) != 0 && piece.is_whole()) {
        load_group(a, bytes, how.access, 0, piece.first[0], bits);
        if (!piece.at_once) load_group(a, bytes, how.access, 1, piece.first[1], bits);
        return;
    }
    const tartan_cuda_axes &axes = s.axes[TARTAN_CUDA_KEPT];
    const int64_t(&step)[TARTAN_MAX_NDIM] = a.step[TARTAN_CUDA_KEPT];
    Following place;
#pragma unroll
    for (int i = 0; i < SLOTS<S>; i++) {
        if (i == 0 || (i == HALF<S> && !piece.at_once)) place.find(axes, step, (uint32_t)piece.number(i));
        if (piece.number(i) < piece.elements) set_bits(bits, bytes, i, load_bits(a, bytes, place.at));
        place.advance(axes, step);
    }
}

template <typename S>
__device__ __forceinline__ void store_short(const tartan_cuda_sweep &s, const ShortLines &how, int k,
                                            const PieceOf<S> &piece, const Bits &bits) {
    const tartan_cuda_swept &a = s.array[k];
    const int bytes = bytes_of<S>(a.dtype);
    if (a.data == nullptr) return;
    if (piece.is_whole()) {
        store_group(a, bytes, how.access, 0, piece.first[0], bits);
        if (!piece.at_once) store_group(a, bytes, how.access, 1, piece.first[1], bits);
        return;
    }
#pragma unroll
    for (int i = 0; i < SLOTS<S>; i++)
        if (piece.number(i) < piece.elements) store_bits(a, bytes, piece.number(i), get_bits(bits, bytes, i));
}

} // namespace
} // namespace tartan_cuda

#endif
