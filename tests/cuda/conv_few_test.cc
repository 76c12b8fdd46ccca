// SPDX-License-Identifier: Apache-2.0
// Convolutions of few positions: how CTAs share them, the choice of their kernels, and what these refuse.
#include "conv_operands.h"

#include <functional>

extern "C" {
#include "conv_few.h"
}

using namespace tartan_test;

namespace {

const char *const kFew = "conv_few";

std::string refusal(const tartan_cuda_conv &p, const tartan_cuda_chip &chip = kHopper) {
    const char *why = tartan_cuda_conv_few_refuses(&chip, &p);
    return why == nullptr ? "" : why;
}

Operands operands(int64_t channels, int64_t side, int64_t edge = 32, double density = 0.5) {
    return Operands({channels, channels, edge, edge, 1}, "kernel=3x3 padding=1", {side, side}, density);
}

tartan_cuda_conv_filter_gradient gradient_of(const Operands &of) {
    const tartan_cuda_conv forward = of.problem();
    tartan_cuda_conv_filter_gradient p = {};
    p.dtype = p.s_dtype = TARTAN_BF16;
    p.entries = forward.entries, p.taps = forward.taps;
    p.in = forward.from, p.out = forward.to;
    p.cols = forward.from_slots, p.rows = forward.to_slots;
    p.layout = forward.layout, p.figures = forward.figures;
    return p;
}

TEST(CudaConvFew, TakesFewPositions) {
    const auto chosen = [](int64_t channels, int64_t side, const tartan_cuda_chip &chip, int64_t edge = 32) {
        const Operands x = operands(channels, side, edge);
        return std::string(x.asked().chosen(chip));
    };
    EXPECT_EQ(kFew, chosen(512, 7, kHopper));
    EXPECT_EQ(kFew, chosen(64, 7, kHopper));
    EXPECT_EQ("conv_wgmma", chosen(512, 64, kHopper));
    EXPECT_EQ("conv_pieces", chosen(512, 7, kAmpere));
    EXPECT_EQ(kFew, chosen(512, 7, kHopper, 8));
    EXPECT_EQ(kFew, chosen(512, 7, kHopper, 16));
    Operands back = operands(512, 7);
    back.turn();
    EXPECT_EQ(kFew, back.asked().chosen(kHopper));
    Operands strided({512, 512, 32, 32, 1}, "kernel=3x3 padding=1 stride=2", {7, 7});
    strided.turn();
    EXPECT_EQ(kFew, strided.asked().chosen(kHopper));
}

// Of 2 x 7 x 7 positions there are two tiles. CTAs of a cluster have a step or more, and all SMs have something to do.
TEST(CudaConvFew, ClustersFillTheChip) {
    const auto splits = [](const Operands &x) {
        const tartan_cuda_conv p = x.problem();
        return tartan_cuda_conv_few_splits(&p, 132);
    };
    const Operands some = operands(512, 7);
    const tartan_cuda_conv p = some.problem();
    EXPECT_EQ(32, tartan_cuda_conv_few_ctas(&p));
    EXPECT_EQ(8, splits(some));
    EXPECT_EQ(4, splits(operands(1024, 7)));
    EXPECT_EQ(8, splits(operands(256, 7, 16, 1))); // 9 x 16 blocks are 36 steps
    EXPECT_EQ(1, splits(Operands({256, 128, 8, 8, 1}, "kernel=1x1", {7, 7}, 0.5)));
    EXPECT_EQ(8, splits(operands(64, 7, 32, 1)));
    EXPECT_EQ(2, splits(Operands({64, 128, 32, 32, 1}, "kernel=1x1", {7, 7}, 1)));
    EXPECT_EQ(1, splits(Operands({64, 32, 32, 32, 1}, "kernel=1x1", {7, 7}, 1)));
    EXPECT_EQ(4, splits(Operands({64, 256, 32, 32, 1}, "kernel=1x1", {7, 7}, 1)));
}

TEST(CudaConvFew, Refuses) {
    const Operands of = operands(128, 7);
    const tartan_cuda_conv p = of.problem();
    EXPECT_EQ("", refusal(p));
    EXPECT_EQ("needs compute capability 9.0", refusal(p, kAda));
    const auto with = [&](const std::function<void(tartan_cuda_conv &)> &change) {
        tartan_cuda_conv q = p;
        change(q);
        return refusal(q);
    };
    const int32_t list[128] = {};
    tartan_i_channels sets = *p.to_slots.channels;
    sets.of = list;
    tartan_layout empty = *p.layout;
    empty.blocks = 0;
    EXPECT_EQ("only for float16 and bfloat16", with([](auto &q) { q.dtype = TARTAN_F32; }));
    EXPECT_EQ("only for images of the filter's dtype", with([](auto &q) { q.from.dtype = TARTAN_F32; }));
    EXPECT_EQ("only for whole images", with([&](auto &q) { q.active.layout = &empty; }));
    EXPECT_EQ("only for channels without sets", with([&](auto &q) { q.to_slots.channels = &sets; }));
    EXPECT_EQ("only for channels without sets", with([&](auto &q) { q.from_slots.channels = &sets; }));
    EXPECT_EQ("only for blocks whose edges are multiples of 8", with([](auto &q) { q.to_slots.edge = 12; }));
    EXPECT_EQ("only for blocks whose edges are multiples of 8", with([](auto &q) { q.from_slots.edge = 4; }));
    EXPECT_EQ("the filter's address is no multiple of 16 bytes",
              with([](auto &q) { q.values = (const char *)q.values + 2; }));
    EXPECT_EQ("", with([](auto &q) { q.taps.stride[1] = 2; }));
    EXPECT_EQ("input gradients only of up to 64 taps",
              with([](auto &q) { q.adjoint = true, q.taps.taps = 65; }));
    EXPECT_EQ("only for channels to read that fill their blocks",
              with([](auto &q) { q.from.channels = 120; }));
    EXPECT_EQ("", with([](auto &q) { q.to.channels = 126; }));
    const char channels[] = "only for images whose channels can be read by 16 bytes";
    EXPECT_EQ(channels, with([](auto &q) { q.from.channel = 2; }));
    EXPECT_EQ(channels, with([](auto &q) { q.from.data = (char *)q.from.data + 2; }));
    EXPECT_EQ(channels, with([](auto &q) { q.from.entry += 4; }));
    EXPECT_EQ(channels, with([](auto &q) { q.from.step[1] += 4; }));
    EXPECT_EQ(channels, with([](auto &q) { q.from.step[1] = INT64_C(1) << 40; }));
    EXPECT_EQ("only for few positions", with([](auto &q) { q.to.size[1] = 200; }));
    EXPECT_EQ("the layout has no blocks", with([&](auto &q) { q.layout = &empty; }));
}

// ---- The gradient of filters ----

TEST(CudaConvFew, FilterGradientsRefuse) {
    const Operands of = operands(512, 7, 32, .25);
    tartan_cuda_conv_filter_gradient p = gradient_of(of);
    const auto with = [&](const std::function<void(tartan_cuda_conv_filter_gradient &)> &change) {
        tartan_cuda_conv_filter_gradient q = p;
        change(q);
        const char *why = tartan_cuda_conv_filter_gradient_few_refuses(&kHopper, &q);
        return std::string(why == nullptr ? "" : why);
    };
    const tartan_cuda_kernels &table = *tartan_cuda_kernels_of(TARTAN_OP_CONV_FILTER_GRADIENT);
    const auto chosen = [&] {
        return std::string(table.rows[tartan_cuda_choose(&table, &kHopper, &p)].name);
    };
    EXPECT_EQ("conv_filter_gradient_few", chosen());
    tartan_layout empty = *p.layout, huge = *p.layout;
    empty.blocks = 0, huge.blocks = INT64_C(1) << 32;
    EXPECT_EQ("", with([](auto &) {}));
    EXPECT_EQ("only for float16 and bfloat16", with([](auto &q) { q.dtype = TARTAN_F64; }));
    EXPECT_EQ("only for images of one dtype", with([](auto &q) { q.out.dtype = TARTAN_F32; }));
    EXPECT_EQ("only for whole images", with([&](auto &q) { q.active.layout = &empty; }));
    EXPECT_EQ("only for images whose channels can be read by 16 bytes",
              with([](auto &q) { q.out.channel = 2; }));
    EXPECT_EQ("only for few positions", with([](auto &q) { q.out.size[1] = 160; }));
    EXPECT_EQ("only for few positions", with([&](auto &q) { q.out.size[1] = 40, q.layout = &huge; }));
    EXPECT_EQ("only for fewer than 2^31 blocks", with([&](auto &q) { q.layout = &huge; }));
    EXPECT_EQ("the layout has no blocks", with([&](auto &q) { q.layout = &empty; }));
    const Operands dense = operands(512, 7, 32, 1);
    p = gradient_of(dense);
    EXPECT_EQ("conv_filter_gradient_dense takes less time", with([](auto &) {}));
    p = gradient_of(of);
    p.out.size[1] = 1000;
    EXPECT_EQ("conv_filter_gradient_wgmma", chosen());
}

// Few CTAs have groups of threads that share the positions, if shared memory holds the stages of all in as many rounds.
TEST(CudaConvFew, FilterGradientsDivide) {
    const struct {
        tartan_shape channels;
        std::vector<int64_t> size;
        tartan_cuda_chip chip;
        int32_t edge, row_pieces, col_pieces, groups, stages;
        double ctas, steps;
    } cases[] = {{{512, 512, 32, 32, 1}, {7, 7}, kHopper, 32, 1, 1, 1, 2, 9 * 256, 2},
                 {{128, 128, 32, 32, 1}, {7, 7}, kHopper, 32, 1, 1, 2, 1, 9 * 16, 2},
                 {{128, 128, 32, 32, 1}, {14, 14}, kHopper, 32, 1, 1, 4, 2, 9 * 16, 7},
                 {{128, 128, 32, 32, 1}, {28, 28}, kHopper, 32, 1, 1, 2, 4, 9 * 16, 25},
                 {{128, 128, 32, 32, 1}, {28, 28}, kAda, 32, 1, 1, 1, 4, 9 * 16, 25},
                 {{128, 128, 16, 16, 1}, {14, 14}, kHopper, 16, 1, 1, 2, 3, 9 * 16, 7},
                 {{128, 128, 16, 8, 1}, {28, 28}, kHopper, 16, 1, 1, 1, 3, 9 * 32, 25},
                 {{128, 128, 8, 8, 1}, {7, 7}, kHopper, 8, 1, 1, 2, 1, 9 * 32, 2},
                 {{160, 128, 40, 64, 1}, {7, 7}, kHopper, 32, 2, 2, 2, 1, 9 * 32, 2}};
    for (const auto &one : cases) {
        const Operands of(one.channels, "kernel=3x3 padding=1", one.size, 1);
        const tartan_cuda_conv_filter_gradient p = gradient_of(of);
        const tartan_cuda_few_gradient got = tartan_cuda_few_gradient_of(&one.chip, &p);
        SCOPED_TRACE(::testing::Message() << one.channels.block_rows << " rows, " << one.size[0]);
        EXPECT_EQ(one.edge, got.edge);
        EXPECT_EQ(one.row_pieces, got.row_pieces);
        EXPECT_EQ(one.col_pieces, got.col_pieces);
        EXPECT_EQ(one.groups, got.groups);
        EXPECT_EQ(one.stages, got.stages);
        EXPECT_EQ(one.ctas, got.ctas);
        EXPECT_EQ(one.steps, got.steps);
        EXPECT_LE(got.groups * got.stages * (one.edge == 32 ? 10240 : 18432), one.chip.shared_bytes);
    }
}

} // namespace
