// SPDX-License-Identifier: Apache-2.0
// Products of two block-sparse matrices against plain loops in f64.
#include "matrix_support.h"

#include <cmath>
#include <limits>

using namespace tartan_test;

namespace {

// The product of elements that are stored: one chain of fused multiply-adds in the order of k, rounded once.
std::vector<double> product(const Matrix &a, const Matrix &b, int32_t dtype) {
    const tartan_shape &s = a->layout->shape, &t = b->layout->shape;
    const std::vector<double> x = elements_of(a.get()), y = elements_of(b.get());
    std::vector<double> z((size_t)(s.heads * s.rows * t.cols));
    for (int64_t h = 0; h < s.heads; h++)
        for (int64_t i = 0; i < s.rows; i++)
            for (int64_t j = 0; j < t.cols; j++) {
                double sum = 0;
                for (int64_t k = 0; k < s.cols; k++)
                    sum = std::fma(x[(size_t)((h * s.rows + i) * s.cols + k)],
                                   y[(size_t)((h * t.rows + k) * t.cols + j)], sum);
                z[(size_t)((h * s.rows + i) * t.cols + j)] = round_to(sum, dtype);
            }
    return z;
}

tartan_shape right_of(const tartan_shape &s, std::mt19937_64 &random) {
    tartan_shape t = random_shape(random);
    return {s.cols, t.cols, s.block_cols, t.block_cols, s.heads};
}

TEST(Multiply, IsTheProductOfTheElements) {
    std::mt19937_64 random(1);
    for (int n = 0; n < rounds(600); n++) {
        const tartan_shape s = random_shape(random), t = right_of(s, random);
        const Matrix a = random_matrix(s, all_dtypes[random() % 6], n % 2, random),
                     b = random_matrix(t, all_dtypes[random() % 6], n / 2 % 2, random);
        const int32_t dtype = n % 4 ? 0 : all_dtypes[random() % 6];
        const Matrix c = made([&](tartan_context *context, tartan_matrix **out) {
            return tartan_matrix_multiply(context, a.get(), b.get(), dtype, out);
        });
        ASSERT_EQ(a->block_order, c->block_order);
        ASSERT_TRUE(dtype == 0 || dtype == c->dtype);
        const std::vector<double> want = product(a, b, c->dtype), got = elements_of(c.get());
        for (size_t i = 0; i < want.size(); i++) ASSERT_TRUE(same(want[i], got[i])) << i;
    }
}

// Strips of several vectors, more pairs than one batch, factors that are read in place and copied ones.
TEST(Multiply, LargeBlocksAndLongSums) {
    std::mt19937_64 random(4);
    for (int n = 0; n < rounds(16); n++) {
        const int64_t rows = n % 4 < 2 ? 32 : 40, cols = n % 4 < 2 ? 64 : 72;
        const tartan_shape s = {2 * rows - n % 2, 480, rows, 24, 1}, t = {480, 2 * cols - n % 2, 24, cols, 1};
        const Matrix a = random_matrix(s, n & 4 ? TARTAN_F64 : TARTAN_F32, n / 8, random),
                     b = random_matrix(t, TARTAN_F64, n / 2 % 2, random);
        const Matrix c = made([&](tartan_context *context, tartan_matrix **out) {
            return tartan_matrix_multiply(context, a.get(), b.get(), 0, out);
        });
        const std::vector<double> want = product(a, b, c->dtype), got = elements_of(c.get());
        for (size_t i = 0; i < want.size(); i++) ASSERT_TRUE(same(want[i], got[i])) << i;
    }
}

TEST(Multiply, StoresTheBlocksThatMeet) {
    const tartan_shape s = {4, 6, 2, 2, 1}, t = {6, 3, 2, 1, 1};
    std::mt19937_64 random(2);
    const Layout left = from_mask(s, {1, 0, 1, 0, 0, 0}), right = from_mask(t, {1, 0, 0, 0, 1, 0, 1, 1, 0}),
                 want = from_mask({4, 3, 2, 1, 1}, {1, 1, 0, 0, 0, 0});
    const Matrix a = from_dense(left, random_dense(s, TARTAN_F64, random)),
                 b = from_dense(right, random_dense(t, TARTAN_F32, random));
    const Matrix c = made([&](tartan_context *context, tartan_matrix **out) {
        return tartan_matrix_multiply(context, a.get(), b.get(), 0, out);
    });
    EXPECT_EQ(1, tartan_layout_equal(want.get(), c->layout));
    EXPECT_EQ(TARTAN_F64, c->dtype);
}

TEST(Multiply, TouchesNoPaddingAndNoBlockThatIsNotStored) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const tartan_shape s = {3, 3, 2, 2, 1};
    const Layout layout = from_mask(s, {1, 0, 0, 1});
    std::vector<double> values(8, 1);
    values[5] = values[6] = values[7] = nan; // the padding of the last block
    tartan_array array;
    const int64_t shape[] = {2, 2, 2};
    ASSERT_OK(tartan_array_init(values.data(), TARTAN_F64, 3, shape, nullptr, &array));
    tartan_matrix *raw = nullptr;
    ASSERT_OK(tartan_matrix_wrap(layout.get(), &array, nullptr, nullptr, &raw));
    const Matrix a(raw);
    const Matrix c = made([&](tartan_context *context, tartan_matrix **out) {
        return tartan_matrix_multiply(context, a.get(), a.get(), 0, out);
    });
    EXPECT_EQ((std::vector<double>{2, 2, 0, 2, 2, 0, 0, 0, 1}), elements_of(c.get()));
}

TEST(Multiply, Refuses) {
    std::mt19937_64 random(3);
    const Matrix a = random_matrix({8, 6, 4, 2, 1}, TARTAN_F32, 0, random),
                 fine = random_matrix({6, 8, 2, 4, 1}, TARTAN_F32, 0, random),
                 other = random_matrix({6, 8, 3, 4, 1}, TARTAN_F32, 0, random),
                 two = random_matrix({6, 8, 2, 4, 2}, TARTAN_F32, 0, random), far = on_device(fine->layout);
    tartan_matrix *out = nullptr;
    tartan_context *none = nullptr;
    EXPECT_FAILS(SHAPE, "b has 8 rows and 1 heads, expected 6 rows",
                 tartan_matrix_multiply(cpu(), a.get(), a.get(), 0, &out));
    EXPECT_FAILS(SHAPE, "2 heads", tartan_matrix_multiply(cpu(), a.get(), two.get(), 0, &out));
    EXPECT_FAILS(SHAPE, "blocks of 3 rows, expected 2",
                 tartan_matrix_multiply(cpu(), a.get(), other.get(), 0, &out));
    EXPECT_FAILS(DTYPE, "dtype is 7", tartan_matrix_multiply(cpu(), a.get(), fine.get(), TARTAN_U8, &out));
    EXPECT_FAILS(UNSUPPORTED, "b has its values on",
                 tartan_matrix_multiply(cpu(), a.get(), far.get(), 0, &out));
    EXPECT_FAILS(HANDLE, "a is NULL", tartan_matrix_multiply(cpu(), nullptr, fine.get(), 0, &out));
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_matrix_multiply(none, a.get(), fine.get(), 0, &out));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_matrix_multiply(cpu(), a.get(), fine.get(), 0, nullptr));
    EXPECT_EQ(nullptr, out);
    BRUTAL(tartan_matrix_multiply(cpu(), a.get(), fine.get(), 0, &out), tartan_matrix_free(out));
}

} // namespace
