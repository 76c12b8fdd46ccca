/* SPDX-License-Identifier: Apache-2.0
 * The gradient of a depthwise filter (conv_depthwise.cu says which filters these are), where conv_filter_gradient_rows.cuh has no
 * rows to walk along: strides and dilations along rows, and windows. A thread has a piece of slots, up to 9 of the pieces that its
 * list joins it with (a filter of 3 x 3), and neighbouring positions of a share; threads with the same pieces add up their sums in
 * shared memory, and a second kernel adds up the shares, all in a fixed order. */
#include "kernels/conv_depthwise.cuh"
#include "kernels/conv_filter_gradient_rows.cuh"

namespace tartan_cuda {
namespace conv_filter_gradient_depthwise {
namespace {

using conv_depthwise::Lattice;
using conv_depthwise::Walk;
using conv_filter_gradient_pieces::Args;
using conv_filter_gradient_pieces::kNowhere;
using conv_filter_gradient_pieces::Spots;

constexpr int kThreads = 256, kJoined = 9, kMostLanes = 32;

template <typename T>
__global__ void __launch_bounds__(kThreads, 2)
    gradient(const __grid_constant__ Args a, int32_t lanes, int32_t chunks) {
    using S = tartan_cuda_sum<T>;
    constexpr int kSlots = 16 / (int)sizeof(T);
    __shared__ S room[kThreads][kSlots + 1];
    __shared__ int4 shifts[kMostLanes][kJoined]; /* of the pieces, and in w their offsets; far away: none */
    const tartan_cuda_conv_piece_form &f = a.list.form;
    const int32_t parts = (f.groups + lanes - 1) / lanes, apart = kThreads / lanes;
    const int32_t lane = (int32_t)threadIdx.x % lanes, line = (int32_t)threadIdx.x / lanes;
    int64_t number = blockIdx.x;
    const int32_t first_group = (int32_t)(number % parts) * lanes, group = first_group + lane;
    number /= parts;
    const int32_t chunk = (int32_t)(number % chunks), split = (int32_t)(number / chunks);
    for (int32_t i = threadIdx.x; i < lanes * kJoined; i += kThreads) {
        const int32_t of = first_group + i / kJoined;
        int4 shift = make_int4(INT32_MIN / 2, 0, 0, 0);
        if (of < f.groups) {
            const int32_t at = a.list.lists[of] + chunk * kJoined + i % kJoined;
            if (at < a.list.lists[of + 1]) {
                shift = a.list.pieces[at];
                shift.w += a.in.offset(shift);
            }
        }
        shifts[i / kJoined][i % kJoined] = shift;
    }
    __syncthreads();
    const int64_t each = (a.share + apart - 1) / apart, from = split * a.share + line * each,
                  end = min(min(from + each, (split + 1) * a.share), a.positions);
    const Lattice lattice = {{(int32_t)a.out.size[0], (int32_t)a.out.size[1], (int32_t)a.out.size[2]}, {}};
    Walk w = conv_depthwise::begin_walk(lattice, a.restricted ? 0 : (uint32_t)from);
    S sums[kJoined][kSlots] = {};
    for (int64_t i = from; i < end && group < f.groups; i++) {
        int4 spot;
        int32_t out;
        if (a.restricted) {
            Spots<1> found;
            conv_filter_gradient_pieces::find_spot(a, i, end, found, 0);
            if (found.out[0] == kNowhere) continue;
            spot = found.in[0], out = found.out[0];
        } else {
            out = w.image * a.out.entry + a.out.offset(make_int4(w.at[0], w.at[1], w.at[2], 0));
            spot = make_int4(w.at[0] * a.stride[0], w.at[1] * a.stride[1], w.at[2] * a.stride[2], 0);
            spot.w = w.image * a.in.entry + a.in.offset(spot);
            conv_depthwise::step_walk(lattice, w);
        }
        alignas(16) T y[kSlots];
        *(uint4 *)y = *(const uint4 *)(a.out.data + (int64_t)(out + group) * 16);
#pragma unroll
        for (int e = 0; e < kJoined; e++) {
            const int4 shift = shifts[lane][e];
            if (!a.in.has(spot, shift)) continue;
            alignas(16) T x[kSlots];
            *(uint4 *)x = *(const uint4 *)(a.in.data + (int64_t)(spot.w + shift.w) * 16);
#pragma unroll
            for (int s = 0; s < kSlots; s++)
                sums[e][s] = fma(tartan_cuda_to<S>(y[s]), tartan_cuda_to<S>(x[s]), sums[e][s]);
        }
    }
    S *const to = (S *)a.sums + (int64_t)split * a.list.count * kSlots;
#pragma unroll
    for (int e = 0; e < kJoined; e++) {
        __syncthreads(); /* the sums of the last piece have been read */
#pragma unroll
        for (int s = 0; s < kSlots; s++) room[threadIdx.x][s] = sums[e][s];
        __syncthreads();
        for (int i = threadIdx.x; i < lanes * kSlots; i += kThreads) {
            const int32_t owner = i / kSlots, of = first_group + owner;
            if (of >= f.groups) continue;
            const int32_t at = a.list.lists[of] + chunk * kJoined + e;
            if (at >= a.list.lists[of + 1]) continue;
            S sum = 0;
            for (int32_t t = 0; t < apart; t++) sum += room[t * lanes + owner][i % kSlots];
            to[(int64_t)at * kSlots + i % kSlots] = sum;
        }
    }
}

constexpr int kWeights = 8, kAdders = kThreads / kWeights; /* of a CTA; of a weight */

/* Adds up the shares of each weight and writes it: a thread adds every kAdders-th share, then these sums are added in order. */
template <typename T> __global__ void __launch_bounds__(kThreads) add_shares(const __grid_constant__ Args a) {
    using S = tartan_cuda_sum<T>;
    __shared__ S room[kAdders][kWeights];
    const int32_t piece = a.list.form.piece, weight = (int32_t)threadIdx.x % kWeights,
                  adder = (int32_t)threadIdx.x / kWeights, id = (int32_t)blockIdx.x * kWeights + weight;
    S sum = 0;
    int64_t at = 0;
    if (id < a.weights) {
        const int32_t row = (int32_t)tartan_cuda_row_of(a.rows.pointers, a.p.rows.grid, id);
        at = (int64_t)a.list.of_block[(int64_t)id * a.list.form.each] * piece + row % piece;
    }
    wait_for_kernels_before();
    if (id < a.weights) {
#pragma unroll 4
        for (int32_t s = adder; s < a.splits; s += kAdders)
            sum += ((const S *)a.sums)[(int64_t)s * a.list.count * piece + at];
    }
    room[adder][weight] = sum;
    __syncthreads();
    if (adder > 0 || id >= a.weights) return;
    for (int32_t other = 1; other < kAdders; other++) sum += room[other][weight];
    tartan_cuda_combine_at<T>(a.p.values, a.p.s_dtype, id, (S)1, sum, (S)a.p.beta);
}

/* As many shares as fill the SMs once, none so short that its end takes as long as its positions. */
int32_t splits_of(const Args &a, int64_t jobs, int32_t processors, int32_t apart) {
    const int64_t fill = 2ll * processors / jobs, most = a.positions / (4 * apart) + 1;
    const int64_t splits = fill < most ? fill : most;
    return (int32_t)(splits > 1 ? splits : 1);
}

/* How a problem is divided: rows, where run > 0, else positions. */
struct Shares {
    int32_t run; /* taps */
    conv_filter_gradient_rows::Division rows;
    int32_t lanes, parts, chunks;
};

template <typename T, int kTaps>
void divide_rows(Args *a, int32_t processors, conv_filter_gradient_rows::Division *rows) {
    using F = conv_filter_gradient_rows::Form<T, kTaps>;
    *rows = conv_filter_gradient_rows::divide(a, kTaps, F::kThreads, F::kCtas * processors);
}

template <typename T> Shares shares_of(Args *a, int32_t processors) {
    Shares s = {};
    a->splits = 0;
    if (a->positions == 0) return s;
    if (conv_filter_gradient_rows::fits(*a)) {
        s.run = conv_filter_gradient_rows::taps_of((int32_t)a->p.taps.kernel[2]);
        const auto divide = s.run == 3   ? divide_rows<T, 3>
                            : s.run == 5 ? divide_rows<T, 5>
                                         : divide_rows<T, 7>;
        divide(a, processors, &s.rows);
        return s;
    }
    const tartan_cuda_conv_piece_form &f = a->list.form;
    s.lanes = lanes_for(f.groups);
    s.parts = (f.groups + s.lanes - 1) / s.lanes;
    s.chunks = (f.longest + kJoined - 1) / kJoined;
    a->splits = splits_of(*a, (int64_t)s.parts * s.chunks, processors, kThreads / s.lanes);
    a->share = (a->positions + a->splits - 1) / a->splits;
    return s;
}

template <typename T>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const Args &a, const Shares &s) {
    namespace by_rows = conv_filter_gradient_rows;
    const by_rows::Division &d = s.rows;
    const auto rows = s.run == 3   ? by_rows::gradient<T, 3>
                      : s.run == 5 ? by_rows::gradient<T, 5>
                                   : by_rows::gradient<T, 7>;
    if (s.run > 0)
        return tartan_cuda_launch(function, queue, rows,
                                  dim3((unsigned)((int64_t)d.parts * d.chunks * a.splits)),
                                  dim3((unsigned)((d.lanes * d.runs * d.lines + 31) / 32 * 32)), a, d);
    return tartan_cuda_launch(function, queue, gradient<T>,
                              dim3((unsigned)((int64_t)s.parts * s.chunks * a.splits)), dim3(kThreads), a,
                              s.lanes, s.chunks);
}

template <typename T>
tartan_status compute(const char *function, tartan_cuda_queue *queue, Args *a, void **scratch) {
    using S = tartan_cuda_sum<T>;
    constexpr int32_t kElement = (int32_t)sizeof(T), kSlots = 16 / kElement;
    const tartan_cuda_conv_filter_gradient &p = a->p;
    const tartan_cuda_conv_lines lines = {p.layout, &p.taps, &p.cols, &p.rows, false,
                                          kSlots,   1,       1,       nullptr, kSlots};
    PASS(piece_lists_of(function, queue, lines, &a->list));
    const int64_t pieces_in = p.in.channels / kSlots, pieces_out = p.out.channels / kSlots;
    const Windows none = {};
    const bool is_masked = p.active.layout != nullptr && !p.active_in && !a->restricted;
    const bool turns_in = (p.active_in && a->windows.map != nullptr) ||
                          !has_pieces(p.in, a->col_channels, p.entries, kElement, 16, 1 << 20),
               turns_out = is_masked || !has_pieces(p.out, a->row_channels, p.entries, kElement, 16, 1 << 20);
    const TurnedSlots in = {a->col_channels,        p.in.channels, (int32_t)p.in.channels,
                            (int32_t)p.in.channels, kSlots,        pieces_in},
                      out = {a->row_channels,         p.out.channels, (int32_t)p.out.channels,
                             (int32_t)p.out.channels, kSlots,         pieces_out};
    const int64_t of_share = a->list.count * kSlots * (int64_t)sizeof(S);
    Shares shares = shares_of<T>(a, queue->chip.processors);
    const int64_t in_bytes = turns_in ? turned_bytes(p.in, in, p.entries, kElement) : 0,
                  out_bytes = turns_out ? turned_bytes(p.out, out, p.entries, kElement) : 0;
    PASS(tartan_cuda_scratch(function, queue, in_bytes + out_bytes + of_share * a->splits + 1, scratch));
    char *const at = (char *)*scratch;
    tartan_cuda_image x = p.in, y = p.out;
    a->sums = at + in_bytes + out_bytes;
    for (int d = 0; d < TARTAN_I_DIMS; d++) a->stride[d] = (int32_t)p.taps.stride[d];
    if (turns_in)
        PASS(turn_slots<T>(function, queue, p.entries, in, p.active_in ? a->windows : none, at, &x));
    if (turns_out)
        PASS(
            turn_slots<T>(function, queue, p.entries, out, is_masked ? a->windows : none, at + in_bytes, &y));
    a->in = piece_image_of(x, kSlots);
    a->out = piece_image_of(y, kSlots);
    shares.rows.x_step = 16 * a->in.step[2];
    shares.rows.y_step = 16 * a->out.step[2];
    if (a->positions > 0)
        PASS(launch<T>(function, queue, *a, shares));
    else
        a->splits = 0;
    const bool early = a->positions > 0 && tartan_cuda_starts_early(queue, p.layout);
    const dim3 ctas((unsigned)((a->weights + kWeights - 1) / kWeights));
    return tartan_cuda_check(
        function, tartan_cuda_launch_early(queue, early, add_shares<T>, ctas, dim3(kThreads), (size_t)0, *a),
        "adding up the shares of a filter's gradient");
}

} // namespace
} // namespace conv_filter_gradient_depthwise
} // namespace tartan_cuda

tartan_status tartan_cuda_conv_filter_gradient_depthwise(const char *function, tartan_cuda_queue *queue,
                                                         const void *problem) {
    using namespace tartan_cuda;
    const auto *p = (const tartan_cuda_conv_filter_gradient *)problem;
    conv_filter_gradient_pieces::Args a;
    void *map, *scratch = nullptr;
    tartan_status status = conv_filter_gradient_pieces::begin(function, queue, p, &a, &map);
    if (status == TARTAN_OK)
        status = tartan_cuda_by_dtype(p->dtype, [&](auto tag) {
            return conv_filter_gradient_depthwise::compute<typename decltype(tag)::type>(function, queue, &a,
                                                                                         &scratch);
        });
    if (scratch != nullptr) tartan_cuda_scratch_free(queue, scratch);
    if (map != nullptr) tartan_cuda_scratch_free(queue, map);
    return status;
}
