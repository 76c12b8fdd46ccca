// SPDX-License-Identifier: Apache-2.0
// Patterns drawn by chance: exact counts, fairness, and layouts that never change for a seed.
#include <algorithm>
#include <cmath>
#include <map>

#include "layouts.h"

using namespace tartan_test;

namespace {

Indices sums(const Layout &l, bool of_rows, int64_t head = 0) {
    tartan_shape s = shape_of(l.get());
    Indices count((size_t)(of_rows ? grid_rows(s) : grid_cols(s)), 0);
    Coordinates c = coordinates(l.get());
    for (size_t k = 0; k < c.rows.size(); k++)
        if (c.heads[k] == head) count[(size_t)(of_rows ? c.rows[k] : c.cols[k])]++;
    return count;
}
int64_t smallest(const Indices &x) {
    return *std::min_element(x.begin(), x.end());
}
int64_t largest(const Indices &x) {
    return *std::max_element(x.begin(), x.end());
}

TEST(Seeds, SameSeedSameLayoutOtherSeedOther) {
    for (const char *name :
         {"random", "balanced_random", "bigbird", "barabasi_albert", "watts_strogatz", "watts_strogatz_2d"}) {
        Layout a = pattern(square(64), name, "", 5), b = pattern(square(64), name, "", 5),
               c = pattern(square(64), name, "", 6);
        Layout d = pattern(square(64), name, "", (int64_t)5 + ((int64_t)1 << 40));
        EXPECT_STREQ(tartan_layout_identity(a.get()), tartan_layout_identity(b.get()));
        EXPECT_STREQ(tartan_layout_recipe(a.get()), tartan_layout_recipe(b.get()));
        EXPECT_EQ(tartan_layout_equal(a.get(), c.get()), 0) << name;
        EXPECT_EQ(tartan_layout_equal(a.get(), d.get()), 0) << name;
    }
}

TEST(Seeds, HeadsDifferUnlessShared) {
    for (const char *name :
         {"random", "balanced_random", "bigbird", "barabasi_albert", "watts_strogatz", "watts_strogatz_2d"}) {
        Mask own = mask_of(pattern(square(64, 2), name)),
             shared = mask_of(pattern(square(64, 2), name, "shared=1"));
        Mask one = mask_of(pattern(square(64), name));
        size_t n = 64 * 64;
        EXPECT_TRUE(std::equal(one.begin(), one.end(), own.begin()))
            << name; // head 0 does not depend on how many there are
        EXPECT_FALSE(std::equal(one.begin(), one.end(), own.begin() + n)) << name;
        EXPECT_TRUE(std::equal(one.begin(), one.end(), shared.begin() + n)) << name;
    }
}

TEST(Random, CountIsExact) {
    for (double density : {0.0, 0.001, 0.1, 0.3333, 0.5, 0.51, 0.9, 1.0})
        for (tartan_shape s :
             {square(1), square(17, 3), tartan_shape{100, 33, 7, 2, 2}, tartan_shape{5, 700, 1, 3, 1}}) {
            Layout l = pattern(s, "random", "density=" + std::to_string(density));
            int64_t all = grid_rows(s) * grid_cols(s);
            ASSERT_EQ(tartan_layout_blocks(l.get()), s.heads * std::lround(density * (double)all));
        }
}

// Every set of 2 of 4 blocks, and of 3 of 4 (which is drawn by what stays away), is as likely as any other.
TEST(Random, EverySetIsAsLikely) {
    for (auto [density, sets] : {std::pair<const char *, int>{"density=0.5", 6}, {"density=0.75", 4}}) {
        std::map<Mask, int> seen;
        const int draws = 6000;
        for (int seed = 0; seed < draws; seed++) seen[mask_of(pattern(square(2), "random", density, seed))]++;
        EXPECT_EQ(seen.size(), (size_t)sets);
        double chi = 0, expected = (double)draws / sets;
        for (auto &[mask, times] : seen) chi += (times - expected) * (times - expected) / expected;
        EXPECT_LT(chi, sets == 6 ? 20.5 : 16.3); // 0.1% of chi-squared with 5 and 3 degrees of freedom
    }
}

TEST(BalancedRandom, RowsAreEqualAndColumnsNearly) {
    std::mt19937_64 random(80);
    for (int i = 0; i < rounds(300); i++) {
        tartan_shape s{1 + (int64_t)(random() % 40), 1 + (int64_t)(random() % 40), 1, 1, 2};
        int64_t k = (int64_t)(random() % (uint64_t)(s.cols + 1));
        Layout l = pattern(s, "balanced_random", "per_row=" + std::to_string(k), (int64_t)(random() >> 1));
        for (int64_t head : {0, 1}) {
            Indices rows = sums(l, true, head), cols = sums(l, false, head);
            ASSERT_EQ(smallest(rows), k);
            ASSERT_EQ(largest(rows), k);
            ASSERT_LE(largest(cols) - smallest(cols), 1);
        }
    }
    Layout l = pattern(square(30), "balanced_random", "per_row=10 diagonal=1"); // br_5: about 2m, and I
    Mask mask = mask_of(l);
    for (size_t i = 0; i < 30; i++) EXPECT_EQ(mask[i * 31], 1);
    EXPECT_GE(smallest(sums(l, true)), 10);
    EXPECT_LE(largest(sums(l, true)), 11);
}

TEST(BigBird, PartsAreThere) {
    for (int64_t global : {0, 1, 3})
        for (int64_t window : {0, 1, 4})
            for (int64_t extra : {0, 1, 5, 100})
                for (int64_t causal : {0, 1})
                    for (tartan_shape s :
                         {square(20), tartan_shape{12, 20, 1, 1, 1}, tartan_shape{20, 12, 1, 1, 1}}) {
                        std::string parameters =
                            "global_blocks=" + std::to_string(global) + " window=" + std::to_string(window) +
                            " random=" + std::to_string(extra) + " causal=" + std::to_string(causal);
                        Mask mask = mask_of(pattern(s, "bigbird", parameters));
                        for (int64_t i = 0; i < s.rows; i++) {
                            int64_t must = 0, free = 0, stored = 0;
                            for (int64_t j = 0; j < s.cols; j++) {
                                bool allowed = !causal || j <= i,
                                     fixed = i < global || j < global || std::abs(i - j) <= window;
                                bool there = mask[(size_t)(i * s.cols + j)];
                                must += allowed && fixed;
                                free += allowed && !fixed;
                                stored += there;
                                ASSERT_FALSE(there && !allowed) << parameters;
                                ASSERT_FALSE(!there && allowed && fixed) << parameters;
                            }
                            ASSERT_EQ(stored, must + std::min(extra, free)) << parameters << " row " << i;
                        }
                    }
}

TEST(BigBird, RandomBlocksAreFair) {
    Indices count(12, 0); // row 5 of 12 with global 1 and window 1: one of the columns 1-3 and 7-11
    const int draws = 8000;
    for (int seed = 0; seed < draws; seed++) {
        Mask mask = mask_of(pattern(square(12), "bigbird", "", seed));
        for (size_t j = 0; j < 12; j++) count[j] += mask[5 * 12 + j];
    }
    for (size_t j : {1, 2, 3, 7, 8, 9, 10, 11})
        EXPECT_NEAR((double)count[j], draws / 8.0, 5 * std::sqrt(draws * 7 / 64.0));
    for (size_t j : {0, 4, 5, 6}) EXPECT_EQ(count[j], draws);
}

// Identities from the first run whose layouts passed the tests of their patterns: a recipe means the same
// layout for ever, on every machine and in every language.
TEST(Golden, RecipesKeepTheirIdentities) {
    struct Case {
        tartan_shape shape;
        const char *name, *parameters;
        int64_t seed;
        const char *identity;
    };
    const Case cases[] = {
        {{64, 64, 1, 1, 1}, "random", "density=0.1", 1, "34f93629a2d2f59c9ed9739ee0fe0dc4"},
        {{500, 300, 7, 5, 3}, "random", "density=0.7", 2, "0e6726e40a44e289ad4550dac75bfefe"},
        {{4096, 4096, 32, 32, 2},
         "balanced_random",
         "per_row=6 diagonal=1",
         3,
         "c2a353c1f381819467b2f9cf39ba5bd0"},
        {{2048, 2048, 64, 64, 4},
         "bigbird",
         "global_blocks=2 window=1 random=3",
         4,
         "e2a71a5ad2cf2eedffd4468182bf8c61"},
        {{5120, 5120, 32, 32, 1}, "barabasi_albert", "m=5", 1, "140ccc7256e7766460eeb5bcee8a4076"},
        {{1280, 1280, 8, 8, 1},
         "barabasi_albert",
         "m=5 extra=100",
         9223372036854775807,
         "658c00ada7b14cf4f45874bad522fb6a"},
        {{3200, 3200, 32, 32, 1}, "watts_strogatz", "m=5 rewire=0.2", 1, "a9e87f13e73741cf85715ed461583040"},
        {{3200, 3200, 32, 32, 2},
         "watts_strogatz",
         "m=3 rewire=1 extra=20",
         5,
         "6b30139646b794790d6206921df95fbc"},
        {{3072, 3072, 32, 32, 1},
         "watts_strogatz_2d",
         "m=2 rewire=0.3",
         6,
         "776500e29cb5df63c404c524be4ae69c"},
        {{1024, 1024, 32, 32, 4}, "fixed", "stride=4 num_verts=4", 0, "f599649ffae6f63999b6253d4e9f6a01"},
        {{255, 256, 16, 16, 1}, "local", "window=3", 0, "35a962d7f775209c250d82221dcfca35"},
        {{64, 256, 8, 8, 1},
         "conv_window",
         "input_h=16 filter_h=3 filter_w=3 stride=2",
         0,
         "7907196867389b1d515a697dbea21fac"},
    };
    for (const Case &c : cases)
        EXPECT_STREQ(tartan_layout_identity(pattern(c.shape, c.name, c.parameters, c.seed).get()), c.identity)
            << c.name << " " << c.parameters;
}

} // namespace
