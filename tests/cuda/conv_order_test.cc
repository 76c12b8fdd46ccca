// SPDX-License-Identifier: Apache-2.0
// The order in which conv_wgmma computes its tiles.
#include "conv_operands.h"

#include <set>

using namespace tartan_test;

namespace {

// A permutation of the lists, by descending steps, those without steps last.
void expect_order(const tartan_cuda_conv_steps &s) {
    const int32_t *order = s.values + s.order, *steps_of = s.values + s.steps_of;
    const auto steps = [&](int32_t i) { return steps_of[order[i] + 1] - steps_of[order[i]]; };
    std::vector<int> seen((size_t)s.lists);
    for (int32_t i = 0; i < s.lists; i++) {
        ASSERT_GE(order[i], 0);
        ASSERT_LT(order[i], s.lists);
        seen[(size_t)order[i]]++;
        EXPECT_EQ(i<s.busy, steps(i)> 0);
        EXPECT_GE(steps(i > 0 ? i - 1 : 0), steps(i));
    }
    EXPECT_EQ(std::vector<int>((size_t)s.lists, 1), seen);
}

TEST(CudaConv, GroupsComeByDescendingSteps) {
    for (double density : {0.02, 0.1, 0.5}) {
        const Operands x({1024, 512, 64, 64, 1}, "kernel=3x3 padding=1", {28, 28}, density);
        const tartan_cuda_conv p = x.problem();
        const tartan_cuda_conv_form f = x.form();
        tartan_cuda_conv_steps s;
        ASSERT_OK(tartan_cuda_conv_steps_make(&tartan_i_host, &p, &f, &s));
        const std::unique_ptr<int32_t, void (*)(void *)> owned(s.values,
                                                               [](void *p) { tartan_i_host.free(p); });
        expect_order(s);
        EXPECT_TRUE(density > 0.05 || s.busy < s.lists);
        std::set<int32_t> first_channels;
        for (int64_t i = 0; i < s.stages; i++) first_channels.insert(s.values[s.stage_table + 4 * i]);
        EXPECT_EQ((int32_t)first_channels.size(), s.spans);
    }
}

// Each group once for each tile of pixels, and in a panel group after group.
TEST(CudaConv, TilesComeInPanels) {
    for (uint32_t tiles : {1u, 7u, 128u, 448u})
        for (uint32_t panel : {1u, 5u, 112u, 448u})
            for (uint32_t groups : {1u, 3u, 8u}) {
                if (panel > tiles) continue;
                std::vector<int> seen(tiles * groups);
                tartan_cuda_conv_place last = {0, 0};
                for (uint32_t n = 0; n < tiles * groups; n++) {
                    const tartan_cuda_conv_place at = tartan_cuda_conv_place_of(n, tiles, panel, groups);
                    ASSERT_LT(at.list, groups);
                    ASSERT_LT(at.pixels, tiles);
                    seen[at.pixels * groups + at.list]++;
                    if (at.pixels / panel == last.pixels / panel)
                        EXPECT_GE(at.list, last.list);
                    else
                        EXPECT_EQ(last.pixels / panel + 1, at.pixels / panel);
                    last = at;
                }
                EXPECT_EQ(std::vector<int>(tiles * groups, 1), seen);
            }
}

TEST(CudaConv, PanelsLeavePixelsInL2) {
    const tartan_cuda_conv_form f = Operands({256, 256, 64, 64, 1}, "kernel=3x3 padding=1", {56, 56}).form();
    EXPECT_EQ(28, f.rows);
    EXPECT_EQ(448, tartan_cuda_conv_panel(&f, 448, 2, 20, 1, 1)); // 43 KB a tile of pixels and group
    EXPECT_EQ(224, tartan_cuda_conv_panel(&f, 448, 4, 32, 8, 2)); // 86 KB
    EXPECT_EQ(112, tartan_cuda_conv_panel(&f, 448, 4, 64, 16, 4));
    EXPECT_EQ(1, tartan_cuda_conv_panel(&f, 1, 4, 64, 16, 4));
    EXPECT_EQ(1, tartan_cuda_conv_panel(&f, 448, 3, 15, 6, 4)); // memory takes as long as products
    EXPECT_EQ(1, tartan_cuda_conv_panel(&f, 448, 4, 8, 16, 4));
}

} // namespace
