// SPDX-License-Identifier: Apache-2.0
// Which operations the plug-in takes: those that are also composed of others only where a kernel is made for their operands.
#include "tune_support.h"

extern "C" {
#include "refuse.h"
}

using namespace tartan_test;

namespace {

const tartan_cuda_chip kSmall = {8, 6, 84, 101376, nullptr};

std::string refusal(const tartan_op &op, const tartan_cuda_chip &chip = kHopper) {
    const char *why = tartan_cuda_op_refuses(&chip, &op);
    return why == nullptr ? "" : why;
}

// Norms of 12 lines of n numbers, all arrays of which may be changed.
struct AddNorm {
    int32_t sums;
    tartan_array x, y, residual, total, stats, grad_stats;
    tartan_op op = {}, back = {};

    AddNorm(int32_t dtype, int64_t n, int64_t segments = 1)
        : sums(dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32), x(array_of(dtype, {12, n})), y(x), residual(x),
          total(x), stats(array_of(sums, {12, segments, 2})), grad_stats(stats) {
        op.kind = TARTAN_OP_ADD_LAYER_NORM;
        op.add_layer_norm.segments = segments;
        op.add_layer_norm.x = &x, op.add_layer_norm.y = &y;
        op.add_layer_norm.residual = &residual, op.add_layer_norm.total = &total;
        op.add_layer_norm.stats = &stats;
        back.kind = TARTAN_OP_ADD_LAYER_NORM_GRADIENT;
        back.add_layer_norm_gradient.segments = segments;
        back.add_layer_norm_gradient.total = &x, back.add_layer_norm_gradient.y_grad = &y;
        back.add_layer_norm_gradient.total_grad = &residual;
        back.add_layer_norm_gradient.x_grad = &total;
        back.add_layer_norm_gradient.stats = &stats;
    }
    std::string forward(const tartan_cuda_chip &chip = kHopper) const { return refusal(op, chip); }
    std::string backward(const tartan_cuda_chip &chip = kHopper) const { return refusal(back, chip); }
};

const char kUnits[] = "only for segments of whole, aligned units of 16 bytes, one after the other",
           kLong[] = "segments are too long to stay in registers";

} // namespace

TEST(CudaWhole, AddNormsOfSegmentsThatThreadsKeep) {
    for (const int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16})
        for (const int64_t segments : {1, 4}) {
            const int64_t unit = dtype == TARTAN_F64   ? 2
                                 : dtype == TARTAN_F32 ? 4
                                                       : 8,
                          most = 512 * 4 * unit, most_back = 512 * (unit == 8 ? 3 : 4) * unit;
            EXPECT_EQ("", AddNorm(dtype, segments * 64, segments).forward());
            EXPECT_EQ("", AddNorm(dtype, segments * most, segments).forward());
            EXPECT_EQ(kLong, AddNorm(dtype, segments * (most + unit), segments).forward());
            EXPECT_EQ("", AddNorm(dtype, segments * most_back, segments).backward());
            EXPECT_EQ(kLong, AddNorm(dtype, segments * (most_back + unit), segments).backward());
            EXPECT_EQ(kUnits, AddNorm(dtype, segments * (unit * 5 + 1), segments).forward());
            EXPECT_EQ(kUnits, AddNorm(dtype, segments * (unit * 5 + 1), segments).backward());
        }
    EXPECT_EQ("", AddNorm(TARTAN_F32, 4096).forward(kSmall));
    EXPECT_EQ("needs more shared memory than a CTA may have", AddNorm(TARTAN_F32, 4100).forward(kSmall));
    EXPECT_EQ("", AddNorm(TARTAN_F32, 4096).backward(kSmall));
    EXPECT_EQ("needs more shared memory than a CTA may have", AddNorm(TARTAN_F32, 8192).backward(kSmall));
    EXPECT_EQ("lines are no multiple of their segments", AddNorm(TARTAN_F32, 64, 3).forward());
    EXPECT_EQ("lines are no multiple of their segments", AddNorm(TARTAN_F32, 64, 3).backward());
    EXPECT_EQ("lines are no multiple of their segments", AddNorm(TARTAN_F32, 64, 0).forward());
    EXPECT_EQ("only for up to 65535 segments", AddNorm(TARTAN_F32, 65536 * 4, 65536).forward());
    EXPECT_EQ("there is nothing to normalise", AddNorm(TARTAN_F32, 0).forward());
    EXPECT_EQ("there is nothing to normalise", AddNorm(TARTAN_F32, 0).backward());
}

