// SPDX-License-Identifier: Apache-2.0
// Matrices whose blocks differ in size, beside dense oracles.
#include "matrix_support.h"

#include <numeric>

extern "C" {
#include "layout/layout.h"
}

using namespace tartan_test;

namespace {

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

Case make_case(const Layout &layout, int32_t dtype, int32_t order, std::mt19937_64 &random) {
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
Case any_case(std::mt19937_64 &random, int64_t most_heads = 3) {
    tartan_shape s = random_shape(random, most_heads);
    return make_case(random_variable_layout(s, 0.5, random()), random() % 2 ? TARTAN_F64 : TARTAN_F32,
                     (int32_t)(random() % 2), random);
}

Numbers dense_of(const tartan_matrix *m) {
    const tartan_shape &s = m->layout->shape;
    Dense dense(TARTAN_F64, dense_shape(s));
    Numbers x;
    EXPECT_OK(tartan_matrix_to_dense(m, &dense.array));
    for (int64_t h = 0; h < s.heads; h++)
        for (int64_t r = 0; r < s.rows; r++)
            for (int64_t c = 0; c < s.cols; c++) x.push_back(dense.get(index_of(s, h, r, c)));
    return x;
}
Matrix take(tartan_status status, tartan_matrix *&out) {
    EXPECT_EQ(TARTAN_OK, status) << tartan_last_error();
    return Matrix(out);
}

TEST(Variable, ElementsGoInAndComeOut) {
    std::mt19937_64 random(1);
    for (int round = 0; round < rounds(300); round++) {
        const Case k = any_case(random);
        ASSERT_EQ(dense_of(k.m.get()), k.x);
        ASSERT_TRUE(padding_is_zero(k.m.get()));
        ASSERT_OK(tartan_matrix_check(k.m.get(), 1));
        for (int64_t n = 0; n < 20 && k.s.rows * k.s.cols > 0; n++) {
            const int64_t h = (int64_t)(random() % (uint64_t)k.s.heads),
                          r = (int64_t)(random() % (uint64_t)k.s.rows),
                          c = (int64_t)(random() % (uint64_t)k.s.cols);
            double value;
            ASSERT_OK(tartan_matrix_entry(k.m.get(), h, r, c, &value));
            ASSERT_EQ(value, k.at(h, r, c));
            Dense one(TARTAN_F64, {1});
            ASSERT_OK(tartan_matrix_get_elements(k.m.get(), places_of(&h, &r, &c, 1), &one.array));
            ASSERT_EQ(one.get({0}), k.at(h, r, c));
            one.set({0}, 7);
            tartan_matrix *copy = nullptr;
            ASSERT_OK(tartan_matrix_copy(cpu(), k.m.get(), &copy));
            const Matrix changed(copy);
            if (!k.stored(h, r, c)) {
                EXPECT_FAILS(LAYOUT, "is not stored",
                             tartan_matrix_set_elements(copy, places_of(&h, &r, &c, 1), &one.array, 0));
                tartan_layout *grown = nullptr;
                ASSERT_OK(tartan_layout_add_elements(k.layout.get(), places_of(&h, &r, &c, 1), &grown));
                const Layout more(grown);
                ASSERT_EQ(more->blocks, k.layout->blocks + 1);
                ASSERT_GE(
                    tartan_i_layout_find(grown, h, Case::block_of(k.rows, r), Case::block_of(k.cols, c)), 0);
                continue;
            }
            ASSERT_OK(tartan_matrix_set_elements(copy, places_of(&h, &r, &c, 1), &one.array, 0));
            Numbers wanted = k.x;
            wanted[(size_t)((h * k.s.rows + r) * k.s.cols + c)] = 7;
            ASSERT_EQ(dense_of(copy), wanted);
        }
    }
}

TEST(Variable, EntriesGoInAndComeOut) {
    std::mt19937_64 random(2);
    for (int round = 0; round < rounds(200); round++) {
        const Case k = any_case(random, 1);
        const int64_t n = tartan_layout_elements(k.layout.get());
        std::vector<int64_t> rows((size_t)n), cols((size_t)n), pointers((size_t)k.s.rows + 1),
            csr_cols((size_t)n);
        Dense values(TARTAN_F64, {n}, &random), csr_values(TARTAN_F64, {n});
        ASSERT_OK(tartan_matrix_to_coo(k.m.get(), rows.data(), n, cols.data(), n, &values.array));
        ASSERT_OK(tartan_matrix_to_csr(k.m.get(), pointers.data(), k.s.rows + 1, csr_cols.data(), n,
                                       &csr_values.array));
        ASSERT_EQ(cols, csr_cols);
        int64_t at = 0;
        for (int64_t r = 0; r < k.s.rows; r++) {
            ASSERT_EQ(pointers[(size_t)r], at);
            for (int64_t c = 0; c < k.s.cols; c++) {
                if (!k.stored(0, r, c)) continue;
                ASSERT_EQ(rows[(size_t)at], r);
                ASSERT_EQ(cols[(size_t)at], c);
                ASSERT_EQ(csr_values.get({at}), k.at(0, r, c));
                ASSERT_EQ(values.get({at++}), k.at(0, r, c));
            }
        }
        ASSERT_EQ(at, n);
        tartan_matrix *out = nullptr;
        ASSERT_OK(tartan_matrix_from_coo(k.layout.get(), places_of(nullptr, rows.data(), cols.data(), n),
                                         &values.array, k.m->dtype, k.m->block_order, &out));
        const Matrix coo(out);
        ASSERT_OK(tartan_matrix_from_csr(k.layout.get(), lists_of(pointers, csr_cols), &csr_values.array,
                                         k.m->dtype, k.m->block_order, &out));
        const Matrix csr(out);
        for (const tartan_matrix *back : {coo.get(), csr.get()}) {
            ASSERT_EQ(dense_of(back), k.x);
            ASSERT_TRUE(padding_is_zero(back));
        }
    }
}

// NaN in padding, which only the caller's own memory can have, affects nothing.
TEST(Variable, PaddingIsNeverRead) {
    std::mt19937_64 random(3);
    for (int round = 0; round < rounds(100); round++) {
        const Case k = any_case(random);
        for (int64_t id = 0; id < k.layout->blocks; id++)
            for (int64_t r = 0; r < k.s.block_rows; r++)
                for (int64_t c = 0; c < k.s.block_cols; c++)
                    if (r >= tartan_i_rows_of(k.layout.get(), k.layout->block_rows[id]) ||
                        c >= tartan_i_cols_of(k.layout.get(), k.layout->block_cols[id]))
                        tartan_i_store(tartan_i_block_at(k.m.get(), id), k.m->dtype,
                                       r * tartan_i_block_row_stride(k.m.get()) +
                                           c * tartan_i_block_col_stride(k.m.get()),
                                       NAN);
        ASSERT_EQ(dense_of(k.m.get()), k.x);
        tartan_matrix *out = nullptr;
        const Matrix copy = take(tartan_matrix_copy(cpu(), k.m.get(), &out), out);
        ASSERT_TRUE(padding_is_zero(copy.get()));
        ASSERT_EQ(dense_of(copy.get()), k.x);
        const Matrix cast =
            take(tartan_matrix_cast(cpu(), k.m.get(), TARTAN_F64, TARTAN_COL_MAJOR, &out), out);
        ASSERT_TRUE(padding_is_zero(cast.get()));
        ASSERT_EQ(dense_of(cast.get()), k.x);
        const Matrix sum = take(tartan_matrix_add(cpu(), 1, k.m.get(), 1, k.m.get(), 0, &out), out);
        ASSERT_TRUE(padding_is_zero(sum.get()));
        Numbers norms((size_t)k.layout->blocks), wanted((size_t)k.layout->blocks);
        ASSERT_OK(
            tartan_matrix_block_norms(cpu(), k.m.get(), TARTAN_NORM_MAX, norms.data(), k.layout->blocks));
        for (int64_t h = 0; h < k.s.heads; h++)
            for (int64_t r = 0; r < k.s.rows; r++)
                for (int64_t c = 0; c < k.s.cols; c++) {
                    const int64_t id = tartan_i_layout_find(k.layout.get(), h, Case::block_of(k.rows, r),
                                                            Case::block_of(k.cols, c));
                    if (id >= 0) wanted[(size_t)id] = std::max(wanted[(size_t)id], std::fabs(k.at(h, r, c)));
                }
        ASSERT_EQ(norms, wanted);
    }
}

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

TEST(Variable, DiagonalsAreThoseOfElements) {
    std::mt19937_64 random(12);
    for (int round = 0; round < rounds(200); round++) {
        const Case k = any_case(random);
        const int64_t offset = (int64_t)(random() % (uint64_t)(k.s.rows + k.s.cols + 1)) - k.s.rows;
        const int64_t row = offset < 0 ? -offset : 0, col = offset > 0 ? offset : 0;
        const int64_t length = std::min(k.s.rows - row, k.s.cols - col);
        Numbers got((size_t)(k.s.heads * length)), trace((size_t)k.s.heads);
        ASSERT_OK(tartan_matrix_get_diagonal(cpu(), k.m.get(), offset, got.data(), (int64_t)got.size()));
        ASSERT_OK(tartan_matrix_trace(cpu(), k.m.get(), trace.data(), k.s.heads));
        for (int64_t h = 0; h < k.s.heads; h++) {
            double sum = 0;
            for (int64_t i = 0; i < length; i++)
                ASSERT_EQ(got[(size_t)(h * length + i)], k.at(h, row + i, col + i));
            for (int64_t i = 0; i < std::min(k.s.rows, k.s.cols); i++) sum += k.at(h, i, i);
            ASSERT_NEAR(trace[(size_t)h], sum, 1e-12);
        }
        tartan_matrix *out = nullptr;
        const double two = 2;
        const Matrix more =
            take(tartan_matrix_add_diagonal(cpu(), 1, k.m.get(), offset, &two, 1, 0, &out), out);
        ASSERT_TRUE(padding_is_zero(more.get()));
        Numbers wanted = k.x;
        for (int64_t h = 0; h < k.s.heads; h++)
            for (int64_t i = 0; i < length; i++)
                wanted[(size_t)((h * k.s.rows + row + i) * k.s.cols + col + i)] += 2;
        const Numbers x = dense_of(more.get());
        for (size_t i = 0; i < x.size(); i++) ASSERT_NEAR(x[i], wanted[i], 1e-6);
        ASSERT_OK(tartan_matrix_set_diagonal(cpu(), more.get(), offset, &two, 1));
        ASSERT_OK(tartan_matrix_get_diagonal(cpu(), more.get(), offset, got.data(), (int64_t)got.size()));
        ASSERT_EQ(got, Numbers(got.size(), 2));
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
        ASSERT_EQ(part->layout->shape.block_rows, k.s.block_rows);
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

// Elements that are added by a plan of their places, in any order and again.
TEST(Variable, PlansOfAssembly) {
    std::mt19937_64 random(12);
    for (int round = 0; round < rounds(200); round++) {
        const Case k = any_case(random);
        std::vector<int64_t> heads, rows, cols;
        Numbers wanted = k.x, added;
        for (int n = 0; n < 60 && k.layout->blocks > 0; n++) {
            const int64_t h = (int64_t)(random() % (uint64_t)k.s.heads),
                          r = (int64_t)(random() % (uint64_t)k.s.rows),
                          c = (int64_t)(random() % (uint64_t)k.s.cols);
            if (!k.stored(h, r, c)) continue;
            heads.push_back(h), rows.push_back(r), cols.push_back(c);
            added.push_back((double)(n % 7));
            wanted[(size_t)((h * k.s.rows + r) * k.s.cols + c)] += added.back();
        }
        const auto places = places_of(heads.data(), rows.data(), cols.data(), (int64_t)rows.size());
        const int64_t stored = k.layout->blocks * k.s.block_rows * k.s.block_cols;
        std::vector<int64_t> order(rows.size()), ends((size_t)stored);
        ASSERT_OK(tartan_layout_element_plan(k.layout.get(), places, k.m->block_order, order.data(),
                                             (int64_t)order.size(), ends.data(), stored));
        tartan_matrix *out = nullptr;
        const Matrix sum = take(tartan_matrix_copy(cpu(), k.m.get(), &out), out);
        for (int64_t p = 0, n = 0; p < stored; p++)
            for (; n < ends[(size_t)p]; n++)
                tartan_i_store(sum->values, sum->dtype, p,
                               tartan_i_load(sum->values, sum->dtype, p) + added[(size_t)order[(size_t)n]]);
        const Numbers got = dense_of(sum.get());
        for (size_t i = 0; i < got.size(); i++) ASSERT_NEAR(got[i], wanted[i], 1e-5);
        // Blocks are known by their places in the grid.
        std::vector<int64_t> head(1), row(1), col(1), one(1), blocks((size_t)k.layout->blocks);
        if (k.layout->blocks == 0) continue;
        row[0] = k.layout->block_rows[0], col[0] = k.layout->block_cols[0];
        head[0] = tartan_i_layout_head(k.layout.get(), 0);
        ASSERT_OK(tartan_layout_block_plan(k.layout.get(), places_of(head.data(), row.data(), col.data(), 1),
                                           one.data(), 1, blocks.data(), k.layout->blocks));
        ASSERT_EQ(blocks[0], 1);
    }
}

TEST(Variable, RandomValuesFillBlocksAndNothingElse) {
    std::mt19937_64 random(7);
    const Case k =
        make_case(random_variable_layout({60, 50, 9, 7, 2}, 0.6, 3), TARTAN_F64, TARTAN_ROW_MAJOR, random);
    for (auto fill : {tartan_matrix_fill_normal, tartan_matrix_fill_orthogonal}) {
        ASSERT_OK(fill(cpu(), k.m.get(), 1, 5));
        ASSERT_TRUE(padding_is_zero(k.m.get()));
        const Numbers x = dense_of(k.m.get());
        for (size_t i = 0; i < x.size(); i++) ASSERT_EQ(x[i] != 0, k.x[i] != 0);
    }
    ASSERT_OK(tartan_matrix_fill_zero(k.m.get()));
    ASSERT_EQ(dense_of(k.m.get()), Numbers(k.x.size()));
}

// What has no rule for such blocks says so, and does nothing.
TEST(Variable, OtherFunctionsRefuseThem) {
    std::mt19937_64 random(8);
    const Layout layout = with_boundaries(from_mask({2, 2, 1, 1, 1}, {1, 1, 0, 1}), {0, 1, 4}, {0, 1, 4});
    const Case k = make_case(layout, TARTAN_F32, TARTAN_ROW_MAJOR, random);
    const Layout even = from_mask({4, 4, 3, 3, 1}, {1, 1, 0, 1});
    const Case e = make_case(even, TARTAN_F32, TARTAN_ROW_MAJOR, random);
    tartan_matrix *m = k.m.get(), *out = nullptr;
    const auto text = [](const char *name) {
        return std::string(name) + " has blocks of different sizes, which are not supported here";
    };
    EXPECT_FAILS(UNSUPPORTED, text("matrix"), tartan_matrix_fill_identity(m, 1));
    EXPECT_FAILS(SHAPE, "b has other boundaries of block rows",
                 tartan_matrix_multiply(cpu(), m, e.m.get(), 0, &out));
    EXPECT_FAILS(SHAPE, "b has other boundaries of block rows",
                 tartan_matrix_multiply(cpu(), e.m.get(), m, 0, &out));
    const int64_t ids[] = {0, 1, 2};
    EXPECT_FAILS(UNSUPPORTED, text("matrix"), tartan_matrix_rearrange(cpu(), m, even.get(), ids, 3, &out));
    EXPECT_FAILS(UNSUPPORTED, text("layout"),
                 tartan_matrix_rearrange(cpu(), e.m.get(), layout.get(), ids, 3, &out));
    EXPECT_FAILS(UNSUPPORTED, text("matrix"), tartan_matrix_scatter(cpu(), e.m.get(), ids, 3, m));
    EXPECT_FAILS(UNSUPPORTED, text("from"), tartan_matrix_scatter(cpu(), m, ids, 3, e.m.get()));
    EXPECT_FAILS(UNSUPPORTED, text("matrix"), tartan_matrix_select(cpu(), m, ids, 3, ids, 3, &out));
    EXPECT_FAILS(UNSUPPORTED, text("a"), tartan_matrix_concatenate(cpu(), TARTAN_DOWN, m, e.m.get(), &out));
    EXPECT_FAILS(UNSUPPORTED, text("b"), tartan_matrix_concatenate(cpu(), TARTAN_DOWN, e.m.get(), m, &out));
    const Dense one(TARTAN_F32, {1, 1});
    EXPECT_FAILS(UNSUPPORTED, text("matrix"), tartan_matrix_kronecker(cpu(), m, &one.array, 0, 0, &out));
    ASSERT_EQ(dense_of(m), k.x);
}

TEST(Variable, SurviveEveryFailedAllocation) {
    std::mt19937_64 random(9);
    const Layout layout =
        with_boundaries(from_mask({3, 2, 1, 1, 1}, {1, 1, 0, 1, 1, 0}), {0, 1, 4, 6}, {0, 1, 4});
    const Case k = make_case(layout, TARTAN_F32, TARTAN_ROW_MAJOR, random);
    tartan_matrix *out = nullptr;
    { BRUTAL(tartan_matrix_transpose(cpu(), k.m.get(), &out), tartan_matrix_free(out)); }
    { BRUTAL(tartan_matrix_slice(cpu(), k.m.get(), 0, 2, 0, 2, &out), tartan_matrix_free(out)); }
    { BRUTAL(tartan_matrix_drop_zeros(cpu(), k.m.get(), 1, &out), tartan_matrix_free(out)); }
    { BRUTAL(tartan_matrix_triangle(cpu(), k.m.get(), TARTAN_UPPER, 2, &out), tartan_matrix_free(out)); }
    const Matrix t = take(tartan_matrix_transpose(cpu(), k.m.get(), &out), out);
    { BRUTAL(tartan_matrix_multiply(cpu(), k.m.get(), t.get(), 0, &out), tartan_matrix_free(out)); }
    tartan_layout *grown = nullptr;
    const int64_t zero = 0, three = 3;
    {
        BRUTAL(tartan_layout_add_elements(layout.get(), places_of(nullptr, &three, &zero, 1), &grown),
               tartan_layout_free(grown));
    }
}

} // namespace
