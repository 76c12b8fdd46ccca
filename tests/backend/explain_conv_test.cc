// SPDX-License-Identifier: Apache-2.0
// The ways in which the CPU runs convolutions: which one explain names, and why not the others.
#include "../ops/conv_support.h"
#include "explained_rows.h"

namespace {

using namespace tartan_test;

const char *const kNotDepthwise = "the filter is not depthwise";
const char *const kFewChannels = "blocks have too few output channels to fill vectors";
const char *const kActive = "the input is limited to active windows";
const char *const kRowsApart = "rows are not contiguous in memory";
const char *const kScattered = "channels are not contiguous in memory";
const char *const kPacks = "packs tiles of the image";
const char *const kCopies = "copies the sums to the results";

struct ConvQuestion {
    Problem p;
    int style = kChannelsLast, out_style = kChannelsLast;
    int32_t y_dtype = -1; // -1: that of x
    bool add = false, windows = false;
    const Context context = open_context(1);

    ConvQuestion(ConvHandle conv, int32_t dtype) {
        std::mt19937_64 random(1);
        p.conv = std::move(conv);
        p.layout = layout_of(p.conv);
        p.dtype = dtype;
        p.filter = random_matrix(p.layout, dtype, TARTAN_ROW_MAJOR, random);
        EXPECT_TRUE(p.set_size(1, {6, 6}));
    }
    ConvQuestion(const Layout &channels, int32_t dtype)
        : ConvQuestion(make_conv(channels, "kernel=3x3 padding=same"), dtype) {}

