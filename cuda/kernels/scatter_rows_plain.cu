/* SPDX-License-Identifier: Apache-2.0
 * Rows that are put into, added to or multiplied with rows of an array, and the gradients: first the map is inverted, then each
 * element of the result is computed from the elements at its place. The last of equal indices counts, whatever the order of
 * threads. */
#include "backend/operation.h"
#include "device/element.cuh"
#include "device/launch.cuh"
#include "device_memory.h"
#include "kernels.h"
#include "kernels/swept.cuh"

namespace tartan_cuda {
namespace {

constexpr int THREADS = 256, PER_ACCESS = 16;

/* An array of rows; no data: there is none. */
struct Rows {
    tartan_cuda_swept of; /* its data and dtype */
    int64_t row, col;
};

Rows rows_of(const tartan_array *a) {
    Rows r = {};
    if (a == nullptr) return r;
    r.of.data = a->data, r.of.dtype = a->dtype;
    r.row = a->strides[0], r.col = a->strides[1];
    return r;
}

struct Map {
    Rows indices; /* `row` is their step */
    int64_t count, base, rows, n;
    int32_t *sources; /* of each row: the place of its index, or -1 */
};

/* -1: there is no such row. */
__device__ __forceinline__ int64_t row_of(const Map &m, int64_t i) {
    const int64_t row = index_at(m.indices.of, i * m.indices.row) - m.base;
    return row >= 0 && row < m.rows ? row : -1;
}

__global__ void __launch_bounds__(THREADS) clear_sources(const __grid_constant__ Map m) {
    for (int64_t r = (int64_t)blockIdx.x * THREADS + threadIdx.x; r < m.rows;
         r += (int64_t)gridDim.x * THREADS)
        m.sources[r] = -1;
}
/* Of the threads of a warp with the same row only one writes, since memory serves accesses to one address in turn. */
__global__ void __launch_bounds__(THREADS) find_sources(const __grid_constant__ Map m) {
    for (int64_t first = (int64_t)blockIdx.x * THREADS; first < m.count;
         first += (int64_t)gridDim.x * THREADS) {
        const int64_t i = first + threadIdx.x, row = i < m.count ? row_of(m, i) : -1;
        const uint32_t alike = __match_any_sync(~0u, (unsigned long long)row);
        if (row >= 0 && (alike >> threadIdx.x % 32) == 1) atomicMax(&m.sources[row], (int32_t)i);
    }
}

/* ---- What is made of a row ---- */

enum Combine { SET, ADD, MULTIPLY };
enum Result { FORWARD, OF_X, OF_Y };

/* `base`: x or z_grad at row r of it; `other`: y, or x of the gradient with respect to y. */
struct Job {
    Map map;
    Rows base, other, out;
    int32_t combine;
    bool by_column; /* neighbours are rows */
};

/* EACH neighbours of a row, from column c on. T: the dtype of all arrays, in which EACH elements lie side by side; void: dtypes and strides
 * may differ. */
template <typename S, typename T, int EACH>
__device__ __forceinline__ void load(const Rows &a, int64_t row, int64_t c, S (&x)[EACH]) {
    const int64_t at = row * a.row + c * a.col;
    if constexpr (std::is_void_v<T>) {
        x[0] = number_at<S>(a.of, at);
    } else {
        const auto pack = *(const tartan_cuda_pack<T, EACH> *)((const T *)a.of.data + at);
#pragma unroll
        for (int i = 0; i < EACH; i++) x[i] = tartan_cuda_to<S>(pack.at[i]);
    }
}

template <typename S, typename T, int EACH>
__device__ __forceinline__ void store(const Rows &a, int64_t row, int64_t c, const S (&x)[EACH]) {
    const int64_t at = row * a.row + c * a.col;
    if constexpr (std::is_void_v<T>) {
        set_number(a.of, at, x[0]);
    } else {
        tartan_cuda_pack<T, EACH> pack;
#pragma unroll
        for (int i = 0; i < EACH; i++) pack.at[i] = tartan_cuda_to<T>(x[i]);
        *(tartan_cuda_pack<T, EACH> *)((T *)a.of.data + at) = pack;
    }
}

template <Result RESULT, typename S, typename T, int EACH>
__global__ void __launch_bounds__(THREADS) combine(const __grid_constant__ Job j) {
    const int64_t rows = RESULT == OF_Y ? j.map.count : j.map.rows, units = j.map.n / EACH,
                  all = rows * units;
    for (int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x; e < all;
         e += (int64_t)gridDim.x * THREADS) {
        const int64_t r = j.by_column ? e % rows : e / units, c = (j.by_column ? e / rows : e % units) * EACH;
        S x[EACH], other[EACH];
        if constexpr (RESULT == OF_Y) {
            const int64_t row = row_of(j.map, r);
            if (row < 0 || j.map.sources[row] != r) {
#pragma unroll
                for (int i = 0; i < EACH; i++) x[i] = 0;
            } else {
                load<S, T, EACH>(j.base, row, c, x);
                if (j.combine == MULTIPLY) {
                    load<S, T, EACH>(j.other, row, c, other);
#pragma unroll
                    for (int i = 0; i < EACH; i++) x[i] *= other[i];
                }
            }
        } else {
            const int64_t source = j.map.sources[r];
            const bool adds = RESULT == FORWARD && j.combine == ADD, keeps = source < 0 || j.combine != SET;
            if (keeps) {
                load<S, T, EACH>(j.base, r, c, x);
            } else {
#pragma unroll
                for (int i = 0; i < EACH; i++) x[i] = 0;
            }
            if (source >= 0 && (j.combine == MULTIPLY || RESULT == FORWARD)) {
                load<S, T, EACH>(j.other, source, c, other);
#pragma unroll
                for (int i = 0; i < EACH; i++)
                    x[i] = j.combine == MULTIPLY ? x[i] * other[i] : adds ? x[i] + other[i] : other[i];
            }
        }
        store<S, T, EACH>(j.out, r, c, x);
    }
}

/* Whether all rows of an array are runs of 16 bytes of a dtype. */
bool is_wide(const Rows &a, int32_t dtype, int64_t n, int64_t bytes) {
    return a.of.data == nullptr ||
           (a.of.dtype == dtype && a.col == 1 && n * bytes % PER_ACCESS == 0 &&
            a.row * bytes % PER_ACCESS == 0 && (uintptr_t)a.of.data % PER_ACCESS == 0);
}

template <Result RESULT> tartan_status run(const char *function, tartan_cuda_queue *queue, Job j) {
    const int32_t dtype = j.out.of.dtype;
    const int64_t bytes = tartan_cuda_bytes_of(dtype), n = j.map.n,
                  rows = RESULT == OF_Y ? j.map.count : j.map.rows, all = rows * n;
    if (all == 0) return TARTAN_OK;
    const bool wide = is_wide(j.base, dtype, n, bytes) && is_wide(j.other, dtype, n, bytes) &&
                      is_wide(j.out, dtype, n, bytes);
    j.by_column = !wide && j.out.col != 1 && j.out.row == 1;
    const auto grid = [&](int64_t each) { return tartan_cuda_grid((all / each + THREADS - 1) / THREADS); };
    if (!wide)
        return dtype == TARTAN_F64 ? tartan_cuda_launch(function, queue, combine<RESULT, double, void, 1>,
                                                        grid(1), dim3(THREADS), j)
                                   : tartan_cuda_launch(function, queue, combine<RESULT, float, void, 1>,
                                                        grid(1), dim3(THREADS), j);
    return tartan_cuda_by_dtype(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        constexpr int EACH = PER_ACCESS / (int)sizeof(T);
        return tartan_cuda_launch(function, queue, combine<RESULT, tartan_cuda_sum<T>, T, EACH>, grid(EACH),
                                  dim3(THREADS), j);
    });
}

/* Inverts the map in scratch memory. */
tartan_status turn_round(const char *function, tartan_cuda_queue *queue, const tartan_array *indices,
                         int64_t base, int64_t rows, int64_t n, Map *m) {
    const auto grid = [](int64_t of) { return tartan_cuda_grid((of + THREADS - 1) / THREADS); };
    void *memory = nullptr;
    *m = {};
    m->indices.of.data = indices->data, m->indices.of.dtype = indices->dtype;
    m->indices.row = indices->strides[0];
    m->count = indices->shape[0], m->base = base, m->rows = rows, m->n = n;
    if (rows == 0) return TARTAN_OK;
    PASS(tartan_cuda_scratch(function, queue, rows * 4, &memory));
    m->sources = (int32_t *)memory;
    tartan_status status = tartan_cuda_launch(function, queue, clear_sources, grid(rows), dim3(THREADS), *m);
    if (status == TARTAN_OK && m->count > 0)
        status = tartan_cuda_launch(function, queue, find_sources, grid(m->count), dim3(THREADS), *m);
    if (status != TARTAN_OK) tartan_cuda_scratch_free(queue, memory);
    return status;
}

} // namespace
} // namespace tartan_cuda

