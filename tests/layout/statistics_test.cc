// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "layouts.h"

using namespace tartan_test;

namespace {

TEST(Statistics, LengthsSpreadAndBandwidthOfRandomLayouts) {
    std::mt19937_64 random(50);
    for (int i = 0; i < rounds(1000); i++) {
        Layout l = any_layout(random);
        tartan_shape s = shape_of(l.get());
        Coordinates c = coordinates(l.get());
        size_t lines = (size_t)(s.heads * grid_rows(s));
        Indices lengths(lines), expected(lines, 0);
        int64_t lower = 0, upper = 0;
        for (size_t k = 0; k < c.rows.size(); k++) {
            expected[(size_t)(c.heads[k] * grid_rows(s) + c.rows[k])]++;
            lower = std::max(lower, c.rows[k] - c.cols[k]);
            upper = std::max(upper, c.cols[k] - c.rows[k]);
        }
        ASSERT_OK(tartan_layout_row_lengths(l.get(), lengths.data(), (int64_t)lines));
        ASSERT_EQ(lengths, expected);
        int64_t bandwidth[2];
        ASSERT_OK(tartan_layout_bandwidth(l.get(), bandwidth, 2));
        ASSERT_EQ(bandwidth[0], lower);
        ASSERT_EQ(bandwidth[1], upper);
        double spread[4];
        ASSERT_OK(tartan_layout_row_spread(l.get(), spread, 4));
        long double sum = 0, squares = 0;
        for (int64_t x : lengths) sum += x, squares += (long double)x * x;
        long double mean = lines ? sum / lines : 0;
        ASSERT_EQ(spread[0], lines ? *std::min_element(lengths.begin(), lengths.end()) : 0);
        ASSERT_EQ(spread[2], lines ? *std::max_element(lengths.begin(), lengths.end()) : 0);
        ASSERT_NEAR(spread[1], (double)mean, 1e-12);
        ASSERT_NEAR(spread[3], lines ? (double)std::sqrt(std::max(0.0L, squares / lines - mean * mean)) : 0,
                    1e-6);
    }
}

TEST(Statistics, Refusals) {
    Layout owner = pattern({4, 6, 2, 2, 1}, "dense"), square_owner = pattern(square(3), "dense");
    tartan_layout *l = owner.get();
    int64_t x[8];
    double d[8];
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_layout_row_lengths(nullptr, x, 2));
    EXPECT_FAILS(HANDLE, "layout is closed", tartan_layout_row_lengths(foreign(), x, 2));
    EXPECT_FAILS(SHAPE, "out_lengths has 3 entries, expected 2", tartan_layout_row_lengths(l, x, 3));
    EXPECT_FAILS(HANDLE, "out_lengths is NULL", tartan_layout_row_lengths(l, nullptr, 2));
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_layout_row_spread(nullptr, d, 4));
    EXPECT_FAILS(SHAPE, "out_spread has 3 entries, expected 4", tartan_layout_row_spread(l, d, 3));
    EXPECT_FAILS(HANDLE, "out_spread is NULL", tartan_layout_row_spread(l, nullptr, 4));
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_layout_bandwidth(nullptr, x, 2));
    EXPECT_FAILS(SHAPE, "out_bandwidth has 1 entries, expected 2", tartan_layout_bandwidth(l, x, 1));
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_layout_reach(nullptr, 0, d, 2));
    EXPECT_FAILS(SHAPE, "grid of 2 x 3, expected a square one", tartan_layout_reach(l, 0, d, 2));
    EXPECT_FAILS(ARGUMENT, "head is 1, expected 0 .. 0", tartan_layout_reach(square_owner.get(), 1, d, 2));
    EXPECT_FAILS(ARGUMENT, "head is -1", tartan_layout_reach(square_owner.get(), -1, d, 2));
    EXPECT_FAILS(SHAPE, "nout_reach is -1", tartan_layout_reach(square_owner.get(), 0, d, -1));
    EXPECT_FAILS(HANDLE, "out_reach is NULL", tartan_layout_reach(square_owner.get(), 0, nullptr, 2));
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_layout_partition(nullptr, x, 2));
    EXPECT_FAILS(SHAPE, "nout_bounds is 1, expected at least 2", tartan_layout_partition(l, x, 1));
    EXPECT_FAILS(HANDLE, "out_bounds is NULL", tartan_layout_partition(l, nullptr, 2));
    BRUTAL(tartan_layout_reach(square_owner.get(), 0, d, 2), );
}

