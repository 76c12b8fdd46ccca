// SPDX-License-Identifier: Apache-2.0
#include "matrix_support.h"

#include <numeric>

using namespace tartan_test;

namespace {

// A random matrix of any dtype and order.
Matrix any_matrix(const tartan_shape &s, std::mt19937_64 &random) {
    return random_matrix(s, all_dtypes[random() % 4], (int32_t)(random() % 2), random);
}

bool same_matrix(const tartan_matrix *a, const tartan_matrix *b) {
    return a->dtype == b->dtype && a->block_order == b->block_order &&
           tartan_layout_equal(a->layout, b->layout) == 1 && elements_of(a) == elements_of(b) &&
           padding_is_zero(a) && padding_is_zero(b);
}

Matrix transpose(const tartan_matrix *a) {
    tartan_matrix *m = nullptr;
    EXPECT_OK(tartan_matrix_transpose(cpu(), a, &m));
    return Matrix(m);
}

TEST(Transpose, MovesEveryElementAndIsItsOwnInverse) {
    std::mt19937_64 random(1);
    for (int n = 0; n < rounds(1000); n++) {
        tartan_shape s = random_shape(random);
        Matrix a = any_matrix(s, random), t = transpose(a.get()), back = transpose(t.get());
        ASSERT_TRUE(same_matrix(a.get(), back.get()));
        ASSERT_OK(tartan_matrix_check(t.get(), 1));
        std::vector<double> x = elements_of(a.get()), y = elements_of(t.get());
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t r = 0; r < s.rows; r++)
                for (int64_t c = 0; c < s.cols; c++)
                    ASSERT_EQ(x[(size_t)((h * s.rows + r) * s.cols + c)],
                              y[(size_t)((h * s.cols + c) * s.rows + r)]);
    }
}

// A random order of 0 .. n-1 that leaves a ragged last one in place.
std::vector<int64_t> random_order(int64_t n, bool is_ragged, std::mt19937_64 &random) {
    std::vector<int64_t> order((size_t)n);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end() - (is_ragged ? 1 : 0), random);
    return order;
}

std::vector<int64_t> inverse(const std::vector<int64_t> &order) {
    std::vector<int64_t> result(order.size());
    for (size_t i = 0; i < order.size(); i++) result[(size_t)order[i]] = (int64_t)i;
    return result;
}

Matrix permute(const tartan_matrix *a, const std::vector<int64_t> &rows, const std::vector<int64_t> &cols) {
    tartan_matrix *m = nullptr;
    EXPECT_OK(tartan_matrix_permute(cpu(), a, rows.data(), (int64_t)rows.size(), cols.data(),
                                    (int64_t)cols.size(), &m));
    return Matrix(m);
}

TEST(Permute, MovesBlocksAndTheInverseMovesThemBack) {
    std::mt19937_64 random(2);
    for (int n = 0; n < rounds(1000); n++) {
        tartan_shape s = random_shape(random);
        Matrix a = any_matrix(s, random);
        const tartan_layout *l = a->layout;
        std::vector<int64_t> rows = random_order(l->grid_rows, s.rows % s.block_rows != 0, random);
        std::vector<int64_t> cols = random_order(l->grid_cols, s.cols % s.block_cols != 0, random);
        Matrix p = permute(a.get(), rows, cols), back = permute(p.get(), inverse(rows), inverse(cols));
        ASSERT_TRUE(same_matrix(a.get(), back.get()));
        std::vector<double> x = elements_of(a.get()), y = elements_of(p.get());
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t r = 0; r < s.rows; r++)
                for (int64_t c = 0; c < s.cols; c++) {
                    int64_t row = rows[(size_t)(r / s.block_rows)] * s.block_rows + r % s.block_rows;
                    int64_t col = cols[(size_t)(c / s.block_cols)] * s.block_cols + c % s.block_cols;
                    ASSERT_EQ(x[(size_t)((h * s.rows + row) * s.cols + col)],
                              y[(size_t)((h * s.rows + r) * s.cols + c)]);
                }
    }
}

