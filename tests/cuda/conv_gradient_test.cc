// SPDX-License-Identifier: Apache-2.0
// The gradient of filters: the tables that conv_filter_gradient_mma follows, the choice among kernels and their refusals.
#include "conv_operands.h"

#include <cstring>
#include <functional>

extern "C" {
#include "conv_jobs.h"
}

using namespace tartan_test;

namespace {

const char *const kMma = "conv_filter_gradient_mma", *const kWgmma = "conv_filter_gradient_wgmma",
                  *const kPlain = "conv_filter_gradient_plain";

const tartan_cuda_chip kTiny = {8, 9, 128, 49152, nullptr};

// The gradient of a filter from 2 images of bf16, and what its operands are.
struct FilterOperands {
    Layout channels;
    std::unique_ptr<tartan_conv, FreeConv> conv;
    tartan_matrix grad = {};
    tartan_array in, out;
    tartan_op_conv_filter_gradient op = {};

    explicit FilterOperands(tartan_shape shape = {128, 96, 32, 16, 1},
                            std::string options = "kernel=3x3 padding=1",
                            std::vector<int64_t> size = {40, 30}, double density = 0.5,
                            int32_t order = TARTAN_ROW_MAJOR) {
        channels = random_layout(shape, density, 3);
        tartan_conv *made = nullptr;
        EXPECT_OK(tartan_conv_create(channels.get(), options.c_str(), &made));
        conv.reset(made);
        grad.layout = made->layout;
        grad.dtype = TARTAN_BF16;
        grad.block_order = order;
        grad.values = (void *)4096;
        std::vector<int64_t> x{2, made->cols.count}, y{2, shape.rows}, to(size.size());
        EXPECT_OK(
            tartan_conv_output_size(made, size.data(), (int64_t)size.size(), to.data(), (int64_t)to.size()));
        x.insert(x.end(), size.begin(), size.end());
        y.insert(y.end(), to.begin(), to.end());
        in = image(TARTAN_BF16, x), out = image(TARTAN_BF16, y);
        EXPECT_OK(tartan_i_conv_geometry("test", made, size.data(), (int64_t)size.size(), &op.geometry));
        op.function = "test";
        op.conv = made;
        op.filter_grad = &grad;
        op.in = &in, op.out = &out;
    }
    // It points to the operands.
    tartan_cuda_conv_filter_gradient problem() const && = delete;
    tartan_cuda_conv_filter_gradient problem() const & {
        const tartan_context context = {};
        tartan_cuda_conv_filter_gradient p;
        EXPECT_OK(tartan_cuda_conv_filter_gradient_of(&tartan_i_host, &context, &op, &p));
        return p;
    }
    tartan_cuda_conv_job_form form() const {
        const tartan_cuda_conv_filter_gradient p = problem();
        return tartan_cuda_conv_job_form_of(&p);
    }
};

std::string refusal(const tartan_cuda_conv_filter_gradient &p, const tartan_cuda_chip &chip = kHopper) {
    const char *why = tartan_cuda_conv_filter_gradient_mma_refuses(&chip, &p);
    return why == nullptr ? "" : why;
}

std::string chosen(const tartan_cuda_conv_filter_gradient &p, const tartan_cuda_chip &chip = kHopper) {
    const tartan_cuda_kernels &table = *tartan_cuda_kernels_of(TARTAN_OP_CONV_FILTER_GRADIENT);
    return table.rows[tartan_cuda_choose(&table, &chip, &p)].name;
}

// A form must fit what the kernel has.
void expect_fits(const tartan_cuda_conv_filter_gradient &p, const tartan_cuda_conv_job_form &f) {
    EXPECT_LE(f.shared, TARTAN_CUDA_JOB_SHARED);
    EXPECT_GE(f.stages, 2);
    EXPECT_LE(f.stages, TARTAN_CUDA_JOB_STAGES);
    EXPECT_LE(f.list_bytes + f.stages * f.stage_bytes, f.shared);
    EXPECT_GE(f.list_bytes, 8 * f.box_rows * f.box_cols + 12 * 16 * f.steps);
    EXPECT_GE(f.stage_bytes, f.x_pieces * f.x_bytes + f.y_pieces * f.y_bytes);
    EXPECT_LE(f.rows * f.cols, TARTAN_CUDA_JOB_PIXELS);
    EXPECT_LE(f.rows * f.cols, 16 * f.steps);
    EXPECT_GE(f.x_bytes, 16 * f.box_rows * f.pitch);
    EXPECT_GE(f.pitch, f.box_cols);
    EXPECT_GE(f.y_bytes, 16 * 16 * f.steps);
    EXPECT_EQ(1, f.x_bytes / 16 % 2); // neighbouring pieces lie in different banks
    EXPECT_EQ(1, f.y_bytes / 16 % 2);
    EXPECT_LE(f.origin[0], 0);
    EXPECT_LE(f.origin[1], 0);
    EXPECT_GE(f.origin[0] + f.tiles_h * f.rows, p.out.size[1]);
    EXPECT_GE(f.origin[1] + f.tiles_w * f.cols, p.out.size[2]);
}

// Follows the tables as the kernel does: to which weight each row and column of a product belongs. Every weight must come
// exactly once, with the pixels of its channel and tap.
void expect_all_weights(const FilterOperands &x) {
    const tartan_cuda_conv_filter_gradient p = x.problem();
    const tartan_cuda_conv_job_form f = x.form();
    expect_fits(p, f);
    tartan_cuda_conv_jobs t;
    ASSERT_OK(tartan_cuda_conv_jobs_make(&tartan_i_host, &p, &f, &t));
    const std::unique_ptr<int32_t, void (*)(void *)> owned(t.values, [](void *v) { tartan_i_host.free(v); });
    const tartan_layout *l = p.layout;
    const int64_t block = l->shape.block_rows * l->shape.block_cols, slots = p.cols.grid * p.cols.edge;
    std::vector<int> seen((size_t)(l->blocks * block));
    int64_t piece = 0, fragment = 0;
    for (int64_t j = 0; j < t.jobs; j++) {
        const int32_t *job = t.values + t.job_table + 8 * j;
        ASSERT_EQ(piece, job[0]);
        ASSERT_EQ(fragment, job[2]);
        ASSERT_GE(job[1], 1);
        ASSERT_LE(job[1], f.x_pieces);
        ASSERT_LE(job[5], f.y_pieces);
        ASSERT_EQ(8 * job[5], job[6]);
        ASSERT_LE(job[6], 16 * f.high * job[7]);
        const int32_t warps = TARTAN_CUDA_JOB_WARPS / job[7], room = TARTAN_CUDA_JOB_SUMS / f.high;
        for (int32_t w = 0; w < warps; w++) ASSERT_LE(job[3] * (w + 1) / warps - job[3] * w / warps, room);
        for (int32_t i = 0; i < job[3]; i++) {
            const int32_t *one = t.values + t.fragment_table + 2 * (fragment + i);
            const int32_t number = one[0] / f.x_bytes, at = one[0] % f.x_bytes / 16;
            ASSERT_LT(number, job[1]);
            const int32_t *from = t.values + t.piece_table + 4 * (piece + number);
            const int32_t last = (f.rows - 1) * f.pixel[0] * f.pitch + (f.cols - 1) * f.pixel[1];
            ASSERT_LT(at % f.pitch + (f.cols - 1) * f.pixel[1], f.box_cols);
            ASSERT_LT(at + last, f.box_rows * f.pitch);
            for (int32_t c = 0; c < 8; c++)
                for (int32_t r = 0; r < job[6]; r++) {
                    const int64_t weight = one[1] + r * p.rows.stride + c * p.cols.stride;
                    const int64_t id = weight / block, inside = weight % block;
                    const bool by_row = p.cols.stride == 1;
                    const int64_t row = l->block_rows[id] * p.rows.edge +
                                        (by_row ? inside / p.cols.edge : inside % p.rows.edge);
                    const int64_t column = l->block_cols[id] * p.cols.edge +
                                           (by_row ? inside % p.cols.edge : inside / p.rows.edge);
                    const int64_t tap = column / slots;
                    ASSERT_EQ(job[4] + r, row);
                    ASSERT_EQ(from[0] + c, column % slots);
                    ASSERT_EQ(tap / p.taps.kernel[2] / p.taps.kernel[1] * p.taps.dilation[0], from[1]);
                    ASSERT_EQ(tap / p.taps.kernel[2] % p.taps.kernel[1] * p.taps.dilation[1],
                              from[2] + at / f.pitch * f.box_step[0]);
                    ASSERT_EQ(tap % p.taps.kernel[2] * p.taps.dilation[2],
                              from[3] + at % f.pitch * f.box_step[1]);
                    seen[(size_t)weight]++;
                }
        }
        piece += job[1], fragment += job[3];
    }
    EXPECT_EQ(t.pieces, piece);
    EXPECT_EQ(t.fragments, fragment);
    for (int64_t weight = 0; weight < (int64_t)seen.size(); weight++) {
        const int64_t id = weight / block, inside = weight % block;
        const bool by_row = p.cols.stride == 1;
        const int64_t row =
            l->block_rows[id] * p.rows.edge + (by_row ? inside / p.cols.edge : inside % p.rows.edge);
        const int64_t col =
            (l->block_cols[id] * p.cols.edge + (by_row ? inside % p.cols.edge : inside / p.rows.edge)) %
            slots;
        ASSERT_EQ(row < p.out.channels && col < p.in.channels, seen[(size_t)weight]) << row << " " << col;
    }
}

} // namespace

