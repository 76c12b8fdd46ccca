// SPDX-License-Identifier: Apache-2.0
// Norms of sums in segments with activations, and casts, on every backend against their formulas.
#include "called.h"

extern "C" {
#include "core/dtype.h"
}

#include <cmath>

namespace {

using namespace tartan_test;
using real = long double;

const char *const kActivations[] = {"none", "relu", "gelu", "silu"};

real value_of(int activation, real v) {
    const real sigmoid = 1 / (1 + std::exp(-v));
    switch (activation) {
    case 1:
        return std::fmax(v, 0.0L);
    case 2:
        return v * std::erfc(-v / std::sqrt(2.0L)) / 2;
    case 3:
        return v * sigmoid;
    default:
        return v;
    }
}

class BackendAddNorm : public OnBackend {
  protected:
    void check(bool centred, uint64_t seed) {
        std::mt19937_64 random(seed);
        const int64_t segments = pick<int64_t>(random, {1, 2, 4}),
                      n = segments * (seed % 10 == 8 ? pick<int64_t>(random, {768, 1536, 4096, 8192, 16384})
                                                     : pick<int64_t>(random, {1, 5, 8, 33, 64})),
                      /* 700 are more than the CPU takes at a time */
            lines = seed % 10 == 9   ? 700
                    : seed % 10 == 8 ? 3
                                     : pick<int64_t>(random, {0, 1, 6, 40}),
                      each = n / segments;
        const int activation = (int)below(random, 4);
        const int32_t dtype = kDtypes[below(random, 4)], sums = tartan_i_sum_dtype(dtype);
        const bool residual = random() % 4 != 0, gain = random() % 4 != 0,
                   bias = centred && random() % 4 != 0, keeps = random() % 2 != 0,
                   in_place = residual && random() % 3 == 0;
        const auto style = [&](bool written) {
            return random() % 2 ? kRows : (Style)below(random, written ? kRepeated : kStyles);
        };
        std::vector<int64_t> of_stats = {lines, 2, segments};
        if (centred) of_stats.push_back(2);
        Dense x(dtype, {lines, 2, n}, style(in_place)),
            r(in_place ? dtype : like_dtype(dtype, random), {lines, 2, n}, style(in_place)),
            a(sums, {n}, kRows), b(sums, {n}, kRows),
            y(in_place       ? dtype
              : random() % 2 ? dtype
                             : sums,
              {lines, 2, n}, style(true)),
            total(dtype, {lines, 2, n}, style(true)), stats(sums, of_stats, style(true));
        for (Dense *one : {&x, &r, &a, &b}) one->fill(random, -2, 2);
        Operand on[] = {{context.get(), x}, {context.get(), r},     {context.get(), a},    {context.get(), b},
                        {context.get(), y}, {context.get(), total}, {context.get(), stats}};
        Operand &result = in_place && !keeps ? on[0] : on[4], &sum = in_place ? on[1] : on[5];
        std::vector<void *> arguments = {on[0].array(), residual ? on[1].array() : nullptr,
                                         gain ? on[2].array() : nullptr};
        if (centred) arguments.push_back(bias ? on[3].array() : nullptr);
        arguments.insert(arguments.end(), {result.array(), keeps ? sum.array() : nullptr, on[6].array()});
        const std::string options =
            "epsilon=0.0625 segments=" + std::to_string(segments) + " activation=" + kActivations[activation];
        SCOPED_TRACE(options);
        const tartan_status status =
            call(context.get(), centred ? "add_layer_norm" : "add_rms_norm", arguments, options);
        if (is_refused(status)) return;
        ASSERT_OK(status);
        const Dense got = result.got(), kept = sum.got(), found = on[6].got();
        ASSERT_TRUE(marks_intact(got) && marks_intact(kept) && marks_intact(found));
        const double eps = epsilon(sums);
        const int32_t rounds_to = keeps ? dtype : got.array.dtype; // what is normalised
        for (int64_t line = 0; line < 2 * lines; line++)
            for (int64_t s = 0; s < segments; s++) {
                std::vector<real> numbers((size_t)each);
                real mean = 0, squares = 0, largest = 0;
                for (int64_t i = 0; i < each; i++) {
                    const int64_t at = line * n + s * each + i;
                    real &number = numbers[(size_t)i];
                    number = x.get(at);
                    if (residual) number = (double)(number + (real)r.get(at));
                    if (keeps) {
                        expect_near(number, kept.get(at), dtype, 2 * eps * 4, "total");
                        number = kept.get(at);
                    }
                    mean += number / (real)each, largest = std::fmax(largest, std::fabs(number));
                }
                if (!centred) mean = 0;
                for (const real number : numbers) squares += (number - mean) * (number - mean) / (real)each;
                const real rstd = 1 / std::sqrt(squares + 0.0625L);
                // Without total, sums are rounded to the dtype of y.
                const real rounding = residual && !keeps ? epsilon(rounds_to) * largest : 0;
                const int64_t pair = line * segments + s;
                if (centred)
                    expect_near(mean, found.get(2 * pair), sums, (double)(8 * eps * largest + rounding),
                                "mean");
                expect_near(rstd, found.get(centred ? 2 * pair + 1 : pair), sums,
                            (double)(rstd * (8 * eps + 4 * rounding * rstd)), "rstd");
                for (int64_t i = 0; i < each; i++) {
                    const int64_t at = s * each + i;
                    const real factor = gain ? a.get(at) : 1, term = bias ? b.get(at) : 0,
                               v = (numbers[(size_t)i] - mean) * rstd * factor + term,
                               size = std::fabs(v) + std::fabs(term) + std::fabs(rstd * factor) * largest;
                    expect_near(value_of(activation, v), got.get(line * n + at), got.array.dtype,
                                (double)((16 * eps + 2 * epsilon(got.array.dtype)) * size +
                                         8 * rounding * std::fabs(rstd * factor) * (1 + largest * rstd)),
                                "y");
                    if (HasFatalFailure()) return;
                }
            }
    }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendAddNorm, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

TEST_P(BackendAddNorm, IsItsFormula) {
    for (const bool centred : {true, false})
        for (uint64_t seed = 0; seed < rounds(60u); seed++) {
            SCOPED_TRACE(::testing::Message() << (centred ? "layer" : "rms") << " seed " << seed);
            check(centred, seed);
            if (HasFatalFailure()) return;
        }
}

// The gradients, from statistics that are exact for `total`.
class BackendAddNormGradient : public OnBackend {
  protected:
    static real slope_of(int activation, real v) {
        const real sigmoid = 1 / (1 + std::exp(-v));
        switch (activation) {
        case 1:
            return v > 0 ? 1 : 0;
        case 2:
            return std::erfc(-v / std::sqrt(2.0L)) / 2 +
                   v * std::exp(-v * v / 2) / std::sqrt(8 * std::atan(1.0L));
        case 3:
            return sigmoid * (1 + v * (1 - sigmoid));
        default:
            return 1;
        }
    }

