/* SPDX-License-Identifier: Apache-2.0
 * Starts the kernels of spmm_gather.cuh, on a copy of B where that is loaded faster. */
#include "kernels/spmm_gather.cuh"

#include "device_memory.h"
#include "kernels/align.h"
#include "kernels/gate.h"
#include "kernels/transpose.h"

namespace tartan_cuda {
namespace spmm_gather {
namespace {

/* Scratch memory: gated values, an aligned copy and a transposed copy of B. */
struct Copies {
    void *gated = nullptr, *aligned = nullptr, *transposed = nullptr;
};

/* Copies B, whose summed index is contiguous, in parts of 64 contiguous columns. */
tartan_status transpose(const char *function, tartan_cuda_queue *queue, Args *a, void **out) {
    tartan_cuda_spmm *p = &a->p;
    const tartan_cuda_transpose_source from = {p->b.data,
                                               p->n,
                                               p->k,
                                               p->b.col_stride,
                                               p->heads,
                                               p->b.head_stride,
                                               p->batch.entries,
                                               p->batch.ndim > 0 ? p->batch.first[0] : 0};
    PASS(tartan_cuda_scratch(function, queue, tartan_cuda_transposed_bytes(&from), out));
    PASS(tartan_cuda_transpose_half(function, queue, &from, *out));
    a->part = p->k * 64;
    p->b.data = *out;
    p->b.row_stride = 64;
    p->b.col_stride = 1;
    p->b.head_stride = (p->n + 63) / 64 * a->part;
    p->batch.first[0] = p->heads * p->b.head_stride;
    return TARTAN_OK;
}

/* Whether B is loaded in lines along the summed index. With 16 bits it is not, since single elements would come too slowly. */
bool is_along(const tartan_cuda_spmm &p) {
    return !tartan_cuda_is_half(p.dtype) && llabs(p.b.row_stride) < llabs(p.b.col_stride);
}

/* Whether `of` products from a multiple of `of` on are in the same block, and all of them count or none does. */
bool has_products(const tartan_cuda_spmm &p, int32_t of) {
    return !p.variable && p.block_k % of == 0 && (p.k % p.block_k == 0 || p.k % of == 0);
}

/* How B is loaded. */
tartan_status prepare_b(const char *function, tartan_cuda_queue *queue, Args *a, Copies *copies) {
    tartan_cuda_spmm *p = &a->p;
    a->part = 64;
    if (tartan_cuda_spmm_gather_copies(p)) {
        const tartan_cuda_alignable b = {&p->b, &p->batch.first[0], p->k, p->n, p->heads, p->batch.entries};
        PASS(tartan_cuda_align(function, queue, &b, &copies->aligned));
        if (p->b.col_stride != 1) PASS(transpose(function, queue, a, &copies->transposed));
    }
    const bool along = is_along(*p);
    const bool wide = is_wide(p->b, along ? p->b.row_stride : p->b.col_stride,
                              along ? p->b.col_stride : p->b.row_stride, p->heads, p->batch, p->batch.first);
    const int32_t bytes = tartan_cuda_bytes_of(p->dtype);
    a->b_unit = wide && (!along || has_products(*p, 16 / bytes)) ? 16 : bytes;
    return TARTAN_OK;
}

/* The bytes of the widest copies of A: all elements of one are in the same block, next to each other, and all of them count or none
 * does. */
int32_t unit_of(const tartan_cuda_spmm &p) {
    const int32_t bytes = tartan_cuda_bytes_of(p.dtype);
    for (int32_t unit = 16; unit > bytes; unit /= 2) {
        const int32_t of = unit / bytes;
        if ((uintptr_t)p.values % unit != 0 || (p.a_k == 1 ? p.a_m : p.a_k) % of != 0) continue;
        if ((int64_t)p.block_m * p.block_k % of != 0) continue;
        if (p.a_k != 1 || has_products(p, of)) return unit;
    }
    return bytes;
}

/* Whether rows of C can be stored by 16 bytes. */
bool has_vectors(const tartan_cuda_spmm &p) {
    return is_wide(p.c, p.c.col_stride, p.c.row_stride, p.heads, p.batch, p.batch.second);
}

template <class F>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const Args &a, dim3 grid) {
    const auto kernel = multiply<F>;
    PASS(tartan_cuda_allow_shared(function, queue, (const void *)kernel, F::kShared));
    return tartan_cuda_check(
        function, tartan_cuda_launch_early(queue, false, kernel, grid, dim3(kThreads), (size_t)F::kShared, a),
        "starting the kernel spmm_gather");
}

unsigned at_most(int64_t count) {
    return (unsigned)(count < 65535 ? count : 65535);
}

tartan_status run(const char *function, tartan_cuda_queue *queue, Args *a) {
    const tartan_cuda_spmm &p = a->p;
    const bool along = p.a_k == 1;
    a->unit = unit_of(p);
    a->vectors = has_vectors(p);
    const Cut cut = cut_rows(p.block_m, along ? 1 : a->unit / tartan_cuda_bytes_of(p.dtype), 0);
    a->chunk = cut.chunk;
    a->chunks = cut.chunks;
    a->matrices = p.heads * p.batch.entries;
    const dim3 grid((unsigned)(p.grid_m * cut.chunks), at_most(tartan_i_ceil_div(p.n, kWidth)),
                    at_most(a->matrices));
    return by_tall(cut.tall, [&](auto tall) {
        return by_products(p.dtype, p.tf32, [&](auto products) {
            using Products = decltype(products);
            if constexpr (sizeof(typename Products::Element) > 2)
                if (is_along(p))
                    return along ? launch<Form<Products, tall(), true, true>>(function, queue, *a, grid)
                                 : launch<Form<Products, tall(), false, true>>(function, queue, *a, grid);
            return along ? launch<Form<Products, tall(), true, false>>(function, queue, *a, grid)
                         : launch<Form<Products, tall(), false, false>>(function, queue, *a, grid);
        });
    });
}

} // namespace
} // namespace spmm_gather
} // namespace tartan_cuda

tartan_status tartan_cuda_spmm_gather(const char *function, tartan_cuda_queue *queue, const void *problem) {
    using namespace tartan_cuda;
    spmm_gather::Args a = {};
    a.p = *(const tartan_cuda_spmm *)problem;
    PASS(tartan_cuda_index_get_rows(function, queue, a.p.layout, a.p.by_columns, &a.lists));
    PASS(tartan_cuda_index_get_bounds(function, queue, a.p.layout, a.p.by_columns, &a.bounds));
    spmm_gather::Copies copies;
    tartan_status status = tartan_cuda_gate_values(function, queue, &a.p, &a.p.values, &copies.gated);
    if (status == TARTAN_OK) status = spmm_gather::prepare_b(function, queue, &a, &copies);
    if (status == TARTAN_OK) status = spmm_gather::run(function, queue, &a);
    tartan_cuda_scratch_free(queue, copies.gated);
    tartan_cuda_scratch_free(queue, copies.aligned);
    tartan_cuda_scratch_free(queue, copies.transposed);
    return status;
}
