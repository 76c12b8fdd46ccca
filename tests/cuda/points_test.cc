// SPDX-License-Identifier: Apache-2.0
// The problems of element-wise functions and of normalisation along lines.
#include "tune_support.h"

extern "C" {
#include "problem.h"
}

using namespace tartan_test;

namespace {

const tartan_context kContext = {};

enum {
#define POINT1(...)
#define POINT1_WITH(...)
#define POINT2(name, ...) kRow_##name,
#include "kernels/points.def"
#include "kernels/sums.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2
};

tartan_cuda_point2_gradient gradient_of(const tartan_op_point2_gradient &op) {
    tartan_cuda_point2_gradient p;
    EXPECT_OK(tartan_cuda_point2_gradient_of(&tartan_i_host, &kContext, &op, &p));
    return p;
}

} // namespace

TEST(CudaPoints, ProblemsOfOneArray) {
    const tartan_array x = array_of(TARTAN_BF16, {5, 32}), y = array_of(TARTAN_F32, {5, 32}),
                       none = array_of(TARTAN_F64, {5, 0});
    tartan_op_point1 op = {};
    op.row = 2, op.p[0] = 0.5, op.p[3] = 2, op.x = &x, op.y = &y;
    tartan_cuda_points p;
    ASSERT_OK(tartan_cuda_point1_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_FALSE(p.nothing);
    EXPECT_EQ(2, p.row);
    EXPECT_EQ(0.5, p.p[0]);
    EXPECT_EQ(2, p.p[3]);
    EXPECT_EQ(TARTAN_F32, p.sum_dtype);
    EXPECT_EQ(2, p.sweep.count);
    EXPECT_EQ(4, p.sweep.unit);
    EXPECT_EQ(40, p.sweep.axes[TARTAN_CUDA_KEPT].elements);
    op.x = op.y = &none;
    ASSERT_OK(tartan_cuda_point1_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_TRUE(p.nothing);
    EXPECT_EQ(TARTAN_F64, p.sum_dtype);
    tartan_op_point1_gradient back = {};
    back.y_grad = &y, back.x = &x, back.x_grad = &x;
    ASSERT_OK(tartan_cuda_point1_gradient_of(&tartan_i_host, &kContext, &back, &p));
    EXPECT_EQ(y.data, p.sweep.array[0].data);
    EXPECT_EQ(x.data, p.sweep.array[1].data);
    EXPECT_EQ(nullptr, p.sweep.array[2].data);
    EXPECT_EQ(x.data, p.sweep.array[3].data);
}

// The parts of an operand have one place in the sweep, and random numbers places without memory.
TEST(CudaPoints, ProblemsOfSeveralArrays) {
    const tartan_array c = array_of(TARTAN_F32, {6, 8}), gates = array_of(TARTAN_F32, {6, 4, 8}, 8192),
                       bias = array_of(TARTAN_F32, {4, 8}, 12288);
    tartan_op_fused op = {};
    op.row = TARTAN_I_FUSED_lstm_gates, op.p[0] = 1, op.shape = c;
    op.in[0] = {"c", &c, 1}, op.in[1] = {"gates", &gates, 4}, op.in[2] = {"bias", &bias, 4};
    op.out[0] = {"c_next", &c, 1};
    tartan_cuda_fused p;
    ASSERT_OK(tartan_cuda_fused_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_FALSE(p.nothing);
    EXPECT_EQ(5, p.sweep.count);
    EXPECT_EQ(4, p.sweep.unit);
    EXPECT_EQ(12, p.sweep.axes[TARTAN_CUDA_KEPT].elements);
    EXPECT_EQ(0, p.part[0]);
    EXPECT_EQ(8, p.part[1]);
    EXPECT_EQ(8, p.part[2]);
    EXPECT_EQ(32, p.sweep.array[1].step[TARTAN_CUDA_KEPT][1]);
    EXPECT_EQ(nullptr, p.sweep.array[4].data);
    tartan_array odd = gates; // parts that are not a multiple of a unit apart
    odd.strides[0] = 40, odd.strides[1] = 9;
    op.in[1].array = &odd;
    ASSERT_OK(tartan_cuda_fused_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_EQ(1, p.sweep.unit);
    EXPECT_EQ(9, p.part[1]);

    tartan_op_fused drop = {};
    drop.row = TARTAN_I_FUSED_dropout, drop.shape = c, drop.offset = 5;
    drop.drawing.draw = TARTAN_I_DRAW_KEPT;
    drop.in[0] = {"x", &c, 1}, drop.out[0] = {"y", &c, 1};
    drop.numbers = array_of(TARTAN_F32, {6, 1}, 0);
    ASSERT_OK(tartan_cuda_fused_of(&tartan_i_host, &kContext, &drop, &p));
    EXPECT_EQ(3, p.sweep.count);
    EXPECT_EQ((void *)TARTAN_CUDA_NUMBERS_AT, p.sweep.array[1].data);
    EXPECT_EQ(4, p.sweep.unit);
    EXPECT_EQ(0, p.sweep.array[1].next);
    EXPECT_EQ(1, p.sweep.array[1].step[TARTAN_CUDA_KEPT][1]);
    EXPECT_EQ(5, p.offset);
    tartan_array beside = c; // no unit begins there, so its elements are gathered
    beside.data = (char *)beside.data + 4;
    drop.in[0].array = &beside;
    ASSERT_OK(tartan_cuda_fused_of(&tartan_i_host, &kContext, &drop, &p));
    EXPECT_EQ(4, p.sweep.unit);
    EXPECT_TRUE(p.sweep.array[0].gathered);
    EXPECT_FALSE(p.sweep.array[1].gathered || p.sweep.array[2].gathered);
    op.in[1].array = &gates, op.in[0].array = &beside; // not by rows of many instructions
    ASSERT_OK(tartan_cuda_fused_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_EQ(1, p.sweep.unit);
    tartan_array none = array_of(TARTAN_F32, {0, 8});
    drop.shape = none;
    ASSERT_OK(tartan_cuda_fused_of(&tartan_i_host, &kContext, &drop, &p));
    EXPECT_TRUE(p.nothing);
}

TEST(CudaPoints, ProblemsOfTwoArrays) {
    const tartan_array a = array_of(TARTAN_F32, {6, 1, 8}), b = array_of(TARTAN_F32, {5, 1}, 8192),
                       y = array_of(TARTAN_F32, {6, 5, 8}, 12288);
    tartan_op_point2 op = {};
    op.a = &a, op.b = &b, op.y = &y;
    tartan_cuda_points p;
    ASSERT_OK(tartan_cuda_point2_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_EQ(3, p.sweep.axes[TARTAN_CUDA_KEPT].ndim);
    EXPECT_EQ(4, p.sweep.unit);
    EXPECT_EQ(1, p.sweep.array[0].next);
    EXPECT_EQ(0, p.sweep.array[1].next);
    EXPECT_EQ(1, p.sweep.array[1].step[TARTAN_CUDA_KEPT][1]);
}

// Which gradients are sums, and over which arrays the sweeps go.
TEST(CudaPoints, GradientsAreSumsWhereOperandsAreRepeated) {
    const tartan_array whole = array_of(TARTAN_BF16, {6, 5, 8}), row = array_of(TARTAN_F32, {8}, 8192),
                       empty = array_of(TARTAN_BF16, {0, 5, 8}), one = array_of(TARTAN_F32, {1, 5, 8}, 8192);
    tartan_op_point2_gradient op = {};
    op.row = kRow_multiply;
    op.a = op.y_grad = op.a_grad = &whole;
    op.b = op.b_grad = &row;
    tartan_cuda_point2_gradient p = gradient_of(op);
    EXPECT_FALSE(p.nothing);
    EXPECT_EQ(TARTAN_F32, p.sum_dtype);
    EXPECT_TRUE(p.has_each && !p.has_sum[0] && p.has_sum[1]);
    EXPECT_EQ(nullptr, p.each.array[1].data) << "the gradient of a does not take a";
    EXPECT_EQ(row.data, p.each.array[2].data);
    EXPECT_EQ(whole.data, p.each.array[4].data);
    EXPECT_EQ(nullptr, p.each.array[5].data);
    EXPECT_EQ(whole.data, p.sum[1].array[1].data);
    EXPECT_EQ(nullptr, p.sum[1].array[2].data);
    EXPECT_EQ(row.data, p.sum[1].array[TARTAN_CUDA_SUM_RESULT].data);
    EXPECT_EQ(30, p.sum[1].axes[TARTAN_CUDA_SUMMED].elements);
    EXPECT_EQ(TARTAN_CUDA_KEPT, p.sum[1].inner);
    EXPECT_EQ(8, p.sum[1].unit);
    EXPECT_EQ(1, p.sum[1].array[TARTAN_CUDA_SUM_RESULT].next);
    EXPECT_EQ(8, p.sum[1].array[TARTAN_CUDA_SUM_RESULT].step[TARTAN_CUDA_KEPT][0]);
    op.row = kRow_add;
    op.a_grad = nullptr;
    p = gradient_of(op);
    EXPECT_TRUE(!p.has_each && p.has_sum[1]);
    EXPECT_EQ(nullptr, p.sum[1].array[1].data);
    op.row = kRow_divide;
    p = gradient_of(op);
    EXPECT_EQ(whole.data, p.sum[1].array[1].data);
    EXPECT_EQ(row.data, p.sum[1].array[2].data);
    EXPECT_EQ(nullptr, p.sum[1].array[3].data);
    op.a = op.y_grad = &empty; // sums of nothing are 0
    op.b = op.b_grad = &one;
    p = gradient_of(op);
    EXPECT_TRUE(!p.nothing && p.has_sum[1]);
    EXPECT_EQ(0, p.sum[1].axes[TARTAN_CUDA_SUMMED].elements);
    EXPECT_EQ(5, p.sum[1].axes[TARTAN_CUDA_KEPT].elements); // units of y_grad: b is one line
    op.b_grad = nullptr, op.a_grad = &empty;
    EXPECT_TRUE(gradient_of(op).nothing);
}

TEST(CudaPoints, TwoSumsOverTheSameTermsAreOneSweep) {
    const tartan_array whole = array_of(TARTAN_BF16, {6, 5, 8}), mean = array_of(TARTAN_F32, {8}, 8192),
                       sums = array_of(TARTAN_F32, {8}, 16384), squares = array_of(TARTAN_F32, {8}, 32768),
                       others = array_of(TARTAN_F32, {5, 1}, 32768);
    tartan_op_point2_gradient op = {};
    op.row = kRow_differences;
    op.a = op.y_grad = &whole;
    op.b = &mean, op.a_grad = &sums, op.b_grad = &squares;
    tartan_cuda_point2_gradient p = gradient_of(op);
    EXPECT_TRUE(p.has_both && p.has_sum[0] && p.has_sum[1]);
    EXPECT_EQ(whole.data, p.both.array[0].data);
    EXPECT_EQ(nullptr, p.both.array[1].data) << "it does not take a";
    EXPECT_EQ(mean.data, p.both.array[2].data);
    EXPECT_EQ(8, p.both.unit);
    for (int32_t i = 0; i < 2; i++) {
        const tartan_cuda_swept &sum = p.both.array[TARTAN_CUDA_SUM_RESULT + i];
        EXPECT_EQ(i == 0 ? sums.data : squares.data, sum.data);
        EXPECT_EQ(1, sum.next);
        EXPECT_EQ(8, sum.step[TARTAN_CUDA_KEPT][0]);
    }
    op.row = kRow_normalized_products;
    op.y = &mean;
    p = gradient_of(op);
    EXPECT_EQ(whole.data, p.both.array[1].data);
    EXPECT_EQ(mean.data, p.both.array[3].data);
    op.b_grad = &others; // over other dimensions
    EXPECT_FALSE(gradient_of(op).has_both);
}

TEST(CudaNorms, ProblemsHaveLinesAndStats) {
    const tartan_array x = array_of(TARTAN_BF16, {6, 5, 24}), gain = array_of(TARTAN_F32, {24}, 8192),
                       stats = array_of(TARTAN_F32, {6, 5, 2}, 16384),
                       rstd = array_of(TARTAN_F32, {6, 5}, 16384);
    tartan_op_layer_norm op = {};
    op.x = op.y = &x, op.gain = &gain, op.stats = &stats, op.epsilon = 1e-5;
    tartan_cuda_norm p;
    ASSERT_OK(tartan_cuda_layer_norm_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_TRUE(p.centred && !p.nothing);
    EXPECT_EQ(30, p.lines);
    EXPECT_EQ(24, p.length);
    EXPECT_EQ(-1, p.mean);
    EXPECT_EQ((char *)stats.data + 4, p.sweep.array[1].data);
    EXPECT_EQ(TARTAN_CUDA_SUMMED, p.sweep.inner);
    EXPECT_EQ(8, p.sweep.unit);
    EXPECT_EQ(1, p.sweep.axes[TARTAN_CUDA_KEPT].ndim);
    EXPECT_EQ(24, p.sweep.array[0].step[TARTAN_CUDA_KEPT][0]);
    EXPECT_EQ(2, p.sweep.array[1].step[TARTAN_CUDA_KEPT][0]);
    EXPECT_EQ(gain.data, p.gain.data);
    EXPECT_EQ(nullptr, p.bias.data);
    tartan_op_rms_norm other = {};
    other.x = other.y = &x, other.stats = &rstd;
    ASSERT_OK(tartan_cuda_rms_norm_of(&tartan_i_host, &kContext, &other, &p));
    EXPECT_FALSE(p.centred);
    EXPECT_EQ(rstd.data, p.sweep.array[1].data);
    EXPECT_EQ(1, p.sweep.array[1].step[TARTAN_CUDA_KEPT][0]);
    tartan_array turned = array_of(TARTAN_BF16, {24, 30}); // lines are neighbours
    std::swap(turned.shape[0], turned.shape[1]);
    std::swap(turned.strides[0], turned.strides[1]);
    op.x = op.y = &turned, op.stats = nullptr;
    ASSERT_OK(tartan_cuda_layer_norm_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_EQ(TARTAN_CUDA_KEPT, p.sweep.inner);
    EXPECT_EQ(1, p.sweep.unit);
    EXPECT_EQ(nullptr, p.sweep.array[1].data);
}

// Without numbers, the stats of a line are still written; without lines, gradients of gain and bias are 0.
TEST(CudaNorms, WhatThereIsNothingToDoFor) {
    const tartan_array none = array_of(TARTAN_F32, {0, 8}), blank = array_of(TARTAN_F32, {8, 0}),
                       stats = array_of(TARTAN_F32, {8, 2}), no_stats = array_of(TARTAN_F32, {0, 2}),
                       gain = array_of(TARTAN_F32, {8}), no_gain = array_of(TARTAN_F32, {0});
    tartan_op_layer_norm op = {};
    op.x = op.y = &none;
    tartan_cuda_norm p;
    ASSERT_OK(tartan_cuda_layer_norm_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_TRUE(p.nothing);
    op.x = op.y = &blank;
    ASSERT_OK(tartan_cuda_layer_norm_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_TRUE(p.nothing);
    op.stats = &stats;
    ASSERT_OK(tartan_cuda_layer_norm_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_FALSE(p.nothing);
    tartan_op_layer_norm_gradient back = {};
    back.x = back.y_grad = back.x_grad = &none, back.stats = &no_stats;
    tartan_cuda_norm_gradient g;
    ASSERT_OK(tartan_cuda_layer_norm_gradient_of(&tartan_i_host, &kContext, &back, &g));
    EXPECT_TRUE(g.nothing);
    back.gain_grad = &gain;
    ASSERT_OK(tartan_cuda_layer_norm_gradient_of(&tartan_i_host, &kContext, &back, &g));
    EXPECT_TRUE(!g.nothing && g.in.nothing);
    back.x = back.y_grad = back.x_grad = &blank, back.stats = &stats, back.gain_grad = &no_gain;
    ASSERT_OK(tartan_cuda_layer_norm_gradient_of(&tartan_i_host, &kContext, &back, &g));
    EXPECT_TRUE(g.nothing);
}
