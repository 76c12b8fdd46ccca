// SPDX-License-Identifier: Apache-2.0
// The tables that conv_pieces and its like follow: every weight is found where the kernels look for it, and pieces lead to the
// positions that taps join. What the kernels refuse.
#include "conv_operands.h"

#include <map>
#include <set>

extern "C" {
#include "conv_pieces.h"
}

using namespace tartan_test;

namespace {

const tartan_cuda_conv_piece_costs kCosts = {0, {50, 60, 70, 80}, 300};

struct Tables {
    tartan_cuda_conv_piece_lists made = {};
    tartan_cuda_conv p;
    Tables(const Operands &x, int32_t piece, int32_t step, int32_t group, bool packed) : p(x.problem()) {
        const tartan_cuda_conv_lines lines = {p.layout,
                                              &p.taps,
                                              &p.from_slots,
                                              &p.to_slots,
                                              p.adjoint,
                                              piece,
                                              step,
                                              step,
                                              group == 0 ? &kCosts : nullptr,
                                              group,
                                              packed,
                                              0,
                                              0};
        EXPECT_OK(tartan_cuda_conv_pieces_make(&tartan_i_host, &lines, &made));
    }
    ~Tables() { tartan_i_host.free(made.values); }
    const int32_t *piece(int64_t at) const { return made.values + 4 * at; }
    const int32_t *lists() const { return made.values + made.list_table; }
    const int32_t *of_block(int64_t id) const { return made.values + made.block_table + id * made.form.each; }
    const int32_t *steps() const { return made.values + made.block_table; }
    // Of a step: its first slot in its blocks, and the blocks.
    const int32_t *blocks(int64_t step) const {
        return (const int32_t *)(entries() + p.layout->blocks * made.form.each) +
               step * (1 + made.form.lines);
    }
    const tartan_cuda_conv_piece_entry *entries() const {
        return (const tartan_cuda_conv_piece_entry *)(made.values + made.entry_table);
    }
};

// The list that has the piece `at`.
int64_t list_of(const Tables &t, int64_t at) {
    int64_t list = 0;
    while (t.lists()[list + 1] <= at) list++;
    return list;
}

// The step of piece `at` has, once, what block `id` has in it; `begin`, `row`: first slots of the block.
void expect_entry(const Tables &packed, int64_t at, int64_t id, int64_t begin, int64_t row, int64_t piece) {
    const tartan_cuda_conv_piece_form &f = packed.made.form;
    int found = 0;
    for (int32_t e = packed.steps()[at / f.step]; e < packed.steps()[at / f.step + 1]; e++) {
        const tartan_cuda_conv_piece_entry &entry = packed.entries()[e];
        found += entry.block == id && entry.begin == begin % f.piece && entry.place == at % f.step &&
                 entry.row == row && entry.piece == piece;
    }
    EXPECT_EQ(1, found);
}

void expect_right(const Operands &x, int32_t piece, int32_t step, int32_t group = 0) {
    const Tables t(x, piece, step, group, false), packed(x, piece, step, group, true);
    const tartan_cuda_conv &p = t.p;
    const tartan_cuda_conv_piece_form &f = t.made.form;
    const int64_t grid = p.adjoint ? p.to_slots.grid : p.from_slots.grid;
    std::map<int64_t, std::set<std::vector<int32_t>>> seen; // of each list
    int64_t entries = 0;
    const bool whole = p.from_slots.edge % (step * piece) == 0;
    for (int64_t id = 0; id < p.layout->blocks; id++) {
        const int64_t row = p.layout->block_rows[id], col = p.layout->block_cols[id];
        const int64_t line = p.adjoint ? col % grid : row, other = p.adjoint ? row : col % grid;
        int64_t tap = col / grid, tap_at[3];
        for (int d = 2; d >= 0; d--) tap_at[d] = tap % p.taps.kernel[d], tap /= p.taps.kernel[d];
        const int64_t first = other * p.from_slots.edge / piece,
                      last = (other * p.from_slots.edge + p.from_slots.edge - 1) / piece;
        for (int64_t i = first; i <= last; i++) {
            const int64_t at = t.of_block(id)[i - first], list = list_of(t, at);
            const int32_t *of = t.piece(at);
            ASSERT_EQ(i, of[3]);
            ASSERT_EQ(line / f.lines, list % f.groups);
            expect_entry(packed, at, id, other * p.from_slots.edge, line % f.lines * p.to_slots.edge,
                         i - first);
            if (whole) {
                const int32_t *blocks = packed.blocks(at / step);
                EXPECT_EQ((i - first) / step * step * piece, blocks[0]);
                EXPECT_EQ(id, blocks[1 + line % f.lines]);
            }
            entries++;
            seen[list].insert({of, of + 4});
            // Position q of the phase and the piece's shift are a pair of positions that the tap joins.
            int64_t phase = list / f.groups, remainder[3];
            for (int d = 2; d >= 0; d--) {
                const int64_t stride = p.adjoint ? p.taps.stride[d] : 1;
                remainder[d] = phase % stride, phase /= stride;
                const int64_t q = 5, to = q * stride + remainder[d],
                              from = q * (p.adjoint ? 1 : p.taps.stride[d]) + of[d];
                const int64_t in = p.adjoint ? to : from, out = p.adjoint ? from : to;
                ASSERT_EQ(in, out * p.taps.stride[d] + tap_at[d] * p.taps.dilation[d] - p.taps.before[d]);
            }
        }
    }
    // Nothing else is in the lists but what fills up steps, and no piece is there twice.
    int32_t empty = 0, longest = 0;
    for (int64_t list = 0; list < (int64_t)f.phases * f.groups; list++) {
        const int32_t begin = t.lists()[list], end = t.lists()[list + 1];
        ASSERT_EQ(0, begin % f.step);
        empty += begin == end, longest = std::max(longest, end - begin);
        int32_t real = 0;
        for (int32_t at = begin; at < end; at++) real += t.piece(at)[0] > INT32_MIN / 2;
        EXPECT_EQ(seen[list].size(), (size_t)real);
        EXPECT_LT(end - begin - real, f.step);
    }
    EXPECT_EQ(empty, f.empty);
    EXPECT_EQ(longest, f.longest);
    EXPECT_EQ(t.made.pieces, t.lists()[(int64_t)f.phases * f.groups]);
    EXPECT_EQ(entries, packed.steps()[t.made.pieces / step]);
    EXPECT_EQ(0, packed.made.entry_table % 2);
    if (!whole) return;
    int64_t blocks = 0;
    for (int64_t i = 0; i < t.made.pieces / step; i++)
        for (int32_t line = 0; line < f.lines; line++) blocks += packed.blocks(i)[1 + line] >= 0;
    EXPECT_EQ(p.layout->blocks * (p.from_slots.edge / (step * piece)), blocks);
    EXPECT_EQ(packed.blocks(t.made.pieces / step), packed.made.values + packed.made.size);
}

TEST(CudaConvPieces, TablesHaveEveryWeight) {
    for (const char *options : {"kernel=1x1", "kernel=3x3 padding=1", "kernel=3x3 stride=2 padding=1",
                                "kernel=1x1 stride=3x2", "kernel=5x2 stride=2x3 dilation=3x2 padding=2"})
        for (const tartan_shape &shape :
             {tartan_shape{128, 96, 32, 16, 1}, tartan_shape{50, 30, 5, 3, 1}, tartan_shape{64, 24, 1, 1, 1},
              tartan_shape{200, 300, 100, 150, 1}, tartan_shape{96, 256, 24, 128, 1}})
            for (double density : {0.05, 0.5, 1.0})
                for (bool turned : {false, true}) {
                    SCOPED_TRACE(::testing::Message()
                                 << options << " " << shape.rows << " " << density << " " << turned);
                    Operands x(shape, options, {40, 30}, density);
                    if (turned) x.turn();
                    for (int32_t piece : {1, 2, 4, 8}) expect_right(x, piece, 64 / piece);
                    expect_right(x, 8, 1, 8);
                    if (HasFailure()) return;
                }
}

// Groups are as large as makes the work short: blocks that fill groups are not merged with others, few pieces are.
TEST(CudaConvPieces, GroupsFollowTheCosts) {
    const auto group_of = [](tartan_shape shape, double density, tartan_cuda_conv_piece_costs costs,
                             int32_t tiles = 0) {
        const Operands x(shape, "kernel=3x3 padding=1", {40, 30}, density);
        const tartan_cuda_conv p = x.problem();
        const tartan_cuda_conv_lines lines = {p.layout, &p.taps, &p.from_slots, &p.to_slots, false, 8, 8, 8,
                                              &costs,   0,       false,         tiles,       132};
        tartan_cuda_conv_piece_lists made;
        EXPECT_OK(tartan_cuda_conv_pieces_make(&tartan_i_host, &lines, &made));
        tartan_i_host.free(made.values);
        return made.form.group;
    };
    EXPECT_EQ(128, group_of({256, 256, 32, 32, 1}, 1.0, {0, {16, 32, 64, 100}, 0}));
    EXPECT_EQ(32, group_of({256, 256, 32, 32, 1}, 0.1, {0, {20, 32, 64, 128}, 0}));
    EXPECT_EQ(64, group_of({256, 256, 32, 32, 1}, 1.0, {0, {16, 32, 50, 0}, 0}));
    EXPECT_EQ(128, group_of({256, 256, 32, 32, 1}, 0.1, {0, {20, 32, 64, 128}, 100000}));
    /* With as many CTAs as SMs, two of 64 slots on an SM are better than one of 128; with few, short lists are. */
    const tartan_cuda_conv_piece_costs costs = {0, {0, 0, 50, 80}, 0};
    EXPECT_EQ(128, group_of({128, 128, 32, 32, 1}, 1.0, costs));
    EXPECT_EQ(64, group_of({128, 128, 32, 32, 1}, 1.0, costs, 128));
    EXPECT_EQ(32, group_of({512, 512, 32, 32, 1}, 0.25, {0, {50, 44, 56, 80}, 300}, 1));
    /* ... but not where several CTAs share a list. */
    EXPECT_EQ(32, group_of({512, 512, 32, 32, 1}, 0.25, {0, {50, 68, 56, 80}, 300}, 8));
    EXPECT_EQ(64,
              group_of({512, 512, 32, 32, 1}, 0.25, {TARTAN_CUDA_PIECE_SPLITS, {50, 68, 56, 80}, 300}, 8));
}

TEST(CudaConvPieces, TilesAreCountedRoughly) {
    EXPECT_EQ(1, tartan_cuda_conv_piece_tiles(1, 132));
    EXPECT_EQ(128, tartan_cuda_conv_piece_tiles(98, 132));
    EXPECT_EQ(512, tartan_cuda_conv_piece_tiles(512, 132));
    EXPECT_EQ(0, tartan_cuda_conv_piece_tiles(513, 132));
}

TEST(CudaConvPieces, PiecesHaveFourToSixteenBytes) {
    EXPECT_EQ(8, tartan_cuda_conv_piece(100, 2));
    EXPECT_EQ(4, tartan_cuda_conv_piece(3, 2));
    EXPECT_EQ(2, tartan_cuda_conv_piece(1, 2));
    EXPECT_EQ(4, tartan_cuda_conv_piece(3, 4));
    EXPECT_EQ(1, tartan_cuda_conv_piece(1, 4));
    EXPECT_EQ(2, tartan_cuda_conv_piece(9, 8));
    EXPECT_EQ(1, tartan_cuda_conv_piece(1, 8));
}

TEST(CudaConvPieces, NoMemoryIsAnError) {
    const Operands x;
    const tartan_cuda_conv p = x.problem();
    for (bool packed : {false, true}) {
        const tartan_cuda_conv_lines lines = {p.layout, &p.taps, &p.from_slots, &p.to_slots, false, 8, 8, 8,
                                              &kCosts,  0,       packed,        0,           0};
        tartan_cuda_conv_piece_lists made = {};
        BRUTAL(tartan_cuda_conv_pieces_make(&tartan_i_host, &lines, &made), tartan_i_host.free(made.values));
    }
}

// ---- Refusals ----

const char *refusal(const Operands &x, tartan_cuda_refusal *refuses,
                    void (*change)(tartan_cuda_conv *) = nullptr, const tartan_cuda_chip &chip = kHopper) {
    tartan_cuda_conv p = x.problem();
    if (change != nullptr) change(&p);
    const char *why = refuses(&chip, &p);
    return why != nullptr ? why : "";
}

TEST(CudaConvPieces, Refuses) {
    const Operands x;
    const auto refuses = tartan_cuda_conv_pieces_refuses;
    EXPECT_STREQ("", refusal(x, refuses));
    EXPECT_STREQ("", refusal(x, refuses, nullptr, kAmpere));
    const tartan_cuda_chip tiny = {8, 9, 128, 49152, nullptr};
    EXPECT_STREQ("needs more shared memory than a CTA may have", refusal(x, refuses, nullptr, tiny));
    EXPECT_STREQ("x has no elements", refusal(x, refuses, [](tartan_cuda_conv *p) { p->from.size[1] = 0; }));
    EXPECT_STREQ("only for images of fewer than 2^31 pieces of 16 bytes",
                 refusal(x, refuses, [](tartan_cuda_conv *p) { p->from.size[0] = 1 << 22; }));
    EXPECT_STREQ("only for filters of up to 2^30 weights and 2^28 columns",
                 refusal(x, refuses, [](tartan_cuda_conv *p) {
                     static tartan_layout large;
                     large = *p->layout;
                     large.blocks = 1 << 22;
                     p->layout = &large;
                 }));
    EXPECT_STREQ("only for fewer than 2e9 tiles", refusal(x, refuses, [](tartan_cuda_conv *p) {
                     p->to.size[0] = 1 << 17;
                     p->to_slots.grid = 1 << 16;
                 }));
    EXPECT_STREQ("only for images of fewer than 2^30 pixels a side",
                 refusal(x, refuses, [](tartan_cuda_conv *p) { p->to.size[1] = 1ll << 31; }));
    EXPECT_STREQ("only for filters of fewer than 2^30 pixels a side",
                 refusal(x, refuses, [](tartan_cuda_conv *p) { p->taps.dilation[2] = 1 << 30; }));
    EXPECT_STREQ("only for fewer than 2^31 positions",
                 refusal(x, refuses, [](tartan_cuda_conv *p) { p->to.size[0] = 1 << 22; }));
    EXPECT_STREQ("only for strides with a product up to 512", refusal(x, refuses, [](tartan_cuda_conv *p) {
                     p->adjoint = true;
                     p->taps.stride[1] = p->taps.stride[2] = 30;
                 }));
    EXPECT_STREQ("input gradients with strides only of whole images",
                 refusal(x, refuses, [](tartan_cuda_conv *p) {
                     p->adjoint = true;
                     p->taps.stride[2] = 2;
                     p->active.layout = p->layout;
                     p->active.size[0] = p->active.size[1] = p->active.size[2] = 1;
                 }));
    const Operands none({128, 96, 32, 16, 1}, "kernel=3x3 padding=1", {40, 30}, 0);
    EXPECT_STREQ("the layout has no blocks", refusal(none, refuses));
}

TEST(CudaConvPieces, DepthwiseFiltersHaveAKernel) {
    const auto refuses = tartan_cuda_conv_depthwise_refuses;
    const auto in_f32 = [](tartan_cuda_conv *p) { p->dtype = p->from.dtype = p->to.dtype = TARTAN_F32; };
    const Operands dense;
    EXPECT_STREQ("only for depthwise filters of 8, 16, ... channels", refusal(dense, refuses, in_f32));
    std::vector<uint8_t> mask(64 * 64);
    for (int i = 0; i < 64; i++) mask[(size_t)i * 65] = 1;
    Operands x({64, 64, 1, 1, 1}, "kernel=3x3 padding=1");
    x.channels = from_mask({64, 64, 1, 1, 1}, mask);
    tartan_conv *made = nullptr;
    ASSERT_OK(tartan_conv_create(x.channels.get(), "kernel=3x3 padding=1", &made));
    x.conv.reset(made);
    x.op.conv = made;
    x.filter.layout = made->layout;
    EXPECT_STREQ("", refusal(x, refuses));
    EXPECT_EQ("conv_depthwise", x.asked().chosen(kHopper));
    x.filter.dtype = x.from.dtype = x.to.dtype = TARTAN_F32;
    EXPECT_STREQ("", refusal(x, refuses));
    EXPECT_EQ("conv_depthwise", x.asked().chosen(kHopper));
    EXPECT_STREQ("only for multiples of 8 channels",
                 refusal(x, refuses, [](tartan_cuda_conv *p) { p->from.channels = 60; }));
    EXPECT_STREQ("only for images of the filter's dtype",
                 refusal(x, refuses, [](tartan_cuda_conv *p) { p->from.dtype = TARTAN_F64; }));
}

TEST(CudaConvPieces, GradientsRefuse) {
    const Operands x;
    const tartan_cuda_conv forward = x.problem();
    const auto refusal_of = [&](tartan_cuda_refusal *refuses,
                                void (*change)(tartan_cuda_conv_filter_gradient *)) {
        tartan_cuda_conv_filter_gradient p = {};
        p.dtype = TARTAN_F32;
        p.entries = forward.entries, p.taps = forward.taps, p.layout = forward.layout;
        p.in = forward.from, p.out = forward.to;
        p.in.dtype = p.out.dtype = TARTAN_F32;
        p.cols = forward.from_slots, p.rows = forward.to_slots;
        p.depthwise = true;
        change(&p);
        const char *why = refuses(&kHopper, &p);
        return std::string(why != nullptr ? why : "");
    };
    const auto pieces = tartan_cuda_conv_filter_gradient_pieces_refuses;
    const auto depthwise = tartan_cuda_conv_filter_gradient_depthwise_refuses;
    EXPECT_EQ("", refusal_of(pieces, [](tartan_cuda_conv_filter_gradient *) {}));
    EXPECT_EQ("", refusal_of(depthwise, [](tartan_cuda_conv_filter_gradient *) {}));
    EXPECT_EQ("only for images of fewer than 2^31 pieces of 16 bytes",
              refusal_of(pieces, [](tartan_cuda_conv_filter_gradient *p) { p->out.size[0] = 1 << 22; }));
    EXPECT_EQ("x has no elements",
              refusal_of(pieces, [](tartan_cuda_conv_filter_gradient *p) { p->in.size[1] = 0; }));
    EXPECT_EQ("only for depthwise filters of 8, 16, ... channels",
              refusal_of(depthwise, [](tartan_cuda_conv_filter_gradient *p) { p->depthwise = false; }));
    EXPECT_EQ("only for multiples of 8 channels",
              refusal_of(depthwise, [](tartan_cuda_conv_filter_gradient *p) { p->out.channels = 60; }));
    EXPECT_EQ("only for images of one dtype",
              refusal_of(depthwise, [](tartan_cuda_conv_filter_gradient *p) { p->out.dtype = TARTAN_F64; }));
    EXPECT_EQ("only for channels without sets",
              refusal_of(depthwise, [](tartan_cuda_conv_filter_gradient *p) {
                  static int32_t of[1];
                  static tartan_i_channels sets;
                  sets.of = of;
                  p->cols.channels = &sets;
              }));
}

} // namespace
