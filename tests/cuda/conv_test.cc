// SPDX-License-Identifier: Apache-2.0
// Convolution: its problems, the tables that conv_wgmma follows, the choice among kernels and their refusals.
#include "conv_operands.h"

#include <cstring>
#include <functional>

using namespace tartan_test;

namespace {

const char *const kWgmma = "conv_wgmma", *const kPlain = "conv_plain";

std::string refusal(const tartan_cuda_conv &p, const tartan_cuda_chip &chip = kHopper) {
    const char *why = tartan_cuda_conv_wgmma_refuses(&chip, &p);
    return why == nullptr ? "" : why;
}

// The room of a step's weights as the kernel fills it: of each factor, which weight is there, or -1; of their first parts.
using Room = std::vector<int64_t>;
Room fill_room(const tartan_cuda_conv &p, const tartan_cuda_conv_form &f, const tartan_cuda_conv_steps &s,
               int64_t step) {
    Room room((size_t)(TARTAN_CUDA_CONV_ITEM_BYTES * TARTAN_CUDA_CONV_ITEMS / f.element), -1);
    const int64_t unit = 16 / f.element; // neighbouring channels
    const int64_t count = f.in_place ? f.boxes : TARTAN_CUDA_CONV_ITEMS * TARTAN_CUDA_CONV_SOURCES;
    const int64_t size = (int64_t)room.size() / count;
    const bool slots_first = p.from_slots.stride != 1;
    for (int64_t i = 0; i < count; i++) {
        if (!f.in_place) {
            const int32_t source = s.values[s.sources + count * step + i];
            for (int64_t r = 0; r < 8 && source >= 0; r++)
                for (int64_t c = 0; c < unit; c++)
                    room[(size_t)(size * i + unit * r + c)] =
                        unit * (int64_t)source + r * p.to_slots.stride + c * p.from_slots.stride;
            continue;
        }
        const int32_t box =
            s.values[s.step_table + TARTAN_CUDA_CONV_STEP * step + TARTAN_CUDA_CONV_FIRST_BOX + i];
        const int64_t width = slots_first ? p.to_slots.edge : p.from_slots.edge,
                      lines = p.layout->blocks * (slots_first ? p.from_slots.edge : p.to_slots.edge);
        const int64_t line = box / TARTAN_CUDA_CONV_BOX_PARTS, part = box % TARTAN_CUDA_CONV_BOX_PARTS;
        for (int64_t e = 0; e < size && line < lines; e++)
            room[(size_t)(size * i + e)] =
                (line + e / f.box_width) * width + part * f.box_width + e % f.box_width;
    }
    return room;
}

// Where a matrix descriptor finds the weight of a slot and a channel of an item, in factors from the beginning of the room.
size_t place_in_room(const tartan_cuda_conv_weights &w, uint32_t element, uint32_t item, uint32_t slot,
                     uint32_t channel) {
    const uint32_t first = item % 2 * w.next + item / 2 % 2 * w.second + item / 4 * 512,
                   line = w.swizzle / element, unit = 16 / element;
    if (w.swizzle == 0)
        return unit * (first + slot / 8 * w.stride + channel / unit * w.leading) + slot % 8 * unit +
               channel % unit;
    if (w.slots_first)
        return unit * (first + slot / line * w.leading + channel / 8 * w.stride) + channel % 8 * line +
               slot % line;
    return unit * (first + slot / 8 * w.stride) + slot % 8 * line + channel;
}

// The pixel of an item's stage that the first position of a phase meets at a tap, by the definition of a convolution; -1 if the stage
// has none.
int64_t pixel_of(const tartan_cuda_conv &p, const tartan_cuda_conv_form &f, const int32_t *stage, int64_t tap,
                 const int32_t *phase) {
    int64_t rows[TARTAN_I_DIMS]; // from the stage's first pixel, in steps
    for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
        const int64_t stride = p.taps.stride[d],
                      shift = tap % p.taps.kernel[d] * p.taps.dilation[d] - p.taps.before[d];
        tap /= p.taps.kernel[d];
        // Of `from`: its position, or back, what its position times the stride is.
        const int64_t from = p.adjoint ? phase[d] - shift : shift, first = stage[1 + d];
        if (p.adjoint ? from % stride != 0 : (from - first) % stride != 0) return -1;
        rows[d] = p.adjoint ? from / stride - first : (from - first) / stride;
        if (rows[d] < 0) return -1;
    }
    return rows[0] == 0 ? rows[1] * f.pitch + rows[2] : -1;
}

