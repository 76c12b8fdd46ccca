// SPDX-License-Identifier: Apache-2.0
// What the bottleneck unit refuses beyond the rows of its entry, before anything is written.
#include "residual_support.h"

namespace {

using namespace tartan_test;

class ResidualRefusals : public ::testing::Test {
  protected:
    std::mt19937_64 random{1};
    Unit u;
    Dense x, y, before;
    std::string windows = "size=4", options = "relu=1";

    void SetUp() override {
        u.n = 2, u.channels = 8, u.size = {9, 10};
        u.conv[0] = make_conv(layout(4, 8), "kernel=1x1");
        u.conv[1] = make_conv(layout(6, 4), "kernel=3x3 padding=same");
        u.conv[2] = make_conv(layout(8, 6), "kernel=1x1");
        fill_unit(u, random, 1);
        u.active = all_windows(2, u.size, 4);
        x = u.image(kRows), y = u.image(kRows);
        x.fill(random);
        before = y;
    }
    void TearDown() override { EXPECT_EQ(before.memory(), y.memory()) << "the output was written"; }

    static Layout layout(int64_t rows, int64_t cols) { return random_layout({rows, cols, 2, 2, 1}, 1.1, 1); }
    void replace(int i, int64_t rows, int64_t cols, const std::string &text) {
        u.conv[i] = make_conv(layout(rows, cols), text);
        u.filter[i] = random_matrix(layout_of(u.conv[i]), u.dtype, TARTAN_ROW_MAJOR, random);
    }
    tartan_status run(const UnitOperands &o) {
        auto a = u.arguments(o, &x.array, u.active.layout.get(), options.c_str(), &y.array);
        a.windows = windows.c_str();
        return tartan_residual_forward(cpu(), &a);
    }
    tartan_status run() { return run(u.operands()); }
};

TEST_F(ResidualRefusals, FactorsThatNeedPreactivate) {
    UnitOperands o = u.operands();
    o.x_gain = &u.x_gain.array;
    EXPECT_FAILS(ARGUMENT, "x_gain is given, but options has no preactivate=1", run(o));
    o.x_gain = nullptr, o.x_bias = &u.x_bias.array;
    EXPECT_FAILS(ARGUMENT, "x_bias is given, but options has no preactivate=1", run(o));
}

TEST_F(ResidualRefusals, Images) {
    Dense flat(TARTAN_F32, {2, 8}), large(TARTAN_F32, {1, 8, 1, 1});
    large.array.shape[2] = INT64_C(1) << 31, large.array.strides[2] = 0;
    const auto in_place = [&](Dense &image) {
        auto a = u.arguments(u.operands(), &image.array, u.active.layout.get(), nullptr, &image.array);
        return tartan_residual_forward(cpu(), &a);
    };
    EXPECT_FAILS(SHAPE, "x has shape [2, 8], expected [n, channels, spatial...] with 1 to 3", in_place(flat));
    large.array.shape[0] = 0; // without elements, so that they may share memory
    EXPECT_FAILS(SHAPE, "expected spatial lengths below 2^31", in_place(large));
}

TEST_F(ResidualRefusals, Channels) {
    replace(0, 4, 6, "kernel=1x1");
    EXPECT_FAILS(SHAPE, "reduce has 6 input channels, expected 8", run());
    replace(0, 6, 8, "kernel=1x1");
    EXPECT_FAILS(SHAPE, "reduce_gain has 4 numbers, expected 6 (one for each output channel)", ([&] {
                     UnitOperands o = u.operands();
                     o.gain[0] = &u.gain[0].array;
                     return run(o);
                 })());
    u.has_gain[0] = u.has_bias[0] = false;
    EXPECT_FAILS(SHAPE, "spatial has 4 input channels, expected 6", run());
    replace(1, 6, 6, "kernel=3x3 padding=same");
    replace(2, 8, 4, "kernel=1x1");
    EXPECT_FAILS(SHAPE, "expand has 4 input channels, expected 6", run());
    replace(2, 6, 6, "kernel=1x1");
    u.has_gain[2] = u.has_bias[2] = false;
    EXPECT_FAILS(SHAPE, "expand has 6 output channels, expected 8 (as x)", run());
}

TEST_F(ResidualRefusals, Kinds) {
    for (const char *bad : {"kernel=3x3 padding=same", "kernel=1x1 stride=2", "kernel=1x1 padding=1"}) {
        replace(0, 4, 8, bad);
        EXPECT_FAILS(ARGUMENT, "reduce has the options", run());
    }
    replace(0, 4, 8, "kernel=1");
    EXPECT_FAILS(SHAPE, "reduce has 1 spatial dimensions, expected 2", run());
    replace(0, 8, 4, "kernel=1x1 transposed=1");
    EXPECT_FAILS(ARGUMENT, "reduce is transposed", run());
    replace(0, 4, 8, "kernel=1x1");
    for (const char *bad : {"kernel=3x3", "kernel=3x3 padding=same stride=2", "kernel=4x4 padding=half"}) {
        replace(1, 6, 4, bad);
        EXPECT_FAILS(ARGUMENT, "spatial has the options", run());
    }
    replace(1, 6, 4, "kernel=30x30");
    EXPECT_FAILS(SHAPE, "which the kernel spans", run());
    replace(1, 6, 4, "kernel=3x3 padding=same");
    replace(2, 8, 6, "kernel=2x2");
    EXPECT_FAILS(ARGUMENT, "expand has the options", run());
}

TEST_F(ResidualRefusals, Windows) {
    windows = "";
    EXPECT_FAILS(HANDLE, "windows is NULL", ([&] {
                     auto a = u.arguments(u.operands(), &x.array, u.active.layout.get(), nullptr, &y.array);
                     a.windows = nullptr;
                     return tartan_residual_forward(cpu(), &a);
                 })());
    windows = "size=4 stride=3";
    EXPECT_FAILS(ARGUMENT, "windows overlap", run());
    windows = "size=10x4 stride=10x4";
    EXPECT_FAILS(ARGUMENT, "windows are larger than x", run());
    windows = "size=4 count=4x4";
    EXPECT_FAILS(SHAPE, "", run());
    windows = "sizes=4";
    EXPECT_FAILS(ARGUMENT, "", run());
    replace(1, 6, 4, "kernel=3x3 padding=same dilation=2");
    windows = "size=4 offset=-2147483647x0";
    EXPECT_FAILS(OVERFLOW, "expected both to fit in 32 bits", run());
    u.active.layout = random_layout({3, 3, 1, 1, 1}, 1, 1);
    windows = "size=4";
    EXPECT_FAILS(SHAPE, "", run());
}

TEST_F(ResidualRefusals, HalosThatNoMemoryCanHold) {
    Unit big;
    big.channels = 1, big.size = {1, 1, 1};
    const char *kinds[] = {"kernel=1x1x1", "kernel=3x3x3 dilation=1048576 padding=same", "kernel=1x1x1"};
    const Layout one = random_layout({1, 1, 1, 1, 1}, 1.1, 1);
    for (int i = 0; i < 3; i++) big.conv[i] = make_conv(one, kinds[i]);
    fill_unit(big, random, 1);
    big.active = all_windows(1, big.size, 1);
    Dense image = big.image(kRows);
    EXPECT_FAILS(OVERFLOW, "need more than 2^60 bytes", big.run(cpu(), image, image));
    big.conv[1] = make_conv(one, "kernel=2049x1x1 dilation=1048576 padding=same");
    big.filter[1] = random_matrix(layout_of(big.conv[1]), TARTAN_F32, TARTAN_ROW_MAJOR, random);
    EXPECT_FAILS(OVERFLOW, "expected both to fit in 32 bits", big.run(cpu(), image, image));
}

} // namespace