// Reach by powers of the Boolean matrix.
std::vector<double> reach_by_powers(const tartan_layout *l, int64_t head, size_t steps) {
    int64_t n = tartan_layout_grid_rows(l);
    Mask all = mask_of(l);
    Mask a(all.begin() + head * n * n, all.begin() + (head + 1) * n * n), r = a;
    std::vector<double> reach;
    for (size_t step = 0; step < steps; step++) {
        reach.push_back(n == 0 ? 0 : (double)std::accumulate(r.begin(), r.end(), 0) / (double)(n * n));
        Mask next = r;
        for (int64_t u = 0; u < n; u++)
            for (int64_t v = 0; v < n; v++)
                for (int64_t w = 0; w < n; w++)
                    if (a[(size_t)(u * n + v)] && r[(size_t)(v * n + w)]) next[(size_t)(u * n + w)] = 1;
        r = next;
    }
    return reach;
}

TEST(Reach, AgreesWithPowersOfTheMatrix) {
    std::mt19937_64 random(51);
    for (int i = 0; i < rounds(1000); i++) {
        int64_t n = (int64_t)(random() % 13), heads = 1 + (int64_t)(random() % 2);
        Layout l = random_layout(square(n, heads, 3), (double)(random() % 100) / 200, random());
        size_t steps = random() % 6;
        std::vector<double> reach(steps);
        ASSERT_OK(tartan_layout_reach(l.get(), heads - 1, reach.data(), (int64_t)steps));
        ASSERT_EQ(reach, reach_by_powers(l.get(), heads - 1, steps));
    }
}

// A ring of more vertices than a strip has bits: after k steps, k vertices can be reached from each.
TEST(Reach, OfARing) {
    const int64_t n = 1200;
    Indices rows((size_t)n), cols((size_t)n);
    for (int64_t i = 0; i < n; i++) rows[(size_t)i] = i, cols[(size_t)i] = (i + 1) % n;
    tartan_layout *out = nullptr;
    ASSERT_OK(from_coordinates(square(n), {}, rows, cols, &out));
    std::vector<double> reach(20);
    ASSERT_OK(tartan_layout_reach(out, 0, reach.data(), 20));
    for (int64_t k = 0; k < 20; k++) EXPECT_EQ(reach[(size_t)k], (double)(n * (k + 1)) / (double)(n * n));
    tartan_layout_free(out);
}

TEST(Reach, ButterflyReachesAllInOneStepADigit) {
    Layout l = pattern(square(64), "butterfly");
    std::vector<double> reach(7);
    ASSERT_OK(tartan_layout_reach(l.get(), 0, reach.data(), 7));
    EXPECT_LT(reach[4], 1);
    EXPECT_EQ(reach[5], 1);
    EXPECT_EQ(reach[6], 1);
}

TEST(Partition, RunsAreNearlyEqual) {
    std::mt19937_64 random(52);
    for (int i = 0; i < rounds(1000); i++) {
        Layout l = any_layout(random);
        int64_t runs = 1 + (int64_t)(random() % 12), blocks = tartan_layout_blocks(l.get());
        Indices bounds((size_t)runs + 1, -7), pointers = row_lists(l.get()).pointers;
        ASSERT_OK(tartan_layout_partition(l.get(), bounds.data(), runs + 1));
        ASSERT_EQ(bounds.front(), 0);
        ASSERT_EQ(bounds.back(), (int64_t)pointers.size() - 1);
        ASSERT_TRUE(std::is_sorted(bounds.begin(), bounds.end()));
        // Each bound is where the most even cut would be, or as near to it as lines allow.
        for (size_t k = 1; k < (size_t)runs && blocks > 0; k++) {
            const int64_t target = blocks * (int64_t)k / runs;
            int64_t nearest = blocks;
            for (int64_t p : pointers) nearest = std::min(nearest, std::abs(p - target));
            ASSERT_EQ(std::abs(pointers[(size_t)bounds[k]] - target), nearest);
        }
        int64_t longest = 0;
        for (size_t k = 0; k + 1 < pointers.size(); k++)
            longest = std::max(longest, pointers[k + 1] - pointers[k]);
        for (size_t k = 0; k < (size_t)runs; k++) {
            int64_t work = pointers[(size_t)bounds[k + 1]] - pointers[(size_t)bounds[k]];
            ASSERT_LE(work, blocks / runs + 1 + longest);
            ASSERT_GE(work, blocks / runs - 1 - longest);
        }
    }
}

TEST(Partition, ExactWhereItCanBe) {
    Layout dense = pattern(square(12), "dense"), empty = pattern(square(12), "random", "density=0");
    for (auto *l : {dense.get(), empty.get()}) {
        Indices bounds(5);
        ASSERT_OK(tartan_layout_partition(l, bounds.data(), 5));
        EXPECT_EQ(bounds, (Indices{0, 3, 6, 9, 12}));
    }
    Layout causal = pattern(square(100), "causal"); // work grows with the square: half of it by row 71
    Indices bounds(3);
    ASSERT_OK(tartan_layout_partition(causal.get(), bounds.data(), 3));
    EXPECT_EQ(bounds, (Indices{0, 71, 100}));
}

} // namespace
