// SPDX-License-Identifier: Apache-2.0
// Convolution: the forms of conv_wgmma, which are how tiles lie in the image, what a stage holds, and how weights come.
#include "conv_operands.h"

using namespace tartan_test;

TEST(CudaConv, FormsFitTheImage) {
    EXPECT_EQ(28, Operands({64, 64, 64, 64, 1}, "kernel=3x3 padding=1", {56, 56}).form().rows);
    EXPECT_EQ(32, Operands({64, 64, 64, 64, 1}, "kernel=3x3 padding=1", {64, 64}).form().rows);
    EXPECT_EQ(2, Operands({64, 64, 64, 64, 1}, "kernel=3x3 padding=1", {14, 14}).form().units);
    EXPECT_EQ(4, Operands({64, 64, 64, 64, 1}, "kernel=3x3 padding=1", {7, 7}).form().units);
    EXPECT_TRUE(Operands({64, 64, 64, 64, 1}, "kernel=3 padding=1", {1000}).form().lines);
    EXPECT_EQ(0, Operands({64, 64, 64, 64, 1}, "kernel=3x3 padding=1", {64, 64}).form().split);
    EXPECT_LT(0, Operands({64, 64, 64, 64, 1}, "kernel=3x3 padding=12 dilation=12", {64, 64}).form().split);
}

// In place, if blocks have edges of 32 or 64, no part of them is padding, and rows of boxes have 128 bytes or there is one tap.
TEST(CudaConv, WeightsOfWideBlocksAreLoadedInPlace) {
    using Boxes = std::vector<int32_t>;
    const auto boxes = [](tartan_shape shape, const char *options = "kernel=3x3 padding=1",
                          bool by_cols = false) {
        Operands x(shape, options, {64, 64});
        if (by_cols) x.filter.block_order = TARTAN_COL_MAJOR;
        const tartan_cuda_conv_form f = x.form();
        return f.in_place ? Boxes{f.box_width, f.box_lines, f.boxes} : Boxes{};
    };
    EXPECT_EQ(Boxes({64, 64, 2}), boxes({128, 128, 64, 64, 1}));
    EXPECT_EQ(Boxes({64, 64, 2}), boxes({128, 128, 64, 64, 1}, "kernel=1x1", true));
    EXPECT_EQ(Boxes({64, 32, 4}), boxes({192, 128, 96, 64, 1}));
    EXPECT_EQ(Boxes(), boxes({192, 128, 96, 64, 1}, "kernel=3x3 padding=1", true));
    EXPECT_EQ(Boxes({32, 64, 4}), boxes({192, 128, 96, 64, 1}, "kernel=1x1", true));
    EXPECT_EQ(Boxes(), boxes({128, 128, 32, 32, 1}));
    EXPECT_EQ(Boxes({32, 32, 8}), boxes({128, 128, 32, 32, 1}, "kernel=1x1"));
    EXPECT_EQ(Boxes(), boxes({128, 128, 32, 32, 1}, "kernel=3x3 padding=1 stride=2"));
    EXPECT_EQ(Boxes({32, 32, 8}), boxes({128, 128, 32, 32, 1}, "kernel=1x1 stride=2"));
    EXPECT_EQ(Boxes(),
              boxes({64, 64, 64, 64, 1}, "kernel=7x7 padding=9 dilation=3")); // stages of 32 channels
    EXPECT_EQ(Boxes(), boxes({128, 128, 16, 16, 1}, "kernel=1x1"));
    EXPECT_EQ(Boxes(), boxes({128, 128, 64, 16, 1}, "kernel=1x1"));
    EXPECT_EQ(Boxes(), boxes({128, 96, 64, 64, 1}, "kernel=1x1"));
    EXPECT_EQ(Boxes(), boxes({120, 128, 64, 64, 1}, "kernel=1x1"));
}

// Rows of 128 bytes, unless their halves are used by different groups.
TEST(CudaConv, StagesAreAsWideAsGroupsUseThem) {
    EXPECT_EQ(128, Operands({256, 256, 64, 64, 1}, "kernel=1x1", {28, 28}, 0.1).form().span);
    EXPECT_EQ(64, Operands({512, 512, 32, 32, 1}, "kernel=1x1", {28, 28}, 0.25).form().span);
    EXPECT_EQ(128, Operands({512, 512, 32, 32, 1}, "kernel=1x1", {28, 28}, 0.5).form().span);
    EXPECT_EQ(128, Operands({512, 512, 32, 32, 1}, "kernel=3x3 padding=1", {28, 28}, 0.1).form().span);
    EXPECT_EQ(128, Operands({512, 512, 8, 8, 1}, "kernel=1x1", {28, 28}, 0.25).form().span);
    EXPECT_EQ(64, Operands({512, 512, 8, 8, 1}, "kernel=1x1", {28, 28}, 0.01).form().span);
    EXPECT_EQ(64, Operands({64, 64, 64, 64, 1}, "kernel=7x7 padding=9 dilation=3", {64, 64}).form().span);
}
