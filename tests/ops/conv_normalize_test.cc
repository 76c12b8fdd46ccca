// SPDX-License-Identifier: Apache-2.0
// Weight normalisation of filters: against plain loops over lists of blocks, finite differences, refusals.
#include "conv_normalize_support.h"

namespace {

using namespace tartan_test;

// Sums of a product over the weights of each set and output channel.
std::map<std::pair<int64_t, int64_t>, double> sums(const Normal &p, const Dense &a, const Dense &b) {
    std::map<std::pair<int64_t, int64_t>, double> all;
    for (size_t i = 0; i < p.set_of.size(); i++)
        all[{p.set_of[i], p.channel_of[i]}] += a.get((int64_t)i) * b.get((int64_t)i);
    return all;
}

TEST(ConvNormalize, EqualsPlainLoops) {
    for (uint64_t seed = 0; seed < rounds(120u) && !HasFailure(); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        const Normal p = make_normal(seed);
        const int32_t dtype = kDtypes[seed % 4], order = (int32_t)(seed % 2);
        const Matrix filter = p.matrix(dtype, random, order), u = p.matrix(dtype, random);
        tartan_matrix *raw = nullptr;
        ASSERT_OK(tartan_matrix_create(p.layout.get(), dtype, 0, &raw));
        const Matrix out(raw);
        ASSERT_OK(tartan_matrix_create(p.layout.get(), dtype, 1 - order, &raw));
        const Matrix grad(raw);
        Dense gain(tartan_i_sum_dtype(dtype), {p.outputs}), gain_grad = gain;
        gain.fill(random, -2, 2);
        const bool has_gain = random() % 3;
        const double epsilon = pick(random, {1e-12, 5.0});
        const Context own = open_context(1 + (int32_t)(seed % 3));
        const Dense w = p.list(filter), g = p.list(u);
        ASSERT_OK(tartan_conv_normalize(own.get(), p.conv.get(), filter.get(),
                                        has_gain ? &gain.array : nullptr, epsilon, out.get()));
        ASSERT_OK(tartan_conv_normalize_gradient(own.get(), p.conv.get(), filter.get(),
                                                 has_gain ? &gain.array : nullptr, epsilon, u.get(),
                                                 grad.get(), &gain_grad.array));
        const Dense got = p.list(out), got_grad = p.list(grad);
        auto squares = sums(p, w, w), dots = sums(p, g, w);
        Dense sizes = w, others = g; // of what dots add up
        for (int64_t i = 0; i < w.elements(); i++)
            sizes.set(i, std::fabs(w.get(i))), others.set(i, std::fabs(g.get(i)));
        auto terms = sums(p, sizes, others);
        std::vector<double> of_gain((size_t)p.outputs, 0), size((size_t)p.outputs, 1e-30);
        for (const auto &one : dots) {
            of_gain[(size_t)one.first.second] +=
                one.second / std::sqrt(std::max(squares[one.first], epsilon));
            size[(size_t)one.first.second] += 30;
        }
        const double tolerance = 8 * tartan_test::epsilon(dtype);
        for (size_t i = 0; i < p.set_of.size(); i++) {
            const std::pair<int64_t, int64_t> at = {p.set_of[i], p.channel_of[i]};
            const double s = squares[at], m = std::max(s, epsilon),
                         factor = has_gain ? gain.get(at.second) : 1;
            const double f = w.get((int64_t)i), want = factor * f / std::sqrt(m);
            EXPECT_NEAR(want, got.get((int64_t)i),
                        tolerance * std::fabs(want) + 1e-7 * (dtype == TARTAN_F16));
            const double pull = s >= epsilon ? f * dots[at] / m : 0, push = g.get((int64_t)i);
            const double bound = std::fabs(push) + std::fabs(f) * terms[at] / m;
            EXPECT_NEAR(factor * (push - pull) / std::sqrt(m), got_grad.get((int64_t)i),
                        tolerance * std::fabs(factor) * bound / std::sqrt(m) + 1e-7 * (dtype == TARTAN_F16));
        }
        for (int64_t k = 0; k < p.outputs; k++)
            EXPECT_NEAR(of_gain[(size_t)k], gain_grad.get(k), 1e-6 * size[(size_t)k]) << k;
        ASSERT_OK(tartan_conv_normalize(own.get(), p.conv.get(), filter.get(),
                                        has_gain ? &gain.array : nullptr, epsilon, filter.get()));
        EXPECT_EQ(got.memory(), p.list(filter).memory()) << "in place";
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

} // namespace
