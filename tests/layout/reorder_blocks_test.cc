// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "layouts.h"

using namespace tartan_test;

namespace {

struct Orders {
    Indices rows, cols;
};

tartan_shape frame_of(int64_t rows, int64_t cols, int64_t br, int64_t bc) {
    return {rows, cols, br, bc, 1};
}

tartan_array view_of(double *data, int64_t rows, int64_t cols) {
    tartan_array a = {};
    a.data = data, a.dtype = TARTAN_F64, a.device_type = TARTAN_CPU, a.ndim = 2;
    a.shape[0] = rows, a.shape[1] = cols, a.strides[0] = cols, a.strides[1] = 1;
    return a;
}

tartan_status reorder(const tartan_shape &shape, const tartan_array &dense, double density, Orders &out) {
    out.rows.assign((size_t)shape.rows, -1), out.cols.assign((size_t)shape.cols, -1);
    return tartan_reorder_blocks(&shape, &dense, density, out.rows.data(), shape.rows, out.cols.data(),
                                 shape.cols);
}

// Blocks of numbers around 1 at some places of a grid, noise elsewhere, then rows and columns shuffled.
struct Hidden {
    int64_t rows, cols, br, bc;
    double density;
    std::vector<double> dense;
    Hidden(int64_t m, int64_t n, int64_t b, int64_t c, double share, double noise, unsigned seed)
        : rows(m), cols(n), br(b), bc(c), dense((size_t)(m * n)) {
        std::mt19937_64 random(seed);
        std::normal_distribution<double> normal;
        const int64_t R = (m + b - 1) / b, C = (n + c - 1) / c;
        std::vector<uint8_t> stored((size_t)(R * C), 0);
        const auto keep = (int64_t)std::round(share * (double)(R * C));
        std::fill(stored.begin(), stored.begin() + keep, 1);
        std::shuffle(stored.begin(), stored.end(), random);
        density = (double)keep / (double)(R * C);
        Indices p((size_t)m), q((size_t)n);
        std::iota(p.begin(), p.end(), 0), std::iota(q.begin(), q.end(), 0);
        std::shuffle(p.begin(), p.end(), random), std::shuffle(q.begin(), q.end(), random);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                dense[(size_t)(p[(size_t)i] * n + q[(size_t)j])] =
                    normal(random) * (stored[(size_t)(i / b * C + j / c)] ? 1 : noise);
    }
    // The share of the sum of squares that the largest blocks have.
    double gathered(const Orders &o) const {
        const int64_t R = (rows + br - 1) / br, C = (cols + bc - 1) / bc;
        std::vector<double> blocks((size_t)(R * C), 0);
        double all = 0;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) {
                const double x = dense[(size_t)(o.rows[(size_t)i] * cols + o.cols[(size_t)j])];
                blocks[(size_t)(i / br * C + j / bc)] += x * x, all += x * x;
            }
        std::sort(blocks.rbegin(), blocks.rend());
        return std::accumulate(blocks.begin(),
                               blocks.begin() + (int64_t)std::round(density * (double)(R * C)), 0.0) /
               all;
    }
    tartan_shape shape() const { return frame_of(rows, cols, br, bc); }
};

bool is_order(Indices order) {
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); i++)
        if (order[i] != (int64_t)i) return false;
    return true;
}

Orders unchanged(int64_t rows, int64_t cols) {
    Orders o{Indices((size_t)rows), Indices((size_t)cols)};
    std::iota(o.rows.begin(), o.rows.end(), 0), std::iota(o.cols.begin(), o.cols.end(), 0);
    return o;
}

TEST(ReorderBlocks, FindsAHiddenStructure) {
    for (unsigned seed = 1; seed <= 3; seed++)
        for (const auto &[m, n, b, c] : {std::tuple{128, 128, 16, 16}, {96, 160, 8, 16}, {120, 64, 8, 8}}) {
            Hidden h(m, n, b, c, 0.3, 0, seed);
            Orders found;
            ASSERT_EQ(reorder(h.shape(), view_of(h.dense.data(), m, n), h.density, found), TARTAN_OK);
            EXPECT_TRUE(is_order(found.rows) && is_order(found.cols));
            EXPECT_NEAR(h.gathered(found), 1, 1e-12) << m << " x " << n << " seed " << seed;
            EXPECT_LT(h.gathered(unchanged(m, n)), 0.6);
        }
}

TEST(ReorderBlocks, FindsAHiddenStructureUnderNoise) {
    Hidden h(192, 128, 16, 16, 0.25, 0.1, 7), bare(192, 128, 16, 16, 0.25, 0, 7);
    Orders found, known;
    ASSERT_EQ(reorder(h.shape(), view_of(h.dense.data(), 192, 128), h.density, found), TARTAN_OK);
    ASSERT_EQ(reorder(h.shape(), view_of(bare.dense.data(), 192, 128), h.density, known), TARTAN_OK);
    ASSERT_NEAR(bare.gathered(known), 1, 1e-12);
    EXPECT_NEAR(h.gathered(found), h.gathered(known), 1e-12);
}

