// SPDX-License-Identifier: Apache-2.0
// What is done for each channel, on every backend: gain, bias and ReLU, weight normalisation, and their gradients.
#include "../ops/channel_linear_support.h"
#include "../ops/conv_normalize_support.h"
#include "placed.h"

namespace {

using namespace tartan_test;

class BackendChannels : public OnBackend {
  protected:
    // Forward and back on the device, against the CPU. Elements are rounded in the same steps, sums in their own order.
    void expect_same(Linear &p, std::mt19937_64 &random) {
        const Context host = open_context(2);
        const bool in_place = p.y.array.dtype == p.x.array.dtype && random() % 3 == 0;
        Linear on = {}; // arrays of the device
        const Placed x(context.get(), p.x), gain(context.get(), p.gain), bias(context.get(), p.bias),
            y(context.get(), p.y), y_grad(context.get(), p.y_grad), x_grad(context.get(), p.x_grad),
            gain_grad(context.get(), p.gain_grad), bias_grad(context.get(), p.bias_grad);
        const int64_t *in = p.in_size.empty() ? nullptr : p.in_size.data();
        const int64_t dims = (int64_t)p.in_size.size();
        const std::string options = p.options();
        const tartan_array *gains = p.has_gain ? &gain.array : nullptr,
                           *biases = p.has_bias ? &bias.array : nullptr;
        tartan_array to_x = x_grad.array, to_gain = gain_grad.array, to_bias = bias_grad.array;
        const bool parts[3] = {random() % 4 != 0, random() % 4 != 0, random() % 4 != 0};
        for (int run = 0; run < 2; run++) { // the second result must have the same bits
            ASSERT_OK(channel_linear_gradient(context.get(), p.conv.get(), in, dims, &x.array, gains, biases,
                                              &y_grad.array, options.c_str(), parts[0] ? &to_x : nullptr,
                                              parts[1] ? &to_gain : nullptr, parts[2] ? &to_bias : nullptr));
            Linear *to = run == 0 ? &p : &on;
            if (run == 1) on.x_grad = p.x_grad, on.gain_grad = p.gain_grad, on.bias_grad = p.bias_grad;
            x_grad.fetch(to->x_grad), gain_grad.fetch(to->gain_grad), bias_grad.fetch(to->bias_grad);
        }
        for (auto both : {std::pair(&p.x_grad, &on.x_grad), std::pair(&p.gain_grad, &on.gain_grad),
                          std::pair(&p.bias_grad, &on.bias_grad)})
            ASSERT_EQ(both.first->memory(), both.second->memory());
        ASSERT_OK(p.backward(host.get(), parts[0] ? &on.x_grad.array : nullptr,
                             parts[1] ? &on.gain_grad.array : nullptr,
                             parts[2] ? &on.bias_grad.array : nullptr));
        for (int64_t i = 0; parts[0] && i < p.x_grad.elements(); i++)
            ASSERT_EQ(on.x_grad.get(i), p.x_grad.get(i)) << i;
        std::vector<Sum> of_gain((size_t)p.gain_grad.elements()), of_bias((size_t)p.bias_grad.elements());
        p.each([&](int64_t i, int64_t class_, int64_t c) {
            double inner, factor;
            (void)linear(p, i, class_, c, &inner, &factor);
            of_gain[(size_t)Linear::factor_at(p.gain_grad, class_, c)].add(p.y_grad.get(i), inner);
            of_bias[(size_t)Linear::factor_at(p.bias_grad, class_, c)].add(p.bias_first ? factor : 1,
                                                                           p.y_grad.get(i));
        });
        const int32_t sums = p.gain_grad.array.dtype;
        for (int64_t i = 0; parts[1] && i < p.gain_grad.elements(); i++)
            expect_near(p.gain_grad.get(i), on.gain_grad.get(i), of_gain[(size_t)i].bound(sums), sums, sums,
                        "gain_grad " + std::to_string(i));
        for (int64_t i = 0; parts[2] && i < p.bias_grad.elements(); i++)
            expect_near(p.bias_grad.get(i), on.bias_grad.get(i), of_bias[(size_t)i].bound(sums), sums, sums,
                        "bias_grad " + std::to_string(i));
        Dense want = p.y, got = in_place ? p.x : p.y;
        tartan_array to = in_place ? x.array : y.array;
        ASSERT_OK(channel_linear(context.get(), p.conv.get(), in, dims, &x.array, gains, biases,
                                 options.c_str(), &to));
        (in_place ? x : y).fetch(got);
        ASSERT_OK(p.forward(host.get(), &want.array));
        for (int64_t i = 0; i < want.elements(); i++) ASSERT_EQ(want.get(i), got.get(i)) << i;
        EXPECT_TRUE(marks_intact(got));
    }
};

TEST_P(BackendChannels, LinearGivesWhatTheCpuGives) {
    for (uint64_t seed = 3000; seed < 3000 + rounds(80u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        Linear p = make_linear(seed, kDtypes[seed % 4]);
        expect_same(p, random);
        if (HasFailure()) return;
    }
}

// Sizes that are read 16 bytes at a time, with more positions than threads share, in both orders of memory.
TEST_P(BackendChannels, LinearOfLargeImages) {
    int number = 0;
    for (int32_t dtype : kDtypes)
        for (int style : {(int)kRows, (int)kChannelsLast})
            for (int64_t channels : {64, 24, 1}) {
                SCOPED_TRACE(::testing::Message() << dtype << " style " << style << " channels " << channels);
                if (!is_of_the_share(number++)) continue;
                std::mt19937_64 random((uint64_t)number);
                Linear p;
                p.x = p.y = p.y_grad = p.x_grad = make_image(dtype, 3, channels, {24, 32}, style);
                p.gain = p.bias = p.gain_grad = p.bias_grad = Dense(tartan_i_sum_dtype(dtype), {channels});
                p.relu = number % 2 == 0, p.bias_first = number % 3 == 0;
                for (Dense *d : {&p.x, &p.y_grad, &p.gain, &p.bias}) d->fill(random, -2, 2);
                expect_same(p, random);
                if (HasFailure()) return;
            }
}

// Gradients over no positions are 0.
TEST_P(BackendChannels, SumsOfNothingAreZero) {
    const Dense none(TARTAN_F32, {0, 5, 3});
    Dense five(TARTAN_F32, {5});
    std::mt19937_64 random(1);
    five.fill(random, 1, 2);
    const Placed x(context.get(), none), gain(context.get(), five), to(context.get(), five),
        also(context.get(), five);
    tartan_array to_gain = to.array, to_bias = also.array;
    ASSERT_OK(channel_linear_gradient(context.get(), nullptr, nullptr, 0, &x.array, &gain.array, nullptr,
                                      &x.array, nullptr, nullptr, &to_gain, &to_bias));
    for (const Placed *one : {&to, &also}) {
        Dense got = five;
        one->fetch(got);
        for (int64_t i = 0; i < 5; i++) EXPECT_EQ(0, got.get(i));
    }
}

TEST_P(BackendChannels, NormalizationGivesWhatTheCpuGives) {
    const Context host = open_context(2);
    for (uint64_t seed = 0; seed < rounds(45u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        const Normal p = make_normal(seed);
        const int32_t dtype = kDtypes[seed % 4], sums = tartan_i_sum_dtype(dtype),
                      wide = random() % 3 == 0 ? sums : dtype, order = (int32_t)(seed % 2);
        const Matrix filter = p.matrix(dtype, random, order), u = p.matrix(dtype, random),
                     out = p.matrix(wide, random, 1 - order), grad = p.matrix(wide, random);
        Dense gain(sums, {p.outputs}), gain_grad = gain;
        gain.fill(random, -2, 2);
        const bool has_gain = random() % 3 != 0, wants_gain = random() % 3 != 0, in_place = random() % 3 == 0;
        const Matrix on_filter = placed(context.get(), filter), on_u = placed(context.get(), u),
                     on_out = placed(context.get(), out), on_grad = placed(context.get(), grad);
        const Placed on_gain(context.get(), gain), on_gain_grad(context.get(), gain_grad);
        tartan_array to = on_gain_grad.array;
        const double epsilon_of_norm = seed % 7 == 0 ? 5 : 1e-12; // 5: some norms are below
        ASSERT_OK(tartan_conv_normalize_gradient(context.get(), p.conv.get(), on_filter.get(),
                                                 has_gain ? &on_gain.array : nullptr, epsilon_of_norm,
                                                 on_u.get(), on_grad.get(), wants_gain ? &to : nullptr));
        tartan_matrix *into = in_place ? on_filter.get() : on_out.get();
        ASSERT_OK(tartan_conv_normalize(context.get(), p.conv.get(), on_filter.get(),
                                        has_gain ? &on_gain.array : nullptr, epsilon_of_norm, into));
        ASSERT_OK(tartan_conv_normalize_gradient(host.get(), p.conv.get(), filter.get(),
                                                 has_gain ? &gain.array : nullptr, epsilon_of_norm, u.get(),
                                                 grad.get(), wants_gain ? &gain_grad.array : nullptr));
        ASSERT_OK(tartan_conv_normalize(host.get(), p.conv.get(), filter.get(),
                                        has_gain ? &gain.array : nullptr, epsilon_of_norm,
                                        in_place ? filter.get() : out.get()));
        const auto expect_like = [&](const Matrix &want, const Matrix &on) {
            const Matrix got = fetched(context.get(), on);
            const tartan_layout *l = p.layout.get();
            for (int64_t id = 0; id < l->blocks; id++)
                for (int64_t i = 0; i < tartan_i_rows_of(l, l->block_rows[id]); i++)
                    for (int64_t j = 0; j < l->shape.block_cols; j++) {
                        const double expected = entry(want.get(), id, i, j);
                        ASSERT_NEAR(expected, entry(got.get(), id, i, j),
                                    4 * epsilon(want->dtype) * (1 + std::fabs(expected)));
                    }
        };
        expect_like(grad, on_grad);
        expect_like(in_place ? filter : out, in_place ? on_filter : on_out);
        if (wants_gain) {
            Dense got = gain_grad;
            on_gain_grad.fetch(got);
            for (int64_t i = 0; i < got.elements(); i++)
                ASSERT_NEAR(gain_grad.get(i), got.get(i),
                            64 * epsilon(sums) * (1 + std::fabs(gain_grad.get(i))));
        }
        if (HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Each, BackendChannels, ::testing::ValuesIn(backends()),
                         [](const auto &all) { return all.param; });

} // namespace
