/* SPDX-License-Identifier: Apache-2.0
 * What the kernels of attention cannot do. */
#include "dtype.h"
#include "refuse.h"

static bool is_tuned(int32_t edge) {
    return edge == 8 || edge == 16 || edge == 32 || edge == 64 || edge == 128;
}

static const int64_t most_offset = (int64_t)1 << 30; /* distances of tokens are below 2^31 then */

/* Whether TMA can load the tensor: contiguous elements, the other strides multiples of 16 bytes and below 2^40. */
static bool is_boxed(const tartan_cuda_tensor *t, int64_t batch, int64_t heads) {
    const int64_t unit = 16 / tartan_cuda_bytes_of(t->dtype), most = (int64_t)1 << 38;
    const int64_t strides[] = {t->token, heads > 1 ? t->head : unit, batch > 1 ? t->batch : unit};
    if (t->element != 1 || (uintptr_t)t->data % 16 != 0) return false;
    for (int i = 0; i < 3; i++)
        if (strides[i] % unit != 0 || strides[i] <= 0 || strides[i] >= most) return false;
    return true;
}

/* What both passes refuse. */
static const char *refuse_inputs(const tartan_cuda_chip *chip, const tartan_cuda_attention *p) {
    if (chip->major != 9 || chip->minor != 0) return "needs compute capability 9.0";
    if (!tartan_cuda_is_half(p->dtype)) return "only for float16 and bfloat16";
    if (p->d < 16 || p->d > 256 || p->d % 8 != 0) return "only for 16 to 256 elements a head, in eights";
    if (!is_tuned(p->block_q) || !is_tuned(p->block_k))
        return "only for blocks of 8, 16, 32, 64 or 128 queries and keys";
    if (p->dv != p->d) return "only for values with as many elements as keys";
    if (p->softcap > 0) return "has no softcap";
    if (p->bias_kind == TARTAN_I_BIAS_DENSE) return "has no dense bias";
    if (p->blocks == 0) return "the layout has no blocks";
    if (p->heads == 0) return "q has no heads";
    if (p->tq > INT32_MAX - 256 || p->tk > INT32_MAX - 256)
        return "only for fewer than 2^31 queries and keys";
    if ((double)p->batch * (double)p->heads * ((double)(p->tq + p->tk) / 64 + 2) > 2e9)
        return "only for fewer than 2e9 tiles of the output";
    if (!(p->scale > 0)) return "only for a positive scale";
    if (p->bias_kind == TARTAN_I_BIAS_BLOCK && p->block_mask != NULL)
        return "has no bias of blocks together with a block mask";
    if (p->bias != NULL && (p->query_offset > most_offset || p->query_offset < -most_offset))
        return "adds a bias only if query_offset is below 2^30";
    if (p->bias != NULL && p->scale < 1e-20) return "adds a bias only if the scale is at least 1e-20";
    if (!is_boxed(&p->q, p->batch, p->heads) || !is_boxed(&p->k, p->batch, p->kv_heads) ||
        !is_boxed(&p->v, p->batch, p->kv_heads))
        return "the elements of a token are not contiguous, or its address is no multiple of 16 bytes";
    return NULL;
}

const char *tartan_cuda_attention_forward_wgmma_refuses(const tartan_cuda_chip *chip, const void *problem) {
    return refuse_inputs(chip, &((const tartan_cuda_attention_forward *)problem)->in);
}

const char *tartan_cuda_attention_backward_wgmma_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_attention_backward *b = problem;
    const char *reason = refuse_inputs(chip, &b->in);
    if (reason != NULL) return reason;
    if (b->out_grad.dtype != b->in.dtype) return "only for out of the dtype of q";
    if (!is_boxed(&b->out_grad, b->in.batch, b->in.heads))
        return "the elements of a token of out_grad are not contiguous, or its address is no multiple of 16 "
               "bytes";
    return NULL;
}

const char *tartan_cuda_attention_backward_fused_refuses(const tartan_cuda_chip *chip, const void *problem) {
    const tartan_cuda_attention_backward *b = problem;
    if (!b->in.any_order) return "its sums depend on the run, only for deterministic=0";
    if (b->in.bias != NULL || b->in.dropout > 0) return "has no bias and no dropout";
    if (b->in.d > 128) return "only for up to 128 elements a head";
    if (b->in.d > 64 && b->in.block_k < 64)
        return "with more than 64 elements a head only for blocks of 64 or 128 keys";
    return tartan_cuda_attention_backward_wgmma_refuses(chip, problem);
}
