// SPDX-License-Identifier: Apache-2.0
// Convolutions: all three passes of random problems against the oracle, with epilogues and active windows; equal bits for
// any instruction set and number of threads; failed allocations.
#include "conv_support.h"

namespace {

using namespace tartan_test;

int image_style(std::mt19937_64 &random, bool output) {
    return output ? pick<int>(random, {kRows, kColumns, kReversed, kGaps, kChannelsLast, kChannelsLast})
                  : pick<int>(random,
                              {kRows, kColumns, kReversed, kGaps, kRepeated, kChannelsLast, kChannelsLast});
}
int32_t out_dtype(std::mt19937_64 &random, int32_t dtype) {
    return dtype != TARTAN_F64 && below(random, 3) == 0 ? (int32_t)TARTAN_F32 : dtype;
}

// ---- Forward ----

struct Epilogue {
    Dense gain, bias;
    bool has_gain = false, has_bias = false, relu = false, bias_first = false, add = false;
    std::string options() const {
        return std::string("relu=") + (relu ? "1" : "0") + " bias_first=" + (bias_first ? "1" : "0") +
               ",add=" + (add ? "1" : "0");
    }
    const tartan_array *gain_array() const { return has_gain ? &gain.array : nullptr; }
    const tartan_array *bias_array() const { return has_bias ? &bias.array : nullptr; }
    static double value(const Dense &of, bool has, double rest, int64_t edge_class, int64_t channels,
                        int64_t k) {
        return !has ? rest : of.get(of.array.ndim == 2 ? edge_class * channels + k : k);
    }
};

Epilogue random_epilogue(std::mt19937_64 &random, const Problem &p) {
    Epilogue e;
    const auto classes = p.classes();
    const int64_t count = classes.empty() ? 1 : 1 + *std::max_element(classes.begin(), classes.end());
    const int32_t dtype = tartan_i_sum_dtype(p.dtype);
    const auto make = [&] {
        Dense d = below(random, 2) == 0 ? Dense(dtype, {p.y_channels()}, kGaps)
                                        : Dense(dtype, {count, p.y_channels()}, kColumns);
        d.fill(random);
        return d;
    };
    e.has_gain = below(random, 2) == 0, e.has_bias = below(random, 2) == 0;
    if (e.has_gain) e.gain = make();
    if (e.has_bias) e.bias = make();
    e.relu = below(random, 3) == 0, e.bias_first = below(random, 2) == 0, e.add = below(random, 3) == 0;
    return e;
}

tartan_status forward(tartan_context *context, const Problem &p, const Dense &x, const Epilogue &e,
                      const Active &a, Dense &y) {
    return conv_forward(context, p.conv.get(), p.filter.get(), &x.array, e.options().c_str(), e.gain_array(),
                        e.bias_array(), a.layout.get(), a.words(), &y.array);
}

void check_forward(const Problem &p, const Dense &x, const Epilogue &e, const Active &a, const Dense &before,
                   const Dense &y) {
    const auto sums = p.correlate(x, p.transposed(), nullptr);
    const auto classes = p.classes();
    const auto positions = Problem::all_of(p.y_size());
    const int64_t channels = p.y_channels(), count = (int64_t)positions.size();
    const double unit = epsilon(tartan_i_sum_dtype(p.dtype));
    for (int64_t i = 0; i < y.elements(); i++) {
        const int64_t at = i % count, k = i / count % channels, n = i / count / channels;
        if (!a.has(n, positions[(size_t)at])) {
            EXPECT_EQ(before.get(i), y.get(i)) << "element " << i;
            continue;
        }
        const Sum &s = sums[(size_t)i];
        const double g = Epilogue::value(e.gain, e.has_gain, 1, classes[(size_t)at], channels, k),
                     b = Epilogue::value(e.bias, e.has_bias, 0, classes[(size_t)at], channels, k);
        long double want = e.bias_first ? g * (s.exact + b) : g * s.exact + b;
        long double bound = std::fabs(g) * s.bound(p.dtype) +
                            4 * unit * (std::fabs(g) * (s.size + std::fabs(b)) + std::fabs(b));
        if (e.relu && want < 0) want = 0;
        if (e.add) want += before.get(i), bound += 2 * unit * std::fabs(before.get(i));
        expect_near(y.get(i), want, bound, y.array.dtype, p.dtype, "element " + std::to_string(i));
    }
}

TEST(Conv, ForwardEqualsTheOracle) {
    Context contexts[] = {open_context(1), open_context(2), open_context(5)};
    for (uint64_t seed = 0; seed < rounds(400u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const WithFeatures with(feature_sets()[seed % feature_sets().size()]);
        std::mt19937_64 random(seed + 1000);
        Problem p = random_problem(seed);
        SCOPED_TRACE(p.conv->text);
        Dense x = make_image(p.dtype, p.n, p.x_channels(), p.x_size(), image_style(random, false));
        Dense y = make_image(out_dtype(random, p.dtype), p.n, p.y_channels(), p.y_size(),
                             image_style(random, true));
        x.fill(random);
        y.fill(random);
        const Dense before = y;
        const Epilogue e = random_epilogue(random, p);
        const Active a =
            p.n > 0 && below(random, 3) == 0 ? random_active(random, p.n, p.y_size(), 0.5) : Active();
        ASSERT_OK(forward(contexts[seed % 3].get(), p, x, e, a, y));
        EXPECT_TRUE(marks_intact(y));
        check_forward(p, x, e, a, before, y);
        if (HasFailure()) return;
    }
}

// Images whose channels lie side by side have a form of their own, which treats taps outside of the image as others do:
// 0 times infinity is NaN.
TEST(Conv, DepthwiseHasTheBitsOfOtherMemoryOrders) {
    Context context = open_context(2);
    for (uint64_t seed = 0; seed < rounds(60u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const WithFeatures with(feature_sets()[seed % feature_sets().size()]);
        std::mt19937_64 random(seed);
        Problem p;
        const int64_t dims = 1 + (int64_t)(seed % 3), channels = 1 + (int64_t)below(random, 70);
        p.conv = make_conv(diagonal_layout(channels), random_options(random, dims, seed % 2 == 0));
        std::vector<int64_t> size;
        for (int64_t d = 0; d < dims; d++) size.push_back(1 + (int64_t)below(random, 9));
        if (!p.set_size(1 + (int64_t)below(random, 2), size)) continue;
        p.layout = layout_of(p.conv);
        p.dtype = kDtypes[below(random, 4)];
        p.filter = random_matrix(p.layout, p.dtype, TARTAN_ROW_MAJOR, random);
        if (seed % 5 == 0) {
            tartan_array values;
            ASSERT_OK(tartan_matrix_values(p.filter.get(), &values));
            tartan_i_store(values.data, p.dtype, 0, INFINITY);
        }
        const Epilogue e = random_epilogue(random, p);
        const Active a = below(random, 2) == 0 ? random_active(random, p.n, p.y_size(), 0.5) : Active();
        Dense x = make_image(p.dtype, p.n, p.x_channels(), p.x_size(), kChannelsLast);
        Dense first = make_image(p.dtype, p.n, p.x_channels(), p.x_size(), kRows);
        Dense y = make_image(p.dtype, p.n, p.y_channels(), p.y_size(), kChannelsLast);
        Dense want = make_image(p.dtype, p.n, p.y_channels(), p.y_size(), kRows);
        for (int64_t i = 0; i < x.elements(); i++)
            x.set(i, random_values(1, random())[0]), first.set(i, x.get(i));
        for (int64_t i = 0; i < y.elements(); i++) y.set(i, 0.5), want.set(i, 0.5);
        ASSERT_OK(forward(context.get(), p, x, e, a, y));
        ASSERT_OK(forward(context.get(), p, first, e, a, want));
        for (int64_t i = 0; i < y.elements(); i++) {
            const double w = want.get(i), g = y.get(i);
            ASSERT_TRUE((std::isnan(w) && std::isnan(g)) || std::memcmp(&w, &g, sizeof w) == 0)
                << "element " << i << ": " << g << ", expected " << w;
        }
    }
}

// ---- Gradients ----

TEST(Conv, InputGradientEqualsTheOracle) {
    Context contexts[] = {open_context(1), open_context(2), open_context(5)};
    for (uint64_t seed = 0; seed < rounds(400u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const WithFeatures with(feature_sets()[seed % feature_sets().size()]);
        std::mt19937_64 random(seed + 2000);
        Problem p = random_problem(seed);
        SCOPED_TRACE(p.conv->text);
        Dense dy = make_image(out_dtype(random, p.dtype), p.n, p.y_channels(), p.y_size(),
                              image_style(random, false));
        Dense dx = make_image(out_dtype(random, p.dtype), p.n, p.x_channels(), p.x_size(),
                              image_style(random, true));
        dy.fill(random);
        const Active a =
            p.n > 0 && below(random, 3) == 0 ? random_active(random, p.n, p.y_size(), 0.5) : Active();
        ASSERT_OK(conv_input_gradient(contexts[seed % 3].get(), p.conv.get(), p.filter.get(), &dy.array,
                                      a.layout.get(), a.words(), &dx.array));
        EXPECT_TRUE(marks_intact(dx));
        const auto sums = p.correlate(dy, !p.transposed(), &a);
        for (int64_t i = 0; i < dx.elements(); i++)
            expect_near(dx.get(i), sums[(size_t)i].exact, sums[(size_t)i].bound(p.dtype), dx.array.dtype,
                        p.dtype, "element " + std::to_string(i));
        if (HasFailure()) return;
    }
}

// The same for the filter's gradient, with any number of threads.
TEST(Conv, DepthwiseFilterGradientHasTheBitsOfOtherMemoryOrders) {
    Context contexts[] = {open_context(1), open_context(2), open_context(5)};
    for (uint64_t seed = 0; seed < rounds(80u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const WithFeatures with(feature_sets()[seed % feature_sets().size()]);
        std::mt19937_64 random(seed);
        Problem p;
        const int64_t dims = 1 + (int64_t)(seed % 3), channels = 1 + (int64_t)below(random, 70);
        p.conv = make_conv(diagonal_layout(channels), random_options(random, dims, seed % 2 == 0));
        SCOPED_TRACE(p.conv->text);
        std::vector<int64_t> size;
        for (int64_t d = 0; d < dims; d++) size.push_back(1 + (int64_t)below(random, dims == 1 ? 90 : 9));
        if (!p.set_size(1 + (int64_t)below(random, 2), size)) continue;
        p.layout = layout_of(p.conv);
        p.dtype = kDtypes[below(random, 4)];
        const Active a = below(random, 2) == 0 ? random_active(random, p.n, p.y_size(), 0.5) : Active();
        Dense x = make_image(p.dtype, p.n, p.x_channels(), p.x_size(), kChannelsLast);
        Dense first = make_image(p.dtype, p.n, p.x_channels(), p.x_size(), kRows);
        Dense dy = make_image(p.dtype, p.n, p.y_channels(), p.y_size(), kChannelsLast);
        Dense dy_first = make_image(p.dtype, p.n, p.y_channels(), p.y_size(), kRows);
        x.fill(random), dy.fill(random);
        if (seed % 5 == 0 && dy.elements() > 0) dy.set(0, INFINITY);
        for (int64_t i = 0; i < x.elements(); i++) first.set(i, x.get(i));
        for (int64_t i = 0; i < dy.elements(); i++) dy_first.set(i, dy.get(i));
        const double beta = seed % 3 == 0 ? 0.5 : 0;
        Matrix got = random_matrix(p.layout, p.dtype, TARTAN_ROW_MAJOR, random);
        Matrix want = random_matrix(p.layout, p.dtype, TARTAN_ROW_MAJOR, random);
        tartan_array g, w;
        ASSERT_OK(tartan_matrix_values(got.get(), &g));
        ASSERT_OK(tartan_matrix_values(want.get(), &w));
        const int64_t bytes = p.layout.get()->blocks * tartan_dtype_bytes(p.dtype);
        std::memcpy(w.data, g.data, (size_t)bytes);
        ASSERT_OK(tartan_conv_filter_gradient(contexts[seed % 3].get(), p.conv.get(), &x.array, &dy.array,
                                              a.layout.get(), a.words(), beta, got.get()));
        ASSERT_OK(tartan_conv_filter_gradient(contexts[0].get(), p.conv.get(), &first.array, &dy_first.array,
                                              a.layout.get(), a.words(), beta, want.get()));
        for (int64_t id = 0; id < p.layout.get()->blocks; id++) {
            const double ours = entry(got.get(), id, 0, 0), others = entry(want.get(), id, 0, 0);
            ASSERT_TRUE((std::isnan(ours) && std::isnan(others)) ||
                        std::memcmp(&ours, &others, sizeof ours) == 0)
                << "block " << id << ": " << ours << ", expected " << others;
        }
    }
}

void check_filter_gradient(const Problem &p, const Dense &x, const Dense &dy, const Active &a, double beta,
                           const Matrix &before, const Matrix &after) {
    const tartan_layout *l = p.layout.get();
    const Dense &in = p.transposed() ? dy : x, &out = p.transposed() ? x : dy;
    const int64_t ps = Problem::product(p.out), qs = Problem::product(p.in);
    struct Pair {
        int64_t p, q, image;
    };
    std::vector<std::vector<Pair>> pairs((size_t)p.conv->options.taps);
    p.each_pair([&](int64_t t, int64_t i, int64_t q, auto &at_p, auto &at_q) {
        for (int64_t image = 0; q >= 0 && image < p.n; image++)
            if (a.has(image, p.transposed() ? at_q : at_p)) pairs[(size_t)t].push_back({i, q, image});
    });
    std::vector<char> seen((size_t)(l->blocks * l->shape.block_rows * l->shape.block_cols));
    const auto check = [&](int64_t id, int64_t i, int64_t j, const Sum &s) {
        const double old = beta == 0 ? 0 : beta * entry(before.get(), id, i, j);
        expect_near(entry(after.get(), id, i, j), s.exact + old,
                    s.bound(p.dtype) + 4 * epsilon(tartan_i_sum_dtype(p.dtype)) * std::fabs(old),
                    after->dtype, p.dtype, "block " + std::to_string(id));
        seen[(size_t)((id * l->shape.block_rows + i) * l->shape.block_cols + j)] = 1;
    };
    p.each_weight([&](int64_t k, int64_t c, int64_t t, int64_t id, int64_t i, int64_t j) {
        Sum s;
        for (const Pair &pair : pairs[(size_t)t])
            s.add(out.get((pair.image * p.conv->rows.count + k) * ps + pair.p),
                  in.get((pair.image * p.conv->cols.count + c) * qs + pair.q));
        check(id, i, j, s);
    });
    for (int64_t id = 0; id < l->blocks; id++) // weights without channels
        for (int64_t i = 0; i < tartan_i_rows_of(l, l->block_rows[id]); i++)
            for (int64_t j = 0; j < l->shape.block_cols; j++)
                if (!seen[(size_t)((id * l->shape.block_rows + i) * l->shape.block_cols + j)])
                    check(id, i, j, Sum());
}

TEST(Conv, FilterGradientEqualsTheOracle) {
    Context contexts[] = {open_context(1), open_context(2), open_context(5)};
    for (uint64_t seed = 0; seed < rounds(400u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const WithFeatures with(feature_sets()[seed % feature_sets().size()]);
        std::mt19937_64 random(seed + 3000);
        Problem p = random_problem(seed);
        SCOPED_TRACE(p.conv->text);
        Dense x = make_image(p.dtype, p.n, p.x_channels(), p.x_size(), image_style(random, false));
        Dense dy = make_image(out_dtype(random, p.dtype), p.n, p.y_channels(), p.y_size(),
                              image_style(random, false));
        x.fill(random);
        dy.fill(random);
        const double beta = pick<double>(random, {0, 0, 1, -0.5});
        const Active a =
            p.n > 0 && below(random, 3) == 0 ? random_active(random, p.n, p.y_size(), 0.5) : Active();
        const int32_t order = pick(random, {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}),
                      dtype = out_dtype(random, p.dtype);
        const uint64_t same = random();
        std::mt19937_64 one(same), two(same);
        const Matrix before = random_matrix(p.layout, dtype, order, one),
                     after = random_matrix(p.layout, dtype, order, two);
        ASSERT_OK(tartan_conv_filter_gradient(contexts[seed % 3].get(), p.conv.get(), &x.array, &dy.array,
                                              a.layout.get(), a.words(), beta, after.get()));
        check_filter_gradient(p, x, dy, a, beta, before, after);
        if (HasFailure()) return;
    }
}

// What another call left in the context's memory, here NaN, reaches no result. NaN in x reaches no weight without channels.
TEST(Conv, FilterGradientForgetsTheCallBefore) {
    Context used = open_context(2);
    for (uint64_t seed = 0; seed < rounds(200u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        for (const bool poisons : {true, false}) {
            std::mt19937_64 random(poisons ? 2 * seed : seed);
            Problem p = random_problem(poisons ? 2 * seed : seed);
            Dense x = make_image(p.dtype, p.n, p.x_channels(), p.x_size(), kChannelsLast);
            Dense dy = make_image(p.dtype, p.n, p.y_channels(), p.y_size(), kChannelsLast);
            x.fill(random), dy.fill(random);
            for (int64_t i = 0; poisons && i < x.elements(); i++) x.set(i, NAN);
            for (int64_t i = 0; poisons && i < dy.elements(); i++) dy.set(i, NAN);
            Context fresh = open_context(2);
            std::vector<double> found[2];
            for (int which = 0; which < 2; which++) {
                const Matrix grad = random_matrix(p.layout, p.dtype, TARTAN_ROW_MAJOR, random);
                ASSERT_OK(tartan_conv_filter_gradient((which == 0 ? used : fresh).get(), p.conv.get(),
                                                      &x.array, &dy.array, nullptr, nullptr, 0, grad.get()));
                const tartan_layout *l = p.layout.get();
                for (int64_t id = 0; id < l->blocks; id++)
                    for (int64_t i = 0; i < tartan_i_rows_of(l, l->block_rows[id]); i++)
                        for (int64_t j = 0; j < l->shape.block_cols; j++) {
                            found[which].push_back(entry(grad.get(), id, i, j));
                            const int64_t br = l->shape.block_rows, bc = l->shape.block_cols,
                                          row = l->block_rows[id] * br,
                                          col = l->block_cols[id] % tartan_i_conv_grid(p.conv.get()) * bc;
                            if (i >= tartan_i_channels_in(&p.conv->rows, row, br) ||
                                j >= tartan_i_channels_in(&p.conv->cols, col, bc)) {
                                ASSERT_EQ(0, found[which].back());
                            }
                        }
            }
            if (!poisons) {
                ASSERT_EQ(found[0], found[1]);
            }
        }
    }
}

// ---- Bits ----

// The bytes of all three results.
std::string bits_of(const Problem &p, uint64_t seed, tartan_context *context) {
    std::mt19937_64 random(seed);
    Dense x = make_image(p.dtype, p.n, p.x_channels(), p.x_size(), kChannelsLast), dx = x;
    Dense y = make_image(p.dtype, p.n, p.y_channels(), p.y_size(), kRows);
    x.fill(random);
    y.fill(random);
    Dense dy = y;
    const Epilogue e = random_epilogue(random, p);
    const Active a =
        p.n > 0 && below(random, 2) == 0 ? random_active(random, p.n, p.y_size(), 0.5) : Active();
    const Matrix dw = random_matrix(p.layout, p.dtype, TARTAN_ROW_MAJOR, random);
    EXPECT_OK(forward(context, p, x, e, a, y));
    EXPECT_OK(conv_input_gradient(context, p.conv.get(), p.filter.get(), &dy.array, a.layout.get(), a.words(),
                                  &dx.array));
    EXPECT_OK(tartan_conv_filter_gradient(context, p.conv.get(), &x.array, &dy.array, a.layout.get(),
                                          a.words(), 0.5, dw.get()));
    const tartan_layout *l = p.layout.get();
    std::string bits(y.memory().begin(), y.memory().end());
    bits.append(dx.memory().begin(), dx.memory().end());
    for (int64_t id = 0; id < l->blocks; id++)
        for (int64_t i = 0; i < tartan_i_rows_of(l, l->block_rows[id]); i++)
            bits.append((const char *)tartan_i_block_at(dw.get(), id) +
                            i * l->shape.block_cols * tartan_dtype_bytes(p.dtype),
                        (size_t)(l->shape.block_cols * tartan_dtype_bytes(p.dtype)));
    return bits;
}

TEST(Conv, SameBitsForAnyInstructionSetAndNumberOfThreads) {
    Context contexts[] = {open_context(1), open_context(3), open_context(8)};
    for (uint64_t seed = 0; seed < rounds(60u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Problem p = random_problem(seed);
        const std::string expected = bits_of(p, seed, contexts[0].get());
        for (const auto set : feature_sets()) {
            const WithFeatures with(set);
            for (const Context &context : contexts) ASSERT_EQ(expected, bits_of(p, seed, context.get()));
        }
    }
}

// ---- Failed allocations ----

TEST(Conv, PassesSurviveFailedAllocations) {
    std::mt19937_64 random(1);
    for (bool transposed : {false, true}) {
        Problem p;
        p.conv =
            make_conv(random_layout({20, 23, 4, 4, 1}, 0.7, 1),
                      std::string("kernel=3x3 padding=same stride=2") + (transposed ? " transposed=1" : ""));
        p.layout = layout_of(p.conv);
        p.filter = random_matrix(p.layout, TARTAN_F64, TARTAN_ROW_MAJOR, random);
        ASSERT_TRUE(p.set_size(2, {7, 8}));
        Dense x = make_image(TARTAN_F64, 2, p.x_channels(), p.x_size(), kRows), dx = x;
        Dense y = make_image(TARTAN_F64, 2, p.y_channels(), p.y_size(), kRows);
        x.fill(random);
        y.fill(random);
        const Dense before = y;
        Epilogue e;
        e.has_gain = true;
        const auto classes = p.classes();
        e.gain = Dense(TARTAN_F64, {1 + *std::max_element(classes.begin(), classes.end()), p.y_channels()});
        e.gain.fill(random);
        const Active a = random_active(random, 2, p.y_size(), 0.6);
        const auto run = [&](tartan_context *context) {
            const tartan_status status = forward(context, p, x, e, a, y);
            if (status != TARTAN_OK) {
                EXPECT_EQ(before.memory(), y.memory()) << "the output was written";
            }
            return status;
        };
        { BRUTAL(in_new_context(2, run), ); }
        const auto input = [&](tartan_context *context) {
            return conv_input_gradient(context, p.conv.get(), p.filter.get(), &before.array, a.layout.get(),
                                       a.words(), &dx.array);
        };
        { BRUTAL(in_new_context(2, input), ); }
        const Matrix dw = random_matrix(p.layout, TARTAN_F64, TARTAN_ROW_MAJOR, random);
        const auto gradient = [&](tartan_context *context) {
            return tartan_conv_filter_gradient(context, p.conv.get(), &x.array, &before.array, a.layout.get(),
                                               a.words(), 0, dw.get());
        };
        { BRUTAL(in_new_context(2, gradient), ); }
    }
}

} // namespace