TEST(CudaConvGradient, TablesHaveEveryWeightOnce) {
    for (const char *options :
         {"kernel=3x3 padding=1", "kernel=5x2 dilation=2x3", "kernel=1x1", "kernel=3x3 dilation=9 padding=9",
          "kernel=3x3 stride=2 padding=1", "kernel=3x3 stride=5x3 padding=1"})
        for (auto edges : std::vector<std::pair<int64_t, int64_t>>{
                 {8, 8}, {16, 16}, {64, 64}, {32, 8}, {24, 40}, {128, 32}, {96, 16}})
            for (int32_t order : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}) {
                SCOPED_TRACE(std::string(options) + " " + std::to_string(edges.first));
                expect_all_weights(
                    FilterOperands({128, 120, edges.first, edges.second, 1}, options, {40, 30}, 0.5, order));
                if (HasFailure()) return;
            }
    expect_all_weights(FilterOperands({64, 64, 16, 16, 1}, "kernel=7 padding=3", {100}));
    expect_all_weights(FilterOperands({64, 64, 16, 16, 1}, "kernel=3x3x3 padding=1", {5, 9, 12}));
    expect_all_weights(FilterOperands({64, 64, 16, 16, 1}, "kernel=9x9x9 padding=4", {20, 20, 20}));
    expect_all_weights(
        FilterOperands({64, 9 * 64, 16, 16, 1}, "kernel=3x3 padding=1 per_tap=1")); // blocks by tap
    expect_all_weights(FilterOperands({72, 40, 16, 16, 1}));                        // ragged
    expect_all_weights(FilterOperands({64, 64, 16, 16, 1}, "kernel=1x1", {40, 30}, 0.05));
}