TEST(Slice, PiecesReassemble) {
    std::mt19937_64 random(3);
    for (int n = 0; n < rounds(1000); n++) {
        tartan_shape s = random_shape(random);
        Matrix a = any_matrix(s, random);
        const tartan_layout *l = a->layout;
        int64_t row_cut = l->grid_rows ? (int64_t)(random() % (uint64_t)(l->grid_rows + 1)) : 0;
        int64_t col_cut = l->grid_cols ? (int64_t)(random() % (uint64_t)(l->grid_cols + 1)) : 0;
        const int64_t rows[] = {0, row_cut, l->grid_rows}, cols[] = {0, col_cut, l->grid_cols};
        std::vector<double> whole = elements_of(a.get()), pieces(whole.size());
        int64_t blocks = 0;
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 2; j++) {
                tartan_matrix *m = nullptr;
                ASSERT_OK(
                    tartan_matrix_slice(cpu(), a.get(), rows[i], rows[i + 1], cols[j], cols[j + 1], &m));
                Matrix piece(m);
                ASSERT_OK(tartan_matrix_check(m, 1));
                ASSERT_TRUE(padding_is_zero(m));
                blocks += m->layout->blocks;
                std::vector<double> x = elements_of(m);
                const tartan_shape &p = m->layout->shape;
                for (int64_t h = 0; h < s.heads; h++)
                    for (int64_t r = 0; r < p.rows; r++)
                        for (int64_t c = 0; c < p.cols; c++) {
                            int64_t row = rows[i] * s.block_rows + r, col = cols[j] * s.block_cols + c;
                            pieces[(size_t)((h * s.rows + row) * s.cols + col)] =
                                x[(size_t)((h * p.rows + r) * p.cols + c)];
                        }
            }
        ASSERT_EQ(whole, pieces);
        ASSERT_EQ(l->blocks, blocks);
    }
}

Matrix project(const tartan_matrix *a, tartan_layout *layout) {
    tartan_matrix *m = nullptr;
    EXPECT_OK(tartan_matrix_project(cpu(), a, layout, &m));
    return Matrix(m);
}

TEST(Project, OntoUnionAndBack) {
    std::mt19937_64 random(4);
    for (int n = 0; n < rounds(1000); n++) {
        tartan_shape s = random_shape(random);
        Matrix a = any_matrix(s, random);
        Layout other = random_layout(s, 0.5, random());
        tartan_layout *all = nullptr;
        ASSERT_OK(tartan_layout_union(a->layout, other.get(), &all));
        Layout owner(all);
        Matrix wide = project(a.get(), all), back = project(wide.get(), a->layout),
               part = project(a.get(), other.get());
        ASSERT_TRUE(same_matrix(a.get(), back.get()));
        ASSERT_EQ(elements_of(a.get()), elements_of(wide.get()));
        ASSERT_TRUE(padding_is_zero(wide.get()));
        std::vector<double> x = elements_of(a.get()), y = elements_of(part.get());
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t r = 0; r < s.rows; r++)
                for (int64_t c = 0; c < s.cols; c++) {
                    bool kept = tartan_i_layout_find(other.get(), h, r / s.block_rows, c / s.block_cols) >= 0;
                    size_t at = (size_t)((h * s.rows + r) * s.cols + c);
                    ASSERT_EQ(kept ? x[at] : 0, y[at]);
                }
    }
}

TEST(Rearrange, TakesBlocksAsTold) {
    std::mt19937_64 random(5);
    for (int n = 0; n < rounds(500); n++) {
        tartan_shape s = random_shape(random), to = random_shape(random);
        to.block_rows = s.block_rows, to.block_cols = s.block_cols;
        Matrix a = any_matrix(s, random);
        Layout layout = random_layout(to, 0.5, random());
        std::vector<int64_t> sources;
        for (int64_t id = 0; id < layout->blocks; id++)
            sources.push_back((int64_t)(random() % (uint64_t)(a->layout->blocks + 1)) - 1);
        tartan_matrix *m = nullptr;
        ASSERT_OK(tartan_matrix_rearrange(cpu(), a.get(), layout.get(), sources.data(), layout->blocks, &m));
        Matrix owner(m);
        ASSERT_TRUE(padding_is_zero(m));
        for (int64_t id = 0; id < layout->blocks; id++)
            for (int64_t r = 0; r < tartan_i_rows_of(layout.get(), layout->block_rows[id]); r++)
                for (int64_t c = 0; c < tartan_i_cols_of(layout.get(), layout->block_cols[id]); c++) {
                    int64_t at = r * tartan_i_block_row_stride(m) + c * tartan_i_block_col_stride(m);
                    int64_t from = sources[(size_t)id]; // its padding is zero
                    double x = from < 0 ? 0 : tartan_i_load(tartan_i_block_at(a.get(), from), a->dtype, at);
                    ASSERT_EQ(x, tartan_i_load(tartan_i_block_at(m, id), m->dtype, at));
                }
    }
}