// Follows the tables as the kernel does: which weight each of them multiplies by which channel at which tap. Every stored
// weight must come exactly once.
void expect_all_products(const Operands &x) {
    const tartan_cuda_conv p = x.problem();
    const tartan_cuda_conv_form f = x.form();
    const tartan_cuda_conv_weights weights = tartan_cuda_conv_weights_of(&p, &f);
    tartan_cuda_conv_steps s;
    ASSERT_OK(tartan_cuda_conv_steps_make(&tartan_i_host, &p, &f, &s));
    const tartan_layout *l = p.layout;
    const int64_t block = l->shape.block_rows * l->shape.block_cols;
    const int64_t slots = tartan_i_conv_grid(x.op.conv) * l->shape.block_cols;
    const bool by_rows = x.filter.block_order == TARTAN_ROW_MAJOR;
    const auto row_of = [&](int64_t weight) {
        const int64_t at = weight % block;
        return l->block_rows[weight / block] * l->shape.block_rows +
               (by_rows ? at / l->shape.block_cols : at % l->shape.block_rows);
    };
    const auto col_of = [&](int64_t weight) {
        const int64_t at = weight % block;
        return l->block_cols[weight / block] * l->shape.block_cols +
               (by_rows ? at % l->shape.block_cols : at / l->shape.block_rows);
    };
    std::vector<int> seen((size_t)(l->blocks * block));
    const int32_t *v = s.values;
    const std::unique_ptr<int32_t, void (*)(void *)> owned(s.values, [](void *p) { tartan_i_host.free(p); });
    int64_t stage = -1, ended = 0,
            held = 0; /* stages that the step before has not released, from this one on */
    int32_t spread[TARTAN_I_DIMS];
    for (int d = 0; d < TARTAN_I_DIMS; d++) spread[d] = (int32_t)tartan_cuda_conv_spread(&p, d);
    const int32_t groups = (int32_t)((p.to_slots.grid * p.to_slots.edge + 63) / 64);
    ASSERT_EQ(s.lists, groups * f.splits * tartan_cuda_conv_spreads(&p));
    for (int32_t g = 0; g < s.lists; g++) {
        const tartan_cuda_conv_part part = tartan_cuda_conv_part_of(g, f.splits, groups, spread);
        ASSERT_EQ(v[s.stages_of + g], stage + 1);
        ASSERT_EQ(ended, stage + 1);
        for (int64_t step = v[s.steps_of + g]; step < v[s.steps_of + g + 1]; step++) {
            const int32_t *header = v + s.step_table + TARTAN_CUDA_CONV_STEP * step,
                          marks = header[TARTAN_CUDA_CONV_MARKS];
            const Room room = fill_room(p, f, s, step);
            /* The kernel holds the stages of the step before until it has those of this one. */
            if (marks >> TARTAN_CUDA_CONV_DRAINS & 1 || step == v[s.steps_of + g]) held = ended;
            int64_t last = stage;
            for (int32_t i = 0; i < TARTAN_CUDA_CONV_ITEMS; i++) last += marks >> i & 1;
            ASSERT_LE(last + 1 - held, f.stages);
            held = ended;
            const bool is_short = marks >> TARTAN_CUDA_CONV_SHORT & 1;
            for (int32_t i = 0; i < TARTAN_CUDA_CONV_ITEMS; i++) {
                stage += marks >> i & 1;
                const int32_t *table = v + s.stage_table + TARTAN_CUDA_CONV_STAGE * stage;
                const int64_t at = (int64_t)((uint32_t)header[i / 2] >> 16 * (i % 2) & 0xffff) * 16;
                if (i >= TARTAN_CUDA_CONV_ITEMS / f.parts) break; // room of second parts
                for (int32_t c = 0; c < TARTAN_CUDA_CONV_ITEM_SPAN / f.element; c++) {
                    const int64_t here = at + f.element * c, pixel = here / f.span;
                    const int64_t channel = table[0] + here % f.span / f.element;
                    ASSERT_LT(pixel, f.box_cols * f.box_rows);
                    for (int32_t slot = 0; slot < TARTAN_CUDA_CONV_GROUP; slot++) {
                        const int64_t weight = room[place_in_room(weights, (uint32_t)f.element, (uint32_t)i,
                                                                  (uint32_t)slot, (uint32_t)c)];
                        if (weight < 0) continue;
                        ASSERT_TRUE(!is_short || i < TARTAN_CUDA_CONV_ITEMS / 2);
                        const int64_t row = row_of(weight), column = col_of(weight), tap = column / slots;
                        ASSERT_EQ(64 * part.group + slot, p.adjoint ? column % slots : row);
                        ASSERT_EQ(channel, p.adjoint ? row : column % slots);
                        ASSERT_EQ(pixel_of(p, f, table, tap, part.phase), pixel);
                        seen[(size_t)weight]++;
                    }
                }
            }
            ended += marks >> TARTAN_CUDA_CONV_ENDS & 15;
        }
    }
    EXPECT_EQ(s.stages, stage + 1);
    for (int64_t weight = 0; weight < (int64_t)seen.size(); weight++) {
        const int64_t row = row_of(weight), col = col_of(weight) % slots;
        const bool exists = row < x.op.conv->rows.count && col < x.op.conv->cols.count;
        ASSERT_EQ(exists, seen[(size_t)weight]) << row << " " << col;
    }
}

} // namespace

