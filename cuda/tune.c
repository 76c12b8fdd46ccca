/* SPDX-License-Identifier: Apache-2.0 */
#include "tune_model.h"

#include "dtype.h"

/* A copy with aligned lines: bytes read and written, and a launch. */
static const double align_bytes_us = 2.5e6, align_copy_us = 3;

int32_t tartan_cuda_kind_of(int32_t dtype, bool tf32) {
    if (tartan_cuda_is_8_bits(dtype)) return F8;
    return dtype == TARTAN_F64 ? F64 : dtype != TARTAN_F32 ? HALF : tf32 ? TF32 : F32;
}

int32_t tartan_cuda_size_of(int32_t block) {
    int32_t i = 0;
    while (i < SIZES - 1 && block > 8 << i) i++;
    return i;
}

/* ---- Dense operands that are copied first ---- */

/* A stride that a tensor map can have: positive, a multiple of 16 bytes, below 2^40 bytes. */
static bool is_map_stride(int64_t stride, int64_t bytes) {
    return stride > 0 && stride < ((int64_t)1 << 40) / bytes && stride * bytes % 16 == 0;
}

bool tartan_cuda_is_mappable(const tartan_cuda_dense *d, int64_t heads, int64_t entries,
                             int64_t batch_stride) {
    const int64_t bytes = tartan_cuda_bytes_of(d->dtype);
    if ((d->row_stride != 1 && d->col_stride != 1) || (uintptr_t)d->data % 16 != 0) return false;
    if (!is_map_stride(d->row_stride == 1 ? d->col_stride : d->row_stride, bytes)) return false;
    if (heads > 1 && !is_map_stride(d->head_stride, bytes)) return false;
    return entries <= 1 || is_map_stride(batch_stride, bytes);
}

double tartan_cuda_copy_us(const tartan_cuda_dense *d, int64_t heads, int64_t entries, double elements) {
    return align_copy_us +
           2 * elements * (double)heads * (double)entries * tartan_cuda_bytes_of(d->dtype) / align_bytes_us;
}

double tartan_cuda_align_us(const tartan_cuda_dense *d, int64_t heads, int64_t entries, int64_t batch_stride,
                            double elements) {
    return tartan_cuda_is_mappable(d, heads, entries, batch_stride)
               ? 0
               : tartan_cuda_copy_us(d, heads, entries, elements);
}

/* What is left of the rates of kernels on mma.sync if they load single elements (H100, blocks of 64, 4096). */
static const double unaligned_part[KINDS] = {[F64] = 0.45, [TF32] = 0.1, [HALF] = 0.03};

double tartan_cuda_unaligned_rate(double rate, int32_t kind, double operations, double copy_us,
                                  bool *copies) {
    const double slow = unaligned_part[kind] * rate, copied = tartan_cuda_with_us(rate, operations, copy_us);
    *copies = copied > slow;
    return *copies ? copied : slow;
}

double tartan_cuda_with_us(double rate, double operations, double us) {
    return us > 0 && rate > 0 ? operations / (operations / rate + 1e6 * us) : rate;
}
