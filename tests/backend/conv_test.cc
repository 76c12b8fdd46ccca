// SPDX-License-Identifier: Apache-2.0
// Convolutions on every backend: random problems give what the CPU gives, also in windows of a dynamic layout.
#include "../ops/conv_support.h"
#include "placed.h"

namespace {

using namespace tartan_test;

// Results of another device may be added up in another order.
void expect_like(const Dense &expected, const Dense &got, double size) {
    ASSERT_EQ(expected.elements(), got.elements());
    for (int64_t i = 0; i < got.elements(); i++)
        ASSERT_NEAR(expected.get(i), got.get(i),
                    64 * epsilon(got.array.dtype) * (size + std::fabs(expected.get(i))))
            << i;
}

class BackendConv : public OnBackend {
  protected:
    // All passes of a problem, on the backend and on the CPU; `size`: the size of results, whose roundings may differ.
    void expect_passes_like(const Context &host, Problem &p, uint64_t style, const Active &a, double size,
                            std::mt19937_64 &random) {
        const int styles[] = {kRows, kChannelsLast};
        do { // RUN_OR_NEXT leaves it
            Dense x = make_image(p.dtype, p.n, p.x_channels(), p.x_size(), styles[style % 2]), dx = x;
            Dense y = make_image(p.dtype, p.n, p.y_channels(), p.y_size(), styles[style / 2 % 2]);
            Dense gain(tartan_i_sum_dtype(p.dtype), {p.y_channels()}), bias = gain;
            x.fill(random), y.fill(random), dx.fill(random), gain.fill(random), bias.fill(random);
            const Dense dy = y;
            const Matrix dw = random_matrix(p.layout, p.dtype, TARTAN_ROW_MAJOR, random, 0, 0);
            const Matrix filter = placed(context.get(), p.filter), grad = placed(context.get(), dw);
            const Placed on_x(context.get(), x), on_y(context.get(), y), on_dy(context.get(), dy),
                on_dx(context.get(), dx), on_gain(context.get(), gain), on_bias(context.get(), bias);
            tartan_array to_y = on_y.array, to_dx = on_dx.array;
            RUN_OR_NEXT(conv_forward(context.get(), p.conv.get(), filter.get(), &on_x.array, "relu=1",
                                     &on_gain.array, &on_bias.array, a.layout.get(), a.words(), &to_y));
            RUN_OR_NEXT(conv_input_gradient(context.get(), p.conv.get(), filter.get(), &on_dy.array,
                                            a.layout.get(), a.words(), &to_dx));
            RUN_OR_NEXT(tartan_conv_filter_gradient(context.get(), p.conv.get(), &on_x.array, &on_dy.array,
                                                    a.layout.get(), a.words(), 0, grad.get()));
            Dense got_y = y, got_dx = dx;
            on_y.fetch(got_y), on_dx.fetch(got_dx);
            ASSERT_OK(conv_forward(host.get(), p.conv.get(), p.filter.get(), &x.array, "relu=1", &gain.array,
                                   &bias.array, a.layout.get(), a.words(), &y.array));
            ASSERT_OK(conv_input_gradient(host.get(), p.conv.get(), p.filter.get(), &dy.array, a.layout.get(),
                                          a.words(), &dx.array));
            ASSERT_OK(tartan_conv_filter_gradient(host.get(), p.conv.get(), &x.array, &dy.array,
                                                  a.layout.get(), a.words(), 0, dw.get()));
            expect_like(y, got_y, size), expect_like(dx, got_dx, size);
            const Matrix got = fetched(context.get(), grad);
            for (int64_t id = 0; id < p.layout->blocks; id++)
                for (int64_t i = 0; i < tartan_i_rows_of(p.layout.get(), p.layout->block_rows[id]); i++)
                    for (int64_t j = 0; j < p.layout->shape.block_cols; j++)
                        ASSERT_NEAR(entry(dw.get(), id, i, j), entry(got.get(), id, i, j),
                                    64 * epsilon(p.dtype) * 2.5 * size);
        } while (false);
    }
};

TEST_P(BackendConv, PassesGiveWhatTheCpuGives) {
    const Context host = open_context(2);
    for (uint64_t seed = 0; seed < rounds(60u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        Problem p = random_problem(seed);
        const Active a =
            p.n > 0 && below(random, 2) == 0 ? random_active(random, p.n, p.y_size(), 0.5) : Active();
        expect_passes_like(host, p, seed, a, 40, random);
        if (HasFailure()) return;
    }
}

// Devices have kernels of their own for these.
TEST_P(BackendConv, DepthwiseFilters) {
    const Context host = open_context(2);
    uint64_t style = 0;
    const struct {
        const char *options;
        std::vector<int64_t> size;
    } cases[] = {{"kernel=3x3 padding=1", {11, 9}},
                 {"kernel=5x3 padding=2x1 stride=2", {11, 9}},
                 {"kernel=3x3 dilation=2x3", {11, 9}},
                 {"kernel=2x1 stride=3x1", {11, 9}},
                 {"kernel=7x7 padding=3", {6, 5}}, // rows that the filter exceeds
                 {"kernel=3x5 padding=1x2 stride=2x1", {5, 70}},
                 {"kernel=2x13 padding=1x6", {3, 41}}};
    for (const auto &of : cases)
        for (int32_t dtype : kDtypes)
            for (int64_t channels : {8, 24, 272}) {
                SCOPED_TRACE(::testing::Message()
                             << of.options << " dtype " << dtype << " channels " << channels);
                std::mt19937_64 random(++style);
                Problem p;
                p.conv = make_conv(diagonal_layout(channels), of.options);
                p.layout = layout_of(p.conv);
                p.dtype = dtype;
                p.filter = random_matrix(p.layout, dtype, TARTAN_ROW_MAJOR, random);
                ASSERT_TRUE(p.set_size(2, of.size));
                const Active a = style % 3 == 0 ? random_active(random, p.n, p.y_size(), 0.5) : Active();
                expect_passes_like(host, p, style, a, 40, random);
                if (HasFailure()) return;
            }
}

// Each channel lacks taps of its own, and some lack all.
TEST_P(BackendConv, DepthwiseFiltersThatLackTaps) {
    const Context host = open_context(2);
    uint64_t style = 0;
    for (const char *options : {"kernel=3x3 padding=1 per_tap=1", "kernel=3x3 padding=1 stride=2 per_tap=1"})
        for (int32_t dtype : kDtypes) {
            SCOPED_TRACE(::testing::Message() << options << " dtype " << dtype);
            std::mt19937_64 random(++style);
            const int64_t channels = 24, taps = 9;
            std::vector<uint8_t> mask((size_t)(channels * taps * channels));
            for (int64_t c = 0; c < channels; c++)
                for (int64_t tap = 0; tap < taps; tap++)
                    mask[(size_t)(c * taps * channels + tap * channels + c)] = c % 5 > 0 && random() % 3 > 0;
            Problem p;
            p.conv = make_conv(from_mask({channels, taps * channels, 1, 1, 1}, mask), options);
            p.layout = layout_of(p.conv);
            p.dtype = dtype;
            p.filter = random_matrix(p.layout, dtype, TARTAN_ROW_MAJOR, random);
            ASSERT_TRUE(p.set_size(2, {11, 9}));
            expect_passes_like(host, p, style, Active(), 40, random);
            if (HasFailure()) return;
        }
}

// First layers, blocks that divide neither channels nor groups, and more output channels than a CTA has.
TEST_P(BackendConv, FewAndOddChannels) {
    const Context host = open_context(2);
    uint64_t style = 0;
    for (const tartan_shape &shape : {tartan_shape{64, 3, 1, 1, 1}, tartan_shape{150, 100, 5, 5, 1},
                                      tartan_shape{1, 64, 1, 16, 1}, tartan_shape{300, 40, 20, 40, 1}})
        for (const char *options :
             {"kernel=3x3 padding=1 stride=2", "kernel=1x1", "kernel=7x5 padding=3x2 stride=2x3"})
            for (int32_t dtype : kDtypes) {
                SCOPED_TRACE(::testing::Message() << options << " dtype " << dtype << " rows " << shape.rows);
                std::mt19937_64 random(++style);
                Problem p;
                p.conv = make_conv(random_layout(shape, 0.6, style), options);
                p.layout = layout_of(p.conv);
                p.dtype = dtype;
                p.filter = random_matrix(p.layout, dtype,
                                         style % 2 == 0 ? TARTAN_ROW_MAJOR : TARTAN_COL_MAJOR, random);
                ASSERT_TRUE(p.set_size(3, {17, 13}));
                expect_passes_like(host, p, style, Active(), 200, random);
                if (HasFailure()) return;
            }
}

// Channels that are planes, of which devices turn several positions at once: 16 bytes, 8, or one element.
TEST_P(BackendConv, ImagesOfPlanes) {
    const Context host = open_context(2);
    uint64_t seed = 0;
    for (const auto &size : {std::vector<int64_t>{4, 8}, {6, 6}, {3, 7}, {24, 20}})
        for (const char *options : {"kernel=3x3 padding=1", "kernel=3x3 padding=1 stride=2", "kernel=1x1"})
            for (int32_t dtype : kDtypes) {
                SCOPED_TRACE(::testing::Message()
                             << options << " dtype " << dtype << " size " << size[0] << " x " << size[1]);
                std::mt19937_64 random(++seed);
                Problem p;
                p.conv = make_conv(random_layout({72, 104, 8, 8, 1}, 0.4, seed), options);
                p.layout = layout_of(p.conv);
                p.dtype = dtype;
                p.filter = random_matrix(p.layout, dtype, TARTAN_ROW_MAJOR, random);
                ASSERT_TRUE(p.set_size(2, size));
                expect_passes_like(host, p, 0, Active(), 200, random);
                if (HasFailure()) return;
            }
}

// So few positions that several CTAs of a device share the list of a group of channels.
TEST_P(BackendConv, FewPositionsAndManyChannels) {
    const Context host = open_context(2);
    uint64_t style = 0;
    for (const char *options : {"kernel=3x3 padding=1", "kernel=1x1", "kernel=3x3 padding=1 stride=2"})
        for (int32_t dtype : kDtypes) {
            SCOPED_TRACE(::testing::Message() << options << " dtype " << dtype);
            std::mt19937_64 random(++style);
            Problem p;
            p.conv = make_conv(random_layout({80, 768, 16, 16, 1}, 0.5, style), options);
            p.layout = layout_of(p.conv);
            p.dtype = dtype;
            p.filter = random_matrix(p.layout, dtype, TARTAN_ROW_MAJOR, random);
            ASSERT_TRUE(p.set_size(1, {7, 7}));
            expect_passes_like(host, p, style, Active(), 400, random);
            if (HasFailure()) return;
        }
}

// Sums of many numbers of one sign, whose roundings would add up if all went the same way.
TEST_P(BackendConv, LongSumsOfOneSign) {
    const Context host = open_context(2);
    std::mt19937_64 random(1);
    for (int32_t dtype : {TARTAN_F32, TARTAN_F64}) {
        Problem p;
        p.conv = make_conv(random_layout({64, 512, 32, 32, 1}, 1, 1), "kernel=3x3 padding=1");
        p.layout = layout_of(p.conv);
        p.dtype = dtype;
        p.filter = random_matrix(p.layout, dtype, TARTAN_ROW_MAJOR, random, 0.5, 1);
        ASSERT_TRUE(p.set_size(1, {8, 8}));
        const Matrix filter = placed(context.get(), p.filter);
        Dense x = make_image(dtype, 1, 512, {8, 8}, kChannelsLast),
              y = make_image(dtype, 1, 64, {8, 8}, kChannelsLast);
        for (int64_t i = 0; i < x.elements(); i++) x.set(i, std::generate_canonical<double, 32>(random));
        const Placed on_x(context.get(), x), on_y(context.get(), y);
        tartan_array to_y = on_y.array;
        RUN_OR_NEXT(conv_forward(context.get(), p.conv.get(), filter.get(), &on_x.array, nullptr, nullptr,
                                 nullptr, nullptr, nullptr, &to_y));
        Dense got = y;
        on_y.fetch(got);
        ASSERT_OK(conv_forward(host.get(), p.conv.get(), p.filter.get(), &x.array, nullptr, nullptr, nullptr,
                               nullptr, nullptr, &y.array));
        // The promise of accuracy, 8 + 2 sqrt(k) units of |A||B|, which is the result; the CPU's sums have as much.
        const double units = 2 * (8 + 2 * std::sqrt(9.0 * 512));
        for (int64_t i = 0; i < y.elements(); i++)
            ASSERT_NEAR(y.get(i), got.get(i), units * epsilon(dtype) * y.get(i)) << i;
    }
}

TEST_P(BackendConv, WindowsOfADynamicLayout) {
    if (on_host()) GTEST_SKIP() << "dynamic layouts are on devices";
    const Context host = open_context(2);
    std::mt19937_64 random(1);
    Problem p;
    p.conv = make_conv(random_layout({16, 24, 8, 8, 1}, 0.6, 1), "kernel=3x3 padding=same");
    p.layout = layout_of(p.conv);
    p.dtype = TARTAN_F32;
    p.filter = random_matrix(p.layout, TARTAN_F32, TARTAN_ROW_MAJOR, random);
    ASSERT_TRUE(p.set_size(2, {12, 16}));
    const Matrix filter = placed(context.get(), p.filter);
    const char *windows = "size=4";
    const tartan_shape frame = {3, 4, 1, 1, 2};
    for (double density : {0.0, 0.4, 1.0}) {
        std::vector<uint8_t> mask(24);
        for (auto &m : mask) m = std::generate_canonical<double, 32>(random) < density;
        const Layout fixed = from_mask(frame, mask);
        Dense bytes(TARTAN_F16, {12});
        std::memcpy(bytes.array.data, mask.data(), mask.size());
        const Placed on_mask(context.get(), bytes);
        tartan_array as_bytes = on_mask.array;
        as_bytes.dtype = TARTAN_U8, as_bytes.ndim = 3;
        as_bytes.shape[0] = 2, as_bytes.shape[1] = 3, as_bytes.shape[2] = 4;
        as_bytes.strides[0] = 12, as_bytes.strides[1] = 4, as_bytes.strides[2] = 1;
        tartan_layout *raw = nullptr;
        ASSERT_OK(tartan_layout_from_device_mask(context.get(), &frame, &as_bytes, 24, &raw));
        const Layout dynamic(raw);
        Dense x = make_image(TARTAN_F32, 2, 24, {12, 16}, kChannelsLast),
              y = make_image(TARTAN_F32, 2, 16, {12, 16}, kRows);
        x.fill(random), y.fill(random);
        const Placed on_x(context.get(), x), on_y(context.get(), y);
        tartan_array to_y = on_y.array;
        RUN_OR_NEXT(conv_forward(context.get(), p.conv.get(), filter.get(), &on_x.array, nullptr, nullptr,
                                 nullptr, dynamic.get(), windows, &to_y));
        Dense got = y;
        on_y.fetch(got);
        ASSERT_OK(conv_forward(host.get(), p.conv.get(), p.filter.get(), &x.array, nullptr, nullptr, nullptr,
                               fixed.get(), windows, &y.array));
        expect_like(y, got, 40);
    }
}

INSTANTIATE_TEST_SUITE_P(Each, BackendConv, ::testing::ValuesIn(backends()),
                         [](const auto &all) { return all.param; });

} // namespace
