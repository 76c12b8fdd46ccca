// SPDX-License-Identifier: Apache-2.0
// tartan_channel_linear and its gradients: the last step of a convolution, empty arrays, refusals.
#include "channel_linear_support.h"

namespace {

using namespace tartan_test;

// With gain and bias by edge class it is the last step of the convolution.
TEST(ChannelLinear, IsTheLastStepOfAConvolution) {
    std::mt19937_64 random(4);
    const ConvHandle conv = make_conv(random_layout({6, 4, 2, 2, 1}, 1, 1), "kernel=3x3 padding=same");
    const Matrix filter = random_matrix(layout_of(conv), TARTAN_F32, 0, random);
    const int64_t size[] = {5, 7};
    const int64_t classes = 9;
    Dense x(TARTAN_F32, {2, 4, 5, 7}), plain(TARTAN_F32, {2, 6, 5, 7}),
        y = plain, gain(TARTAN_F32, {classes, 6}), bias = gain;
    for (Dense *d : {&x, &gain, &bias}) d->fill(random);
    const Context own = open_context(2);
    for (const char *options : {"relu=0", "relu=1", "bias_first=1 relu=1"}) {
        ASSERT_OK(conv_forward(own.get(), conv.get(), filter.get(), &x.array, nullptr, nullptr, nullptr,
                               nullptr, nullptr, &plain.array));
        ASSERT_OK(conv_forward(own.get(), conv.get(), filter.get(), &x.array, options, &gain.array,
                               &bias.array, nullptr, nullptr, &y.array));
        ASSERT_OK(channel_linear(own.get(), conv.get(), size, 2, &plain.array, &gain.array, &bias.array,
                                 options, &plain.array));
        EXPECT_EQ(y.memory(), plain.memory()) << options;
    }
}

TEST(ChannelLinear, NothingToDo) {
    Dense x(TARTAN_F32, {0, 3, 4}), y = x, flat(TARTAN_F32, {2, 3, 0}), gain_grad(TARTAN_F32, {3});
    gain_grad.set(0, 7), gain_grad.set(1, 7), gain_grad.set(2, 7);
    const Context own = open_context(1);
    EXPECT_OK(channel_linear(own.get(), nullptr, nullptr, 0, &x.array, nullptr, nullptr, nullptr, &y.array));
    for (const Dense *none : {&x, &flat}) {
        ASSERT_OK(channel_linear_gradient(own.get(), nullptr, nullptr, 0, &none->array, nullptr, nullptr,
                                          &none->array, nullptr, nullptr, &gain_grad.array, nullptr));
        for (int i = 0; i < 3; i++) EXPECT_EQ(0, gain_grad.get(i));
    }
}

// What the schema cannot say: gains of edge classes and the lengths that the convolution has.
TEST(ChannelLinear, ConvolutionsThatDoNotFit) {
    const ConvHandle conv = make_conv(random_layout({6, 4, 2, 2, 1}, 1, 1), "kernel=3x3");
    const int64_t size[] = {7, 9}, small[] = {2, 9}, other[] = {8, 9};
    Dense x(TARTAN_F32, {2, 6, 5, 7}), y = x, rows(TARTAN_F32, {1, 6});
    const Dense before = y;
    const Context context = open_context(1);
    const auto run = [&](const tartan_conv *c, const int64_t *in, int64_t n, const tartan_array *gain) {
        return channel_linear(context.get(), c, in, n, &x.array, gain, nullptr, nullptr, &y.array);
    };
    EXPECT_FAILS(SHAPE, "gain or bias has a row for each edge class, expected conv",
                 run(nullptr, nullptr, 0, &rows.array));
    EXPECT_FAILS(SHAPE, "gain has shape [2, 6, 5, 7], expected [6] or [classes, 6], which is [channels] or",
                 run(nullptr, nullptr, 0, &x.array));
    EXPECT_FAILS(SHAPE, "in_size is given without conv", run(nullptr, size, 2, nullptr));
    EXPECT_FAILS(SHAPE, "in_size is NULL, expected the lengths", run(conv.get(), nullptr, 0, &rows.array));
    EXPECT_FAILS(SHAPE, "in_size has length 2 in dimension 0, 2 with its padding, expected at least 3",
                 run(conv.get(), small, 2, nullptr));
    EXPECT_FAILS(SHAPE, "in_size", run(conv.get(), size, 1, nullptr));
    EXPECT_FAILS(SHAPE,
                 "x has shape [2, 6, 5, 7], expected the shape of the convolution's output for in_size",
                 run(conv.get(), other, 2, nullptr));
    EXPECT_FAILS(SHAPE, "gain or bias has a row for each edge class",
                 channel_linear_gradient(context.get(), nullptr, nullptr, 0, &x.array, nullptr, nullptr,
                                         &before.array, nullptr, nullptr, &rows.array, nullptr));
    EXPECT_EQ(before.memory(), y.memory()) << "a refused call wrote";
    EXPECT_OK(run(conv.get(), size, 2, &rows.array)); // without padding there is one class
}

} // namespace
