/* SPDX-License-Identifier: Apache-2.0
 * The k-th largest key of a line digit by digit, from the highest, and what a CTA makes of it. */
#ifndef TARTAN_CUDA_SELECTION_DIGITS_CUH
#define TARTAN_CUDA_SELECTION_DIGITS_CUH

#include "kernels/selection.cuh"

namespace tartan_cuda {
namespace {

/* The sum of x of the threads before this one, and of all in *all. */
template <int OF_LINE>
__device__ __forceinline__ uint32_t sum_before(uint32_t x, uint32_t (&room)[32], uint32_t *all) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    uint32_t up_to = x;
    for (int step = 1; step < 32; step *= 2) {
        const uint32_t other = __shfl_up_sync(~0u, up_to, step);
        if (lane >= step) up_to += other;
    }
    __syncthreads(); /* the room was read */
    if (lane == 31) room[warp] = up_to;
    __syncthreads();
    const uint32_t of_warp = lane < OF_LINE / 32 ? room[lane] : 0;
    *all = __reduce_add_sync(~0u, of_warp);
    return __reduce_add_sync(~0u, lane < warp ? of_warp : 0) + up_to - x;
}

/* What is known of the k-th largest key: its bits from `shift` on, how many keys are above all with these bits, and how many have them. */
template <typename K> struct Digits {
    K prefix;
    int shift;
    uint32_t above, alike;

    __device__ __forceinline__ int next() const { return shift > DIGIT_BITS ? shift - DIGIT_BITS : 0; }
    /* Adds numbers to the histogram of the next digit. */
    template <int OF_LINE, typename T, typename F>
    __device__ __forceinline__ void count(const T *x, int64_t n, int64_t step, F counts, Table<K> &t) const {
        using O = Order<T>;
        const int to = next();
        const uint32_t mask = (1u << (shift - to)) - 1;
        const bool first = shift == O::BITS;
        each_element<OF_LINE>(x, n, step, (int)threadIdx.x, [&](int64_t i, T number) {
            const K key = counts(i) ? O::key(number) : 0;
            if (first || (key ^ prefix) >> shift == 0)
                atomicAdd(&t.histogram[(uint32_t)(key >> to) & mask], 1u);
        });
    }
    /* The next digit is that of which the histogram has number k. */
    template <int OF_LINE>
    __device__ __forceinline__ void choose(int64_t k, const uint32_t *histogram, Table<K> &t) {
        constexpr int EACH = DIGITS / OF_LINE;
        const int last = DIGITS - 1 - (int)threadIdx.x * EACH;
        uint32_t mine[EACH], sum = 0, all;
        EACH_OF(EACH) sum += mine[i] = histogram[last - i];
        uint32_t up = above + sum_before<OF_LINE>(sum, t.before, &all);
        EACH_OF(EACH) {
            if (up < k && up + mine[i] >= k) t.digit = (uint32_t)(last - i), t.above = up, t.alike = mine[i];
            up += mine[i];
        }
        __syncthreads();
        shift = next();
        prefix |= (K)t.digit << shift;
        above = t.above, alike = t.alike;
    }
};

template <int OF_LINE, typename K> __device__ __forceinline__ void clear_histogram(Table<K> &t) {
    __syncthreads(); /* it was read */
    for (int b = (int)threadIdx.x; b < DIGITS; b += OF_LINE) t.histogram[b] = 0;
    __syncthreads();
}

template <int OF_LINE, typename T, typename K>
__device__ __forceinline__ void find_digit(const Chosen<T> &c, Digits<K> &d, Table<K> &t) {
    const Selection &p = c.p;
    clear_histogram<OF_LINE>(t);
    d.template count<OF_LINE>(
        c.x(), p.lines.n, p.lines.step[X], [&](int64_t i) { return c.counts(i); }, t);
    __syncthreads();
    d.template choose<OF_LINE>(p.k, t.histogram, t);
}

/* What precedes a part of a line: numbers that are chosen for their size, and those equal to the least of these. */
struct Preceding {
    uint32_t above, ties;
};

/* f(rank, i, x[i]), once in the code, in the order of places, of numbers begin .. end - 1 of a line: those with keys above `last`, and the first `ties` of all
 * that are equal to it. */
template <int OF_LINE, typename T, typename K, typename F>
__device__ __forceinline__ void each_in_order(const Chosen<T> &c, int64_t begin, int64_t end, K last,
                                              uint32_t ties, Preceding before, Table<K> &t, F f) {
    constexpr int EACH = PER<T>;
    const T *const x = c.x();
    const int64_t step = c.p.lines.step[X];
    const bool units = step == 1 && (uintptr_t)(x + begin) % 16 == 0;
    for (int64_t first = begin + (int64_t)threadIdx.x * EACH; begin < end;
         begin += OF_LINE * EACH, first += OF_LINE * EACH) {
        T in[EACH];
        if (units && first + EACH <= end) {
            const uint4 unit = *(const uint4 *)(x + first);
            EACH_OF(EACH) in[i] = ((const T *)&unit)[i];
        } else {
            EACH_OF(EACH) if (first + i < end) in[i] = x[(first + i) * step];
        }
        uint32_t above = 0, alike = 0, all;
        EACH_OF(EACH) {
            const K key = first + i < end && c.counts(first + i) ? Order<T>::key(in[i]) : 0;
            if (key > last)
                above |= 1u << i;
            else if (key == last && key != 0)
                alike |= 1u << i;
        }
        const uint32_t both = (uint32_t)(__popc(above) | __popc(alike) << 16), /* of at most OF_LINE EACH */
            preceding = sum_before<OF_LINE>(both, t.before, &all);
        Preceding here = {before.above + (preceding & 0xffff), before.ties + (preceding >> 16)};
        for (uint32_t left = above | alike; left != 0; left &= left - 1) {
            const int i = __ffs((int)left) - 1;
            const bool tie = (alike >> i & 1) != 0;
            if (!tie || here.ties < ties)
                f(here.above + (here.ties < ties ? here.ties : ties), first + i, x[(first + i) * step]);
            here.above += !tie, here.ties += tie;
        }
        before.above += all & 0xffff, before.ties += all >> 16;
    }
}

/* Where there is no room for entries, or k is too large for them. */
template <Made MADE, int OF_LINE, typename T, typename K>
__device__ __forceinline__ void choose_by_digits(const Chosen<T> &c, Digits<K> d, Table<K> &t) {
    using O = Order<T>;
    using S = tartan_cuda_sum<T>;
    const Selection &p = c.p;
    const int thread = (int)threadIdx.x;
    /* The least number is only of use where it is subtracted: else the digits that say which they are will do. */
    while (d.shift > 0 && ((MADE == RECTIFIED && p.rebase) || d.above + d.alike != p.k))
        find_digit<OF_LINE>(c, d, t);
    const K last = d.prefix;
    const uint32_t ties = d.shift > 0 ? UINT32_MAX : (uint32_t)p.k - d.above;
    const auto in_order = [&](auto f) {
        each_in_order<OF_LINE>(c, 0, p.lines.n, last, ties, Preceding(), t, f);
    };
    if constexpr (MADE == TOP_K) {
        in_order([&](uint32_t rank, int64_t i, T x) { t.entries[rank] = {O::key(x), (uint32_t)i}; });
        sort_found<OF_LINE>(t, (uint32_t)p.k);
        finish_sorted<MADE, OF_LINE>(c, t, (int)p.k);
        return;
    }
    if constexpr (MADE == IN_ORDER) {
        in_order(
            [&](uint32_t rank, int64_t i, T x) { c.set(rank, tartan_cuda_to<S>(x)), c.set_index(rank, i); });
        return;
    }
    /* Of numbers equal to the least, the place of the last that is chosen. */
    int64_t limit = p.lines.n;
    if (last != 0 && d.shift == 0 && (p.rebase || d.alike > ties)) {
        if (thread == 0) t.limit = 0;
        in_order([&](uint32_t, int64_t i, T x) {
            if (O::key(x) == last) atomicMax(&t.limit, (uint32_t)i);
        });
        __syncthreads();
        limit = t.limit;
    }
    const auto is_chosen = [&](int64_t i, K key) {
        return key != 0 && (key > last || (key == last && i <= limit)) && c.counts(i);
    };
    const S least = last == 0 ? (S)0 : tartan_cuda_to<S>(O::number(last));
    const bool rebased = MADE == RECTIFIED && p.rebase && least > 0;
    S most = -(S)INFINITY, inverse = 0;
    if constexpr (MADE == SOFTMAX) {
        const auto each = [&](auto f) {
            each_element<OF_LINE>(c.x(), p.lines.n, p.lines.step[X], thread, [&](int64_t i, T x) {
                if (is_chosen(i, O::key(x))) f(x);
            });
        };
        each([&](T x) {
            const S s = tartan_cuda_to<S>(x) * (S)p.scale;
            most = s > most ? s : most;
        });
        most = warp_max(most);
        if (thread % 32 == 0) t.sums[thread / 32] = (double)most;
        __syncthreads();
        for (int w = 0; w < OF_LINE / 32; w++) most = (S)t.sums[w] > most ? (S)t.sums[w] : most;
        __syncthreads();
        if (most == -(S)INFINITY) most = 0;
        double sum = 0;
        each([&](T x) { sum += (double)exponential(exponent(tartan_cuda_to<S>(x), (S)p.scale, most)); });
        sum = line_sum<OF_LINE>(sum, t.sums);
        inverse = sum == 0 ? 0 : (S)(1 / sum);
    }
    transform<OF_LINE>(c.x(), p.lines.n, p.lines.step[X], p.lines.sweep.array[OUT], c.at[OUT],
                       p.lines.step[OUT], thread, p.same_dtype, [&](int64_t i, T x) {
                           const S number = tartan_cuda_to<S>(x);
                           if (rebased) return below_zero_is_zero(number - least);
                           if (!is_chosen(i, O::key(x))) return (S)0;
                           return MADE == SOFTMAX ? exponential(exponent(number, (S)p.scale, most)) * inverse
                                                  : below_zero_is_zero(number);
                       });
    if (MADE == RECTIFIED && thread == 0) c.set_index(0, rebased ? limit : -1);
}

template <Made MADE, int OF_LINE, typename T, typename K>
__device__ __forceinline__ void choose_by_cta(const Chosen<T> &c, Table<K> &t) {
    using O = Order<T>;
    const Selection &p = c.p;
    Digits<K> d = {0, O::BITS, 0, (uint32_t)p.lines.n};
    if (MADE != IN_ORDER && p.k <= MOST) {
        K least = 0;
        if (p.k <= OF_LINE / 2) {
            K most = 0;
            each_element<OF_LINE>(c.x(), p.lines.n, p.lines.step[X], (int)threadIdx.x, [&](int64_t i, T x) {
                const K key = O::key(x);
                if (key > most && c.counts(i)) most = key;
            });
            least =
                kth_key<O::BITS, K>(p.k, [&](K at_least) { return __syncthreads_count(most >= at_least); });
        } else {
            do find_digit<OF_LINE>(c, d, t);
            while (d.shift > 0 && d.above + d.alike > MOST);
            least = d.prefix;
        }
        const bool fit = p.k <= OF_LINE / 2 || least == 0 || d.above + d.alike <= MOST;
        const uint32_t found = fit ? collect<OF_LINE>(c, least > 0 ? least : (K)1, MOST, t) : 0;
        if (fit && found <= MOST) {
            sort_found<OF_LINE>(t, found);
            finish_sorted<MADE, OF_LINE>(c, t, (int)(found < p.k ? found : (uint32_t)p.k));
            return;
        }
    }
    choose_by_digits<MADE, OF_LINE>(c, d, t);
}

} // namespace
} // namespace tartan_cuda

#endif
