// SPDX-License-Identifier: Apache-2.0
// How conv_filter_gradient_wgmma divides gradients of filters: which pixels its products meet, when it is chosen, what it refuses.
#include "conv_operands.h"

#include <functional>

extern "C" {
#include "conv_gradient.h"
}

using namespace tartan_test;

namespace {

using Form = tartan_cuda_gradient_form;

Operands operands(const tartan_shape &channels, const std::string &options = "kernel=3x3 padding=1",
                  const std::vector<int64_t> &size = {14, 14}, double density = 0.5) {
    return Operands(channels, options, size, density);
}

tartan_cuda_conv_filter_gradient gradient_of(Operands &of, int64_t entries = 2) {
    tartan_op_conv_filter_gradient op = {};
    op.function = "test";
    op.conv = of.conv.get();
    op.filter_grad = &of.filter;
    op.in = &of.from, op.out = &of.to;
    op.geometry = of.op.geometry;
    const tartan_context context = {};
    tartan_cuda_conv_filter_gradient p;
    EXPECT_OK(tartan_cuda_conv_filter_gradient_of(&tartan_i_host, &context, &op, &p));
    p.entries = entries;
    return p;
}

std::string chosen(const tartan_cuda_conv_filter_gradient &p, const tartan_cuda_chip &chip = kHopper) {
    const tartan_cuda_kernels &table = *tartan_cuda_kernels_of(TARTAN_OP_CONV_FILTER_GRADIENT);
    return table.rows[tartan_cuda_choose(&table, &chip, &p)].name;
}

std::string refusal(const tartan_cuda_conv_filter_gradient &p, const tartan_cuda_chip &chip = kHopper) {
    const char *why = tartan_cuda_conv_filter_gradient_wgmma_refuses(&chip, &p);
    return why == nullptr ? "" : why;
}

// What a box of `rows` rows has at a position: a pixel (h, w) of its image, or nothing. Boxes are cut off at both sides of an image, and
// what lies behind them is zero.
struct Pixel {
    int64_t image, h, w;
    bool operator==(const Pixel &x) const { return image == x.image && h == x.h && w == x.w; }
};
const Pixel kZero = {-1, 0, 0};

Pixel pixel_at(const Form &f, int64_t at, int64_t rows, const tartan_cuda_image &x, const int64_t (&first)[2],
               const int64_t *stride) {
    if (at >= f.images * rows * f.pitch) return kZero;
    const int64_t h = first[0] + at / f.pitch % rows * stride[1], w = first[1] + at % f.pitch * stride[2];
    if (h < 0 || w < 0 || h >= x.size[1] || w >= x.size[2]) return kZero;
    return {at / f.pitch / rows, h, w};
}

// Every position of a strip, with each of a CTA's products.
void expect_pixels(const tartan_cuda_conv_filter_gradient &p, const Form &f) {
    const tartan_cuda_taps &t = p.taps;
    const int64_t all[] = {1, 1, 1};
    int64_t met = 0, wanted = 0;
    for (int64_t tap_h = 0; tap_h < t.kernel[1]; tap_h += f.tap_rows)
        for (int64_t tap_w = 0; tap_w < t.kernel[2]; tap_w += f.tap_cols)
            for (int64_t g = 0; g < f.groups && tap_h + g < t.kernel[1]; g++)
                for (int64_t s = 0; s < f.tap_cols && tap_w + s < t.kernel[2]; s++)
                    for (int64_t strip = 0; strip < f.strips; strip++)
                        for (int64_t at = 0; at < 16 * f.steps; at++) {
                            const int64_t y_first[] = {strip * f.rows, 0};
                            const Pixel y = pixel_at(f, at, f.rows, p.out, y_first, all);
                            const int64_t x_at =
                                at + g * t.dilation[1] * f.pitch + (f.shared ? s * t.dilation[2] : 0);
                            ASSERT_LT(x_at * TARTAN_CUDA_GRADIENT_LINE, f.x_bytes);
                            if (y == kZero) continue;
                            const int64_t x_first[] = {
                                y_first[0] * t.stride[1] + tap_h * t.dilation[1] - t.before[1],
                                (tap_w + (f.shared ? 0 : s)) * t.dilation[2] - t.before[2]};
                            const Pixel x = pixel_at(f, x_at, f.box_rows, p.in, x_first, t.stride);
                            Pixel want = {y.image,
                                          y.h * t.stride[1] + (tap_h + g) * t.dilation[1] - t.before[1],
                                          y.w * t.stride[2] + (tap_w + s) * t.dilation[2] - t.before[2]};
                            if (want.h < 0 || want.w < 0 || want.h >= p.in.size[1] || want.w >= p.in.size[2])
                                want = kZero;
                            ASSERT_TRUE(x == want)
                                << at << " of strip " << strip << ", tap " << tap_h + g << ", " << tap_w + s;
                            met++;
                        }
    wanted = t.kernel[1] * t.kernel[2] * f.images * p.out.size[1] * p.out.size[2];
    EXPECT_EQ(wanted, met);
}

TEST(CudaConvGradientForm, ProductsMeetTheirPixels) {
    const char *const options[] = {"kernel=3x3 padding=1",
                                   "kernel=3x3",
                                   "kernel=3x3 padding=2x2 dilation=2x2",
                                   "kernel=5x5 padding=2",
                                   "kernel=5x2 padding=1x0",
                                   "kernel=7x7 padding=3",
                                   "kernel=3x3 padding=1 stride=2",
                                   "kernel=3x3 padding=1 stride=2x1",
                                   "kernel=1x1",
                                   "kernel=1x1 stride=2",
                                   "kernel=1x7 padding=0x6",
                                   "kernel=3x3 padding=0:1x2:0"};
    for (const char *text : options)
        for (const std::vector<int64_t> &size : {std::vector<int64_t>{7, 7}, {14, 14}, {9, 13}, {30, 7}}) {
            Operands of = operands({128, 192, 32, 32, 1}, text, size);
            const tartan_cuda_conv_filter_gradient p = gradient_of(of);
            for (int32_t groups : {1, 3})
                for (int32_t rows = 1; rows <= p.out.size[1]; rows++) {
                    Form f = {};
                    if (groups == 3 &&
                        (p.taps.stride[1] > 1 || p.taps.stride[2] > 1 || p.taps.kernel[2] == 1))
                        continue;
                    f.row = tartan_cuda_dense_side_of(&p.rows, TARTAN_CUDA_DENSE_SLOTS);
                    f.col = tartan_cuda_dense_side_of(&p.cols, TARTAN_CUDA_DENSE_SLOTS);
                    f.groups = groups, f.products = 3, f.rows = rows,
                    f.images = groups == 1 && rows == p.out.size[1] ? 2 : 1;
                    SCOPED_TRACE(::testing::Message() << text << ", " << size[0] << " x " << size[1] << ", "
                                                      << groups << " warpgroups, " << rows << " rows");
                    ASSERT_TRUE(tartan_cuda_gradient_form_complete(&p, &f));
                    EXPECT_LE(f.images * f.rows * f.pitch, 16 * f.steps);
                    expect_pixels(p, f);
                    if (HasFatalFailure()) return;
                }
        }
}

// Stages fit in shared memory, all of them are shared out, and no CTA has none.
TEST(CudaConvGradientForm, DividesAllPositions) {
    const tartan_shape shapes[] = {{512, 512, 8, 8, 1}, {256, 128, 16, 8, 1},  {128, 256, 24, 40, 1},
                                   {64, 64, 32, 32, 1}, {192, 192, 96, 64, 1}, {272, 136, 136, 136, 1}};
    for (const tartan_shape &shape : shapes)
        for (const char *options : {"kernel=3x3 padding=1", "kernel=1x1", "kernel=3x3 padding=1 stride=2"})
            for (int64_t side : {5, 14, 56})
                for (int64_t entries : {1, 3, 32}) {
                    SCOPED_TRACE(::testing::Message()
                                 << shape.block_rows << ", " << options << ", " << entries << " x " << side);
                    Operands of = operands(shape, options, {side, side});
                    const tartan_cuda_conv_filter_gradient p = gradient_of(of, entries);
                    const Form f = tartan_cuda_gradient_form_of(&kHopper, &p);
                    ASSERT_LT(f.us, INFINITY);
                    EXPECT_LE(f.bytes, kHopper.shared_bytes);
                    EXPECT_GE(f.bytes, (int64_t)f.stages * f.stage_bytes);
                    EXPECT_GE(f.bytes, (int64_t)f.groups * f.products * TARTAN_CUDA_GRADIENT_SUMS);
                    EXPECT_GE(f.stages, std::min(f.share, 2));
                    EXPECT_LE(f.stages, std::min<int32_t>(f.share, TARTAN_CUDA_GRADIENT_STAGES));
                    EXPECT_GE(f.rows * f.strips, p.out.size[1]);
                    EXPECT_LT(f.rows * (f.strips - 1), p.out.size[1]);
                    EXPECT_GE(f.all * f.images, entries * f.strips);
                    EXPECT_GE((int64_t)f.share * f.splits, f.all);
                    EXPECT_LT((int64_t)f.share * (f.splits - 1), f.all);
                    EXPECT_LE(f.splits, TARTAN_CUDA_FEW_SPLITS);
                }
}

// Many positions, where most tiles have blocks or other kernels are slow; few positions stay with other kernels.
TEST(CudaConvGradientForm, IsChosenForManyPositions) {
    const auto of = [](const tartan_shape &shape, const char *options, int64_t side, int64_t entries,
                       double density, const tartan_cuda_chip &chip = kHopper) {
        Operands x = operands(shape, options, {side, side}, density);
        return chosen(gradient_of(x, entries), chip);
    };
    const char *const kWgmma = "conv_filter_gradient_wgmma", *const kThree = "kernel=3x3 padding=1";
    EXPECT_EQ(kWgmma, of({256, 256, 64, 64, 1}, kThree, 56, 32, .44));
    EXPECT_EQ(kWgmma, of({256, 256, 16, 16, 1}, kThree, 56, 32, .12));
    EXPECT_EQ(kWgmma, of({512, 512, 32, 32, 1}, kThree, 7, 32, .25));
    EXPECT_EQ(kWgmma, of({512, 512, 32, 32, 1}, kThree, 14, 4, 1));
    EXPECT_EQ(kWgmma, of({256, 1024, 64, 64, 1}, "kernel=1x1", 14, 32, .31));
    EXPECT_EQ(kWgmma, of({512, 256, 32, 32, 1}, "kernel=1x1 stride=2", 56, 32, .25));
    EXPECT_NE(kWgmma, of({256, 256, 32, 32, 1}, kThree, 14, 4, .25));
    EXPECT_EQ("conv_filter_gradient_few", of({512, 512, 32, 32, 1}, kThree, 7, 1, .25));
    EXPECT_NE(kWgmma, of({256, 256, 64, 64, 1}, kThree, 56, 32, .05));
    EXPECT_NE(kWgmma, of({256, 256, 64, 64, 1}, kThree, 56, 32, .44, kAda));
    Operands wide = operands({64, 64, 32, 32, 1}, kThree, {8, 448});
    EXPECT_NE(kWgmma, chosen(gradient_of(wide))); // rows longer than a box
}

TEST(CudaConvGradientForm, Refuses) {
    Operands of = operands({512, 512, 32, 32, 1}, "kernel=3x3 padding=1", {14, 14}, 1);
    const tartan_cuda_conv_filter_gradient p = gradient_of(of, 4);
    EXPECT_EQ("", refusal(p));
    EXPECT_EQ("needs compute capability 9.0", refusal(p, kAda));
    EXPECT_EQ("needs compute capability 9.0", refusal(p, kBlackwell));
    const auto with = [&](const std::function<void(tartan_cuda_conv_filter_gradient &)> &change) {
        tartan_cuda_conv_filter_gradient q = p;
        change(q);
        return refusal(q);
    };
    const int32_t list[512] = {};
    tartan_i_channels sets = *p.rows.channels;
    sets.of = list;
    tartan_layout empty = *p.layout;
    empty.blocks = 0;
    const char others[] = "only for images with narrow rows, and where other kernels take longer",
               channels[] = "only for images whose channels can be read by 16 bytes",
               turned[] = "only for images whose strides are positive";
    EXPECT_EQ("only for float16 and bfloat16", with([](auto &q) { q.dtype = TARTAN_F32; }));
    EXPECT_EQ("only for images of one dtype", with([](auto &q) { q.out.dtype = TARTAN_F32; }));
    EXPECT_EQ("only for whole images", with([&](auto &q) { q.active.layout = &empty; }));
    EXPECT_EQ("only for channels without sets", with([&](auto &q) { q.rows.channels = &sets; }));
    EXPECT_EQ("only for blocks whose edges are multiples of 8", with([](auto &q) { q.cols.edge = 12; }));
    EXPECT_EQ(channels, with([](auto &q) { q.in.channel = 2; }));
    EXPECT_EQ(turned, with([](auto &q) { q.in.step[1] = -q.in.step[1]; }));
    EXPECT_EQ(turned, with([](auto &q) { q.out.entry = 0; }));
    EXPECT_EQ("only for strides up to 8", with([](auto &q) { q.taps.stride[2] = 9; }));
    EXPECT_EQ("the layout has no blocks", with([&](auto &q) { q.layout = &empty; }));
    EXPECT_EQ(others, with([](auto &q) { q.out.size[2] = q.in.size[2] = 300; })); // longer than a box
    EXPECT_EQ(others, with([](auto &q) { q.entries = 1, q.out.size[1] = q.out.size[2] = 1; }));
}

} // namespace
