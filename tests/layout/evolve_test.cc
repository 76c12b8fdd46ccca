// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>

#include "layouts.h"

using namespace tartan_test;

namespace {

Layout evolved(const Layout &a, const std::vector<double> &scores, const std::vector<double> &growth,
               int64_t step, const char *schedule) {
    tartan_layout *out = nullptr;
    EXPECT_OK(tartan_layout_evolve(a.get(), scores.data(), (int64_t)scores.size(),
                                   growth.empty() ? nullptr : growth.data(), (int64_t)growth.size(), step,
                                   schedule, &out));
    return Layout(out);
}
int64_t blocks_at(const Layout &a, int64_t step, const char *schedule) {
    const std::vector<double> scores = random_values((size_t)tartan_layout_blocks(a.get()), 5);
    return tartan_layout_blocks(evolved(a, scores, {}, step, schedule).get());
}
Layout dense(int64_t rows, int64_t cols, int64_t heads = 1) {
    return from_mask({rows * 2, cols * 2, 2, 2, heads}, Mask((size_t)(rows * cols * heads), 1));
}

// At a quarter of the way, 0.9 * (3/4)^3 of the density to be lost is left, and so on.
TEST(Evolve, DensityFollowsItsCurve) {
    Layout a = dense(40, 25);
    EXPECT_EQ(blocks_at(a, 100, "density=0.1 begin=100 end=500"), 1000);
    EXPECT_EQ(blocks_at(a, 200, "density=0.1 begin=100 end=500"), 480);
    EXPECT_EQ(blocks_at(a, 300, "density=0.1 begin=100 end=500"), 213);
    EXPECT_EQ(blocks_at(a, 500, "density=0.1 begin=100 end=500"), 100);
    EXPECT_EQ(blocks_at(a, 200, "density=0.1 begin=100 end=500 curve=linear"), 775);
    EXPECT_EQ(blocks_at(a, 300, "density=0.1 begin=100 end=500 curve=cosine"), 550);
    EXPECT_EQ(blocks_at(a, 100, "density=0.1 begin=100 end=500 curve=constant"), 100);
    EXPECT_EQ(blocks_at(a, 0, "density=0.25"), 250);
    EXPECT_EQ(blocks_at(a, 0, "density=0.25,initial=0.5,end=10"), 500);
}

TEST(Evolve, OnlyStepsThatAreDueChangeBlocks) {
    Layout a = dense(10, 10);
    for (int64_t step : {0, 99, 101, 119, 520}) {
        const Layout b =
            evolved(a, random_values(100, 6), {}, step, "density=0.1 begin=100 end=500 every=20");
        EXPECT_EQ(b.get(), a.get()) << step; // another reference
    }
    EXPECT_LT(blocks_at(a, 120, "density=0.1 begin=100 end=500 every=20"), 100);
    EXPECT_EQ(evolved(a, random_values(100, 6), {}, 3, nullptr).get(), a.get());
}

TEST(Evolve, DropsTheLeastScores) {
    std::mt19937_64 random(33);
    for (int i = 0; i < rounds(300); i++) {
        Layout a = any_layout(random);
        const int64_t n = tartan_layout_blocks(a.get());
        const std::vector<double> scores = random_values((size_t)n, (unsigned)i);
        const double grid = (double)mask_of(a).size(), density = (double)(random() % 101) / 100;
        const int64_t count = std::min(n, (int64_t)std::llround(density * grid));
        if (grid == 0 || density * grid > (double)n) continue;
        tartan_layout *out = nullptr;
        ASSERT_OK(tartan_layout_keep_largest(a.get(), scores.data(), n, count, &out));
        Layout expected(out);
        EXPECT_TRUE(tartan_layout_equal(
            evolved(a, scores, {}, 0, ("density=" + std::to_string(density)).c_str()).get(), expected.get()));
    }
}

TEST(Evolve, AThresholdKeepsWhatReachesIt) {
    Layout a = from_mask({2, 6, 2, 2, 1}, {1, 1, 1});
    EXPECT_EQ(mask_of(evolved(a, {0.5, 0.4, 0.6}, {}, 0, "threshold=0.5")), (Mask{1, 0, 1}));
    EXPECT_EQ(evolved(a, {1, 2, 3}, {}, 0, "threshold=-1e300").get(), a.get());
}

TEST(Evolve, GrowsWhereTheGrowthIsLargest) {
    Layout a = from_mask({4, 8, 2, 2, 1}, {1, 1, 0, 0, 0, 0, 1, 1});
    // Half of the four blocks go: those of scores 1 and 2. Place 0 is dropped and grown at once.
    EXPECT_EQ(mask_of(evolved(a, {1, 3, 4, 2}, {9, 99, 0, 1, 8, 2, 99, 7}, 0, "swap=0.5 decay=constant")),
              (Mask{1, 1, 0, 0, 1, 0, 1, 0}));
    // A density that rises grows as well.
    EXPECT_EQ(mask_of(evolved(a, {1, 3, 4, 2}, {9, 99, 0, 1, 8, 2, 99, 7}, 0, "density=0.75")),
              (Mask{1, 1, 0, 0, 1, 1, 1, 1}));
}

TEST(Evolve, SwapsFewerBlocksTowardsTheEnd) {
    Layout a = pattern({64, 64, 2, 2, 1}, "random", "density=0.1");
    const int64_t n = tartan_layout_blocks(a.get());
    std::vector<int64_t> changed;
    for (int64_t step : {0, 50, 100}) {
        const Layout b = evolved(a, random_values((size_t)n, 7), {}, step, "swap=0.3 end=100");
        ASSERT_EQ(tartan_layout_blocks(b.get()), n);
        const Mask was = mask_of(a), is = mask_of(b);
        int64_t lost = 0;
        for (size_t i = 0; i < was.size(); i++) lost += was[i] && !is[i];
        changed.push_back(lost);
    }
    EXPECT_EQ(changed, (std::vector<int64_t>{(int64_t)(0.3 * (double)n), (int64_t)(0.15 * (double)n), 0}));
}

TEST(Evolve, RandomPlacesDependOnSeedAndStepAlone) {
    Layout a = pattern({64, 64, 2, 2, 2}, "random", "density=0.1");
    const std::vector<double> scores = random_values((size_t)tartan_layout_blocks(a.get()), 8);
    const auto masks = [&](int64_t step, const char *schedule) {
        return mask_of(evolved(a, scores, {}, step, schedule));
    };
    EXPECT_EQ(masks(3, "swap=0.5 seed=1"), masks(3, "swap=0.5 seed=1"));
    EXPECT_NE(masks(3, "swap=0.5 seed=1"), masks(4, "swap=0.5 seed=1"));
    EXPECT_NE(masks(3, "swap=0.5 seed=1"), masks(3, "swap=0.5 seed=2"));
    // Every place is as likely: of 200 draws of 1 among 8 places, none is far from 25.
    Layout b = from_mask({2, 18, 2, 2, 1}, {1, 0, 0, 0, 0, 0, 0, 0, 0});
    std::vector<int> hits(9);
    for (int64_t step = 0; step < 200; step++) {
        const Mask is = mask_of(evolved(b, {1}, {}, step, "swap=1"));
        for (size_t i = 0; i < is.size(); i++) hits[i] += is[i];
    }
    EXPECT_EQ(hits[0], 0); // just dropped, and there are others
    for (size_t i = 1; i < hits.size(); i++) EXPECT_NEAR(hits[i], 25, 20);
    // Where there are no others, all come back.
    Layout full = dense(2, 2);
    EXPECT_TRUE(tartan_layout_equal(evolved(full, {1, 2, 3, 4}, {}, 0, "swap=0.5").get(), full.get()));
}

TEST(Evolve, EmptyGridsAndLayouts) {
    Layout none = from_mask({0, 4, 2, 2, 1}, {});
    EXPECT_EQ(evolved(none, {}, {}, 0, "density=0.5 swap=0.5").get(), none.get());
    Layout empty = from_mask({4, 4, 2, 2, 1}, {0, 0, 0, 0});
    EXPECT_EQ(tartan_layout_blocks(evolved(empty, {}, {}, 0, "density=0.5").get()), 2);
    EXPECT_EQ(tartan_layout_blocks(evolved(dense(2, 2), {1, 2, 3, 4}, {}, 0, "density=0").get()), 0);
}

TEST(Evolve, Refusals) {
    Layout a = from_mask({4, 4, 2, 2, 1}, {1, 0, 0, 1});
    const double scores[3] = {1, NAN, 1}, good[2] = {1, 2}, growth[4] = {1, 2, 3, NAN};
    const auto run = [&](const char *schedule, tartan_layout **out) {
        return tartan_layout_evolve(a.get(), good, 2, nullptr, 0, 0, schedule, out);
    };
    EXPECT_FAILS(HANDLE, "out is NULL", run(nullptr, nullptr));
    EXPECT_NO_LAYOUT(HANDLE, "layout is NULL",
                     tartan_layout_evolve(nullptr, good, 2, nullptr, 0, 0, nullptr, &out));
    EXPECT_NO_LAYOUT(HANDLE, "layout is closed",
                     tartan_layout_evolve(foreign(), good, 2, nullptr, 0, 0, nullptr, &out));
    EXPECT_NO_LAYOUT(HANDLE, "scores is NULL",
                     tartan_layout_evolve(a.get(), nullptr, 2, nullptr, 0, 0, nullptr, &out));
    EXPECT_NO_LAYOUT(SHAPE, "scores has 3 entries, expected 2 (blocks)",
                     tartan_layout_evolve(a.get(), scores, 3, nullptr, 0, 0, nullptr, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "scores[1] is NaN",
                     tartan_layout_evolve(a.get(), scores, 2, nullptr, 0, 0, nullptr, &out));
    EXPECT_NO_LAYOUT(HANDLE, "growth is NULL",
                     tartan_layout_evolve(a.get(), good, 2, nullptr, 4, 0, nullptr, &out));
    EXPECT_NO_LAYOUT(SHAPE, "growth has 3 entries, expected 4",
                     tartan_layout_evolve(a.get(), good, 2, growth, 3, 0, nullptr, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "growth[3] is NaN",
                     tartan_layout_evolve(a.get(), good, 2, growth, 4, 0, nullptr, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "step is -1, expected 0 or more",
                     tartan_layout_evolve(a.get(), good, 2, nullptr, 0, -1, nullptr, &out));
    const struct {
        const char *schedule, *text;
    } bad[] = {
        {"density=1.5", "'density=1.5', expected a number from 0 to 1"},
        {"density=x", "'density=x', expected a number"},
        {"initial=-1", "'initial=-1', expected a number"},
        {"swap=2", "'swap=2', expected a number"},
        {"threshold=inf", "'threshold=inf', expected a number"},
        {"begin=-1", "'begin=-1', expected a whole number of 0 or more"},
        {"end=-2", "'end=-2', expected a whole number of -1 or more"},
        {"every=0", "'every=0', expected a whole number of 1 or more"},
        {"seed=0.5", "'seed=0.5', expected a whole number"},
        {"curve=square", "'curve=square', expected cubic, linear, cosine or constant"},
        {"decay=1", "'decay=1', expected cubic"},
        {"target=1", "'target=1', expected density, initial"},
        {"swap", "swap"},
        {"swap=0.1 seed=1 swap=0.1", "'swap=0.1' after another value"},
        {"density=0.5 threshold=1", "density and threshold, expected one of them"},
        {"begin=5 end=4", "end=4, expected begin=5 or more"},
    };
    for (const auto &b : bad) EXPECT_NO_LAYOUT(ARGUMENT, b.text, run(b.schedule, &out));
}

TEST(Evolve, EveryAllocationMayFail) {
    Layout a = from_mask({4, 8, 2, 2, 1}, {1, 1, 0, 0, 0, 0, 1, 1});
    const double scores[4] = {1, 3, 4, 2}, growth[8] = {9, 99, 0, 1, 8, 2, 99, 7};
    tartan_layout *out = nullptr;
    BRUTAL(tartan_layout_evolve(a.get(), scores, 4, growth, 8, 0, "swap=0.5", &out), tartan_layout_free(out));
    BRUTAL(tartan_layout_evolve(a.get(), scores, 4, nullptr, 0, 0, "swap=0.5", &out),
           tartan_layout_free(out));
}

} // namespace
