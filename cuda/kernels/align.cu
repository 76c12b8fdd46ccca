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
    int64_t heads, pieces;                                         /* pieces of 16 bytes in a line */
    int64_t count;                                                 /* of all */
};

/* A thread makes 16 bytes of the copy; what lies behind the end of a line is zero. The kernel that reads the copy may begin
 * at once, since it waits for the end of this one. */
template <typename T> __global__ void __launch_bounds__(kThreads) align(const __grid_constant__ Lines p) {
    tartan_cuda::let_next_kernel_begin();
    constexpr int kEach = kBytes / (int)sizeof(T);
    for (int64_t i = (int64_t)blockIdx.x * kThreads + threadIdx.x; i < p.count;
         i += (int64_t)gridDim.x * kThreads) {
        const int64_t all_lines = i / p.pieces, at = i % p.pieces * kEach;
        const int64_t line = all_lines % p.lines, matrix = all_lines / p.lines;
        const T *from = (const T *)p.from + matrix % p.heads * p.head_stride +
                        matrix / p.heads * p.entry_stride + line * p.line_stride + at;
        union {
            T element[kEach];
            uint4 all;
        } piece;
#pragma unroll
        for (int j = 0; j < kEach; j++) piece.element[j] = at + j < p.length ? from[j] : T(0);
        p.to[i] = piece.all;
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
                     pieces,
                     count};
    const auto kernel = bytes == 1 ? align<uint8_t> : bytes == 2 ? align<uint16_t> : align<uint32_t>;
    const tartan_status status = tartan_cuda_launch(
        function, queue, kernel, tartan_cuda_grid((count - 1) / kThreads + 1), dim3(kThreads), p);
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
