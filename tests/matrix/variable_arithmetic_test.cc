// SPDX-License-Identifier: Apache-2.0
// Matrices whose blocks differ in size, beside dense oracles: arithmetic, products, rearrangement and cuts.
#include "variable_support.h"

#include <numeric>

using namespace tartan_test;

namespace {

TEST(Variable, ArithmeticIsThatOfElements) {
    std::mt19937_64 random(4);
    for (int round = 0; round < rounds(200); round++) {
        const Case a = any_case(random);
        const tartan_shape frame = {a.layout->grid_rows, a.layout->grid_cols, 1, 1, a.s.heads};
        const Case b = make_case(with_boundaries(random_layout(frame, 0.5, random()), a.rows, a.cols),
                                 a.m->dtype, (int32_t)(random() % 2), random);
        tartan_matrix *out = nullptr;
        const auto check = [&](const Matrix &got, const std::function<double(double, double)> &wanted) {
            const Numbers g = dense_of(got.get());
            ASSERT_TRUE(padding_is_zero(got.get()));
            for (size_t i = 0; i < g.size(); i++) ASSERT_NEAR(g[i], wanted(a.x[i], b.x[i]), 1e-6);
        };
        check(take(tartan_matrix_add(cpu(), 2, a.m.get(), -1, b.m.get(), 0, &out), out),
              [](double x, double y) { return 2 * x - y; });
        check(take(tartan_matrix_combine(cpu(), TARTAN_COMBINE_MULTIPLY, a.m.get(), b.m.get(), 0, &out), out),
              [](double x, double y) { return x * y; });
        check(take(tartan_matrix_combine(cpu(), TARTAN_COMBINE_MAXIMUM, a.m.get(), b.m.get(), 0, &out), out),
              [](double x, double y) { return std::max(x, y); });
        check(take(tartan_matrix_apply(cpu(), TARTAN_APPLY_ABS, 0, a.m.get(), 0, &out), out),
              [](double x, double) { return std::fabs(x); });
        ASSERT_OK(tartan_axpby(cpu(), 1, a.m.get(), 1, a.m.get(), a.m.get()));
        check(Matrix(take(tartan_matrix_copy(cpu(), a.m.get(), &out), out)),
              [](double x, double) { return 2 * x; });
        double differ = -1, wanted = 0;
        ASSERT_OK(tartan_matrix_count_different(cpu(), a.m.get(), b.m.get(), 0, 0, 0, &differ));
        for (size_t i = 0; i < a.x.size(); i++) wanted += 2 * a.x[i] != b.x[i];
        ASSERT_EQ(differ, wanted);
        Dense rows(TARTAN_F64, {a.s.rows}), cols(TARTAN_F64, {a.s.cols});
        for (int64_t r = 0; r < a.s.rows; r++) rows.set({r}, (double)(r + 1));
        for (int64_t c = 0; c < a.s.cols; c++) cols.set({c}, (double)(c + 2));
        const Matrix scaled =
            take(tartan_matrix_scale(cpu(), &rows.array, &cols.array, a.m.get(), 0, &out), out);
        const Numbers g = dense_of(scaled.get());
        for (int64_t i = 0; i < (int64_t)g.size(); i++)
            ASSERT_NEAR(g[(size_t)i],
                        2 * a.x[(size_t)i] * (double)(i / a.s.cols % a.s.rows + 1) *
                            (double)(i % a.s.cols + 2),
                        1e-3);
    }
    const Layout plain = from_mask({2, 2, 1, 1, 1}, {1, 0, 0, 1});
    const Case a = make_case(with_boundaries(plain, {0, 1, 4}, {0, 2, 3}), TARTAN_F32, TARTAN_ROW_MAJOR,
                             random),
               b = make_case(with_boundaries(plain, {0, 1, 4}, {0, 1, 3}), TARTAN_F32, TARTAN_ROW_MAJOR,
                             random),
               even =
                   make_case(from_mask({4, 3, 3, 2, 1}, {1, 0, 0, 1}), TARTAN_F32, TARTAN_ROW_MAJOR, random);
    tartan_matrix *out = nullptr;
    for (const Case *other : {&b, &even})
        EXPECT_FAILS(SHAPE, "b has other block boundaries than a",
                     tartan_matrix_add(cpu(), 1, a.m.get(), 1, other->m.get(), 0, &out));
    EXPECT_FAILS(SHAPE, "layout has other block boundaries than the matrix",
                 tartan_matrix_project(cpu(), a.m.get(), b.layout.get(), &out));
}

TEST(Variable, ReductionsAreThoseOfElements) {
    std::mt19937_64 random(5);
    for (int round = 0; round < rounds(200); round++) {
        const Case k = any_case(random);
        for (int32_t reduction = TARTAN_REDUCE_SUM; reduction <= TARTAN_REDUCE_NONZEROS; reduction++) {
            for (bool by_column : {false, true}) {
                const int64_t lines = by_column ? k.s.cols : k.s.rows,
                              across = by_column ? k.s.rows : k.s.cols;
                Numbers got((size_t)(k.s.heads * lines));
                ASSERT_OK(tartan_matrix_reduce(cpu(), k.m.get(), reduction,
                                               by_column ? TARTAN_EACH_COLUMN : TARTAN_EACH_ROW, got.data(),
                                               (int64_t)got.size()));
                for (int64_t i = 0; i < (int64_t)got.size(); i++) {
                    double sum = 0, abs = 0, squares = 0, least = INFINITY, most = -INFINITY, nonzeros = 0;
                    for (int64_t j = 0; j < across; j++) {
                        const double v =
                            by_column ? k.at(i / lines, j, i % lines) : k.at(i / lines, i % lines, j);
                        sum += v, abs += std::fabs(v), squares += v * v, nonzeros += v != 0;
                        least = std::min(least, v), most = std::max(most, v);
                    }
                    const double wanted[] = {0,       sum, sum / (double)across,   least,
                                             most,    abs, std::max(most, -least), std::sqrt(squares),
                                             nonzeros};
                    if (across == 0) continue;
                    ASSERT_NEAR(got[(size_t)i], wanted[reduction], 1e-9) << reduction;
                }
            }
        }
        Numbers frobenius((size_t)k.s.heads);
        ASSERT_OK(
            tartan_matrix_norm(cpu(), k.m.get(), TARTAN_MATRIX_NORM_FROBENIUS, frobenius.data(), k.s.heads));
        double squares = 0;
        for (int64_t i = 0; i < k.s.rows * k.s.cols; i++) squares += k.x[(size_t)i] * k.x[(size_t)i];
        ASSERT_NEAR(frobenius[0], std::sqrt(squares), 1e-9);
    }
}

TEST(Variable, BlocksMoveWithTheirSizes) {
    std::mt19937_64 random(6);
    for (int round = 0; round < rounds(200); round++) {
        const Case k = any_case(random);
        tartan_matrix *out = nullptr;
        const Matrix t = take(tartan_matrix_transpose(cpu(), k.m.get(), &out), out);
        const Numbers turned = dense_of(t.get());
        ASSERT_TRUE(padding_is_zero(t.get()));
        for (int64_t h = 0; h < k.s.heads; h++)
            for (int64_t r = 0; r < k.s.rows; r++)
                for (int64_t c = 0; c < k.s.cols; c++)
                    ASSERT_EQ(turned[(size_t)((h * k.s.cols + c) * k.s.rows + r)], k.at(h, r, c));
        // a part whose blocks may all be smaller than the largest
        const int64_t first = (int64_t)(random() % k.rows.size()), left = (int64_t)(random() % k.cols.size());
        const int64_t end = first + (int64_t)(random() % (k.rows.size() - (size_t)first)),
                      right = left + (int64_t)(random() % (k.cols.size() - (size_t)left));
        const Matrix part = take(tartan_matrix_slice(cpu(), k.m.get(), first, end, left, right, &out), out);
        ASSERT_TRUE(padding_is_zero(part.get()));
        const Numbers cut = dense_of(part.get());
        const tartan_shape &p = part->layout->shape;
        for (int64_t h = 0; h < k.s.heads; h++)
            for (int64_t r = 0; r < p.rows; r++)
                for (int64_t c = 0; c < p.cols; c++)
                    ASSERT_EQ(cut[(size_t)((h * p.rows + r) * p.cols + c)],
                              k.at(h, r + k.rows[(size_t)first], c + k.cols[(size_t)left]));
        if (tartan_layout_is_variable(k.layout.get())) {
            std::vector<int64_t> order(k.rows.size() - 1);
            std::iota(order.begin(), order.end(), 0);
            std::shuffle(order.begin(), order.end(), random);
            const Matrix moved = take(tartan_matrix_permute(cpu(), k.m.get(), order.data(),
                                                            (int64_t)order.size(), nullptr, 0, &out),
                                      out);
            ASSERT_TRUE(padding_is_zero(moved.get()));
            const Numbers y = dense_of(moved.get());
            int64_t row = 0;
            for (const int64_t i : order)
                for (int64_t r = k.rows[(size_t)i]; r < k.rows[(size_t)i + 1]; r++, row++)
                    for (int64_t c = 0; c < k.s.cols; c++)
                        ASSERT_EQ(y[(size_t)(row * k.s.cols + c)], k.at(0, r, c));
        }
        const Matrix all = take(tartan_matrix_drop_zeros(cpu(), k.m.get(), 1, &out), out);
        const Numbers kept = dense_of(all.get());
        for (size_t i = 0; i < kept.size(); i++) ASSERT_TRUE(kept[i] == k.x[i] || std::fabs(k.x[i]) <= 1);
        const Matrix back = take(tartan_matrix_project(cpu(), all.get(), k.layout.get(), &out), out);
        ASSERT_EQ(dense_of(back.get()), kept);
    }
}

// Sparse times sparse: the blocks of the result have the rows of A's and the columns of B's, of which one side or all may have
// one size.
TEST(Variable, ProductsOfTwoAreThoseOfDenseMatrices) {
    std::mt19937_64 random(11);
    for (int round = 0; round < rounds(200); round++) {
        const int64_t m = (int64_t)(random() % 6), k = (int64_t)(random() % 6), n = (int64_t)(random() % 6),
                      heads = 1 + (int64_t)(random() % 2);
        const auto sizes = [&](int64_t blocks) {
            if (random() % 3 != 0) return random_bounds(random, blocks, round % 4 == 0 ? 20 : 5);
            std::vector<int64_t> even;
            for (int64_t i = 0; i <= blocks; i++) even.push_back(3 * i);
            return even;
        };
        const auto rows = sizes(m), inner = sizes(k), cols = sizes(n);
        const auto make = [&](int64_t down, int64_t across, const std::vector<int64_t> &r,
                              const std::vector<int64_t> &c) {
            return make_case(with_boundaries(random_layout({down, across, 1, 1, heads}, 0.6, random()), r, c),
                             random() % 2 ? TARTAN_F64 : TARTAN_F32, (int32_t)(random() % 2), random);
        };
        const Case a = make(m, k, rows, inner), b = make(k, n, inner, cols);
        tartan_matrix *out = nullptr;
        const Matrix c = take(tartan_matrix_multiply(round % 2 ? one_worker.get() : five_workers.get(),
                                                     a.m.get(), b.m.get(), TARTAN_F64, &out),
                              out);
        ASSERT_TRUE(padding_is_zero(c.get()));
        std::vector<int64_t> got_rows((size_t)m + 1), got_cols((size_t)n + 1);
        ASSERT_OK(tartan_layout_get_boundaries(c->layout, got_rows.data(), m + 1, got_cols.data(), n + 1));
        ASSERT_EQ(got_rows, rows);
        ASSERT_EQ(got_cols, cols);
        const Numbers x = dense_of(c.get());
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < a.s.rows; i++)
                for (int64_t j = 0; j < b.s.cols; j++) {
                    double sum = 0;
                    for (int64_t l = 0; l < a.s.cols; l++) sum += a.at(h, i, l) * b.at(h, l, j);
                    ASSERT_NEAR(x[(size_t)((h * a.s.rows + i) * b.s.cols + j)], sum, 1e-10);
                }
    }
}

