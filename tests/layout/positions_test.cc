// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "layouts.h"

extern "C" {
#include "layout/key_set.h"
#include "layout/positions.h"
}

#include <set>

using namespace tartan_test;

namespace {

TEST(Sort, LikeStableSort) {
    std::mt19937_64 random(10);
    for (int i = 0; i < rounds(1000); i++) {
        size_t n = random() % 200;
        int64_t limit = (int64_t)1 << (random() % 63);
        Indices keys(n), ids(n);
        for (auto &k : keys) k = (int64_t)(random() % (uint64_t)limit);
        std::iota(ids.begin(), ids.end(), 0);
        Indices order = ids, alone = keys, before = keys;
        std::stable_sort(order.begin(), order.end(),
                         [&](int64_t a, int64_t b) { return before[(size_t)a] < before[(size_t)b]; });
        ASSERT_OK(tartan_i_sort(keys.data(), ids.data(), (int64_t)n));
        ASSERT_OK(tartan_i_sort(alone.data(), nullptr, (int64_t)n));
        ASSERT_EQ(ids, order);
        std::sort(before.begin(), before.end());
        ASSERT_EQ(keys, before);
        ASSERT_EQ(alone, before);
    }
}

TEST(Sort, EveryAllocationMayFail) {
    Indices keys, ids;
    BRUTAL((keys = {INT64_MAX, 0, 3}, ids = {0, 1, 2}, tartan_i_sort(keys.data(), ids.data(), 3)), );
    EXPECT_EQ(keys, (Indices{0, 3, INT64_MAX}));
    EXPECT_EQ(ids, (Indices{1, 2, 0}));
}

TEST(SelectLargest, LikeStableSort) {
    std::mt19937_64 random(11);
    const double special[] = {0.0, -0.0, INFINITY, -INFINITY, 5e-324, -5e-324, 1.0, -1.0, 1e308, -1e308};
    for (int i = 0; i < rounds(2000); i++) {
        size_t n = random() % 50, count = random() % (n + 1);
        std::vector<double> scores(n);
        for (auto &x : scores)
            x = i % 2 ? special[random() % 10] : std::ldexp((double)(int64_t)random(), (int)(random() % 40));
        std::vector<size_t> order(n);
        std::iota(order.begin(), order.end(), (size_t)0);
        std::stable_sort(order.begin(), order.end(),
                         [&](size_t a, size_t b) { return scores[a] > scores[b]; });
        Mask expected(n, 0), keep(n, 9);
        for (size_t k = 0; k < count; k++) expected[order[k]] = 1;
        tartan_i_select_largest(scores.data(), (int64_t)n, (int64_t)count, keep.data());
        ASSERT_EQ(keep, expected);
    }
}

TEST(KeySet, LikeAStdSet) {
    std::mt19937_64 random(12);
    for (int i = 0; i < rounds(200); i++) {
        key_set set;
        std::set<int64_t> model;
        ASSERT_OK(key_set_make(&set, 40));
        for (int step = 0; step < 400; step++) {
            // few different keys, and multiples of the table's size, so that they collide
            int64_t key = (int64_t)(random() % 60) << (i % 3 ? 0 : 40);
            if (model.count(key)) {
                ASSERT_TRUE(key_set_has(&set, key));
                ASSERT_FALSE(key_set_add(&set, key));
                if (random() % 2) {
                    key_set_remove(&set, key);
                    model.erase(key);
                }
            } else {
                ASSERT_FALSE(key_set_has(&set, key));
                if (model.size() < 40) {
                    ASSERT_TRUE(key_set_add(&set, key));
                    model.insert(key);
                }
            }
        }
        for (int64_t key = 0; key < 60; key++)
            ASSERT_EQ(key_set_has(&set, key << (i % 3 ? 0 : 40)), model.count(key << (i % 3 ? 0 : 40)) == 1);
        tartan_i_free(set.slots);
    }
}

TEST(FromPositions, SourcesSayWhereEachBlockCameFrom) {
    std::mt19937_64 random(13);
    for (int i = 0; i < rounds(500); i++) {
        Layout l = any_layout(random);
        tartan_shape s = shape_of(l.get());
        Indices positions((size_t)tartan_layout_blocks(l.get()));
        tartan_i_layout_positions(l.get(), positions.data());
        Indices sorted = positions;
        std::shuffle(positions.begin(), positions.end(), random);
        Indices shuffled = positions;
        int64_t *sources = nullptr;
        tartan_layout *out = nullptr;
        ASSERT_OK(tartan_i_layout_from_positions("test", &s, positions.data(), (int64_t)positions.size(),
                                                 false, &sources, &out));
        ASSERT_EQ(tartan_layout_equal(out, l.get()), 1);
        for (size_t k = 0; k < sorted.size(); k++) ASSERT_EQ(shuffled[(size_t)sources[k]], sorted[k]);
        tartan_i_free(sources);
        tartan_layout_free(out);
    }
}

} // namespace
