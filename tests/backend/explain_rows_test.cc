// SPDX-License-Identifier: Apache-2.0
// The ways in which the CPU runs attention and convolutions: which one explain names, and why not the others.
#include "../ops/attention_support.h"
#include "../ops/conv_support.h"
#include "../support/feature_sets.h"
#include "explained.h"

extern "C" {
#include "backend/cpu.h"
}

namespace {

using namespace tartan_test;

struct Refusal {
    const char *row, *why;
};

// All rows of the operation are the chosen one and these.
void expect_row(tartan_op_kind op, const std::string &text, const char *chosen,
                const std::vector<Refusal> &others) {
    EXPECT_NE(std::string::npos, text.find(", \"kernel\": \"" + std::string(chosen) + "\", ")) << text;
    for (const Refusal &r : others)
        EXPECT_NE(std::string::npos,
                  text.find("{\"kernel\": \"" + std::string(r.row) + "\", \"why\": \"" + r.why + "\"}"))
            << r.row << ": " << r.why << "\n"
            << text;
    EXPECT_EQ((size_t)tartan_i_cpu_table[op].count, others.size() + 1);
}

// The whole table: what the tests below do not see.
TEST(ExplainRows, TheLastRowOfAnOperationTakesAll) {
    for (int32_t op = 0; op < TARTAN_OP_COUNT; op++) {
        const tartan_i_cpu_rows &all = tartan_i_cpu_table[op];
        for (int32_t i = 0; i < all.count; i++) {
            EXPECT_EQ(i + 1 == all.count, all.rows[i].refuses == nullptr) << all.rows[i].name;
            EXPECT_NE(nullptr, all.rows[i].why) << all.rows[i].name;
        }
    }
}

// ---- Attention ----

struct AttentionQuestion {
    int32_t dtype = TARTAN_F32, out_dtype = TARTAN_F32, threads = 1;
    int64_t block = 32, d = 64;
    double dropout = 0;

