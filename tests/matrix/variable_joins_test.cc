// SPDX-License-Identifier: Apache-2.0
// Matrices whose blocks differ in size, cut at other boundaries, joined, multiplied and selected from, beside dense oracles.
#include "variable_support.h"

using namespace tartan_test;

namespace {

std::vector<int64_t> any_bounds(int64_t size, std::mt19937_64 &random) {
    std::vector<int64_t> bounds = {0};
    while (bounds.back() < size)
        bounds.push_back(std::min(size, bounds.back() + 1 + (int64_t)(random() % 9)));
    return bounds;
}
std::vector<int64_t> bounds_of(const tartan_layout *layout, bool of_rows) {
    std::vector<int64_t> rows((size_t)layout->grid_rows + 1), cols((size_t)layout->grid_cols + 1);
    EXPECT_OK(tartan_layout_get_boundaries(layout, rows.data(), (int64_t)rows.size(), cols.data(),
                                           (int64_t)cols.size()));
    return of_rows ? rows : cols;
}

// Every block has elements of a stored block of the old matrix, and the elements are the same.
TEST(Variable, OtherBoundaries) {
    std::mt19937_64 random(12);
    for (int round = 0; round < rounds(300); round++) {
        const Case k = round % 3 ? any_case(random)
                                 : make_case(random_layout(random_shape(random), 0.4, random()), TARTAN_F64,
                                             TARTAN_ROW_MAJOR, random);
        const std::vector<int64_t> rows = any_bounds(k.s.rows, random), cols = any_bounds(k.s.cols, random);
        const bool both = random() % 3 != 0;
        tartan_matrix *out = nullptr;
        const Matrix m = take(tartan_matrix_reblock_at(cpu(), k.m.get(), rows.data(), (int64_t)rows.size(),
                                                       both ? cols.data() : nullptr,
                                                       both ? (int64_t)cols.size() : 0, &out),
                              out);
        ASSERT_OK(tartan_matrix_check(m.get(), 1));
        ASSERT_EQ(dense_of(m.get()), k.x);
        ASSERT_TRUE(padding_is_zero(m.get()));
        const std::vector<int64_t> used = both ? cols : k.cols;
        ASSERT_EQ(bounds_of(m->layout, true), rows);
        ASSERT_EQ(bounds_of(m->layout, false), used);
        for (int64_t id = 0; id < m->layout->blocks; id++) {
            const int64_t h = tartan_i_layout_head(m->layout, id), i = m->layout->block_rows[id],
                          j = m->layout->block_cols[id];
            bool reached = false;
            for (int64_t r = rows[(size_t)i]; r < rows[(size_t)i + 1]; r++)
                for (int64_t c = used[(size_t)j]; c < used[(size_t)j + 1]; c++)
                    reached = reached || k.stored(h, r, c);
            ASSERT_TRUE(reached);
        }
        const Matrix back =
            take(tartan_matrix_reblock_at(cpu(), m.get(), k.rows.data(), (int64_t)k.rows.size(),
                                          k.cols.data(), (int64_t)k.cols.size(), &out),
                 out);
        ASSERT_EQ(dense_of(back.get()), k.x);
        ASSERT_EQ(tartan_layout_is_variable(back->layout), tartan_layout_is_variable(k.layout.get()));
    }
}

TEST(Variable, JoinsHaveBlocksOfTheLargestSize) {
    std::mt19937_64 random(13);
    for (int round = 0; round < rounds(200); round++) {
        const Case a = any_case(random, 1), b = any_case(random, 1);
        const tartan_matrix *const both[] = {a.m.get(), b.m.get()};
        tartan_matrix *out = nullptr;
        const Matrix m = take(tartan_matrix_concatenate(cpu(), TARTAN_DIAGONAL, both, 2, &out), out);
        ASSERT_EQ(m->layout->shape.block_rows, a.s.block_rows);
        ASSERT_EQ(m->layout->shape.block_cols, a.s.block_cols);
        const Numbers x = dense_of(m.get());
        const int64_t rows = a.s.rows + b.s.rows, cols = a.s.cols + b.s.cols;
        ASSERT_EQ((int64_t)x.size(), rows * cols);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++) {
                const bool upper = r < a.s.rows, left = c < a.s.cols;
                const double wanted = upper != left ? 0
                                      : upper       ? a.at(0, r, c)
                                                    : b.at(0, r - a.s.rows, c - a.s.cols);
                ASSERT_EQ(x[(size_t)(r * cols + c)], wanted);
            }
    }
}

TEST(Variable, KroneckerProducts) {
    std::mt19937_64 random(14);
    for (int round = 0; round < rounds(200); round++) {
        const Case k = any_case(random, 2);
        const int64_t p = 1 + (int64_t)(random() % 3), q = 1 + (int64_t)(random() % 3);
        Dense dense(TARTAN_F64, {p, q});
        for (int64_t i = 0; i < p * q; i++) dense.set({i / q, i % q}, (double)(int64_t)(random() % 5) - 2);
        const int32_t first = (int32_t)(random() % 2);
        tartan_matrix *out = nullptr;
        const Matrix m =
            take(tartan_matrix_kronecker(cpu(), k.m.get(), &dense.array, first, TARTAN_F64, &out), out);
        const Numbers x = dense_of(m.get());
        for (int64_t h = 0; h < k.s.heads; h++)
            for (int64_t r = 0; r < k.s.rows * p; r++)
                for (int64_t c = 0; c < k.s.cols * q; c++) {
                    const int64_t i = first ? r % k.s.rows : r / p, j = first ? c % k.s.cols : c / q;
                    const int64_t u = first ? r / k.s.rows : r % p, v = first ? c / k.s.cols : c % q;
                    ASSERT_EQ(x[(size_t)((h * k.s.rows * p + r) * k.s.cols * q + c)],
                              k.at(h, i, j) * dense.get({u, v}));
                }
    }
}

