// SPDX-License-Identifier: Apache-2.0
// Diagonals of matrices against dense oracles.
#include "matrix_support.h"

using namespace tartan_test;

namespace {

int64_t length_of(const tartan_shape &s, int64_t offset) {
    return std::max<int64_t>(
        0, std::min(s.rows - std::max<int64_t>(0, -offset), s.cols - std::max<int64_t>(0, offset)));
}

// The index of element i of the diagonal in elements_of.
size_t place(const tartan_shape &s, int64_t head, int64_t offset, int64_t i) {
    const int64_t row = i + std::max<int64_t>(0, -offset), col = i + std::max<int64_t>(0, offset);
    return (size_t)((head * s.rows + row) * s.cols + col);
}

int64_t any_offset(const tartan_shape &s, std::mt19937_64 &random) {
    return random() % 3 == 0 ? 0 : (int64_t)(random() % (uint64_t)(s.rows + s.cols + 1)) - s.rows;
}

TEST(Diagonal, IsReadAsTheElementsAre) {
    std::mt19937_64 random(1);
    for (int n = 0; n < rounds(1000); n++) {
        const tartan_shape s = random_shape(random);
        const Matrix a = random_matrix(s, all_dtypes[random() % 6], (int32_t)(random() % 2), random);
        const int64_t offset = any_offset(s, random), length = length_of(s, offset);
        std::vector<double> diagonal((size_t)(s.heads * length), 7);
        ASSERT_OK(
            tartan_matrix_get_diagonal(cpu(), a.get(), offset, diagonal.data(), (int64_t)diagonal.size()));
        const std::vector<double> x = elements_of(a.get());
        std::vector<double> sums((size_t)s.heads), traces((size_t)s.heads, 7);
        for (int64_t h = 0; h < s.heads; h++) {
            for (int64_t i = 0; i < length; i++)
                ASSERT_EQ(x[place(s, h, offset, i)], diagonal[(size_t)(h * length + i)]);
            for (int64_t i = 0; i < length; i++) sums[(size_t)h] += x[place(s, h, offset, i)];
        }
        ASSERT_OK(tartan_matrix_trace(cpu(), a.get(), offset, traces.data(), s.heads));
        ASSERT_EQ(sums, traces);
    }
}

TEST(Diagonal, IsAddedWithTheBlocksThatItCrosses) {
    std::mt19937_64 random(2);
    for (int n = 0; n < rounds(1000); n++) {
        const tartan_shape s = random_shape(random);
        const Matrix a = random_matrix(s, all_dtypes[random() % 6], (int32_t)(random() % 2), random);
        const int64_t offset = any_offset(s, random), length = length_of(s, offset);
        const int64_t count = n % 3 == 0 ? 1 : n % 3 == 1 ? length : s.heads * length;
        const std::vector<double> d = random_values((size_t)count, random());
        const double alpha = n % 2 ? -1 : 1;
        const int32_t dtype = n % 4 ? 0 : (int32_t)TARTAN_F64;
        tartan_matrix *raw = nullptr;
        ASSERT_OK(tartan_matrix_add_diagonal(n % 2 ? five_workers.get() : one_worker.get(), alpha, a.get(),
                                             offset, d.data(), count, dtype, &raw));
        const Matrix b(raw);
        ASSERT_TRUE(padding_is_zero(raw));
        ASSERT_OK(tartan_matrix_check(raw, 1));
        const std::vector<double> x = elements_of(a.get()), y = elements_of(raw);
        std::vector<double> want(x);
        for (auto &v : want) v = round_to(alpha * v, raw->dtype);
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t i = 0; i < length; i++) {
                const size_t at = place(s, h, offset, i);
                const size_t k = (size_t)(n % 3 == 0 ? 0 : n % 3 == 1 ? i : h * length + i);
                want[at] = round_to(alpha * x[at] + d[count == 1 ? 0 : k], raw->dtype);
                const int64_t row = i + std::max<int64_t>(0, -offset), col = i + std::max<int64_t>(0, offset);
                ASSERT_GE(tartan_i_layout_find(b->layout, h, row / s.block_rows, col / s.block_cols), 0);
            }
        ASSERT_EQ(want, y);

        tartan_layout *grown = nullptr;
        ASSERT_OK(tartan_layout_add_diagonal(a->layout, offset, &grown));
        const Layout layout(grown);
        ASSERT_EQ(1, tartan_layout_equal(grown, b->layout));
        ASSERT_OK(tartan_layout_add_diagonal(grown, offset, &grown));
        ASSERT_EQ(layout.get(), grown); // nothing is missing
        tartan_layout_free(grown);
    }
}

