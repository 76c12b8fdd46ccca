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

TEST(CudaConvFew, TakesFewPositions) {
    const auto chosen = [](int64_t channels, int64_t side, const tartan_cuda_chip &chip) {
        const Operands x = operands(channels, side);
        return std::string(x.asked().chosen(chip));
    };
    EXPECT_EQ(kFew, chosen(512, 7, kHopper));
    EXPECT_EQ(kFew, chosen(64, 7, kHopper));
    EXPECT_EQ("conv_wgmma", chosen(512, 64, kHopper));
    EXPECT_EQ("conv_pieces", chosen(512, 7, kAmpere));
    Operands back = operands(512, 7);
    back.turn();
    EXPECT_EQ(kFew, back.asked().chosen(kHopper));
}

// Of 2 x 7 x 7 positions there are two tiles. CTAs of a cluster have two steps or more, and all SMs have something to do.
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
    EXPECT_EQ(8, splits(operands(64, 7, 32, 1)));
    EXPECT_EQ(1, splits(Operands({64, 64, 32, 32, 1}, "kernel=1x1", {7, 7}, 1)));
    EXPECT_EQ(2, splits(Operands({64, 128, 32, 32, 1}, "kernel=1x1", {7, 7}, 1)));
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
    EXPECT_EQ("input gradients only of strides of 1",
              with([](auto &q) { q.adjoint = true, q.taps.stride[1] = 2; }));
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
    EXPECT_EQ("only for few positions", with([](auto &q) { q.to.size[1] = 100; }));
    EXPECT_EQ("the layout has no blocks", with([&](auto &q) { q.layout = &empty; }));
}

// ---- The gradient of filters ----

TEST(CudaConvFew, FilterGradientsRefuse) {
    const Operands of = operands(128, 7);
    const tartan_cuda_conv forward = of.problem();
    tartan_cuda_conv_filter_gradient p = {};
    p.dtype = p.s_dtype = TARTAN_BF16;
    p.entries = forward.entries, p.taps = forward.taps;
    p.in = forward.from, p.out = forward.to;
    p.cols = forward.from_slots, p.rows = forward.to_slots;
    p.layout = forward.layout, p.figures = forward.figures;
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
    EXPECT_EQ("only for few positions", with([](auto &q) { q.out.size[1] = 20; }));
    EXPECT_EQ("only for fewer than 2^31 blocks", with([&](auto &q) { q.layout = &huge; }));
    EXPECT_EQ("the layout has no blocks", with([&](auto &q) { q.layout = &empty; }));
    p.out.size[1] = 20;
    EXPECT_EQ("conv_filter_gradient_mma", chosen());
}

} // namespace
