// SPDX-License-Identifier: Apache-2.0
// What is done for each channel, on every backend: gain, bias and ReLU, weight normalisation, and their gradients.
#include "../ops/channel_linear_support.h"
#include "../ops/conv_normalize_support.h"
#include "placed.h"

#include <map>

namespace {

using namespace tartan_test;

class BackendChannels : public OnBackend {
  protected:
    // Forward and back on the device, against plain loops. Elements are rounded in the same steps, sums in their own order.
    void check(Linear &p, std::mt19937_64 &random) {
        const bool in_place = p.y.array.dtype == p.x.array.dtype && random() % 3 == 0;
        const Placed x(context.get(), p.x), gain(context.get(), p.gain), bias(context.get(), p.bias),
            y(context.get(), p.y), y_grad(context.get(), p.y_grad), x_grad(context.get(), p.x_grad),
            gain_grad(context.get(), p.gain_grad), bias_grad(context.get(), p.bias_grad);
        const int64_t *in = p.in_size.empty() ? nullptr : p.in_size.data();
        const int64_t dims = (int64_t)p.in_size.size();
        const std::string options = p.options();
        const tartan_array *gains = p.has_gain ? &gain.array : nullptr,
                           *biases = p.has_bias ? &bias.array : nullptr;
        tartan_array to_x = x_grad.array, to_gain = gain_grad.array, to_bias = bias_grad.array,
                     to_y = in_place ? x.array : y.array;
        const bool parts[3] = {random() % 4 != 0, random() % 4 != 0, random() % 4 != 0};
        std::vector<char> first[3];
        for (int run = 0; run < 2; run++) { // the second result must have the same bits
            ASSERT_OK(channel_linear_gradient(context.get(), p.conv.get(), in, dims, &x.array, gains, biases,
                                              &y_grad.array, options.c_str(), parts[0] ? &to_x : nullptr,
                                              parts[1] ? &to_gain : nullptr, parts[2] ? &to_bias : nullptr));
            x_grad.fetch(p.x_grad), gain_grad.fetch(p.gain_grad), bias_grad.fetch(p.bias_grad);
            int i = 0;
            for (const Dense *d : {&p.x_grad, &p.gain_grad, &p.bias_grad}) {
                if (run == 0) first[i] = d->memory();
                ASSERT_EQ(first[i++], d->memory());
                EXPECT_TRUE(marks_intact(*d));
            }
        }
        ASSERT_OK(channel_linear(context.get(), p.conv.get(), in, dims, &x.array, gains, biases,
                                 options.c_str(), &to_y));
        Dense got = in_place ? p.x : p.y;
        (in_place ? x : y).fetch(got);
        EXPECT_TRUE(marks_intact(got));

        const int32_t sums = p.gain_grad.array.dtype;
        std::vector<Sum> of_gain((size_t)p.gain_grad.elements()), of_bias((size_t)p.bias_grad.elements());
        p.each([&](int64_t i, int64_t class_, int64_t c) {
            double inner, factor;
            const double z = linear(p, i, class_, c, &inner, &factor);
            const bool cut = p.relu && z <= 0;
            EXPECT_EQ(rounded(got.array.dtype, cut ? 0 : z), got.get(i)) << i;
            const double g = cut ? 0 : p.y_grad.get(i);
            if (parts[0]) {
                EXPECT_EQ(rounded(p.x_grad.array.dtype, rounded(sums, factor * g)), p.x_grad.get(i)) << i;
            }
            of_gain[(size_t)Linear::factor_at(p.gain_grad, class_, c)].add(g, inner);
            of_bias[(size_t)Linear::factor_at(p.bias_grad, class_, c)].add(p.bias_first ? factor : 1, g);
        });
        if (parts[1]) expect_sums(p.gain_grad, of_gain);
        if (parts[2]) expect_sums(p.bias_grad, of_bias);
    }