// ---- Problems ----

TEST(CudaConv, ProblemsHaveWhatTheOperandsHave) {
    Operands x;
    const tartan_cuda_conv p = x.problem();
    EXPECT_EQ(2, p.entries);
    EXPECT_EQ(9, p.taps.taps);
    EXPECT_EQ(96, p.from.channels);
    EXPECT_EQ(128, p.to.channels);
    EXPECT_EQ(1, p.to.size[0]);
    EXPECT_EQ(40, p.to.size[1]);
    EXPECT_EQ(30, p.to.size[2]);
    EXPECT_EQ(96, p.from.step[2]);
    EXPECT_EQ(1, p.from.channel);
    EXPECT_EQ(16, p.from_slots.edge);
    EXPECT_EQ(32, p.to_slots.edge);
    EXPECT_EQ(6, p.from_slots.grid);
    EXPECT_EQ(4, p.to_slots.grid);
    EXPECT_EQ(16, p.to_slots.stride);
    EXPECT_EQ(1, p.from_slots.stride);
    EXPECT_FALSE(p.nothing);
    x.turn();
    const tartan_cuda_conv q = x.problem();
    EXPECT_TRUE(q.adjoint);
    EXPECT_EQ(32, q.from_slots.edge);
    EXPECT_EQ(1, q.to_slots.stride);
    x.to.shape[0] = x.from.shape[0] = 0;
    EXPECT_TRUE(x.problem().nothing);
}

TEST(CudaConv, OneTapMakesOneLine) {
    Operands x({64, 96, 32, 16, 1}, "kernel=1x1", {40, 30});
    tartan_cuda_conv p = x.problem();
    EXPECT_EQ(1, p.entries);
    for (const tartan_cuda_image &i : {p.from, p.to}) {
        EXPECT_EQ(1, i.size[1]);
        EXPECT_EQ(2 * 40 * 30, i.size[2]);
        EXPECT_EQ(i.channels, i.step[2]);
    }
    x.from.strides[0] += 64; // a gap after each image
    p = x.problem();
    EXPECT_EQ(2, p.entries);
    EXPECT_EQ(40 * 30, p.to.size[2]);
    x.to.strides[2] += 64; // and after each row
    p = x.problem();
    EXPECT_EQ(40, p.to.size[1]);
    EXPECT_EQ(30, p.from.size[2]);
    for (const char *options : {"kernel=3x3 padding=1", "kernel=1x1 stride=2", "kernel=1x1 padding=1"}) {
        const Operands other({64, 96, 32, 16, 1}, options, {40, 30});
        EXPECT_EQ(2, other.problem().entries) << options;
    }
}

