// SPDX-License-Identifier: Apache-2.0
// What convolutions refuse, before anything is written.
#include "conv_support.h"

namespace {

using namespace tartan_test;

TEST(ConvRefusals, Options) {
    const Layout channels = random_layout({4, 4, 2, 2, 1}, 1, 1);
    tartan_conv *conv = nullptr;
    const auto create = [&](const char *options) {
        return tartan_conv_create(channels.get(), options, &conv);
    };
    EXPECT_FAILS(ARGUMENT, "options is NULL", create(nullptr));
    EXPECT_FAILS(ARGUMENT, "has no kernel", create(""));
    EXPECT_FAILS(ARGUMENT, "has no kernel", create("stride=2"));
    EXPECT_FAILS(ARGUMENT, "expected name=value", create("kernel"));
    EXPECT_FAILS(ARGUMENT, "expected kernel, stride", create("kernel=3 strides=2"));
    for (const char *bad : {"kernel=0", "kernel=-1", "kernel=", "kernel=3x", "kernel=3x3x3x3", "kernel=3y3",
                            "kernel=1048577", "kernel=99999999999999999999"})
        EXPECT_FAILS(ARGUMENT, "expected kernel to be", create(bad));
    EXPECT_FAILS(ARGUMENT, "expected stride to be", create("kernel=3 stride=0"));
    EXPECT_FAILS(ARGUMENT, "expected dilation to be", create("kernel=3 dilation=0"));
    for (const char *bad :
         {"kernel=3 padding=-1", "kernel=3 padding=full", "kernel=3 padding=1:", "kernel=3 padding=1:2:3"})
        EXPECT_FAILS(ARGUMENT, "expected padding to be", create(bad));
    EXPECT_FAILS(ARGUMENT, "2 numbers for stride", create("kernel=3 stride=1x1"));
    EXPECT_FAILS(ARGUMENT, "2 numbers for dilation", create("kernel=3x3x3 dilation=1x1"));
    EXPECT_FAILS(ARGUMENT, "3 numbers for padding", create("kernel=3x3 padding=1x1x1"));
    EXPECT_FAILS(ARGUMENT, "expected transposed to be", create("kernel=3 transposed=yes"));
    EXPECT_FAILS(ARGUMENT, "expected per_tap to be", create("kernel=3 per_tap=2"));
    EXPECT_FAILS(OVERFLOW, "taps", create("kernel=1048576x1048576"));
    EXPECT_FAILS(OVERFLOW, "", create("kernel=1048576x2047"));
    EXPECT_EQ(nullptr, conv);
}

TEST(ConvRefusals, Layouts) {
    tartan_conv *conv = nullptr;
    const Layout heads = random_layout({4, 4, 2, 2, 2}, 1, 1),
                 channels = random_layout({4, 10, 2, 2, 1}, 1, 1);
    EXPECT_FAILS(SHAPE, "2 heads", tartan_conv_create(heads.get(), "kernel=3", &conv));
    EXPECT_FAILS(SHAPE, "expected whole blocks",
                 tartan_conv_create(channels.get(), "kernel=3 per_tap=1", &conv));
    EXPECT_FAILS(SHAPE, "expected whole blocks",
                 tartan_conv_create(channels.get(), "kernel=2 per_tap=1", &conv));
    EXPECT_FAILS(HANDLE, "layout", tartan_conv_create(nullptr, "kernel=3", &conv));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_conv_create(channels.get(), "kernel=3", nullptr));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_conv_get_layout(nullptr, nullptr));
    tartan_layout *layout = nullptr;
    EXPECT_FAILS(HANDLE, "conv is NULL", tartan_conv_get_layout(nullptr, &layout));
}

