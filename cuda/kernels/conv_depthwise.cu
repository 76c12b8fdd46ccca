/* SPDX-License-Identifier: Apache-2.0
 * Depthwise convolution and its gradient with respect to the image: filters of single elements that join each slot of a piece with
 * the same slot of another one. A thread has a piece of the result at a few neighbouring positions; every product is one fma of what
 * it loads, 16 bytes at a time. Lists are those of conv_pieces.h, for groups of one piece. */
#include "kernels/conv_depthwise.cuh"
#include "kernels/conv_pieces_places.cuh"

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
    if (id >= a.weights) return;
    const int32_t row = (int32_t)tartan_cuda_row_of(rows.pointers, a.rows_of_filter, id);
    const int32_t at = a.list.of_block[(int64_t)id * a.list.form.each], slot = row % piece;
    to[(int64_t)at * piece + slot] = tartan_cuda_element<S>(a.p.values, a.p.dtype, id);
    if (stored != nullptr) atomicOr(&stored[at], 1u << slot);
}

/* kFull: all slots of all pieces have a weight, else `stored` says which. */
template <typename T, bool kFull>
__global__ void __launch_bounds__(kThreads, 2)
    multiply(const __grid_constant__ Args a, int32_t lanes, const uint32_t *stored) {
    using S = tartan_cuda_sum<T>;
    constexpr int kSlots = 16 / (int)sizeof(T);
    const tartan_cuda_conv_piece_form &f = a.list.form;
    const int32_t parts = (f.groups + lanes - 1) / lanes, apart = kThreads / lanes;
    int64_t number = blockIdx.x;
    const int32_t group = (int32_t)(number % parts) * lanes + (int32_t)threadIdx.x % lanes;
    number /= parts;
    const int32_t phase = (int32_t)(number / a.tiles);
    number = (number % a.tiles * apart + threadIdx.x / lanes) * kEach;
    if (group >= f.groups) return;
    const int64_t list = (int64_t)phase * f.groups + group;
    const int32_t first = a.list.lists[list], end = a.list.lists[list + 1];
    if (first == end && a.cleared) return;
    const Lattice lattice = lattice_of(a, (uint32_t)phase);
    const Walk begin = begin_walk(lattice, a.restricted ? 0 : (uint32_t)number);
    const auto stand = [&](Walk &w, int j) { /* at the position `number` + j */
                                             if (a.restricted)
                                                 w = walk_of(place(a, number + j));
                                             else if (j > 0)
                                                 step_walk(lattice, w);
                                             return w.image >= 0 && w.image < a.p.entries;
    };
    int4 spots[kEach];
    Walk w = begin;
#pragma unroll
    for (int j = 0; j < kEach; j++) {
        const bool there = stand(w, j);
        int4 spot = make_int4(w.at[0] * (int32_t)a.from_stride[0], w.at[1] * (int32_t)a.from_stride[1],
                              w.at[2] * (int32_t)a.from_stride[2], 0);
        spot.w = w.image * a.from_pieces.entry + a.from_pieces.offset(spot);
        if (!there) spot.x = INT32_MIN;
        spots[j] = spot;
    }
    S sums[kEach][kSlots] = {};
#pragma unroll 3
    for (int32_t e = first; e < end; e++) {
        const int4 piece = a.list.pieces[e];
        const int32_t offset = a.from_pieces.offset(piece) + piece.w;
        const uint32_t has = kFull ? ~0u : stored[e];
        alignas(16) T pixels[kEach][kSlots];
        bool there[kEach];
#pragma unroll
        for (int j = 0; j < kEach; j++) {
            there[j] = a.from_pieces.has(spots[j], piece);
            if (there[j])
                *(uint4 *)pixels[j] =
                    *(const uint4 *)(a.from_pieces.data + (int64_t)(spots[j].w + offset) * 16);
        }
        alignas(16) S weights[kSlots];
#pragma unroll
        for (int i = 0; i < kSlots * (int)sizeof(S) / 16; i++)
            ((uint4 *)weights)[i] =
                ((const uint4 *)a.packed)[(int64_t)e * (kSlots * (int)sizeof(S) / 16) + i];
#pragma unroll
        for (int j = 0; j < kEach; j++)
            if (there[j]) {
#pragma unroll
                for (int i = 0; i < kSlots; i++)
                    if (kFull || has >> i & 1)
                        sums[j][i] = fma(weights[i], tartan_cuda_to<S>(pixels[j][i]), sums[j][i]);
            }
    }
    const int64_t first_slot = (int64_t)group * kSlots;
    const int32_t slots = (int32_t)min(a.p.to.channels - first_slot, (int64_t)kSlots);
    w = begin;
#pragma unroll
    for (int j = 0; j < kEach; j++) {
        if (!stand(w, j)) continue;
        Position x = {w.image, {}};
#pragma unroll
        for (int d = 0; d < TARTAN_I_DIMS; d++)
            x.at[d] = a.restricted ? w.at[d] : w.at[d] * (int32_t)a.to_stride[d] + lattice.first[d];
        const int64_t to = element_of(a.p.to, x) + first_slot * a.p.to.channel;
        if (!a.plain) {
            const int32_t edge_class = edge_class_of(a.last.edges, x);
#pragma unroll
            for (int i = 0; i < kSlots; i++)
                if (i < slots) sums[j][i] = conv_finish<S>(a.last, edge_class, first_slot + i, sums[j][i]);
        }
        if (a.wide && a.p.to.dtype == a.p.from.dtype && slots == kSlots) {
            alignas(16) T values[kSlots];
#pragma unroll
            for (int i = 0; i < kSlots; i++) values[i] = tartan_cuda_to<T>(sums[j][i]);
            *(uint4 *)((T *)a.p.to.data + to) = *(const uint4 *)values;
        } else {
#pragma unroll
            for (int i = 0; i < kSlots; i++)
                if (i < slots)
                    conv_put<T>(a.last, a.p.to.data, a.p.to.dtype, to + i * a.p.to.channel, sums[j][i]);
        }
    }
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
    conv_pieces::describe(a, apart * kEach);
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
    const int64_t parts = (a->list.form.groups + lanes - 1) / lanes;
    return tartan_cuda_launch(function, queue, full ? multiply<T, true> : multiply<T, false>,
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
