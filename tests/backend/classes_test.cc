// SPDX-License-Identifier: Apache-2.0
// Softmax along lines, losses of classes and rows of tables on every backend, against the formulas in long double.
#include "called.h"

#include <algorithm>
#include <cmath>

namespace {

using namespace tartan_test;

// The softmax of a line.
struct Weights {
    long double most = -INFINITY, sum = 0;
    std::vector<long double> of;

    template <typename Value, typename Counts>
    Weights(int64_t n, Value value, Counts counts) : of((size_t)n) {
        for (int64_t i = 0; i < n; i++)
            if (counts(i)) most = std::max(most, (long double)value(i));
        for (int64_t i = 0; i < n; i++) {
            const bool zero = !counts(i) || most == -INFINITY;
            sum += of[(size_t)i] = zero ? 0 : std::exp((long double)value(i) - most);
        }
        for (long double &w : of) w = sum == 0 ? 0 : w / sum;
    }
    long double lse() const { return sum == 0 ? -INFINITY : most + std::log(sum); }
};

// Many long lines, some of which clusters share on Hopper: one after the other, that begin at any address, and fill parts of CTAs to some degree.
const std::vector<std::vector<int64_t>> kLong = {{70, 4999}, {67, 6400}, {34, 40001}};
bool is_long(const std::vector<int64_t> &shape) {
    return std::find(kLong.begin(), kLong.end(), shape) != kLong.end();
}

class BackendClasses : public OnBackend {
  protected:
    std::mt19937_64 random{5};