TEST(ConvRefusals, Sizes) {
    const Layout channels = random_layout({4, 4, 2, 2, 1}, 1, 1);
    const ConvHandle conv = make_conv(channels, "kernel=3x5 padding=0x1"),
                     turned = make_conv(channels, "kernel=3 stride=2 padding=half transposed=1"),
                     tight = make_conv(channels, "kernel=2 padding=3 transposed=1");
    int64_t size[] = {3, 3}, out[4];
    const auto size_of = [&](const ConvHandle &c, int64_t n) {
        return tartan_conv_output_size(c.get(), size, n, out, n);
    };
    EXPECT_OK(size_of(conv, 2));
    size[0] = 2;
    EXPECT_FAILS(SHAPE, "expected at least 3, which the kernel spans", size_of(conv, 2));
    size[0] = 3, size[1] = 2;
    EXPECT_FAILS(SHAPE, "4 with its padding, expected at least 5", size_of(conv, 2));
    size[1] = -1;
    EXPECT_FAILS(SHAPE, "has length -1 in dimension 1", size_of(conv, 2));
    size[0] = INT64_MAX;
    EXPECT_FAILS(SHAPE, "expected 0 .. 2^40", size_of(conv, 2));
    EXPECT_FAILS(SHAPE, "in_size has 1 entries, expected 2", size_of(conv, 1));
    EXPECT_FAILS(HANDLE, "in_size is NULL", tartan_conv_output_size(conv.get(), nullptr, 2, out, 2));
    EXPECT_FAILS(SHAPE, "out_size has 3 entries", tartan_conv_output_size(conv.get(), size, 2, out, 3));
    EXPECT_FAILS(HANDLE, "conv is NULL", tartan_conv_output_size(nullptr, size, 2, out, 2));
    size[0] = 0;
    EXPECT_FAILS(SHAPE, "for which the transposed convolution has no output", size_of(turned, 1));
    size[0] = 3; /* an output of 3 + 2 - 1 - 6 positions */
    EXPECT_FAILS(SHAPE, "for which the transposed convolution has no output", size_of(tight, 1));
    size[0] = -3;
    EXPECT_FAILS(SHAPE, "has length -3", size_of(turned, 1));
    int64_t sizes[] = {3, 3}, classes[6];
    EXPECT_FAILS(HANDLE, "conv is NULL", tartan_conv_edge_classes(nullptr, sizes, 2, classes, 3));
    EXPECT_FAILS(SHAPE, "out_class has 4 entries, expected 1",
                 tartan_conv_edge_classes(conv.get(), sizes, 2, classes, 4));
    EXPECT_FAILS(SHAPE, "in_size has 3 in dimension 0, expected 2",
                 tartan_conv_edge_classes(turned.get(), sizes, 2, classes, 3));
    sizes[1] = 5;
    EXPECT_OK(tartan_conv_edge_classes(turned.get(), sizes, 2, classes, 5));
    sizes[1] = 6;
    EXPECT_OK(tartan_conv_edge_classes(turned.get(), sizes, 2, classes, 6));
}

// Operands that fit, one of which a test then spoils.
struct Fitting {
    Context own = open_context(2);
    ConvHandle conv = make_conv(random_layout({6, 4, 2, 2, 1}, 1, 1), "kernel=3x3 padding=same");
    Layout layout = layout_of(conv);
    std::mt19937_64 random{1};
    Matrix filter = random_matrix(layout, TARTAN_F32, TARTAN_ROW_MAJOR, random);
    Matrix filter_grad = random_matrix(layout, TARTAN_F32, TARTAN_ROW_MAJOR, random);
    Dense x = make_image(TARTAN_F32, 2, 4, {5, 5}, kRows), y = make_image(TARTAN_F32, 2, 6, {5, 5}, kRows);
    Dense gain = Dense(TARTAN_F32, {6}), bias = Dense(TARTAN_F32, {9, 6});
    Layout active = random_layout({2, 2, 1, 1, 2}, 1, 1);
    const char *options = "relu=1", *windows = "size=3 stride=3";

    tartan_status forward() {
        return conv_forward(own.get(), conv.get(), filter.get(), &x.array, options, &gain.array, &bias.array,
                            active.get(), windows, &y.array);
    }
    tartan_status input() {
        return conv_input_gradient(own.get(), conv.get(), filter.get(), &y.array, active.get(), windows,
                                   &x.array);
    }
    tartan_status gradient(double beta = 0) {
        return tartan_conv_filter_gradient(own.get(), conv.get(), &x.array, &y.array, active.get(), windows,
                                           beta, filter_grad.get());
    }
};