// Cuts at any element and other block sizes have blocks of one size.
TEST(Variable, CutsAndOtherBlockSizes) {
    std::mt19937_64 random(10);
    for (int round = 0; round < rounds(200); round++) {
        const Case k = any_case(random);
        tartan_matrix *out = nullptr;
        const Matrix even = take(tartan_matrix_reblock(cpu(), k.m.get(), 4, 3, &out), out);
        ASSERT_EQ(0, tartan_layout_is_variable(even->layout));
        ASSERT_EQ(dense_of(even.get()), k.x);
        tartan_layout *layout = nullptr;
        ASSERT_OK(tartan_layout_reblock(k.layout.get(), 4, 3, &layout));
        const Layout wanted(layout);
        ASSERT_EQ(1, tartan_layout_equal(layout, even->layout));
        const int64_t row = (int64_t)(random() % (uint64_t)(k.s.rows + 1)),
                      col = (int64_t)(random() % (uint64_t)(k.s.cols + 1));
        const int64_t row_end = row + (int64_t)(random() % (uint64_t)(k.s.rows - row + 1)),
                      col_end = col + (int64_t)(random() % (uint64_t)(k.s.cols - col + 1));
        const Matrix part = take(tartan_matrix_cut(cpu(), k.m.get(), row, row_end, col, col_end, &out), out);
        if (tartan_layout_is_variable(k.layout.get())) { // else in smaller blocks, perhaps
            ASSERT_EQ(part->layout->shape.block_rows, k.s.block_rows);
        }
        const Numbers cut = dense_of(part.get());
        for (int64_t h = 0; h < k.s.heads; h++)
            for (int64_t r = row; r < row_end; r++)
                for (int64_t c = col; c < col_end; c++)
                    ASSERT_EQ(cut[(size_t)((h * (row_end - row) + r - row) * (col_end - col) + c - col)],
                              k.at(h, r, c));
    }
}

TEST(Variable, Triangles) {
    std::mt19937_64 random(11);
    for (int round = 0; round < rounds(200); round++) {
        const Case k = any_case(random);
        const int64_t offset = (int64_t)(random() % (uint64_t)(k.s.rows + k.s.cols + 1)) - k.s.rows;
        for (const int32_t side : {TARTAN_LOWER, TARTAN_UPPER}) {
            tartan_matrix *out = nullptr;
            const Matrix part = take(tartan_matrix_triangle(cpu(), k.m.get(), side, offset, &out), out);
            Numbers wanted = k.x;
            for (int64_t h = 0; h < k.s.heads; h++)
                for (int64_t r = 0; r < k.s.rows; r++)
                    for (int64_t c = 0; c < k.s.cols; c++)
                        if (side == TARTAN_LOWER ? c - r > offset : c - r < offset)
                            wanted[(size_t)((h * k.s.rows + r) * k.s.cols + c)] = 0;
            ASSERT_EQ(dense_of(part.get()), wanted);
            ASSERT_TRUE(padding_is_zero(part.get()));
            ASSERT_LE(part->layout->blocks, k.layout->blocks);
        }
    }
}

} // namespace
