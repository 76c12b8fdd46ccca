/* SPDX-License-Identifier: Apache-2.0
 * Depthwise convolution and its gradient with respect to the image: filters of single elements that join each slot of a piece with
 * the same slot of another one. A thread has a piece of the result at a few positions; every product is one fma of what it
 * loads, 16 bytes at a time. Lists are those of conv_pieces.h, for groups of one piece. Of 16 bits, tensor cores are faster even
 * though most of what they multiply are zeros (docs/lab/convolution_gpu.md). */
#include "kernels/conv_pieces_places.cuh"

namespace tartan_cuda {
namespace conv_depthwise {
namespace {

using conv_pieces::Args;
using conv_pieces::kNowhere;

constexpr int kThreads = 256, kEach = 4; /* positions of a thread */

/* The weights [pieces][slots of a piece] as sums; zeros where a list has a piece that a slot lacks. */
template <typename S>
__global__ void __launch_bounds__(256)
    pack(const __grid_constant__ Args a, const __grid_constant__ tartan_cuda_row_index rows, S *to) {
    const int32_t id = (int32_t)(blockIdx.x * 256 + threadIdx.x), piece = a.list.form.piece;
    if (id >= a.weights) return;
    const int32_t row = (int32_t)tartan_cuda_row_of(rows.pointers, a.rows_of_filter, id);
    to[(int64_t)a.list.of_block[(int64_t)id * a.list.form.each] * piece + row % piece] =
        tartan_cuda_element<S>(a.p.values, a.p.dtype, id);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) multiply(const __grid_constant__ Args a, int32_t lanes) {
    using S = tartan_cuda_sum<T>;
    constexpr int kSlots = 16 / (int)sizeof(T);
    const tartan_cuda_conv_piece_form &f = a.list.form;
    const int32_t parts = (f.groups + lanes - 1) / lanes, apart = kThreads / lanes;
    int64_t number = blockIdx.x;
    const int32_t group = (int32_t)(number % parts) * lanes + (int32_t)threadIdx.x % lanes;
    number /= parts;
    const int32_t phase = (int32_t)(number / a.tiles);
    number = number % a.tiles * (apart * kEach) + threadIdx.x / lanes;
    if (group >= f.groups) return;
    const int64_t list = (int64_t)phase * f.groups + group;
    const int32_t first = a.list.lists[list], end = a.list.lists[list + 1];
    if (first == end && a.cleared) return;
    int4 spots[kEach];
    Position at[kEach];
#pragma unroll
    for (int j = 0; j < kEach; j++) {
        int32_t steps[TARTAN_I_DIMS];
        at[j] = conv_pieces::find_position(a, number + j * apart, (uint32_t)phase, steps);
        spots[j] = make_int4(INT32_MIN, INT32_MIN, INT32_MIN, 0);
        if (at[j].image < 0) continue;
        spots[j] = make_int4(steps[0] * (int32_t)a.from_stride[0], steps[1] * (int32_t)a.from_stride[1],
                             steps[2] * (int32_t)a.from_stride[2], 0);
        spots[j].w = (int32_t)at[j].image * a.from_pieces.entry + a.from_pieces.offset(spots[j]);
    }
    S sums[kEach][kSlots] = {};
    for (int32_t e = first; e < end; e++) {
        const int4 piece = a.list.pieces[e];
        const int32_t offset = a.from_pieces.offset(piece) + piece.w;
        alignas(16) S weights[kSlots];
#pragma unroll
        for (int i = 0; i < kSlots; i++) weights[i] = ((const S *)a.packed)[(int64_t)e * kSlots + i];
        alignas(16) T pixels[kEach][kSlots];
#pragma unroll
        for (int j = 0; j < kEach; j++) {
            uint4 x = make_uint4(0, 0, 0, 0);
            if (a.from_pieces.has(spots[j], piece))
                x = *(const uint4 *)(a.from_pieces.data + (int64_t)(spots[j].w + offset) * 16);
            *(uint4 *)pixels[j] = x;
        }
#pragma unroll
        for (int j = 0; j < kEach; j++)
#pragma unroll
            for (int i = 0; i < kSlots; i++)
                sums[j][i] = fma(weights[i], tartan_cuda_to<S>(pixels[j][i]), sums[j][i]);
    }
    const int64_t first_slot = (int64_t)group * kSlots;
    const int32_t slots = (int32_t)min(a.p.to.channels - first_slot, (int64_t)kSlots);
#pragma unroll
    for (int j = 0; j < kEach; j++) {
        if (at[j].image < 0) continue;
        const int32_t edge_class = edge_class_of(a.last.edges, at[j]);
        const int64_t to = element_of(a.p.to, at[j]) + first_slot * a.p.to.channel;
#pragma unroll
        for (int i = 0; i < kSlots; i++) {
            if (i >= slots) break;
            if (!isfinite(sums[j][i]))
                sums[j][i] = conv_pieces::exact_sum<S>(a, number + j * apart, phase, first_slot + i);
            if (!a.plain) sums[j][i] = conv_finish<S>(a.last, edge_class, first_slot + i, sums[j][i]);
        }
        if (a.wide && a.p.to.dtype == a.p.from.dtype && slots == kSlots) {
            alignas(16) T values[kSlots];
#pragma unroll
            for (int i = 0; i < kSlots; i++) values[i] = tartan_cuda_to<T>(sums[j][i]);
            *(uint4 *)((T *)a.p.to.data + to) = *(const uint4 *)values;
        } else {
            tartan_cuda_by_sum<S>(a.p.to.dtype, [&](auto tag) {
                for (int i = 0; i < slots; i++)
                    conv_put<typename decltype(tag)::type>(a.last, a.p.to.data, a.p.to.dtype,
                                                           to + i * a.p.to.channel, sums[j][i]);
            });
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
    const int64_t packed = a->list.count * kSlots * (int64_t)sizeof(S);
    PASS(tartan_cuda_scratch(function, queue, x.bytes + packed + 1, scratch));
    char *const at = (char *)*scratch;
    tartan_cuda_image pixels = p.from;
    a->packed = at + x.bytes;
    if (a->cleared) PASS(conv_pieces::clear(function, queue, p.to, p.entries));
    if (x.turns) PASS(turn_slots<T>(function, queue, p.entries, x.turned, a->windows, at, &pixels));
    a->from_pieces = piece_image_of(pixels, kSlots);
    PASS(tartan_cuda_check(function, cudaMemsetAsync(at + x.bytes, 0, (size_t)packed, queue->stream),
                           "clearing packed weights"));
    tartan_cuda_row_index rows;
    PASS(tartan_cuda_index_get_rows(function, queue, p.layout, false, &rows));
    PASS(tartan_cuda_launch(function, queue, pack<S>, tartan_cuda_grid(((int64_t)a->weights + 255) / 256),
                            dim3(256), *a, rows, (S *)(at + x.bytes)));
    const int64_t parts = (a->list.form.groups + lanes - 1) / lanes;
    return tartan_cuda_launch(function, queue, multiply<T>,
                              dim3((unsigned)(parts * a->tiles * a->list.form.phases)), dim3(kThreads), *a,
                              lanes);
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
        status = tartan_cuda_by_sum_dtype(p->dtype, [&](auto tag) {
            return conv_depthwise::compute<typename decltype(tag)::type>(function, queue, &a, &scratch);
        });
    if (scratch != nullptr) tartan_cuda_scratch_free(queue, scratch);
    if (map != nullptr) tartan_cuda_scratch_free(queue, map);
    return status;
}
