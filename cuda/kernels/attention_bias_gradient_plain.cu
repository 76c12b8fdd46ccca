/* SPDX-License-Identifier: Apache-2.0
 * The gradients of attention's bias and sinks, for every problem. The gradients of scores, ds, are computed again as in the
 * backward pass, by CTAs that own queries and walk the keys.
 *
 * Batch entries and heads that share a plane of the bias are a group. Its pieces of block rows, entry after entry, are dealt
 * to slots in turn; a CTA takes a slot and adds all of it up in that order, in f64. How many slots there are depends on the
 * problem alone, so results do not depend on the run. If the bias has a number for each block or each score, a slot has one
 * piece of a block row of all entries, and slots share sums, since no two add to the same number; else each slot has sums of
 * its own. A second kernel adds up the sums of a plane. */
#include "device_memory.h"
#include "index_cache.h"
#include "kernels.h"
#include "kernels/attention_gradient_plain.cuh"

namespace tartan_cuda {
namespace attention {
namespace {

enum { kMostSlots = 1024 };                  /* of all groups together; but each group has one */
const int64_t kMostSums = (int64_t)64 << 20; /* bytes of the slots' sums; but each group has a slot */

struct Args : Given {
    int64_t groups, slots;
    int64_t member_first, member_step; /* see tartan_cuda_attention_bias_gradient */
    int64_t planes, width;
    int64_t parts; /* sums of a plane: slots, or pieces of a block row */
    double *sums;  /* [planes][parts][width] */
};

/* What a CTA needs besides. */
template <typename S, int kRows> struct Room {
    S of_token[kOthers]; /* the sum of a key's ds */
    double of_thread[threads_of<kRows>()];
};

/* The sum of a number of each thread; all threads together, in a fixed order. */
template <int kThreads> __device__ __forceinline__ double add_threads(double x, double *room) {
    __syncthreads(); /* what is there has been read */
    room[threadIdx.x] = x;
    for (int step = kThreads / 2; step > 0; step /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < step) room[threadIdx.x] += room[threadIdx.x + step];
    }
    __syncthreads();
    return room[0];
}

/* ---- Sums of a tile ---- */

/* ds of the thread's pairs times their distances. */
template <typename S, int kRows>
__device__ __forceinline__ S add_distances(const Pairs<S, kRows, false> &pairs, const S (&ds)[kEach][kEach]) {
    S sum = 0;
#pragma unroll
    for (int r = 0; r < kEach; r++)
#pragma unroll
        for (int o = 0; o < kEach; o++)
            sum = fma(ds[r][o], (S)(pairs.key(r, o) - pairs.query(r, o) - pairs.c.p.query_offset), sum);
    return sum;
}

/* Adds ds of the thread's pairs to the numbers of their scores, of which no other thread has any. */
template <typename S, int kRows>
__device__ __forceinline__ void add_each(const Pairs<S, kRows, false> &pairs, uint32_t seen, int64_t keys,
                                         const S (&ds)[kEach][kEach], double *sums) {
#pragma unroll
    for (int r = 0; r < kEach; r++)
#pragma unroll
        for (int o = 0; o < kEach; o++)
            if (pairs.own(r) < pairs.x.rows && (seen >> (r * kEach + o) & 1))
                sums[pairs.query(r, o) * keys + pairs.key(r, o)] += (double)ds[r][o];
}

/* The first token of a tile that belongs to another block than token i, or the number of tokens. */
__device__ __forceinline__ int end_of_block(int64_t done, int i, int count, int32_t block) {
    const int64_t end = ((done + i) / block + 1) * block - done;
    return end < count ? (int)end : count;
}

/* Adds the stored ds of a tile to the sums of its blocks. */
template <int kThreads, typename S, int kRows>
__device__ __forceinline__ void add_blocks(const Shared<S, kRows> &s, S *of_token, int64_t done,
                                           int32_t block, double *sums) {
    for (int i = threadIdx.x; i < kOthers; i += kThreads) {
        S sum = 0;
        for (int r = 0; r < kRows; r++) sum += s.weights[i * Shared<S, kRows>::kPitch + r];
        of_token[i] = sum;
    }
    __syncthreads();
    const int count = s.piece.others - done < kOthers ? (int)(s.piece.others - done) : kOthers;
    for (int i = threadIdx.x; i < count; i += kThreads) {
        if (i > 0 && (done + i) % block != 0) continue;
        double sum = 0;
        for (int j = i; j < end_of_block(done, i, count, block); j++) sum += (double)of_token[j];
        sums[s.id[i]] += sum; /* another thread may do so for the next tile, after a barrier */
    }
}

/* Adds the stored ds of a tile to the sums of their distances, diagonal by diagonal of each block: those at the ends to
 * *low and *high of the thread. */
template <int kThreads, typename S, int kRows>
__device__ __forceinline__ void add_diagonals(const Shared<S, kRows> &s, const tartan_cuda_attention &p,
                                              int64_t done, double *sums, double *low, double *high) {
    const int64_t reach = p.bias_reach;
    const int count = s.piece.others - done < kOthers ? (int)(s.piece.others - done) : kOthers;
    const int rows = s.piece.rows;
    for (int first = 0, end; first < count; first = end) {
        end = end_of_block(done, first, count, p.block_k);
        const int64_t key = s.token[first]; /* -1: beyond the edge, as all that follow in the block */
        const int keys = end - first;
        for (int t = threadIdx.x; key >= 0 && t < rows + keys - 1; t += kThreads) {
            const int diagonal = t - (rows - 1); /* key minus query, counted from the first ones */
            S sum = 0;
            for (int r = diagonal < 0 ? -diagonal : 0; r < rows && r + diagonal < keys; r++)
                sum += s.weights[(first + r + diagonal) * Shared<S, kRows>::kPitch + r];
            const int64_t distance = key - s.piece.row - p.query_offset + diagonal;
            if (distance <= -reach)
                *low += (double)sum;
            else if (distance >= reach)
                *high += (double)sum;
            else
                sums[distance + reach] += (double)sum;
        }
        __syncthreads(); /* the next block's diagonals may have the same numbers */
    }
}

/* ---- Pieces and slots ---- */

/* What a thread adds up by itself over a slot. */
struct Own {
    double slope = 0, low = 0, high = 0;
};

/* Adds up a piece of a block row of one head. */
template <typename S, int kRows>
__device__ __forceinline__ void add_piece(const Args &a, Shared<S, kRows> &s, Room<S, kRows> &room,
                                          double *sums, Own &own) {
    constexpr int kThreads = threads_of<kRows>();
    const tartan_cuda_attention &p = a.c.p;
    const Piece &x = s.piece;
    for (int i = threadIdx.x; i < kRows; i += kThreads)
        fetch_query(a, x, i < x.rows ? x.row + i : (int64_t)-1, i, s);
    const Pairs<S, kRows, false> pairs = {a.c, x, s};
    for (int64_t done = 0; done < x.others; done += kOthers) {
        __syncthreads(); /* the last tile's table has been read */
        look_up<kThreads>(a.lists, done, p.block_k, p.tk, s);
        __syncthreads();
        bool any;
        const uint32_t seen = pairs.visible(&any);
        if (!__syncthreads_or(any)) continue;
        S scores[kEach][kEach], ds[kEach][kEach];
        multiply<kThreads>(Tokens<S>(p.q, x.entry, x.head), Tokens<S>(p.k, x.entry, x.kv), x, p.d, s, scores);
        multiply<kThreads>(Tokens<S>(a.out_grad, x.entry, x.head), Tokens<S>(p.v, x.entry, x.kv), x, p.dv, s,
                           ds);
        differentiate<false>(pairs, seen, scores, ds);
#pragma unroll
        for (int r = 0; r < kEach; r++)
#pragma unroll
            for (int o = 0; o < kEach; o++)
                if (pairs.own(r) >= x.rows) ds[r][o] = 0; /* there is no such query */
        if (p.bias_kind == TARTAN_I_BIAS_SLOPES) {
            own.slope += (double)add_distances(pairs, ds);
            continue;
        }
        if (p.bias_kind == TARTAN_I_BIAS_DENSE) {
            add_each(pairs, seen, p.tk, ds, sums);
            continue;
        }
        put_weights(ds, s);
        __syncthreads();
        if (p.bias_kind == TARTAN_I_BIAS_BLOCK)
            add_blocks<kThreads>(s, room.of_token, done, p.block_k, sums);
        else
            add_diagonals<kThreads>(s, p, done, sums, &own.low, &own.high);
    }
}

template <typename S, int kRows>
__global__ void __launch_bounds__(threads_of<kRows>(), at_once<kRows>(sizeof(S) == 8 ? 256 : 512))
    bias_grad(const __grid_constant__ Args a) {
    constexpr int kThreads = threads_of<kRows>();
    __shared__ Shared<S, kRows> s;
    __shared__ Room<S, kRows> room;
    const tartan_cuda_attention &p = a.c.p;
    const bool by_block = p.bias_kind == TARTAN_I_BIAS_BLOCK, dense = p.bias_kind == TARTAN_I_BIAS_DENSE;
    for (int64_t task = blockIdx.x; task < a.groups * a.slots; task += gridDim.x) {
        const int64_t group = task % a.groups, slot = task / a.groups;
        const int64_t pieces = p.batch * p.heads / a.groups * a.cut.of_head;
        Own own;
        double *sums = a.sums + (dense ? group : group * a.slots + slot) * a.width;
        for (int64_t n = slot; n < pieces; n += a.slots) {
            const int64_t entry = group * a.member_first + n / a.cut.of_head * a.member_step;
            __syncthreads(); /* the last piece has been read */
            if (threadIdx.x == 0)
                s.piece = queries_of(a.c, a.cut, a.lists, entry * a.cut.of_head + n % a.cut.of_head, 1);
            __syncthreads();
            if (by_block)
                sums = a.sums + (group % a.planes * a.parts + s.piece.skipped / a.cut.rows) * a.width;
            if (s.piece.rows > 0) add_piece<S, kRows>(a, s, room, sums, own);
        }
        if (by_block || dense) continue;
        const double slope = add_threads<kThreads>(own.slope, room.of_thread),
                     low = add_threads<kThreads>(own.low, room.of_thread),
                     high = add_threads<kThreads>(own.high, room.of_thread);
        if (threadIdx.x != 0) continue;
        sums[0] += slope + low;
        sums[a.width - 1] += high;
    }
}

/* ---- Results ---- */

enum { kStoreThreads = 256 };

struct Stored {
    const double *sums; /* [planes][parts][width] */
    int64_t planes, parts, width;
    void *to;
    int64_t plane_heads, columns; /* see tartan_cuda_attention_bias_gradient */
    int64_t plane_batch_stride, plane_stride, row_stride, number_stride;
};

template <typename S>
__global__ void __launch_bounds__(kStoreThreads) store_sums(const __grid_constant__ Stored a) {
    for (int64_t i = (int64_t)blockIdx.x * kStoreThreads + threadIdx.x; i < a.planes * a.width;
         i += (int64_t)gridDim.x * kStoreThreads) {
        const int64_t plane = i / a.width, n = i % a.width;
        double sum = 0;
        for (int64_t part = 0; part < a.parts; part++) sum += a.sums[(plane * a.parts + part) * a.width + n];
        ((S *)a.to)[plane / a.plane_heads * a.plane_batch_stride + plane % a.plane_heads * a.plane_stride +
                    n / a.columns * a.row_stride + n % a.columns * a.number_stride] = (S)sum;
    }
}

struct Sinks {
    const void *sinks;
    void *grad;
    int64_t element, grad_element; /* strides */
    tartan_cuda_tensor lse;
    const void *delta; /* [batch, heads, tq] */
    int64_t batch, heads, tq;
};

/* A CTA for each head: -sum exp(sink - lse) delta. */
template <typename S>
__global__ void __launch_bounds__(kStoreThreads) sinks_grad(const __grid_constant__ Sinks a) {
    __shared__ double room[kStoreThreads];
    for (int64_t head = blockIdx.x; head < a.heads; head += gridDim.x) {
        const S sink = ((const S *)a.sinks)[head * a.element];
        double sum = 0;
        if (!isinf(sink)) /* -infinity has no weight, and infinity leaves none to the keys: out is 0 */
            for (int64_t n = threadIdx.x; n < a.batch * a.tq; n += kStoreThreads) {
                const int64_t entry = n / a.tq, i = n % a.tq;
                const S lse =
                    ((const S *)a.lse.data)[entry * a.lse.batch + head * a.lse.head + i * a.lse.token];
                sum -= (double)exp(sink - lse) *
                       (double)((const S *)a.delta)[(entry * a.heads + head) * a.tq + i];
            }
        sum = add_threads<kStoreThreads>(sum, room);
        if (threadIdx.x == 0) ((S *)a.grad)[head * a.grad_element] = (S)sum;
    }
}

/* ---- On the host ---- */

template <typename S, int kRows>
tartan_status start_bias(const char *function, tartan_cuda_queue *queue, const Args &a) {
    if (a.cut.pieces == 0) return TARTAN_OK;
    return tartan_cuda_launch(function, queue, bias_grad<S, kRows>, tartan_cuda_grid(a.groups * a.slots),
                              dim3(threads_of<kRows>()), a);
}

/* How the sums are divided. */
void divide(const tartan_cuda_attention_bias_gradient *p, Args *a) {
    const bool by_block = p->in.bias_kind == TARTAN_I_BIAS_BLOCK,
               dense = p->in.bias_kind == TARTAN_I_BIAS_DENSE;
    a->planes = p->planes, a->width = p->width, a->groups = p->groups;
    a->member_first = p->member_first, a->member_step = p->member_step;
    a->cut =
        cut_of(p->in.block_q <= 16 ? 16 : 32, p->in.block_q, p->in.grid_q, p->in.heads, p->in.batch, 1, 1);
    const int64_t pieces = p->in.batch * p->in.heads / p->groups * a->cut.of_head;
    const int64_t room = kMostSums / 8 / (p->groups * p->width);
    a->slots = by_block || dense ? a->cut.of_head : (kMostSlots - 1) / p->groups + 1;
    if (!by_block && !dense && a->slots > room) a->slots = room;
    if (a->slots > pieces) a->slots = pieces;
    if (a->slots < 1) a->slots = 1;
    a->parts = by_block ? a->cut.chunks : dense ? 1 : a->slots;
}

template <typename S>
tartan_status start(const char *function, tartan_cuda_queue *queue,
                    const tartan_cuda_attention_bias_gradient *p, Args *a) {
    if (p->planes * p->width > 0) {
        const int64_t bytes = a->planes * a->parts * a->width * 8;
        PASS(tartan_cuda_check(function, cudaMemsetAsync(a->sums, 0, (size_t)bytes, queue->stream),
                               "clearing sums"));
        const tartan_status status = p->in.block_q <= 16 ? start_bias<S, 16>(function, queue, *a)
                                                         : start_bias<S, 32>(function, queue, *a);
        PASS(status);
        const Stored stored = {a->sums,         a->planes,      a->parts,        a->width,
                               p->bias_grad,    p->plane_heads, p->columns,      p->plane_batch_stride,
                               p->plane_stride, p->row_stride,  p->number_stride};
        PASS(tartan_cuda_launch(function, queue, store_sums<S>,
                                tartan_cuda_grid((a->planes * a->width - 1) / kStoreThreads + 1),
                                dim3(kStoreThreads), stored));
    }
    if (p->sinks_grad == nullptr || p->in.heads == 0) return TARTAN_OK;
    const Sinks sinks = {p->sinks, p->sinks_grad, p->sinks_element, p->sinks_grad_element,
                         a->lse,   a->delta,      p->in.batch,      p->in.heads,
                         p->in.tq};
    return tartan_cuda_launch(function, queue, sinks_grad<S>, tartan_cuda_grid(p->in.heads),
                              dim3(kStoreThreads), sinks);
}

} // namespace
} // namespace attention
} // namespace tartan_cuda

