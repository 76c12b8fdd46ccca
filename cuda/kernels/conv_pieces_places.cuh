/* SPDX-License-Identifier: Apache-2.0
 * What the kernels conv_pieces and conv_depthwise know of a problem: its positions, in both images, and sums that are computed
 * again. */
#ifndef TARTAN_CUDA_CONV_PIECES_PLACES_CUH
#define TARTAN_CUDA_CONV_PIECES_PLACES_CUH

#include "kernels/conv_pieces.cuh"

namespace tartan_cuda {
namespace conv_pieces {
namespace {

constexpr int kPositions = TARTAN_CUDA_PIECES_POSITIONS, kThreads = TARTAN_CUDA_PIECES_THREADS,
              kRow = TARTAN_CUDA_PIECES_ROW;

struct Args : ConvResults {
    PieceLists list;
    PieceImage from_pieces; /* `from`, or a copy of it whose channels are slots */
    const void *packed;     /* [steps][parts][width] rows; or NULL: weights are read where they are */
    int64_t rows_of_filter; /* block rows */
    int32_t weights;        /* stored */
    bool cleared;           /* results are zeros before */
    int64_t tiles;          /* of a phase */
    int32_t splits;         /* of a list, each with sums of its own if there are several */
    uint32_t from_stride[TARTAN_I_DIMS], to_stride[TARTAN_I_DIMS];
    bool wide;  /* results are stored by 16 bytes */
    bool plain; /* results are the sums */
};

/* The number of a position of `to` as `place` counts, which is `number` where windows restrict positions. */
__device__ __forceinline__ int64_t number_of(const Args &a, const Position &x, int64_t number) {
    if (a.restricted) return number;
    return ((x.image * a.p.to.size[0] + x.at[0]) * a.p.to.size[1] + x.at[1]) * a.p.to.size[2] + x.at[2];
}

constexpr int64_t kNowhere = INT64_MIN; /* no position of `to` */

struct Places {
    int4 spots[kPositions]; /* of `from`, which pieces shift: d, h, w, and its first piece */
    int64_t to[kPositions]; /* where its results begin, in elements, or kNowhere */
    int32_t edge_class[kPositions];
};

/* Position `number` of a phase: of `to`, and in *steps what strides multiply. */
__device__ __forceinline__ Position find_position(const Args &a, int64_t number, uint32_t phase,
                                                  int32_t (&steps)[TARTAN_I_DIMS]) {
    Position x = {-1, {}};
    if (a.restricted) { /* of one phase */
        x = place(a, number);
        for (int d = 0; d < TARTAN_I_DIMS; d++) steps[d] = (int32_t)x.at[d];
        return x;
    }
    uint32_t left = (uint32_t)number;
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        uint32_t size = (uint32_t)a.p.to.size[d], remainder = 0;
        const uint32_t stride = a.to_stride[d];
        if (stride > 1) {
            remainder = phase % stride;
            phase /= stride;
            size = (size - remainder + stride - 1) / stride;
            if (size == 0) return x;
        }
        uint32_t at = 0;
        if (size > 1) {
            at = left % size;
            left /= size;
        }
        steps[d] = (int32_t)at;
        x.at[d] = at * stride + remainder;
    }
    if (left < (uint64_t)a.p.entries) x.image = left;
    return x;
}

__device__ __forceinline__ void find_place(const Args &a, int64_t number, int32_t phase, Places &s, int i) {
    int32_t steps[TARTAN_I_DIMS];
    const Position x = find_position(a, number, (uint32_t)phase, steps);
    int4 spot = make_int4(INT32_MIN, INT32_MIN, INT32_MIN, 0);
    int64_t to = kNowhere;
    int32_t edge_class = 0;
    if (x.image >= 0) {
        spot = make_int4(steps[0] * (int32_t)a.from_stride[0], steps[1] * (int32_t)a.from_stride[1],
                         steps[2] * (int32_t)a.from_stride[2], 0);
        spot.w = (int32_t)x.image * a.from_pieces.entry + a.from_pieces.offset(spot);
        to = a.sums != nullptr ? number_of(a, x, number) * (a.p.to_slots.grid * a.p.to_slots.edge)
                               : element_of(a.p.to, x);
        edge_class = edge_class_of(a.last.edges, x);
    }
    s.spots[i] = spot;
    s.to[i] = to;
    s.edge_class[i] = edge_class;
}

/* A sum without the zeros of missing weights and pixels, its terms in the order of conv_plain. */
template <typename S>
__device__ __noinline__ S exact_sum(const Args &a, int64_t number, int32_t phase, int64_t slot) {
    int32_t steps[TARTAN_I_DIMS];
    const Position at = find_position(a, number, (uint32_t)phase, steps);
    const tartan_cuda_slots &from = a.p.from_slots, &to = a.p.to_slots;
    const int64_t line = slot / to.edge, inside = slot % to.edge, taps = a.p.adjoint ? a.p.taps.taps : 1;
    S sum = 0;
    for (int64_t of_tap = 0; of_tap < taps; of_tap++)
        for (int64_t e = a.lists.pointers[of_tap * to.grid + line];
             e < a.lists.pointers[of_tap * to.grid + line + 1]; e++) {
            int64_t tap = of_tap, other = a.lists.cols[e], places[TARTAN_I_DIMS];
            if (!a.p.adjoint) {
                tap = other / from.grid;
                other -= tap * from.grid;
            }
            tap_places(a.p.taps, tap, places);
            Position x;
            if (!step_tap(a.p.taps, a.p.adjoint, places, at, a.p.from.size, &x)) continue;
            if (!a.restricted && !is_active(a.windows, x)) continue;
            const int64_t id = a.lists.ids != nullptr ? a.lists.ids[e] : e;
            for (int32_t i = 0; i < from.edge; i++) {
                const int64_t from_slot = other * from.edge + i;
                const int64_t channel = a.from.of != nullptr            ? a.from.of[from_slot]
                                        : from_slot < a.p.from.channels ? from_slot
                                                                        : -1;
                if (channel < 0) continue;
                sum = fma(tartan_cuda_element<S>(a.p.values, a.p.dtype,
                                                 id * from.edge * to.edge + inside * to.stride +
                                                     (int64_t)i * from.stride),
                          tartan_cuda_element<S>(a.p.from.data, a.p.from.dtype,
                                                 element_of(a.p.from, x) + channel * a.p.from.channel),
                          sum);
            }
        }
    return sum;
}

/* ---- On the host ---- */

/* Positions of a phase, at most. */
inline int64_t positions_of(const Args &a) {
    if (a.restricted) return a.positions;
    int64_t positions = a.p.entries;
    for (int d = 0; d < TARTAN_I_DIMS; d++)
        positions *= (a.p.to.size[d] + a.to_stride[d] - 1) / a.to_stride[d];
    return positions;
}

/* Whether 16 bytes of results lie together; `multiple`: slots from one list's first to the next. */
inline bool stores_wide(const tartan_cuda_image &y, const ConvEpilogue &last, int64_t multiple) {
    const int64_t unit = 16 / (y.dtype == TARTAN_F64 ? 8 : y.dtype == TARTAN_F32 ? 4 : 2);
    bool good = !last.add && y.channel == 1 && (uintptr_t)y.data % 16 == 0 && y.entry % unit == 0 &&
                multiple % unit == 0;
    for (int d = 0; d < TARTAN_I_DIMS; d++) good = good && y.step[d] % unit == 0;
    return good;
}

/* Whether an image fills the memory from its first element to its last. */
inline bool is_dense(const tartan_cuda_image &x, int64_t entries) {
    int64_t step[] = {x.entry, x.channel, x.step[0], x.step[1], x.step[2]},
            size[] = {entries, x.channels, x.size[0], x.size[1], x.size[2]}, all = 1;
    for (int round = 0; round < 5; round++) { /* dimensions by their steps */
        int next = -1;
        for (int d = 0; d < 5; d++)
            if (size[d] > 1 && step[d] == all) next = d;
        if (next < 0) break;
        all *= size[next];
        size[next] = 1;
    }
    return size[0] * size[1] * size[2] * size[3] * size[4] == 1;
}

inline tartan_status clear(const char *function, tartan_cuda_queue *queue, const tartan_cuda_image &x,
                           int64_t entries) {
    const int64_t elements = entries * x.channels * x.size[0] * x.size[1] * x.size[2];
    return tartan_cuda_check(
        function,
        cudaMemsetAsync(x.data, 0, (size_t)(elements * tartan_cuda_bytes_of(x.dtype)), queue->stream),
        "clearing the result");
}

/* The image by pieces. */
struct Pieces {
    int32_t piece; /* slots */
    bool turns;    /* a copy of the image is needed, */
    TurnedSlots turned;
    int64_t bytes; /* of so many bytes */
};

template <typename T> Pieces pieces_of(const Args &a) {
    constexpr int32_t kElement = (int32_t)sizeof(T);
    const tartan_cuda_conv &p = a.p;
    const int64_t slots = a.from.of != nullptr ? p.from_slots.grid * p.from_slots.edge : p.from.channels;
    Pieces x = {tartan_cuda_conv_piece(slots, kElement), false, {}, 0};
    const int32_t width = (int32_t)((slots + x.piece - 1) / x.piece * x.piece),
                  dtype = std::is_same_v<T, float> ? TARTAN_F32 : p.dtype;
    x.turns = a.windows.map != nullptr || p.from.dtype != dtype ||
              !has_pieces(p.from, a.from, p.entries, kElement, x.piece * kElement, 1 << 20);
    x.turned = {a.from, slots, width, width, x.piece, width / x.piece};
    if (x.turns) x.bytes = turned_bytes(p.from, x.turned, p.entries, kElement);
    return x;
}

/* Divides the positions; `positions`: of a CTA. */
inline void divide(Args *a, int32_t positions) {
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        a->from_stride[d] = a->p.adjoint ? 1 : (uint32_t)a->p.taps.stride[d];
        a->to_stride[d] = a->p.adjoint ? (uint32_t)a->p.taps.stride[d] : 1;
    }
    a->tiles = (positions_of(*a) + positions - 1) / positions;
}

/* What all kernels know of a problem whose lists are there. */
inline void describe(Args *a) {
    const tartan_cuda_conv &p = a->p;
    const tartan_cuda_conv_piece_form &f = a->list.form;
    a->rows_of_filter = p.layout->grid_rows;
    a->weights = (int32_t)(p.layout->blocks * p.from_slots.edge * p.to_slots.edge);
    a->splits = 1;
    a->wide = a->to.of == nullptr && stores_wide(p.to, a->last, f.groups > 1 ? f.width : 16);
    a->plain = p.gain.data == nullptr && p.bias.data == nullptr && !p.relu;
    a->cleared = 4 * f.empty >= f.phases * f.groups && a->plain && !p.add && a->to.of == nullptr &&
                 !a->restricted && is_dense(p.to, p.entries);
}

/* Sums of a split. */
__host__ __device__ __forceinline__ int64_t sums_of(const Args &a) {
    return a.positions * a.p.to_slots.grid * a.p.to_slots.edge;
}

inline int64_t bytes_of_sums(const Args &a, int64_t sum) {
    return a.to.of == nullptr && a.splits == 1 ? 0 : a.splits * sums_of(a) * sum;
}

} // namespace
} // namespace conv_pieces
} // namespace tartan_cuda

#endif
