// SPDX-License-Identifier: Apache-2.0
// Softmax and cross entropy along long lines, enough of them for a GPU. On Hopper clusters of 1 to 16 CTAs keep these lines in registers.
#include "called.h"

#include <cmath>

namespace {

using namespace tartan_test;

struct Shape {
    int64_t lines, n;
};
// Whole units of 16 bytes, and lines that begin at any address.
const Shape kShapes[] = {{70, 32768}, {36, 70001}, {20, 131072}, {9, 262145}, {140, 20007}};
const int32_t kTypes[] = {TARTAN_F32, TARTAN_F16, TARTAN_BF16};

class BackendLongLines : public OnBackend {
  protected:
    std::mt19937_64 random{5};

    // Numbers of lines. Of the first the part that a CTA may have is -infinity, the second is all of it; the third has infinity.
    Dense numbers(int32_t dtype, const Shape &shape, double scale, bool with_infinities) {
        Dense x(dtype, {shape.lines, shape.n});
        x.fill(random, -8, 8);
        if (!with_infinities) return x;
        for (int64_t i = 0; i < shape.n; i++) {
            if (i < 40000 && i < shape.n / 2) x.set(i, scale < 0 ? INFINITY : -INFINITY);
            x.set(shape.n + i, scale < 0 ? INFINITY : -INFINITY);
        }
        x.set(2 * shape.n + shape.n / 3, scale < 0 ? -INFINITY : INFINITY);
        return x;
    }
    // f(dtype, shape, every other time) for this share of all combinations.
    template <typename F> void of_each(F f) {
        int number = 0;
        for (const Shape &shape : kShapes)
            for (const int32_t dtype : kTypes) {
                if (!is_of_the_share(number++)) continue;
                SCOPED_TRACE(::testing::Message() << shape.lines << " x " << shape.n << " " << dtype);
                f(dtype, shape, number % 2 == 0);
                if (HasFailure()) return;
            }
    }
    // Of f32, exponents are rounded, too.
    static double allowed(double size) { return 16 * epsilon(TARTAN_F32) * (1 + size); }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendLongLines, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

struct Sums {
    double most = -INFINITY, sum = 0;
    template <typename Value> Sums(int64_t n, Value value) {
        for (int64_t i = 0; i < n; i++) most = std::max(most, value(i));
        if (most == -INFINITY) return;
        for (int64_t i = 0; i < n; i++) sum += std::exp(value(i) - most);
    }
    double lse() const { return sum == 0 ? -INFINITY : most + std::log(sum); }
};

TEST_P(BackendLongLines, Softmax) {
    of_each([&](int32_t dtype, const Shape &shape, bool is_log) {
        for (const std::string name : {is_log ? "log_softmax" : "softmax"}) {
            const double scale = pick<double>(random, {1, 0.125, -2});
            const bool in_place = random() % 2 == 0;
            const Dense x = numbers(dtype, shape, scale, !is_log);
            Operand in = {context.get(), x}, apart = {context.get(), Dense(dtype, {shape.lines, shape.n})},
                    &out = in_place ? in : apart;
            std::vector<void *> arguments = {in.array()};
            if (!is_log) arguments.push_back(nullptr);
            arguments.push_back(out.array());
            RUN_OR_NEXT(call(context.get(), name, arguments, "scale=" + std::to_string(scale)));
            const Dense got = out.got();
            for (int64_t line = 0; line < shape.lines; line++) {
                const auto value = [&](int64_t i) { return scale * x.get(line * shape.n + i); };
                const Sums sums(shape.n, value);
                for (int64_t i = 0; i < shape.n; i++) {
                    const double have = got.get(line * shape.n + i);
                    if (is_log) {
                        expect_near(value(i) - sums.lse(), have, dtype, allowed(20), "logarithm");
                    } else if (line == 2) {
                        ASSERT_TRUE(std::isnan(have)) << i << ": " << have << " beside infinity";
                    } else {
                        const double want = sums.sum == 0 ? 0 : std::exp(value(i) - sums.lse());
                        expect_near(want, have, dtype, allowed(40) * want + 1e-38, "weight");
                    }
                }
                if (HasFailure()) return;
            }
        }
    });
}

// Labels in all parts of a line, at its ends, left out and none at all; with and without smoothing and slope.
TEST_P(BackendLongLines, CrossEntropy) {
    of_each([&](int32_t dtype, const Shape &shape, bool is_smooth) {
        for (const double smoothing : {is_smooth ? 0.25 : 0}) {
            const Dense x = numbers(dtype, shape, 1, false);
            Dense labels(TARTAN_I64, {shape.lines}), weights(TARTAN_F32, {shape.lines});
            weights.fill(random, -2, 2);
            for (int64_t i = 0; i < shape.lines; i++)
                labels.set(i, i == 0   ? 0
                              : i == 1 ? (double)(shape.n - 1)
                              : i == 2 ? -7
                                       : (double)below(random, (size_t)shape.n));
            const bool in_place = random() % 2 == 0, with_slope = smoothing != 0 || random() % 4 != 0;
            Operand in = {context.get(), x}, of = {context.get(), labels}, by = {context.get(), weights},
                    loss = {context.get(), Dense(TARTAN_F32, {shape.lines})},
                    lse = {context.get(), Dense(TARTAN_F32, {shape.lines})},
                    apart = {context.get(), Dense(dtype, {shape.lines, shape.n})},
                    &slope = in_place ? in : apart;
            RUN_OR_NEXT(call(context.get(), "cross_entropy",
                             {in.array(), of.array(), by.array(), loss.array(), lse.array(),
                              with_slope ? slope.array() : nullptr},
                             "label_smoothing=" + std::to_string(smoothing) + " ignore_index=-7 scale=0.5"));
            const Dense got = slope.got(), losses = loss.got(), kept = lse.got();
            for (int64_t line = 0; line < shape.lines; line++) {
                const auto value = [&](int64_t i) { return x.get(line * shape.n + i); };
                const Sums sums(shape.n, value);
                const int64_t label = (int64_t)labels.get(line);
                const bool out = label == -7;
                double mean = 0;
                for (int64_t i = 0; i < shape.n; i++) mean += value(i) / (double)shape.n;
                expect_near(out ? 0 : sums.lse() - (1 - smoothing) * value(label) - smoothing * mean,
                            losses.get(line), TARTAN_F32, allowed(20), "loss");
                expect_near(sums.lse(), kept.get(line), TARTAN_F32, allowed(10), "lse");
                const double factor = out ? 0 : weights.get(line) / 2;
                for (int64_t i = 0; i < shape.n && with_slope; i++) {
                    const double weight = std::exp(value(i) - sums.lse()),
                                 target = smoothing / (double)shape.n + (i == label ? 1 - smoothing : 0);
                    expect_near(factor * (weight - target), got.get(line * shape.n + i), dtype,
                                std::fabs(factor) * (allowed(20) * weight + 2 * epsilon(TARTAN_F32) * target),
                                "slope");
                }
                if (HasFailure()) return;
            }
        }
    });
}

} // namespace
