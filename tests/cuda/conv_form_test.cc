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

// Sums of factors in two parts take twice the registers.
TEST(CudaConv, FormsOfF32HaveOneOrTwoParts) {
    Operands x({128, 128, 32, 32, 1}, "kernel=3x3 padding=1", {56, 56});
    x.set_dtype(TARTAN_F32);
    const tartan_cuda_conv_form two = x.form();
    EXPECT_EQ(2, two.parts);
    EXPECT_EQ(4, two.element);
    EXPECT_EQ(14, two.rows);
    EXPECT_EQ(2 * two.part_bytes, two.stage_bytes);
    EXPECT_FALSE(two.in_place);
    x.tf32 = true;
    const tartan_cuda_conv_form one = x.form();
    EXPECT_EQ(1, one.parts);
    EXPECT_EQ(28, one.rows);
    EXPECT_TRUE(one.in_place); // 32 channels are 128 bytes
    EXPECT_FALSE(one.boxed);
    x.filter.block_order = TARTAN_COL_MAJOR; // wgmma of tf32 reads no other order
    EXPECT_FALSE(x.form().in_place);
    for (int64_t edge : {112, 240}) { // boxes of 16 channels, of which a line has eight numbers
        Operands wide({256, 2 * edge, 32, edge, 1}, "kernel=1x1", {56, 56});
        wide.set_dtype(TARTAN_F32);
        wide.tf32 = true;
        EXPECT_EQ(edge == 112, wide.form().in_place);
    }
}

// Taps share a stage whose pixels have the same remainders by the stride; back, the taps of a phase do.
TEST(CudaConv, StridesShareStages) {
    Operands x({128, 128, 32, 32, 1}, "kernel=3x3 padding=1 stride=2", {56, 56});
    const tartan_cuda_conv_form f = x.form();
    EXPECT_EQ(0, f.split);
    EXPECT_EQ(9, f.box_cols);
    EXPECT_EQ(f.rows + 1, f.box_rows);
    x.turn();
    const tartan_cuda_conv_form back = x.form();
    EXPECT_EQ(0, back.split);
    EXPECT_EQ(9, back.box_cols);
    EXPECT_EQ(4, back.strips); // 28 columns of a phase
    const tartan_cuda_conv p = x.problem();
    EXPECT_EQ(4, tartan_cuda_conv_spreads(&p));
}

// Lists are divided where tiles of f32 are few, if they are long.
TEST(CudaConv, ListsAreDividedWhereTilesAreFew) {
    const auto splits = [](int64_t channels, std::vector<int64_t> size, int32_t dtype) {
        Operands x({channels, channels, 32, 32, 1}, "kernel=3x3 padding=1", size, 0.5);
        x.set_dtype(dtype);
        x.tf32 = true;
        return x.form().splits;
    };
    EXPECT_EQ(1, splits(128, {56, 56}, TARTAN_BF16));
    EXPECT_EQ(1, splits(128, {112, 112}, TARTAN_F32));
    EXPECT_LT(1, splits(512, {14, 14}, TARTAN_F32));
    EXPECT_EQ(1, splits(32, {14, 14}, TARTAN_F32)); // of few steps
    Operands windows({512, 512, 32, 32, 1}, "kernel=3x3 padding=1", {14, 14});
    windows.set_dtype(TARTAN_F32);
    const Layout active = random_layout({2, 1, 1, 1, 1}, 1, 1);
    windows.op.active = active.get();
    windows.op.windows.dims = 2;
    for (int d = 0; d < 2; d++) {
        windows.op.windows.count[d] = 1;
        windows.op.windows.size[d] = windows.op.windows.stride[d] = 14;
    }
    EXPECT_EQ(1, windows.form().splits);
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
