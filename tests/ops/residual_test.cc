// SPDX-License-Identifier: Apache-2.0
// The bottleneck unit in windows: an oracle, the bits of the unit over the whole image, and failed allocations.
#include "residual_support.h"

namespace {

using namespace tartan_test;

int style_of(std::mt19937_64 &random, bool output) {
    return output ? pick<int>(random, {kRows, kColumns, kReversed, kGaps, kChannelsLast, kChannelsLast})
                  : pick<int>(random, {kRows, kGaps, kRepeated, kChannelsLast, kChannelsLast});
}

// ---- The oracle ----

// Numbers with a bound of their errors.
struct Known {
    std::vector<long double> value, error;
    explicit Known(int64_t count) : value((size_t)count), error((size_t)count) {}
};

// A convolution over the whole image with its gain, bias and relu, loop by loop, as the header has it.
Known layer(const Unit &u, int which, const Known &from, bool relu) {
    const tartan_conv *conv = u.conv[which].get();
    const int64_t in = tartan_conv_in_channels(conv), out = tartan_conv_out_channels(conv);
    const tartan_i_conv_options &o = conv->options;
    const auto ps = Problem::all_of(u.size);
    const size_t dims = u.size.size();
    std::vector<int64_t> dense_shape{out, in}, kernel(o.kernel + 3 - dims, o.kernel + 3);
    dense_shape.insert(dense_shape.end(), kernel.begin(), kernel.end());
    Dense dense(u.dtype, dense_shape);
    EXPECT_OK(tartan_conv_filter_to_dense(conv, u.filter[which].get(), &dense.array));
    tartan_i_geometry g;
    EXPECT_OK(tartan_i_geometry_of("test", &o, "in", u.size.data(), &g));
    const auto taps = Problem::all_of(kernel);
    const int64_t positions = (int64_t)ps.size();
    Known to(u.n * out * positions);
    for (int64_t i = 0; i < u.n * out * positions; i++) {
        const int64_t n = i / positions / out, k = i / positions % out;
        Sum sum;
        long double error = 0;
        for (size_t t = 0; t < taps.size(); t++) {
            int64_t at = 0;
            for (size_t d = 0; d < dims && at >= 0; d++) {
                const int64_t q = ps[(size_t)(i % positions)][d] + taps[t][d] * o.dilation[3 - dims + d] -
                                  g.before[3 - dims + d];
                at = q < 0 || q >= u.size[d] ? -1 : at * u.size[d] + q;
            }
            if (at < 0) continue;
            for (int64_t c = 0; c < in; c++) {
                const size_t j = (size_t)((n * in + c) * positions + at);
                const double w = dense.get((k * in + c) * (int64_t)taps.size() + (int64_t)t);
                sum.exact += w * from.value[j], sum.size += std::fabs(w * from.value[j]), sum.terms++;
                error += std::fabs(w) * from.error[j];
            }
        }
        const long double gain = u.has_gain[which] ? u.gain[which].get(k) : 1,
                          bias = u.has_bias[which] ? u.bias[which].get(k) : 0;
        long double want = gain * sum.exact + bias,
                    bound = std::fabs(gain) * (sum.bound(u.dtype) + error) +
                            4 * epsilon(tartan_i_sum_dtype(u.dtype)) *
                                (std::fabs(gain) * (sum.size + error) + std::fabs(bias));
        bound += epsilon(u.dtype) * (std::fabs(want) + bound) + 1e-7L * (u.dtype == TARTAN_F16);
        to.value[(size_t)i] = relu && want < 0 ? 0 : want;
        to.error[(size_t)i] = bound;
    }
    return to;
}

Known oracle(const Unit &u, const Dense &x) {
    const int64_t positions = Problem::product(u.size);
    Known a(x.elements());
    for (int64_t i = 0; i < x.elements(); i++) {
        a.value[(size_t)i] = x.get(i);
        if (!u.preactivate) continue;
        const int64_t c = i / positions % u.channels;
        const long double gain = u.has_x_gain ? u.x_gain.get(c) : 1,
                          bias = u.has_x_bias ? u.x_bias.get(c) : 0;
        const long double v = gain * x.get(i) + bias;
        a.error[(size_t)i] = 4 * epsilon(u.dtype) * (std::fabs(gain * x.get(i)) + std::fabs(bias)) + 1e-7L;
        a.value[(size_t)i] = v < 0 ? 0 : v;
    }
    Known y = layer(u, 2, layer(u, 1, layer(u, 0, a, true), true), false);
    for (int64_t i = 0; i < x.elements(); i++) {
        long double &v = y.value[(size_t)i];
        v += x.get(i);
        y.error[(size_t)i] += epsilon(u.dtype) * (std::fabs(v) + y.error[(size_t)i]);
        if (u.relu && v < 0) v = 0;
    }
    return y;
}

TEST(Residual, EqualsTheOracle) {
    Context contexts[] = {open_context(1), open_context(2), open_context(5)};
    for (uint64_t seed = 0; seed < rounds(100u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const WithFeatures with(feature_sets()[seed % feature_sets().size()]);
        std::mt19937_64 random(seed + 1000);
        const Unit u = random_unit(seed);
        Dense x = u.image(style_of(random, false)), y = u.image(style_of(random, true));
        x.fill(random);
        ASSERT_OK(u.run(contexts[seed % 3].get(), x, y));
        EXPECT_TRUE(marks_intact(y));
        const Known want = oracle(u, x);
        const auto in = u.in_windows();
        for (int64_t i = 0; i < y.elements(); i++)
            if (in[(size_t)i])
                ASSERT_LE(std::fabs(y.get(i) - want.value[(size_t)i]), want.error[(size_t)i]) << i;
            else
                ASSERT_EQ(x.get(i), y.get(i)) << i;
    }
}

// ---- The unit over the whole image ----

bool same(double a, double b) {
    return (std::isnan(a) && std::isnan(b)) || a == b;
}

void expect_whole(const Unit &u, const Dense &x, const Dense &whole, const Dense &y) {
    const auto in = u.in_windows();
    for (int64_t i = 0; i < y.elements(); i++)
        ASSERT_TRUE(same(in[(size_t)i] ? whole.get(i) : x.get(i), y.get(i)))
            << "element " << i << ": " << y.get(i) << ", expected "
            << (in[(size_t)i] ? whole.get(i) : x.get(i));
}

// Here and there a pixel of NaN, which shows what reads it.
TEST(Residual, HasTheBitsOfTheWholeUnitAlsoInPlace) {
    Context contexts[] = {open_context(1), open_context(3)};
    for (uint64_t seed = 0; seed < rounds(300u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const WithFeatures with(feature_sets()[seed % feature_sets().size()]);
        std::mt19937_64 random(seed + 2000);
        const Unit u = random_unit(seed + 5000);
        const int style = style_of(random, true);
        Dense x = u.image(style), y = u.image(style_of(random, true));
        x.fill(random);
        const int64_t positions = Problem::product(u.size);
        for (int64_t c = 0, at = (int64_t)below(random, (size_t)positions); seed % 2 == 0 && c < u.channels;
             c++)
            x.set(c * positions + at, NAN);
        tartan_context *context = contexts[seed % 2].get();
        const Dense whole = u.whole(context, x);
        ASSERT_OK(u.run(context, x, y));
        expect_whole(u, x, whole, y);
        Dense own = x;
        ASSERT_OK(u.run(context, own, own));
        expect_whole(u, x, whole, own);
        EXPECT_TRUE(marks_intact(own));
        if (HasFailure()) return;
    }
}

// A unit whose windows do not all fit in a cache at once.
Unit large_unit(int64_t n, int64_t edge) {
    std::mt19937_64 random(1);
    Unit u;
    u.n = n, u.channels = 160, u.size = {edge, edge};
    u.conv[0] = make_conv(random_layout({32, 160, 16, 16, 1}, 0.5, 1), "kernel=1x1");
    u.conv[1] = make_conv(random_layout({24, 32, 8, 16, 1}, 0.5, 2), "kernel=3x3 padding=same");
    u.conv[2] = make_conv(random_layout({160, 24, 16, 8, 1}, 0.5, 3), "kernel=1x1");
    fill_unit(u, random, 0.3);
    u.active = all_windows(n, u.size, 16);
    return u;
}

TEST(Residual, ManyWindowsAtATimeOrFew) {
    const Context own = open_context(2); // with its scratch memory
    std::mt19937_64 random(7);
    const Unit u = large_unit(2, 93);
    Dense x = u.image(kChannelsLast);
    x.fill(random);
    const Dense whole = u.whole(own.get(), x);
    for (int32_t threads : {1, 2, 8, 64}) {
        const Context context = open_context(threads);
        Dense y = x, other = u.image(kRows);
        ASSERT_OK(u.run(context.get(), y, y));
        expect_whole(u, x, whole, y);
        ASSERT_OK(u.run(context.get(), x, other));
        expect_whole(u, x, whole, other);
        if (HasFailure()) return;
    }
}

TEST(Residual, NoWindowsAndNoElements) {
    const Context own = open_context(2);
    std::mt19937_64 random(3);
    Unit u = large_unit(1, 20);
    u.active.layout = random_layout({2, 2, 1, 1, 1}, 0, 1);
    Dense x = u.image(kRows), y = u.image(kChannelsLast);
    x.fill(random);
    ASSERT_OK(u.run(own.get(), x, y));
    for (int64_t i = 0; i < x.elements(); i++) ASSERT_EQ(x.get(i), y.get(i));
    const Dense before = x;
    ASSERT_OK(u.run(own.get(), x, x));
    EXPECT_EQ(before.memory(), x.memory());
    u.conv[1] = make_conv(random_layout({24, 32, 8, 16, 1}, 0.5, 2), "kernel=1x1 padding=tf");
    u.filter[1] = random_matrix(layout_of(u.conv[1]), TARTAN_F32, TARTAN_ROW_MAJOR, random);
    u.size = {0, 5};
    u.active.text = "size=1";
    u.active.layout = random_layout({0, 5, 1, 1, 1}, 0, 1);
    Dense empty = u.image(kRows);
    ASSERT_OK(u.run(own.get(), empty, empty));
}

// What is outside of the image is 0, not relu(bias): ones, a bias of 1 and 3 x 3 taps count the pixels inside.
TEST(Residual, OutsideOfTheImageTheIntermediateIsZero) {
    const Context own = open_context(2);
    Unit u;
    u.channels = 1, u.size = {3, 4};
    const Layout one = random_layout({1, 1, 1, 1, 1}, 1.1, 1);
    const char *options[] = {"kernel=1x1", "kernel=3x3 padding=same", "kernel=1x1"};
    for (int i = 0; i < 3; i++) {
        u.conv[i] = make_conv(one, options[i]);
        tartan_matrix *filter = nullptr;
        ASSERT_OK(tartan_matrix_create(layout_of(u.conv[i]).get(), TARTAN_F32, TARTAN_ROW_MAJOR, &filter));
        u.filter[i] = Matrix(filter);
        tartan_array values;
        ASSERT_OK(tartan_matrix_values(filter, &values));
        std::fill_n((float *)values.data, i == 1 ? 9 : 1, 1.0f);
    }
    u.bias[0] = Dense(TARTAN_F32, {1}), u.has_bias[0] = true;
    u.bias[0].set(0, 1);
    u.active = all_windows(1, u.size, 2);
    Dense x = u.image(kRows), y = x;
    for (int64_t i = 0; i < 12; i++) x.set(i, 0);
    ASSERT_OK(u.run(own.get(), x, y));
    const double want[] = {4, 6, 6, 4, 6, 9, 9, 6, 4, 6, 6, 4};
    for (int64_t i = 0; i < 12; i++) EXPECT_EQ(want[i], y.get(i)) << i;
}

TEST(Residual, SameBitsForAnyInstructionSetAndNumberOfThreads) {
    Context contexts[] = {open_context(1), open_context(3), open_context(8)};
    for (uint64_t seed = 0; seed < rounds(40u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        Unit u = random_unit(seed + 9000);
        Dense x = u.image(kChannelsLast);
        x.fill(random);
        std::vector<char> expected;
        for (const auto set : feature_sets()) {
            const WithFeatures with(set);
            for (const Context &context : contexts) {
                Dense y = x;
                ASSERT_OK(u.run(context.get(), y, y));
                if (expected.empty()) expected = y.memory();
                if (u.dtype == TARTAN_F64 || u.dtype == TARTAN_F32) {
                    ASSERT_EQ(expected, y.memory());
                }
            }
        }
    }
}

TEST(Residual, SurvivesFailedAllocations) {
    std::mt19937_64 random(1);
    for (int64_t edge : {20, 125}) { // all windows at once, and some at a time
        const Unit u = large_unit(1, edge);
        Dense x = u.image(kChannelsLast), y = u.image(kRows);
        x.fill(random);
        const Dense before = y, same = x;
        const auto run = [&](tartan_context *context) {
            const tartan_status status = u.run(context, x, y);
            if (status != TARTAN_OK) {
                EXPECT_EQ(before.memory(), y.memory()) << "the output was written";
            }
            return status;
        };
        { BRUTAL(in_new_context(1, run), ); }
        const auto in_place = [&](tartan_context *context) {
            const tartan_status status = u.run(context, x, x);
            if (status != TARTAN_OK) {
                EXPECT_EQ(same.memory(), x.memory()) << "the output was written";
            }
            return status;
        };
        { BRUTAL(in_new_context(1, in_place), ); }
    }
}

TEST(Residual, DescribesItsSteps) {
    const Unit u = large_unit(1, 20);
    Dense x = u.image(kChannelsLast);
    const Dense before = x;
    char *text = nullptr;
    ASSERT_OK(tartan_explain_begin());
    const tartan_status status = u.run(cpu(), x, x);
    ASSERT_OK(tartan_explain_end(&text));
    ASSERT_OK(status);
    const std::string all = text;
    tartan_text_free(text);
    std::vector<std::string> names;
    for (size_t at = all.find("\"operation\": \""); at != std::string::npos;
         at = all.find("\"operation\": \"", at + 1))
        names.push_back(all.substr(at + 14, all.find('"', at + 14) - at - 14));
    const std::vector<std::string> want = {"window_gather", "conv", "window_gather",
                                           "conv",          "conv", "window_scatter"};
    EXPECT_EQ(want, names);
    EXPECT_EQ(before.memory(), x.memory());
}

} // namespace
