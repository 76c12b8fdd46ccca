/* SPDX-License-Identifier: Apache-2.0
 * Muon: a CTA, or a warp if matrices are small, takes a matrix: its new mean, X and its iterations, and the step. X, A and A A are
 * in shared memory where they fit, else in scratch memory. */
#include "device_memory.h"
#include "kernels.h"
#include "kernels/many.cuh"

namespace tartan_cuda {
namespace {

constexpr int THREADS = 256, TILE = 4, SMALL = 1024; /* elements of a matrix that a warp takes */
constexpr int64_t KEPT_SHARED = 1024;                /* bytes of shared memory that matrices cannot use */

enum { P, G, M };

/* A parameter as matrices with no more rows than columns. */
struct matrix_tensor {
    void *data[3];
    int64_t matrices, rows, cols;
    int64_t row[3], col[3]; /* strides */
    int32_t outer;          /* dimensions before the last two */
    int32_t first;          /* its first CTA */
    int64_t shape[TARTAN_MAX_NDIM - 2], strides[3][TARTAN_MAX_NDIM - 2];
    double size; /* of a step, times the learning rate */
    uint8_t dtypes[3];
    __device__ int64_t at(int list, int64_t matrix) const {
        int64_t sum = 0;
        for (int32_t d = outer - 1; d >= 0; d--) {
            sum += matrix % shape[d] * strides[list][d];
            matrix /= shape[d];
        }
        return sum;
    }
};

using matrix_tensors = batch<matrix_tensor, 100>;

struct numbers_of_call {
    double factor, momentum, epsilon, decay;
    int64_t iterations;
    bool nesterov;
    device_number scale;
    gradient_filter filter;
};
static_assert(sizeof(matrix_tensors) + sizeof(numbers_of_call) < 32700, "parameters of kernels");

/* The threads that share a matrix: a warp or a CTA. */
template <int TEAM> struct team {
    static __device__ __forceinline__ int rank() { return (int)threadIdx.x % TEAM; }
    static __device__ __forceinline__ void sync() {
        if constexpr (TEAM == 32)
            __syncwarp();
        else
            __syncthreads();
    }
    /* The sum of all threads' numbers, in one order; all threads have it. */
    static __device__ __forceinline__ double sum(double x) {
        for (int half = 16; half > 0; half /= 2) x += __shfl_xor_sync(~0u, x, half);
        if constexpr (TEAM > 32) {
            __shared__ double parts[TEAM / 32];
            if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
            __syncthreads();
            x = 0;
            for (int i = 0; i < TEAM / 32; i++) x += parts[i];
            __syncthreads();
        }
        return x;
    }
};

template <typename S>
__device__ __forceinline__ S load_one(const matrix_tensor &t, int list, int64_t base, int i, int j) {
    return tartan_cuda_by_dtype(t.dtypes[list], [&](auto tag) {
        using T = typename decltype(tag)::type;
        return tartan_cuda_to<S>(((const T *)t.data[list])[base + i * t.row[list] + j * t.col[list]]);
    });
}

template <typename S>
__device__ __forceinline__ void store_one(const matrix_tensor &t, int list, int64_t base, int i, int j, S x) {
    tartan_cuda_by_dtype(t.dtypes[list], [&](auto tag) {
        using T = typename decltype(tag)::type;
        ((T *)t.data[list])[base + i * t.row[list] + j * t.col[list]] = tartan_cuda_to<T>(x);
    });
}

/* out = own * beside + factor * a b, or with TRANSPOSED a b^T, of `rows` x `cols`; beside may be NULL. Rows of a, b, `beside` and `out` have
 * a_row, b_row and out_row numbers. */
template <int TEAM, bool TRANSPOSED, typename S>
__device__ __forceinline__ void multiply(int rows, int cols, int depth, const S *a, int a_row, const S *b,
                                         int b_row, S factor, S own, const S *beside, S *out, int out_row) {
    const int down = (rows + TILE - 1) / TILE, across = (cols + TILE - 1) / TILE;
    for (int64_t tile = team<TEAM>::rank(); tile < (int64_t)down * across; tile += TEAM) {
        const int i0 = (int)(tile / across) * TILE, j0 = (int)(tile % across) * TILE;
        S sums[TILE][TILE] = {};
        for (int k = 0; k < depth; k++) {
            S left[TILE], right[TILE];
#pragma unroll
            for (int i = 0; i < TILE; i++)
                left[i] = a[(int64_t)(i0 + i < rows ? i0 + i : rows - 1) * a_row + k];
#pragma unroll
            for (int j = 0; j < TILE; j++) {
                const int at = j0 + j < cols ? j0 + j : cols - 1;
                right[j] = TRANSPOSED ? b[(int64_t)at * b_row + k] : b[(int64_t)k * b_row + at];
            }
#pragma unroll
            for (int i = 0; i < TILE; i++)
#pragma unroll
                for (int j = 0; j < TILE; j++) sums[i][j] = fma(left[i], right[j], sums[i][j]);
        }
#pragma unroll
        for (int i = 0; i < TILE; i++)
#pragma unroll
            for (int j = 0; j < TILE; j++)
                if (i0 + i < rows && j0 + j < cols) {
                    const int64_t at = (int64_t)(i0 + i) * out_row + j0 + j;
                    out[at] =
                        beside != nullptr ? fma(own, beside[at], factor * sums[i][j]) : factor * sums[i][j];
                }
    }
    team<TEAM>::sync();
}

/* f(i, j) for the numbers of a matrix of a list; neighbouring threads take neighbours in memory. */
template <int TEAM, typename F>
__device__ __forceinline__ void each_element(const matrix_tensor &t, int list, F f) {
    const int rows = (int)t.rows, cols = (int)t.cols;
    const bool by_rows = t.col[list] <= t.row[list];
    const int inner = by_rows ? cols : rows;
    for (int64_t e = team<TEAM>::rank(); e < (int64_t)rows * cols; e += TEAM)
        by_rows ? f((int)(e / inner), (int)(e % inner)) : f((int)(e % inner), (int)(e / inner));
}

template <int TEAM, typename S>
__device__ __forceinline__ void step(const matrix_tensor &t, int64_t matrix, const numbers_of_call &call,
                                     S *room) {
    const int rows = (int)t.rows, cols = (int)t.cols, x_row = cols + 1, a_row = rows + 1;
    const int64_t each = (int64_t)rows * x_row;
    S *x = room, *a = room + each, *const squares = room + 2 * each;
    const int64_t p_base = t.at(P, matrix), g_base = t.at(G, matrix), m_base = t.at(M, matrix);
    const S factor = (S)(call.factor * call.scale.get()), kept = (S)call.momentum,
            new_part = (S)((1 - call.momentum)) * factor;
    double own = 0;
    each_element<TEAM>(t, M, [&](int i, int j) {
        const S g = call.filter(load_one<S>(t, G, g_base, i, j));
        const S m = fma(kept, load_one<S>(t, M, m_base, i, j), new_part * g);
        store_one(t, M, m_base, i, j, m);
        const S u = call.nesterov ? fma(kept, m, new_part * g) : m;
        x[(int64_t)i * x_row + j] = u;
        own = fma((double)u, (double)u, own);
    });
    const double norm = sqrt(team<TEAM>::sum(own));
    const S part = (S)(1 / (norm < call.epsilon ? call.epsilon : norm));
    team<TEAM>::sync();
    each_element<TEAM>(t, M, [&](int i, int j) { x[(int64_t)i * x_row + j] *= part; });
    team<TEAM>::sync();
    for (int64_t k = 0; k < call.iterations; k++) {
        multiply<TEAM, true, S>(rows, rows, cols, x, x_row, x, x_row, 1, 0, nullptr, a, a_row);
        multiply<TEAM, false, S>(rows, rows, rows, a, a_row, a, a_row, (S)2.0315, (S)-4.7750, a, squares,
                                 a_row);
        multiply<TEAM, false, S>(rows, cols, rows, squares, a_row, x, x_row, 1, (S)3.4445, x, a, x_row);
        S *const next = a;
        a = x, x = next;
    }
    each_element<TEAM>(t, P, [&](int i, int j) {
        const S p = load_one<S>(t, P, p_base, i, j);
        store_one(t, P, p_base, i, j, fma((S)-t.size, x[(int64_t)i * x_row + j], (S)call.decay * p));
    });
}

/* `bytes` of room for each team, in shared memory or from `scratch` on. */
template <int TEAM>
__global__ void __launch_bounds__(THREADS)
    step_all(const __grid_constant__ matrix_tensors all, const __grid_constant__ numbers_of_call call,
             int64_t bytes, char *scratch) {
    extern __shared__ double shared[];
    constexpr int TEAMS = THREADS / TEAM;
    const double scale = call.scale.get();
    const matrix_tensor &t = all.tensors[place_of(all, (int)blockIdx.x)];
    const int own = (int)threadIdx.x / TEAM;
    const int64_t matrix = (int64_t)((int)blockIdx.x - t.first) * TEAMS + own;
    if (scale == 0 || !isfinite(scale) || matrix >= t.matrices) return;
    char *const room = scratch != nullptr ? scratch + ((int64_t)blockIdx.x * TEAMS + own) * bytes
                                          : (char *)shared + own * bytes;
    if (t.dtypes[P] == TARTAN_F64)
        step<TEAM>(t, matrix, call, (double *)room);
    else
        step<TEAM>(t, matrix, call, (float *)room);
}

/* ---- On the host ---- */

/* Parameter i; returns the bytes that a matrix needs. */
int64_t describe_matrices(const tartan_op_muon *op, int64_t i, matrix_tensor *t) {
    const tartan_array *const lists[] = {&op->parameters[i], &op->gradients[i], &op->means[i]}, *p = lists[P];
    const int32_t n = p->ndim;
    const double rows = (double)p->shape[n - 2], cols = (double)p->shape[n - 1];
    const bool transposed = rows > cols;
    *t = matrix_tensor();
    t->matrices = 1;
    t->rows = p->shape[n - (transposed ? 1 : 2)];
    t->cols = p->shape[n - (transposed ? 2 : 1)];
    t->outer = n - 2;
    for (int32_t d = 0; d < n - 2; d++) {
        t->shape[d] = p->shape[d];
        t->matrices *= p->shape[d];
    }
    for (int list = 0; list < 3; list++) {
        t->data[list] = lists[list]->data;
        t->dtypes[list] = (uint8_t)lists[list]->dtype;
        t->row[list] = lists[list]->strides[n - (transposed ? 1 : 2)];
        t->col[list] = lists[list]->strides[n - (transposed ? 2 : 1)];
        for (int32_t d = 0; d < n - 2; d++) t->strides[list][d] = lists[list]->strides[d];
    }
    t->size = op->rate *
              (op->match_rms ? 0.2 * sqrt(rows > cols ? rows : cols) : sqrt(rows > cols ? rows / cols : 1.0));
    return (2 * t->rows * (t->cols + 1) + t->rows * (t->rows + 1)) * (p->dtype == TARTAN_F64 ? 8 : 4);
}

/* Who takes the matrices of a parameter: a warp, a CTA with shared memory, or one with scratch memory. */
enum { BY_WARP, BY_CTA, BY_CTA_AND_SCRATCH, WAYS };

int64_t room_of(const tartan_cuda_queue *queue) {
    return queue->chip.shared_bytes - KEPT_SHARED;
}

int way_of(const tartan_cuda_queue *queue, const matrix_tensor &t, int64_t bytes) {
    const bool small = t.rows * t.cols <= SMALL && bytes * (THREADS / 32) <= room_of(queue);
    return bytes > room_of(queue) ? BY_CTA_AND_SCRATCH : small ? BY_WARP : BY_CTA;
}

template <int TEAM>
tartan_status launch_some(const char *function, tartan_cuda_queue *queue, const matrix_tensors &all,
                          const numbers_of_call &call, int64_t bytes, bool in_scratch) {
    constexpr int TEAMS = THREADS / TEAM;
    const int64_t shared = in_scratch ? 0 : TEAMS * bytes;
    void *scratch = nullptr;
    if (in_scratch) PASS(tartan_cuda_scratch(function, queue, (int64_t)all.chunks * TEAMS * bytes, &scratch));
    tartan_status status =
        tartan_cuda_allow_shared(function, queue, (const void *)step_all<TEAM>, (size_t)room_of(queue));
    if (status == TARTAN_OK) {
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3((unsigned)all.chunks);
        config.blockDim = dim3(THREADS);
        config.dynamicSmemBytes = (size_t)shared;
        config.stream = queue->stream;
        void *pointers[] = {(void *)&all, (void *)&call, &bytes, &scratch};
        status =
            tartan_cuda_check(function, cudaLaunchKernelExC(&config, (const void *)step_all<TEAM>, pointers),
                              "launching a kernel");
    }
    if (in_scratch) tartan_cuda_scratch_free(queue, scratch);
    return status;
}

/* Runs the parameters that are computed in that way. */
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_op_muon *op,
                  const numbers_of_call &call, int way) {
    int64_t most = 0;
    auto all = collector_of<matrix_tensors>([&](const matrix_tensors &some) {
        const int64_t bytes = most;
        most = 0;
        return way == BY_WARP ? launch_some<32>(function, queue, some, call, bytes, false)
                              : launch_some<THREADS>(function, queue, some, call, bytes, way != BY_CTA);
    });
    for (int64_t i = 0; i < op->count; i++) {
        matrix_tensor one;
        if (tartan_i_array_elements(&op->parameters[i]) == 0) continue;
        const int64_t bytes = (describe_matrices(op, i, &one) + 7) / 8 * 8;
        if (way_of(queue, one, bytes) != way) continue;
        if (all.all.count > 0 && way != BY_WARP && bytes != most) PASS(all.flush()); /* of one size */
        if (bytes > most) most = bytes;
        *all.next() = one;
        PASS(all.add(way == BY_WARP ? (one.matrices + THREADS / 32 - 1) / (THREADS / 32) : one.matrices));
        if (all.all.count > 0 && bytes > most) most = bytes; /* it may be the first of another launch */
    }
    return all.flush();
}

} // namespace
} // namespace tartan_cuda

using namespace tartan_cuda;

tartan_status tartan_cuda_muon_plain(const char *function, tartan_cuda_queue *queue, const void *of) {
    const tartan_op_muon *op = (const tartan_op_muon *)of;
    const numbers_of_call call = {op->grad_scale,
                                  op->momentum,
                                  op->epsilon,
                                  1 - op->rate * op->weight_decay,
                                  op->iterations,
                                  op->heavy_ball == 0,
                                  {op->scale != nullptr ? op->scale->data : nullptr,
                                   op->scale != nullptr ? op->scale->dtype : TARTAN_F32},
                                  {op->zero_infs != 0, op->zero_nans != 0, op->saturate}};
    for (int way = 0; way < WAYS; way++) PASS(run(function, queue, op, call, way));
    return TARTAN_OK;
}
