// SPDX-License-Identifier: Apache-2.0
#include "support.h"

extern "C" {
#include "stream_k.h"
}

using namespace tartan_test;

TEST(CudaStreamK, RangesAreOfEqualCost) {
    std::mt19937_64 random(7);
    for (int i = 0; i < 2000 && !HasFailure(); i++) {
        std::vector<int64_t> costs = {0};
        const int64_t count = 1 + (int64_t)(random() % 300), steps = 1 + (int64_t)(random() % 100);
        for (int64_t t = 0; t < count; t++) costs.push_back(costs.back() + 1 + (int64_t)(random() % 20));
        const tartan_cuda_tile_index tiles = {count, costs.data(), nullptr};
        const int32_t processors = 1 + (int32_t)(random() % 140);
        const int32_t parts = tartan_cuda_parts_of(count, steps, processors);
        ASSERT_TRUE(parts >= 1 && parts <= processors);
        ASSERT_TRUE(count < processors || parts == processors);
        std::vector<tartan_cuda_cut> cuts((size_t)parts + 1);
        tartan_cuda_cuts_of(&tiles, steps, parts, cuts.data());
        ASSERT_TRUE(cuts[0].tile == 0 && cuts[0].step == 0);
        ASSERT_TRUE(cuts[(size_t)parts].tile == count && cuts[(size_t)parts].step == 0);
        const auto cost_at = [&](const tartan_cuda_cut &cut) {
            const int64_t tile =
                cut.tile == count ? 0 : costs[(size_t)cut.tile + 1] - costs[(size_t)cut.tile];
            return (double)costs[(size_t)cut.tile] * (double)steps + (double)(tile * cut.step);
        };
        // No cut is further from its ideal place than the edge of its tile, or one step.
        const double each = cost_at(cuts[(size_t)parts]) / parts;
        for (int32_t part = 0; part <= parts; part++) {
            const tartan_cuda_cut &cut = cuts[(size_t)part];
            ASSERT_TRUE(cut.step >= 0 && cut.step < steps);
            ASSERT_TRUE(part == 0 || cost_at(cuts[(size_t)part - 1]) <= cost_at(cut));
            ASSERT_NEAR(each * part, cost_at(cut), 20.0 * (double)((steps + 1) / 2 + 1)) << part;
        }
    }
}

// Split-K by clusters is for few tiles of long sums: not where a cluster for each tile takes many rounds, nor where so
// few tiles have so long sums that stream-K cuts them finer.
TEST(CudaStreamK, ClustersSplitFewTiles) {
    EXPECT_EQ(1, tartan_cuda_sharers_of(0, 64, 132));
    EXPECT_EQ(1, tartan_cuda_sharers_of(59, TARTAN_CUDA_FEW_STEPS - 1, 132));
    EXPECT_EQ(2, tartan_cuda_sharers_of(59, 64, 132));
    EXPECT_EQ(2, tartan_cuda_sharers_of(66, 64, 132));
    EXPECT_EQ(3, tartan_cuda_sharers_of(40, 64, 132));
    EXPECT_EQ(4, tartan_cuda_sharers_of(20, 64, 132));
    EXPECT_EQ(1, tartan_cuda_sharers_of(100, 64, 132));
    EXPECT_EQ(1, tartan_cuda_sharers_of(8, 4096, 132));
    for (int64_t tiles = 1; tiles < 300; tiles++) {
        for (int32_t processors = 1; processors < 140; processors++) {
            const int32_t sharers = tartan_cuda_sharers_of(tiles, 1 + tiles * 7 % 100, processors);
            ASSERT_TRUE(sharers >= 1 && sharers <= TARTAN_CUDA_MOST_SHARERS && sharers <= processors);
        }
    }
}
