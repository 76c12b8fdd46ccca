/* SPDX-License-Identifier: Apache-2.0
 * Depthwise convolution and its gradient with respect to the image: filters of single elements that join each slot of a piece with
 * the same slot of another one, where conv_depthwise_rows.cuh does not take them. A thread has a piece of the result at a few
 * neighbouring positions; every product is one fma of what it loads, 16 bytes at a time. Lists are as in conv_pieces.h, for groups
 * of one piece. */
#include "kernels/conv_depthwise_rows.cuh"

namespace tartan_cuda {
namespace conv_depthwise {
namespace {

using conv_pieces::Args;

constexpr int kThreads = 256, kEach = 4; /* positions of a thread */

/* The weights [pieces][slots of a piece] as sums, and of each piece which slots have one. */
template <typename S>
__global__ void __launch_bounds__(256)
    pack(const __grid_constant__ Args a, const __grid_constant__ tartan_cuda_row_index rows, S *to,
         uint32_t *stored) {
    const int32_t id = (int32_t)(blockIdx.x * 256 + threadIdx.x), piece = a.list.form.piece;
    let_next_kernel_begin();
    if (id >= a.weights) return;
    const int32_t row = (int32_t)tartan_cuda_row_of(rows.pointers, a.rows_of_filter, id);
    const int32_t at = a.list.of_block[(int64_t)id * a.list.form.each], slot = row % piece;
    to[(int64_t)at * piece + slot] = tartan_cuda_element<S>(a.p.values, a.p.dtype, id);
    if (stored != nullptr) atomicOr(&stored[at], 1u << slot);
}

/* A piece of slots and up to kEach neighbouring positions, in one row of the image unless windows restrict them. */
template <typename T> struct Sums {
    using S = tartan_cuda_sum<T>;
    static constexpr int kSlots = 16 / (int)sizeof(T);
    S of[kEach][kSlots];
    __device__ __forceinline__ static void load_weights(const Args &a, int32_t e, S (&weights)[kSlots]) {
        constexpr int kLoads = kSlots * (int)sizeof(S) / 16;
#pragma unroll
        for (int i = 0; i < kLoads; i++)
            ((uint4 *)weights)[i] = ((const uint4 *)a.packed)[(int64_t)e * kLoads + i];
    }
    /* has: the slots that have a weight */
    template <bool kFull>
    __device__ __forceinline__ void add(int j, const S (&weights)[kSlots], const S (&pixel)[kSlots],
                                        uint32_t has) {
#pragma unroll
        for (int i = 0; i < kSlots; i++)
            if (kFull || has >> i & 1) of[j][i] = fma(weights[i], pixel[i], of[j][i]);
    }
};

template <typename T>
__device__ __forceinline__ void load_pixel(const char *at, tartan_cuda_sum<T> (&pixel)[16 / sizeof(T)]) {
    alignas(16) T x[16 / sizeof(T)];
    *(uint4 *)x = *(const uint4 *)at;
#pragma unroll
    for (int i = 0; i < 16 / (int)sizeof(T); i++) pixel[i] = tartan_cuda_to<tartan_cuda_sum<T>>(x[i]);
}

/* Pieces [first, end), each at all positions; `spots` are the positions of `from` that pieces shift. */
template <typename T, bool kFull>
__device__ __forceinline__ void add_pieces(const Args &a, const int4 (&spots)[kEach], const uint32_t *stored,
                                           int32_t first, int32_t end, Sums<T> &sums) {
    using S = tartan_cuda_sum<T>;
    constexpr int kSlots = Sums<T>::kSlots;
#pragma unroll 3
    for (int32_t e = first; e < end; e++) {
        const int4 piece = a.list.pieces[e];
        const int32_t offset = a.from_pieces.offset(piece) + piece.w;
        const uint32_t has = kFull ? ~0u : stored[e];
        S pixels[kEach][kSlots];
        bool there[kEach];
#pragma unroll
        for (int j = 0; j < kEach; j++) {
            there[j] = a.from_pieces.has(spots[j], piece);
            if (there[j]) load_pixel<T>(a.from_pieces.data + (int64_t)(spots[j].w + offset) * 16, pixels[j]);
        }
        alignas(16) S weights[kSlots];
        Sums<T>::load_weights(a, e, weights);
#pragma unroll
        for (int j = 0; j < kEach; j++)
            if (there[j]) sums.template add<kFull>(j, weights, pixels[j], has);
    }
}

/* The same where neighbouring positions see neighbouring pixels: taps that follow each other along a row share all pixels but one,
 * which stay in registers. Position 0 is at `spot`, the next ones are `step` (1 or -1) further along the row, as taps are. */
template <typename T, bool kFull>
__device__ __forceinline__ void add_rows(const Args &a, int4 spot, int32_t step, const uint32_t *stored,
                                         int32_t first, int32_t end, Sums<T> &sums) {
    using S = tartan_cuda_sum<T>;
    constexpr int kSlots = Sums<T>::kSlots;
    const uint32_t width = a.from_pieces.size[2];
    const int32_t pitch = step * a.from_pieces.step[2];
    int32_t e = first;
    while (e < end) {
        int4 piece = a.list.pieces[e];
        int4 begin = spot;
        begin.z = 0;
        int4 shift = piece;
        shift.z = 0;
        const bool row = a.from_pieces.has(begin, shift); /* the row is in the image */
        int32_t at = spot.z + piece.z;                    /* the next pixel, */
        int32_t offset = spot.w + a.from_pieces.offset(piece) + piece.w;
        S pixels[kEach][kSlots];
        bool there[kEach];
        const auto load = [&](int place) {
            there[place] = row && (uint32_t)at < width;
            if (there[place]) load_pixel<T>(a.from_pieces.data + (int64_t)offset * 16, pixels[place]);
            at += step, offset += pitch;
        };
#pragma unroll
        for (int place = 0; place < kEach - 1; place++) load(place);
        bool follows = true;
        while (follows) {
#pragma unroll
            for (int turn = 0; turn < kEach; turn++) { /* pixel `turn` + j is for position j */
                load((turn + kEach - 1) % kEach);
                const uint32_t has = kFull ? ~0u : stored[e];
                alignas(16) S weights[kSlots];
                Sums<T>::load_weights(a, e, weights);
#pragma unroll
                for (int j = 0; j < kEach; j++)
                    if (there[(turn + j) % kEach])
                        sums.template add<kFull>(j, weights, pixels[(turn + j) % kEach], has);
                follows = ++e < end;
                if (!follows) break;
                const int4 next = a.list.pieces[e];
                piece.z += step;
                follows = next.x == piece.x && next.y == piece.y && next.z == piece.z && next.w == piece.w;
                if (!follows) break;
            }
        }
    }
}

/* kFull: all slots of all pieces have a weight, else `stored` says which. kRows: add_rows applies. */
template <typename T, bool kFull, bool kRows>
__global__ void __launch_bounds__(kThreads, 2)
    multiply(const __grid_constant__ Args a, int32_t lanes, const uint32_t *stored) {
    constexpr int kSlots = 16 / (int)sizeof(T);
    const tartan_cuda_conv_piece_form &f = a.list.form;
    const int32_t parts = (f.groups + lanes - 1) / lanes, apart = kThreads / lanes;
    int64_t number = blockIdx.x;
    const int32_t group = (int32_t)(number % parts) * lanes + (int32_t)threadIdx.x % lanes;
    number /= parts;
    const int32_t phase = (int32_t)(number / a.tiles);
    number = number % a.tiles * apart + threadIdx.x / lanes;
    if (group >= f.groups) return;
    const int64_t list = (int64_t)phase * f.groups + group;
    const int32_t first = a.list.lists[list], end = a.list.lists[list + 1];
    if (first == end && a.cleared) return;
    Lattice lattice = lattice_of(a, (uint32_t)phase);
    const int32_t width = lattice.size[2];
    lattice.size[2] = (width + kEach - 1) / kEach;
    Walk base = begin_walk(lattice, a.restricted ? 0 : (uint32_t)number);
    base.at[2] *= kEach;
    /* Taps of a gradient go the other way, and so do its positions. */
    const int32_t step = kRows && a.p.adjoint ? -1 : 1;
    if (step < 0) base.at[2] += kEach - 1;
    const auto stand = [&](Walk &w, int j) { /* at position j */
                                             w = base;
                                             if (!kRows && a.restricted)
                                                 w = walk_of(place(a, number * kEach + j));
                                             else
                                                 w.at[2] += step * j;
                                             return w.image >= 0 && w.image < a.p.entries &&
                                                    (a.restricted || w.at[2] < width);
    };
    const auto spot_of = [&](const Walk &w) {
        int4 spot = make_int4(w.at[0] * (int32_t)a.from_stride[0], w.at[1] * (int32_t)a.from_stride[1],
                              w.at[2] * (int32_t)a.from_stride[2], 0);
        spot.w = w.image * a.from_pieces.entry + a.from_pieces.offset(spot);
        return spot;
    };
    Sums<T> sums = {};
    if constexpr (kRows) {
        if (base.image < 0 || base.image >= a.p.entries) return;
        add_rows<T, kFull>(a, spot_of(base), step, stored, first, end, sums);
    } else {
        int4 spots[kEach];
#pragma unroll
        for (int j = 0; j < kEach; j++) {
            Walk w;
            const bool there = stand(w, j);
            spots[j] = spot_of(w);
            if (!there) spots[j].x = INT32_MIN;
        }
        add_pieces<T, kFull>(a, spots, stored, first, end, sums);
    }
    const int64_t first_slot = (int64_t)group * kSlots;
    const int32_t slots = (int32_t)min(a.p.to.channels - first_slot, (int64_t)kSlots);
#pragma unroll
    for (int j = 0; j < kEach; j++) {
        Walk w;
        if (!stand(w, j)) continue;
        Position x = {w.image, {}};
#pragma unroll
        for (int d = 0; d < TARTAN_I_DIMS; d++)
            x.at[d] = a.restricted ? w.at[d] : w.at[d] * (int32_t)a.to_stride[d] + lattice.first[d];
        store_sums<T>(a, element_of(a.p.to, x) + first_slot * a.p.to.channel, x, first_slot, slots,
                      sums.of[j]);
    }
}

/* Rows of a phase in runs of kEach positions. */
int64_t runs_of(const Args &a) {
    int64_t runs = a.p.entries;
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        const int64_t size = (a.p.to.size[d] + a.to_stride[d] - 1) / a.to_stride[d];
        runs *= d == TARTAN_I_DIMS - 1 ? (size + kEach - 1) / kEach : size;
    }
    return runs;
}

template <typename T>
tartan_status compute(const char *function, tartan_cuda_queue *queue, Args *a, void **scratch) {
    using S = tartan_cuda_sum<T>;
    constexpr int32_t kSlots = 16 / (int32_t)sizeof(T);
    const tartan_cuda_conv &p = a->p;
    const conv_pieces::Pieces x = conv_pieces::pieces_of<T>(*a);
    const tartan_cuda_conv_lines lines = {p.layout, &p.taps, &p.from_slots, &p.to_slots, p.adjoint, kSlots,
                                          1,        1,       nullptr,       kSlots};
    PASS(piece_lists_of(function, queue, lines, &a->list));
    const int32_t lanes = lanes_for(a->list.form.groups), apart = kThreads / lanes;
    conv_pieces::divide(a, apart * kEach);
    conv_pieces::describe(a);
    if (!a->restricted) a->tiles = (runs_of(*a) + apart - 1) / apart;
    const bool full = a->list.count * kSlots == a->weights;
    const int64_t packed = a->list.count * kSlots * (int64_t)sizeof(S),
                  masks = full ? 0 : a->list.count * (int64_t)sizeof(uint32_t);
    PASS(tartan_cuda_scratch(function, queue, x.bytes + packed + masks + 1, scratch));
    char *const at = (char *)*scratch;
    tartan_cuda_image pixels = p.from;
    a->packed = at + x.bytes;
    uint32_t *const stored = full ? nullptr : (uint32_t *)(at + x.bytes + packed);
    if (a->cleared) PASS(conv_pieces::clear(function, queue, p.to, p.entries));
    if (x.turns) PASS(turn_slots<T>(function, queue, p.entries, x.turned, a->windows, at, &pixels));
    a->from_pieces = piece_image_of(pixels, kSlots);
    if (!full)
        PASS(tartan_cuda_check(function, cudaMemsetAsync(stored, 0, (size_t)masks, queue->stream),
                               "clearing masks of weights"));
    tartan_cuda_row_index rows;
    PASS(tartan_cuda_index_get_rows(function, queue, p.layout, false, &rows));
    PASS(tartan_cuda_launch(function, queue, pack<S>, tartan_cuda_grid(((int64_t)a->weights + 255) / 256),
                            dim3(256), *a, rows, (S *)(at + x.bytes), stored));
    const int32_t taps = conv_depthwise_rows::taps_of(*a, full);
    if (taps > 0) return conv_depthwise_rows::launch_any<T>(function, queue, *a, taps);
    const int64_t parts = (a->list.form.groups + lanes - 1) / lanes;
    const bool rows_shared = !a->restricted && a->from_stride[2] == 1;
    const auto kernel = rows_shared ? full ? multiply<T, true, true> : multiply<T, false, true>
                        : full ? multiply<T, true, false>
                                    : multiply<T, false, false>;
    return tartan_cuda_launch(function, queue, kernel,
                              dim3((unsigned)(parts * a->tiles * a->list.form.phases)), dim3(kThreads), *a,
                              lanes, (const uint32_t *)stored);
}

} // namespace
} // namespace conv_depthwise
} // namespace tartan_cuda

tartan_status tartan_cuda_conv_depthwise(const char *function, tartan_cuda_queue *queue,
                                         const void *problem) {
    using namespace tartan_cuda;
    const auto *p = (const tartan_cuda_conv *)problem;
    conv_pieces::Args a = {};
    void *map, *scratch = nullptr;
    tartan_status status = results_of(function, queue, p, &a, &map);
    if (status == TARTAN_OK)
        status = tartan_cuda_by_dtype(p->dtype, [&](auto tag) {
            return conv_depthwise::compute<typename decltype(tag)::type>(function, queue, &a, &scratch);
        });
    if (scratch != nullptr) tartan_cuda_scratch_free(queue, scratch);
    if (map != nullptr) tartan_cuda_scratch_free(queue, map);
    return status;
}
