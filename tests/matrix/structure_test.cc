// SPDX-License-Identifier: Apache-2.0
// Matrices joined and taken apart at any element, against dense oracles.
#include "structure_support.h"

using namespace tartan_test;

namespace {

TEST(Concatenate, InEveryDirection) {
    std::mt19937_64 random(4);
    for (int n = 0; n < rounds(600); n++) {
        const tartan_shape first = random_shape(random);
        const int32_t direction = 1 + n % 3;
        const bool whole = n % 2 == 0; // all blocks stay as they are
        const int64_t count = 1 + below(random, 5);
        std::vector<Matrix> own;
        std::vector<const tartan_matrix *> parts;
        std::vector<Elements> elements;
        std::vector<std::array<int64_t, 2>> begins;
        int64_t rows = 0, cols = 0, blocks = 0;
        int32_t dtype = 0;
        for (int64_t k = 0; k < count; k++) {
            tartan_shape t = k == 0 ? first : random_shape(random);
            t.heads = first.heads;
            if (whole) t.block_rows = first.block_rows, t.block_cols = first.block_cols;
            if (whole && direction != TARTAN_RIGHTWARD && k + 1 < count) t.rows -= t.rows % t.block_rows;
            if (whole && direction != TARTAN_DOWN && k + 1 < count) t.cols -= t.cols % t.block_cols;
            if (direction == TARTAN_DOWN) t.cols = first.cols;
            if (direction == TARTAN_RIGHTWARD) t.rows = first.rows;
            own.push_back(whole && k > 0 ? random_matrix(t, own[0]->dtype, own[0]->block_order, random, 0.4)
                                         : any_matrix(t, random));
            const tartan_matrix *m = own[k == 3 ? 1 : (size_t)k].get(); // one of them again
            parts.push_back(m);
            elements.emplace_back(m);
            begins.push_back({direction == TARTAN_RIGHTWARD ? 0 : rows, direction == TARTAN_DOWN ? 0 : cols});
            rows += m->layout->shape.rows, cols += m->layout->shape.cols;
            blocks += m->layout->blocks;
            dtype = k == 0 ? m->dtype : tartan_i_common_dtype(dtype, m->dtype);
        }
        const Matrix c = made([&](tartan_context *context, tartan_matrix **out) {
            return tartan_matrix_concatenate(context, direction, parts.data(), count, out);
        });
        const Elements z(c.get());
        ASSERT_EQ(first.block_rows, z.s.block_rows);
        ASSERT_EQ(dtype, c->dtype);
        ASSERT_EQ(parts[0]->block_order, c->block_order);
        ASSERT_EQ(direction == TARTAN_RIGHTWARD ? first.rows : rows, z.s.rows);
        ASSERT_EQ(direction == TARTAN_DOWN ? first.cols : cols, z.s.cols);
        for (int64_t h = 0; h < z.s.heads; h++)
            for (int64_t i = 0; i < z.s.rows; i++)
                for (int64_t j = 0; j < z.s.cols; j++) {
                    double expected = 0;
                    for (size_t k = 0; k < parts.size(); k++) {
                        const int64_t r = i - begins[k][0], col = j - begins[k][1];
                        const tartan_shape &t = elements[k].s;
                        if (r >= 0 && r < t.rows && col >= 0 && col < t.cols)
                            expected = elements[k].at(h, r, col);
                    }
                    ASSERT_EQ(expected, z.at(h, i, j));
                }
        ASSERT_TRUE(!whole || blocks == c->layout->blocks);
    }
}

// Each block touches as few blocks of the result as its place allows, however many matrices come before.
TEST(Concatenate, BlocksAreSpreadOnce) {
    std::mt19937_64 random(14);
    const Matrix a = random_matrix({7, 7, 4, 4, 1}, TARTAN_F64, 0, random, 1);
    const std::vector<const tartan_matrix *> parts(8, a.get());
    tartan_matrix *out = nullptr;
    ASSERT_OK(tartan_matrix_concatenate(cpu(), TARTAN_DIAGONAL, parts.data(), 8, &out));
    int64_t blocks = 0;
    for (int64_t i = 0; i < 14; i++)
        for (int64_t j = 0; j < 14; j++) {
            bool reached = false;
            for (int64_t k = 0; k < 8; k++)
                reached = reached ||
                          (4 * i < 7 * k + 7 && 4 * i + 4 > 7 * k && 4 * j < 7 * k + 7 && 4 * j + 4 > 7 * k);
            blocks += reached;
        }
    EXPECT_EQ(blocks, out->layout->blocks);
    tartan_matrix_free(out);
}

TEST(Kronecker, OnEitherSide) {
    std::mt19937_64 random(5);
    for (int n = 0; n < rounds(400); n++) {
        tartan_shape s = random_shape(random, 2);
        if (n % 20 == 0) s = {70, 90, 60, 3, 1}; // 60 * 5 > 256
        const Matrix a = any_matrix(s, random);
        const int64_t p = n % 20 == 0 ? 5 : below(random, 4), q = below(random, 4);
        Dense d(all_dtypes[random() % 6], {p, q}, &random);
        for (int64_t k = 0; k < p; k++)
            for (int64_t l = 0; l < q; l++) d.set({k, l}, (double)below(random, 5) - 2);
        for (int32_t first : {0, 1}) {
            const Matrix b = made([&](tartan_context *context, tartan_matrix **out) {
                return tartan_matrix_kronecker(context, a.get(), &d.array, first,
                                               n % 3 ? 0 : (int32_t)TARTAN_F64, out);
            });
            const Elements x(a.get()), y(b.get());
            ASSERT_EQ(s.rows * p, y.s.rows);
            ASSERT_EQ(s.cols * q, y.s.cols);
            for (int64_t h = 0; h < s.heads; h++)
                for (int64_t r = 0; r < y.s.rows; r++)
                    for (int64_t c = 0; c < y.s.cols; c++) {
                        const int64_t i = first ? r % s.rows : r / p, j = first ? c % s.cols : c / q;
                        const double f = first ? d.get({r / s.rows, c / s.cols}) : d.get({r % p, c % q});
                        ASSERT_EQ(round_to(x.at(h, i, j) * f, b->dtype), y.at(h, r, c));
                    }
            if (!first && p > 0 && q > 0 && n % 20) {
                ASSERT_EQ(a->layout->blocks, b->layout->blocks);
                ASSERT_EQ(s.block_rows * p, y.s.block_rows);
            }
            ASSERT_TRUE(n % 20 != 0 || first || y.s.block_rows == 60);
        }
    }
}

TEST(Triangle, KeepsItsElementsAndTheirBlocks) {
    std::mt19937_64 random(6);
    for (int n = 0; n < rounds(800); n++) {
        const tartan_shape s = random_shape(random);
        const Matrix a = any_matrix(s, random);
        const int64_t offset =
            n % 10 == 0 ? (n % 20 ? INT64_MAX : INT64_MIN) : below(random, s.rows + s.cols + 5) - s.rows - 2;
        const int32_t triangle = 1 + n % 2;
        const Matrix b = made([&](tartan_context *context, tartan_matrix **out) {
            return tartan_matrix_triangle(context, a.get(), triangle, offset, out);
        });
        expect_from(b.get(), a.get(), [&](int64_t, int64_t &i, int64_t &j) {
            return triangle == TARTAN_LOWER ? j - i <= offset : j - i >= offset;
        });
        ASSERT_EQ(b->layout->blocks == a->layout->blocks, a->layout == b->layout);
    }
}

TEST(DropZeros, KeepsWhatIsAboveTheTolerance) {
    std::mt19937_64 random(7);
    for (int n = 0; n < rounds(300); n++) {
        const tartan_shape s = random_shape(random);
        Dense dense(TARTAN_F64, dense_shape(s));
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t r = 0; r < s.rows; r++)
                for (int64_t c = 0; c < s.cols; c++)
                    dense.set(index_of(s, h, r, c), random() % 20 == 0 ? (random() % 3 ? 1.5 : NAN)
                                                    : random() % 9     ? 0
                                                                       : -0.25);
        const Matrix a = from_dense(random_layout(s, 0.7, random()), dense, 0, n % 2);
        const double tolerance = n % 3 ? 0.25 : 0;
        const Matrix b = made([&](tartan_context *context, tartan_matrix **out) {
            return tartan_matrix_drop_zeros(context, a.get(), tolerance, out);
        });
        const Elements x(a.get()), y(b.get());
        std::set<std::vector<int64_t>> kept;
        auto block = [&](int64_t h, int64_t r, int64_t c) {
            return std::vector<int64_t>{h, r / s.block_rows, c / s.block_cols};
        };
        for (int pass = 0; pass < 2; pass++)
            for (int64_t h = 0; h < s.heads; h++)
                for (int64_t r = 0; r < s.rows; r++)
                    for (int64_t c = 0; c < s.cols; c++) {
                        if (pass == 0 && !(std::fabs(x.at(h, r, c)) <= tolerance))
                            kept.insert(block(h, r, c));
                        ASSERT_TRUE(pass == 0 ||
                                    same(kept.count(block(h, r, c)) ? x.at(h, r, c) : 0, y.at(h, r, c)));
                    }
        ASSERT_EQ((int64_t)kept.size(), b->layout->blocks);
    }
}