    Dense x() const { return make_image(p.dtype, 1, p.x_channels(), p.x_size(), style); }
    Dense y() const {
        return make_image(y_dtype < 0 ? p.dtype : y_dtype, 1, p.y_channels(), p.y_size(), out_style);
    }
    Active active() const {
        std::mt19937_64 random(1);
        return windows ? random_active(random, 1, p.y_size(), 0.5) : Active();
    }
    void forward(const char *chosen, const std::vector<Refusal> &others) const {
        const Dense in = x();
        Dense out = y();
        const Active a = active();
        const std::string text = explained([&] {
            return conv_forward(context.get(), p.conv.get(), p.filter.get(), &in.array,
                                add ? "add=1" : nullptr, nullptr, nullptr, a.layout.get(), a.words(),
                                &out.array);
        });
        expect_row(TARTAN_OP_CONV, text, chosen, others);
    }
    void input_gradient(const char *chosen, const std::vector<Refusal> &others) const {
        const Dense in = y();
        Dense out = x();
        const Active a = active();
        const std::string text = explained([&] {
            return conv_input_gradient(context.get(), p.conv.get(), p.filter.get(), &in.array, a.layout.get(),
                                       a.words(), &out.array);
        });
        expect_row(TARTAN_OP_CONV, text, chosen, others);
    }
    void filter_gradient(const char *chosen, const std::vector<Refusal> &others) const {
        std::mt19937_64 random(1);
        const Dense in = x(), out = y();
        const Matrix grad = random_matrix(p.layout, p.dtype, TARTAN_ROW_MAJOR, random);
        const Active a = active();
        const std::string text = explained([&] {
            return tartan_conv_filter_gradient(context.get(), p.conv.get(), &in.array, &out.array,
                                               a.layout.get(), a.words(), 0, grad.get());
        });
        expect_row(TARTAN_OP_CONV_FILTER_GRADIENT, text, chosen, others);
    }
};

Layout full(int64_t block_rows, int64_t block_cols) {
    return random_layout({2 * block_rows, 2 * block_cols, block_rows, block_cols, 1}, 1, 1);
}
int64_t lanes() {
    return tartan_i_cpu_table_of(TARTAN_F32)->lanes;
}

TEST(ExplainConv, Depthwise) {
    ConvQuestion q(diagonal_layout(5), TARTAN_F32);
    const std::vector<Refusal> others = {{"conv_depthwise_planes", kRowsApart},
                                         {"conv_depthwise_packed", kPacks},
                                         {"conv_channels_in_place", kFewChannels},
                                         {"conv_channels", kFewChannels},
                                         {"conv_positions", kSlower}};
    q.forward("conv_depthwise", others);
    q.input_gradient("conv_depthwise", others);
    q.windows = true;
    q.forward("conv_depthwise", others);
    q.input_gradient("conv_positions", {{"conv_depthwise", kActive},
                                        {"conv_depthwise_planes", kActive},
                                        {"conv_depthwise_packed", kActive},
                                        {"conv_channels_in_place", kFewChannels},
                                        {"conv_channels", kFewChannels}});
    ConvQuestion(diagonal_layout(5), TARTAN_BF16).forward("conv_depthwise", others);
}

TEST(ExplainConv, DepthwisePacked) {
    const char *const old = "results are added to old values";
    ConvQuestion q(diagonal_layout(lanes()), TARTAN_F64);
    q.style = q.out_style = kRows;
    q.forward("conv_depthwise_planes", {{"conv_depthwise", kScattered},
                                        {"conv_depthwise_packed", "packs tiles of the image"},
                                        {"conv_channels_in_place", kFewChannels},
                                        {"conv_channels", kFewChannels},
                                        {"conv_positions", kSlower}});
    q.add = true;
    q.forward("conv_depthwise_packed", {{"conv_depthwise", kScattered},
                                        {"conv_depthwise_planes", old},
                                        {"conv_channels_in_place", kFewChannels},
                                        {"conv_channels", kFewChannels},
                                        {"conv_positions", kSlower}});
    ConvQuestion one(diagonal_layout(1), TARTAN_F64);
    one.style = one.out_style = kRows, one.add = true;
    one.forward("conv_positions", {{"conv_depthwise", kScattered},
                                   {"conv_depthwise_planes", old},
                                   {"conv_depthwise_packed",
                                    "channels are not contiguous in memory, and too few to fill vectors"},
                                   {"conv_channels_in_place", kFewChannels},
                                   {"conv_channels", kFewChannels}});
}

TEST(ExplainConv, InVectorsOfChannels) {
    ConvQuestion q(full(lanes(), 3), TARTAN_F32);
    q.forward("conv_channels_in_place", {{"conv_depthwise", kNotDepthwise},
                                         {"conv_depthwise_planes", kNotDepthwise},
                                         {"conv_depthwise_packed", kNotDepthwise},
                                         {"conv_channels", kCopies},
                                         {"conv_positions", kSlower}});
    const auto copies = [](ConvQuestion &question, const char *why) {
        question.forward("conv_channels", {{"conv_depthwise", kNotDepthwise},
                                           {"conv_depthwise_planes", kNotDepthwise},
                                           {"conv_depthwise_packed", kNotDepthwise},
                                           {"conv_channels_in_place", why},
                                           {"conv_positions", kSlower}});
    };
    q.add = true;
    copies(q, "results are added to old values");
    q.add = false, q.out_style = kRows;
    copies(q, "output channels are not contiguous in memory");
    ConvQuestion narrow(full(lanes(), 3), TARTAN_BF16), ragged(full(2 * lanes() - 1, 3), TARTAN_F32);
    copies(narrow, "results are converted when they are stored");
    copies(ragged, "the output channels of a block are not whole vectors");
    ConvQuestion back(full(3, lanes()), TARTAN_F32);
    back.windows = true;
    back.input_gradient("conv_channels", {{"conv_depthwise", kNotDepthwise},
                                          {"conv_depthwise_planes", kNotDepthwise},
                                          {"conv_depthwise_packed", kNotDepthwise},
                                          {"conv_channels_in_place", kActive},
                                          {"conv_positions", kSlower}});
}

TEST(ExplainConv, OfSharedOutputChannels) {
    const int64_t n = lanes(), offsets[] = {0, n, 2 * n};
    std::vector<int64_t> in, out; // two sets of output channels that have all but one in common
    for (int64_t i = 0; i < 2 * n; i++) in.push_back(i), out.push_back(i % n + i / n);
    tartan_conv *raw = nullptr;
    ASSERT_OK(tartan_conv_from_sets(sets_of(2 * n, offsets, 3, in.data(), 2 * n),
                                    sets_of(n + 1, offsets, 3, out.data(), 2 * n), "kernel=3x3 padding=same",
                                    &raw));
    ConvQuestion(ConvHandle(raw), TARTAN_F32)
        .forward("conv_channels",
                 {{"conv_depthwise", kNotDepthwise},
                  {"conv_depthwise_planes", kNotDepthwise},
                  {"conv_depthwise_packed", kNotDepthwise},
                  {"conv_channels_in_place", "blocks share output channels, which are summed first"},
                  {"conv_positions", kSlower}});
}

TEST(ExplainConv, InVectorsOfPositions) {
    const auto positions = [](const Layout &layout, const char *planes) {
        ConvQuestion(layout, TARTAN_F32)
            .forward("conv_positions", {{"conv_depthwise", kNotDepthwise},
                                        {"conv_depthwise_planes", planes},
                                        {"conv_depthwise_packed", kNotDepthwise},
                                        {"conv_channels_in_place", kFewChannels},
                                        {"conv_channels", kFewChannels}});
    };
    positions(full(2, 3), kNotDepthwise);
    positions(full(1, 1), kRowsApart); // more than a diagonal, but that is looked at last
}

TEST(ExplainConv, FilterGradient) {
    ConvQuestion(full(2, 3), TARTAN_F32)
        .filter_gradient("conv_filter_gradient", {{"conv_filter_gradient_depthwise", kNotDepthwise},
                                                  {"conv_filter_gradient_depthwise_packed", kNotDepthwise}});
    const std::vector<Refusal> others = {
        {"conv_filter_gradient_depthwise_packed", "packs tiles of the images"},
        {"conv_filter_gradient", kSlower}};
    ConvQuestion q(diagonal_layout(5), TARTAN_F32), mixed(diagonal_layout(5), TARTAN_BF16);
    q.filter_gradient("conv_filter_gradient_depthwise", others);
    mixed.filter_gradient("conv_filter_gradient_depthwise", others);
    const auto packs = [](const ConvQuestion &question, const char *why) {
        question.filter_gradient(
            "conv_filter_gradient_depthwise_packed",
            {{"conv_filter_gradient_depthwise", why}, {"conv_filter_gradient", kSlower}});
    };
    q.style = kRows;
    packs(q, kScattered);
    mixed.y_dtype = TARTAN_F32;
    packs(mixed, "images of different types are converted first");
    ConvQuestion transposed(make_conv(diagonal_layout(5), "kernel=3x3 padding=same transposed=1"),
                            TARTAN_F32);
    transposed.windows = true;
    packs(transposed, "an image is limited to active windows");
}

} // namespace