// No exchange of two rows makes the sum in the largest blocks larger.
TEST(ReorderBlocks, IsBetterThanNoChangeOfRaggedMatrices) {
    Hidden h(37, 29, 8, 4, 0.4, 0.5, 3);
    Orders found;
    ASSERT_EQ(reorder(h.shape(), view_of(h.dense.data(), 37, 29), h.density, found), TARTAN_OK);
    ASSERT_TRUE(is_order(found.rows) && is_order(found.cols));
    const double best = h.gathered(found);
    EXPECT_GT(best, h.gathered(unchanged(37, 29)));
    for (size_t i = 0; i < 37; i++) {
        if (i % 8 != 0) {
            EXPECT_LT(found.rows[i - 1], found.rows[i]);
        }
    }
}

TEST(ReorderBlocks, DoesNotDependOnStridesOrDtypes) {
    Hidden h(40, 24, 8, 8, 0.4, 0, 5);
    std::vector<double> turned(h.dense.size());
    std::vector<float> single(h.dense.size());
    for (size_t i = 0; i < 40; i++)
        for (size_t j = 0; j < 24; j++) {
            h.dense[i * 24 + j] = (double)(float)h.dense[i * 24 + j];
            turned[j * 40 + i] = h.dense[i * 24 + j], single[i * 24 + j] = (float)h.dense[i * 24 + j];
        }
    tartan_array across = view_of(turned.data(), 40, 24), narrow = view_of(h.dense.data(), 40, 24);
    across.strides[0] = 1, across.strides[1] = 40;
    narrow.data = single.data(), narrow.dtype = TARTAN_F32;
    Orders first, second, third;
    ASSERT_EQ(reorder(h.shape(), view_of(h.dense.data(), 40, 24), h.density, first), TARTAN_OK);
    ASSERT_EQ(reorder(h.shape(), across, h.density, second), TARTAN_OK);
    ASSERT_EQ(reorder(h.shape(), narrow, h.density, third), TARTAN_OK);
    EXPECT_TRUE(first.rows == second.rows && first.cols == second.cols && first.rows == third.rows &&
                first.cols == third.cols);
}

TEST(ReorderBlocks, EmptyAndPlainMatrices) {
    Orders found;
    double none = 0;
    ASSERT_EQ(reorder(frame_of(0, 3, 2, 2), view_of(&none, 0, 3), 0.5, found), TARTAN_OK);
    EXPECT_EQ(found.cols, (Indices{0, 1, 2}));
    std::vector<double> zeros(20, 0), ones(20, 1);
    for (double density : {0.0, 0.5, 1.0})
        for (auto *x : {&zeros, &ones}) {
            ASSERT_EQ(reorder(frame_of(4, 5, 2, 2), view_of(x->data(), 4, 5), density, found), TARTAN_OK);
            EXPECT_EQ(found.rows, (Indices{0, 1, 2, 3}));
            EXPECT_EQ(found.cols, (Indices{0, 1, 2, 3, 4}));
        }
}

TEST(ReorderBlocks, EveryAllocationMayFail) {
    Hidden h(10, 9, 4, 4, 0.5, 0, 1);
    Orders o;
    BRUTAL(reorder(h.shape(), view_of(h.dense.data(), 10, 9), h.density, o), (void)0);
}

TEST(ReorderBlocks, RefusesBadInput) {
    std::vector<double> x(12, 1);
    Orders o;
    const tartan_shape shape = frame_of(3, 4, 2, 2);
    const tartan_array dense = view_of(x.data(), 3, 4);
    EXPECT_FAILS(ARGUMENT, "density is 1.5, expected 0 .. 1", reorder(shape, dense, 1.5, o));
    EXPECT_FAILS(ARGUMENT, "density is nan", reorder(shape, dense, NAN, o));
    EXPECT_FAILS(SHAPE, "dense has shape [3, 4], expected [4, 4]",
                 reorder(frame_of(4, 4, 2, 2), dense, 0.5, o));
    tartan_shape heads = shape;
    heads.heads = 2;
    EXPECT_FAILS(UNSUPPORTED, "shape.heads is 2, expected 1", reorder(heads, dense, 0.5, o));
    EXPECT_FAILS(HANDLE, "dense is NULL",
                 tartan_reorder_blocks(&shape, nullptr, 0.5, o.rows.data(), 3, o.cols.data(), 4));
    EXPECT_FAILS(SHAPE, "out_row_order has 2",
                 tartan_reorder_blocks(&shape, &dense, 0.5, o.rows.data(), 2, o.cols.data(), 4));
    EXPECT_FAILS(HANDLE, "out_col_order is NULL",
                 tartan_reorder_blocks(&shape, &dense, 0.5, o.rows.data(), 3, nullptr, 4));
    x[6] = std::numeric_limits<double>::infinity();
    o.rows.assign(3, -1);
    o.cols.assign(4, -1);
    EXPECT_FAILS(ARGUMENT, "dense has inf at [1, 2], expected finite numbers", reorder(shape, dense, 0.5, o));
    EXPECT_EQ(o.rows, (Indices{-1, -1, -1}));
}

} // namespace
