/* SPDX-License-Identifier: Apache-2.0
 * Tensor maps of [batch, heads, tokens, d] arrays. */
#ifndef TARTAN_CUDA_ATTENTION_MAP_H
#define TARTAN_CUDA_ATTENTION_MAP_H

#include "device/tensor_map.h"
#include "problem.h"

namespace tartan_cuda {

/* A tensor of 16-bit elements in boxes of `rows` tokens by 64 elements. The stride of a dimension of length 1 may be
 * any. */
inline tartan_status map_tokens(const char *function, const tartan_cuda_tensor *t, int64_t d, int64_t tokens,
                                int64_t heads, int64_t batch, int32_t rows, CUtensorMap *out) {
    const Tensor tensor = {t->data,
                           t->dtype,
                           5,
                           {d, tokens, 1, heads, batch},
                           {1, t->token, 8, heads > 1 ? t->head : 8, batch > 1 ? t->batch : 8},
                           {64, (uint32_t)rows, 1, 1, 1},
                           128};
    return tensor_map_make(function, &tensor, out);
}

/* Whether TMA can store it. */
inline bool is_boxed(const tartan_cuda_tensor &t, int64_t heads, int64_t batch) {
    const auto fits = [](int64_t stride) {
        return stride > 0 && stride % 8 == 0 && stride < (int64_t)1 << 38;
    };
    return t.element == 1 && (uintptr_t)t.data % 16 == 0 && fits(t.token) && (heads == 1 || fits(t.head)) &&
           (batch == 1 || fits(t.batch));
}

} // namespace tartan_cuda

#endif