// A line must not be longer than a side of an image may be, or the kernel would refuse it.
TEST(CudaConv, OneTapMakesNoLineThatIsTooLong) {
    Operands x({64, 96, 32, 16, 1}, "kernel=1x1", {40, 30});
    x.from.shape[0] = x.to.shape[0] = 1 << 20;
    const tartan_cuda_conv p = x.problem();
    EXPECT_EQ(1 << 20, p.entries);
    EXPECT_EQ(40 * 30, p.to.size[2]);
    EXPECT_EQ(kWgmma, x.asked().chosen(kHopper));
}

TEST(CudaConv, WindowsBelongToTheLastDimensions) {
    Operands x;
    const Layout active = random_layout({3, 2, 1, 1, 2}, 1, 1);
    x.op.active = active.get();
    x.op.windows.dims = 2;
    x.op.windows.count[0] = 3, x.op.windows.count[1] = 2;
    x.op.windows.size[0] = 16, x.op.windows.size[1] = 8;
    x.op.windows.stride[0] = 17, x.op.windows.stride[1] = 9;
    x.op.windows.offset[0] = -1, x.op.windows.offset[1] = 2;
    const tartan_cuda_conv p = x.problem();
    const int64_t expected[4][3] = {{1, 3, 2}, {1, 16, 8}, {1, 17, 9}, {0, -1, 2}};
    for (int d = 0; d < 3; d++) {
        EXPECT_EQ(expected[0][d], p.active.count[d]);
        EXPECT_EQ(expected[1][d], p.active.size[d]);
        EXPECT_EQ(expected[2][d], p.active.stride[d]);
        EXPECT_EQ(expected[3][d], p.active.offset[d]);
    }
    EXPECT_FALSE(p.active.dynamic);
    x.op.windows.size[0] = x.op.windows.stride[0] = INT64_C(1) << 30;
    EXPECT_EQ(41, x.problem().active.size[1]); /* from position -1 to the end */
    const Layout none = random_layout({3, 2, 1, 1, 2}, 0, 1);
    x.op.active = none.get();
    EXPECT_TRUE(x.problem().nothing);
    x.op.active_from = true;
    EXPECT_FALSE(x.problem().nothing);
    EXPECT_TRUE(x.problem().active_from);
    x.op.active = nullptr;
    EXPECT_FALSE(x.problem().active_from);
}

// ---- Tables ----

TEST(CudaConv, TablesHaveEveryWeightOnce) {
    for (bool back : {false, true})
        for (const char *options :
             {"kernel=3x3 padding=1", "kernel=5x2 dilation=2x3", "kernel=1x1", "kernel=1x2",
              "kernel=3x3 dilation=9 padding=9", "kernel=3x3 stride=2 padding=1", "kernel=1x1 stride=2x3",
              "kernel=5x4 stride=2x3 dilation=3x2 padding=4"})
            for (auto edges : std::vector<std::pair<int64_t, int64_t>>{{8, 8},
                                                                       {16, 16},
                                                                       {32, 32},
                                                                       {64, 64},
                                                                       {32, 8},
                                                                       {24, 40},
                                                                       {128, 32},
                                                                       {32, 64},
                                                                       {64, 96}}) {
                const bool whole = edges.first % 32 == 0 && edges.second % 32 == 0; /* in place */
                Operands x({whole ? 384 : 128, whole ? 192 : 120, edges.first, edges.second, 1}, options);
                if (back) x.turn();
                for (int32_t order : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR})
                    for (int kind = 0; kind < 3; kind++) { // 16 bits, f32 in two parts, tf32
                        x.filter.block_order = order;
                        x.set_dtype(kind == 0 ? TARTAN_BF16 : TARTAN_F32);
                        x.tf32 = kind == 2;
                        SCOPED_TRACE(std::string(options) + " " + std::to_string(edges.first) + " " +
                                     std::to_string(back) + " " + std::to_string(order) + " " +
                                     std::to_string(kind));
                        expect_all_products(x);
                        if (HasFailure()) return;
                    }
            }
    expect_all_products(Operands({128, 120, 64, 64, 1}));
    expect_all_products(Operands({64, 64, 64, 64, 1}, "kernel=7x7 padding=9 dilation=3", {64, 64}));
    expect_all_products(Operands({64, 64, 16, 16, 1}, "kernel=7 padding=3", {100}));
    expect_all_products(Operands({64, 64, 16, 16, 1}, "kernel=3x3x3 padding=1", {5, 9, 12}));
    Operands apart({96, 6 * 64, 32, 16, 1}, "kernel=2x3 padding=1 per_tap=1");
    apart.from.shape[1] = 64;
    expect_all_products(apart);
    apart.turn();
    expect_all_products(apart);
}