TEST(Rearrange, AfterAMove) {
    std::mt19937_64 random(6);
    tartan_shape s = {8, 8, 2, 2, 1};
    Layout layout = from_mask(s, {1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0});
    Matrix a = from_dense(layout, random_dense(s, TARTAN_F32, random));
    const int64_t ids[] = {0}, rows[] = {3}, cols[] = {2};
    std::vector<int64_t> sources(4);
    tartan_layout *moved = nullptr;
    ASSERT_OK(tartan_layout_move(layout.get(), ids, 1, places_of(nullptr, rows, cols, 1), sources.data(), 4,
                                 &moved));
    Layout owner(moved);
    tartan_matrix *m = nullptr;
    ASSERT_OK(tartan_matrix_rearrange(cpu(), a.get(), moved, sources.data(), 4, &m));
    Matrix b(m);
    std::vector<double> x = elements_of(a.get()), y = elements_of(m);
    EXPECT_EQ(x[0 * 8 + 1], y[6 * 8 + 5]);
    EXPECT_EQ(0, y[0 * 8 + 1]);
    EXPECT_EQ(x[0 * 8 + 7], y[0 * 8 + 7]);
}

TEST(Rearrange, Refuses) {
    std::mt19937_64 random(7);
    tartan_shape s = {10, 7, 4, 3, 1};
    Matrix a = random_matrix(s, TARTAN_F32, 0, random, 1), gpu = on_device(a->layout);
    tartan_matrix *m = nullptr;
    tartan_layout *l = a->layout;
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_matrix_transpose(nullptr, a.get(), &m));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_matrix_transpose(cpu(), a.get(), nullptr));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_transpose(cpu(), nullptr, &m));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:1, expected 1:0",
                 tartan_matrix_transpose(cpu(), gpu.get(), &m));

    const int64_t twice[] = {0, 0, 2}, range[] = {0, 1, 3}, moved[] = {2, 0, 1};
    EXPECT_FAILS(HANDLE, "context is NULL",
                 tartan_matrix_permute(nullptr, a.get(), nullptr, 0, nullptr, 0, &m));
    EXPECT_FAILS(HANDLE, "out is NULL",
                 tartan_matrix_permute(cpu(), a.get(), nullptr, 0, nullptr, 0, nullptr));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_permute(cpu(), nullptr, nullptr, 0, nullptr, 0, &m));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:1, expected 1:0",
                 tartan_matrix_permute(cpu(), gpu.get(), nullptr, 0, nullptr, 0, &m));
    EXPECT_NE(TARTAN_OK, tartan_matrix_permute(cpu(), a.get(), twice, 3, nullptr, 0, &m));
    EXPECT_NE(TARTAN_OK, tartan_matrix_permute(cpu(), a.get(), range, 3, nullptr, 0, &m));
    EXPECT_NE(TARTAN_OK, tartan_matrix_permute(cpu(), a.get(), moved, 3, nullptr, 0,
                                               &m)); // the ragged row must stay last
    EXPECT_FAILS(SHAPE, "row_order", tartan_matrix_permute(cpu(), a.get(), twice, 2, nullptr, 0, &m));

    EXPECT_FAILS(HANDLE, "context is NULL", tartan_matrix_slice(nullptr, a.get(), 0, 1, 0, 1, &m));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_matrix_slice(cpu(), a.get(), 0, 1, 0, 1, nullptr));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_slice(cpu(), nullptr, 0, 1, 0, 1, &m));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:1, expected 1:0",
                 tartan_matrix_slice(cpu(), gpu.get(), 0, 1, 0, 1, &m));
    EXPECT_NE(TARTAN_OK, tartan_matrix_slice(cpu(), a.get(), 2, 1, 0, 1, &m));
    EXPECT_NE(TARTAN_OK, tartan_matrix_slice(cpu(), a.get(), 0, 4, 0, 1, &m));
    EXPECT_NE(TARTAN_OK, tartan_matrix_slice(cpu(), a.get(), 0, 1, -1, 1, &m));

    Layout rows = random_layout({11, 7, 4, 3, 1}, 1, 1), blocks = random_layout({10, 7, 3, 3, 1}, 1, 1),
           heads = random_layout({10, 7, 4, 3, 2}, 1, 1);
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_matrix_project(nullptr, a.get(), l, &m));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_matrix_project(cpu(), a.get(), l, nullptr));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_project(cpu(), nullptr, l, &m));
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_matrix_project(cpu(), a.get(), nullptr, &m));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:1, expected 1:0",
                 tartan_matrix_project(cpu(), gpu.get(), l, &m));
    EXPECT_FAILS(SHAPE, "layout is 11 x 7", tartan_matrix_project(cpu(), a.get(), rows.get(), &m));
    EXPECT_FAILS(SHAPE, "2 heads", tartan_matrix_project(cpu(), a.get(), heads.get(), &m));
    EXPECT_FAILS(SHAPE, "blocks of 3 x 3, expected 4 x 3",
                 tartan_matrix_project(cpu(), a.get(), blocks.get(), &m));

    std::vector<int64_t> sources(9, -1);
    EXPECT_FAILS(HANDLE, "context is NULL",
                 tartan_matrix_rearrange(nullptr, a.get(), l, sources.data(), 9, &m));
    EXPECT_FAILS(HANDLE, "out is NULL",
                 tartan_matrix_rearrange(cpu(), a.get(), l, sources.data(), 9, nullptr));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_rearrange(cpu(), nullptr, l, sources.data(), 9, &m));
    EXPECT_FAILS(HANDLE, "layout is NULL",
                 tartan_matrix_rearrange(cpu(), a.get(), nullptr, sources.data(), 9, &m));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:1, expected 1:0",
                 tartan_matrix_rearrange(cpu(), gpu.get(), l, sources.data(), 9, &m));
    EXPECT_FAILS(HANDLE, "sources is NULL", tartan_matrix_rearrange(cpu(), a.get(), l, nullptr, 9, &m));
    EXPECT_FAILS(SHAPE, "sources has 8", tartan_matrix_rearrange(cpu(), a.get(), l, sources.data(), 8, &m));
    EXPECT_FAILS(SHAPE, "blocks of 3 x 3",
                 tartan_matrix_rearrange(cpu(), a.get(), blocks.get(), sources.data(), 12, &m));
    sources[4] = 9;
    EXPECT_FAILS(LAYOUT, "sources[4] is 9, expected -1 .. 8",
                 tartan_matrix_rearrange(cpu(), a.get(), l, sources.data(), 9, &m));
    sources[4] = -2;
    EXPECT_FAILS(LAYOUT, "sources[4] is -2",
                 tartan_matrix_rearrange(cpu(), a.get(), l, sources.data(), 9, &m));
    EXPECT_EQ(nullptr, m);
}

