// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "layouts.h"

extern "C" {
#include "core/dtype.h"
}

using namespace tartan_test;

namespace {

const int32_t kDtypes[] = {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16, TARTAN_F8E4M3, TARTAN_F8E5M2};

// Numbers [heads, rows, cols] as a dense operand of a dtype, in one of four ways to lay out memory.
struct Dense {
    std::vector<double> numbers;
    std::vector<char> memory;
    tartan_array array{};

    Dense(const tartan_shape &s, std::vector<double> x, int32_t dtype, int way) : numbers(std::move(x)) {
        int64_t r = s.rows, c = s.cols, row = 0, col = 0, head = 0, first = 0, size = 0;
        if (way == 0) row = c, col = 1, head = r * c, size = s.heads * r * c;              // row-major
        if (way == 1) row = 1, col = r, head = r * c, size = s.heads * r * c;              // column-major
        if (way == 2) row = 2 * c + 3, col = 2, head = r * row, size = s.heads * head + 1; // with gaps
        if (way == 3)
            row = -c, col = 1, head = r * c, first = (r - 1) * c, size = s.heads * r * c; // upside down
        if (r == 0) first = 0;
        memory.assign((size_t)((size + 8) * 8), 0x7f); // what lies between is not zero and must not count
        int64_t shape[3] = {s.heads, r, c}, strides[3] = {head, row, col};
        int32_t skip = s.heads == 1;
        EXPECT_OK(tartan_array_init(memory.data() + first * tartan_dtype_bytes(dtype), dtype, 3 - skip,
                                    shape + skip, strides + skip, &array));
        size_t k = 0;
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t i = 0; i < r; i++)
                for (int64_t j = 0; j < c; j++)
                    tartan_i_store(array.data, dtype, h * head + i * row + j * col, numbers[k++]);
    }
};

std::vector<double> sparse_numbers(const tartan_shape &s, std::mt19937_64 &random) {
    const double choices[] = {0.0, -0.0, 1, -1, 0.5, NAN, INFINITY};
    std::vector<double> x((size_t)(s.heads * s.rows * s.cols));
    for (auto &v : x) v = random() % 10 < 8 ? choices[random() % 2] : choices[random() % 7];
    return x;
}

double at(const tartan_shape &s, const std::vector<double> &x, int64_t h, int64_t i, int64_t j) {
    return x[(size_t)((h * s.rows + i) * s.cols + j)];
}

template <class F> void each_of_block(const tartan_shape &s, int64_t i, int64_t j, F f) {
    for (int64_t r = i * s.block_rows; r < std::min(s.rows, (i + 1) * s.block_rows); r++)
        for (int64_t c = j * s.block_cols; c < std::min(s.cols, (j + 1) * s.block_cols); c++) f(r, c);
}

TEST(FromDense, FindsJustTheNonZeroBlocks) {
    std::mt19937_64 random(40);
    for (int i = 0; i < rounds(1000); i++) {
        tartan_shape s = random_shape(random);
        Dense dense(s, sparse_numbers(s, random), kDtypes[i % 4], i / 4 % 4);
        Mask expected = mask_where(s, [&](int64_t h, int64_t r, int64_t c) {
            bool any = false;
            each_of_block(s, r, c,
                          [&](int64_t y, int64_t x) { any |= !(at(s, dense.numbers, h, y, x) == 0); });
            return any;
        });
        tartan_layout *out = nullptr;
        ASSERT_OK(tartan_layout_from_dense(&s, &dense.array, &out));
        Layout l(out);
        ASSERT_EQ(mask_of(l), expected) << "case " << i;
    }
}

TEST(FromDense, TinyNumbersCount) {
    tartan_shape s{2, 2, 1, 1, 1};
    uint64_t f64[4] = {1, 0x8000000000000001, 0x8000000000000000, 0};
    uint32_t f32[4] = {1, 0x80000001, 0x80000000, 0};
    uint16_t f16[4] = {1, 0x8001, 0x8000, 0};
    int64_t shape[2] = {2, 2};
    for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16}) {
        tartan_array a;
        void *data = dtype == TARTAN_F64 ? (void *)f64 : dtype == TARTAN_F32 ? (void *)f32 : (void *)f16;
        ASSERT_OK(tartan_array_init(data, dtype, 2, shape, nullptr, &a));
        tartan_layout *out = nullptr;
        ASSERT_OK(tartan_layout_from_dense(&s, &a, &out));
        EXPECT_EQ(mask_of(out), (Mask{1, 1, 0, 0}));
        tartan_layout_free(out);
    }
}

