/* SPDX-License-Identifier: Apache-2.0
 * Transposes 16-bit elements in parts of 64 lines. Memory limits it, 4 bytes an element: a warp transposes 64 lines x 32
 * elements in registers, 8 x 8 a thread, read in pieces of 64 bytes and written in lines of 128. */
#include "kernels/transpose.h"

#include "device/launch.cuh"

namespace {

enum { kThreads = 256, kPart = 64, kOfCta = kThreads / 32 * 32 }; /* kOfCta: elements of a line */

struct Lines {
    const uint16_t *from;
    uint16_t *to;
    int64_t lines, length, line_stride, head_stride, entry_stride;
    int64_t parts, heads, matrices;
    uint32_t pieces; /* CTAs along a line */
};

/* 8 neighbours in a line, of which `left` exist; nobody reads them again. */
__device__ __forceinline__ uint4 load_8(const uint16_t *from, int64_t left) {
    if (left >= 8) return __ldcs((const uint4 *)from);
    uint16_t value[8];
#pragma unroll
    for (int i = 0; i < 8; i++) value[i] = i < left ? from[i] : (uint16_t)0;
    return {value[0] | (uint32_t)value[1] << 16, value[2] | (uint32_t)value[3] << 16,
            value[4] | (uint32_t)value[5] << 16, value[6] | (uint32_t)value[7] << 16};
}

__global__ void __launch_bounds__(kThreads) transpose_half(const __grid_constant__ Lines p) {
    const uint32_t lane = threadIdx.x % 32, in_part = lane % 8 * 8;
    const int64_t part = blockIdx.x / p.pieces, line = part * kPart + in_part,
                  at = (int64_t)(blockIdx.x % p.pieces) * kOfCta + threadIdx.x / 32 * 32 + lane / 8 * 8;
    if (at >= p.length) return;
    for (int64_t matrix = blockIdx.y; matrix < p.matrices; matrix += gridDim.y) {
        const uint16_t *from = p.from + matrix % p.heads * p.head_stride + matrix / p.heads * p.entry_stride +
                               line * p.line_stride + at;
        uint4 value[8];
#pragma unroll
        for (int i = 0; i < 8; i++) /* of 8 lines; 4 threads load a piece of each */
            value[i] = load_8(from + i * p.line_stride, line + i < p.lines ? p.length - at : 0);
        uint16_t *to = p.to + ((matrix * p.parts + part) * p.length + at) * kPart + in_part;
#pragma unroll
        for (int i = 0; i < 8; i++) { /* element i of each; 8 threads store a line */
            const auto pair = [&](int j) {
                const uint32_t *first = (const uint32_t *)&value[j],
                               *second = (const uint32_t *)&value[j + 1];
                return __byte_perm(first[i / 2], second[i / 2], i % 2 ? 0x7632 : 0x5410);
            };
            if (at + i < p.length) *(uint4 *)(to + i * kPart) = {pair(0), pair(2), pair(4), pair(6)};
        }
    }
}

int64_t parts_of(const tartan_cuda_transpose_source *from) {
    return (from->lines + kPart - 1) / kPart;
}

} // namespace

int64_t tartan_cuda_transposed_bytes(const tartan_cuda_transpose_source *from) {
    return 2 * from->entries * from->heads * parts_of(from) * kPart * from->length;
}

tartan_status tartan_cuda_transpose_half(const char *function, tartan_cuda_queue *queue,
                                         const tartan_cuda_transpose_source *from, void *to) {
    const int64_t matrices = from->heads * from->entries, pieces = (from->length + kOfCta - 1) / kOfCta;
    const Lines p = {(const uint16_t *)from->data,
                     (uint16_t *)to,
                     from->lines,
                     from->length,
                     from->line_stride,
                     from->heads > 1 ? from->head_stride : 0,
                     from->entries > 1 ? from->entry_stride : 0,
                     parts_of(from),
                     from->heads,
                     matrices,
                     (uint32_t)pieces};
    /* One matrix has fewer than 2^31 CTAs, since each transposes at least 1 KB of memory. */
    const dim3 grid((unsigned)(pieces * p.parts), (unsigned)(matrices < 65535 ? matrices : 65535));
    return tartan_cuda_launch(function, queue, transpose_half, grid, dim3(kThreads), p);
}
