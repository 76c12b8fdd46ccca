// SPDX-License-Identifier: Apache-2.0
#include "dummy_backend.h"

#include <cmath>
#include <cstdio>

extern "C" {
#include "core/dtype.h"
}

namespace tartan_test {

const char *const kDummyRefusal = "gates of bfloat16 blocks are not done here";

namespace {

DummyCounts counts;
bool fail_next;

tartan_status fail_if_asked(const char *what) {
    if (!fail_next) return TARTAN_OK;
    fail_next = false;
    return tartan_i_fail(TARTAN_ERR_DEVICE, what, "the dummy was told to fail");
}

// ---- Elements ----

int64_t batch_offset(const tartan_array *a, int64_t entry) {
    int64_t at = 0;
    for (int32_t d = a->ndim - 3; d >= 0; d--) {
        at += entry % a->shape[d] * a->strides[d];
        entry /= a->shape[d];
    }
    return at;
}
int64_t batch_entries(const tartan_array *a) {
    int64_t n = 1;
    for (int32_t d = 0; d < a->ndim - 2; d++) n *= a->shape[d];
    return n;
}
// Element (i, j) of a batch entry, the last two dimensions exchanged where asked.
int64_t offset(const tartan_array *a, int64_t entry, int64_t i, int64_t j, bool exchanged) {
    const int32_t n = a->ndim;
    if (exchanged) std::swap(i, j);
    return batch_offset(a, entry) + i * a->strides[n - 2] + j * a->strides[n - 1];
}
double value(const tartan_array *a, int64_t entry, int64_t i, int64_t j, bool exchanged = false) {
    return tartan_i_load(a->data, a->dtype, offset(a, entry, i, j, exchanged));
}
int64_t inside(const tartan_matrix *m, int64_t i, int64_t j) {
    return i * tartan_i_block_row_stride(m) + j * tartan_i_block_col_stride(m);
}
double gate_of(const tartan_array *gates, int64_t id) {
    return gates == nullptr ? 1 : tartan_i_load(gates->data, gates->dtype, id * gates->strides[0]);
}
double combined(const tartan_op *op, double factor, double sum, double old) {
    return factor * sum + (op->beta == 0 ? 0 : op->beta * old);
}

// ---- Operations ----

tartan_status run_spmm(const tartan_context *, const tartan_op *op) {
    const tartan_matrix *a = op->a;
    const tartan_layout *l = a->layout;
    const bool right = op->side == TARTAN_RIGHT, transposed = (op->transpose == TARTAN_TRANSPOSE) != right;
    const int64_t out_size = transposed ? l->shape.cols : l->shape.rows,
                  in_size = transposed ? l->shape.rows : l->shape.cols;
    const int64_t n = op->out->shape[op->out->ndim - (right ? 2 : 1)];
    if (tartan_i_array_elements(op->out) == 0) return TARTAN_OK;
    for (int64_t e = 0; e < batch_entries(op->out); e++) {
        for (int64_t i = 0; i < out_size; i++) {
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;
                for (int64_t k = 0; k < in_size; k++) {
                    const int64_t row = transposed ? k : i, col = transposed ? i : k;
                    const int64_t id = tartan_i_layout_find(l, e % l->shape.heads, row / l->shape.block_rows,
                                                            col / l->shape.block_cols);
                    const double gate = id < 0 ? 0 : gate_of(op->gates, id);
                    if (gate == 0) continue;
                    const int64_t at = inside(a, row % l->shape.block_rows, col % l->shape.block_cols);
                    sum += gate * tartan_i_load(tartan_i_block_at(a, id), a->dtype, at) *
                           value(op->x, e, k, j, right);
                }
                const int64_t to = offset(op->out, e, i, j, right);
                const double old = tartan_i_load(op->out->data, op->out->dtype, to);
                tartan_i_store(op->out->data, op->out->dtype, to, combined(op, op->alpha, sum, old));
            }
        }
    }
    return TARTAN_OK;
}

tartan_status run_sddmm(const tartan_context *, const tartan_op *op) {
    const tartan_layout *l = op->s->layout;
    for (int64_t id = 0; id < l->blocks; id++) {
        const int64_t head = tartan_i_layout_head(l, id);
        const double gate = gate_of(op->gates, id);
        for (int64_t i = 0; i < tartan_i_rows_of(l, l->block_rows[id]); i++) {
            for (int64_t j = 0; j < tartan_i_cols_of(l, l->block_cols[id]); j++) {
                double sum = 0;
                for (int64_t p = 0; gate != 0 && p < op->pairs; p++) {
                    const tartan_array *x = &op->x[p], *y = &op->y[p];
                    for (int64_t e = l->shape.heads > 1 ? head : 0; e < batch_entries(x); e += l->shape.heads)
                        for (int64_t k = 0; k < x->shape[x->ndim - 1]; k++)
                            sum += value(x, e, l->block_rows[id] * l->shape.block_rows + i, k) *
                                   value(y, e, k, l->block_cols[id] * l->shape.block_cols + j);
                }
                void *block = tartan_i_block_at(op->s, id);
                const double old = tartan_i_load(block, op->s->dtype, inside(op->s, i, j));
                tartan_i_store(block, op->s->dtype, inside(op->s, i, j),
                               combined(op, gate * op->alpha, sum, old));
            }
        }
    }
    return TARTAN_OK;
}

tartan_status run_gate_gradient(const tartan_context *, const tartan_op *op) {
    const tartan_layout *l = op->a->layout;
    for (int64_t id = 0; id < l->blocks; id++) {
        double sum = 0;
        void *block = tartan_i_block_at(op->s, id);
        for (int64_t i = 0; i < tartan_i_rows_of(l, l->block_rows[id]); i++) {
            for (int64_t j = 0; j < tartan_i_cols_of(l, l->block_cols[id]); j++) {
                const double dw = tartan_i_load(block, op->s->dtype, inside(op->s, i, j));
                sum += dw * tartan_i_load(tartan_i_block_at(op->a, id), op->a->dtype, inside(op->a, i, j));
                if (op->gates != nullptr)
                    tartan_i_store(block, op->s->dtype, inside(op->s, i, j), gate_of(op->gates, id) * dw);
            }
        }
        tartan_i_store(op->out->data, op->out->dtype, id * op->out->strides[0], sum);
    }
    return TARTAN_OK;
}

// ---- The table ----

int32_t devices(const char **out_reason) {
    *out_reason = "";
    return kDummyDevices;
}
void describe(int32_t i, char *text, int64_t size) {
    std::snprintf(text, (size_t)size, "{\"name\": \"dummy %d\"}", i);
}
tartan_status open(const tartan_context_options *, void **out_device) {
    *out_device = nullptr;
    PASS(fail_if_asked("open"));
    counts.opened++;
    *out_device = &counts;
    return TARTAN_OK;
}
void close(void *) {
    counts.closed++;
}
tartan_status sync(void *) {
    counts.synced++;
    return fail_if_asked("sync");
}
bool supports(void *, const tartan_op *op, const char **out_reason) {
    *out_reason = kDummyRefusal;
    return !(op->kind == TARTAN_OP_SPMM && op->gates != nullptr && op->a->dtype == TARTAN_BF16);
}

} // namespace

DummyCounts dummy_counts() {
    return counts;
}
void dummy_fail_next() {
    fail_next = true;
}

const tartan_backend dummy_backend = {
    TARTAN_BACKEND_ABI,
    "dummy",
    TARTAN_CUDA,
    devices,
    describe,
    open,
    close,
    sync,
    supports,
    {run_spmm, run_sddmm, run_gate_gradient, nullptr},
};

} // namespace tartan_test