// The oracle: norms in long double, blocks sorted by norm.
TEST(FromDenseLargest, KeepsTheLargest) {
    std::mt19937_64 random(41);
    for (int i = 0; i < rounds(600); i++) {
        tartan_shape s = random_shape(random);
        std::vector<double> x((size_t)(s.heads * s.rows * s.cols));
        for (auto &v : x)
            v = (double)((int64_t)(random() % 17) - 8); // small integers: exact in all dtypes, with ties
        Dense dense(s, x, kDtypes[i % 4], i / 4 % 4);
        int32_t norm = 1 + i % 3;
        double density = (double)(random() % 9) / 8;
        int64_t all = grid_rows(s) * grid_cols(s);
        size_t keep = (size_t)std::lround(density * (double)all);
        Mask expected;
        for (int64_t h = 0; h < s.heads; h++) {
            std::vector<long double> norms;
            for (int64_t k = 0; k < all; k++) {
                long double sum = 0;
                each_of_block(s, k / grid_cols(s), k % grid_cols(s), [&](int64_t r, int64_t c) {
                    long double v = std::fabs((long double)at(s, x, h, r, c));
                    sum = norm == TARTAN_NORM_MAX ? std::max(sum, v)
                                                  : sum + (norm == TARTAN_NORM_L1 ? v : v * v);
                });
                norms.push_back(sum);
            }
            std::vector<size_t> order((size_t)all);
            std::iota(order.begin(), order.end(), (size_t)0);
            std::stable_sort(order.begin(), order.end(),
                             [&](size_t a, size_t b) { return norms[a] > norms[b]; });
            Mask mask((size_t)all, 0);
            for (size_t k = 0; k < keep; k++) mask[order[k]] = 1;
            expected.insert(expected.end(), mask.begin(), mask.end());
        }
        tartan_layout *out = nullptr;
        ASSERT_OK(tartan_layout_from_dense_largest(&s, &dense.array, density, norm, &out));
        Layout l(out);
        ASSERT_EQ(mask_of(l), expected) << "case " << i;
    }
}

Mask largest(std::vector<double> x, int64_t block, int64_t keep, int32_t norm) {
    int64_t n = (int64_t)x.size();
    tartan_shape s{1, n, 1, block, 1};
    Dense dense(s, std::move(x), TARTAN_F64, 0);
    tartan_layout *out = nullptr;
    EXPECT_OK(
        tartan_layout_from_dense_largest(&s, &dense.array, (double)(keep * block) / (double)n, norm, &out));
    Layout l(out);
    return mask_of(l);
}

TEST(FromDenseLargest, ExtremeNumbers) {
    // squares would overflow, vanish, or be subnormal
    EXPECT_EQ(largest({1e200, 0, 1e200, 1e200, 1e199, 1e199}, 2, 1, TARTAN_NORM_L2), (Mask{0, 1, 0}));
    EXPECT_EQ(largest({1e-200, 0, 1e-200, 1e-200, 1e-201, 1e-201}, 2, 1, TARTAN_NORM_L2), (Mask{0, 1, 0}));
    EXPECT_EQ(largest({5e-324, 0, 5e-324, 5e-324, 5e-324, 0}, 2, 1, TARTAN_NORM_L1), (Mask{0, 1, 0}));
    EXPECT_EQ(largest({5e-324, 0, 1e-320, 0, 0, 0}, 2, 1, TARTAN_NORM_L2), (Mask{0, 1, 0}));
    EXPECT_EQ(largest({1e-200, 1, 1e200, 0, INFINITY, 0}, 2, 2, TARTAN_NORM_L2), (Mask{0, 1, 1}));
    // NaN is kept, in all norms
    for (int32_t norm : {TARTAN_NORM_MAX, TARTAN_NORM_L1, TARTAN_NORM_L2}) {
        EXPECT_EQ(largest({1e308, 1e308, 0, NAN, 1, 1}, 2, 1, norm)[1], norm == TARTAN_NORM_L1 ? 0 : 1);
        EXPECT_EQ(largest({1e300, 1, 0, NAN, 1, 1}, 2, 1, norm), (Mask{0, 1, 0}));
    }
}