TEST(Scatter, PutsBlocksWhereToldAndLeavesTheOthers) {
    std::mt19937_64 random(9);
    for (int n = 0; n < rounds(500); n++) {
        tartan_shape s = random_shape(random), to = random_shape(random);
        to.block_rows = s.block_rows, to.block_cols = s.block_cols;
        const Matrix from = any_matrix(s, random), into = any_matrix(to, random);
        const tartan_layout *l = into->layout;
        std::vector<int64_t> places((size_t)l->blocks), targets((size_t)from->layout->blocks, -1),
            sources((size_t)l->blocks, -1);
        std::iota(places.begin(), places.end(), 0);
        std::shuffle(places.begin(), places.end(), random);
        for (size_t i = 0; i < targets.size() && i < places.size(); i++)
            if (random() % 4 != 0) targets[i] = places[i], sources[(size_t)places[i]] = (int64_t)i;
        tartan_matrix *copy = nullptr;
        ASSERT_OK(tartan_matrix_copy(cpu(), into.get(), &copy));
        const Matrix got(copy);
        ASSERT_OK(tartan_matrix_scatter(cpu(), from.get(), targets.data(), from->layout->blocks, copy));
        ASSERT_TRUE(padding_is_zero(copy));
        for (int64_t id = 0; id < l->blocks; id++)
            for (int64_t r = 0; r < tartan_i_rows_of(l, l->block_rows[id]); r++)
                for (int64_t c = 0; c < tartan_i_cols_of(l, l->block_cols[id]); c++) {
                    const tartan_matrix *source = sources[(size_t)id] < 0 ? into.get() : from.get();
                    const int64_t block = sources[(size_t)id] < 0 ? id : sources[(size_t)id];
                    const double x = tartan_i_load(tartan_i_block_at(source, block), source->dtype,
                                                   r * tartan_i_block_row_stride(source) +
                                                       c * tartan_i_block_col_stride(source));
                    ASSERT_EQ(round_to(x, copy->dtype),
                              tartan_i_load(tartan_i_block_at(copy, id), copy->dtype,
                                            r * tartan_i_block_row_stride(copy) +
                                                c * tartan_i_block_col_stride(copy)));
                }
    }
}

