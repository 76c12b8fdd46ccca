// SPDX-License-Identifier: Apache-2.0
// Matrices in another shape, against dense oracles.
#include "structure_support.h"
#include "variable_support.h"

using namespace tartan_test;

namespace {

// A number of rows that divides the elements.
int64_t any_rows(int64_t elements, std::mt19937_64 &random) {
    if (elements == 0) return below(random, 2) * 7;
    std::vector<int64_t> rows;
    for (int64_t n = 1; n <= elements; n++)
        if (elements % n == 0) rows.push_back(n);
    return rows[(size_t)below(random, (int64_t)rows.size())];
}
int64_t cols_beside(int64_t rows, int64_t elements) {
    return rows == 0 ? 5 : elements / rows;
}

// Where element (r, c) of a matrix of the shape `to` is in one of the shape `from`.
void find_source(const tartan_shape &to, const tartan_shape &from, bool by_column, int64_t &r, int64_t &c) {
    const int64_t place = by_column ? c * to.rows + r : r * to.cols + c;
    r = by_column ? place % from.rows : place / from.cols;
    c = by_column ? place / from.rows : place % from.cols;
}

TEST(Reshape, KeepsTheOrderOfElements) {
    std::mt19937_64 random(1);
    for (int n = 0; n < rounds(1200); n++) {
        tartan_shape s = random_shape(random, 1);
        if (n % 3 == 0) s.block_rows = 1;
        if (n % 4 == 0) s.block_cols = 1;
        if (n % 6 == 1) s.cols = below(random, 5) * s.block_cols; // so that blocks stay whole
        const Matrix a = any_matrix(s, random);
        const bool by_column = n % 2 != 0;
        const int64_t rows = any_rows(s.rows * s.cols, random), cols = cols_beside(rows, s.rows * s.cols);
        const Matrix b = made([&](tartan_context *context, tartan_matrix **out) {
            return tartan_matrix_reshape(context, a.get(), rows, cols, by_column, out);
        });
        const tartan_shape &to = b->layout->shape;
        ASSERT_EQ(rows, to.rows);
        ASSERT_EQ(cols, to.cols);
        ASSERT_EQ(s.block_rows, to.block_rows);
        ASSERT_EQ(s.block_cols, to.block_cols);
        expect_from(b.get(), a.get(), [&](int64_t, int64_t &r, int64_t &c) {
            find_source(to, s, by_column, r, c);
            return true;
        });
    }
}

// Rows of single blocks, whose values are copied at once, among many empty ones.
TEST(Reshape, FewBlocksInManyRows) {
    std::mt19937_64 random(2);
    for (int n = 0; n < rounds(40); n++) {
        const tartan_shape s = {240, 150, n % 4 < 2 ? 1 : 3, n % 3 ? 1 : 4, 1};
        const Matrix a = random_matrix(s, TARTAN_F32, n % 2, random, 0.004);
        const int64_t rows = any_rows(s.rows * s.cols, random);
        const bool by_column = n % 5 < 2;
        const Matrix b = made([&](tartan_context *context, tartan_matrix **out) {
            return tartan_matrix_reshape(context, a.get(), rows, s.rows * s.cols / rows, by_column, out);
        });
        expect_from(b.get(), a.get(), [&](int64_t, int64_t &r, int64_t &c) {
            find_source(b->layout->shape, s, by_column, r, c);
            return true;
        });
    }
}

TEST(Reshape, BlocksOfDifferentSizes) {
    std::mt19937_64 random(3);
    for (int n = 0; n < rounds(300); n++) {
        const Case k = any_case(random, 1);
        const bool by_column = n % 2 != 0;
        const int64_t elements = k.s.rows * k.s.cols, rows = any_rows(elements, random),
                      cols = cols_beside(rows, elements);
        const Matrix m = made([&](tartan_context *context, tartan_matrix **out) {
            return tartan_matrix_reshape(context, k.m.get(), rows, cols, by_column, out);
        });
        const tartan_shape &to = m->layout->shape;
        ASSERT_FALSE(tartan_i_is_variable(m->layout));
        ASSERT_EQ(k.s.block_rows, to.block_rows);
        ASSERT_EQ(k.s.block_cols, to.block_cols);
        const Numbers x = dense_of(m.get());
        std::set<std::pair<int64_t, int64_t>> stored;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++) {
                int64_t i = r, j = c;
                find_source(to, k.s, by_column, i, j);
                ASSERT_EQ(x[(size_t)(r * cols + c)], k.at(0, i, j));
                if (k.stored(0, i, j)) stored.insert({r / to.block_rows, c / to.block_cols});
            }
        ASSERT_EQ((int64_t)stored.size(), m->layout->blocks);
    }
}

