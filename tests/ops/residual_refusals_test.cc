// SPDX-License-Identifier: Apache-2.0
// What the bottleneck unit refuses, before anything is written.
#include "residual_support.h"

namespace {

using namespace tartan_test;

class ResidualRefusals : public ::testing::Test {
  protected:
    std::mt19937_64 random{1};
    Unit u;
    Dense x, y, before;
    std::string windows = "size=4", options = "relu=1";
    const tartan_array *to = nullptr;

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
        return tartan_residual_forward(cpu(), &x.array, o.x_gain, o.x_bias, u.conv[0].get(), o.filter[0],
                                       o.gain[0], o.bias[0], u.conv[1].get(), o.filter[1], o.gain[1],
                                       o.bias[1], u.conv[2].get(), o.filter[2], o.gain[2], o.bias[2],
                                       options.c_str(), u.active.layout.get(), windows.c_str(), &y.array);
    }
    tartan_status run() { return run(u.operands()); }
};

TEST_F(ResidualRefusals, Options) {
    for (const char *bad : {"add=1", "relus=1"}) {
        options = bad;
        EXPECT_FAILS(ARGUMENT, "expected relu or preactivate", run());
    }
    options = "relu=2";
    EXPECT_FAILS(ARGUMENT, "expected relu to be 0 or 1", run());
    options = "relu=1 relu=1";
    EXPECT_FAILS(ARGUMENT, "relu twice", run());
    options = "preactivate";
    EXPECT_FAILS(ARGUMENT, "expected name=value", run());
    options = "relu=1";
    UnitOperands o = u.operands();
    o.x_gain = &u.x_gain.array;
    EXPECT_FAILS(ARGUMENT, "x_gain is given, but options has no preactivate=1", run(o));
    o.x_gain = nullptr, o.x_bias = &u.x_bias.array;
    EXPECT_FAILS(ARGUMENT, "x_bias is given, but options has no preactivate=1", run(o));
}

TEST_F(ResidualRefusals, Images) {
    const Dense whole = x;
    x = Dense(TARTAN_F32, {2, 8});
    EXPECT_FAILS(SHAPE, "x has shape [2, 8], expected [n, channels, spatial...]", run());
    x = Dense(TARTAN_F8E4M3, {2, 8, 9, 10});
    EXPECT_FAILS(DTYPE, "x", run());
    x = Dense(TARTAN_F32, {1, 1, 1, 1});
    x.array.shape[2] = INT64_C(1) << 31, x.array.strides[2] = 0;
    EXPECT_FAILS(SHAPE, "expected spatial lengths below 2^31", run());
    x = Dense(TARTAN_F64, {2, 8, 9, 10});
    EXPECT_FAILS(DTYPE, "y is of float32, expected float64 (that of x)", run());
    x = Dense(TARTAN_F32, {2, 8, 9, 11});
    EXPECT_FAILS(SHAPE, "y has shape [2, 8, 9, 10], expected [2, 8, 9, 11] (that of x)", run());
    x = Dense(TARTAN_F32, {2, 8, 90});
    EXPECT_FAILS(SHAPE, "y has shape", run());
    x = whole;
    x.array = y.array;
    std::swap(x.array.strides[2], x.array.strides[3]);
    x.array.strides[2] = 1, x.array.strides[3] = 9;
    EXPECT_FAILS(ARGUMENT, "y overlaps x", run());
    x = whole;
    Dense repeated = y;
    std::swap(repeated, y);
    y.array.strides[0] = 0;
    EXPECT_FAILS(ARGUMENT, "y", run());
    std::swap(repeated, y);
}

TEST_F(ResidualRefusals, Handles) {
    const UnitOperands o = u.operands();
    EXPECT_FAILS(HANDLE, "context is NULL", u.run(nullptr, x, y));
    for (int i = 0; i < 3; i++) {
        const char *names[] = {"reduce", "spatial", "expand"};
        UnitOperands none = o;
        none.filter[i] = nullptr;
        EXPECT_FAILS(HANDLE, std::string(names[i]) + "_filter is NULL", run(none));
        ConvHandle conv = std::move(u.conv[i]);
        EXPECT_FAILS(HANDLE, std::string(names[i]) + " is NULL", run());
        u.conv[i] = std::move(conv);
    }
    Layout active = std::move(u.active.layout);
    EXPECT_FAILS(HANDLE, "active is NULL", run());
    u.active.layout = std::move(active);
}

