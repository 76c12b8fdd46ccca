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
        ASSERT_OK(tartan_conv_forward(own.get(), conv.get(), filter.get(), &x.array, nullptr, nullptr,
                                      nullptr, nullptr, nullptr, &plain.array));
        ASSERT_OK(tartan_conv_forward(own.get(), conv.get(), filter.get(), &x.array, options, &gain.array,
                                      &bias.array, nullptr, nullptr, &y.array));
        ASSERT_OK(channel_linear(own.get(), conv.get(), size, 2, &plain.array, &gain.array,
                                        &bias.array, options, &plain.array));
        EXPECT_EQ(y.memory(), plain.memory()) << options;
    }
}

TEST(ChannelLinear, NothingToDo) {
    Dense x(TARTAN_F32, {0, 3, 4}), y = x, flat(TARTAN_F32, {2, 3, 0}), gain_grad(TARTAN_F32, {3});
    gain_grad.set(0, 7), gain_grad.set(1, 7), gain_grad.set(2, 7);
    const Context own = open_context(1);
    EXPECT_OK(
        channel_linear(own.get(), nullptr, nullptr, 0, &x.array, nullptr, nullptr, nullptr, &y.array));
    for (const Dense *none : {&x, &flat}) {
        ASSERT_OK(channel_linear_gradient(own.get(), nullptr, nullptr, 0, &none->array, nullptr,
                                                 nullptr, &none->array, nullptr, nullptr, &gain_grad.array,
                                                 nullptr));
        for (int i = 0; i < 3; i++) EXPECT_EQ(0, gain_grad.get(i));
    }
}

