// SPDX-License-Identifier: Apache-2.0
// What the tests of matrices whose blocks differ in size share.
#ifndef TARTAN_TESTS_MATRIX_VARIABLE_SUPPORT_H
#define TARTAN_TESTS_MATRIX_VARIABLE_SUPPORT_H

#include "matrix_support.h"

extern "C" {
#include "layout/layout.h"
}

#include <algorithm>

namespace tartan_test {

using Numbers = std::vector<double>;

// A matrix with its elements, [heads, rows, cols].
struct Case {
    Layout layout;
    Matrix m;
    Numbers x;
    tartan_shape s;
    std::vector<int64_t> rows, cols; // boundaries

    bool stored(int64_t h, int64_t r, int64_t c) const {
        const tartan_layout *l = layout.get();
        return tartan_i_layout_find(l, h, block_of(rows, r), block_of(cols, c)) >= 0;
    }
    static int64_t block_of(const std::vector<int64_t> &bounds, int64_t at) {
        return std::upper_bound(bounds.begin(), bounds.end(), at) - bounds.begin() - 1;
    }
    double at(int64_t h, int64_t r, int64_t c) const { return x[(size_t)((h * s.rows + r) * s.cols + c)]; }
};

inline Case make_case(const Layout &layout, int32_t dtype, int32_t order, std::mt19937_64 &random) {
    Case k;
    k.layout = Layout(tartan_layout_retain(layout.get()));
    k.s = layout->shape;
    k.rows.resize((size_t)layout->grid_rows + 1);
    k.cols.resize((size_t)layout->grid_cols + 1);
    EXPECT_OK(tartan_layout_get_boundaries(layout.get(), k.rows.data(), (int64_t)k.rows.size(), k.cols.data(),
                                           (int64_t)k.cols.size()));
    const Dense dense = random_dense(k.s, dtype, random);
    k.m = from_dense(k.layout, dense, dtype, order);
    for (int64_t h = 0; h < k.s.heads; h++)
        for (int64_t r = 0; r < k.s.rows; r++)
            for (int64_t c = 0; c < k.s.cols; c++)
                k.x.push_back(k.stored(h, r, c) ? dense.get(index_of(k.s, h, r, c)) : 0);
    return k;
}
inline Case any_case(std::mt19937_64 &random, int64_t most_heads = 3) {
    tartan_shape s = random_shape(random, most_heads);
    return make_case(random_variable_layout(s, 0.5, random()), random() % 2 ? TARTAN_F64 : TARTAN_F32,
                     (int32_t)(random() % 2), random);
}

inline Numbers dense_of(const tartan_matrix *m) {
    const tartan_shape &s = m->layout->shape;
    Dense dense(TARTAN_F64, dense_shape(s));
    Numbers x;
    EXPECT_OK(tartan_matrix_to_dense(m, &dense.array));
    for (int64_t h = 0; h < s.heads; h++)
        for (int64_t r = 0; r < s.rows; r++)
            for (int64_t c = 0; c < s.cols; c++) x.push_back(dense.get(index_of(s, h, r, c)));
    return x;
}
inline Matrix take(tartan_status status, tartan_matrix *&out) {
    EXPECT_EQ(TARTAN_OK, status) << tartan_last_error();
    return Matrix(out);
}

} // namespace tartan_test

#endif
