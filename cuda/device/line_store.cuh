/* SPDX-License-Identifier: Apache-2.0
 * Lines of a dense operand that begin at any address, 16 bytes at a time: TMA refuses boxes whose first element is not
 * aligned to 16 bytes ("illegal instruction"), so threads move them. */
#ifndef TARTAN_CUDA_LINE_STORE_CUH
#define TARTAN_CUDA_LINE_STORE_CUH

#include "device/ptx.cuh"

namespace tartan_cuda {

/* The 16 bytes that begin `apart` bytes, below 16, after the beginning of `low`; `high` follows on `low`. */
__device__ __forceinline__ uint4 bytes_across(uint4 low, uint4 high, uint32_t apart) {
    const uint32_t shift = apart % 4 * 8;
    uint32_t w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    if (apart & 8) {
#pragma unroll
        for (int i = 0; i < 6; i++) w[i] = w[i + 2];
    }
    if (apart & 4) {
#pragma unroll
        for (int i = 0; i < 5; i++) w[i] = w[i + 1];
    }
    return make_uint4(__funnelshift_r(w[0], w[1], shift), __funnelshift_r(w[1], w[2], shift),
                      __funnelshift_r(w[2], w[3], shift), __funnelshift_r(w[3], w[4], shift));
}

/* Where 16 bytes of a staged line are: [line][kUnits of 16 bytes], swizzled against bank conflicts. */
template <int kUnits>
__device__ __forceinline__ uint32_t staged_unit(uint32_t room, uint32_t line, uint32_t unit) {
    return room + (line * kUnits + (unit ^ line % 8)) * 16;
}

/* Which staged lines go where: number i, below `lines`, to `to` + i * pitch; each has `length` elements. Warp number `part` of
 * `parts` writes its share. */
struct StagedLines {
    uint32_t room;
    char *to;
    int64_t pitch; /* bytes */
    int32_t lines, length, part, parts;
};

/* Writes the elements before and after the aligned 16 bytes of each line, with kEnds lanes for a line. */
template <typename Element, int kUnits, int kEnds, int kUnroll>
__device__ __forceinline__ void store_ends(const StagedLines &s) {
    constexpr int32_t kBytes = sizeof(Element), kEach = 16 / kBytes, kAtOnce = 32 / kEnds;
    const int32_t lane = threadIdx.x % 32, end = lane % kEnds;
#pragma unroll kUnroll
    for (int32_t i = s.part * kAtOnce + lane / kEnds; i < s.lines; i += s.parts * kAtOnce) {
        char *line = s.to + i * s.pitch;
        const int32_t ahead = (int32_t)(-(uintptr_t)line % 16) / kBytes,
                      head = ahead < s.length ? ahead : s.length, tail = (s.length - head) % kEach;
        const bool first = end < head;
        const int32_t at = first ? end : s.length - kEnds + end;
        if (first || end >= kEnds - tail)
            *(Element *)(line + at * kBytes) = shared_load_element<Element>(
                staged_unit<kUnits>(s.room, i, at / kEach) + at % kEach * kBytes);
    }
}

/* Writes them: words of 16 bytes that are aligned in memory, each from two staged ones, then the elements at both ends of a
 * line, fewer than 16 bytes each. By a whole warp; kUnroll: as registers are free. */
template <typename Element, int kUnits, int kUnroll = 2>
__device__ __forceinline__ void store_lines(const StagedLines &s) {
    constexpr int32_t kBytes = sizeof(Element), kEach = 16 / kBytes, kAtOnce = 32 / kUnits;
    const int32_t lane = threadIdx.x % 32, unit = lane % kUnits;
#pragma unroll kUnroll
    for (int32_t i = s.part * kAtOnce + lane / kUnits; i < s.lines; i += s.parts * kAtOnce) {
        char *line = s.to + i * s.pitch;
        const int32_t before = (int32_t)((uintptr_t)line % 16), at = 16 * unit - before;
        const uint4 high = shared_load_16(staged_unit<kUnits>(s.room, i, unit));
        const uint4 low =
            before == 0 ? high : shared_load_16(staged_unit<kUnits>(s.room, i, unit > 0 ? unit - 1 : 0));
        const uint4 value = bytes_across(low, high, (16 - before) % 16);
        if (at >= 0 && at + 16 <= s.length * kBytes) *(uint4 *)(line + at) = value;
    }
    /* If the length of a line is a multiple of 16 bytes, the elements at both ends are 16 bytes together. */
    if (s.length % kEach == 0)
        store_ends<Element, kUnits, kEach, kUnroll>(s);
    else
        store_ends<Element, kUnits, 2 * kEach, kUnroll>(s);
}

} // namespace tartan_cuda

#endif
