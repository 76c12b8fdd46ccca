// SPDX-License-Identifier: Apache-2.0
// Convolutions of few positions that are multiplied as dense ones: how CTAs share them, when they are chosen, and what they refuse.
#include "conv_operands.h"

#include <functional>

extern "C" {
#include "conv_few.h"
}

using namespace tartan_test;

namespace {

const std::vector<tartan_shape> kShapes = {{512, 512, 8, 8, 1},   {256, 128, 16, 8, 1},
                                           {128, 256, 24, 40, 1}, {512, 512, 32, 32, 1},
                                           {192, 192, 96, 64, 1}, {272, 136, 136, 136, 1}};

Operands operands(const tartan_shape &channels, int64_t side = 14, double density = 0.5,
                  const char *options = "kernel=3x3 padding=1") {
    return Operands(channels, options, {side, side}, density);
}

// Blocks of a tile fit, or pieces of a block cover it; tiles cover all lines.
void expect_side(const tartan_cuda_dense_side &s, const tartan_cuda_slots &slots) {
    const int32_t tile = TARTAN_CUDA_DENSE_SLOTS;
    EXPECT_GE(s.blocks, 1);
    EXPECT_GE(s.pieces, 1);
    EXPECT_TRUE(s.blocks == 1 || s.pieces == 1);
    EXPECT_TRUE(s.pieces > 1 || s.blocks * slots.edge <= tile);
    EXPECT_GE(s.pieces * tile, slots.edge);
    EXPECT_GE(s.tiles / s.pieces * s.blocks, slots.grid);
    EXPECT_LT((s.tiles / s.pieces - 1) * s.blocks, slots.grid);
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

std::string chosen(const tartan_cuda_conv_filter_gradient &p, const tartan_cuda_chip &chip = kHopper) {
    const tartan_cuda_kernels &table = *tartan_cuda_kernels_of(TARTAN_OP_CONV_FILTER_GRADIENT);
    return table.rows[tartan_cuda_choose(&table, &chip, &p)].name;
}

TEST(CudaConvDense, TilesOfGradientsCoverTheFilter) {
    for (const tartan_shape &shape : kShapes)
        for (int64_t side : {3, 14, 28}) {
            SCOPED_TRACE(::testing::Message() << shape.block_rows << " " << side);
            const Operands x = operands(shape, side);
            const tartan_cuda_conv_filter_gradient p = gradient_of(x);
            const tartan_cuda_dense_gradient f = tartan_cuda_dense_gradient_of(&kHopper, &p);
            ASSERT_LT(f.us, INFINITY);
            expect_side(f.row, p.rows);
            expect_side(f.col, p.cols);
            EXPECT_EQ(9.0 * f.row.tiles * f.col.tiles, f.tiles);
            const int64_t steps = (p.entries * side * side + 63) / 64;
            EXPECT_GE((int64_t)f.share * f.splits, steps);
            EXPECT_LT((int64_t)f.share * (f.splits - 2), steps); // one CTA may have nothing to do
            EXPECT_LE(f.shared, kHopper.shared_bytes);
            EXPECT_GE(f.stages, std::min(f.share, 2));
            EXPECT_LE(f.stages, std::min<int32_t>(f.share, TARTAN_CUDA_DENSE_STAGES));
        }
}

TEST(CudaConvDense, StepsOfConvolutionsCoverTheFilter) {
    for (const tartan_shape &shape : kShapes)
        for (bool turned : {false, true}) {
            SCOPED_TRACE(::testing::Message() << shape.block_rows << " " << turned);
            Operands x = operands(shape, 7);
            if (turned) x.turn();
            const tartan_cuda_conv p = x.problem();
            const tartan_cuda_dense_conv f = tartan_cuda_dense_conv_of(&kHopper, &p);
            expect_side(f.from, p.from_slots);
            expect_side(f.to, p.to_slots);
            EXPECT_EQ(9 * f.from.tiles, f.steps);
            EXPECT_EQ(2.0 * f.to.tiles, f.ctas); // 2 x 7 x 7 positions
            EXPECT_GE(f.share * f.splits, f.steps);
            EXPECT_LT(f.share * (f.splits - 1), f.steps);
        }
}

// Many small blocks, and dense filters, are multiplied as dense ones; few large blocks one by one, and many positions by other kernels.
TEST(CudaConvDense, IsChosenForManyBlocks) {
    const auto of = [](int64_t channels, int64_t side, int64_t edge, double density,
                       const tartan_cuda_chip &chip = kHopper) {
        const Operands x = operands({channels, channels, edge, edge, 1}, side, density);
        return chosen(gradient_of(x), chip);
    };
    EXPECT_EQ("conv_filter_gradient_dense", of(512, 7, 8, .25));
    EXPECT_EQ("conv_filter_gradient_dense", of(128, 28, 32, .25));
    EXPECT_EQ("conv_filter_gradient_dense", of(256, 14, 32, 1));
    EXPECT_EQ("conv_filter_gradient_dense", of(128, 40, 32, .25));
    EXPECT_EQ("conv_filter_gradient_few", of(512, 7, 32, .25));
    EXPECT_EQ("conv_filter_gradient_few", of(512, 7, 8, .25, kAda));
    EXPECT_EQ("conv_filter_gradient_mma", of(256, 90, 32, .25));
    const auto forward = [](const Operands &x) { return std::string(x.asked().chosen(kHopper)); };
    EXPECT_EQ("conv_dense", forward(operands({512, 512, 32, 32, 1}, 14, 1)));
    EXPECT_EQ("conv_few", forward(operands({512, 512, 32, 32, 1}, 14, .25)));
    EXPECT_EQ("conv_few", forward(operands({512, 512, 8, 8, 1}, 7, .25)));
    EXPECT_EQ("conv_few", forward(operands({512, 512, 32, 32, 1}, 5, 1)));
    Operands back = operands({512, 512, 32, 32, 1}, 14, 1);
    back.turn();
    EXPECT_EQ("conv_dense", forward(back));
}

TEST(CudaConvDense, Refuse) {
    const Operands x = operands({512, 512, 32, 32, 1}, 14, 1);
    const tartan_cuda_conv p = x.problem();
    const auto why = [](const char *text) { return std::string(text == nullptr ? "" : text); };
    const auto forward = [&](const std::function<void(tartan_cuda_conv &)> &change,
                             const tartan_cuda_chip &chip = kHopper) {
        tartan_cuda_conv q = p;
        change(q);
        return why(tartan_cuda_conv_dense_refuses(&chip, &q));
    };
    EXPECT_EQ("", forward([](auto &) {}));
    EXPECT_EQ("needs compute capability 9.0", forward([](auto &) {}, kAda));
    EXPECT_EQ("only for float16 and bfloat16", forward([](auto &q) { q.dtype = TARTAN_F32; }));
    EXPECT_EQ("only for few positions, and where conv_few takes longer",
              forward([](auto &q) { q.to.size[1] = 200; }));
    const tartan_cuda_conv_filter_gradient g = gradient_of(x);
    const auto gradient = [&](const std::function<void(tartan_cuda_conv_filter_gradient &)> &change,
                              const tartan_cuda_chip &chip = kHopper) {
        tartan_cuda_conv_filter_gradient q = g;
        change(q);
        return why(tartan_cuda_conv_filter_gradient_dense_refuses(&chip, &q));
    };
    EXPECT_EQ("", gradient([](auto &) {}));
    EXPECT_EQ("needs compute capability 9.0", gradient([](auto &) {}, kAda));
    EXPECT_EQ("only for float16 and bfloat16", gradient([](auto &q) { q.dtype = TARTAN_F64; }));
    EXPECT_EQ("only for images of one dtype", gradient([](auto &q) { q.out.dtype = TARTAN_F32; }));
    EXPECT_EQ("only for few positions, and where other kernels take longer",
              gradient([](auto &q) { q.out.size[1] = 2000; }));
}

} // namespace
