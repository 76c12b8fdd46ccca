/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/align.h"

#include "device/launch.cuh"
#include "device/line_store.cuh"
#include "device_memory.h"
#include "dtype.h"
#include "tune.h"

namespace {

enum { kThreads = 256, kBytes = 16, kPieces = 2, kChunk = kThreads * kPieces, kLongLine = 512 };

using tartan_cuda::bytes_across;

struct Lines {
    const void *from;
    uint4 *to;
    int64_t lines, length, line_stride, head_stride, entry_stride; /* in elements */
    int64_t heads, matrices, pieces;                               /* pieces of 16 bytes in a line */
};

/* Piece number `piece` of line number `line`; the aligned 16 bytes, one or two, that contain its bytes. */
template <typename T> struct Piece {
    const T *from;
    int64_t left; /* elements of the line from there on */
    bool whole;   /* all of the 16 bytes, and of the aligned ones, are of the matrix */
    uint4 low, high;

    __device__ __forceinline__ void load(const Lines &p, int64_t line, int64_t piece) {
        constexpr int kEach = kBytes / (int)sizeof(T);
        const int64_t matrix = p.matrices == 1 ? 0 : line / p.lines, of_matrix = line - matrix * p.lines;
        const int64_t entry = p.heads == p.matrices ? 0 : matrix / p.heads, head = matrix - entry * p.heads;
        const T *first = (const T *)p.from + head * p.head_stride + entry * p.entry_stride;
        const char *end = (const char *)(first + (p.lines - 1) * p.line_stride + p.length);
        from = first + of_matrix * p.line_stride + piece * kEach;
        left = p.length - piece * kEach;
        const char *begin = (const char *)from - (uintptr_t)from % kBytes;
        whole = left >= kEach && begin >= (const char *)first && begin + 2 * kBytes <= end;
        if (whole) {
            low = ((const uint4 *)begin)[0];
            high = ((const uint4 *)begin)[1];
        }
    }
    __device__ __forceinline__ uint4 get() const {
        constexpr int kEach = kBytes / (int)sizeof(T);
        if (whole) return bytes_across(low, high, (uint32_t)(uintptr_t)from % kBytes);
        union {
            T element[kEach];
            uint4 all;
        } value;
#pragma unroll
        for (int j = 0; j < kEach; j++) value.element[j] = j < left ? from[j] : T(0);
        return value.all;
    }
};

/* A thread makes kPieces times 16 bytes of the copy; what lies behind the end of a line is zero. Reads of 16 bytes stay between
 * the first and the last element of a matrix. The kernel that reads the copy may begin at once, since it waits for the end of
 * this one. */
template <typename T> __global__ void __launch_bounds__(kThreads) align(const __grid_constant__ Lines p) {
    tartan_cuda::let_next_kernel_begin();
    const int64_t lines = p.matrices * p.lines, all = lines * p.pieces;
    for (int64_t begin = (int64_t)blockIdx.x * kChunk; begin < all; begin += (int64_t)gridDim.x * kChunk) {
        const int64_t line = begin / p.pieces;
        const uint32_t first = (uint32_t)(begin - line * p.pieces) + threadIdx.x, pieces = (uint32_t)p.pieces;
        Piece<T> piece[kPieces];
#pragma unroll
        for (uint32_t i = 0; i < kPieces; i++) {
            const uint32_t at = first + i * kThreads;
            if (begin + threadIdx.x + i * kThreads < all) piece[i].load(p, line + at / pieces, at % pieces);
        }
#pragma unroll
        for (uint32_t i = 0; i < kPieces; i++) {
            const int64_t at = begin + threadIdx.x + i * kThreads;
            if (at < all) p.to[at] = piece[i].get();
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
    const int64_t bytes = tartan_cuda_bytes_of(d->dtype), line = length * bytes;
    const int64_t pieces =
        line < kLongLine ? tartan_i_ceil_div(line, kBytes) : 8 * tartan_i_ceil_div(line, 8 * kBytes);
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
    const tartan_status status = tartan_cuda_launch(
        function, queue, kernel, tartan_cuda_grid(tartan_i_ceil_div(count, kChunk)), dim3(kThreads), p);
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
