// SPDX-License-Identifier: Apache-2.0
// Matrices whose blocks differ in size, beside dense oracles: elements, assembly, refusals.
#include "variable_support.h"

#include <numeric>

using namespace tartan_test;

namespace {

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

TEST(Variable, DiagonalsAreThoseOfElements) {
    std::mt19937_64 random(12);
    for (int round = 0; round < rounds(200); round++) {
        const Case k = any_case(random);
        const int64_t offset = (int64_t)(random() % (uint64_t)(k.s.rows + k.s.cols + 1)) - k.s.rows;
        const int64_t row = offset < 0 ? -offset : 0, col = offset > 0 ? offset : 0;
        const int64_t length = std::min(k.s.rows - row, k.s.cols - col);
        Numbers got((size_t)(k.s.heads * length)), trace((size_t)k.s.heads);
        ASSERT_OK(tartan_matrix_get_diagonal(cpu(), k.m.get(), offset, got.data(), (int64_t)got.size()));
        ASSERT_OK(tartan_matrix_trace(cpu(), k.m.get(), 0, trace.data(), k.s.heads));
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