TEST(ChannelLinear, Refusals) {
    const ConvHandle conv = make_conv(random_layout({6, 4, 2, 2, 1}, 1, 1), "kernel=3x3");
    const int64_t size[] = {7, 9}, small[] = {2, 9};
    Dense x(TARTAN_F32, {2, 6, 5, 7}),
        y = x, gain(TARTAN_F32, {6}), rows(TARTAN_F32, {1, 6}), wide(TARTAN_F64, {6}), flat(TARTAN_F32, {6}),
        five(TARTAN_F32, {2, 6, 5, 6}), eight(TARTAN_F8E4M3, {2, 6}), half(TARTAN_F16, {2, 6, 5, 7});
    const auto run = [&](const tartan_conv *c, const int64_t *in, int64_t n, const tartan_array *g,
                         const char *options = nullptr) {
        return channel_linear(cpu(), c, in, n, &x.array, g, nullptr, options, &y.array);
    };
    const Dense before = y;
    EXPECT_FAILS(
        HANDLE, "context is NULL",
        channel_linear(nullptr, nullptr, nullptr, 0, &x.array, nullptr, nullptr, nullptr, &y.array));
    EXPECT_FAILS(
        HANDLE, "x is NULL",
        channel_linear(cpu(), nullptr, nullptr, 0, nullptr, nullptr, nullptr, nullptr, &y.array));
    EXPECT_FAILS(
        HANDLE, "y is NULL",
        channel_linear(cpu(), nullptr, nullptr, 0, &x.array, nullptr, nullptr, nullptr, nullptr));
    EXPECT_FAILS(HANDLE, "conv is ", run((const tartan_conv *)(const void *)x.array.data, size, 2, nullptr));
    EXPECT_FAILS(SHAPE, "x has shape [6], expected [n, channels, rest...]",
                 channel_linear(cpu(), nullptr, nullptr, 0, &flat.array, nullptr, nullptr, nullptr,
                                       &flat.array));
    EXPECT_FAILS(DTYPE, "x is of float8_e4m3fn",
                 channel_linear(cpu(), nullptr, nullptr, 0, &eight.array, nullptr, nullptr, nullptr,
                                       &eight.array));
    EXPECT_FAILS(
        DTYPE, "y is of float16, expected float32",
        channel_linear(cpu(), nullptr, nullptr, 0, &x.array, nullptr, nullptr, nullptr, &half.array));
    EXPECT_FAILS(DTYPE, "gain is of float64, expected float32", run(nullptr, nullptr, 0, &wide.array));
    EXPECT_FAILS(SHAPE, "gain or bias has a row for each edge class, expected conv",
                 run(nullptr, nullptr, 0, &rows.array));
    EXPECT_FAILS(SHAPE, "gain has shape [2, 6, 5, 7], expected [channels] or [classes, channels]", run(nullptr, nullptr, 0, &x.array));
    EXPECT_FAILS(
        SHAPE, "y has shape [2, 6, 5, 6], expected [2, 6, 5, 7] (that of x)",
        channel_linear(cpu(), nullptr, nullptr, 0, &x.array, nullptr, nullptr, nullptr, &five.array));
    EXPECT_FAILS(SHAPE, "in_size is given without conv", run(nullptr, size, 2, nullptr));
    EXPECT_FAILS(SHAPE, "in_size is NULL, expected the lengths", run(conv.get(), nullptr, 0, &rows.array));
    EXPECT_FAILS(SHAPE, "", run(conv.get(), small, 2, nullptr));
    EXPECT_FAILS(SHAPE, "", run(conv.get(), size, 1, nullptr));
    const int64_t other[] = {8, 9};
    EXPECT_FAILS(SHAPE, "x has shape [2, 6, 5, 7], expected that of the convolution's output for in_size",
                 run(conv.get(), other, 2, nullptr));
    const Context scratch = open_context(1);
    EXPECT_OK(channel_linear(scratch.get(), conv.get(), size, 2, &x.array, &rows.array, nullptr,
                                    nullptr,
                                    &y.array)); // without padding there is one class
    y = before;
    EXPECT_FAILS(ARGUMENT, "options has 'add=1', expected relu or bias_first",
                 run(nullptr, nullptr, 0, nullptr, "add=1"));
    EXPECT_FAILS(ARGUMENT, "options has relu twice", run(nullptr, nullptr, 0, nullptr, "relu=1 relu=1"));
    EXPECT_FAILS(ARGUMENT, "expected relu to be 0 or 1", run(nullptr, nullptr, 0, nullptr, "relu=2"));
    tartan_array shifted = x.array;
    shifted.data = (char *)shifted.data + 4, shifted.shape[0] = 1;
    tartan_array one = x.array;
    one.shape[0] = 1;
    EXPECT_FAILS(
        ARGUMENT, "y ",
        channel_linear(cpu(), nullptr, nullptr, 0, &one, nullptr, nullptr, nullptr, &shifted));
    const auto gradient = [&](tartan_array *x_grad, tartan_array *gain_grad, tartan_array *bias_grad) {
        return channel_linear_gradient(cpu(), nullptr, nullptr, 0, &x.array, &gain.array, nullptr,
                                              &half.array, nullptr, x_grad, gain_grad, bias_grad);
    };
    EXPECT_FAILS(DTYPE, "y_grad is of float16, expected float32", gradient(&y.array, nullptr, nullptr));
    const auto own = [&](tartan_array *x_grad, tartan_array *gain_grad, tartan_array *bias_grad) {
        return channel_linear_gradient(cpu(), nullptr, nullptr, 0, &x.array, &gain.array, nullptr,
                                              &y.array, nullptr, x_grad, gain_grad, bias_grad);
    };
    EXPECT_FAILS(ARGUMENT, "x_grad", own(&x.array, nullptr, nullptr));
    EXPECT_FAILS(ARGUMENT, "x_grad", own(&y.array, nullptr, nullptr));
    EXPECT_FAILS(ARGUMENT, "gain_grad", own(nullptr, &gain.array, nullptr));
    EXPECT_FAILS(ARGUMENT, "bias_grad", own(nullptr, &flat.array, &flat.array));
    EXPECT_FAILS(SHAPE, "gain or bias has a row for each edge class", own(nullptr, &rows.array, nullptr));
    EXPECT_FAILS(DTYPE, "bias_grad is of float64, expected float32", own(nullptr, nullptr, &wide.array));
    EXPECT_EQ(before.memory(), y.memory()) << "a refused call wrote";
}

TEST(ChannelLinear, EveryAllocationCanFail) {
    const ConvHandle conv = make_conv(random_layout({6, 4, 2, 2, 1}, 1, 1), "kernel=3x3 padding=same");
    const int64_t size[] = {5, 7};
    Dense x(TARTAN_F32, {2, 6, 5, 7}), y = x, gain(TARTAN_F32, {9, 6}), gain_grad = gain,
                                       bias_grad(TARTAN_F32, {6});
    {
        BRUTAL(in_new_context(2,
                              [&](tartan_context *c) {
                                  return channel_linear(c, conv.get(), size, 2, &x.array, &gain.array,
                                                               nullptr, nullptr, &y.array);
                              }),
               (void)0);
    }
    BRUTAL(in_new_context(2,
                          [&](tartan_context *c) {
                              return channel_linear_gradient(
                                  c, conv.get(), size, 2, &x.array, &gain.array, nullptr, &x.array, nullptr,
                                  &y.array, &gain_grad.array, &bias_grad.array);
                          }),
           (void)0);
}

} // namespace