TEST(CudaWhole, AddNormsOfArraysThatUnitsDoNotFit) {
    AddNorm mixed(TARTAN_BF16, 64), moved(TARTAN_F32, 64), strided(TARTAN_F32, 64), few(TARTAN_F32, 64);
    mixed.residual.dtype = TARTAN_F32;
    EXPECT_EQ("only for arrays of one dtype", mixed.forward());
    EXPECT_EQ("only for arrays of one dtype", mixed.backward());
    moved.total.data = (char *)moved.total.data + 4;
    EXPECT_EQ(kUnits, moved.forward());
    EXPECT_EQ(kUnits, moved.backward());
    strided.x.strides[1] = 2, strided.x.strides[0] = 128;
    EXPECT_EQ(kUnits, strided.forward());
    EXPECT_EQ(kUnits, strided.backward());
    few.op.add_layer_norm.residual = few.op.add_layer_norm.total = few.op.add_layer_norm.stats = nullptr;
    EXPECT_EQ("", few.forward());
    few.back.add_layer_norm_gradient.x_grad = nullptr; // those of gain and bias alone
    EXPECT_EQ("", few.backward());
}

// RMS norms have no mean in their statistics.
TEST(CudaWhole, RmsNorms) {
    const tartan_array x = array_of(TARTAN_F32, {12, 64}), stats = array_of(TARTAN_F32, {12, 4}, 8192);
    tartan_op_add_rms_norm op = {};
    op.x = op.y = &x, op.stats = &stats, op.segments = 4, op.epsilon = 0.5;
    tartan_cuda_add_norm p;
    ASSERT_OK(tartan_cuda_add_rms_norm_of(nullptr, nullptr, &op, &p));
    EXPECT_EQ(nullptr, p.why);
    EXPECT_FALSE(p.in.centred);
    EXPECT_EQ(16, p.in.length);
    EXPECT_EQ(12, p.in.lines);
    EXPECT_EQ(0.5, p.in.epsilon);
    EXPECT_EQ(1, p.stats_step);
    EXPECT_EQ(4, p.in.sweep.array[TARTAN_CUDA_NORM_RSTD].step[TARTAN_CUDA_KEPT][0]);
    tartan_op_add_rms_norm_gradient back = {};
    back.total = back.y_grad = back.residual_grad = &x, back.stats = &stats, back.segments = 4;
    tartan_cuda_add_norm_gradient g;
    ASSERT_OK(tartan_cuda_add_rms_norm_gradient_of(nullptr, nullptr, &back, &g));
    EXPECT_EQ(nullptr, g.why);
    EXPECT_FALSE(g.of.nothing);
    EXPECT_EQ(x.data, g.of.in.sweep.array[3].data) << "the only gradient takes the place of that of x";
    EXPECT_EQ(nullptr, g.of.in.sweep.array[5].data);
}

