/* SPDX-License-Identifier: Apache-2.0
 * A CTA for each row: a radix select finds the key of the last score to keep, 11 bits at a time from the top. Keys are
 * integers that order as the scores do, kept in shared memory, so that scores are read once; very long rows are read
 * again for every digit, from L2. Rows of attention have hundreds to a few thousand scores, so latency is the cost: the
 * select ends as soon as all keys that share the digits found so far are to be kept. The first digit has two bits of the
 * mantissa, so that scores of one size do not all count in the same bin. */
#include "index_scores.h"

#include "device/element.cuh"
#include "device/launch.cuh"

namespace {

enum {
    THREADS = 256,
    DIGIT_BITS = 11,
    BINS = 1 << DIGIT_BITS,
    EACH = BINS / THREADS,  /* bins of a thread */
    MOST_SHARED = 36 << 10, /* bytes of keys; the static rest of shared memory takes 9 KB */
};

template <typename S> struct key_type;
template <> struct key_type<float> { using type = uint32_t; };
template <> struct key_type<double> { using type = uint64_t; };

__device__ __forceinline__ uint32_t bits_of(float x) {
    return __float_as_uint(x);
}
__device__ __forceinline__ uint64_t bits_of(double x) {
    return (uint64_t)__double_as_longlong(x);
}

/* An integer that orders as the score does; -0 counts as 0, NaN as infinity. */
template <typename S> __device__ __forceinline__ typename key_type<S>::type key_of(S score) {
    using Key = typename key_type<S>::type;
    constexpr Key sign = (Key)1 << (8 * sizeof(Key) - 1);
    if (score != score) score = (S)INFINITY;
    const Key bits = bits_of(score + (S)0);
    return bits & sign ? ~bits : bits | sign;
}

/* The keys of a row. */
template <typename T> struct row_of_keys {
    using S = tartan_cuda_sum<T>;
    using Key = typename key_type<S>::type;
    const T *scores;
    const Key *shared; /* or NULL */
    __device__ __forceinline__ Key at(int32_t i) const {
        return shared != nullptr ? shared[i] : key_of(tartan_cuda_to<S>(scores[i]));
    }
};

struct room {
    alignas(16) int32_t bins[BINS];
    int32_t of_warps[THREADS / 32];
    int32_t bin, wanted;
    bool all;
};

/* Inclusive sum over the lanes of a warp. */
__device__ __forceinline__ int32_t running_sum(int32_t value) {
    const int32_t lane = (int32_t)(threadIdx.x % 32);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int32_t left = __shfl_up_sync(0xffffffffu, value, step);
        if (lane >= step) value += left;
    }
    return value;
}

/* Inclusive sum over the threads of the CTA; *total becomes the sum of all. */
__device__ __forceinline__ int32_t running_sum_of_cta(int32_t value, int32_t *of_warps, int32_t *total) {
    const int32_t warp = (int32_t)(threadIdx.x / 32);
    int32_t sum = running_sum(value), before = 0, all = 0;
    __syncthreads(); /* the last sums have been read */
    if (threadIdx.x % 32 == 31) of_warps[warp] = sum;
    __syncthreads();
#pragma unroll
    for (int32_t w = 0; w < THREADS / 32; w++) {
        if (w < warp) before += of_warps[w];
        all += of_warps[w];
    }
    *total = all;
    return before + sum;
}

/* Which keys are kept: those above `key`, and the first `ties` of those equal to it. */
template <typename Key> struct limit {
    Key key;
    int32_t ties;
};

/* Finds the bin of the last key to keep, of `wanted` in the bins from the largest down. Thread 0 has the largest bins. */
__device__ __forceinline__ void find_bin(room &s, int32_t wanted) {
    const int32_t first = BINS - EACH * ((int32_t)threadIdx.x + 1);
    const auto counts = *(const tartan_cuda_pack<int32_t, EACH> *)(s.bins + first);
    int32_t mine = 0, total;
#pragma unroll
    for (int i = 0; i < EACH; i++) mine += counts.at[i];
    const int32_t sum = running_sum_of_cta(mine, s.of_warps, &total);
    if (sum < wanted || sum - mine >= wanted) return;
    int32_t left = wanted - (sum - mine);
    bool found = false;
#pragma unroll
    for (int i = EACH - 1; i >= 0; i--) {
        if (!found && counts.at[i] >= left) {
            s.bin = first + i;
            s.wanted = left;
            s.all = counts.at[i] == left;
            found = true;
        }
        left -= counts.at[i];
    }
}

