/* SPDX-License-Identifier: Apache-2.0
 * Starts the kernels of sddmm_gather.cuh, on copies of the factors where these are loaded faster. */
#include "kernels/sddmm_gather.cuh"

#include "device_memory.h"
#include "kernels/align.h"
#include "kernels/transpose.h"

namespace tartan_cuda {
namespace sddmm_gather {
namespace {

/* A factor of a pair: the stride along the summed index, that across it, and how long it is across. */
struct Factor {
    tartan_cuda_dense *d;
    int64_t *along, *across, *batch;
    int64_t length;
    bool *wide;
    int64_t *step;
};

/* Scratch memory: an aligned and a transposed copy of each factor. */
struct Copies {
    void *of[4 * TARTAN_I_MAX_PAIRS] = {};
    int32_t count = 0;
};

/* Aligns the lines of a factor that has some; its contiguous index stays. */
tartan_status align(const char *function, tartan_cuda_queue *queue, int64_t heads, int64_t k,
                    const tartan_cuda_batch &batch, bool of_x, const Factor &f, Copies *copies) {
    const tartan_cuda_alignable what = {f.d,   f.batch,      of_x ? f.length : k, of_x ? k : f.length,
                                        heads, batch.entries};
    return tartan_cuda_align(function, queue, &what, &copies->of[copies->count++]);
}

/* Copies a factor of 16-bit elements whose lines run across the summed index, so that 64 products lie side by side. */
tartan_status transpose(const char *function, tartan_cuda_queue *queue, int64_t heads, int64_t k,
                        const tartan_cuda_batch &batch, const Factor &f, Copies *copies) {
    const tartan_cuda_transpose_source from = {f.d->data,     k,
                                               f.length,      *f.along,
                                               heads,         f.d->head_stride,
                                               batch.entries, batch.ndim > 0 ? *f.batch : 0};
    void **to = &copies->of[copies->count++];
    PASS(tartan_cuda_scratch(function, queue, tartan_cuda_transposed_bytes(&from), to));
    PASS(tartan_cuda_transpose_half(function, queue, &from, *to));
    f.d->data = *to;
    *f.along = 1;
    *f.across = 64;
    *f.step = f.length * 64;
    f.d->head_stride = (k + 63) / 64 * *f.step;
    *f.batch = heads * f.d->head_stride;
    return TARTAN_OK;
}

/* The factors of a pair. */
struct Factors {
    Factor x, y;

