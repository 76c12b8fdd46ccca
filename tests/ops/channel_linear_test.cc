// SPDX-License-Identifier: Apache-2.0
// tartan_channel_linear and its gradients: against plain loops, the same steps for every number of threads, finite differences,
// the last step of a convolution, refusals.
#include "channel_linear_support.h"

namespace {

using namespace tartan_test;

TEST(ChannelLinear, EqualsPlainLoops) {
    for (uint64_t seed = 0; seed < rounds(200u) && !HasFailure(); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Linear p = make_linear(seed, kDtypes[seed % 4]);
        const Context own = open_context(1 + (int32_t)(seed % 3));
        ASSERT_OK(p.forward(own.get(), &p.y.array));
        p.each([&](int64_t i, int64_t class_, int64_t c) {
            double inner, gain, want = linear(p, i, class_, c, &inner, &gain);
            if (p.relu && want <= 0) want = 0;
            EXPECT_EQ(rounded(p.y.array.dtype, want), p.y.get(i)) << i;
        });
        EXPECT_TRUE(marks_intact(p.y));
        if (p.y.array.dtype != p.x.array.dtype) continue; // in place
        Dense y = p.x;
        tartan_array in_place = p.x.array;
        ASSERT_OK(p.forward(own.get(), &in_place));
        for (int64_t i = 0; i < y.elements(); i++) EXPECT_EQ(p.y.get(i), p.x.get(i));
    }
}

TEST(ChannelLinear, GradientsEqualPlainLoops) {
    for (uint64_t seed = 1000; seed < 1000 + rounds(200u) && !HasFailure(); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Linear p = make_linear(seed, kDtypes[seed % 4]);
        const Context own = open_context(1 + (int32_t)(seed % 3));
        std::mt19937_64 random(seed);
        const bool x = random() % 4, gain = random() % 4, bias = random() % 4;
        ASSERT_OK(p.backward(own.get(), x ? &p.x_grad.array : nullptr, gain ? &p.gain_grad.array : nullptr,
                             bias ? &p.bias_grad.array : nullptr));
        std::vector<Sum> of_gain((size_t)p.gain_grad.elements()), of_bias((size_t)p.bias_grad.elements());
        p.each([&](int64_t i, int64_t class_, int64_t c) {
            double inner, factor, z = linear(p, i, class_, c, &inner, &factor);
            const double g = p.relu && z <= 0 ? 0 : p.y_grad.get(i);
            const double grad =
                p.gain.array.dtype == TARTAN_F64 ? factor * g : (double)((float)factor * (float)g);
            if (x) {
                EXPECT_EQ(rounded(p.x_grad.array.dtype, grad), p.x_grad.get(i)) << i;
            }
            of_gain[(size_t)Linear::factor_at(p.gain_grad, class_, c)].add(g, inner);
            of_bias[(size_t)Linear::factor_at(p.bias_grad, class_, c)].add(p.bias_first ? factor : 1, g);
        });
        for (int64_t i = 0; gain && i < p.gain_grad.elements(); i++) {
            const Sum &s = of_gain[(size_t)i]; // in f64
            EXPECT_NEAR((double)s.exact, p.gain_grad.get(i),
                        4 * epsilon(p.gain.array.dtype) * ((double)s.size + 1e-30))
                << i;
        }
        for (int64_t i = 0; bias && i < p.bias_grad.elements(); i++) {
            const Sum &s = of_bias[(size_t)i];
            EXPECT_NEAR((double)s.exact, p.bias_grad.get(i),
                        4 * epsilon(p.bias.array.dtype) * ((double)s.size + 1e-30))
                << i;
        }
        for (const Dense *d : {&p.x_grad, &p.gain_grad, &p.bias_grad}) EXPECT_TRUE(marks_intact(*d));
    }
}

TEST(ChannelLinear, ThreadsDoNotMatter) {
    for (uint64_t seed = 2000; seed < 2000 + rounds(30u); seed++) {
        Linear p = make_linear(seed, kDtypes[seed % 4]);
        std::vector<char> first[3];
        for (int32_t threads : {1, 2, 5}) {
            const Context own = open_context(threads);
            ASSERT_OK(p.backward(own.get(), &p.x_grad.array, &p.gain_grad.array, &p.bias_grad.array));
            const Dense *all[] = {&p.x_grad, &p.gain_grad, &p.bias_grad};
            for (int i = 0; i < 3; i++) {
                if (threads == 1) first[i] = all[i]->memory();
                EXPECT_EQ(first[i], all[i]->memory()) << seed;
            }
        }
    }
}

// Central differences of the sum of y_grad times y, where max has no edge nearby.
TEST(ChannelLinear, GradientsAreThoseOfFiniteDifferences) {
    for (uint64_t seed = 3000; seed < 3000 + rounds(40u) && !HasFailure(); seed++) {
        Linear p = make_linear(seed, TARTAN_F64);
        if (p.channels() > 20) continue;
        p.has_gain = p.has_bias = true;
        const Context own = open_context(1);
        ASSERT_OK(p.backward(own.get(), &p.x_grad.array, &p.gain_grad.array, &p.bias_grad.array));
        double nearest = INFINITY;
        p.each([&](int64_t i, int64_t class_, int64_t c) {
            double inner, gain;
            nearest = std::min(nearest, std::fabs(linear(p, i, class_, c, &inner, &gain)));
        });
        const double step = 1e-6;
        if (p.relu && nearest < 8 * step) continue;
        const auto value = [&] {
            EXPECT_OK(p.forward(own.get(), &p.y.array));
            double sum = 0;
            for (int64_t i = 0; i < p.y.elements(); i++) sum += p.y_grad.get(i) * p.y.get(i);
            return sum;
        };
        const struct {
            Dense *of, *grad;
        } all[] = {{&p.x, &p.x_grad}, {&p.gain, &p.gain_grad}, {&p.bias, &p.bias_grad}};
        for (const auto &one : all)
            for (int64_t i = 0; i < std::min<int64_t>(one.of->elements(), 9); i++) {
                const double old = one.of->get(i);
                one.of->set(i, old + step);
                const double up = value();
                one.of->set(i, old - step);
                const double down = value();
                one.of->set(i, old);
                EXPECT_NEAR((up - down) / (2 * step), one.grad->get(i),
                            1e-6 * (1 + std::fabs(one.grad->get(i))))
                    << i;
            }
    }
}

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
    EXPECT_FAILS(SHAPE, "x has shape [2, 6, 5, 7], expected that of the convolution's output for in_size",
                 run(conv.get(), other, 2, nullptr));
    EXPECT_FAILS(SHAPE, "gain or bias has a row for each edge class",
                 channel_linear_gradient(context.get(), nullptr, nullptr, 0, &x.array, nullptr, nullptr,
                                         &before.array, nullptr, nullptr, &rows.array, nullptr));
    EXPECT_EQ(before.memory(), y.memory()) << "a refused call wrote";
    EXPECT_OK(run(conv.get(), size, 2, &rows.array)); // without padding there is one class
}

} // namespace
