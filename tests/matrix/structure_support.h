// SPDX-License-Identifier: Apache-2.0
// What a matrix made of another has of it.
#ifndef TARTAN_TESTS_MATRIX_STRUCTURE_SUPPORT_H
#define TARTAN_TESTS_MATRIX_STRUCTURE_SUPPORT_H

#include "matrix_support.h"

extern "C" {
#include "matrix/work.h"
}

#include <functional>
#include <numeric>
#include <set>

namespace tartan_test {

inline int64_t below(std::mt19937_64 &random, int64_t n) {
    return (int64_t)(random() % (uint64_t)n);
}

inline Matrix any_matrix(const tartan_shape &s, std::mt19937_64 &random) {
    return random_matrix(s, all_dtypes[random() % 6], (int32_t)(random() % 2), random, 0.4);
}

// Element (h, r, c) of a matrix, by elements_of.
struct Elements {
    tartan_shape s;
    std::vector<double> x;
    explicit Elements(const tartan_matrix *m) : s(m->layout->shape), x(elements_of(m)) {}
    double at(int64_t h, int64_t r, int64_t c) const { return x[(size_t)((h * s.rows + r) * s.cols + c)]; }
};

inline bool is_stored(const tartan_layout *l, int64_t h, int64_t r, int64_t c) {
    return tartan_i_layout_find(l, h, r / l->shape.block_rows, c / l->shape.block_cols) >= 0;
}

// Each element of `result` comes from one of `from`, and its blocks are those with an element of a stored block.
using Source = std::function<bool(int64_t h, int64_t &r, int64_t &c)>;
inline void expect_from(const tartan_matrix *result, const tartan_matrix *from, const Source &source) {
    const Elements x(from), y(result);
    std::set<std::vector<int64_t>> stored;
    for (int64_t h = 0; h < y.s.heads; h++)
        for (int64_t r = 0; r < y.s.rows; r++)
            for (int64_t c = 0; c < y.s.cols; c++) {
                int64_t i = r, j = c;
                const bool is = source(h, i, j);
                ASSERT_EQ(is ? x.at(h, i, j) : 0, y.at(h, r, c)) << h << " " << r << " " << c;
                if (is && is_stored(from->layout, h, i, j))
                    stored.insert({h, r / y.s.block_rows, c / y.s.block_cols});
            }
    ASSERT_EQ((int64_t)stored.size(), result->layout->blocks);
    ASSERT_EQ(from->dtype, result->dtype);
    ASSERT_EQ(from->block_order, result->block_order);
}

} // namespace tartan_test
#endif