TEST(ConvRefusals, WhatFits) {
    Fitting f;
    EXPECT_OK(f.forward());
    EXPECT_OK(f.input());
    EXPECT_OK(f.gradient());
}

#define SPOILED(status, part, spoil, call)                                                                   \
    do {                                                                                                     \
        Fitting f;                                                                                           \
        spoil;                                                                                               \
        const std::vector<char> kept_x = f.x.memory(), kept_y = f.y.memory();                                \
        EXPECT_FAILS(status, part, f.call);                                                                  \
        EXPECT_EQ(kept_x, f.x.memory());                                                                     \
        EXPECT_EQ(kept_y, f.y.memory());                                                                     \
    } while (0)

TEST(ConvRefusals, Shapes) {
    SPOILED(SHAPE, "x has shape [2, 5, 5, 5], expected [n, 4, h, w] (channels of the convolution)",
            f.x = make_image(TARTAN_F32, 2, 5, {5, 5}, kRows), forward());
    SPOILED(SHAPE, "x has shape", f.x = make_image(TARTAN_F32, 2, 4, {5}, kRows), forward());
    SPOILED(SHAPE, "y has shape [2, 6, 5, 6], expected [2, 6, 5, 5], which is [n, out_channels, spatial...]",
            f.y = make_image(TARTAN_F32, 2, 6, {5, 6}, kRows), forward());
    SPOILED(SHAPE, "y has shape", f.y = make_image(TARTAN_F32, 3, 6, {5, 5}, kRows), forward());
    SPOILED(SHAPE, "y_grad has shape", f.y = make_image(TARTAN_F32, 2, 5, {5, 5}, kRows), input());
    SPOILED(SHAPE, "x_grad has shape [2, 4, 5, 5], expected [2, 4, 4, 5]",
            f.y = make_image(TARTAN_F32, 2, 6, {4, 5}, kRows), input());
    SPOILED(SHAPE, "y_grad has shape", f.y = make_image(TARTAN_F32, 2, 4, {5, 5}, kRows), gradient());
    SPOILED(SHAPE, "gain has shape [5], expected [6], which is [out_channels] or [classes, out_channels]",
            f.gain = Dense(TARTAN_F32, {5}), forward());
    SPOILED(SHAPE, "bias has shape [8, 6], expected [6], or [9, 6] with a row for each edge class",
            f.bias = Dense(TARTAN_F32, {8, 6}), forward());
    SPOILED(SHAPE, "heads", f.active = random_layout({2, 2, 1, 1, 3}, 1, 1), forward());
}

TEST(ConvRefusals, Windows) {
    SPOILED(ARGUMENT, "windows of y may overlap", f.windows = "size=3 stride=2", forward());
    SPOILED(ARGUMENT, "windows of y_grad may overlap", f.windows = "size=3 stride=2", input());
    SPOILED(ARGUMENT, "windows of y_grad may overlap", f.windows = "size=3 stride=2", gradient());
    SPOILED(ARGUMENT, "windows is given without active", f.active.reset(), forward());
    SPOILED(HANDLE, "windows is NULL", f.windows = nullptr, forward());
}

