// SPDX-License-Identifier: Apache-2.0
// What a convolution says of itself: edge classes, sizes of results, options; references; failed allocations while it is
// made.
#include "conv_support.h"

namespace {

using namespace tartan_test;

TEST(Conv, EdgeClassesAreTheSetsOfTapsOutside) {
    for (uint64_t seed = 0; seed < rounds(500u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const Problem p = random_problem(seed);
        SCOPED_TRACE(p.conv->text);
        std::vector<int64_t> sizes = p.x_size(), got((size_t)Problem::product(p.y_size()));
        if (p.transposed()) sizes.insert(sizes.end(), p.in.begin(), p.in.end());
        ASSERT_OK(tartan_conv_edge_classes(p.conv.get(), sizes.data(), (int64_t)sizes.size(), got.data(),
                                           (int64_t)got.size()));
        ASSERT_EQ(p.classes(), got);
    }
}

TEST(Conv, ThreeByThreeHasEightEdgeClasses) {
    const ConvHandle conv = make_conv(random_layout({4, 4, 2, 2, 1}, 1, 1), "kernel=3x3 padding=same");
    const int64_t size[] = {4, 4};
    int64_t got[16];
    ASSERT_OK(tartan_conv_edge_classes(conv.get(), size, 2, got, 16));
    const int64_t expected[16] = {1, 2, 2, 3, 4, 0, 0, 5, 4, 0, 0, 5, 6, 7, 7, 8};
    for (int i = 0; i < 16; i++) EXPECT_EQ(expected[i], got[i]);
}

TEST(Conv, OutputSizes) {
    const Layout channels = random_layout({4, 6, 2, 2, 1}, 1, 1);
    const struct {
        const char *options;
        std::vector<int64_t> in, out;
    } cases[] = {
        {"kernel=3", {32}, {30}},
        {"kernel=3 padding=same stride=2", {32}, {16}},
        {"kernel=5 padding=same stride=2", {32}, {16}},
        {"kernel=4 padding=same", {8}, {8}},
        {"kernel=2 padding=same", {5}, {5}},
        {"kernel=2x2 padding=same stride=2x1", {5, 5}, {3, 5}},
        {"kernel=2 dilation=3 padding=same", {5}, {5}},
        {"kernel=3 padding=same stride=2", {31}, {16}},
        {"kernel=4 padding=half", {8}, {9}},
        {"kernel=3 padding=half stride=2", {32}, {16}},
        {"kernel=4 padding=tf", {8}, {8}},
        {"kernel=3x3 padding=tf stride=2", {5, 6}, {3, 3}},
        {"kernel=3x1 padding=2x0 dilation=2x1", {7, 3}, {7, 3}},
        {"kernel=3 padding=0:2", {5}, {5}},
        {"kernel=2x3x4 padding=1", {4, 5, 6}, {5, 5, 5}},
        {"kernel=3 stride=2 padding=same transposed=1", {16}, {31}},
        {"kernel=3 stride=2 padding=tf transposed=1", {16}, {31}},
        {"kernel=2x2 stride=2 transposed=1", {3, 4}, {6, 8}},
        {"kernel=1 padding=tf", {0}, {0}},
    };
    for (const auto &c : cases) {
        const ConvHandle conv = make_conv(channels, c.options);
        std::vector<int64_t> out(c.out.size());
        ASSERT_OK(tartan_conv_output_size(conv.get(), c.in.data(), (int64_t)c.in.size(), out.data(),
                                          (int64_t)out.size()))
            << c.options;
        EXPECT_EQ(c.out, out) << c.options;
        EXPECT_EQ((int64_t)c.in.size(), tartan_conv_dims(conv.get()));
        EXPECT_EQ(conv->options.transposed ? 4 : 6, tartan_conv_in_channels(conv.get()));
        EXPECT_EQ(conv->options.transposed ? 6 : 4, tartan_conv_out_channels(conv.get()));
    }
}

TEST(Conv, OptionsSayAllValues) {
    const ConvHandle conv =
        make_conv(random_layout({4, 4, 2, 2, 1}, 1, 1), "kernel=3x2, padding=half stride=2");
    EXPECT_STREQ("kernel=3x2 stride=2x2 dilation=1x1 padding=1:1x1:1 transposed=0 per_tap=0",
                 tartan_conv_options(conv.get()));
    const ConvHandle again = make_conv(random_layout({4, 4, 2, 2, 1}, 1, 1), tartan_conv_options(conv.get()));
    EXPECT_STREQ(tartan_conv_options(conv.get()), tartan_conv_options(again.get()));
    EXPECT_EQ(nullptr, tartan_conv_options(nullptr));
    EXPECT_EQ(0, tartan_conv_dims(nullptr));
    EXPECT_EQ(0, tartan_conv_in_channels(nullptr));
    EXPECT_EQ(0, tartan_conv_out_channels(nullptr));
}

TEST(Conv, ReferencesAreCounted) {
    ConvHandle conv = make_conv(random_layout({4, 4, 2, 2, 1}, 1, 1), "kernel=3");
    tartan_conv *again = tartan_conv_retain(conv.get());
    EXPECT_EQ(conv.get(), again);
    tartan_conv_free(again);
    EXPECT_EQ(1, tartan_conv_dims(conv.get()));
    EXPECT_EQ(nullptr, tartan_conv_retain(nullptr));
    tartan_conv_free(nullptr);
}

TEST(Conv, CreateSurvivesFailedAllocations) {
    const Layout channels = random_layout({6, 7, 2, 2, 1}, 0.7, 1);
    tartan_conv *conv = nullptr;
    BRUTAL(tartan_conv_create(channels.get(), "kernel=3x3", &conv), tartan_conv_free(conv));
}

TEST(Conv, EdgeClassesSurviveFailedAllocations) {
    const ConvHandle conv = make_conv(random_layout({6, 7, 2, 2, 1}, 0.7, 1), "kernel=3x3 padding=same");
    const int64_t size[] = {4, 4};
    int64_t got[16];
    BRUTAL(tartan_conv_edge_classes(conv.get(), size, 2, got, 16), );
}

} // namespace