TEST(Scatter, Refuses) {
    std::mt19937_64 random(10);
    const Matrix a = random_matrix({10, 7, 4, 3, 1}, TARTAN_F32, 0, random, 1),
                 from = random_matrix({4, 6, 4, 3, 1}, TARTAN_F64, 1, random, 1),
                 other = random_matrix({6, 6, 3, 3, 1}, TARTAN_F64, 1, random, 1), gpu = on_device(a->layout);
    const std::vector<double> before = elements_of(a.get());
    const auto scatter = [&](const Matrix &what, std::vector<int64_t> targets, const Matrix &to) {
        return tartan_matrix_scatter(cpu(), what.get(), targets.data(), (int64_t)targets.size(), to.get());
    };
    const Matrix none;
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_matrix_scatter(nullptr, from.get(), nullptr, 0, a.get()));
    EXPECT_FAILS(HANDLE, "matrix is NULL", scatter(from, {0, 1}, none));
    EXPECT_FAILS(HANDLE, "from is NULL", scatter(none, {0, 1}, a));
    EXPECT_FAILS(HANDLE, "targets is NULL", tartan_matrix_scatter(cpu(), from.get(), nullptr, 2, a.get()));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:1", scatter(from, {0, 1}, gpu));
    EXPECT_FAILS(UNSUPPORTED, "from is on device 2:1", scatter(gpu, std::vector<int64_t>(9), a));
    EXPECT_FAILS(SHAPE, "from has blocks of 3 x 3, expected 4 x 3", scatter(other, {0, 1, 2, 3}, a));
    EXPECT_FAILS(SHAPE, "targets has 3", scatter(from, {0, 1, 2}, a));
    EXPECT_FAILS(LAYOUT, "targets[1] is 9, expected -1 .. 8", scatter(from, {0, 9}, a));
    EXPECT_FAILS(LAYOUT, "targets[0] is -2", scatter(from, {-2, 1}, a));
    EXPECT_FAILS(LAYOUT, "targets[1] is 5 again, expected each block once", scatter(from, {5, 5}, a));
    EXPECT_FAILS(ARGUMENT, "matrix overlaps the values of from", scatter(a, {0, 1, 2, 3, 4, 5, 6, 7, 8}, a));
    EXPECT_EQ(before, elements_of(a.get()));
    EXPECT_OK(scatter(from, {-1, -1}, a));
    EXPECT_EQ(before, elements_of(a.get()));
}

struct RearrangeWithoutMemory : testing::Test {
    std::mt19937_64 random{8};
    Matrix a = random_matrix({10, 7, 4, 3, 2}, TARTAN_F32, 0, random, 0.7);
    tartan_matrix *m = nullptr;
};

TEST_F(RearrangeWithoutMemory, Transpose) {
    BRUTAL(tartan_matrix_transpose(cpu(), a.get(), &m), tartan_matrix_free(m));
}
TEST_F(RearrangeWithoutMemory, Permute) {
    const int64_t order[] = {1, 0, 2};
    BRUTAL(tartan_matrix_permute(cpu(), a.get(), order, 3, order, 3, &m), tartan_matrix_free(m));
}
TEST_F(RearrangeWithoutMemory, Slice) {
    BRUTAL(tartan_matrix_slice(cpu(), a.get(), 0, 2, 1, 3, &m), tartan_matrix_free(m));
}
TEST_F(RearrangeWithoutMemory, Project) {
    BRUTAL(tartan_matrix_project(cpu(), a.get(), a->layout, &m), tartan_matrix_free(m));
}
TEST_F(RearrangeWithoutMemory, Rearrange) {
    std::vector<int64_t> sources((size_t)a->layout->blocks, 0);
    BRUTAL(tartan_matrix_rearrange(cpu(), a.get(), a->layout, sources.data(), a->layout->blocks, &m),
           tartan_matrix_free(m));
}
TEST_F(RearrangeWithoutMemory, Scatter) {
    std::vector<int64_t> targets((size_t)a->layout->blocks, -1);
    const Matrix other = from_dense(Layout(tartan_layout_retain(a->layout)),
                                    random_dense(a->layout->shape, TARTAN_F64, random));
    BRUTAL(tartan_matrix_scatter(cpu(), other.get(), targets.data(), a->layout->blocks, a.get()), (void)0);
}

} // namespace