TEST_F(ResidualRefusals, Channels) {
    replace(0, 4, 6, "kernel=1x1");
    EXPECT_FAILS(SHAPE, "reduce has 6 input channels, expected 8", run());
    replace(0, 6, 8, "kernel=1x1");
    EXPECT_FAILS(SHAPE, "reduce_gain has shape [4], expected [6]", ([&] {
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
    EXPECT_FAILS(SHAPE, "expand has 6 output channels, expected 8 (those of x)", run());
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
    for (const char *bad : {"kernel=3x3", "kernel=3x3 padding=same stride=2", "kernel=4x4 padding=same"}) {
        replace(1, 6, 4, bad);
        EXPECT_FAILS(ARGUMENT, "spatial has the options", run());
    }
    replace(1, 6, 4, "kernel=30x30");
    EXPECT_FAILS(SHAPE, "which the kernel spans", run());
    replace(1, 6, 4, "kernel=3x3 padding=same");
    replace(2, 8, 6, "kernel=2x2");
    EXPECT_FAILS(ARGUMENT, "expand has the options", run());
}

TEST_F(ResidualRefusals, FiltersAndFactors) {
    Matrix other = random_matrix(layout(4, 4), TARTAN_F32, TARTAN_ROW_MAJOR, random);
    UnitOperands o = u.operands();
    o.filter[1] = other.get();
    EXPECT_FAILS(LAYOUT, "spatial_filter has another layout", run(o));
    other = random_matrix(layout_of(u.conv[1]), TARTAN_F64, TARTAN_ROW_MAJOR, random);
    o.filter[1] = other.get();
    EXPECT_FAILS(DTYPE, "spatial_filter is of float64, expected float32 (that of x)", run(o));
    o = u.operands();
    const Dense wrong(TARTAN_F64, {8}), rows(TARTAN_F32, {9, 8}), longer(TARTAN_F32, {9});
    o.bias[2] = &wrong.array;
    EXPECT_FAILS(DTYPE, "expand_bias is of float64, expected float32", run(o));
    o.bias[2] = &rows.array;
    EXPECT_FAILS(SHAPE, "expand_bias has shape [9, 8], expected [8]", run(o));
    o = u.operands();
    options = "preactivate=1";
    o.x_gain = &longer.array;
    EXPECT_FAILS(SHAPE, "x_gain has shape [9], expected [8]", run(o));
    o.x_gain = nullptr, o.x_bias = &longer.array;
    EXPECT_FAILS(SHAPE, "x_bias has shape [9], expected [8]", run(o));
    options = "";
    o = u.operands();
    tartan_array part = y.array;
    part.ndim = 1, part.shape[0] = 8, part.strides[0] = 1;
    o.gain[2] = &part;
    EXPECT_FAILS(ARGUMENT, "y overlaps expand_gain", run(o));
    tartan_array values;
    ASSERT_OK(tartan_matrix_values(u.filter[1].get(), &values));
    const tartan_shape *s = &u.filter[1]->layout->shape;
    tartan_matrix *wrapped = nullptr;
    tartan_array own = y.array;
    own.ndim = 3, own.shape[0] = u.filter[1]->layout->blocks;
    own.shape[1] = s->block_rows, own.shape[2] = s->block_cols;
    own.strides[2] = 1, own.strides[1] = s->block_cols, own.strides[0] = s->block_rows * s->block_cols;
    ASSERT_OK(tartan_matrix_wrap(u.filter[1]->layout, &own, nullptr, nullptr, &wrapped));
    const Matrix in_y(wrapped);
    o = u.operands();
    o.filter[1] = in_y.get();
    EXPECT_FAILS(ARGUMENT, "y overlaps spatial_filter", run(o));
}

TEST_F(ResidualRefusals, Windows) {
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