TEST(Variable, RowsAndColumnsSelected) {
    std::mt19937_64 random(15);
    for (int round = 0; round < rounds(200); round++) {
        const Case k = any_case(random);
        if (k.s.rows == 0 || k.s.cols == 0) continue;
        std::vector<int64_t> rows(random() % 20), cols(1 + random() % 20);
        for (int64_t &r : rows) r = (int64_t)(random() % (uint64_t)k.s.rows);
        for (int64_t &c : cols) c = (int64_t)(random() % (uint64_t)k.s.cols);
        const bool all = rows.empty();
        const int64_t nrows = all ? k.s.rows : (int64_t)rows.size(), ncols = (int64_t)cols.size();
        tartan_matrix *out = nullptr;
        const Matrix m = take(tartan_matrix_select(cpu(), k.m.get(), all ? nullptr : rows.data(),
                                                   all ? 0 : nrows, cols.data(), ncols, &out),
                              out);
        const Numbers x = dense_of(m.get());
        for (int64_t h = 0; h < k.s.heads; h++)
            for (int64_t r = 0; r < nrows; r++)
                for (int64_t c = 0; c < ncols; c++)
                    ASSERT_EQ(x[(size_t)((h * nrows + r) * ncols + c)],
                              k.at(h, all ? r : rows[(size_t)r], cols[(size_t)c]));
    }
}

TEST(Variable, BoundariesThatDoNotFitAreRefused) {
    const Layout layout = with_boundaries(from_mask({2, 2, 1, 1, 1}, {1, 1, 0, 1}), {0, 1, 4}, {0, 1, 4});
    std::mt19937_64 random(16);
    const Case k = make_case(layout, TARTAN_F32, TARTAN_ROW_MAJOR, random);
    tartan_matrix *out = nullptr;
    const auto cut = [&](std::vector<int64_t> rows, std::vector<int64_t> cols) {
        return tartan_matrix_reblock_at(cpu(), k.m.get(), rows.data(), (int64_t)rows.size(), cols.data(),
                                        (int64_t)cols.size(), &out);
    };
    EXPECT_FAILS(SHAPE, "row_bounds ends with 3, expected 4 (rows of the matrix)", cut({0, 3}, {0, 4}));
    EXPECT_FAILS(SHAPE, "col_bounds ends with 5, expected 4 (columns of the matrix)", cut({0, 4}, {0, 5}));
    EXPECT_FAILS(LAYOUT, "row_bounds begins with 1, expected 0", cut({1, 4}, {0, 4}));
    EXPECT_FAILS(LAYOUT, "col_bounds[2] is 2 after 2", cut({0, 4}, {0, 2, 2, 4}));
    const int64_t some[] = {0, 4};
    EXPECT_FAILS(SHAPE, "nrow_bounds is 0, expected 1 or more",
                 tartan_matrix_reblock_at(cpu(), k.m.get(), some, 0, some, 2, &out));
    EXPECT_FAILS(SHAPE, "ncol_bounds is -1",
                 tartan_matrix_reblock_at(cpu(), k.m.get(), some, 2, some, -1, &out));
    EXPECT_FAILS(HANDLE, "row_bounds is NULL",
                 tartan_matrix_reblock_at(cpu(), k.m.get(), nullptr, 2, some, 2, &out));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_reblock_at(cpu(), nullptr, some, 2, some, 2, &out));
    EXPECT_FAILS(HANDLE, "context is NULL",
                 tartan_matrix_reblock_at(nullptr, k.m.get(), some, 2, some, 2, &out));
    EXPECT_FAILS(HANDLE, "out is NULL",
                 tartan_matrix_reblock_at(cpu(), k.m.get(), some, 2, some, 2, nullptr));
}

TEST(Variable, JoinsSurviveEveryFailedAllocation) {
    std::mt19937_64 random(17);
    const Layout layout =
        with_boundaries(from_mask({3, 2, 1, 1, 1}, {1, 1, 0, 1, 1, 0}), {0, 1, 4, 6}, {0, 1, 4});
    const Case k = make_case(layout, TARTAN_F32, TARTAN_ROW_MAJOR, random);
    const tartan_matrix *const both[] = {k.m.get(), k.m.get()};
    const int64_t rows[] = {0, 2, 6}, picked[] = {5, 0, 0};
    tartan_matrix *out = nullptr;
    {
        BRUTAL(tartan_matrix_reblock_at(cpu(), k.m.get(), rows, 3, nullptr, 0, &out),
               tartan_matrix_free(out));
    }
    { BRUTAL(tartan_matrix_concatenate(cpu(), TARTAN_DOWN, both, 2, &out), tartan_matrix_free(out)); }
    { BRUTAL(tartan_matrix_select(cpu(), k.m.get(), picked, 3, nullptr, 0, &out), tartan_matrix_free(out)); }
}

} // namespace