TEST(Reshape, KeepsTheBitsOfNaN) {
    uint64_t bits[16];
    for (uint64_t i = 0; i < 16; i++) bits[i] = 0x7ff00000000007a2 + i;
    for (const int64_t height : {1, 2}) {
        tartan_array values;
        const int64_t shape[] = {16 / (2 * height), height, 2};
        ASSERT_OK(tartan_array_init(bits, TARTAN_F64, 3, shape, nullptr, &values));
        const Layout layout =
            from_mask({4, 4, height, 2, 1}, std::vector<uint8_t>((size_t)(16 / (2 * height)), 1));
        tartan_matrix *raw = nullptr, *out = nullptr;
        ASSERT_OK(tartan_matrix_wrap(layout.get(), &values, nullptr, nullptr, &raw));
        const Matrix a(raw);
        ASSERT_OK(tartan_matrix_reshape(cpu(), raw, 2, 8, 0, &out));
        const Matrix b(out);
        // (1, 7) was (3, 3), the last element of both.
        EXPECT_EQ(bits[15], ((const uint64_t *)out->values)[15]);
    }
}

TEST(Reshape, RefusesWhatDoesNotFit) {
    std::mt19937_64 random(4);
    const Matrix a = random_matrix({8, 12, 4, 4, 1}, TARTAN_F64, 0, random, 1), far = on_device(a->layout),
                 two = random_matrix({8, 12, 4, 4, 2}, TARTAN_F64, 0, random);
    const int64_t half = (int64_t)1 << 32;
    tartan_matrix *out = nullptr;
    EXPECT_FAILS(SHAPE, "the result is 5 x 19, expected 96 elements",
                 tartan_matrix_reshape(cpu(), a.get(), 5, 19, 0, &out));
    EXPECT_FAILS(SHAPE, "the result is -8 x -12", tartan_matrix_reshape(cpu(), a.get(), -8, -12, 1, &out));
    EXPECT_FAILS(SHAPE, "the result is 96 x -1", tartan_matrix_reshape(cpu(), a.get(), 96, -1, 0, &out));
    EXPECT_FAILS(SHAPE, "the result is 4294967296 x 4294967296", // 0 in 64 bits
                 tartan_matrix_reshape(cpu(), a.get(), half, half, 0, &out));
    EXPECT_FAILS(SHAPE, "matrix has 2 heads, expected 1",
                 tartan_matrix_reshape(cpu(), two.get(), 12, 8, 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix has", tartan_matrix_reshape(cpu(), far.get(), 12, 8, 0, &out));
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_matrix_reshape(nullptr, a.get(), 12, 8, 0, &out));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_reshape(cpu(), nullptr, 12, 8, 0, &out));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_matrix_reshape(cpu(), a.get(), 12, 8, 0, nullptr));
    EXPECT_EQ(nullptr, out);
}

TEST(Reshape, RefusesMoreElementsThanCanBeCounted) {
    tartan_layout *raw = nullptr;
    tartan_matrix *out = nullptr;
    const tartan_shape s = {(int64_t)1 << 28, (int64_t)1 << 38, 256, 256, 1};
    ASSERT_OK(tartan_layout_from_coordinates(&s, places_of(nullptr, nullptr, nullptr, 0), &raw));
    const Layout layout(raw);
    ASSERT_OK(tartan_i_matrix_new(raw, TARTAN_F64, TARTAN_ROW_MAJOR, &out));
    const Matrix m(out);
    out = nullptr;
    EXPECT_FAILS(OVERFLOW, "expected less than 2^63 elements",
                 tartan_matrix_reshape(cpu(), m.get(), s.rows, s.cols, 0, &out));
    EXPECT_EQ(nullptr, out);
}

TEST(Reshape, FailsCleanlyWithoutMemory) {
    std::mt19937_64 random(5);
    const Matrix lines = random_matrix({9, 12, 1, 4, 1}, TARTAN_F64, 0, random, 0.8),
                 columns = random_matrix({12, 9, 4, 1, 1}, TARTAN_F64, 0, random, 0.8),
                 blocks = random_matrix({9, 12, 4, 4, 1}, TARTAN_F64, 0, random, 0.8);
    tartan_matrix *out = nullptr;
    for (const int32_t by_column : {0, 1})
        for (const tartan_matrix *m : {lines.get(), columns.get(), blocks.get()})
            BRUTAL(tartan_matrix_reshape(cpu(), m, 27, 4, by_column, &out), tartan_matrix_free(out));
}

} // namespace
