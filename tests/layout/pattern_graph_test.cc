// SPDX-License-Identifier: Apache-2.0
// Patterns that are random graphs: block counts of operations.md section 2.4, symmetry, degrees.
#include <algorithm>
#include <cmath>
#include <map>

#include "layouts.h"

using namespace tartan_test;

namespace {

std::string number(int64_t x) {
    return std::to_string(x);
}

void expect_symmetric(const Layout &l, bool diagonal) {
    int64_t n = tartan_layout_grid_rows(l.get());
    Mask mask = mask_of(l);
    for (int64_t i = 0; i < n; i++) {
        ASSERT_EQ(mask[(size_t)(i * n + i)], diagonal);
        for (int64_t j = 0; j < i; j++) ASSERT_EQ(mask[(size_t)(i * n + j)], mask[(size_t)(j * n + i)]);
    }
}

Indices lengths(const Layout &l) {
    Indices x((size_t)(tartan_layout_heads(l.get()) * tartan_layout_grid_rows(l.get())));
    EXPECT_OK(tartan_layout_row_lengths(l.get(), x.data(), (int64_t)x.size()));
    return x;
}

TEST(BarabasiAlbert, BlockCounts) {
    for (int64_t n : {2, 6, 7, 20, 160})
        for (int64_t m : {1, 2, 5, 6, 19, 100}) {
            if (m >= n) continue;
            int64_t edges = m * (n - m), in_corner = m * (m - 1);
            for (int64_t seed = 0; seed < 5; seed++) {
                // ba_m of masks.make_mask
                Layout l = pattern(square(n), "barabasi_albert", "m=" + number(m), seed);
                ASSERT_EQ(tartan_layout_blocks(l.get()), 2 * edges + m * m + n - m);
                expect_symmetric(l, true);
                l = pattern(square(n), "barabasi_albert", "corner=0 m=" + number(m), seed);
                ASSERT_EQ(tartan_layout_blocks(l.get()), 2 * edges + n);
                l = pattern(square(n), "barabasi_albert", "corner=0 diagonal=0 m=" + number(m), seed);
                ASSERT_EQ(tartan_layout_blocks(l.get()), 2 * edges);
                expect_symmetric(l, false);
                l = pattern(square(n), "barabasi_albert", "diagonal=0 m=" + number(m),
                            seed); // the corner has its diagonal
                ASSERT_EQ(tartan_layout_blocks(l.get()), 2 * edges + in_corner + m);
            }
        }
    // The matmul test of openai/blocksparse, at all its block sizes.
    for (int64_t block : {32, 16, 8})
        EXPECT_EQ(tartan_layout_blocks(pattern(square(160, 1, block), "barabasi_albert", "m=5").get()), 1730);
}

TEST(BarabasiAlbert, EveryNewVertexBringsMEdges) {
    const int64_t n = 200, m = 7;
    Mask mask = mask_of(pattern(square(n), "barabasi_albert", "corner=0 diagonal=0 m=" + number(m), 3));
    for (int64_t v = 0; v < n; v++) {
        int64_t earlier = 0;
        for (int64_t u = 0; u < v; u++) earlier += mask[(size_t)(v * n + u)];
        ASSERT_EQ(earlier, v < m ? 0 : m);
    }
}

// Old vertices get many edges, new ones few: a vertex that arrives as the t-th has about m * sqrt(n / t) of
// them.
TEST(BarabasiAlbert, IsScaleFree) {
    const int64_t n = 2000, m = 4;
    double early = 0, late = 0, top = 0;
    for (int64_t seed = 0; seed < 10; seed++) {
        Indices degree = lengths(pattern(square(n), "barabasi_albert", "corner=0 diagonal=0 m=4", seed));
        for (int64_t v = 100; v < 110; v++) early += (double)degree[(size_t)v] / 100;
        for (int64_t v = n - 100; v < n; v++) late += (double)degree[(size_t)v] / 1000;
        top += (double)*std::max_element(degree.begin(), degree.end()) / 10;
    }
    EXPECT_NEAR(early, m * std::sqrt(n / 105.0), 0.2 * early);
    EXPECT_NEAR(late, m, 0.1 * m);
    EXPECT_GT(top, 60); // a random graph of this density has no vertex with half of that
}

// bae_m_e: each extra edge starts at a vertex that has fewest.
TEST(BarabasiAlbert, ExtraEdgesFillUpTheLeastConnected) {
    const int64_t n = 60, m = 2;
    for (int64_t extra : {0, 1, 30, 200, 1000}) {
        Layout l = pattern(square(n), "barabasi_albert", "m=2 extra=" + number(extra), 9);
        int64_t base = 2 * m * (n - m) + m * m + n - m;
        EXPECT_EQ(tartan_layout_blocks(l.get()), base + 2 * extra);
        expect_symmetric(l, true);
        Mask with = mask_of(l), without = mask_of(pattern(square(n), "barabasi_albert", "m=2", 9));
        for (size_t k = 0; k < with.size(); k++) ASSERT_LE(without[k], with[k]);
    }
    // Filled up to the degree of n(2m+1) blocks and beyond, no vertex is left behind.
    Indices degree = lengths(pattern(square(n), "barabasi_albert", "m=2 extra=1000", 9));
    EXPECT_GE(*std::min_element(degree.begin(), degree.end()), 20);
    // All the edges there are.
    int64_t absent = n * (n - 1) / 2 - m * (n - m) - m * (m - 1) / 2;
    EXPECT_EQ(
        tartan_layout_blocks(pattern(square(n), "barabasi_albert", "m=2 extra=" + number(absent)).get()),
        n * n);
}

TEST(WattsStrogatz, BlockCounts) {
    for (int64_t n : {1, 5, 12, 101})
        for (int64_t m : {0, 1, 2, 5, 50})
            for (const char *rewire : {"0", "0.2", "1"}) {
                if (2 * m >= n) continue;
                std::string parameters = "m=" + number(m) + " rewire=" + rewire;
                Layout l = pattern(square(n), "watts_strogatz", parameters);
                ASSERT_EQ(tartan_layout_blocks(l.get()), n * (2 * m + 1)); // ws_m_pct
                expect_symmetric(l, true);
                l = pattern(square(n), "watts_strogatz", parameters + " diagonal=0");
                ASSERT_EQ(tartan_layout_blocks(l.get()), 2 * n * m);
                expect_symmetric(l, false);
            }
    // rande_m_e: all rewired, and e more edges
    EXPECT_EQ(tartan_layout_blocks(pattern(square(101), "watts_strogatz", "m=3 rewire=1 extra=40").get()),
              101 * 7 + 80);
}

TEST(WattsStrogatz, WithoutRewiringARing) {
    const int64_t n = 23;
    for (int64_t m : {1, 4, 11})
        EXPECT_EQ(mask_of(pattern(square(n), "watts_strogatz", "rewire=0 m=" + number(m))),
                  mask_where(square(n), [=](int64_t, int64_t i, int64_t j) {
                      int64_t d = std::abs(i - j);
                      return std::min(d, n - d) <= m;
                  }));
}

TEST(WattsStrogatz, RewiresTheShareItSays) {
    const int64_t n = 400, m = 5;
    for (double share : {0.1, 0.5, 0.9}) {
        double moved = 0;
        for (int64_t seed = 0; seed < 10; seed++) {
            Mask ring = mask_of(pattern(square(n), "watts_strogatz", "m=5 rewire=0"));
            Mask mask =
                mask_of(pattern(square(n), "watts_strogatz", "m=5 rewire=" + std::to_string(share), seed));
            for (size_t k = 0; k < ring.size(); k++) moved += ring[k] && !mask[k];
        }
        double edges = 10.0 * n * m; // each moved edge is counted twice; a few come back by chance
        EXPECT_NEAR(moved / 2 / edges, share, 5 * std::sqrt(share * (1 - share) / edges) + share * 2 * m / n);
    }
}

// Shortcuts make a small world: with 10% of them everybody is reached in few steps.
TEST(WattsStrogatz, IsASmallWorld) {
    double ring[6], world[6];
    Layout a = pattern(square(500), "watts_strogatz", "m=5 rewire=0"),
           b = pattern(square(500), "watts_strogatz", "m=5 rewire=0.1");
    ASSERT_OK(tartan_layout_reach(a.get(), 0, ring, 6));
    ASSERT_OK(tartan_layout_reach(b.get(), 0, world, 6));
    EXPECT_DOUBLE_EQ(ring[5], 61 / 500.0);
    EXPECT_GT(world[5], 0.95);
}

TEST(WattsStrogatz2d, WithoutRewiringALattice) {
    for (auto [height, width] : {std::pair<int64_t, int64_t>{1, 7}, {3, 5}, {6, 6}, {8, 3}})
        for (int64_t m : {0, 1, 2, 6})
            for (int64_t wrap : {0, 1}) {
                const int64_t n = height * width, w = width, h = height;
                std::string parameters =
                    "rewire=0 height=" + number(h) + " m=" + number(m) + " wrap=" + number(wrap);
                Layout l = pattern(square(n), "watts_strogatz_2d", parameters);
                EXPECT_EQ(mask_of(l), mask_where(square(n),
                                                 [=](int64_t, int64_t i, int64_t j) {
                                                     int64_t dy = std::abs(i / w - j / w),
                                                             dx = std::abs(i % w - j % w);
                                                     if (wrap)
                                                         dy = std::min(dy, h - dy), dx = std::min(dx, w - dx);
                                                     return dy + dx <= m;
                                                 }))
                    << parameters;
            }
}

TEST(WattsStrogatz2d, CountsAndDefaults) {
    for (const char *rewire : {"0", "0.3", "1"}) {
        Layout l = pattern(square(100), "watts_strogatz_2d", std::string("m=2 rewire=") + rewire);
        EXPECT_EQ(tartan_layout_blocks(l.get()), 100 * 13); // 12 neighbours and itself
        expect_symmetric(l, true);
        l = pattern(square(100), "watts_strogatz_2d", std::string("m=2 diagonal=0 rewire=") + rewire);
        EXPECT_EQ(tartan_layout_blocks(l.get()), 100 * 12);
    }
    // height 0: 8 x 12 for 96, a ring for a prime
    Layout a = pattern(square(96), "watts_strogatz_2d", "rewire=0"),
           b = pattern(square(96), "watts_strogatz_2d", "rewire=0 height=8");
    EXPECT_EQ(tartan_layout_equal(a.get(), b.get()), 1);
    a = pattern(square(97), "watts_strogatz_2d", "rewire=0"),
    b = pattern(square(97), "watts_strogatz", "rewire=0 m=1");
    EXPECT_EQ(tartan_layout_equal(a.get(), b.get()), 1);
}

} // namespace