TEST(Diagonal, IsWrittenInPlaceOrNotAtAll) {
    std::mt19937_64 random(3);
    int refused = 0;
    for (int n = 0; n < rounds(1000); n++) {
        const tartan_shape s = random_shape(random);
        const Matrix a = random_matrix(s, all_dtypes[random() % 6], (int32_t)(random() % 2), random, 0.7);
        const int64_t offset = any_offset(s, random), length = length_of(s, offset);
        std::vector<double> d = random_values((size_t)(s.heads * length), random()),
                            want = elements_of(a.get());
        const std::vector<double> before = want;
        bool stored = true;
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t i = 0; i < length; i++) {
                const int64_t row = i + std::max<int64_t>(0, -offset), col = i + std::max<int64_t>(0, offset);
                const bool here =
                    tartan_i_layout_find(a->layout, h, row / s.block_rows, col / s.block_cols) >= 0;
                if (!here && n % 2) d[(size_t)(h * length + i)] = 0; // ignored
                stored = stored && (here || n % 2);
                if (here) want[place(s, h, offset, i)] = round_to(d[(size_t)(h * length + i)], a->dtype);
            }
        const tartan_status status =
            tartan_matrix_set_diagonal(cpu(), a.get(), offset, d.data(), (int64_t)d.size());
        ASSERT_EQ(stored ? TARTAN_OK : TARTAN_ERR_LAYOUT, status) << tartan_last_error();
        refused += !stored;
        ASSERT_EQ(stored ? want : before, elements_of(a.get()));
    }
    EXPECT_GT(refused, 0);
}

TEST(Diagonal, RefusesWhatDoesNotFit) {
    std::mt19937_64 random(4);
    const tartan_shape s = {8, 12, 4, 4, 2};
    const Matrix a = random_matrix(s, TARTAN_F64, 0, random, 0.3), far = on_device(a->layout);
    double d[24] = {0};
    tartan_matrix *out = nullptr;
    tartan_layout *layout = nullptr;
    EXPECT_FAILS(ARGUMENT, "offset is 13", tartan_matrix_get_diagonal(cpu(), a.get(), 13, d, 0));
    EXPECT_FAILS(ARGUMENT, "offset is -9", tartan_layout_add_diagonal(a->layout, -9, &layout));
    EXPECT_FAILS(SHAPE, "expected 16", tartan_matrix_get_diagonal(cpu(), a.get(), 0, d, 8));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device", tartan_matrix_get_diagonal(cpu(), far.get(), 0, d, 16));
    EXPECT_FAILS(ARGUMENT, "overlaps",
                 tartan_matrix_get_diagonal(cpu(), a.get(), 0, (double *)a->values, 16));
    EXPECT_FAILS(ARGUMENT, "overlaps",
                 tartan_matrix_set_diagonal(cpu(), a.get(), 0, (double *)a->values, 16));
    EXPECT_FAILS(SHAPE, "diagonal has 9", tartan_matrix_set_diagonal(cpu(), a.get(), 0, d, 9));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device", tartan_matrix_set_diagonal(cpu(), far.get(), 0, d, 16));
    EXPECT_FAILS(SHAPE, "diagonal has 7", tartan_matrix_add_diagonal(cpu(), 1, a.get(), 0, d, 7, 0, &out));
    EXPECT_FAILS(ARGUMENT, "alpha is",
                 tartan_matrix_add_diagonal(cpu(), INFINITY, a.get(), 0, d, 8, 0, &out));
    EXPECT_FAILS(DTYPE, "dtype is 9", tartan_matrix_add_diagonal(cpu(), 1, a.get(), 0, d, 8, 9, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device",
                 tartan_matrix_add_diagonal(cpu(), 1, far.get(), 0, d, 8, 0, &out));
    EXPECT_FAILS(SHAPE, "heads", tartan_matrix_trace(cpu(), a.get(), 0, d, 1));
    EXPECT_FAILS(ARGUMENT, "overlaps", tartan_matrix_trace(cpu(), a.get(), 0, (double *)a->values, 2));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device", tartan_matrix_trace(cpu(), far.get(), 0, d, 2));
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_layout_add_diagonal(nullptr, 0, &layout));
    EXPECT_EQ(nullptr, out);
}

TEST(Diagonal, FailsCleanlyWithoutMemory) {
    std::mt19937_64 random(5);
    const Matrix a = random_matrix({9, 9, 4, 4, 1}, TARTAN_F64, 0, random, 0);
    const double one = 1;
    tartan_matrix *out = nullptr;
    tartan_layout *layout = nullptr;
    { BRUTAL(tartan_matrix_add_diagonal(cpu(), 1, a.get(), 0, &one, 1, 0, &out), tartan_matrix_free(out)); }
    { BRUTAL(tartan_layout_add_diagonal(a->layout, 0, &layout), tartan_layout_free(layout)); }
}

} // namespace