  private:
    // The CPU adds up in f64, whatever the dtype.
    void expect_sums(const Dense &got, const std::vector<Sum> &want) {
        const int32_t dtype = got.array.dtype;
        for (int64_t i = 0; i < got.elements(); i++) {
            const Sum &s = want[(size_t)i];
            expect_near(got.get(i), s.exact,
                        GetParam() == "cuda" ? s.bound(dtype) : 4 * epsilon(dtype) * s.size, dtype, dtype,
                        "sum " + std::to_string(i));
        }
    }
};

TEST_P(BackendChannels, LinearIsThatOfPlainLoops) {
    for (uint64_t seed = 3000; seed < 3000 + rounds(200u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        Linear p = make_linear(seed, kDtypes[seed % 4]);
        check(p, random);
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
                check(p, random);
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

// The weights of a set that go to one output channel.
struct Lane {
    double squares = 0, dots = 0, terms = 0; // of w^2, of g w, and of |g w|
};

TEST_P(BackendChannels, NormalizationIsThatOfPlainLoops) {
    const double far = GetParam() == "cuda"; // f32 there, f64 on the CPU
    for (uint64_t seed = 0; seed < rounds(120u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        const Normal p = make_normal(seed);
        const int32_t dtype = kDtypes[seed % 4], sums = tartan_i_sum_dtype(dtype),
                      wide = random() % 3 == 0 ? sums : dtype, order = (int32_t)(seed % 2);
        const Matrix filter = p.matrix(dtype, random, order), u = p.matrix(dtype, random);
        const Dense w = p.list(filter), g = p.list(u);
        Dense gain(sums, {p.outputs}), gain_grad = gain;
        gain.fill(random, -2, 2);
        const bool has_gain = random() % 3 != 0, wants_gain = random() % 3 != 0, in_place = random() % 3 == 0;
        const Matrix on_filter = placed(context.get(), filter), on_u = placed(context.get(), u),
                     on_out = placed(context.get(), p.matrix(wide, random, 1 - order)),
                     on_grad = placed(context.get(), p.matrix(wide, random));
        const Placed on_gain(context.get(), gain), on_gain_grad(context.get(), gain_grad);
        tartan_array to = on_gain_grad.array;
        const double least = seed % 7 == 0 ? 5 : 1e-12; // 5: some norms are below
        const tartan_array *gains = has_gain ? &on_gain.array : nullptr;
        ASSERT_OK(tartan_conv_normalize_gradient(context.get(), p.conv.get(), on_filter.get(), gains, least,
                                                 on_u.get(), on_grad.get(), wants_gain ? &to : nullptr));
        ASSERT_OK(tartan_conv_normalize(context.get(), p.conv.get(), on_filter.get(), gains, least,
                                        in_place ? on_filter.get() : on_out.get()));

        std::map<std::pair<int64_t, int64_t>, Lane> lanes;
        for (size_t i = 0; i < p.set_of.size(); i++) {
            Lane &lane = lanes[{p.set_of[i], p.channel_of[i]}];
            const double x = w.get((int64_t)i), y = g.get((int64_t)i);
            lane.squares += x * x, lane.dots += x * y, lane.terms += std::fabs(x * y);
        }
        const auto expect = [&](double want, double got, double size, int32_t of) {
            ASSERT_NEAR(want, got,
                        epsilon(of) * (8 * size + far * 4 * (1 + std::fabs(want))) +
                            1e-7 * (of == TARTAN_F16));
        };
        const Dense out = p.list(fetched(context.get(), in_place ? on_filter : on_out)),
                    grad = p.list(fetched(context.get(), on_grad));
        for (int64_t i = 0; i < w.elements(); i++) {
            const int64_t channel = p.channel_of[(size_t)i];
            const Lane &lane = lanes[{p.set_of[(size_t)i], channel}];
            const double m = std::max(lane.squares, least), root = std::sqrt(m), f = w.get(i),
                         factor = has_gain ? gain.get(channel) : 1,
                         pull = lane.squares >= least ? f * lane.dots / m : 0,
                         size = std::fabs(g.get(i)) + std::fabs(f) * lane.terms / m;
            expect(factor * f / root, out.get(i), std::fabs(factor * f / root), out.array.dtype);
            expect(factor * (g.get(i) - pull) / root, grad.get(i), std::fabs(factor) * size / root,
                   grad.array.dtype);
        }
        if (wants_gain) {
            std::vector<double> want((size_t)p.outputs), size((size_t)p.outputs);
            for (const auto &[of, lane] : lanes) {
                const double root = std::sqrt(std::max(lane.squares, least));
                want[(size_t)of.second] += lane.dots / root, size[(size_t)of.second] += lane.terms / root;
            }
            on_gain_grad.fetch(gain_grad);
            for (int64_t k = 0; k < p.outputs; k++)
                ASSERT_NEAR(want[(size_t)k], gain_grad.get(k),
                            epsilon(sums) *
                                (8 * size[(size_t)k] + far * 64 * (1 + std::fabs(want[(size_t)k]))));
        }
        if (HasFailure()) return;
    }
}

TEST(ConvNormalize, FiltersOfOneTapAreRefused) {
    const ConvHandle taps = make_conv(random_layout({8, 24, 4, 4, 1}, 1, 1), "kernel=3 per_tap=1");
    tartan_matrix *raw = nullptr;
    ASSERT_OK(tartan_matrix_create(layout_of(taps).get(), TARTAN_F32, 0, &raw));
    const Matrix own(raw);
    EXPECT_FAILS(UNSUPPORTED, "per_tap=1",
                 tartan_conv_normalize(cpu(), taps.get(), own.get(), nullptr, 1, own.get()));
}

INSTANTIATE_TEST_SUITE_P(Each, BackendChannels, ::testing::ValuesIn(backends()),
                         [](const auto &all) { return all.param; });

} // namespace
