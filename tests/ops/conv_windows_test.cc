// SPDX-License-Identifier: Apache-2.0
// Convolutions of the windows that a mask makes active: SBNet's known maps, and its recipe of gather, convolution and scatter.
#include "conv_support.h"

#include "tartan/windows.h"

namespace {

using namespace tartan_test;

struct Windows {
    std::string in, out;
};
Windows windows_for(const std::vector<int64_t> &image, const std::string &options) {
    char *in = nullptr, *out = nullptr;
    EXPECT_OK(tartan_windows_for_conv(image.data(), (int64_t)image.size(), options.c_str(), &in, &out));
    const Windows both{in != nullptr ? in : "", out != nullptr ? out : ""};
    tartan_text_free(in);
    tartan_text_free(out);
    return both;
}

Dense constant(int32_t dtype, const std::vector<int64_t> &shape, double value) {
    Dense d(dtype, shape);
    for (int64_t i = 0; i < d.elements(); i++) d.set(i, value);
    return d;
}

Layout active_of(tartan_context *context, const Dense &mask, const std::string &windows) {
    tartan_layout *raw = nullptr;
    EXPECT_OK(tartan_layout_from_windows(context, &mask.array, windows.c_str(), nullptr, &raw));
    return Layout(raw);
}

// A convolution of `channels` by `channels` with all blocks, and its filter of ones.
struct Dense2d {
    ConvHandle conv;
    Matrix filter;
};
Dense2d ones_conv(int64_t channels, const std::string &options) {
    Dense2d c;
    c.conv = make_conv(random_layout({channels, channels, channels, channels, 1}, 1, 0), options);
    const Layout layout = layout_of(c.conv);
    tartan_matrix *filter = nullptr;
    EXPECT_OK(tartan_matrix_create(layout.get(), TARTAN_F32, TARTAN_ROW_MAJOR, &filter));
    c.filter = Matrix(filter);
    tartan_array values;
    EXPECT_OK(tartan_matrix_values(filter, &values));
    float *first = (float *)values.data;
    std::fill(first, first + tartan_layout_elements(layout.get()), 1.0f);
    return c;
}

struct Known {
    int64_t size;
    std::vector<std::pair<int64_t, int64_t>> ones;
    const char *windows, *conv;
    std::vector<int64_t> out;
    std::vector<double> map;
};

TEST(ConvWindows, KnownMaps) {
    const Context own = open_context(2); // with its scratch memory
    const std::vector<std::pair<int64_t, int64_t>> two{{1, 2}, {2, 0}};
    const Known cases[] = {
        {5, two, "kernel=3 size=3", "kernel=3x3 padding=tf", {5, 5}, {0, 6, 6, 6, 0, //
                                                                      6, 9, 9, 9, 0, //
                                                                      6, 9, 9, 9, 0, //
                                                                      6, 9, 0, 0, 0, //
                                                                      0, 0, 0, 0, 0}},
        {5, two, "kernel=3 size=3 padding=valid", "kernel=3x3", {3, 3}, {9, 9, 9, 9, 9, 9, 9, 0, 0}},
        {5, two, "kernel=3 size=4", "kernel=3x3 padding=tf", {5, 5}, {4, 6, 6, 6, 0, //
                                                                      6, 9, 9, 9, 0, //
                                                                      6, 9, 9, 9, 0, //
                                                                      6, 9, 9, 9, 0, //
                                                                      0, 0, 0, 0, 0}},
        {5,
         two,
         "kernel=3 size=5 stride=2",
         "kernel=3x3 stride=2 padding=tf",
         {3, 3},
         {4, 6, 0, //
          6, 9, 0, //
          0, 0, 0}},
        {8,
         {{0, 0}, {0, 7}, {7, 7}},
         "kernel=2 size=5 padding=valid",
         "kernel=2x2",
         {7, 7},
         {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4,
          4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4}},
    };
    for (const Known &k : cases) {
        SCOPED_TRACE(k.windows);
        const Windows w = windows_for({k.size, k.size}, k.windows);
        Dense mask = constant(TARTAN_F32, {1, k.size, k.size}, 0);
        for (const auto &one : k.ones) mask.set(one.first * k.size + one.second, 1);
        const Layout active = active_of(own.get(), mask, w.in);
        const Dense2d c = ones_conv(1, k.conv);
        const Dense x = constant(TARTAN_F32, {1, 1, k.size, k.size}, 1);
        Dense y = constant(TARTAN_F32, {1, 1, k.out[0], k.out[1]}, 0);
        ASSERT_OK(conv_forward(own.get(), c.conv.get(), c.filter.get(), &x.array, nullptr, nullptr, nullptr,
                               active.get(), w.out.c_str(), &y.array));
        for (size_t i = 0; i < k.map.size(); i++) EXPECT_EQ(k.map[i], y.get((int64_t)i)) << "position " << i;
    }
}

// SBNet gathers windows with their halo, convolves them without padding, and scatters the results.
TEST(ConvWindows, EqualGatherConvolveScatter) {
    const Context own = open_context(2);
    std::mt19937_64 random(5);
    const std::vector<int64_t> image{37, 29};
    const int64_t channels = 8;
    const Windows w = windows_for(image, "kernel=3 output=6");
    Dense mask(TARTAN_F32, {2, image[0], image[1]});
    for (int64_t i = 0; i < mask.elements(); i++) mask.set(i, below(random, 60) == 0 ? 1 : 0);
    const Layout active = active_of(own.get(), mask, w.in);
    const int64_t windows = tartan_layout_blocks(active.get());
    ASSERT_GT(windows, 0);
    const Dense2d fused = ones_conv(channels, "kernel=3x3 padding=tf"),
                  valid = ones_conv(channels, "kernel=3x3");
    Dense x = make_image(TARTAN_F32, 2, channels, image, kChannelsLast);
    for (int64_t i = 0; i < x.elements(); i++) x.set(i, (double)below(random, 9) - 4);
    Dense y = constant(TARTAN_F32, {2, channels, image[0], image[1]}, 7), other = y;
    ASSERT_OK(conv_forward(own.get(), fused.conv.get(), fused.filter.get(), &x.array, nullptr, nullptr,
                           nullptr, active.get(), w.out.c_str(), &y.array));
    Dense gathered(TARTAN_F32, {windows, channels, 8, 8}), results(TARTAN_F32, {windows, channels, 6, 6});
    ASSERT_OK(tartan_window_gather(own.get(), active.get(), w.in.c_str(), &x.array, &gathered.array));
    ASSERT_OK(conv_forward(own.get(), valid.conv.get(), valid.filter.get(), &gathered.array, nullptr, nullptr,
                           nullptr, nullptr, nullptr, &results.array));
    ASSERT_OK(tartan_window_scatter(own.get(), active.get(), w.out.c_str(), &results.array, nullptr, nullptr,
                                    &other.array));
    for (int64_t i = 0; i < y.elements(); i++) EXPECT_EQ(other.get(i), y.get(i)) << i;
}

} // namespace