// Channels that a cluster keeps, or a CTA of older chips.
TEST(CudaWhole, BatchNorms) {
    const char kSide[] = "only for fewer than 2^20 numbers, or such as lie side by side in all arrays",
               kNone[] = "there are no numbers",
               kKept[] = "channels have more numbers than a cluster of CTAs keeps",
               kChannels[] = "there are more than 2^27 channels";
    const struct {
        std::vector<int64_t> shape;
        const char *forward, *backward;
        bool small = false;
    } cases[] = {{{256, 2048, 1}, "", ""},
                 {{512, 2048}, "", ""},
                 {{2, 8, 64, 64}, "", ""},
                 {{64, 2048, 7, 7}, "", ""},
                 {{1, 2, 131073}, "", ""}, // single elements are read again
                 {{1, 2, 8 << 16}, "", ""},
                 {{1, 2, 8 << 17}, "", kKept},
                 {{1, 2, (8 << 17) + 8}, kKept, kKept},
                 {{8192, 17}, "", ""},
                 {{16384, 17}, "", kKept},
                 {{16385, 17}, kKept, kKept},
                 {{1, 2, 8193}, "", "", true},
                 {{1, 2, 4096 * 8}, "", "", true},
                 {{1, 2, 8192 * 8}, "", kKept, true},
                 {{1, 2, 8193 * 8}, kKept, kKept, true},
                 {{1, 1 << 28}, kChannels, kChannels},
                 {{0, 8}, kNone, kNone},
                 {{8, 0}, kNone, kNone}};
    for (const auto &one : cases) {
        const tartan_array x = array_of(TARTAN_F16, one.shape),
                           stats = array_of(TARTAN_F32, {one.shape[1], 3});
        tartan_op op = {}, back = {};
        op.kind = TARTAN_OP_BATCH_NORM;
        op.batch_norm.x = op.batch_norm.y = &x;
        EXPECT_EQ(one.forward, refusal(op, one.small ? kSmall : kHopper));
        back.kind = TARTAN_OP_BATCH_NORM_GRADIENT;
        back.batch_norm_gradient.x = back.batch_norm_gradient.y_grad = &x;
        back.batch_norm_gradient.stats = &stats;
        EXPECT_EQ(one.backward, refusal(back, one.small ? kSmall : kHopper));
    }
    tartan_op_batch_norm op = {};
    const tartan_array across = array_of(TARTAN_F32, {30, 7}), along = array_of(TARTAN_F32, {3, 7, 10}),
                       units = array_of(TARTAN_F32, {3, 7, 12}), half = array_of(TARTAN_F16, {3, 7, 12});
    tartan_cuda_channel_norm p;
    op.x = op.y = &across;
    ASSERT_OK(tartan_cuda_batch_norm_of(nullptr, nullptr, &op, &p));
    EXPECT_TRUE(p.across);
    EXPECT_EQ(7, p.channels);
    EXPECT_EQ(30, p.terms);
    op.x = op.y = &along;
    ASSERT_OK(tartan_cuda_batch_norm_of(nullptr, nullptr, &op, &p));
    EXPECT_FALSE(p.across);
    EXPECT_EQ(7, p.sweep.axes[TARTAN_CUDA_KEPT].elements);
    EXPECT_EQ(10, p.sweep.array[0].step[TARTAN_CUDA_KEPT][0]);
    EXPECT_EQ(1, p.sweep.unit);
    op.x = op.y = &units;
    ASSERT_OK(tartan_cuda_batch_norm_of(nullptr, nullptr, &op, &p));
    EXPECT_EQ(4, p.sweep.unit);
    EXPECT_EQ(9, p.sweep.axes[TARTAN_CUDA_SUMMED].elements);
    EXPECT_EQ(36, p.terms);
    EXPECT_FALSE(p.any);
    op.y = &half;
    ASSERT_OK(tartan_cuda_batch_norm_of(nullptr, nullptr, &op, &p));
    EXPECT_EQ(1, p.sweep.unit) << "units need one dtype";
    EXPECT_TRUE(p.any);
    op.x = &half;
    ASSERT_OK(tartan_cuda_batch_norm_of(nullptr, nullptr, &op, &p));
    EXPECT_EQ(4, p.sweep.unit) << "half of 16 bytes";
    const tartan_array many = array_of(TARTAN_F32, {64, 129, 128});
    tartan_array last = array_of(TARTAN_F32, {64, 128, 129}), few = many;
    std::swap(last.shape[1], last.shape[2]), std::swap(last.strides[1], last.strides[2]);
    tartan_op turned = {};
    turned.kind = TARTAN_OP_BATCH_NORM;
    turned.batch_norm.x = &many, turned.batch_norm.y = &last;
    EXPECT_EQ(kSide, refusal(turned));
    few.shape[0] = last.shape[0] = 63;
    turned.batch_norm.x = &few;
    EXPECT_EQ("", refusal(turned));
}