    void check(bool centred, uint64_t seed) {
        std::mt19937_64 random(seed);
        const int64_t segments = pick<int64_t>(random, {1, 2, 4}),
                      each = seed % 8 == 7 ? pick<int64_t>(random, {768, 1536, 4096, 12288})
                                           : pick<int64_t>(random, {1, 5, 8, 33, 64}),
                      lines = seed % 8 == 7   ? 5
                              : seed % 8 == 6 ? 300
                                              : pick<int64_t>(random, {1, 6, 40}),
                      n = segments * each;
        const int activation = (int)below(random, 4);
        const int32_t dtype = kDtypes[below(random, 4)], sums = tartan_i_sum_dtype(dtype);
        const bool gain = random() % 4 != 0, bias = centred && random() % 4 != 0, adds = random() % 2 != 0,
                   other = random() % 2 != 0, has_x = random() % 8 != 0;
        const auto style = [&](bool written) {
            return random() % 2 ? kRows : (Style)below(random, written ? kRepeated : kStyles);
        };
        const auto like = [&] { return random() % 2 ? dtype : like_dtype(dtype, random); };
        std::vector<int64_t> of_stats = {lines, segments};
        if (centred) of_stats.push_back(2);
        Dense total(dtype, {lines, n}, style(false)), a(sums, {n}, kRows), b(sums, {n}, kRows),
            stats(sums, of_stats, kRows), g(like(), {lines, n}, style(false)),
            more(like(), {lines, n}, style(false)), x_grad(like(), {lines, n}, style(true)),
            again(x_grad.array.dtype, {lines, n}, style(true)), gain_grad(sums, {n}, kRows),
            bias_grad(sums, {n}, kRows);
        for (Dense *one : {&total, &a, &b, &g, &more}) one->fill(random, -2, 2);
        std::vector<real> means((size_t)(lines * segments)), rstds = means;
        for (size_t s = 0; s < means.size(); s++) {
            const int64_t from = (int64_t)s * each;
            real mean = 0, squares = 0;
            for (int64_t i = 0; i < each; i++) mean += total.get(from + i) / (real)each;
            if (!centred) mean = 0;
            for (int64_t i = 0; i < each; i++) {
                const real less = total.get(from + i) - mean;
                squares += less * less / (real)each;
            }
            const int64_t at = centred ? 2 * (int64_t)s : (int64_t)s;
            if (centred) stats.set(at, (double)mean);
            stats.set(centred ? at + 1 : at, (double)(1 / std::sqrt(squares + 0.0625L)));
            means[s] = centred ? (real)stats.get(at) : 0, rstds[s] = stats.get(centred ? at + 1 : at);
        }
        Operand on[] = {{context.get(), total},    {context.get(), a},     {context.get(), b},
                        {context.get(), stats},    {context.get(), g},     {context.get(), more},
                        {context.get(), x_grad},   {context.get(), again}, {context.get(), gain_grad},
                        {context.get(), bias_grad}};
        std::vector<void *> arguments = {on[0].array(), gain ? on[1].array() : nullptr};
        if (centred) arguments.push_back(bias ? on[2].array() : nullptr);
        arguments.insert(arguments.end(),
                         {on[3].array(), on[4].array(), adds ? on[5].array() : nullptr,
                          has_x ? on[6].array() : nullptr, other ? on[7].array() : nullptr, on[8].array()});
        if (centred) arguments.push_back(on[9].array());
        const std::string options =
            "segments=" + std::to_string(segments) + " activation=" + kActivations[activation];
        SCOPED_TRACE(::testing::Message()
                     << options << ", " << tartan_dtype_name(dtype) << " " << lines << " x " << n);
        const tartan_status status = call(
            context.get(), centred ? "add_layer_norm_gradient" : "add_rms_norm_gradient", arguments, options);
        if (is_refused(status)) return;
        ASSERT_OK(status);
        const Dense of_x = on[6].got(), of_other = on[7].got(), of_gain = on[8].got(), of_bias = on[9].got();
        ASSERT_TRUE(marks_intact(of_x) && marks_intact(of_other));
        /* The activation's argument may have been rounded to the dtype of x_grad. */
        const double eps = epsilon(sums),
                     rounding = activation != 0 && (has_x || other) ? 8 * epsilon(x_grad.array.dtype) : 0;
        std::vector<real> to_gain((size_t)n), to_bias = to_gain, sizes = to_gain;
        for (size_t s = 0; s < means.size(); s++) {
            const int64_t from = (int64_t)s * each, position = (int64_t)s % segments * each;
            std::vector<real> z((size_t)each), slope = z;
            real mean_g = 0, mean_gz = 0, size = 0;
            for (int64_t i = 0; i < each; i++) {
                const auto k = (size_t)i, p = (size_t)(position + i);
                const real factor = gain ? a.get((int64_t)p) : 1, term = bias ? b.get((int64_t)p) : 0;
                z[k] = (total.get(from + i) - means[s]) * rstds[s];
                const real v = z[k] * factor + term;
                if (activation == 1 && std::fabs(v) < 1e-4 + 8 * rounding) return; // where relu has a corner
                slope[k] = g.get(from + i) * slope_of(activation, v);
                to_gain[p] += slope[k] * z[k], to_bias[p] += slope[k];
                /* Slopes of gelu and silu are sums of terms near 1 that may cancel: 4 roundings of these terms. */
                sizes[p] +=
                    (std::fabs(slope[k]) + std::fabs((real)g.get(from + i)) *
                                               ((real)rounding / (real)eps + (activation > 1 ? 1 : 0)) / 8) *
                    (1 + std::fabs(z[k]));
                mean_g += slope[k] * factor / (real)each, mean_gz += slope[k] * factor * z[k] / (real)each;
                size = std::fmax(size,
                                 (std::fabs(factor) + 1) * (1 + std::fabs(z[k])) * (1 + std::fabs(z[k])) * 3);
            }
            if (!centred) mean_g = 0;
            for (int64_t i = 0; i < each; i++) {
                const auto k = (size_t)i;
                const real factor = gain ? a.get(position + i) : 1,
                           want = rstds[s] * (slope[k] * factor - mean_g - z[k] * mean_gz) +
                                  (adds ? (real)more.get(from + i) : 0);
                const double allowed = (double)(rstds[s] * size) * (32 * eps + 4 * rounding) +
                                       4 * epsilon(x_grad.array.dtype) * (double)(2 + std::fabs(want));
                if (has_x) expect_near(want, of_x.get(from + i), x_grad.array.dtype, allowed, "x_grad");
                if (other)
                    expect_near(want, of_other.get(from + i), x_grad.array.dtype, allowed, "residual_grad");
                if (HasFatalFailure()) return;
            }
        }
        for (int64_t i = 0; i < n; i++) {
            const double allowed = (double)sizes[(size_t)i] * 32 * eps;
            expect_near(to_gain[(size_t)i], of_gain.get(i), sums, allowed, "gain_grad");
            if (centred) expect_near(to_bias[(size_t)i], of_bias.get(i), sums, allowed, "bias_grad");
            if (HasFatalFailure()) return;
        }
    }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendAddNormGradient, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

TEST_P(BackendAddNormGradient, IsItsFormula) {
    for (const bool centred : {true, false})
        for (uint64_t seed = 0; seed < rounds(96u); seed++) {
            SCOPED_TRACE(::testing::Message() << (centred ? "layer" : "rms") << " seed " << seed);
            check(centred, seed);
            if (HasFatalFailure()) return;
        }
}

// With one segment and nothing else, bits are those of the norm alone.
TEST_P(BackendAddNorm, OfOneSegmentIsTheNorm) {
    std::mt19937_64 random(1);
    for (const bool centred : {true, false}) {
        Dense x(TARTAN_F32, {7, 48}, kRows), gain(TARTAN_F32, {48}, kRows), y(TARTAN_F32, {7, 48}, kRows);
        x.fill(random, -2, 2), gain.fill(random, -2, 2);
        Operand on[] = {{context.get(), x}, {context.get(), gain}, {context.get(), y}, {context.get(), y}};
        std::vector<void *> plain = {on[0].array(), on[1].array()},
                            more = {on[0].array(), nullptr, on[1].array()};
        if (centred) plain.push_back(nullptr), more.push_back(nullptr);
        plain.insert(plain.end(), {on[2].array(), nullptr});
        more.insert(more.end(), {on[3].array(), nullptr, nullptr});
        const tartan_status status = call(context.get(), centred ? "layer_norm" : "rms_norm", plain);
        if (is_refused(status)) return;
        ASSERT_OK(status);
        ASSERT_OK(call(context.get(), centred ? "add_layer_norm" : "add_rms_norm", more));
        EXPECT_EQ(on[2].got().memory(), on[3].got().memory());
    }
}

TEST_P(BackendAddNorm, RefusesSegmentsThatDoNotFit) {
    Operand x = {context.get(), Dense(TARTAN_F32, {3, 10}, kRows)},
            y = {context.get(), Dense(TARTAN_F32, {3, 10}, kRows)},
            stats = {context.get(), Dense(TARTAN_F32, {3, 4, 2}, kRows)};
    EXPECT_FAILS(SHAPE,
                 "tartan_add_layer_norm: x has lines of 10 numbers, expected a multiple of segments, 4",
                 call(context.get(), "add_layer_norm",
                      {x.array(), nullptr, nullptr, nullptr, y.array(), nullptr, nullptr}, "segments=4"));
    EXPECT_FAILS(
        SHAPE,
        "tartan_add_layer_norm_gradient: total has lines of 10 numbers, expected a multiple of segments, "
        "4",
        call(context.get(), "add_layer_norm_gradient",
             {x.array(), nullptr, nullptr, stats.array(), x.array(), nullptr, y.array(), nullptr, nullptr,
              nullptr},
             "segments=4"));
}

TEST(AddNorm, ThatHasNoRoomForItsStatisticsIsRefused) {
    const Context context = open_context(1);
    const std::vector<int64_t> shape(TARTAN_MAX_NDIM, 1);
    Dense x(TARTAN_F32, shape, kRows), y(TARTAN_F32, shape, kRows), stats(TARTAN_F32, {1}, kRows);
    EXPECT_FAILS(SHAPE, "tartan_add_layer_norm: x has 8 dimensions, expected at most 7",
                 call(context.get(), "add_layer_norm",
                      {&x.array, nullptr, nullptr, nullptr, &y.array, nullptr, &stats.array}));
}

// ---- Casts ----

class BackendCast : public OnBackend {};
INSTANTIATE_TEST_SUITE_P(Each, BackendCast, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

const int32_t kAll[] = {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16, TARTAN_F8E4M3, TARTAN_F8E5M2};

// One rounding, between any two dtypes and strides.
TEST_P(BackendCast, RoundsOnce) {
    for (const int32_t from : kAll)
        for (const int32_t to : kAll)
            for (uint64_t seed = 0; seed < rounds(6u); seed++) {
                std::mt19937_64 random(seed);
                std::vector<int64_t> shape = any_shape(random, 0);
                if (seed == 0) shape = {5000};
                Dense x(from, shape, seed % 2 ? (Style)below(random, kStyles) : kRows),
                    y(to, shape, seed % 2 ? (Style)below(random, kRepeated) : kRows);
                for (int64_t e = 0; e < x.elements(); e++)
                    x.set(e, std::ldexp(std::uniform_real_distribution<double>(-2, 2)(random),
                                        (int)below(random, 40) - 24));
                Operand on_x = {context.get(), x}, on_y = {context.get(), y};
                const char *const name = seed % 3 ? "float_cast" : "float_cast_gradient";
                const std::string options =
                    seed % 3 == 1 ? "dtype=" + std::string(tartan_dtype_name(to)) : "";
                const tartan_status status = call(context.get(), name, {on_x.array(), on_y.array()}, options);
                if (is_refused(status)) return;
                ASSERT_OK(status);
                const Dense got = on_y.got();
                ASSERT_TRUE(marks_intact(got));
                for (int64_t e = 0; e < x.elements(); e++) {
                    char bits[8];
                    tartan_i_store(bits, to, 0, x.get(e));
                    const double want = tartan_i_load(bits, to, 0);
                    ASSERT_TRUE(want == got.get(e) || (std::isnan(want) && std::isnan(got.get(e))))
                        << tartan_dtype_name(from) << " to " << tartan_dtype_name(to) << ": " << x.get(e)
                        << " became " << got.get(e) << ", expected " << want;
                }
            }
}

TEST_P(BackendCast, RefusesResultsOfAnotherDtypeThanNamed) {
    Operand x = {context.get(), Dense(TARTAN_F32, {3}, kRows)},
            y = {context.get(), Dense(TARTAN_F16, {3}, kRows)};
    EXPECT_FAILS(DTYPE, "tartan_float_cast: y is of float16, expected bfloat16, the dtype",
                 call(context.get(), "float_cast", {x.array(), y.array()}, "dtype=bfloat16"));
    EXPECT_FAILS(
        DTYPE, "tartan_float_cast_gradient: x_grad is of float16, expected float64, the gradient_dtype",
        call(context.get(), "float_cast_gradient", {x.array(), y.array()}, "gradient_dtype=float64"));
}

} // namespace