TEST(CudaConvGradient, TablesOfNoMemoryAreNone) {
    const FilterOperands x;
    const tartan_cuda_conv_filter_gradient p = x.problem();
    const tartan_cuda_conv_job_form f = x.form();
    tartan_cuda_conv_jobs t = {};
    BRUTAL(tartan_cuda_conv_jobs_make(&tartan_i_host, &p, &f, &t), tartan_i_host.free(t.values));
}

TEST(CudaConvGradient, TilesFitTheImage) {
    for (int64_t edge : {7, 14, 28, 56, 64, 100}) {
        const FilterOperands x({64, 64, 64, 64, 1}, "kernel=3x3 padding=1", {edge, edge});
        const tartan_cuda_conv_filter_gradient p = x.problem();
        const tartan_cuda_conv_job_form f = x.form();
        EXPECT_LE(0.75, tartan_cuda_conv_job_share(&p, &f)) << edge;
        EXPECT_FALSE(f.per_tap);
    }
    EXPECT_FALSE(FilterOperands({64, 64, 64, 64, 1}, "kernel=3x3 padding=1 stride=2").form().per_tap);
    EXPECT_TRUE(
        FilterOperands({64, 64, 64, 64, 1}, "kernel=3x3 padding=40 dilation=40", {64, 64}).form().per_tap);
    EXPECT_EQ(1, FilterOperands({64, 64, 64, 64, 1}, "kernel=3 padding=1", {1000}).form().rows);
    EXPECT_EQ(1, FilterOperands({64, 64, 16, 16, 1}).form().high);
    EXPECT_EQ(2, FilterOperands({64, 64, 32, 16, 1}).form().high);
}