    Dense numbers(int32_t dtype, const std::vector<int64_t> &shape, double low, double high, bool written) {
        const Style other = (Style)below(random, written ? kRepeated : kStyles),
                    style = pick<Style>(random, {kRows, kColumns, other});
        Dense made(dtype, shape, is_long(shape) ? kRows : style);
        made.fill(random, low, high);
        return made;
    }
    // Of f32, exponents are rounded, too.
    static double allowed(int32_t dtype, double size) {
        return 16 * epsilon(tartan_i_sum_dtype(dtype)) * (1 + size);
    }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendClasses, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

// Lines of a warp or less, of a CTA and of several; short ones of many CTAs, and parts of some.
const std::vector<std::vector<int64_t>> kShapes = {{1},       {3, 5},    {4, 31},    {2, 3, 33}, {7, 1},
                                                   {1, 1000}, {2, 4099}, {2, 20000}, {0, 4},     {3, 0},
                                                   {300, 7},  {150, 48}, {70, 900},  {1, 70000}};

std::vector<std::vector<int64_t>> all_shapes() {
    std::vector<std::vector<int64_t>> all = kShapes;
    all.insert(all.end(), kLong.begin(), kLong.end());
    return all;
}

TEST_P(BackendClasses, Softmax) {
    for (const int32_t dtype : kDtypes)
        for (const std::vector<int64_t> &shape : all_shapes())
            for (const double scale : {1.0, 0.125, -2.0}) {
                if (is_long(shape) && (dtype == TARTAN_F64 || scale != (dtype == TARTAN_BF16 ? -2 : 1)))
                    continue;
                const int64_t n = shape.back();
                Dense x = numbers(dtype, shape, -20, 20, false), y = numbers(dtype, shape, 0, 1, true);
                const int kind = is_long(shape) ? 0 : (int)below(random, 3);
                Dense mask(TARTAN_U8, kind == 1 ? std::vector<int64_t>{n} : shape);
                mask.fill(random, 0, 2);
                const auto counts = [&](int64_t i) {
                    return kind == 0 || mask.get(kind == 1 ? i % n : i) != 0;
                };
                if (kind == 2 && x.elements() > 0) // nothing counts in the first line
                    for (int64_t i = 0; i < n; i++) mask.set(i, 0);
                if (n > 2 && dtype != TARTAN_F16 && x.elements() > 0)
                    x.set(1, scale < 0 ? INFINITY : -INFINITY);
                Operand in = {context.get(), x}, by = {context.get(), mask}, out = {context.get(), y};
                const tartan_status status = call(context.get(), "softmax",
                                                  {in.array(), kind == 0 ? nullptr : by.array(), out.array()},
                                                  "scale=" + std::to_string(scale));
                if (is_refused(status)) continue;
                ASSERT_OK(status);
                const Dense got = out.got();
                ASSERT_TRUE(marks_intact(got));
                for (int64_t line = 0; n > 0 && line < x.elements() / n; line++) {
                    const Weights w(
                        n, [&](int64_t i) { return scale * x.get(line * n + i); },
                        [&](int64_t i) { return counts(line * n + i); });
                    for (int64_t i = 0; i < n; i++)
                        expect_near(w.of[(size_t)i], got.get(line * n + i), dtype,
                                    allowed(dtype, 40) * (double)w.of[(size_t)i] + 1e-38, "weight");
                }
                if (HasFailure()) return;
            }
}

TEST_P(BackendClasses, LogSoftmax) {
    for (const int32_t dtype : kDtypes)
        for (const std::vector<int64_t> &shape : all_shapes()) {
            if (is_long(shape) && dtype != TARTAN_BF16) continue;
            const int64_t n = shape.back();
            Dense x = numbers(dtype, shape, -20, 20, false), y = numbers(dtype, shape, 0, 1, true);
            Operand in = {context.get(), x}, out = {context.get(), y};
            const tartan_status status =
                call(context.get(), "log_softmax", {in.array(), out.array()}, "scale=0.5");
            if (is_refused(status)) continue;
            ASSERT_OK(status);
            const Dense got = out.got();
            for (int64_t line = 0; n > 0 && line < x.elements() / n; line++) {
                const Weights w(
                    n, [&](int64_t i) { return 0.5 * x.get(line * n + i); }, [](int64_t) { return true; });
                for (int64_t i = 0; i < n; i++)
                    expect_near(0.5L * x.get(line * n + i) - w.lse(), got.get(line * n + i), dtype,
                                allowed(dtype, 20), "logarithm");
            }
            if (HasFailure()) return;
        }
}

// Of y that need not be a softmax. On Hopper clusters of CTAs have the last shapes, with lines that begin at any address and of whole units.
TEST_P(BackendClasses, SoftmaxGradients) {
    std::vector<std::vector<int64_t>> shapes = kShapes;
    shapes.push_back({20, 70001});
    shapes.push_back({10, 140001});
    shapes.push_back({9, 131072});
    for (const std::string name : {"softmax_gradient", "log_softmax_gradient"})
        for (const int32_t dtype : kDtypes)
            for (const std::vector<int64_t> &shape : shapes) {
                const int64_t n = shape.back();
                const bool of_logarithm = name[0] == 'l', long_lines = n > 70000;
                Dense y = numbers(dtype, shape, of_logarithm ? -9 : 0, of_logarithm ? -1 : 1, true),
                      g = numbers(dtype, shape, -2, 2, true), to = numbers(dtype, shape, 0, 1, true);
                if (long_lines) {
                    y = Dense(dtype, shape), g = Dense(dtype, shape), to = Dense(dtype, shape);
                    y.fill(random, of_logarithm ? -9 : 0, of_logarithm ? -1 : 1);
                    g.fill(random, -2, 2);
                }
                Operand in = {context.get(), y}, by = {context.get(), g}, out = {context.get(), to};
                const bool in_place = random() % 2 == 0;
                const tartan_status status =
                    call(context.get(), name, {in.array(), by.array(), in_place ? by.array() : out.array()},
                         "scale=0.5");
                if (is_refused(status)) continue;
                ASSERT_OK(status);
                const Dense got = (in_place ? by : out).got();
                ASSERT_TRUE(marks_intact(got));
                for (int64_t line = 0; n > 0 && line < y.elements() / n; line++) {
                    long double sum = 0;
                    double size = 0;
                    for (int64_t i = line * n; i < (line + 1) * n; i++) {
                        const double term = of_logarithm ? g.get(i) : y.get(i) * g.get(i);
                        sum += term, size += std::fabs(term);
                    }
                    for (int64_t i = line * n; i < (line + 1) * n; i++) {
                        const double factor = of_logarithm ? std::exp(y.get(i)) : y.get(i);
                        const long double want =
                            of_logarithm ? (g.get(i) - factor * sum) / 2 : factor * (g.get(i) - sum) / 2;
                        // Sums of a line are made of those of threads, of which each has up to 256 terms.
                        expect_near(want, got.get(i), dtype,
                                    allowed(dtype, 2) * (factor * (1 + size / 16) + 1), name.c_str());
                    }
                    if (HasFailure()) return;
                }
            }
}

// With the slope in the same call, in place or not, and by the gradient after it. Some lines are left out.
TEST_P(BackendClasses, CrossEntropy) {
    for (const int32_t dtype : kDtypes)
        for (const std::vector<int64_t> &shape : all_shapes())
            for (const double smoothing : {0.0, 0.25}) {
                const int64_t n = shape.back(), base = (int64_t)below(random, 2);
                if (n == 0) continue;
                if (is_long(shape) && (dtype == TARTAN_F64 || smoothing != (dtype == TARTAN_BF16 ? 0 : 0.25)))
                    continue;
                const std::vector<int64_t> of_lines(shape.begin(), shape.end() - 1);
                const int32_t sums = tartan_i_sum_dtype(dtype);
                Dense x = numbers(dtype, shape, -10, 10, true), slope = numbers(dtype, shape, 0, 1, true);
                Dense labels(pick<int32_t>(random, {TARTAN_I64, TARTAN_I32}), of_lines,
                             (Style)below(random, kRepeated));
                for (int64_t i = 0; i < labels.elements(); i++)
                    labels.set(i, i % 4 == 3 ? -7 : (double)(base + (int64_t)below(random, (size_t)n)));
                Dense weights = numbers(sums, of_lines, -2, 2, true), loss(sums, of_lines),
                      lse(sums, of_lines);
                const bool in_place = random() % 2 == 0;
                const std::string options = "label_smoothing=" + std::to_string(smoothing) +
                                            " ignore_index=-7 base=" + std::to_string(base);
                Operand in = {context.get(), x}, by = {context.get(), labels},
                        factors = {context.get(), weights}, to = {context.get(), slope},
                        losses = {context.get(), loss}, kept = {context.get(), lse},
                        alone = {context.get(), slope}, again = {context.get(), x};
                const tartan_status status = call(context.get(), "cross_entropy",
                                                  {in.array(), by.array(), factors.array(), losses.array(),
                                                   kept.array(), in_place ? in.array() : to.array()},
                                                  options + " scale=0.5");
                if (is_refused(status)) continue;
                ASSERT_OK(status);
                ASSERT_OK(call(context.get(), "cross_entropy_gradient",
                               {again.array(), by.array(), kept.array(), factors.array(), alone.array()},
                               options));
                const Dense got = (in_place ? in : to).got(), later = alone.got(), l = losses.got(),
                            s = kept.got();
                for (int64_t line = 0; line < x.elements() / n; line++) {
                    const auto value = [&](int64_t i) { return x.get(line * n + i); };
                    const Weights w(n, value, [](int64_t) { return true; });
                    const int64_t label = (int64_t)labels.get(line) - base;
                    const bool out = (int64_t)labels.get(line) == -7;
                    long double mean = 0;
                    for (int64_t i = 0; i < n; i++) mean += (long double)value(i) / n;
                    const long double want =
                        out ? 0 : w.lse() - (1 - smoothing) * value(label) - smoothing * mean;
                    expect_near(want, l.get(line), sums, allowed(dtype, 20), "loss");
                    expect_near(w.lse(), s.get(line), sums, allowed(dtype, 10), "lse");
                    for (int64_t i = 0; i < n; i++) {
                        const long double target =
                                              smoothing / (long double)n + (i == label ? 1 - smoothing : 0),
                                          g = out ? 0
                                                  : (long double)weights.get(line) *
                                                        (w.of[(size_t)i] - target);
                        expect_near(g / 2, got.get(line * n + i), dtype, allowed(dtype, 20), "slope");
                        expect_near(g, later.get(line * n + i), dtype, allowed(dtype, 20), "gradient");
                    }
                    if (HasFailure()) return;
                }
            }
}

std::vector<double> dense_of(const Matrix &matrix) {
    const tartan_shape &shape = matrix->layout->shape;
    Dense dense(matrix->dtype, {shape.rows, shape.cols});
    EXPECT_OK(tartan_matrix_to_dense(matrix.get(), &dense.array));
    std::vector<double> all((size_t)dense.elements());
    for (size_t i = 0; i < all.size(); i++) all[i] = dense.get((int64_t)i);
    return all;
}

// Of more lines than logits are kept for at a time, on the CPU; with block-sparse and dense weights.
TEST_P(BackendClasses, LinearCrossEntropyIsThatOfTheProduct) {
    for (const int32_t dtype : kDtypes)
        for (const auto &[lines, density] :
             std::vector<std::pair<int64_t, double>>{{5, 1.0}, {1, 0.4}, {140, 0.7}, {0, 1.0}}) {
            const bool many = lines == 140;
            const int64_t rows = many ? 40000 : 11, cols = many ? 8 : 9;
            if (many && dtype != TARTAN_F64) continue;
            const tartan_shape shape = {rows, cols, many ? 32 : 4, many ? 8 : 3, 1};
            const Layout layout = random_layout(shape, density, 3);
            const int32_t sums = tartan_i_sum_dtype(dtype);
            const Matrix w = random_matrix(layout, dtype, TARTAN_ROW_MAJOR, random);
            const Matrix zeros = random_matrix(layout, sums, TARTAN_ROW_MAJOR, random);
            Dense x = numbers(dtype, {lines, cols}, -1, 1, false),
                  weights = numbers(sums, {lines}, 0, 2, true), labels(TARTAN_I64, {lines}),
                  loss(sums, {lines}), lse(sums, {lines}), slope = numbers(dtype, {lines, cols}, 0, 1, true),
                  bias = numbers(sums, {rows}, -1, 1, false), bias_slope = numbers(sums, {rows}, 0, 1, true);
            const bool has_bias = random() % 4 != 0;
            for (int64_t i = 0; i < lines; i++)
                labels.set(i, i % 5 == 4 ? -100 : (double)below(random, (size_t)rows));
            const Matrix at = placed(context.get(), w), to = placed(context.get(), zeros),
                         later = placed(context.get(), zeros);
            Operand in = {context.get(), x}, by = {context.get(), labels}, factors = {context.get(), weights},
                    losses = {context.get(), loss}, kept = {context.get(), lse},
                    back = {context.get(), slope}, again = {context.get(), slope},
                    added = {context.get(), bias}, of_bias = {context.get(), bias_slope},
                    of_bias_again = {context.get(), bias_slope};
            void *const adds = has_bias ? added.array() : nullptr;
            RUN_OR_NEXT(call(context.get(), "linear_cross_entropy",
                             {at.get(), in.array(), by.array(), adds, factors.array(), losses.array(),
                              kept.array(), back.array(), to.get(), of_bias.array()},
                             "label_smoothing=0.25 scale=0.5"));
            ASSERT_OK(call(context.get(), "linear_cross_entropy_gradient",
                           {at.get(), in.array(), by.array(), adds, kept.array(), factors.array(),
                            again.array(), later.get(), of_bias_again.array()},
                           "label_smoothing=0.25"));
            const std::vector<double> dense = dense_of(w);
            Dense one(dtype, {1}); // rounds
            std::vector<double> want_w((size_t)(rows * cols)), want_bias((size_t)rows),
                bias_sizes((size_t)rows);
            const Dense got = losses.got(), x_slope = back.got(), x_grad = again.got(),
                        to_bias = of_bias.got(), to_bias_again = of_bias_again.got();
            for (int64_t i = 0; i < lines; i++) {
                std::vector<double> logits((size_t)rows);
                double mean = 0;
                for (int64_t r = 0; r < rows; r++) {
                    double sum = 0;
                    for (int64_t k = 0; k < cols; k++)
                        sum += dense[(size_t)(r * cols + k)] * x.get(i * cols + k);
                    one.set(0, sum);
                    if (has_bias) one.set(0, one.get(0) + bias.get(r));
                    logits[(size_t)r] = one.get(0);
                    mean += logits[(size_t)r] / (double)rows;
                }
                const Weights softmax(
                    rows, [&](int64_t r) { return logits[(size_t)r]; }, [](int64_t) { return true; });
                const int64_t label = (int64_t)labels.get(i);
                const bool out = label == -100;
                const double size = 2 * epsilon(dtype) * (double)cols;
                expect_near(out ? 0 : softmax.lse() - 0.75 * logits[(size_t)label] - 0.25 * mean, got.get(i),
                            sums, allowed(dtype, 20) + size, "loss");
                std::vector<double> want_x((size_t)cols);
                for (int64_t r = 0; r < rows && !out; r++) {
                    const double target = 0.25 / (double)rows + (r == label ? 0.75 : 0),
                                 g = weights.get(i) * ((double)softmax.of[(size_t)r] - target);
                    want_bias[(size_t)r] += g,
                        bias_sizes[(size_t)r] += std::fabs(g) + weights.get(i) / (double)rows;
                    for (int64_t k = 0; k < cols; k++) {
                        want_x[(size_t)k] += g * dense[(size_t)(r * cols + k)];
                        want_w[(size_t)(r * cols + k)] += g * x.get(i * cols + k);
                    }
                }
                for (int64_t k = 0; k < cols; k++) {
                    expect_near(want_x[(size_t)k] / 2, x_slope.get(i * cols + k), dtype, 8 * size, "x_slope");
                    expect_near(want_x[(size_t)k], x_grad.get(i * cols + k), dtype, 16 * size, "x_grad");
                }
                if (HasFailure()) return;
            }
            for (int64_t r = 0; r < rows; r++) {
                const double room = 16 * epsilon(dtype) * (double)cols * bias_sizes[(size_t)r];
                expect_near(want_bias[(size_t)r] / 2, to_bias.get(r), sums, room, "bias_slope");
                expect_near(want_bias[(size_t)r], to_bias_again.get(r), sums, room, "bias_grad");
            }
            const std::vector<double> w_slope = dense_of(fetched(context.get(), to)),
                                      w_grad = dense_of(fetched(context.get(), later)),
                                      stored = dense_of(
                                          random_matrix(layout, TARTAN_F64, TARTAN_ROW_MAJOR, random, 1, 1));
            for (size_t e = 0; e < want_w.size(); e++) {
                const double want = want_w[e] * stored[e], bound = epsilon(dtype) * (double)(16 + lines);
                expect_near(want / 2, w_slope[e], sums, bound, "w_slope");
                expect_near(want, w_grad[e], sums, 2 * bound, "w_grad");
            }
            if (HasFailure()) return;
        }
}

TEST_P(BackendClasses, LinearCrossEntropyHasOneHead) {
    const Layout layout = random_layout({4, 4, 2, 2, 2}, 1, 1);
    const Matrix w = random_matrix(layout, TARTAN_F32, TARTAN_ROW_MAJOR, random);
    const Matrix at = placed(context.get(), w);
    Operand x = {context.get(), Dense(TARTAN_F32, {3, 4})}, labels = {context.get(), Dense(TARTAN_I64, {3})},
            loss = {context.get(), Dense(TARTAN_F32, {3})};
    EXPECT_FAILS(SHAPE, "tartan_linear_cross_entropy: w has 2 heads, expected 1",
                 call(context.get(), "linear_cross_entropy",
                      {at.get(), x.array(), labels.array(), nullptr, nullptr, loss.array(), nullptr, nullptr,
                       nullptr, nullptr}));
}

// On the CPU they are refused, with their place; a device says NaN.
TEST_P(BackendClasses, LabelsThatAreNoClass) {
    Dense x(TARTAN_F32, {2, 3, 4}), labels(TARTAN_I64, {2, 3}), loss(TARTAN_F32, {2, 3}),
        slope(TARTAN_F32, {2, 3, 4});
    x.fill(random);
    for (int64_t i = 0; i < 6; i++) labels.set(i, i == 5 ? 4 : 1);
    Operand in = {context.get(), x}, by = {context.get(), labels}, losses = {context.get(), loss},
            to = {context.get(), slope};
    const auto run = [&](const std::string &options) {
        return call(context.get(), "cross_entropy",
                    {in.array(), by.array(), nullptr, losses.array(), nullptr, to.array()}, options);
    };
    if (on_host()) {
        EXPECT_FAILS(ARGUMENT,
                     "tartan_cross_entropy: labels[1, 2] is 4, expected 0 .. 3, or -100 (ignore_index)",
                     run(""));
        EXPECT_EQ(loss.memory(), losses.got().memory());
        EXPECT_EQ(slope.memory(), to.got().memory());
        labels.set(1, 0);
        Operand from_1 = {context.get(), labels};
        EXPECT_FAILS(ARGUMENT, "labels[2, 1] is 0, expected 1 .. 4", // the first dimension is the last in C
                     call(context.get(), "cross_entropy",
                          {in.array(), from_1.array(), nullptr, losses.array(), nullptr, nullptr}, "base=1"));
        return;
    }
    ASSERT_OK(run(""));
    const Dense l = losses.got(), g = to.got();
    for (int64_t i = 0; i < 24; i++) EXPECT_EQ(i >= 20, std::isnan(g.get(i))) << i;
    for (int64_t i = 0; i < 6; i++) EXPECT_EQ(i == 5, std::isnan(l.get(i))) << i;
}

TEST_P(BackendClasses, Embedding) {
    for (const int32_t dtype : kDtypes)
        for (const int64_t n : {1, 3, 8, 40, 256})
            for (const int64_t rows : {1, 2, 50}) {
                const std::vector<int64_t> shape =
                    random() % 2 ? std::vector<int64_t>{37} : std::vector<int64_t>{5, 9};
                const int64_t base = (int64_t)below(random, 2);
                Dense table = numbers(dtype, {rows, n}, -2, 2, false);
                std::vector<int64_t> with_n = shape;
                with_n.push_back(n);
                Dense y = numbers(dtype, with_n, 0, 1, true), y_grad = numbers(dtype, with_n, -2, 2, false),
                      grad = numbers(dtype, {rows, n}, 0, 1, true);
                Dense indices(pick<int32_t>(random, {TARTAN_I64, TARTAN_I32, TARTAN_U8}), shape,
                              (Style)below(random, kRepeated));
                const int64_t padding = base + rows - 1;
                for (int64_t i = 0; i < indices.elements(); i++)
                    indices.set(i, (double)(base + (int64_t)below(random, (size_t)rows)));
                const std::string options = "padding_index=" + std::to_string(rows > 1 ? padding : -1) +
                                            " base=" + std::to_string(base);
                Operand from = {context.get(), table}, by = {context.get(), indices}, to = {context.get(), y},
                        g = {context.get(), y_grad}, back = {context.get(), grad};
                const tartan_status status =
                    call(context.get(), "embedding", {from.array(), by.array(), to.array()}, options);
                if (is_refused(status)) continue;
                ASSERT_OK(status);
                ASSERT_OK(call(context.get(), "embedding_gradient",
                               {from.array(), by.array(), g.array(), back.array()}, options));
                const Dense got = to.got(), sums = back.got();
                std::vector<long double> want((size_t)(rows * n)), size = want;
                for (int64_t i = 0; i < indices.elements(); i++) {
                    const int64_t row = (int64_t)indices.get(i) - base;
                    const bool out = rows > 1 && row == rows - 1;
                    for (int64_t c = 0; c < n; c++) {
                        ASSERT_EQ(out ? 0 : table.get(row * n + c), got.get(i * n + c));
                        if (!out)
                            want[(size_t)(row * n + c)] += y_grad.get(i * n + c),
                                size[(size_t)(row * n + c)] += 2;
                    }
                }
                for (int64_t i = 0; i < rows * n; i++)
                    expect_near(want[(size_t)i], sums.get(i), dtype, allowed(dtype, (double)size[(size_t)i]),
                                "gradient");
                if (HasFailure()) return;
            }
}

} // namespace