// Where strides leave a choice, several lengths fit; others don't.
TEST(ConvRefusals, SizesThatAreChosen) {
    const Context own = open_context(1);
    std::mt19937_64 random(1);
    const Layout channels = random_layout({6, 4, 2, 2, 1}, 1, 1);
    for (const bool turned : {false, true}) {
        const ConvHandle conv =
            make_conv(channels, std::string("kernel=3 stride=2 padding=1") + (turned ? " transposed=1" : ""));
        const Matrix filter = random_matrix(layout_of(conv), TARTAN_F32, TARTAN_ROW_MAJOR, random);
        const int64_t from = 6, to = 4, least = 5;
        Dense image = make_image(TARTAN_F32, 1, from, {3}, kRows);
        const auto run = [&](int64_t length, const char *options) {
            Dense result = make_image(TARTAN_F32, 1, to, {length}, kRows);
            const tartan_conv_forward_arguments given = {conv.get(), filter.get(), &image.array,
                                                         options,    nullptr,      nullptr,
                                                         nullptr,    nullptr,      &result.array};
            return turned ? tartan_conv_forward(own.get(), &given)
                          : tartan_conv_input_gradient(own.get(), conv.get(), filter.get(), &image.array,
                                                       nullptr, nullptr, options, &result.array);
        };
        const std::string option = turned ? "out_size" : "in_size", known = turned ? "x" : "y_grad",
                          result = turned ? "y" : "x_grad";
        const auto asked = [&](const char *value) { return option + "=" + value; };
        for (const int64_t length : {least, least + 1}) {
            EXPECT_OK(run(length, nullptr));
            EXPECT_OK(run(length, asked(std::to_string(length).c_str()).c_str()));
        }
        EXPECT_FAILS(SHAPE, result + " has shape [1, 4, 4], expected [1, 4, 5], which is", run(4, nullptr));
        EXPECT_FAILS(SHAPE, result + " has shape [1, 4, 7], expected [1, 4, 5], which is", run(7, nullptr));
        EXPECT_FAILS(SHAPE, result + " has shape [1, 4, 5], expected [1, 4, 6], which is",
                     run(5, asked("6").c_str()));
        EXPECT_FAILS(SHAPE,
                     option + " is [7], expected 1 lengths that belong to " + known + " of shape [1, 6, 3]",
                     run(5, asked("7").c_str()));
        EXPECT_FAILS(SHAPE, option + " is [5, 5], expected 1 lengths", run(5, asked("5x5").c_str()));
        // Without an output the smallest, where that may be meant.
        int32_t op = -1;
        tartan_op_result found;
        int64_t count = 0;
        void *arguments[7] = {(void *)conv.get(), filter.get(), &image.array};
        ASSERT_OK(tartan_op_find(turned ? "conv_forward" : "conv_input_gradient", &op));
        const auto infer = [&](const char *options) {
            return tartan_op_infer(op, arguments, turned ? 7 : 5, options, &found, 1, &count);
        };
        if (turned) {
            ASSERT_OK(infer(nullptr));
            EXPECT_EQ(least, found.shape[2]);
        } else {
            EXPECT_FAILS(ARGUMENT, "in_size is not given, expected the spatial lengths of x", infer(""));
        }
        ASSERT_OK(infer(asked("6").c_str()));
        EXPECT_EQ(6, found.shape[2]);
    }
    // Where they leave none, an option may only say what is so.
    const ConvHandle conv = make_conv(channels, "kernel=3 padding=1");
    const Matrix filter = random_matrix(layout_of(conv), TARTAN_F32, TARTAN_ROW_MAJOR, random);
    Dense x = make_image(TARTAN_F32, 1, 4, {3}, kRows), y = make_image(TARTAN_F32, 1, 6, {3}, kRows);
    const auto input = [&](const char *options) {
        return tartan_conv_input_gradient(own.get(), conv.get(), filter.get(), &y.array, nullptr, nullptr,
                                          options, &x.array);
    };
    EXPECT_OK(input("in_size=3"));
    EXPECT_FAILS(SHAPE, "in_size is [4], expected 1 lengths that belong to y_grad", input("in_size=4"));
    tartan_conv_forward_arguments given = {conv.get(), filter.get(), &x.array, "out_size=3", nullptr,
                                           nullptr,    nullptr,      nullptr,  &y.array};
    EXPECT_OK(tartan_conv_forward(own.get(), &given));
    for (const char *options : {"out_size=4", "out_size=3x3"}) {
        given.options = options;
        EXPECT_FAILS(SHAPE, "], expected 1 lengths that belong to x of shape [1, 4, 3]",
                     tartan_conv_forward(own.get(), &given));
    }
}

} // namespace