using namespace tartan_cuda;

tartan_status tartan_cuda_scatter_rows_plain(const char *function, tartan_cuda_queue *queue,
                                             const void *problem) {
    const auto *op = (const tartan_op_scatter_rows *)problem;
    static_assert((int)SET == TARTAN_I_SCATTER_ROWS_COMBINE_SET &&
                  (int)ADD == TARTAN_I_SCATTER_ROWS_COMBINE_ADD &&
                  (int)MULTIPLY == TARTAN_I_SCATTER_ROWS_COMBINE_MULTIPLY);
    Job j = {};
    j.base = rows_of(op->x), j.other = rows_of(op->y), j.out = rows_of(op->z), j.combine = op->combine;
    PASS(turn_round(function, queue, op->indices, op->base, op->z->shape[0], op->z->shape[1], &j.map));
    const tartan_status status = run<FORWARD>(function, queue, j);
    if (j.map.sources != nullptr) tartan_cuda_scratch_free(queue, j.map.sources);
    return status;
}

tartan_status tartan_cuda_scatter_rows_gradient_plain(const char *function, tartan_cuda_queue *queue,
                                                      const void *problem) {
    const auto *op = (const tartan_op_scatter_rows_gradient *)problem;
    Job j = {};
    j.base = rows_of(op->z_grad), j.combine = op->combine;
    PASS(turn_round(function, queue, op->indices, op->base, op->z_grad->shape[0], op->z_grad->shape[1],
                    &j.map));
    tartan_status status = TARTAN_OK;
    if (op->y_grad != nullptr) { /* first, since x_grad may be z_grad */
        j.other = j.combine == MULTIPLY ? rows_of(op->x) : Rows();
        j.out = rows_of(op->y_grad);
        status = run<OF_Y>(function, queue, j);
    }
    if (op->x_grad != nullptr && status == TARTAN_OK) {
        j.other = j.combine == MULTIPLY ? rows_of(op->y) : Rows();
        j.out = rows_of(op->x_grad);
        status = run<OF_X>(function, queue, j);
    }
    if (j.map.sources != nullptr) tartan_cuda_scratch_free(queue, j.map.sources);
    return status;
}