tartan_status tartan_cuda_attention_bias_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                        const void *problem) {
    using namespace tartan_cuda::attention;
    const tartan_cuda_attention_bias_gradient *p = (const tartan_cuda_attention_bias_gradient *)problem;
    const bool has_bias = p->planes * p->width > 0;
    Args a = {};
    a.out = p->out, a.lse = p->lse, a.out_grad = p->out_grad;
    PASS(common_of(function, queue, &p->in, &a.c));
    if (has_bias) {
        divide(p, &a);
        if (p->in.blocks > 0)
            PASS(tartan_cuda_index_get_rows(function, queue, p->in.layout, false, &a.lists));
    }
    const int64_t queries = p->in.batch * p->in.heads * p->in.tq,
                  delta_bytes = (queries * (p->in.dtype == TARTAN_F64 ? 8 : 4) + 255) / 256 * 256;
    PASS(tartan_cuda_scratch(function, queue, delta_bytes + a.planes * a.parts * a.width * 8, &a.delta));
    a.sums = (double *)((char *)a.delta + delta_bytes);
    tartan_status status = start_delta(function, queue, &a);
    if (status == TARTAN_OK)
        status = tartan_cuda_by_sum_dtype(p->in.dtype, [&](auto tag) {
            using S = typename decltype(tag)::type;
            return start<S>(function, queue, p, &a);
        });
    tartan_cuda_scratch_free(queue, a.delta);
    return status;
}