/* Finds the limit of the k largest of n > k keys. */
template <typename T>
__device__ __forceinline__ limit<typename row_of_keys<T>::Key> find_limit(const row_of_keys<T> &keys,
                                                                          int32_t n, int32_t k, room &s) {
    using Key = typename row_of_keys<T>::Key;
    Key prefix = 0, known = 0;
    int32_t wanted = k;
    for (int top = 8 * (int)sizeof(Key); top > 0;) {
        const int shift = top > DIGIT_BITS ? top - DIGIT_BITS : 0;
        const uint32_t digit = (1u << (top - shift)) - 1;
#pragma unroll
        for (int i = 0; i < EACH; i++) s.bins[(int)threadIdx.x + i * THREADS] = 0;
        __syncthreads();
        for (int32_t i = (int32_t)threadIdx.x; i < n; i += THREADS) {
            const Key key = keys.at(i);
            if ((key & known) == prefix) atomicAdd(&s.bins[(uint32_t)(key >> shift) & digit], 1);
        }
        __syncthreads();
        find_bin(s, wanted);
        __syncthreads();
        prefix |= (Key)s.bin << shift;
        known |= (Key)digit << shift;
        wanted = s.wanted;
        top = shift;
        if (s.all) return {prefix - 1, 0}; /* all keys of the bin; not 0, since some keys are not kept */
    }
    return {prefix, wanted};
}

/* Writes the mask of a row. */
template <typename T>
__device__ __forceinline__ void write_row(const row_of_keys<T> &keys, int32_t n,
                                          limit<typename row_of_keys<T>::Key> last, room &s, uint8_t *mask) {
    using Key = typename row_of_keys<T>::Key;
    int32_t seen = 0;
    for (int32_t first = 0; first < n; first += THREADS) {
        const int32_t i = first + (int32_t)threadIdx.x;
        const Key key = i < n ? keys.at(i) : (Key)0;
        const bool above = i < n && key > last.key, tie = i < n && key == last.key;
        bool kept = above;
        if (last.ties > 0) { /* the same for all threads */
            int32_t here;
            const int32_t rank = seen + running_sum_of_cta(tie, s.of_warps, &here);
            kept = kept || (tie && rank <= last.ties);
            seen += here;
        }
        if (i < n) mask[i] = kept;
    }
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
    choose(const T *scores, int64_t lines, int32_t cols, int64_t k, bool cached, uint8_t *mask) {
    using S = tartan_cuda_sum<T>;
    using Key = typename row_of_keys<T>::Key;
    extern __shared__ uint64_t memory[];
    __shared__ room s;
    Key *shared = (Key *)memory;
    for (int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
        const row_of_keys<T> keys = {scores + line * cols, cached ? shared : nullptr};
        __syncthreads(); /* the last row has been read */
        if (cached)
            for (int32_t i = (int32_t)threadIdx.x; i < cols; i += THREADS)
                shared[i] = key_of(tartan_cuda_to<S>(keys.scores[i]));
        __syncthreads();
        const Key never = key_of((S)-INFINITY);
        limit<Key> last = {never, 0};
        if (k < cols) last = find_limit<T>(keys, cols, (int32_t)k, s);
        if (last.key <= never) last = {never, 0}; /* fewer than k are above -infinity */
        write_row<T>(keys, cols, last, s, mask + line * cols);
    }
}

} // namespace

tartan_status tartan_cuda_choose_largest(const char *function, tartan_cuda_queue *queue, const void *scores,
                                         int32_t dtype, int64_t lines, int32_t cols, int64_t k,
                                         uint8_t *mask) {
    return tartan_cuda_by_dtype(dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        const int64_t bytes = (int64_t)cols * (int64_t)sizeof(typename row_of_keys<T>::Key);
        const bool cached = bytes <= MOST_SHARED;
        choose<T><<<tartan_cuda_grid(lines), THREADS, cached ? (size_t)bytes : 0, queue->stream>>>(
            (const T *)scores, lines, cols, k, cached, mask);
        return tartan_cuda_check(function, cudaGetLastError(), "choosing blocks by their scores");
    });
}