// Tiles begin where windows do.
TEST(CudaConvGradient, TilesFitWindows) {
    FilterOperands x({64, 64, 64, 64, 1}, "kernel=3x3 padding=1", {80, 96});
    const Layout active = random_layout({5, 6, 1, 1, 2}, 0.5, 1);
    x.op.active = active.get();
    x.op.windows.dims = 2;
    x.op.windows.count[0] = 5, x.op.windows.count[1] = 6;
    for (int d = 0; d < 2; d++) x.op.windows.size[d] = x.op.windows.stride[d] = 16;
    x.op.windows.offset[0] = 3, x.op.windows.offset[1] = -16;
    const tartan_cuda_conv_filter_gradient p = x.problem();
    const tartan_cuda_conv_job_form f = x.form();
    expect_fits(p, f);
    EXPECT_EQ(0, 16 % f.rows);
    EXPECT_EQ(0, 16 % f.cols);
    EXPECT_EQ(0, (3 - f.origin[0]) % f.rows);
    EXPECT_EQ(0, f.origin[1]);
    EXPECT_EQ(1, tartan_cuda_conv_job_share(&p, &f));
}

// The shares fill the SMs, unless their sums would cost more than they save.
TEST(CudaConvGradient, SplitsFillTheProcessors) {
    const tartan_cuda_conv_job_form f = FilterOperands().form();
    const int32_t some = tartan_cuda_conv_job_splits(&f, 20, 1000, 1 << 18, 132);
    EXPECT_LE(200, 20 * some);
    EXPECT_GE(264, 20 * some);
    EXPECT_EQ(1, tartan_cuda_conv_job_splits(&f, 264, 1000, 1 << 22, 132));
    EXPECT_EQ(1, tartan_cuda_conv_job_splits(&f, 1, 1, 64, 132));
    EXPECT_EQ(1, tartan_cuda_conv_job_splits(&f, 4, 0, 64, 132));
    EXPECT_GE(4, tartan_cuda_conv_job_splits(&f, 1, 4, 64, 132));
}

// ---- The choice ----

TEST(CudaConvGradient, TensorCoresTakeAllDtypes) {
    const FilterOperands x({128, 96, 32, 16, 1}, "kernel=3x3 padding=1",
                           {120, 90}); // more positions than kernels of few take
    tartan_cuda_conv_filter_gradient p = x.problem();
    EXPECT_EQ(kWgmma, chosen(p));
    EXPECT_EQ(kMma, chosen(p, kAmpere));
    EXPECT_EQ(kMma, chosen(p, kBlackwell));
    EXPECT_EQ(kPlain, chosen(p, kTiny));
    p.dtype = p.s_dtype = p.in.dtype = p.out.dtype = TARTAN_F16;
    EXPECT_EQ(kWgmma, chosen(p));
    p.s_dtype = TARTAN_F32;
    EXPECT_EQ(kWgmma, chosen(p));
    p.dtype = TARTAN_F32;
    EXPECT_EQ("conv_filter_gradient_pieces", chosen(p));
}

