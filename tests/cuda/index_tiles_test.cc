// SPDX-License-Identifier: Apache-2.0
// Tiles of merged lists.
#include "support.h"

#include <algorithm>
#include <array>

extern "C" {
#include "problem.h"
}

using namespace tartan_test;

namespace {

// Starts of merged lists of random lengths, empty ones among them.
std::vector<int32_t> any_pointers(std::mt19937_64 &random) {
    std::vector<int32_t> pointers = {(int32_t)(random() % 3)};
    for (uint64_t groups = random() % 12; groups > 0; groups--)
        pointers.push_back(pointers.back() + (int32_t)(random() % 3 == 0 ? 0 : random() % 40));
    return pointers;
}

const int64_t kAcross = 200;

// Merged lists of one head with those starts, and ascending block columns.
struct Lists {
    std::vector<int32_t> pointers, cols;
    tartan_cuda_group_index index = {};
    Lists(const std::vector<int32_t> &starts, std::mt19937_64 &random) : pointers(starts) {
        cols.resize((size_t)pointers.back());
        for (size_t g = 0; g + 1 < pointers.size(); g++) {
            int32_t col = (int32_t)(random() % 20);
            for (int32_t e = pointers[g]; e < pointers[g + 1]; e++) {
                cols[(size_t)e] = col;
                col += 1 + (int32_t)(random() % 4);
            }
        }
        index.group = 1;
        index.groups_per_head = (int32_t)pointers.size() - 1;
        index.pointers = pointers.data();
        index.cols = cols.data();
    }
};

} // namespace

TEST(CudaIndex, TilesCoverEveryList) {
    std::mt19937_64 random(6);
    for (int i = 0; i < 1000 && !HasFailure(); i++) {
        const std::vector<int32_t> pointers = any_pointers(random);
        const int64_t groups = (int64_t)pointers.size() - 1;
        const tartan_cuda_tile_form form = {(int32_t)(1 + random() % 16), (int32_t)(random() % 20),
                                            (int32_t)(1 + random() % 9), (int32_t)(random() % 60), false};
        const Lists lists(pointers, random);
        tartan_cuda_host_tiles index;
        ASSERT_OK(tartan_cuda_index_tiles(&tartan_i_host, &lists.index, 1, kAcross, &form, &index));
        int64_t tile = 0, cost = 0;
        for (int32_t g = 0; g < groups; g++) {
            int32_t at = pointers[(size_t)g], least = INT32_MAX, most = 0;
            for (; at < pointers[(size_t)g + 1]; tile++) {
                const int32_t *value = index.values + 4 * tile;
                ASSERT_LT(tile, index.count);
                ASSERT_EQ(g, value[0]);
                ASSERT_EQ(at, value[1]);
                const int32_t length = value[2] - value[1];
                ASSERT_TRUE(length >= 1 && length <= form.entries);
                least = std::min(least, length), most = std::max(most, length);
                ASSERT_EQ(cost, index.costs[tile]);
                cost += std::max(form.least, form.base + form.each * length);
                at = value[2];
            }
            EXPECT_EQ(pointers[(size_t)g + 1], at);
            EXPECT_TRUE(most == 0 || most - least <= 1); // of even length
        }
        EXPECT_EQ(tile, index.count);
        EXPECT_EQ(cost, index.costs[tile]);
        tartan_i_host.free(index.costs);
        tartan_i_host.free(index.values);
    }
    const Lists lists({0, 9, 30}, random);
    const tartan_cuda_tile_form form = {4, 1, 1, 1, true};
    tartan_cuda_host_tiles index = {};
    BRUTAL(tartan_cuda_index_tiles(&tartan_i_host, &lists.index, 1, kAcross, &form, &index),
           (tartan_i_host.free(index.costs), tartan_i_host.free(index.values)));
}

TEST(CudaIndex, TilesByColumnAreTheSameInAnotherOrder) {
    std::mt19937_64 random(8);
    for (int i = 0; i < 500 && !HasFailure(); i++) {
        const std::vector<int32_t> pointers = any_pointers(random);
        const Lists lists(pointers, random);
        tartan_cuda_tile_form form = {(int32_t)(1 + random() % 16), 1, 1, 1, false};
        tartan_cuda_host_tiles by_group, by_column;
        ASSERT_OK(tartan_cuda_index_tiles(&tartan_i_host, &lists.index, 1, kAcross, &form, &by_group));
        form.by_column = true;
        ASSERT_OK(tartan_cuda_index_tiles(&tartan_i_host, &lists.index, 1, kAcross, &form, &by_column));
        ASSERT_EQ(by_group.count, by_column.count);
        using Value = std::array<int32_t, 3>;
        std::vector<Value> expected, got;
        for (int64_t t = 0; t < by_group.count; t++) {
            const int32_t *a = by_group.values + 4 * t, *b = by_column.values + 4 * t;
            expected.push_back({a[0], a[1], a[2]});
            got.push_back({b[0], b[1], b[2]});
            if (t > 0) {
                EXPECT_LE(lists.cols[(size_t)by_column.values[4 * (t - 1) + 1]], lists.cols[(size_t)b[1]]);
            }
        }
        std::sort(expected.begin(), expected.end());
        std::sort(got.begin(), got.end());
        EXPECT_EQ(expected, got);
        for (auto *index : {&by_group, &by_column}) {
            tartan_i_host.free(index->costs);
            tartan_i_host.free(index->values);
        }
    }
}