TEST(CudaConv, TablesOfNoMemoryAreNone) {
    for (bool back : {false, true}) {
        Operands x({128, 96, 32, 16, 1}, back ? "kernel=3x3 padding=1 stride=2" : "kernel=3x3 padding=1");
        if (back) x.turn(), x.set_dtype(TARTAN_F32);
        const tartan_cuda_conv p = x.problem();
        const tartan_cuda_conv_form f = x.form();
        tartan_cuda_conv_steps s = {};
        BRUTAL(tartan_cuda_conv_steps_make(&tartan_i_host, &p, &f, &s), tartan_i_host.free(s.values));
    }
}

// ---- The choice ----

TEST(CudaConv, HopperTakesTheTensorCores) {
    const Operands x;
    const Asked<tartan_cuda_conv> a = x.asked();
    EXPECT_EQ(kWgmma, a.chosen(kHopper));
    EXPECT_EQ("conv_pieces", a.chosen(kAmpere));
    EXPECT_EQ("conv_pieces", a.chosen(kBlackwell));
}

// The kinds of convolutions whose results conv_halves_test.cc compares on a device.
TEST(CudaConv, TensorCoresTakeAllKernelsAndStrides) {
    for (const char *options :
         {"kernel=1x1", "kernel=1x1 stride=3x2", "kernel=3x3 stride=2 padding=1", "kernel=2x2",
          "kernel=3x3 dilation=9 padding=9", "kernel=2x3 padding=1 per_tap=1"}) {
        SCOPED_TRACE(options);
        const bool apart = std::strstr(options, "per_tap") != nullptr;
        Operands x({128, apart ? 6 * 96 : 96, 32, 16, 1}, options, {120, 140});
        x.from.shape[1] = 96;
        for (int32_t dtype : {TARTAN_BF16, TARTAN_F16}) {
            x.filter.dtype = x.from.dtype = x.to.dtype = dtype;
            EXPECT_EQ(kWgmma, x.asked().chosen(kHopper));
        }
        x.turn();
        EXPECT_EQ(kWgmma, x.asked().chosen(kHopper));
    }
}

TEST(CudaConv, TensorCoresTakeF32WhereTilesAreManyOrListsLong) {
    const auto chosen = [](int64_t channels, const char *options, int64_t side, bool tf32, bool back) {
        Operands x({channels, channels, 32, 32, 1}, options, {side, side}, 0.25);
        x.set_dtype(TARTAN_F32);
        x.from.shape[0] = x.to.shape[0] = 16;
        x.tf32 = tf32;
        if (back) x.turn();
        return x.asked().chosen(kHopper);
    };
    const char *const every = "kernel=3x3 padding=1", *const second = "kernel=3x3 padding=1 stride=2";
    for (bool tf32 : {false, true}) {
        EXPECT_EQ(kWgmma, chosen(128, every, 56, tf32, false));
        EXPECT_EQ(kWgmma, chosen(128, every, 56, tf32, true));
        EXPECT_EQ(kWgmma, chosen(512, second, 14, tf32, true));
        EXPECT_EQ("conv_pieces", chosen(512, second, 14, tf32, false));
        EXPECT_EQ(kWgmma, chosen(512, every, 14, tf32, false));
        EXPECT_EQ(kWgmma, chosen(128, second, 56, tf32, false));
    }
}

