// SPDX-License-Identifier: Apache-2.0
// What the tests of matrices share: dense oracles in f64 by plain loops.
#ifndef TARTAN_TESTS_MATRIX_SUPPORT_H
#define TARTAN_TESTS_MATRIX_SUPPORT_H

#include "support.h"

#include <cmath>
#include <cstring>

extern "C" {
#include "core/dtype.h"
#include "matrix/matrix.h"
}

namespace tartan_test {

const int32_t all_dtypes[] = {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16, TARTAN_F8E4M3, TARTAN_F8E5M2};

inline double round_to(double x, int32_t dtype) {
    double room;
    tartan_i_store(&room, dtype, 0, x);
    return tartan_i_load(&room, dtype, 0);
}

inline bool same(double a, double b) {
    return a == b || (std::isnan(a) && std::isnan(b));
}

// An array that owns its memory: any strides, each possibly reversed or padded, in a random order.
struct Dense {
    std::vector<uint64_t> room;
    tartan_array array = {};

    Dense(int32_t dtype, std::vector<int64_t> shape, std::mt19937_64 *random = nullptr) {
        std::vector<size_t> order;
        for (size_t d = shape.size(); d-- > 0;) order.push_back(d);
        if (random) std::shuffle(order.begin(), order.end(), *random);
        int64_t stride = 1, first = 0;
        std::vector<int64_t> strides(shape.size());
        for (size_t d : order) {
            if (random && (*random)() % 4 == 0) stride += (int64_t)((*random)() % 3);
            bool backwards = random && (*random)() % 3 == 0 && shape[d] > 0;
            strides[d] = backwards ? -stride : stride;
            if (backwards) first += stride * (shape[d] - 1);
            stride *= std::max<int64_t>(shape[d], 1);
        }
        room.assign((size_t)stride + 1, 0x7ff77ff77ff77ff7); // NaN in every dtype
        void *data = tartan_i_at(room.data(), dtype, first);
        EXPECT_OK(
            tartan_array_init(data, dtype, (int32_t)shape.size(), shape.data(), strides.data(), &array));
    }
    int64_t offset(std::vector<int64_t> index) const {
        int64_t sum = 0;
        for (size_t d = 0; d < index.size(); d++) sum += index[d] * array.strides[d];
        return sum;
    }
    double get(std::vector<int64_t> index) const {
        return tartan_i_load(array.data, array.dtype, offset(index));
    }
    void set(std::vector<int64_t> index, double x) {
        tartan_i_store(array.data, array.dtype, offset(index), x);
    }
};

inline std::vector<int64_t> dense_shape(const tartan_shape &s) {
    return s.heads > 1 ? std::vector<int64_t>{s.heads, s.rows, s.cols} : std::vector<int64_t>{s.rows, s.cols};
}
inline std::vector<int64_t> index_of(const tartan_shape &s, int64_t h, int64_t r, int64_t c) {
    return s.heads > 1 ? std::vector<int64_t>{h, r, c} : std::vector<int64_t>{r, c};
}

inline Dense random_dense(const tartan_shape &s, int32_t dtype, std::mt19937_64 &random,
                          bool any_strides = true) {
    Dense dense(dtype, dense_shape(s), any_strides ? &random : nullptr);
    std::uniform_real_distribution<double> uniform(-2, 2);
    for (int64_t h = 0; h < s.heads; h++)
        for (int64_t r = 0; r < s.rows; r++)
            for (int64_t c = 0; c < s.cols; c++) dense.set(index_of(s, h, r, c), uniform(random));
    return dense;
}

// Every element of a matrix in f64, [heads, rows, cols], through its layout's public lists alone.
inline std::vector<double> elements_of(const tartan_matrix *m) {
    const tartan_layout *l = m->layout;
    const tartan_shape &s = l->shape;
    std::vector<double> all((size_t)(s.heads * s.rows * s.cols));
    tartan_array values;
    EXPECT_OK(tartan_matrix_values(const_cast<tartan_matrix *>(m), &values));
    const int64_t *pointers = tartan_layout_row_pointers(l);
    const int32_t *cols = tartan_layout_col_indices(l);
    int64_t grid_rows = tartan_layout_grid_rows(l);
    for (int64_t i = 0; i < s.heads * grid_rows; i++) {
        for (int64_t id = pointers[i]; id < pointers[i + 1]; id++) {
            for (int64_t r = 0; r < s.block_rows; r++) {
                for (int64_t c = 0; c < s.block_cols; c++) {
                    int64_t row = i % grid_rows * s.block_rows + r, col = cols[id] * s.block_cols + c;
                    if (row >= s.rows || col >= s.cols) continue;
                    int64_t at = id * values.strides[0] + r * values.strides[1] + c * values.strides[2];
                    all[(size_t)((i / grid_rows * s.rows + row) * s.cols + col)] =
                        tartan_i_load(values.data, values.dtype, at);
                }
            }
        }
    }
    return all;
}

// Whether the padding of all ragged blocks is zero.
inline bool padding_is_zero(const tartan_matrix *m) {
    const tartan_layout *l = m->layout;
    for (int64_t id = 0; id < l->blocks; id++) {
        for (int64_t r = 0; r < l->shape.block_rows; r++) {
            for (int64_t c = 0; c < l->shape.block_cols; c++) {
                bool inside =
                    r < tartan_i_rows_of(l, l->block_rows[id]) && c < tartan_i_cols_of(l, l->block_cols[id]);
                int64_t at = r * tartan_i_block_row_stride(m) + c * tartan_i_block_col_stride(m);
                if (!inside && tartan_i_load(tartan_i_block_at(m, id), m->dtype, at) != 0) return false;
            }
        }
    }
    return true;
}

inline tartan_shape random_shape(std::mt19937_64 &random, int64_t most_heads = 3) {
    auto below = [&](int64_t n) { return (int64_t)(random() % (uint64_t)n); };
    int64_t br = 1 + below(9), bc = 1 + below(9);
    return {below(5 * br + 1), below(5 * bc + 1), br, bc, 1 + below(most_heads)};
}

inline Matrix from_dense(const Layout &layout, const Dense &dense, int32_t dtype = 0,
                         int32_t order = TARTAN_ROW_MAJOR) {
    tartan_matrix *m = nullptr;
    EXPECT_OK(tartan_matrix_from_dense(layout.get(), &dense.array, dtype, order, &m));
    return Matrix(m);
}

// A matrix of a random layout with random values.
inline Matrix random_matrix(const tartan_shape &shape, int32_t dtype, int32_t order, std::mt19937_64 &random,
                            double density = 0.5) {
    Layout layout = random_layout(shape, density, random());
    return from_dense(layout, random_dense(shape, dtype, random), 0, order);
}

// A matrix that says to be on a GPU; its values must not be touched.
inline Matrix on_device(tartan_layout *layout) {
    const tartan_shape &s = layout->shape;
    tartan_array values = {};
    values.data = (void *)(uintptr_t)0x1000;
    values.dtype = TARTAN_F32;
    values.device_type = TARTAN_CUDA;
    values.device_id = 1;
    values.ndim = 3;
    const int64_t shape[] = {layout->blocks, s.block_rows, s.block_cols};
    const int64_t strides[] = {s.block_rows * s.block_cols, s.block_cols, 1};
    std::copy(shape, shape + 3, values.shape);
    std::copy(strides, strides + 3, values.strides);
    tartan_matrix *m = nullptr;
    EXPECT_OK(tartan_matrix_wrap(layout, &values, nullptr, nullptr, &m));
    return Matrix(m);
}

// Contexts whose results must not differ: one with a single worker, and one that runs five, the last one first.
inline void run_backwards(void *, int32_t workers, tartan_task task, void *data) {
    for (int32_t w = workers; w-- > 0;) task(data, w);
}
inline const tartan_hooks backwards_hooks = {sizeof backwards_hooks, run_backwards, nullptr};
inline const Context one_worker = open_context(1),
                     five_workers = open_context("cpu", "threads=5", &backwards_hooks);

inline void expect_same_bits(const tartan_matrix *a, const tartan_matrix *b) {
    ASSERT_EQ(1, tartan_layout_equal(a->layout, b->layout));
    ASSERT_EQ(a->dtype, b->dtype);
    ASSERT_EQ(a->block_order, b->block_order);
    const int64_t bytes = a->layout->blocks * tartan_i_block_elements(a) * tartan_dtype_bytes(a->dtype);
    ASSERT_TRUE(bytes == 0 || std::memcmp(a->values, b->values, (size_t)bytes) == 0);
}

// The matrix that make(context, &out) makes with one worker, which must have the bits of the one made with five.
template <typename Make> Matrix made(const Make &make) {
    tartan_matrix *one = nullptr, *five = nullptr;
    EXPECT_OK(make(one_worker.get(), &one));
    EXPECT_OK(make(five_workers.get(), &five));
    Matrix result(one), other(five);
    if (!result || !other) return result;
    EXPECT_OK(tartan_matrix_check(one, 0));
    expect_same_bits(one, five);
    EXPECT_TRUE(padding_is_zero(one));
    return result;
}

} // namespace tartan_test

#endif