TEST(FromDense, Refusals) {
    tartan_shape s{2, 3, 1, 1, 1}, heads{2, 3, 1, 1, 2};
    double x[12] = {};
    int64_t good[2] = {2, 3}, bad[2] = {3, 2}, three[3] = {2, 2, 3}, other[3] = {3, 2, 3};
    tartan_array a, b, c, d, nodata, nodtype;
    ASSERT_OK(tartan_array_init(x, TARTAN_F64, 2, good, nullptr, &a));
    ASSERT_OK(tartan_array_init(x, TARTAN_F64, 2, bad, nullptr, &b));
    ASSERT_OK(tartan_array_init(x, TARTAN_F64, 3, three, nullptr, &c));
    ASSERT_OK(tartan_array_init(x, TARTAN_F64, 3, other, nullptr, &d));
    nodata = nodtype = a;
    nodata.data = nullptr;
    nodtype.dtype = 99;
    auto both = [](const tartan_shape *shape, const tartan_array *array, tartan_layout **out, bool big) {
        return big ? tartan_layout_from_dense_largest(shape, array, 0.5, TARTAN_NORM_L2, out)
                   : tartan_layout_from_dense(shape, array, out);
    };
    for (bool big : {false, true}) {
        EXPECT_FAILS(HANDLE, "out is NULL", both(&s, &a, nullptr, big));
        EXPECT_NO_LAYOUT(HANDLE, "shape is NULL", both(nullptr, &a, &out, big));
        EXPECT_NO_LAYOUT(HANDLE, "dense is NULL", both(&s, nullptr, &out, big));
        EXPECT_NO_LAYOUT(HANDLE, "dense", both(&s, &nodata, &out, big));
        EXPECT_NO_LAYOUT(DTYPE, "dense", both(&s, &nodtype, &out, big));
        EXPECT_NO_LAYOUT(SHAPE, "dense has shape [3, 2], expected [2, 3] for 1 heads",
                         both(&s, &b, &out, big));
        EXPECT_NO_LAYOUT(SHAPE, "dense has shape [2, 2, 3]", both(&s, &c, &out, big));
        EXPECT_NO_LAYOUT(SHAPE, "expected [heads, 2, 3] for 2 heads", both(&heads, &a, &out, big));
        EXPECT_NO_LAYOUT(SHAPE, "dense has shape [3, 2, 3]", both(&heads, &d, &out, big));
        tartan_layout *out = nullptr;
        EXPECT_OK(both(&heads, &c, &out, big));
        tartan_layout_free(out);
    }
    for (double density : {-0.1, 1.1, (double)NAN, (double)INFINITY})
        EXPECT_NO_LAYOUT(ARGUMENT, "expected 0 .. 1",
                         tartan_layout_from_dense_largest(&s, &a, density, TARTAN_NORM_L2, &out));
    for (int32_t norm : {0, 4, -1})
        EXPECT_NO_LAYOUT(ARGUMENT, "expected 1 (max)",
                         tartan_layout_from_dense_largest(&s, &a, 0.5, norm, &out));
}

TEST(FromDense, EveryAllocationMayFail) {
    tartan_shape s{4, 4, 2, 2, 1};
    Dense dense(s, std::vector<double>(16, 1), TARTAN_F32, 1);
    tartan_layout *out = nullptr;
    BRUTAL(tartan_layout_from_dense(&s, &dense.array, &out), tartan_layout_free(out));
}
TEST(FromDenseLargest, EveryAllocationMayFail) {
    tartan_shape s{4, 4, 2, 2, 1};
    Dense dense(s, std::vector<double>(16, 1), TARTAN_F32, 1);
    tartan_layout *out = nullptr;
    BRUTAL(tartan_layout_from_dense_largest(&s, &dense.array, 0.5, TARTAN_NORM_L1, &out),
           tartan_layout_free(out));
}

} // namespace