// Enough CTAs for all SMs, but not more than there are accesses for their threads.
TEST(CudaWhole, SharesOfChannels) {
    struct Shares {
        int32_t ctas, threads, wide;
        int64_t clusters;
    };
    const struct {
        std::vector<int64_t> shape;
        Shares forward, backward;
    } cases[] = {{{256, 2048}, {1, 256, 4, 128}, {1, 256, 4, 128}},
                 {{8192, 512}, {8, 256, 4, 32}, {16, 256, 4, 32}},
                 {{64, 12}, {1, 256, 4, 1}, {1, 256, 4, 1}},
                 {{64, 3}, {1, 256, 4, 1}, {1, 256, 4, 1}},
                 {{64, 33}, {2, 256, 8, 5}, {2, 256, 8, 5}},
                 {{32, 64, 16, 16}, {2, 256, 1, 64}, {2, 256, 1, 64}},
                 {{8, 512, 512}, {1, 256, 1, 512}, {1, 256, 1, 512}},
                 {{16, 3, 20, 20}, {8, 256, 1, 3}, {8, 256, 1, 3}},
                 {{32, 256, 8192}, {16, 256, 1, 256}, {16, 512, 1, 256}},
                 {{1, 2, 262145}, {16, 512, 1, 2}, {16, 512, 1, 2}},
                 {{4, 2, 3}, {1, 32, 1, 2}, {1, 32, 1, 2}}};
    for (const auto &one : cases) {
        const tartan_array x = array_of(TARTAN_F32, one.shape);
        tartan_op_batch_norm op = {};
        tartan_op_batch_norm_gradient back = {};
        op.x = op.y = back.x = back.y_grad = &x;
        tartan_cuda_channel_norm p;
        const auto expect = [&](const Shares &want) {
            const tartan_cuda_channel_shares got = tartan_cuda_share_channels(&kHopper, &p);
            EXPECT_EQ(want.ctas, got.ctas) << one.shape[0] << " x " << one.shape[1];
            EXPECT_EQ(want.threads, got.threads) << one.shape[0] << " x " << one.shape[1];
            EXPECT_EQ(want.wide, got.wide) << one.shape[0] << " x " << one.shape[1];
            EXPECT_EQ(want.clusters, got.clusters) << one.shape[0] << " x " << one.shape[1];
            EXPECT_EQ(want.threads / want.wide, got.rows) << one.shape[0] << " x " << one.shape[1];
        };
        ASSERT_OK(tartan_cuda_batch_norm_of(nullptr, nullptr, &op, &p));
        expect(one.forward);
        ASSERT_OK(tartan_cuda_batch_norm_gradient_of(nullptr, nullptr, &back, &p));
        expect(one.backward);
    }
}

// Of channels whose planes are no units, as many as a unit has numbers go together.
TEST(CudaWhole, RunsOfChannels) {
    const struct {
        int32_t dtype;
        std::vector<int64_t> shape;
        int32_t run, unit;
        tartan_cuda_channel_shares forward, backward;
    } cases[] = {{TARTAN_BF16, {64, 2048, 7, 7}, 49, 8, {1, 256, 1, 256, 245}, {2, 256, 1, 256, 245}},
                 {TARTAN_F32, {32, 320, 17, 17}, 289, 4, {2, 320, 1, 80, 289}, {4, 320, 1, 80, 289}},
                 {TARTAN_BF16, {1, 29136, 9}, 9, 8, {1, 32, 1, 3642, 9}, {1, 32, 1, 3642, 9}},
                 {TARTAN_BF16, {3, 9716, 9}, 9, 4, {1, 32, 1, 2429, 27}, {1, 32, 1, 2429, 27}},
                 {TARTAN_BF16, {3, 9714, 9}, 0, 1, {}, {}},
                 {TARTAN_F32, {3, 9714, 9}, 0, 1, {}, {}},
                 {TARTAN_F64, {3, 9714, 9}, 9, 2, {1, 32, 1, 4857, 27}, {1, 32, 1, 4857, 27}},
                 {TARTAN_BF16, {3, 12488, 7}, 7, 4, {1, 32, 1, 3122, 21}, {1, 32, 1, 3122, 21}},
                 {TARTAN_BF16, {3, 8, 7}, 0, 1, {}, {}},
                 {TARTAN_F32, {3, 176, 513}, 0, 1, {}, {}},
                 {TARTAN_F32, {257, 8, 511}, 0, 1, {}, {}},
                 {TARTAN_F32, {3, 8000, 16}, 0, 4, {}, {}}};
    for (const auto &one : cases) {
        const tartan_array x = array_of(one.dtype, one.shape);
        tartan_op_batch_norm op = {};
        tartan_op_batch_norm_gradient back = {};
        op.x = op.y = back.x = back.y_grad = &x;
        for (const bool forward : {true, false}) {
            tartan_cuda_channel_norm p;
            if (forward)
                ASSERT_OK(tartan_cuda_batch_norm_of(nullptr, nullptr, &op, &p));
            else
                ASSERT_OK(tartan_cuda_batch_norm_gradient_of(nullptr, nullptr, &back, &p));
            tartan_cuda_join_runs(&kHopper, &p);
            EXPECT_EQ(one.run, p.run) << one.shape[0] << " x " << one.shape[1];
            EXPECT_EQ(one.unit, p.sweep.unit) << one.shape[0] << " x " << one.shape[1];
            if (one.run == 0) continue;
            const tartan_cuda_channel_shares want = forward ? one.forward : one.backward,
                                             got = tartan_cuda_share_channels(&kHopper, &p);
            EXPECT_EQ(want.ctas, got.ctas) << one.shape[0] << " x " << one.shape[1];
            EXPECT_EQ(want.threads, got.threads);
            EXPECT_EQ(want.rows, got.rows);
            EXPECT_EQ(want.clusters, got.clusters);
        }
    }
}