TEST(CudaConvGradient, MmaRefuses) {
    const FilterOperands operands;
    const tartan_cuda_conv_filter_gradient p = operands.problem();
    EXPECT_EQ("", refusal(p));
    EXPECT_EQ("needs more shared memory than a CTA may have", refusal(p, kTiny));
    const auto with = [&](const std::function<void(tartan_cuda_conv_filter_gradient &)> &change) {
        tartan_cuda_conv_filter_gradient q = p;
        change(q);
        return refusal(q);
    };
    const int32_t list[128] = {};
    tartan_i_channels sets = *p.rows.channels;
    sets.of = list;
    tartan_layout huge = *p.layout, windows = *p.layout;
    huge.blocks = INT64_C(1) << 31;
    windows.grid_rows = windows.grid_cols = 1 << 17;
    EXPECT_EQ("only for float16 and bfloat16", with([](auto &q) { q.dtype = TARTAN_F32; }));
    EXPECT_EQ("only for images of one dtype", with([](auto &q) { q.in.dtype = TARTAN_F32; }));
    EXPECT_EQ("only for images of one dtype", with([](auto &q) { q.out.dtype = TARTAN_F32; }));
    EXPECT_EQ("only for channels without sets", with([&](auto &q) { q.rows.channels = &sets; }));
    EXPECT_EQ("only for channels without sets", with([&](auto &q) { q.cols.channels = &sets; }));
    EXPECT_EQ("only for blocks whose edges are multiples of 8", with([](auto &q) { q.rows.edge = 12; }));
    EXPECT_EQ("only for blocks whose edges are multiples of 8", with([](auto &q) { q.cols.edge = 4; }));
    EXPECT_EQ("only for multiples of 8 channels", with([](auto &q) { q.in.channels = 92; }));
    EXPECT_EQ("only for multiples of 8 channels", with([](auto &q) { q.out.channels = 126; }));
    EXPECT_EQ("an image has no elements", with([](auto &q) { q.in.size[1] = 0; }));
    EXPECT_EQ("an image has no elements", with([](auto &q) { q.out.size[2] = 0; }));
    EXPECT_EQ("an image has no elements", with([](auto &q) { q.entries = 0; }));
    EXPECT_EQ("only for images of fewer than 2^30 pixels a side",
              with([](auto &q) { q.in.size[1] = (1 << 30) + 1; }));
    EXPECT_EQ("only for filters of fewer than 2^31 weights", with([&](auto &q) { q.layout = &huge; }));
    EXPECT_EQ("only for fewer than 2e9 windows", with([&](auto &q) { q.active.layout = &windows; }));
    EXPECT_EQ("only for fewer than 2e9 tiles", with([](auto &q) {
                  q.out.size[1] = q.out.size[2] = 1 << 20;
                  q.entries = 1 << 10;
              }));
}

TEST(CudaConvGradient, RatesFollowTheShareOfTheTiles) {
    const auto rate = [](const FilterOperands &x) {
        const tartan_cuda_conv_filter_gradient p = x.problem();
        return tartan_cuda_conv_filter_gradient_mma_rate(&p);
    };
    const FilterOperands whole({64, 64, 64, 64, 1}, "kernel=3x3 padding=1", {56, 56}),
        tiny({64, 64, 64, 64, 1}, "kernel=3x3 padding=1", {3, 3}),
        narrow({64, 64, 8, 8, 1}, "kernel=3x3 padding=1", {56, 56});
    EXPECT_LT(rate(tiny), rate(whole));
    EXPECT_LT(rate(narrow), rate(whole));
}
