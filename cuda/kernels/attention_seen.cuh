/* SPDX-License-Identifier: Apache-2.0
 * Which scores of a step count (attention_lists.cuh), for the consumers: a thread holds columns 8 f + 2 q and the next one of
 * rows `row` and `row` + 8, f being the fragment and q = threadIdx.x % 4. */
#ifndef TARTAN_CUDA_ATTENTION_SEEN_CUH
#define TARTAN_CUDA_ATTENTION_SEEN_CUH

#include "device/ptx_wgmma.cuh"
#include "kernels/attention_lists.cuh"

namespace tartan_cuda {

namespace {

/* What the 16 rows of a warp see of a step. */
enum class Sight { none, some, all };

/* ---- The columns that a row sees, bit j % 32 of word j / 32 ---- */

/* Takes out the keys from the row's limit on, or the queries before the row's first one. */
template <bool kByKeys, class Step>
__device__ __forceinline__ void take_hidden(const AttentionLists &p, const Step *step, int32_t row,
                                            uint32_t (&seen)[Step::kWords]) {
    const int32_t width = min(p.block_columns, 32);
    const int32_t limit = kByKeys ? first_query(p, row) : limit_of(p, row);
#pragma unroll
    for (int w = 0; w < Step::kWords; w++) {
        uint32_t word = 0;
        for (int32_t at = 0; at < 32; at += width) {
            const int32_t slot = p.parts > 1 ? 0 : (32 * w + at) >> p.shift_columns;
            const int32_t ahead =
                p.parts > 1 ? 32 * w : (32 * w + at) & (p.block_columns - 1); /* columns of the slot before */
            const int32_t count = limit - step->first[slot] - ahead;
            const uint32_t below = count <= 0 ? 0 : count >= 32 ? ~0u : (1u << count) - 1;
            const uint32_t bits = kByKeys ? ~below : below;
            word |= (width < 32 ? bits & ((1u << width) - 1) : bits) << at;
        }
        seen[w] &= word;
    }
}

/* Takes out those that the block mask does not keep, where a tile has several blocks. `line`: of the row's block row,
 * `inside`: its row there. */
template <class Step>
__device__ __forceinline__ void take_masked(const AttentionLists &p, const Step *step, int32_t line,
                                            int32_t inside, uint32_t (&seen)[Step::kWords]) {
    const int32_t width = min(p.block_columns, 32);
#pragma unroll
    for (int w = 0; w < Step::kWords; w++) {
        uint32_t hidden = 0;
        for (int32_t j = 0; j < 32; j += width) {
            const int32_t at = step->blocks[((32 * w + j) >> p.shift_columns) * p.lines + line];
            const int32_t in_block = (32 * w + j) & (p.block_columns - 1);
            if (at < 0) continue;
            const uint32_t all = width < 32 ? (1u << width) - 1 : ~0u;
            const int64_t from = (int64_t)at * p.block_words + inside * p.row_words + in_block / 32;
            hidden |= (all & ~p.mask.bits[from]) << j;
        }
        seen[w] &= ~hidden;
    }
}

/* The block row of a row. */
template <class Step>
__device__ __forceinline__ int32_t line_of(const AttentionLists &p, int32_t row, int32_t first_row) {
    return Step::kLines == 1 ? 0 : (row - first_row) >> p.shift_rows;
}

/* The words of the block mask for rows `row` + 8 r, where all columns of the step are in one block column. They are loaded
 * for all rows before the first is used, so that the loads overlap. */
template <int kCount, class Step>
__device__ __forceinline__ void load_seen(const AttentionLists &p, const Step *step, int32_t row,
                                          int32_t first_row, bool masked,
                                          uint32_t (&seen)[kCount][Step::kWords]) {
    using Words = tartan_cuda_pack<uint32_t, Step::kWords>;
    const int32_t part = p.parts > 1 ? (step->first[0] & (p.block_columns - 1)) / 32 : 0;
    Words words[kCount];
#pragma unroll
    for (int r = 0; r < kCount; r++) {
        const int32_t at = step->blocks[line_of<Step>(p, row + 8 * r, first_row)];
#pragma unroll
        for (int w = 0; w < Step::kWords; w++) words[r].at[w] = at == Step::kAbsent ? 0 : ~0u;
        const int32_t inside = (row + 8 * r) & (p.block_rows - 1);
        const char *from = (const char *)p.mask.bits + (uint32_t)(4 * (inside * p.row_words + part));
        if (masked && at >= 0)
            words[r] = *(const Words *)(from + (uint64_t)(uint32_t)at * (uint32_t)(4 * p.block_words));
    }
#pragma unroll
    for (int r = 0; r < kCount; r++)
#pragma unroll
        for (int w = 0; w < Step::kWords; w++) seen[r][w] = words[r].at[w];
}

/* ---- The scores that a thread holds ---- */

/* The score that a bit stands for, of kCount scores: the bits of a byte stand for fragments 4 apart, so that the words of a
 * row need only be shifted and added. */
template <int kCount> __device__ __forceinline__ constexpr int score_of(int bit) {
    const int second = kCount == 64 ? bit / 32 : bit / 4 % 2; /* row */
    return bit % (kCount == 64 ? 8 : 4) / 2 * 16 + bit % 32 / 8 * 4 + second * 2 + bit % 2;
}

/* The thread's bits of a row; where there are two words, bits 4 to 7 of each byte are left for the second row. */
template <int kWords> __device__ __forceinline__ uint32_t bits_of_thread(const uint32_t (&seen)[kWords]) {
    uint32_t bits = 0;
#pragma unroll
    for (int w = 0; w < kWords; w++) bits += (seen[w] >> 2 * (threadIdx.x % 4) & 0x03030303u) << 2 * w;
    return bits;
}

/* Which of the thread's scores of kCount rows count, from `row` on and 8 apart. The tile begins at row first_row. */
template <bool kByKeys, int kCount, class Step>
__device__ __forceinline__ void find_rows(const AttentionLists &p, const Step *step, uint32_t flags,
                                          int32_t row, int32_t first_row, uint32_t (&bits)[kCount]) {
    uint32_t seen[kCount][Step::kWords];
    if (p.slots == 1) {
        load_seen<kCount>(p, step, row, first_row, flags & kSomeMasked, seen);
    } else {
        int32_t lines[kCount];
#pragma unroll
        for (int r = 0; r < kCount; r++) {
            lines[r] = line_of<Step>(p, row + 8 * r, first_row);
#pragma unroll
            for (int w = 0; w < Step::kWords; w++)
                seen[r][w] = flags & kSomeAbsent ? step->present[lines[r]][w] : ~0u;
        }
        if (flags & kSomeMasked)
#pragma unroll
            for (int r = 0; r < kCount; r++)
                take_masked(p, step, lines[r], (row + 8 * r) & (p.block_rows - 1), seen[r]);
    }
#pragma unroll
    for (int r = 0; r < kCount; r++) {
        if (flags & kSomeHidden) take_hidden<kByKeys>(p, step, row + 8 * r, seen[r]);
        bits[r] = bits_of_thread(seen[r]);
    }
}

/* What usually decides. It is loaded before it is needed, since loads from shared memory are slow beside products. */
struct Glance {
    uint32_t flags; /* of the step */
    int32_t block;  /* of the row's line, in the first slot; only if there are several lines */
};
template <class Step>
__device__ __forceinline__ Glance glance(const AttentionLists &p, const Step *step, int32_t row,
                                         int32_t first_row) {
    return {step->flags, Step::kLines == 1 ? 0 : step->blocks[line_of<Step>(p, row, first_row)]};
}

/* Which of the thread's scores count, in the order of score_of; `out` is left alone if all do. kApart: one row after the
 * other, where registers are short. */
template <bool kByKeys, bool kApart = false, class Step>
__device__ __forceinline__ Sight find_seen(const AttentionLists &p, const Step *step, const Glance &seen,
                                           int32_t row, int32_t first_row,
                                           uint32_t (&out)[Step::kWords / 2]) {
    constexpr int kWords = Step::kWords;
    if (__builtin_expect(seen.flags == 0, 1)) return Sight::all;
    if (Step::kLines > 1 && seen.flags == kSomeAbsent && p.slots == 1 && p.shift_rows >= 4) {
        if (seen.block != Step::kAbsent) return Sight::all; /* all rows of the warp are of one line */
#pragma unroll
        for (int w = 0; w < kWords / 2; w++) out[w] = 0;
        return Sight::none;
    }
    if constexpr (kApart) {
        static_assert(kWords == 2, "both rows in one word");
        out[0] = 0;
#pragma unroll 1
        for (int r = 0; r < 2; r++) {
            uint32_t one[1];
            find_rows<kByKeys>(p, step, seen.flags, row + 8 * r, first_row, one);
            out[0] |= one[0] << 4 * r;
        }
    } else {
        uint32_t bits[2];
        find_rows<kByKeys>(p, step, seen.flags, row, first_row, bits);
        out[0] = kWords == 2 ? bits[1] << 4 | bits[0] : bits[0];
        if (kWords == 4) out[kWords / 2 - 1] = bits[1];
    }
    return Sight::some;
}
template <bool kByKeys, bool kApart = false, class Step>
__device__ __forceinline__ Sight find_seen(const AttentionLists &p, const Step *step, int32_t row,
                                           int32_t first_row, uint32_t (&out)[Step::kWords / 2]) {
    return find_seen<kByKeys, kApart>(p, step, glance(p, step, row, first_row), row, first_row, out);
}

/* Sets the scores that do not count to -infinity. The compiler moves seven bits of a byte to predicates at once (R2P); the
 * eighth bits of all bytes are gathered, since tests of single bits wait for each other. */
template <int kCount>
__device__ __forceinline__ void hide(const uint32_t (&seen)[kCount / 32], float (&s)[kCount]) {
    const float infinity = __uint_as_float(threadIdx.x) - INFINITY; /* -infinity, hidden from the compiler */
    uint32_t eighths = 0;
#pragma unroll
    for (int w = 0; w < kCount / 32; w++)
        eighths |= ((seen[w] >> 7 & 0x01010101u) * 0x10204080u >> 28) << 4 * w;
#pragma unroll
    for (int bit = 0; bit < kCount; bit++)
        if (bit % 8 < 7)
            infinity_unless(s[score_of<kCount>(bit)], seen[bit / 32], 1u << bit % 32, infinity, (float)bit);
#pragma unroll
    for (int bit = 7; bit < kCount; bit += 8)
        infinity_unless(s[score_of<kCount>(bit)], eighths, 1u << bit / 8, infinity, (float)bit);
}

} // namespace

} // namespace tartan_cuda

#endif
