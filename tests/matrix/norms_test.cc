// SPDX-License-Identifier: Apache-2.0
#include "matrix_support.h"

using namespace tartan_test;

namespace {

std::vector<double> norms_of(const tartan_matrix *m, int32_t norm) {
    std::vector<double> norms((size_t)tartan_layout_blocks(m->layout), -1);
    EXPECT_OK(tartan_matrix_block_norms(cpu(), m, norm, norms.data(), (int64_t)norms.size()));
    return norms;
}

TEST(Norms, AgainstPlainLoops) {
    std::mt19937_64 random(1);
    for (int n = 0; n < rounds(200); n++) {
        tartan_shape s = random_shape(random);
        Matrix a = random_matrix(s, all_dtypes[n % 4], n / 4 % 2, random);
        std::vector<double> all = elements_of(a.get());
        std::vector<double> max = norms_of(a.get(), TARTAN_NORM_MAX), l1 = norms_of(a.get(), TARTAN_NORM_L1),
                            l2 = norms_of(a.get(), TARTAN_NORM_L2);
        const tartan_layout *l = a->layout;
        for (int64_t id = 0; id < l->blocks; id++) {
            int64_t head = tartan_i_layout_head(l, id);
            double largest = 0, sum = 0, squares = 0;
            for (int64_t r = l->block_rows[id] * s.block_rows;
                 r < std::min(s.rows, (l->block_rows[id] + 1) * s.block_rows); r++)
                for (int64_t c = l->block_cols[id] * s.block_cols;
                     c < std::min(s.cols, (l->block_cols[id] + 1) * s.block_cols); c++) {
                    double x = std::fabs(all[(size_t)((head * s.rows + r) * s.cols + c)]);
                    largest = std::max(largest, x);
                    sum += x;
                    squares += x * x;
                }
            ASSERT_EQ(largest, max[(size_t)id]);
            ASSERT_NEAR(sum, l1[(size_t)id], 1e-13 * sum);
            ASSERT_NEAR(std::sqrt(squares), l2[(size_t)id], 1e-14 * std::sqrt(squares));
        }
    }
}

Matrix row_of(std::vector<double> x) {
    tartan_shape s = {1, (int64_t)x.size(), 1, (int64_t)x.size(), 1};
    Layout layout = from_mask(s, {1});
    Dense dense(TARTAN_F64, {1, (int64_t)x.size()});
    for (size_t i = 0; i < x.size(); i++) dense.set({0, (int64_t)i}, x[i]);
    return from_dense(layout, dense);
}

TEST(Norms, L2NeitherOverflowsNorUnderflows) {
    for (double unit : {1e300, 1e200, 1e155, 1.0, 1e-140, 1e-160, 1e-200, 1e-300}) {
        double is = norms_of(row_of({3 * unit, -4 * unit}).get(), TARTAN_NORM_L2)[0];
        EXPECT_NEAR(5, is / unit, 1e-14) << unit;
    }
    EXPECT_EQ(5e-324, norms_of(row_of({5e-324, 0}).get(), TARTAN_NORM_L2)[0]);
    EXPECT_EQ(0, norms_of(row_of({0, -0.0}).get(), TARTAN_NORM_L2)[0]);
    // Small ones beside large ones count as far as f64 can tell.
    EXPECT_EQ(1e200, norms_of(row_of({1e200, 1e-200}).get(), TARTAN_NORM_L2)[0]);
}

TEST(Norms, NaNAndInfinityShow) {
    for (int32_t norm : {TARTAN_NORM_MAX, TARTAN_NORM_L1, TARTAN_NORM_L2}) {
        EXPECT_TRUE(std::isnan(norms_of(row_of({1, std::nan(""), 2}).get(), norm)[0]));
        EXPECT_TRUE(std::isnan(norms_of(row_of({std::nan(""), INFINITY, 2}).get(), norm)[0]));
        EXPECT_TRUE(std::isnan(norms_of(row_of({INFINITY, 1, std::nan("")}).get(), norm)[0]));
        EXPECT_EQ(INFINITY, norms_of(row_of({1, -INFINITY}).get(), norm)[0]);
    }
}

TEST(Norms, Refuses) {
    std::mt19937_64 random(2);
    Matrix a = random_matrix({10, 7, 4, 3, 1}, TARTAN_F64, 0, random, 1), gpu = on_device(a->layout);
    std::vector<double> out(9, -1);
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_matrix_block_norms(nullptr, a.get(), 1, out.data(), 9));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_block_norms(cpu(), nullptr, 1, out.data(), 9));
    EXPECT_FAILS(ARGUMENT, "norm is 0", tartan_matrix_block_norms(cpu(), a.get(), 0, out.data(), 9));
    EXPECT_FAILS(ARGUMENT, "norm is 4", tartan_matrix_block_norms(cpu(), a.get(), 4, out.data(), 9));
    EXPECT_FAILS(SHAPE, "out_norms has 8", tartan_matrix_block_norms(cpu(), a.get(), 1, out.data(), 8));
    EXPECT_FAILS(HANDLE, "out_norms is NULL", tartan_matrix_block_norms(cpu(), a.get(), 1, nullptr, 9));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:1, expected 1:0",
                 tartan_matrix_block_norms(cpu(), gpu.get(), 1, out.data(), 9));
    EXPECT_FAILS(ARGUMENT, "out_norms overlaps",
                 tartan_matrix_block_norms(cpu(), a.get(), 1, (double *)a->values, 9));
    EXPECT_EQ(std::vector<double>(9, -1), out);
}

} // namespace
