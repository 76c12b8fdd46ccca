// SPDX-License-Identifier: Apache-2.0
// What a convolution is made of: blocks for each tap, filters in other orders, classes of positions at edges.
#include "../ops/products.h"

extern "C" {
#include "conv/geometry.h"
}

using namespace tartan_test;

namespace {

struct FreeConv {
    void operator()(tartan_conv *p) const { tartan_conv_free(p); }
};
using Conv = std::unique_ptr<tartan_conv, FreeConv>;

Conv conv_of(const Layout &channels, const char *options) {
    tartan_conv *out = nullptr;
    EXPECT_OK(tartan_conv_create(channels.get(), options, &out));
    return Conv(out);
}

TEST(Conv, BlocksOfEachTapAreWhole) {
    tartan_conv *out = nullptr;
    const auto refused = [&](int64_t cols, int64_t block, const char *options) {
        const Layout channels = random_layout({4, cols, 2, block, 1}, 1, 1);
        EXPECT_FAILS(SHAPE, "expected whole blocks", tartan_conv_create(channels.get(), options, &out));
    };
    refused(10, 3, "kernel=3 per_tap=1"); // 10 columns are no 3 taps, though 10 / 3 are whole blocks
    refused(12, 4, "kernel=2 per_tap=1"); // 6 columns a tap are no whole blocks
    refused(12, 3, "kernel=6 per_tap=1"); // nor are 2
    const Layout channels = random_layout({4, 12, 2, 2, 1}, 1, 1);
    EXPECT_NE(nullptr, conv_of(channels, "kernel=3 per_tap=1"));
    EXPECT_NE(nullptr, conv_of(channels, "kernel=2 per_tap=1"));
}

// Weights of blocks that lack channels are zeros, whatever stands behind the dense filter.
TEST(Conv, WhatHasNoChannelsIsZeroInAFilter) {
    const int64_t K = 5, C = 7, taps = 2;
    const Layout channels = random_layout({K, C, 4, 4, 1}, 1, 1);
    const Conv conv = conv_of(channels, "kernel=2");
    tartan_layout *layout = nullptr;
    ASSERT_OK(tartan_conv_get_layout(conv.get(), &layout));
    const Layout of(layout);
    tartan_matrix *filter = nullptr;
    ASSERT_OK(tartan_matrix_create(layout, TARTAN_F32, TARTAN_ROW_MAJOR, &filter));
    const Matrix owner(filter);
    std::vector<float> room(400, 99); // reading beyond the end stays inside of it
    for (int64_t i = 0; i < K * C * taps; i++) room[(size_t)i] = (float)(i + 1);
    const int64_t shape[] = {K, C, taps};
    tartan_array dense = {};
    ASSERT_OK(tartan_array_init(room.data(), TARTAN_F32, 3, shape, nullptr, &dense));
    ASSERT_OK(tartan_conv_filter_from_dense(conv.get(), &dense, filter));
    double sum = 0;
    for (int64_t id = 0; id < layout->blocks; id++)
        for (int64_t i = 0; i < 4; i++)
            for (int64_t j = 0; j < 4; j++) {
                const int64_t k = layout->block_rows[id] * 4 + i, c = layout->block_cols[id] % 2 * 4 + j,
                              tap = layout->block_cols[id] / 2;
                const bool is_there = k < K && c < C;
                ASSERT_EQ(is_there ? (double)((k * C + c) * taps + tap + 1) : 0, entry(filter, id, i, j));
                sum += entry(filter, id, i, j);
            }
    EXPECT_EQ((double)(K * C * taps * (K * C * taps + 1) / 2), sum);
    // And back: nothing is added to what stands behind.
    ASSERT_OK(tartan_conv_filter_to_dense(conv.get(), filter, &dense));
    for (int64_t i = 0; i < (int64_t)room.size(); i++)
        ASSERT_EQ(i < K * C * taps ? (float)(i + 1) : 99, room[(size_t)i]);
}

TEST(Conv, ClassesAtEdgesAreFreedWithAllTheyHave) {
    tartan_i_conv_options options = {};
    ASSERT_OK(tartan_i_conv_options_parse("test", "kernel=3x3 padding=1", &options));
    const int64_t size[] = {1, 6, 6};
    tartan_i_geometry geometry = {};
    ASSERT_OK(tartan_i_geometry_of("test", &options, "x", size + 1, &geometry));
    tartan_i_edges edges = {};
    BRUTAL(tartan_i_edges_make(&geometry, false, &edges), tartan_i_edges_free(&edges));
    EXPECT_EQ(1, edges.classes); // none but the interior
    EXPECT_EQ(nullptr, edges.classes_of);
    ASSERT_OK(tartan_i_edges_make(&geometry, false, &edges));
    EXPECT_EQ(9, edges.classes); // four corners, four sides, the interior
    EXPECT_EQ(1, tartan_i_edges_class(&edges, 0, 0, 0));
    EXPECT_EQ(0, tartan_i_edges_class(&edges, 0, 2, 3));
    tartan_i_edges_free(&edges);
}

} // namespace