TEST(Structure, KeepsTheBitsOfNaN) {
    const tartan_shape s = {4, 4, 2, 2, 1};
    uint64_t bits[16];
    for (int i = 0; i < 16; i++) bits[i] = 0x7ff00000000007a2 + (uint64_t)i;
    tartan_array values;
    const int64_t shape[] = {4, 2, 2};
    ASSERT_OK(tartan_array_init(bits, TARTAN_F64, 3, shape, nullptr, &values));
    const Layout layout = from_mask(s, {1, 1, 1, 1});
    tartan_matrix *raw = nullptr, *out = nullptr;
    ASSERT_OK(tartan_matrix_wrap(layout.get(), &values, nullptr, nullptr, &raw));
    const Matrix a(raw);
    const int64_t last_row[] = {3, 0};
    ASSERT_OK(tartan_matrix_cut(cpu(), raw, 1, 4, 1, 4, &out));
    EXPECT_EQ(bits[3], *(const uint64_t *)out->values); // (1, 1)
    tartan_matrix_free(out);
    ASSERT_OK(tartan_matrix_select(cpu(), raw, last_row, 2, nullptr, 0, &out));
    EXPECT_EQ(bits[10], *(const uint64_t *)out->values); // (3, 0)
    tartan_matrix_free(out);
    ASSERT_OK(tartan_matrix_triangle(cpu(), raw, TARTAN_UPPER, 0, &out));
    EXPECT_EQ(bits[1], ((const uint64_t *)out->values)[1]);
    tartan_matrix_free(out);
}

