/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a filter on tensor cores, for blocks, strides, dilations, channels and dtypes of every kind (conv_pieces.h): a
 * product of slots of y by pieces of x, whose inner dimension are positions of y. A CTA has up to 128 slots of a list's lines,
 * a step of the list's pieces, and a share of the positions; a second kernel adds up the shares of each weight in a fixed
 * order, so that results do not depend on the run. */
#ifndef TARTAN_CUDA_CONV_PIECES_GRADIENT_CUH
#define TARTAN_CUDA_CONV_PIECES_GRADIENT_CUH

#include "kernels/conv_pieces_gradient_tile.cuh"

namespace tartan_cuda {
namespace conv_filter_gradient_pieces {
namespace {

/* The list of a step. */
__device__ __forceinline__ int32_t list_of(const PieceLists &l, int32_t step) {
    int32_t low = 0, high = l.form.groups; /* lists[low] <= first piece of the step < lists[high] */
    const int32_t piece = step * l.form.step;
    while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        (l.lists[middle] <= piece ? low : high) = middle;
    }
    return low;
}

template <class Products, int kGroup>
__global__ void __launch_bounds__(kThreads, Form<Products, kGroup>::kCtas)
    gradient(const __grid_constant__ Args a) {
    using F = Form<Products, kGroup>;
    using S = typename Products::Sum;
    extern __shared__ __align__(128) uint8_t stages[];
    __shared__ Spots<F::kDepth> spots[F::kStages];
    const tartan_cuda_conv_piece_form &f = a.list.form;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / F::kWide * F::kRows * 16, col = warp % F::kWide * F::kCols * 8;
    const int32_t piece_bytes = f.piece * F::kElement;
    const uint32_t base = shared_offset(stages);

    int64_t number = blockIdx.x;
    const int32_t chunk = (int32_t)(number % f.chunks);
    number /= f.chunks;
    const int32_t step = (int32_t)(number % a.steps), split = (int32_t)(number / a.steps);
    const int32_t group = list_of(a.list, step);
    const int4 piece =
        a.list.pieces[(int64_t)step * f.step + threadIdx.x % (F::kColumns * F::kElement / piece_bytes)];
    const int64_t first_slot = group * a.out_pitch + (int64_t)chunk * kGroup;
    const int64_t exist = a.out_slots - first_slot;
    const int32_t slots = (int32_t)min(exist, (int64_t)min(kGroup, f.width - chunk * kGroup));
    const int64_t first = split * a.share, end = min(first + a.share, a.positions);
    const int32_t rounds = (int32_t)((end - first + F::kDepth - 1) / F::kDepth);

    const int32_t first_piece = (int32_t)(first_slot / a.out_piece);
    int32_t to = 0, at = 0; /* stages to load and to multiply */
    const auto step_stage = [&](int32_t &stage) { stage = stage + 1 == F::kStages ? 0 : stage + 1; };
    const auto find_spots = [&](int32_t round, int32_t stage) {
        if (threadIdx.x < F::kDepth)
            find_spot(a, first + (int64_t)round * F::kDepth + threadIdx.x, end, spots[stage], threadIdx.x);
    };
    const auto load = [&](int32_t round) {
        if (round < rounds) {
            const uint32_t to_x = base + (uint32_t)(to * F::kStage), to_y = to_x + F::kDepth * F::kPitchX;
            const Spots<F::kDepth> &here = spots[to];
            if (piece_bytes == 16)
                load_x<F, 16>(a.in, here, piece, to_x);
            else if (piece_bytes == 8)
                load_x<F, 8>(a.in, here, piece, to_x);
            else if constexpr (F::kElement <= 4)
                load_x<F, 4>(a.in, here, piece, to_x);
            if (a.out_bytes == 16)
                load_y<F, 16>(a.out, here, first_piece, slots, to_y);
            else if (a.out_bytes == 8)
                load_y<F, 8>(a.out, here, first_piece, slots, to_y);
            else if constexpr (F::kElement <= 4)
                load_y<F, 4>(a.out, here, first_piece, slots, to_y);
            step_stage(to);
        }
        copies_commit();
    };
    S sums[F::kRows][F::kCols][4] = {};
    wait_for_kernels_before();
    let_next_kernel_begin();
#pragma unroll
    for (int32_t round = 0; round < F::kStages; round++) find_spots(round, round);
    __syncthreads();
#pragma unroll
    for (int32_t round = 0; round < F::kStages - 1; round++) load(round);
#pragma unroll 1
    for (int32_t round = 0; round < rounds; round++) {
        copies_wait<F::kStages - 2>();
        __syncthreads();
        load(round + F::kStages - 1);
        const uint32_t x = base + (uint32_t)(at * F::kStage);
        if constexpr (Products::kByParts) {
            S part[F::kRows][F::kCols][4] = {};
            multiply_inner<Products, F>(x, x + F::kDepth * F::kPitchX, row, col, part);
#pragma unroll
            for (int i = 0; i < F::kRows; i++)
#pragma unroll
                for (int j = 0; j < F::kCols; j++)
#pragma unroll
                    for (int w = 0; w < 4; w++) sums[i][j][w] += part[i][j][w];
        } else {
            multiply_inner<Products, F>(x, x + F::kDepth * F::kPitchX, row, col, sums);
        }
        find_spots(round + F::kStages, at); /* this round's have been used */
        step_stage(at);
    }
    copies_wait<0>();

    S *const stored =
        (S *)a.sums + ((int64_t)split * a.steps + step) * F::kColumns * f.width + chunk * kGroup;
#pragma unroll
    for (int i = 0; i < F::kRows; i++)
#pragma unroll
        for (int j = 0; j < F::kCols; j++)
#pragma unroll
            for (int w = 0; w < 4; w++) {
                const int n = row + 16 * i + lane / 4 + w / 2 * 8, k = col + 8 * j + lane % 4 * 2 + w % 2;
                if (n < slots) stored[(int64_t)k * f.width + n] = sums[i][j][w];
            }
}

/* ---- The weights ---- */

__device__ __forceinline__ int64_t channel_of(const tartan_cuda_channel_lists &lists,
                                              const tartan_cuda_image &image, int64_t slot) {
    if (lists.of != nullptr) return lists.of[slot];
    return slot < image.channels ? slot : -1;
}

/* The sum of one weight without zeros for pixels that do not exist. */
template <typename S>
__device__ __noinline__ S exact_sum(const Args &a, int64_t tap, int64_t row, int64_t col) {
    int64_t places[TARTAN_I_DIMS];
    tap_places(a.p.taps, tap, places);
    const int64_t positions = a.p.entries * a.p.out.size[0] * a.p.out.size[1] * a.p.out.size[2];
    S sum = 0;
    for (int64_t i = 0; i < positions; i++) {
        const Position to = position_of(i, a.p.out.size);
        Position from;
        if (!step_tap(a.p.taps, false, places, to, a.p.in.size, &from)) continue;
        if (!is_active(a.windows, a.p.active_in ? from : to)) continue;
        sum = fma(tartan_cuda_element<S>(a.p.out.data, a.p.out.dtype,
                                         element_of(a.p.out, to) + row * a.p.out.channel),
                  tartan_cuda_element<S>(a.p.in.data, a.p.in.dtype,
                                         element_of(a.p.in, from) + col * a.p.in.channel),
                  sum);
    }
    return sum;
}

/* Adds up the shares of each weight, in their order, and writes it. A thread has one weight. */
template <class Products> __global__ void __launch_bounds__(256) add_shares(const __grid_constant__ Args a) {
    using S = typename Products::Sum;
    const tartan_cuda_slots &rows = a.p.rows, &cols = a.p.cols;
    const tartan_cuda_conv_piece_form &f = a.list.form;
    const bool cols_last = cols.stride == 1 && rows.stride == cols.edge;
    const int32_t block = rows.edge * cols.edge, all = a.weights;
    const int64_t columns = (int64_t)f.step * f.piece;
    for (int32_t e = (int32_t)(blockIdx.x * 256 + threadIdx.x); e < all; e += (int32_t)gridDim.x * 256) {
        const int32_t id = e / block, inside = e % block;
        const int32_t row_slot = cols_last ? inside / cols.edge : inside % rows.edge,
                      col_slot = cols_last ? inside % cols.edge : inside / rows.edge;
        const int32_t line = (int32_t)tartan_cuda_row_of(a.rows.pointers, rows.grid, id),
                      number = a.rows.cols[id];
        const int32_t begin = number % (int32_t)cols.grid * cols.edge, slot = begin + col_slot;
        const int64_t row = channel_of(a.row_channels, a.p.out, (int64_t)line * rows.edge + row_slot),
                      col = channel_of(a.col_channels, a.p.in, slot);
        const int32_t piece = a.list.of_block[(int64_t)id * f.each + slot / f.piece - begin / f.piece];
        const int64_t n = line % f.lines * rows.edge + row_slot,
                      at = ((int64_t)piece * f.piece + slot % f.piece) * f.width + n;
        const bool exists = row >= 0 && col >= 0;
        wait_for_kernels_before();
        S sum = 0;
        for (int32_t s = 0; exists && s < a.splits; s++)
            sum += ((const S *)a.sums)[(int64_t)s * a.steps * columns * f.width + at];
        if (exists && !isfinite(sum)) sum = exact_sum<S>(a, number / cols.grid, row, col);
        tartan_cuda_by_sum<S>(a.p.s_dtype, [&](auto tag) {
            tartan_cuda_combine_at<typename decltype(tag)::type>(
                a.p.values, a.p.s_dtype, e, (S)1, exists ? sum : (S)0, exists ? (S)a.p.beta : (S)0);
        });
    }
}

/* ---- The launch ---- */

/* Enough shares to keep all SMs busy a few times over, but none of them short, and with small sums. */
inline int32_t splits_of(const Args &a, int64_t jobs, int32_t processors, int32_t depth, int64_t sum_bytes) {
    int64_t splits = (8ll * processors + jobs - 1) / jobs;
    const int64_t longest = a.positions / (8 * depth) + 1, room = (128ll << 20) / (sum_bytes + 1) + 1;
    if (splits > longest) splits = longest;
    if (splits > room) splits = room;
    return (int32_t)(splits > 1 ? splits : 1);
}

template <class Products, int kGroup>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const Args &a) {
    using F = Form<Products, kGroup>;
    const auto kernel = gradient<Products, kGroup>;
    PASS(share_with_l1(function, (const void *)kernel, F::kCtas, F::kShared,
                       F::kStages * (int)sizeof(Spots<F::kDepth>)));
    const int64_t ctas = (int64_t)a.splits * a.steps * a.list.form.chunks;
    const cudaError_t error =
        tartan_cuda_launch_early(queue, tartan_cuda_starts_early(queue, a.p.layout), kernel,
                                 dim3((unsigned)ctas), dim3(kThreads), (size_t)F::kShared, a);
    return tartan_cuda_check(function, error, "starting the kernel conv_filter_gradient_pieces");
}

template <class Products>
tartan_status launch_any(const char *function, tartan_cuda_queue *queue, const Args &a) {
    const int32_t group = a.list.form.group;
    if (group == 16) return launch<Products, 16>(function, queue, a);
    if (group == 32) return launch<Products, 32>(function, queue, a);
    if constexpr (sizeof(typename Products::Element) == 2)
        if (group == 128) return launch<Products, 128>(function, queue, a);
    return launch<Products, 64>(function, queue, a);
}

template <class Products> struct Costs {
    static constexpr tartan_cuda_conv_piece_costs kOf = {5, {50, 68, 88, 128}, 0};
};
template <> struct Costs<Tf32Products> {
    static constexpr tartan_cuda_conv_piece_costs kOf = {6, {50, 68, 88, 0}, 0};
};
template <> struct Costs<F32Products> {
    static constexpr tartan_cuda_conv_piece_costs kOf = {7, {60, 90, 140, 0}, 0};
};
template <> struct Costs<F64Products> {
    static constexpr tartan_cuda_conv_piece_costs kOf = {8, {60, 90, 160, 0}, 0};
};

/* Leaves only the groups whose stages fit in a CTA of the chip. */
template <class Products, int kGroup>
void leave_out_large(const tartan_cuda_chip &chip, tartan_cuda_conv_piece_costs *costs, int at) {
    using F = Form<Products, kGroup>;
    if (F::kShared + F::kStages * (int64_t)sizeof(Spots<F::kDepth>) <= chip.shared_bytes) return;
    costs->step[at] = 0;
    costs->kind += 16 << at;
}
template <class Products> tartan_cuda_conv_piece_costs costs_of(const tartan_cuda_chip &chip) {
    tartan_cuda_conv_piece_costs costs = Costs<Products>::kOf;
    leave_out_large<Products, 64>(chip, &costs, 2);
    leave_out_large<Products, 128>(chip, &costs, 3);
    return costs;
}

template <class Products>
tartan_status prepare(const char *function, tartan_cuda_queue *queue, Args *a, void **scratch) {
    using T = typename Products::Element;
    using F = Form<Products, 64>;
    constexpr int32_t kElement = F::kElement;
    const tartan_cuda_conv_filter_gradient &p = a->p;
    const int64_t in_slots = a->col_channels.of != nullptr ? p.cols.grid * p.cols.edge : p.in.channels,
                  out_slots = a->row_channels.of != nullptr ? p.rows.grid * p.rows.edge : p.out.channels;
    const int32_t piece = tartan_cuda_conv_piece(in_slots, kElement),
                  out_piece = tartan_cuda_conv_piece(out_slots, kElement);
    const tartan_cuda_conv_piece_costs costs = costs_of<Products>(queue->chip);
    const tartan_cuda_conv_lines lines = {p.layout,
                                          &p.taps,
                                          &p.cols,
                                          &p.rows,
                                          false,
                                          piece,
                                          F::kColumns / piece,
                                          kRow / kElement / piece, /* a line of memory */
                                          &costs,
                                          0};
    PASS(piece_lists_of(function, queue, lines, &a->list));
    const tartan_cuda_conv_piece_form &f = a->list.form;
    const int32_t dtype = std::is_same_v<T, float> ? TARTAN_F32 : p.dtype;
    const int32_t in_width = (int32_t)((in_slots + piece - 1) / piece * piece),
                  out_width = (f.width + out_piece - 1) / out_piece * out_piece;
    const Windows none = {};
    const bool is_masked = p.active.layout != nullptr && !p.active_in && !a->restricted;
    const bool turns_in = (p.active_in && a->windows.map != nullptr) || p.in.dtype != dtype ||
                          !has_pieces(p.in, a->col_channels, p.entries, kElement, piece * kElement, 1 << 20),
               turns_out = is_masked || p.out.dtype != dtype ||
                           !has_pieces(p.out, a->row_channels, p.entries, kElement, out_piece * kElement,
                                       f.groups == 1 ? 1 << 20 : f.width);
    const TurnedSlots in = {a->col_channels, in_slots, in_width, in_width, piece, in_width / piece},
                      out = {a->row_channels, out_slots, f.width,
                             out_width,       out_piece, (int64_t)f.groups * out_width / out_piece};
    a->out_bytes = out_piece * kElement;
    a->out_pitch = turns_out ? out_width : f.width;
    a->steps = (int32_t)(a->list.count / f.step);
    const int64_t of_share =
        (int64_t)a->steps * F::kColumns * f.width * (int64_t)sizeof(typename Products::Sum);
    a->splits = splits_of(*a, (int64_t)a->steps * f.chunks, queue->chip.processors, F::kDepth, of_share);
    a->share = ((a->positions + a->splits - 1) / a->splits + F::kDepth - 1) / F::kDepth * F::kDepth;
    const int64_t in_bytes = turns_in ? turned_bytes(p.in, in, p.entries, kElement) : 0,
                  out_bytes = turns_out ? turned_bytes(p.out, out, p.entries, kElement) : 0;
    PASS(tartan_cuda_scratch(function, queue, in_bytes + out_bytes + aligned(of_share * a->splits) + 1,
                             scratch));
    char *const at = (char *)*scratch;
    tartan_cuda_image x = p.in, y = p.out;
    a->out_slots = turns_out ? (int64_t)f.groups * out_width : out_slots;
    a->out_piece = out_piece;
    for (int d = 0; d < TARTAN_I_DIMS; d++) a->stride[d] = (int32_t)p.taps.stride[d];
    a->sums = at + in_bytes + out_bytes;
    if (turns_in)
        PASS(turn_slots<T>(function, queue, p.entries, in, p.active_in ? a->windows : none, at, &x));
    if (turns_out)
        PASS(
            turn_slots<T>(function, queue, p.entries, out, is_masked ? a->windows : none, at + in_bytes, &y));
    a->in = piece_image_of(x, piece);
    a->out = piece_image_of(y, out_piece);
    return TARTAN_OK;
}

/* What all kernels know of a problem. The caller gives *map back, if it is set. */
inline tartan_status begin(const char *function, tartan_cuda_queue *queue,
                           const tartan_cuda_conv_filter_gradient *p, Args *a, void **map) {
    *a = {};
    *map = nullptr;
    a->p = *p;
    a->weights = (int32_t)(p->layout->blocks * p->rows.edge * p->cols.edge);
    a->restricted = p->active.layout != nullptr && !p->active_in;
    for (int d = 0; d < TARTAN_I_DIMS; d++) /* a position of several windows counts once */
        a->restricted = a->restricted && p->active.size[d] <= p->active.stride[d];
    PASS(tartan_cuda_index_get_rows(function, queue, p->layout, false, &a->rows));
    PASS(tartan_cuda_channel_lists_get(function, queue, p->layout, true, &p->rows, &a->row_channels));
    PASS(tartan_cuda_channel_lists_get(function, queue, p->layout, false, &p->cols, &a->col_channels));
    a->positions = a->restricted
                       ? p->active.layout->blocks * p->active.size[0] * p->active.size[1] * p->active.size[2]
                       : p->entries * p->out.size[0] * p->out.size[1] * p->out.size[2];
    /* Repaired sums need the map in any case. */
    return windows_of(function, queue, p->active, p->active.layout != nullptr, &a->windows, map);
}

template <class Products>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_conv_filter_gradient *p) {
    Args a;
    void *map, *scratch = nullptr;
    tartan_status status = begin(function, queue, p, &a, &map);
    if (status == TARTAN_OK) status = prepare<Products>(function, queue, &a, &scratch);
    if (status == TARTAN_OK && a.positions > 0) status = launch_any<Products>(function, queue, a);
    if (status == TARTAN_OK && a.positions == 0) a.splits = 0;
    if (status == TARTAN_OK) {
        const bool early = a.positions > 0 && tartan_cuda_starts_early(queue, p->layout);
        status =
            tartan_cuda_check(function,
                              tartan_cuda_launch_early(queue, early, add_shares<Products>,
                                                       tartan_cuda_grid(((int64_t)a.weights + 255) / 256),
                                                       dim3(256), (size_t)0, a),
                              "adding up the shares of a filter's gradient");
    }
    if (scratch != nullptr) tartan_cuda_scratch_free(queue, scratch);
    if (map != nullptr) tartan_cuda_scratch_free(queue, map);
    return status;
}

} // namespace
} // namespace conv_filter_gradient_pieces
} // namespace tartan_cuda

#endif