    Factors(Args *a, int32_t i) {
        auto &q = a->p.pair[i];
        auto &way = a->way[i];
        x = {&q.x, &q.x.col_stride, &q.x.row_stride, q.batch.first, a->p.m, &way.x_wide, &way.x_step};
        y = {&q.y, &q.y.row_stride, &q.y.col_stride, q.batch.second, a->p.n, &way.y_wide, &way.y_step};
    }
};

/* Copies what is loaded faster from a copy. */
tartan_status copy(const char *function, tartan_cuda_queue *queue, Args *a, Copies *copies) {
    const tartan_cuda_sddmm *p = &a->p;
    const bool half = tartan_cuda_is_half(p->dtype), turns = half && tartan_cuda_sddmm_places(p) == 0;
    if (!tartan_cuda_sddmm_gather_copies(p)) return TARTAN_OK;
    for (int32_t i = 0; i < p->pairs; i++) {
        const auto &q = p->pair[i];
        const Factors f(a, i);
        for (const Factor *one : {&f.x, &f.y}) {
            if (q.batch.ndim > 1 || (*one->along != 1 && *one->across != 1)) continue;
            PASS(align(function, queue, p->heads, q.k, q.batch, one == &f.x, *one, copies));
            if (turns && *one->along != 1)
                PASS(transpose(function, queue, p->heads, q.k, q.batch, *one, copies));
        }
    }
    return TARTAN_OK;
}

/* Whether the panel of X (of Y) has lines along the summed index; of 16 bits either both have or neither has. */
bool is_along(const tartan_cuda_sddmm &p, bool of_y) {
    if (tartan_cuda_is_half(p.dtype)) return tartan_cuda_sddmm_places(&p) == 0;
    if (p.pairs == 0) return true;
    const auto &q = p.pair[0];
    return of_y ? llabs(q.y.row_stride) < llabs(q.y.col_stride)
                : llabs(q.x.col_stride) < llabs(q.x.row_stride);
}

/* How the factors are loaded. */
void find_ways(Args *a) {
    const tartan_cuda_sddmm &p = a->p;
    a->places = tartan_cuda_sddmm_places(&p);
    a->x_pieces = !a->along_y;
    a->y_pieces = !a->along_x && a->places > 0;
    for (int32_t i = 0; i < p.pairs; i++) {
        const auto &q = p.pair[i];
        const Factors f(a, i);
        const auto is = [&](const Factor &one, bool along) {
            return is_wide(*one.d, along ? *one.along : *one.across, along ? *one.across : *one.along,
                           p.heads, q.batch, one.batch);
        };
        a->way[i].x_wide = is(f.x, a->along_y);
        a->way[i].y_wide = is(f.y, a->along_x) && (a->along_x || a->places > 0);
        a->x_pieces = a->x_pieces && a->way[i].x_wide;
        a->y_pieces = a->y_pieces && a->way[i].y_wide;
        for (const Factor *one : {&f.x, &f.y})
            if (*one->step == 0) *one->step = 128 / tartan_cuda_bytes_of(p.dtype) * *one->along;
    }
    for (int32_t i = 0; i < p.pairs; i++) { /* pieces of all pairs begin at the same places */
        a->way[i].x_wide = a->way[i].x_wide && (a->along_y || a->x_pieces);
        a->way[i].y_wide = a->way[i].y_wide && (a->along_x || a->y_pieces);
    }
    if (!a->y_pieces) a->places = p.block_n;
}

template <class F>
tartan_status launch(const char *function, tartan_cuda_queue *queue, const Args &a, dim3 grid) {
    const auto kernel = multiply<F>;
    PASS(tartan_cuda_allow_shared(function, queue, (const void *)kernel, F::kShared));
    return tartan_cuda_check(
        function, tartan_cuda_launch_early(queue, false, kernel, grid, dim3(kThreads), (size_t)F::kShared, a),
        "starting the kernel sddmm_gather");
}

tartan_status run(const char *function, tartan_cuda_queue *queue, Args *a) {
    const tartan_cuda_sddmm &p = a->p;
    const int32_t unit = 16 / tartan_cuda_bytes_of(p.dtype);
    const int32_t power = p.block_m & -p.block_m, multiple = !a->x_pieces ? 1 : power < unit ? power : unit;
    const Cut cut = cut_rows(p.block_m, multiple, a->x_pieces ? unit - multiple : 0);
    a->chunk = cut.chunk;
    a->chunks = cut.chunks;
    const int64_t lines = p.heads * p.grid_m;
    a->rows = lines * cut.chunks;
    for (int32_t i = 0; i < p.pairs; i++)
        a->steps += p.pair[i].batch.entries * tartan_i_ceil_div(p.pair[i].k, 8 * unit);
    /* CTAs of a block row: half as many again as it has tiles on average; each takes tiles at equal distances. */
    const int64_t most = tartan_i_ceil_div(p.grid_n * a->places, kWidth);
    const int64_t mean = tartan_i_ceil_div(3 * p.blocks * a->places, 2 * kWidth * lines) + 1;
    const dim3 grid((unsigned)a->rows, (unsigned)(mean < most ? mean : most));
    return by_tall(cut.tall, [&](auto tall) {
        return by_products(p.dtype, p.tf32, [&](auto products) {
            using Products = decltype(products);
            if constexpr (sizeof(typename Products::Element) > 2) {
                if (a->along_y && !a->along_x)
                    return launch<Form<Products, tall(), true, false>>(function, queue, *a, grid);
                if (!a->along_y && a->along_x)
                    return launch<Form<Products, tall(), false, true>>(function, queue, *a, grid);
            }
            return a->along_x ? launch<Form<Products, tall(), true, true>>(function, queue, *a, grid)
                              : launch<Form<Products, tall(), false, false>>(function, queue, *a, grid);
        });
    });
}

} // namespace
} // namespace sddmm_gather
} // namespace tartan_cuda

/* Between blocks of different sizes the kernel writes nothing. */
static tartan_status clear_padding(const char *function, tartan_cuda_queue *queue,
                                   const tartan_cuda_sddmm *p) {
    if (!p->variable || p->beta != 0) return TARTAN_OK;
    const size_t elements = (size_t)p->blocks * (size_t)(p->block_m * p->block_n);
    return tartan_cuda_check(
        function,
        cudaMemsetAsync(p->values, 0, elements * (size_t)tartan_cuda_bytes_of(p->s_dtype), queue->stream),
        "clearing padding");
}

tartan_status tartan_cuda_sddmm_gather(const char *function, tartan_cuda_queue *queue, const void *problem) {
    using namespace tartan_cuda;
    sddmm_gather::Args a = {};
    a.p = *(const tartan_cuda_sddmm *)problem;
    a.p.pairs = 0;
    for (int32_t i = 0; i < ((const tartan_cuda_sddmm *)problem)->pairs; i++) {
        const auto &pair = ((const tartan_cuda_sddmm *)problem)->pair[i];
        if (pair.k > 0 && pair.batch.entries > 0) a.p.pair[a.p.pairs++] = pair;
    }
    PASS(tartan_cuda_index_get_rows(function, queue, a.p.layout, false, &a.lists));
    PASS(tartan_cuda_index_get_bounds(function, queue, a.p.layout, false, &a.bounds));
    sddmm_gather::Copies copies;
    tartan_status status = sddmm_gather::copy(function, queue, &a, &copies);
    a.along_y = sddmm_gather::is_along(a.p, false);
    a.along_x = sddmm_gather::is_along(a.p, true);
    sddmm_gather::find_ways(&a);
    if (status == TARTAN_OK) status = clear_padding(function, queue, &a.p);
    if (status == TARTAN_OK) status = sddmm_gather::run(function, queue, &a);
    for (void *copy : copies.of) tartan_cuda_scratch_free(queue, copy);
    return status;
}