    Attention problem() const {
        Attention p;
        std::mt19937_64 random(1);
        p.layout = random_layout({2 * block, 2 * block, block, block, 1}, 1, 1);
        p.dtype = dtype, p.out_dtype = out_dtype, p.d = d, p.dropout = dropout;
        p.make(random);
        return p;
    }
    void forward(const char *chosen, const std::vector<Refusal> &others) const {
        Attention p = problem();
        const Context context = open_context(threads);
        const std::string text = explained([&] {
            return attention_forward(context.get(), p.layout.get(), &p.q.array, &p.k.array, &p.v.array,
                                     p.options().c_str(), nullptr, nullptr, nullptr, &p.out.array,
                                     &p.lse.array);
        });
        expect_row(TARTAN_OP_ATTENTION_FORWARD, text, chosen, others);
    }
    static std::string backward_of(tartan_context *context, Attention &p) {
        return explained([&] {
            return attention_backward(context, p.layout.get(), &p.q.array, &p.k.array, &p.v.array,
                                      p.options().c_str(), nullptr, nullptr, &p.out.array, &p.lse.array,
                                      &p.out_grad.array, &p.q_grad.array, &p.k_grad.array, &p.v_grad.array);
        });
    }
    void backward(const char *chosen, const std::vector<Refusal> &others) const {
        Attention p = problem();
        const Context context = open_context(threads);
        expect_row(TARTAN_OP_ATTENTION_BACKWARD, backward_of(context.get(), p), chosen, others);
    }
};

bool has_pairs() {
    return tartan_i_cpu_table_of(TARTAN_BF16)->product.group > 1;
}
bool has_stages() {
    return tartan_i_cpu_table_of(TARTAN_BF16)->product.stage != nullptr;
}
// What a CPU can do, but for tiles.
tartan_i_cpu_features without_tiles() {
    return tartan_i_cpu_detect() & ~(tartan_i_cpu_features)TARTAN_I_CPU_AMX;
}

const char *const kWide = "only for 16-bit dtypes";
const char *const kNoPairs = "no instruction set in use multiplies pairs of this dtype";
const char *const kConverts = "converts to float32 first";
const char *const kTwice = "computes weights twice: for dq, and for dk and dv";

TEST(ExplainRows, AttentionForwardOnReals) {
    AttentionQuestion q;
    q.forward("attention_forward",
              {{"attention_forward_pipelined", kWide}, {"attention_forward_pairs", kWide}});
    q.dtype = q.out_dtype = TARTAN_BF16;
    const WithFeatures none(0);
    q.forward("attention_forward",
              {{"attention_forward_pipelined", kNoPairs}, {"attention_forward_pairs", kNoPairs}});
}

// The instruction sets for pairs are not those of the row that runs, but of the one that would use them.
TEST(ExplainRows, AnInstructionSetBelongsToTheRowThatUsesIt) {
    const tartan_i_cpu_features wide = tartan_i_kernels_known_for(TARTAN_F32),
                                more = tartan_i_kernels_known_for(TARTAN_BF16) & ~wide;
    const WithFeatures none(0);
    AttentionQuestion q;
    q.dtype = q.out_dtype = TARTAN_BF16;
    Attention p = q.problem();
    const Context context = open_context(1);
    const std::string text = AttentionQuestion::backward_of(context.get(), p);
    EXPECT_NE(std::string::npos,
              text.find("\"kernel\": \"attention_backward_fused\", \"instruction_set\": \"c\""))
        << text;
    for (int i = 0; i < TARTAN_I_CPU_FEATURES; i++) {
        const std::string row = more >> i & 1 ? "attention_backward_pairs" : "attention_backward_fused";
        if ((wide | more) >> i & 1)
            EXPECT_NE(std::string::npos,
                      text.find("{\"kernel\": \"" + row + " with " + tartan_i_cpu_name(i) + "\", \"why\": "))
                << text;
    }
}

TEST(ExplainRows, AttentionForwardOnPairs) {
    const WithFeatures set(without_tiles());
    if (!has_pairs()) GTEST_SKIP() << "no products of pairs without tiles";
    AttentionQuestion q;
    q.dtype = q.out_dtype = TARTAN_BF16;
    q.forward("attention_forward_pairs",
              {{"attention_forward_pipelined", "no instruction set in use multiplies tiles of this dtype"},
               {"attention_forward", kConverts}});
    q.d = 0;
    q.forward("attention_forward",
              {{"attention_forward_pipelined", "d is 0"}, {"attention_forward_pairs", "d is 0"}});
}

TEST(ExplainRows, AttentionForwardPipelined) {
    const WithFeatures set(tartan_i_cpu_detect());
    if (!has_stages()) GTEST_SKIP() << "no products of tiles";
    AttentionQuestion q;
    q.dtype = q.out_dtype = TARTAN_BF16;
    q.forward("attention_forward_pipelined",
              {{"attention_forward_pairs", "computes scores, weights and sums one after the other"},
               {"attention_forward", kConverts}});
    q.block = 16;
    q.forward("attention_forward_pairs",
              {{"attention_forward_pipelined", "the sizes of blocks are not multiples of 32"},
               {"attention_forward", kConverts}});
    q.block = 64, q.d = 24;
    q.forward("attention_forward_pairs", {{"attention_forward_pipelined", "d is not a multiple of 32"},
                                          {"attention_forward", kConverts}});
}

TEST(ExplainRows, AttentionBackwardOnReals) {
    AttentionQuestion q;
    q.backward("attention_backward_fused", {{"attention_backward_pairs_fused", kWide},
                                            {"attention_backward_pairs", kWide},
                                            {"attention_backward", kTwice}});
    q.threads = 2;
    q.backward("attention_backward",
               {{"attention_backward_pairs_fused", kWide},
                {"attention_backward_pairs", kWide},
                {"attention_backward_fused", "fewer kv heads in the batch than threads"}});
}

TEST(ExplainRows, AttentionBackwardOfManyKeys) {
    const int64_t keys = 4 << 20;
    std::vector<uint8_t> mask((size_t)(keys / 256));
    mask[1] = 1;
    Attention p;
    std::mt19937_64 random(1);
    p.layout = from_mask({1, keys, 1, 256, 1}, mask);
    p.d = 1;
    p.make(random);
    const Context context = open_context(1);
    expect_row(
        TARTAN_OP_ATTENTION_BACKWARD, AttentionQuestion::backward_of(context.get(), p), "attention_backward",
        {{"attention_backward_pairs_fused", kWide},
         {"attention_backward_pairs", kWide},
         {"attention_backward_fused", "the gradients of a kv head for each thread take too much memory"}});
}

TEST(ExplainRows, AttentionBackwardOnPairs) {
    if (!has_pairs()) GTEST_SKIP() << "no products of pairs";
    AttentionQuestion q;
    q.dtype = q.out_dtype = TARTAN_BF16;
    q.backward("attention_backward_pairs_fused", {{"attention_backward_pairs", kTwice},
                                                  {"attention_backward_fused", kConverts},
                                                  {"attention_backward", kTwice}});
    q.threads = 2;
    q.backward("attention_backward_pairs",
               {{"attention_backward_pairs_fused", "fewer kv heads in the batch than threads"},
                {"attention_backward_fused", "fewer kv heads in the batch than threads"},
                {"attention_backward", kTwice}});
    q.threads = 1, q.dropout = 0.5;
    q.backward("attention_backward_fused", {{"attention_backward_pairs_fused", "it has no dropout"},
                                            {"attention_backward_pairs", "it has no dropout"},
                                            {"attention_backward", kTwice}});
    q.dropout = 0, q.out_dtype = TARTAN_F32;
    q.backward("attention_backward_fused",
               {{"attention_backward_pairs_fused", "out_grad has another dtype than q"},
                {"attention_backward_pairs", "out_grad has another dtype than q"},
                {"attention_backward", kTwice}});
}

// ---- Convolutions ----

const char *const kNotDepthwise = "the filter is not depthwise";
const char *const kFewChannels = "blocks have too few output channels to fill vectors";
const char *const kActive = "the input counts in active windows alone";
const char *const kScattered = "channels are not contiguous in memory";
const char *const kSlower = "slower with these operands";
const char *const kPacks = "packs tiles of the image";
const char *const kCopies = "copies the sums to the results";

struct ConvQuestion {
    Problem p;
    int style = kChannelsLast, out_style = kChannelsLast;
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
    Dense y() const { return make_image(p.dtype, 1, p.y_channels(), p.y_size(), out_style); }
    Active active() const {
        std::mt19937_64 random(1);
        return windows ? random_active(random, 1, p.y_size(), 0.5) : Active();
    }
    void forward(const char *chosen, const std::vector<Refusal> &others) const {
        const Dense in = x();
        Dense out = y();
        const Active a = active();
        const std::string text = explained([&] {
            return tartan_conv_forward(context.get(), p.conv.get(), p.filter.get(), &in.array,
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
            return tartan_conv_input_gradient(context.get(), p.conv.get(), p.filter.get(), &in.array,
                                              a.layout.get(), a.words(), &out.array);
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

TEST(ExplainRows, ConvDepthwise) {
    ConvQuestion q(diagonal_layout(5), TARTAN_F32);
    const std::vector<Refusal> others = {{"conv_depthwise_packed", kPacks},
                                         {"conv_channels_in_place", kFewChannels},
                                         {"conv_channels", kFewChannels},
                                         {"conv_positions", kSlower}};
    q.forward("conv_depthwise", others);
    q.input_gradient("conv_depthwise", others);
    q.windows = true;
    q.forward("conv_depthwise", others);
    q.input_gradient("conv_positions", {{"conv_depthwise", kActive},
                                        {"conv_depthwise_packed", kActive},
                                        {"conv_channels_in_place", kFewChannels},
                                        {"conv_channels", kFewChannels}});
    q.windows = false, q.style = kRows;
    q.forward("conv_positions", {{"conv_depthwise", kScattered},
                                 {"conv_depthwise_packed", kScattered},
                                 {"conv_channels_in_place", kFewChannels},
                                 {"conv_channels", kFewChannels}});
}

TEST(ExplainRows, ConvDepthwisePacked) {
    ConvQuestion(diagonal_layout(5), TARTAN_BF16)
        .forward("conv_depthwise_packed", {{"conv_depthwise", "the image is converted first"},
                                           {"conv_channels_in_place", kFewChannels},
                                           {"conv_channels", kFewChannels},
                                           {"conv_positions", kSlower}});
}

TEST(ExplainRows, ConvInVectorsOfChannels) {
    ConvQuestion q(full(lanes(), 3), TARTAN_F32);
    q.forward("conv_channels_in_place", {{"conv_depthwise", kNotDepthwise},
                                         {"conv_depthwise_packed", kNotDepthwise},
                                         {"conv_channels", kCopies},
                                         {"conv_positions", kSlower}});
    const auto copies = [](ConvQuestion &question, const char *why) {
        question.forward("conv_channels", {{"conv_depthwise", kNotDepthwise},
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
                                          {"conv_depthwise_packed", kNotDepthwise},
                                          {"conv_channels_in_place", kActive},
                                          {"conv_positions", kSlower}});
}

TEST(ExplainRows, ConvOfSharedOutputChannels) {
    const int64_t n = lanes(), offsets[] = {0, n, 2 * n};
    std::vector<int64_t> in, out; // two sets of output channels that have all but one in common
    for (int64_t i = 0; i < 2 * n; i++) in.push_back(i), out.push_back(i % n + i / n);
    tartan_conv *raw = nullptr;
    ASSERT_OK(tartan_conv_from_sets(2 * n, n + 1, offsets, 3, in.data(), 2 * n, offsets, 3, out.data(), 2 * n,
                                    "kernel=3x3 padding=same", &raw));
    ConvQuestion(ConvHandle(raw), TARTAN_F32)
        .forward("conv_channels",
                 {{"conv_depthwise", kNotDepthwise},
                  {"conv_depthwise_packed", kNotDepthwise},
                  {"conv_channels_in_place", "blocks share output channels, which are summed first"},
                  {"conv_positions", kSlower}});
}

TEST(ExplainRows, ConvInVectorsOfPositions) {
    for (const Layout &layout : {full(2, 3), full(1, 1)}) // the second with more than a diagonal
        ConvQuestion(layout, TARTAN_F32)
            .forward("conv_positions", {{"conv_depthwise", kNotDepthwise},
                                        {"conv_depthwise_packed", kNotDepthwise},
                                        {"conv_channels_in_place", kFewChannels},
                                        {"conv_channels", kFewChannels}});
}

TEST(ExplainRows, ConvFilterGradient) {
    ConvQuestion(full(2, 3), TARTAN_F32)
        .filter_gradient("conv_filter_gradient", {{"conv_filter_gradient_depthwise", kNotDepthwise},
                                                  {"conv_filter_gradient_depthwise_packed", kNotDepthwise}});
    ConvQuestion q(diagonal_layout(5), TARTAN_F32);
    q.filter_gradient("conv_filter_gradient_depthwise",
                      {{"conv_filter_gradient_depthwise_packed", "packs tiles of the images"},
                       {"conv_filter_gradient", kSlower}});
    const auto packs = [](const ConvQuestion &question, const char *why) {
        question.filter_gradient(
            "conv_filter_gradient_depthwise_packed",
            {{"conv_filter_gradient_depthwise", why}, {"conv_filter_gradient", kSlower}});
    };
    q.style = kRows;
    packs(q, kScattered);
    packs(ConvQuestion(diagonal_layout(5), TARTAN_BF16), "an image is converted first");
    ConvQuestion transposed(make_conv(diagonal_layout(5), "kernel=3x3 padding=same transposed=1"),
                            TARTAN_F32);
    transposed.windows = true;
    packs(transposed, "an image counts in active windows alone");
}

} // namespace