TEST(Structure, RefusesWhatDoesNotFit) {
    std::mt19937_64 random(8);
    const tartan_shape s = {8, 12, 4, 4, 1};
    const Matrix a = random_matrix(s, TARTAN_F64, 0, random, 1), far = on_device(a->layout),
                 two = random_matrix({8, 12, 4, 4, 2}, TARTAN_F64, 0, random),
                 odd = random_matrix({9, 13, 4, 4, 1}, TARTAN_F64, 0, random);
    const int64_t list[] = {0, 12}, low[] = {-1};
    tartan_matrix *out = nullptr;
    auto join = [&](int32_t direction, const tartan_matrix *x, const tartan_matrix *y) {
        const tartan_matrix *const both[] = {x, y};
        return tartan_matrix_concatenate(cpu(), direction, both, 2, &out);
    };
    EXPECT_FAILS(ARGUMENT, "row_begin .. row_end is 2 .. 9",
                 tartan_matrix_cut(cpu(), a.get(), 2, 9, 0, 1, &out));
    EXPECT_FAILS(ARGUMENT, "col_begin .. col_end is 3 .. 2",
                 tartan_matrix_cut(cpu(), a.get(), 2, 3, 3, 2, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix has", tartan_matrix_cut(cpu(), far.get(), 2, 3, 2, 3, &out));
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_matrix_cut(nullptr, a.get(), 2, 3, 2, 3, &out));
    EXPECT_FAILS(ARGUMENT, "blocks of 0 x 4", tartan_matrix_reblock(cpu(), a.get(), 0, 4, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix has", tartan_matrix_reblock(cpu(), far.get(), 2, 2, &out));
    EXPECT_FAILS(LAYOUT, "rows[0] is -1", tartan_matrix_select(cpu(), a.get(), low, 1, nullptr, 0, &out));
    EXPECT_FAILS(LAYOUT, "cols[1] is 12", tartan_matrix_select(cpu(), a.get(), nullptr, 0, list, 2, &out));
    EXPECT_FAILS(HANDLE, "rows is NULL", tartan_matrix_select(cpu(), a.get(), nullptr, 2, nullptr, 0, &out));
    EXPECT_FAILS(SHAPE, "ncols is -1", tartan_matrix_select(cpu(), a.get(), nullptr, 0, list, -1, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix has",
                 tartan_matrix_select(cpu(), far.get(), nullptr, 0, list, 1, &out));
    EXPECT_FAILS(ARGUMENT, "direction is 4", join(4, a.get(), a.get()));
    EXPECT_FAILS(SHAPE, "matrices[1] has 2 heads", join(1, a.get(), two.get()));
    EXPECT_FAILS(SHAPE, "matrices[1] has 13 columns", join(TARTAN_DOWN, a.get(), odd.get()));
    EXPECT_FAILS(SHAPE, "matrices[1] has 9 rows", join(TARTAN_RIGHTWARD, a.get(), odd.get()));
    EXPECT_FAILS(UNSUPPORTED, "matrices[1] has", join(1, a.get(), far.get()));
    EXPECT_FAILS(HANDLE, "matrices[0]", join(1, nullptr, a.get()));
    EXPECT_FAILS(HANDLE, "matrices is NULL", tartan_matrix_concatenate(cpu(), 1, nullptr, 1, &out));
    EXPECT_FAILS(SHAPE, "nmatrices is 0", tartan_matrix_concatenate(cpu(), 1, nullptr, 0, &out));
    const Dense vector(TARTAN_F64, {3}), square(TARTAN_F64, {2, 2});
    EXPECT_FAILS(SHAPE, "expected [p, q]",
                 tartan_matrix_kronecker(cpu(), a.get(), &vector.array, 0, 0, &out));
    EXPECT_FAILS(DTYPE, "dtype is 7", tartan_matrix_kronecker(cpu(), a.get(), &square.array, 0, 7, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix has",
                 tartan_matrix_kronecker(cpu(), far.get(), &square.array, 0, 0, &out));
    EXPECT_FAILS(ARGUMENT, "triangle is 0", tartan_matrix_triangle(cpu(), a.get(), 0, 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix has", tartan_matrix_triangle(cpu(), far.get(), 1, 0, &out));
    EXPECT_FAILS(ARGUMENT, "tolerance is nan", tartan_matrix_drop_zeros(cpu(), a.get(), NAN, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device", tartan_matrix_drop_zeros(cpu(), far.get(), 0, &out));
    EXPECT_EQ(nullptr, out);
}

TEST(Structure, FailsCleanlyWithoutMemory) {
    std::mt19937_64 random(9);
    const tartan_shape s = {9, 9, 4, 4, 1};
    const Matrix a = random_matrix(s, TARTAN_F64, 0, random, 0.8);
    Dense d(TARTAN_F64, {2, 2});
    for (int64_t i = 0; i < 4; i++) d.set({i / 2, i % 2}, 1);
    tartan_matrix *out = nullptr;
    { BRUTAL(tartan_matrix_cut(cpu(), a.get(), 1, 7, 2, 9, &out), tartan_matrix_free(out)); }
    { BRUTAL(tartan_matrix_reblock(cpu(), a.get(), 3, 2, &out), tartan_matrix_free(out)); }
    const tartan_matrix *const twice[] = {a.get(), a.get()};
    { BRUTAL(tartan_matrix_concatenate(cpu(), 3, twice, 2, &out), tartan_matrix_free(out)); }
    const Matrix even = random_matrix({8, 8, 4, 4, 1}, TARTAN_F64, 0, random, 0.8);
    const tartan_matrix *const whole[] = {even.get(), a.get()};
    { BRUTAL(tartan_matrix_concatenate(cpu(), 3, whole, 2, &out), tartan_matrix_free(out)); }
    { BRUTAL(tartan_matrix_kronecker(cpu(), a.get(), &d.array, 1, 0, &out), tartan_matrix_free(out)); }
    { BRUTAL(tartan_matrix_triangle(cpu(), a.get(), 1, -3, &out), tartan_matrix_free(out)); }
    { BRUTAL(tartan_matrix_drop_zeros(cpu(), a.get(), 1.999, &out), tartan_matrix_free(out)); }
}

} // namespace