TEST(CudaConv, WgmmaRefuses) {
    const Operands operands;
    const tartan_cuda_conv p = operands.problem();
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
    tartan_layout empty = *p.layout, huge = *p.layout;
    empty.blocks = 0, huge.blocks = INT64_C(1) << 31;
    EXPECT_EQ("only for float32, float16 and bfloat16", with([](auto &q) { q.dtype = TARTAN_F64; }));
    EXPECT_EQ("only for float32, float16 and bfloat16", with([](auto &q) { q.dtype = TARTAN_F8E4M3; }));
    EXPECT_EQ("", with([](auto &q) { q.dtype = q.from.dtype = q.to.dtype = TARTAN_F32; }));
    EXPECT_EQ("only for images of the filter's dtype", with([](auto &q) { q.from.dtype = TARTAN_F32; }));
    EXPECT_EQ("", with([](auto &q) { q.adjoint = true, q.taps.stride[1] = q.taps.stride[2] = 4; }));
    EXPECT_EQ("input gradients only of strides with a product up to 16",
              with([](auto &q) { q.adjoint = true, q.taps.stride[1] = 17; }));
    EXPECT_EQ("only for strides up to 8", with([](auto &q) { q.taps.stride[2] = 9; }));
    EXPECT_EQ("", with([](auto &q) { q.taps.stride[1] = 8, q.taps.stride[0] = 9; }));
    EXPECT_EQ("", with([](auto &q) { q.per_tap = true; }));
    EXPECT_EQ("", with([](auto &q) { q.taps.kernel[1] = q.taps.kernel[2] = 1; }));
    EXPECT_EQ("", with([](auto &q) { q.taps.dilation[1] = q.taps.dilation[2] = 12; }));
    EXPECT_EQ("only for channels without sets", with([&](auto &q) { q.to_slots.channels = &sets; }));
    EXPECT_EQ("only for channels without sets", with([&](auto &q) { q.from_slots.channels = &sets; }));
    EXPECT_EQ("only for blocks whose edges are multiples of 8", with([](auto &q) { q.to_slots.edge = 12; }));
    EXPECT_EQ("only for blocks whose edges are multiples of 8", with([](auto &q) { q.from_slots.edge = 4; }));
    EXPECT_EQ("only for multiples of 8 channels to read", with([](auto &q) { q.from.channels = 92; }));
    EXPECT_EQ("", with([](auto &q) { q.to.channels = 126; }));
    EXPECT_EQ("the layout has no blocks", with([&](auto &q) { q.layout = &empty; }));
    EXPECT_EQ("x has no elements", with([](auto &q) { q.from.size[1] = 0; }));
    EXPECT_EQ("only for images of fewer than 2^30 pixels a side",
              with([](auto &q) { q.to.size[1] = (1 << 30) + 1; }));
    EXPECT_EQ("the filter's address is no multiple of 16 bytes",
              with([](auto &q) { q.values = (const char *)q.values + 2; }));
    EXPECT_EQ("only for filters of less than 32 GiB", with([&](auto &q) { q.layout = &huge; }));
    tartan_layout windows = *p.layout;
    windows.grid_rows = windows.grid_cols = 1 << 17;
    EXPECT_EQ("only for fewer than 2e9 windows", with([&](auto &q) { q.active.layout = &windows; }));
    EXPECT_EQ("input gradients with strides only of whole images", with([&](auto &q) {
                  q.active.layout = &windows;
                  q.adjoint = true, q.taps.stride[1] = 2;
              }));
    EXPECT_EQ("only for fewer than 2e9 tiles", with([](auto &q) {
                  q.to.size[1] = q.to.size[2] = 1 << 20;
                  q.entries = 1 << 10;
              }));
}

TEST(CudaConv, RatesFollowTheShareOfTheMergedLists) {
    const Operands operands({128, 128, 16, 16, 1}, "kernel=3x3 padding=1", {64, 64});
    Asked<tartan_cuda_conv> a = operands.asked();
    for (auto &direction : a.p.figures.share)
        for (int i = 0; i < TARTAN_CUDA_SHARES; i++) direction[i] = 1;
    const double scattered = a.rate(kWgmma);
    a.p.figures.share[0][2] = 4; /* every line of the group has the same blocks */
    EXPECT_NEAR(4 * scattered, a.rate(kWgmma), 1e-9);
    EXPECT_LT(a.rate(kPlain), scattered);
}