// Counts that do not fit in the numbers of a kernel.
TEST(CudaWhole, MoreThanKernelsCount) {
    const tartan_array table = array_of(TARTAN_F32, {10, 1}), y_grad = array_of(TARTAN_F32, {1});
    tartan_array indices = array_of(TARTAN_I64, {1 << 16, 1 << 15}),
                 x = array_of(TARTAN_BF16, {1, 1LL << 32});
    tartan_op op = {};
    op.kind = TARTAN_OP_EMBEDDING_GRADIENT;
    op.embedding_gradient.table = op.embedding_gradient.table_grad = &table;
    op.embedding_gradient.indices = &indices, op.embedding_gradient.y_grad = &y_grad;
    EXPECT_EQ("there are 2^31 indices or more", refusal(op));
    indices.shape[1]--;
    EXPECT_EQ("", refusal(op));
    const char selection[] = "lines have 2^32 numbers or more, or k is 2^31 or more";
    tartan_op top = {}, soft = {}, rectified = {};
    top.kind = TARTAN_OP_TOP_K, top.top_k.x = &x, top.top_k.k = 1;
    soft.kind = TARTAN_OP_TOP_K_SOFTMAX, soft.top_k_softmax.x = &x, soft.top_k_softmax.k = 1;
    rectified.kind = TARTAN_OP_RECTIFIED_TOP_K, rectified.rectified_top_k.x = &x,
    rectified.rectified_top_k.k = 1;
    for (const tartan_op &one : {top, soft, rectified}) EXPECT_EQ(selection, refusal(one));
    x.shape[1]--;
    for (const tartan_op &one : {top, soft, rectified}) EXPECT_EQ("", refusal(one));
    top.top_k.k = 1LL << 31;
    EXPECT_EQ(selection, refusal(top));
}

TEST(CudaWhole, LayoutsThatKernelsDoNotTake) {
    tartan_layout layout = {};
    tartan_i_operand operand = {};
    operand.layout = &layout;
    tartan_op op = {};
    op.kind = TARTAN_OP_SPMM, op.operands = &operand, op.noperands = 1;
    EXPECT_EQ("", refusal(op));
    layout.blocks = 1LL << 31;
    EXPECT_EQ("the layout has 2^31 blocks or more", refusal(op));
    layout.blocks = 1;
    const int64_t bounds[] = {0, 8};
    layout.row_bounds = const_cast<int64_t *>(bounds);
    EXPECT_EQ("", refusal(op));
    layout.shape.cols = 1LL << 31;
    EXPECT_EQ("the layout has blocks of different sizes and 2^31 rows or columns or more", refusal(op));
    op.kind = TARTAN_OP_ATTENTION_FORWARD;
    EXPECT_EQ("the layout has blocks of different sizes", refusal(op));
}
