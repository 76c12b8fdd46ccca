// SPDX-License-Identifier: Apache-2.0
// Convolutions of 16-bit types of the sizes that tensor cores take: blocks and channels in eights, all orders of memory,
// strides, dilations, windows, and numbers that are not finite.
#include "../ops/conv_support.h"
#include "explained.h"

#include <limits>
#include <set>

namespace {

using namespace tartan_test;

class BackendConvHalves : public OnBackend {};

struct Case {
    const char *options;
    tartan_shape channels;
    std::vector<int64_t> size;
    double density = 0.5;
    int64_t images = 2; // of more, more positions than kernels of few take
};
const Case kCases[] = {
    {"kernel=3x3 padding=same", {64, 32, 16, 16, 1}, {9, 13}},
    {"kernel=3x3 padding=same", {128, 64, 64, 64, 1}, {30, 21}, 0.5, 8},
    {"kernel=3x3 padding=1 dilation=2", {96, 40, 24, 40, 1}, {20, 12}, 0.5, 18},
    {"kernel=3x3 padding=9 dilation=9", {64, 64, 32, 8, 1}, {24, 33}},
    {"kernel=5 padding=same", {72, 64, 8, 8, 1}, {150}},
    {"kernel=3x3x3 padding=same", {64, 32, 32, 32, 1}, {4, 7, 10}, 0.5, 16},
    {"kernel=3x3 padding=1 stride=2", {64, 32, 16, 8, 1}, {17, 16}, 0.5, 31},
    {"kernel=1x1 stride=3x2", {64, 64, 64, 32, 1}, {19, 20}},
    {"kernel=1x1", {128, 96, 32, 32, 1}, {15, 33}, 0.5, 6},
    {"kernel=1x1", {64, 256, 64, 64, 1}, {28, 56}, 0.5, 3}, // more stages in a step than shared memory has
    {"kernel=2x2 stride=2", {72, 128, 8, 64, 1}, {34, 18}, 0.5, 14},
    {"kernel=3 padding=same stride=2", {64, 64, 32, 32, 1}, {301}},
    {"kernel=2x3 padding=1 per_tap=1", {96, 6 * 64, 32, 16, 1}, {21, 26}},
    {"kernel=3x3 padding=same transposed=1", {40, 64, 8, 16, 1}, {14, 14}},
    {"kernel=3x3 padding=same", {120, 56, 16, 16, 1}, {56, 8}, 0.5, 5}, // ragged blocks
    {"kernel=3x3 padding=same", {192, 128, 96, 64, 1}, {17, 20}, 0.5, 7},
    {"kernel=1x3", {96, 256, 32, 128, 1}, {11, 40}},
    // 64 channels without any block, forward and back
    {"kernel=3x3 padding=same", {320, 64, 64, 64, 1}, {30, 21}, 0.4, 7},
    {"kernel=3x3 padding=same", {64, 320, 32, 64, 1}, {16, 40}, 0.3},
    {"kernel=1x1", {64, 312, 8, 8, 1}, {15, 33}, 0.01},
    {"kernel=3x3 padding=same", {64, 64, 32, 32, 1}, {8, 448}}, // rows that are longer than TMA's boxes
    // few positions
    {"kernel=3x3 padding=same", {256, 128, 32, 32, 1}, {7, 7}},
    {"kernel=3x3 padding=same", {512, 96, 32, 32, 1}, {7, 7}, 1.0}, // more blocks of a line than stages
    {"kernel=3x3 padding=2 dilation=2", {96, 72, 24, 8, 1}, {5, 6}, 0.3},
    {"kernel=3x3 padding=1 stride=2", {64, 128, 40, 64, 1}, {9, 7}},
    {"kernel=1x1", {320, 64, 64, 32, 1}, {3, 3}},
    {"kernel=2x3 padding=1 per_tap=1", {64, 6 * 96, 8, 48, 1}, {4, 5}},
    {"kernel=5x5x3 padding=same", {48, 64, 48, 16, 1}, {2, 3, 4}},   // more taps back than lists
    {"kernel=3x3 padding=same", {64, 4096, 32, 64, 1}, {4, 4}, 0.9}, // more steps than a table has
    {"kernel=3 padding=same", {104, 64, 32, 32, 1}, {11}},
    {"kernel=3x3 padding=same", {128, 256, 8, 8, 1}, {7, 7}},
    {"kernel=3x3 padding=same", {64, 272, 16, 16, 1}, {8, 7}, 0.9},
    {"kernel=3x2 padding=1", {72, 64, 24, 16, 1}, {6, 5}},
    {"kernel=3x3 padding=same", {120, 64, 8, 16, 1}, {15, 13}}, // ragged blocks, groups that share positions
    {"kernel=5x5 padding=2 stride=3x2", {64, 96, 32, 16, 1}, {10, 11}},
    {"kernel=3x3 padding=same", {64, 64, 32, 32, 1}, {20, 23}},
    // few positions of dense filters, several lines of blocks at a time
    {"kernel=3x3 padding=same", {256, 256, 32, 32, 1}, {14, 14}, 0.95},
    {"kernel=3x3 padding=2 dilation=2", {256, 240, 64, 40, 1}, {13, 15}, 1.0, 3},
    {"kernel=3x3 padding=1 stride=2", {256, 256, 32, 64, 1}, {27, 29}, 1.0},
    {"kernel=3x2 padding=1", {288, 200, 96, 40, 1}, {14, 13}, 1.0, 3},
};

// All passes of p on the device and on the CPU, in windows if there are any.
void expect_passes(tartan_context *device, Problem &p, const Active &a, int style, std::mt19937_64 &random,
                   const char *options) {
    const Context host = open_context(2);
    Dense x = make_image(p.dtype, p.n, p.x_channels(), p.x_size(), style), dx = x;
    Dense y = make_image(p.dtype, p.n, p.y_channels(), p.y_size(), style);
    Dense bias(TARTAN_F32, {p.y_channels()});
    x.fill(random), y.fill(random), dx.fill(random), bias.fill(random);
    const Dense dy = y;
    const Matrix dw = random_matrix(p.layout, p.dtype, TARTAN_ROW_MAJOR, random, 0, 0);
    const Matrix filter = placed(device, p.filter), grad = placed(device, dw);
    const Placed on_x(device, x), on_y(device, y), on_dy(device, dy), on_dx(device, dx),
        on_bias(device, bias);
    tartan_array to_y = on_y.array, to_dx = on_dx.array;
    ASSERT_OK(conv_forward(device, p.conv.get(), filter.get(), &on_x.array, options, nullptr, &on_bias.array,
                           a.layout.get(), a.words(), &to_y));
    ASSERT_OK(conv_input_gradient(device, p.conv.get(), filter.get(), &on_dy.array, a.layout.get(), a.words(),
                                  &to_dx));
    ASSERT_OK(tartan_conv_filter_gradient(device, p.conv.get(), &on_x.array, &on_dy.array, a.layout.get(),
                                          a.words(), 0, grad.get()));
    Dense got_y = y, got_dx = dx;
    on_y.fetch(got_y), on_dx.fetch(got_dx);
    ASSERT_OK(conv_forward(host.get(), p.conv.get(), p.filter.get(), &x.array, options, nullptr, &bias.array,
                           a.layout.get(), a.words(), &y.array));
    ASSERT_OK(conv_input_gradient(host.get(), p.conv.get(), p.filter.get(), &dy.array, a.layout.get(),
                                  a.words(), &dx.array));
    ASSERT_OK(tartan_conv_filter_gradient(host.get(), p.conv.get(), &x.array, &dy.array, a.layout.get(),
                                          a.words(), 0, dw.get()));
    const double eps = epsilon(p.dtype);
    for (int64_t i = 0; i < y.elements(); i++)
        ASSERT_NEAR(y.get(i), got_y.get(i), 4 * eps * (1 + std::fabs(y.get(i)))) << i;
    for (int64_t i = 0; i < dx.elements(); i++)
        ASSERT_NEAR(dx.get(i), got_dx.get(i), 4 * eps * (1 + std::fabs(dx.get(i)))) << i;
    const Matrix got = fetched(device, grad);
    for (int64_t id = 0; id < p.layout->blocks; id++)
        for (int64_t i = 0; i < tartan_i_rows_of(p.layout.get(), p.layout->block_rows[id]); i++)
            for (int64_t j = 0; j < p.layout->shape.block_cols; j++) {
                const double expected = entry(dw.get(), id, i, j);
                ASSERT_NEAR(expected, entry(got.get(), id, i, j), 4 * eps * (1 + std::fabs(expected)));
            }
}

Problem problem_of(const Case &c, int32_t dtype, std::mt19937_64 &random) {
    Problem p;
    p.conv = make_conv(random_layout(c.channels, c.density, random()), c.options);
    p.layout = layout_of(p.conv);
    p.dtype = dtype;
    p.filter =
        random_matrix(p.layout, dtype, random() % 3 == 0 ? TARTAN_COL_MAJOR : TARTAN_ROW_MAJOR, random);
    EXPECT_TRUE(p.set_size(c.images, c.size)) << c.options;
    return p;
}

TEST_P(BackendConvHalves, PassesGiveWhatTheCpuGives) {
    std::mt19937_64 random(5);
    int number = 0;
    for (const Case &c : kCases)
        for (int32_t dtype : {TARTAN_BF16, TARTAN_F16}) {
            SCOPED_TRACE(::testing::Message() << c.options << " dtype " << dtype);
            if (!is_of_the_share(number++)) continue;
            Problem p = problem_of(c, dtype, random);
            const int style = number % 3 == 2 ? (int)kRows : (int)kChannelsLast;
            expect_passes(context.get(), p, Active(), style, random, number % 2 ? "relu=1" : "add=1");
            expect_passes(context.get(), p, random_active(random, p.n, p.y_size(), 0.5), style, random,
                          nullptr);
            if (HasFailure()) return;
        }
}

// Every multiprocessor has several tiles, each of more steps than a ring of steps holds.
TEST_P(BackendConvHalves, TileAfterTile) {
    if (on_host()) GTEST_SKIP() << "what devices are compared with";
    const Context host = open_context(2);
    std::mt19937_64 random(7);
    const Case c = {"kernel=3x3 padding=same", {128, 128, 64, 64, 1}, {200, 240}};
    Problem p = problem_of(c, TARTAN_BF16, random);
    Dense x = make_image(p.dtype, 1, p.x_channels(), p.x_size(), kChannelsLast), y = x;
    x.fill(random);
    const Matrix filter = placed(context.get(), p.filter);
    const Placed on_x(context.get(), x), on_y(context.get(), y);
    tartan_array to_y = on_y.array;
    for (int round = 0; round < 3; round++)
        ASSERT_OK(conv_forward(context.get(), p.conv.get(), filter.get(), &on_x.array, nullptr, nullptr,
                               nullptr, nullptr, nullptr, &to_y));
    Dense got = y;
    on_y.fetch(got);
    ASSERT_OK(conv_forward(host.get(), p.conv.get(), p.filter.get(), &x.array, nullptr, nullptr, nullptr,
                           nullptr, nullptr, &y.array));
    const double eps = epsilon(p.dtype);
    for (int64_t i = 0; i < y.elements(); i++)
        ASSERT_NEAR(y.get(i), got.get(i), 4 * eps * (1 + std::fabs(y.get(i)))) << i;
}

// Infinity in one block's channels must not reach output channels that have no block there.
TEST_P(BackendConvHalves, InfinityStaysInItsBlocks) {
    std::mt19937_64 random(6);
    std::vector<uint8_t> diagonal(16);
    for (int i = 0; i < 4; i++) diagonal[(size_t)(5 * i)] = 1;
    for (int64_t edge : {16, 64}) {
        const tartan_shape shape = {4 * edge, 4 * edge, edge, edge, 1};
        Problem p;
        p.conv = make_conv(from_mask(shape, diagonal), "kernel=3x3 padding=same");
        p.layout = layout_of(p.conv);
        p.filter = random_matrix(p.layout, TARTAN_BF16, TARTAN_ROW_MAJOR, random);
        Dense x = make_image(TARTAN_BF16, 2, 4 * edge, {12, 10}, kChannelsLast), y = x;
        x.fill(random);
        tartan_array &a = x.array;
        const uint16_t infinity = 0x7f80;
        std::memcpy((uint16_t *)a.data + a.strides[0] + (edge + 4) * a.strides[1] + 5 * a.strides[2] +
                        4 * a.strides[3],
                    &infinity, sizeof infinity); // image 1, block 1
        const Matrix filter = placed(context.get(), p.filter);
        const Placed on_x(context.get(), x), on_y(context.get(), y);
        tartan_array to_y = on_y.array;
        ASSERT_OK(conv_forward(context.get(), p.conv.get(), filter.get(), &on_x.array, nullptr, nullptr,
                               nullptr, nullptr, nullptr, &to_y));
        on_y.fetch(y);
        const tartan_array &b = y.array;
        for (int64_t n = 0; n < 2; n++)
            for (int64_t k = 0; k < 4 * edge; k++)
                for (int64_t h = 0; h < 12; h++)
                    for (int64_t w = 0; w < 10; w++) {
                        uint16_t bits;
                        std::memcpy(&bits,
                                    (uint16_t *)b.data + n * b.strides[0] + k * b.strides[1] +
                                        h * b.strides[2] + w * b.strides[3],
                                    sizeof bits);
                        const bool near =
                            n == 1 && k / edge == 1 && std::abs(h - 5) < 2 && std::abs(w - 4) < 2;
                        ASSERT_EQ(near, (bits & 0x7f80) == 0x7f80) << n << " " << k << " " << h << " " << w;
                    }
    }
}

// Kernels begin before the one before them has ended: what it writes, here the image that the next one reads, must not be read
// earlier. The bits are the same as from calls that wait for each other.
TEST_P(BackendConvHalves, CallsInARowWaitForEachOther) {
    std::mt19937_64 random(9);
    for (int64_t edge : {16, 32, 64}) {
        Problem p;
        p.conv =
            make_conv(random_layout({128, 128, edge, edge, 1}, 0.3, random()), "kernel=3x3 padding=same");
        p.layout = layout_of(p.conv);
        p.filter = random_matrix(p.layout, TARTAN_BF16, TARTAN_ROW_MAJOR, random);
        Dense x = make_image(TARTAN_BF16, 1, 128, {56, 56}, kChannelsLast), y[2] = {x, x};
        x.fill(random);
        const Matrix filter = placed(context.get(), p.filter);
        for (int wait = 0; wait < 2; wait++) {
            const Placed first(context.get(), x), second(context.get(), x);
            tartan_array images[2] = {first.array, second.array};
            for (int call = 0; call < 8; call++) {
                ASSERT_OK(call % 2 == 0
                              ? conv_forward(context.get(), p.conv.get(), filter.get(), &images[0], nullptr,
                                             nullptr, nullptr, nullptr, nullptr, &images[1])
                              : conv_input_gradient(context.get(), p.conv.get(), filter.get(), &images[1],
                                                    nullptr, nullptr, &images[0]));
                if (wait) {
                    ASSERT_OK(tartan_context_sync(context.get()));
                }
            }
            first.fetch(y[wait]);
        }
        for (int64_t i = 0; i < x.elements(); i++) ASSERT_EQ(y[0].get(i), y[1].get(i)) << edge << ": " << i;
    }
}

// What is not finite spreads only to the weights of pixels that exist: kernels must not multiply it by zeros that they put in
// place of others. And all sums are the same in every run.
TEST_P(BackendConvHalves, FilterGradientsKeepInfinityInItsTaps) {
    if (on_host() || dummy())
        GTEST_SKIP() << "on the CPU, x is 0 outside of the image: infinity times 0 is NaN";
    std::mt19937_64 random(7);
    const int64_t height = 20, width = 17, channels = 64;
    for (int64_t edge : {8, 16, 64}) {
        Problem p;
        p.conv =
            make_conv(random_layout({channels, channels, edge, edge, 1}, 0.6, 1), "kernel=3x3 padding=same");
        p.layout = layout_of(p.conv);
        ASSERT_TRUE(p.set_size(2, {height, width}));
        Dense x = make_image(TARTAN_BF16, 2, channels, {height, width}, kChannelsLast), dy = x;
        x.fill(random), dy.fill(random);
        const auto place = [](const tartan_array &a, int64_t n, int64_t channel, int64_t h, int64_t w) {
            return n * a.strides[0] + channel * a.strides[1] + h * a.strides[2] + w * a.strides[3];
        };
        const auto spoil = [&](Dense &d, int64_t n, int64_t channel, int64_t h, int64_t w) {
            tartan_i_store(d.array.data, TARTAN_BF16, place(d.array, n, channel, h, w), INFINITY);
        };
        spoil(dy, 1, 20, 0, 0); // at a corner: five of nine taps are outside of x
        spoil(x, 0, 5, height - 1, width - 1);
        spoil(x, 1, 40, 7, 9);
        const Matrix dw = random_matrix(p.layout, TARTAN_BF16, TARTAN_ROW_MAJOR, random, 0, 0);
        const Matrix grad = placed(context.get(), dw), again = placed(context.get(), dw);
        const Placed on_x(context.get(), x), on_dy(context.get(), dy);
        for (tartan_matrix *to : {grad.get(), again.get()})
            ASSERT_OK(tartan_conv_filter_gradient(context.get(), p.conv.get(), &on_x.array, &on_dy.array,
                                                  nullptr, nullptr, 0, to));
        const Matrix got = fetched(context.get(), grad), second = fetched(context.get(), again);
        const int64_t all = p.layout->blocks * edge * edge;
        ASSERT_EQ(0, std::memcmp(got->values, second->values, (size_t)all * sizeof(uint16_t)));
        p.each_weight([&](int64_t k, int64_t c, int64_t tap, int64_t id, int64_t i, int64_t j) {
            double want = 0;
            for (int64_t n = 0; n < 2; n++)
                for (int64_t h = 0; h < height; h++)
                    for (int64_t w = 0; w < width; w++) {
                        const int64_t y = h + tap / 3 - 1, z = w + tap % 3 - 1;
                        if (y < 0 || z < 0 || y >= height || z >= width) continue;
                        want += tartan_i_load(dy.array.data, TARTAN_BF16, place(dy.array, n, k, h, w)) *
                                tartan_i_load(x.array.data, TARTAN_BF16, place(x.array, n, c, y, z));
                    }
            const double have = entry(got.get(), id, i, j);
            if (std::isfinite(want))
                EXPECT_NEAR(want, have, 4 * epsilon(TARTAN_BF16) * (1 + std::fabs(want)))
                    << edge << " " << id;
            else
                EXPECT_TRUE(std::isnan(want) ? std::isnan(have) : want == have)
                    << edge << ": " << have << " instead of " << want << " at " << k << " " << c << " "
                    << tap;
        });
        if (HasFailure()) return;
    }
}

// On a GPU, gradients of filters of these types run on the tensor cores, by kernels for many and for few positions.
TEST_P(BackendConvHalves, FilterGradientsTakeTheTensorCores) {
    if (on_host() || dummy()) GTEST_SKIP() << "not a GPU";
    std::mt19937_64 random(8);
    std::set<std::string> run;
    for (const Case &c : kCases) {
        Problem p = problem_of(c, TARTAN_BF16, random);
        Dense x = make_image(p.dtype, p.n, p.x_channels(), p.x_size(), kChannelsLast),
              y = make_image(p.dtype, p.n, p.y_channels(), p.y_size(), kChannelsLast);
        const Matrix grad = placed(context.get(), p.filter);
        const Placed on_x(context.get(), x), on_y(context.get(), y);
        const std::string name = kernel_of(explained([&] {
            return tartan_conv_filter_gradient(context.get(), p.conv.get(), &on_x.array, &on_y.array, nullptr,
                                               nullptr, 0, grad.get());
        }));
        EXPECT_EQ(1u, (std::set<std::string>{"conv_filter_gradient_mma", "conv_filter_gradient_few",
                                             "conv_filter_gradient_dense", "conv_filter_gradient_wgmma",
                                             "conv_filter_gradient_pieces"})
                          .count(name))
            << c.options << ": " << name;
        run.insert(name);
    }
    EXPECT_LE(1u, run.count("conv_filter_gradient_mma") + run.count("conv_filter_gradient_pieces"));
    EXPECT_EQ(1u, run.count("conv_filter_gradient_few"));
}

INSTANTIATE_TEST_SUITE_P(Each, BackendConvHalves, ::testing::ValuesIn(backends()),
                         [](const auto &all) { return all.param; });

} // namespace
