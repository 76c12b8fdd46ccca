/* SPDX-License-Identifier: Apache-2.0
 * Adafactor over all parameters of a model, in launches over as many as there is room for. */
#include "device_memory.h"
#include "kernels.h"
#include "kernels/adafactor.cuh"

namespace tartan_cuda {
namespace {

/* ---- On the host ---- */

int64_t up(int64_t a, int64_t by) {
    return (a + by - 1) / by;
}

/* Parameter i, without scratch memory. */
void describe_matrices(const tartan_op_adafactor *op, int64_t i, matrix_tensor *t) {
    const tartan_array *const lists[] = {&op->parameters[i], &op->gradients[i]};
    const tartan_array *r = &op->row_squares[i], *c = &op->col_squares[i], *p = lists[P];
    const int32_t n = p->ndim;
    *t = matrix_tensor();
    t->flat = n < 2;
    t->matrices = t->rows = 1;
    t->cols = n > 0 ? p->shape[n - 1] : 1;
    for (int list = 0; list < 2; list++) {
        t->data[list] = lists[list]->data;
        t->dtypes[list] = (uint8_t)lists[list]->dtype;
        t->col[list] = n > 0 ? lists[list]->strides[n - 1] : 0;
        if (n > 1) t->row[list] = lists[list]->strides[n - 2];
    }
    t->cols_means = t->rows_means = r->data;
    t->mean_col = n > 0 ? r->strides[n - 1 - (n > 1)] : 0;
    if (n > 1) {
        t->rows = p->shape[n - 2];
        t->mean_row = r->strides[n - 2];
        t->cols_means = c->data;
        t->mean_col = c->strides[n - 2];
        t->outer = n - 2;
        const tartan_array *const all[] = {lists[P], lists[G], r, c};
        for (int32_t d = 0; d < n - 2; d++) {
            t->shape[d] = p->shape[d];
            t->matrices *= p->shape[d];
            for (int k = 0; k < 4; k++) t->strides[k][d] = all[k]->strides[d];
        }
        t->swapped = t->col[P] > t->row[P] && t->rows > 1;
        if (t->swapped) {
            std::swap(t->rows, t->cols);
            std::swap(t->rows_means, t->cols_means);
            std::swap(t->mean_row, t->mean_col);
            for (int list = 0; list < 2; list++) std::swap(t->row[list], t->col[list]);
            for (int32_t d = 0; d < n - 2; d++) std::swap(t->strides[2][d], t->strides[3][d]);
        }
    }
    t->row_tiles = up(t->rows, TILE_ROWS);
    t->col_tiles = up(t->cols, TILE_COLS);
    t->lanes = 1;
    while (t->lanes < 32 && t->lanes * QUAD < t->cols) t->lanes *= 2;
}

/* The bytes of scratch memory of a parameter, which begins at `at` if that is not NULL. */
int64_t place_scratch(matrix_tensor *t, char *at) {
    const int64_t tiles = t->matrices * t->row_tiles * t->col_tiles,
                  own = (t->rows < TILE_ROWS ? t->rows : TILE_ROWS) +
                        (t->cols < TILE_COLS ? t->cols : TILE_COLS),
                  numbers = 2 * tiles + t->matrices + 1,
                  bytes = t->flat ? 0 : tiles * own * (t->dtypes[P] == TARTAN_F64 ? 8 : 4);
    if (at != nullptr) {
        t->measured = (double *)at;
        t->means = t->measured + 2 * tiles;
        t->moves = t->means + t->matrices;
        t->sums = (char *)(t->moves + 1);
    }
    return numbers * 8 + up(bytes, 8) * 8;
}

tartan_status run_all(const char *function, tartan_cuda_queue *queue, const matrix_tensors &all,
                      const numbers_of_call &call) {
    const auto launch = [&](void (*kernel)(const matrix_tensors, const numbers_of_call), int by,
                            int threads) {
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3((unsigned)all.chunks[by]);
        config.blockDim = dim3((unsigned)threads);
        config.stream = queue->stream;
        void *pointers[] = {(void *)&all, (void *)&call};
        return tartan_cuda_check(function, cudaLaunchKernelExC(&config, (const void *)kernel, pointers),
                                 "launching a kernel");
    };
    PASS(launch(sum_tiles, BY_TILE, THREADS));
    PASS(launch(fold, BY_MEAN, THREADS));
    PASS(launch(mean_rows, BY_MATRIX, THREADS));
    if (call.clip_threshold > 0 || call.relative > 0) PASS(launch(measure, BY_TILE, THREADS));
    PASS(launch(finish, BY_PARAMETER, LAST_THREADS));
    return launch(step, BY_TILE, THREADS);
}

/* Launches over all parameters, as many at a time as there is room for. */
tartan_status run_batches(const char *function, tartan_cuda_queue *queue, const tartan_op_adafactor *op,
                          char *scratch) {
    const numbers_of_call call = {op->grad_scale,
                                  op->rate,
                                  op->d,
                                  op->epsilon,
                                  op->clip_threshold,
                                  op->relative,
                                  op->weight_decay,
                                  {op->scale != nullptr ? op->scale->data : nullptr,
                                   op->scale != nullptr ? op->scale->dtype : TARTAN_F32},
                                  {op->zero_infs != 0, op->zero_nans != 0, op->saturate}};
    matrix_tensors all;
    all.count = 0;
    for (int64_t i = 0; i < op->count; i++) {
        if (tartan_i_array_elements(&op->parameters[i]) == 0) continue;
        matrix_tensor one;
        describe_matrices(op, i, &one);
        scratch += place_scratch(&one, scratch);
        const int64_t chunks[4] = {up(one.matrices * one.row_tiles * one.col_tiles, WARPS),
                                   up(one.matrices * (one.rows + one.cols), THREADS), up(one.matrices, WARPS),
                                   1};
        bool full = all.count == ROOM;
        for (int by = 0; by < 4 && all.count > 0; by++)
            full = full || all.chunks[by] + chunks[by] > INT32_MAX / 2;
        if (full) {
            PASS(run_all(function, queue, all, call));
            all.count = 0;
        }
        for (int by = 0; by < 4; by++) {
            if (all.count == 0) all.chunks[by] = 0;
            one.first[by] = all.chunks[by];
            all.chunks[by] += (int32_t)chunks[by];
        }
        all.tensors[all.count++] = one;
    }
    return all.count > 0 ? run_all(function, queue, all, call) : TARTAN_OK;
}

} // namespace
} // namespace tartan_cuda

using namespace tartan_cuda;

tartan_status tartan_cuda_adafactor_plain(const char *function, tartan_cuda_queue *queue, const void *of) {
    const tartan_op_adafactor *op = (const tartan_op_adafactor *)of;
    int64_t bytes = 8;
    void *scratch = nullptr;
    for (int64_t i = 0; i < op->count; i++) {
        matrix_tensor one;
        if (tartan_i_array_elements(&op->parameters[i]) == 0) continue;
        describe_matrices(op, i, &one);
        bytes += place_scratch(&one, nullptr);
    }
    PASS(tartan_cuda_scratch(function, queue, bytes, &scratch));
    const tartan_status status = run_batches(function, queue, op, (char *)scratch);
    tartan_cuda_scratch_free(queue, scratch);
    return status;
}
