/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/align.h"

#include "device/launch.cuh"
#include "device_memory.h"
#include "dtype.h"
#include "tune.h"

namespace {

enum { kThreads = 256, kBytes = 16 };

struct Lines {
    const void *from;
    uint4 *to;
    int64_t lines, length, line_stride, head_stride, entry_stride; /* in elements */
    int64_t heads, matrices, pieces;                               /* pieces of 16 bytes in a line */
};

/* 16 bytes from any address, out of the two aligned ones that contain them. */
__device__ __forceinline__ uint4 load_across(const char *from) {
    const uint32_t apart = (uint32_t)(uintptr_t)from % kBytes, shift = apart % 4 * 8;
    const uint4 *at = (const uint4 *)(from - apart);
    const uint4 low = at[0], high = apart == 0 ? low : at[1];
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

/* A thread makes 16 bytes of the copy; what lies behind the end of a line is zero. Reads of 16 bytes stay between the first
 * and the last element of a matrix. The kernel that reads the copy may begin at once, since it waits for the end of this
 * one. */
template <typename T> __global__ void __launch_bounds__(kThreads) align(const __grid_constant__ Lines p) {
    tartan_cuda::let_next_kernel_begin();
    constexpr int kEach = kBytes / (int)sizeof(T);
    const int64_t all = p.matrices * p.lines, down = (int64_t)gridDim.y * blockDim.y,
                  across = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; i < all; i += down) {
        const int64_t matrix = p.matrices == 1 ? 0 : i / p.lines, line = i - matrix * p.lines;
        const int64_t entry = p.heads == p.matrices ? 0 : matrix / p.heads, head = matrix - entry * p.heads;
        const T *first = (const T *)p.from + head * p.head_stride + entry * p.entry_stride;
        const char *end = (const char *)(first + (p.lines - 1) * p.line_stride + p.length);
        for (int64_t piece = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; piece < p.pieces;
             piece += across) {
            const int64_t at = piece * kEach;
            const T *from = first + line * p.line_stride + at;
            const char *begin = (const char *)from - (uintptr_t)from % kBytes;
            uint4 *to = p.to + i * p.pieces + piece;
            if (begin >= (const char *)first && begin + 2 * kBytes <= end && at + kEach <= p.length) {
                *to = load_across((const char *)from);
                continue;
            }
            union {
                T element[kEach];
                uint4 all;
            } value;
#pragma unroll
            for (int j = 0; j < kEach; j++) value.element[j] = at + j < p.length ? from[j] : T(0);
            *to = value.all;
        }
    }
}

} // namespace

tartan_status tartan_cuda_align_copy(const char *function, tartan_cuda_queue *queue,
                                     const tartan_cuda_alignable *what, void **out_scratch) {
    tartan_cuda_dense *d = what->dense;
    *out_scratch = nullptr;
    const bool by_cols = d->row_stride == 1;
    const int64_t lines = by_cols ? what->cols : what->rows, length = by_cols ? what->rows : what->cols;
    const int64_t bytes = tartan_cuda_bytes_of(d->dtype), pieces = tartan_i_ceil_div(length * bytes, kBytes);
    const int64_t count = what->entries * what->heads * lines * pieces, pitch = pieces * kBytes / bytes;
    PASS(tartan_cuda_scratch(function, queue, count * kBytes, out_scratch));
    const Lines p = {d->data,
                     (uint4 *)*out_scratch,
                     lines,
                     length,
                     by_cols ? d->col_stride : d->row_stride,
                     what->heads > 1 ? d->head_stride : 0,
                     what->entries > 1 ? *what->batch_stride : 0,
                     what->heads,
                     what->heads * what->entries,
                     pieces};
    const auto kernel = bytes == 1   ? align<uint8_t>
                        : bytes == 2 ? align<uint16_t>
                        : bytes == 4 ? align<uint32_t>
                                     : align<uint64_t>;
    uint32_t wide = 1; /* threads along a line, one for each piece */
    while (wide < 64 && wide < pieces) wide *= 2;
    const dim3 threads(wide, kThreads / wide);
    const int64_t x = tartan_i_ceil_div(pieces, threads.x),
                  y = tartan_i_ceil_div(p.matrices * lines, threads.y);
    const dim3 grid((unsigned)(x < 1024 ? x : 1024), (unsigned)(y < 65535 ? y : 65535));
    const tartan_status status = tartan_cuda_launch(function, queue, kernel, grid, threads, p);
    if (status != TARTAN_OK) {
        tartan_cuda_scratch_free(queue, *out_scratch);
        *out_scratch = nullptr;
        return status;
    }
    d->data = *out_scratch;
    (by_cols ? d->col_stride : d->row_stride) = pitch;
    d->head_stride = lines * pitch;
    *what->batch_stride = what->heads * lines * pitch;
    return TARTAN_OK;
}

tartan_status tartan_cuda_align(const char *function, tartan_cuda_queue *queue,
                                const tartan_cuda_alignable *what, void **out_scratch) {
    *out_scratch = nullptr;
    if (tartan_cuda_is_mappable(what->dense, what->heads, what->entries, *what->batch_stride))
        return TARTAN_OK;
    return tartan_cuda_align_copy(function, queue, what, out_scratch);
}

tartan_status tartan_cuda_align_pairs(const char *function, tartan_cuda_queue *queue, tartan_cuda_sddmm *p,
                                      void **out_scratch) {
    tartan_status status = TARTAN_OK;
    for (int32_t i = 0; i < 2 * TARTAN_I_MAX_PAIRS; i++) out_scratch[i] = nullptr;
    for (int32_t i = 0; i < p->pairs && status == TARTAN_OK; i++) {
        auto &q = p->pair[i];
        const tartan_cuda_alignable x = {&q.x, &q.batch.first[0], p->m, q.k, p->heads, q.batch.entries},
                                    y = {&q.y, &q.batch.second[0], q.k, p->n, p->heads, q.batch.entries};
        status = tartan_cuda_align(function, queue, &x, &out_scratch[2 * i]);
        if (status == TARTAN_OK) status = tartan_cuda_align(function, queue, &y, &out_scratch[2 * i + 1]);
    }
    return status;
}
