// SPDX-License-Identifier: Apache-2.0
// The problems of block softmax, its gradient and the merge of attentions.
#include "tune_support.h"

using namespace tartan_test;

namespace {

tartan_matrix matrix(tartan_layout *layout, int32_t dtype, int32_t order, uintptr_t address) {
    tartan_matrix m = {};
    m.layout = layout;
    m.dtype = dtype;
    m.block_order = order;
    m.values = (void *)address;
    return m;
}

void expect_blocks(const tartan_matrix &m, const tartan_cuda_blocks &b) {
    EXPECT_EQ(m.values, b.values);
    EXPECT_EQ(m.dtype, b.dtype);
    EXPECT_EQ(m.block_order, b.order);
    EXPECT_EQ(m.layout, b.layout);
}

tartan_array array(int32_t dtype, std::vector<int64_t> shape, std::vector<int64_t> strides,
                   uintptr_t address) {
    tartan_array a = {};
    a.data = (void *)address;
    a.dtype = dtype;
    a.ndim = (int32_t)shape.size();
    for (size_t d = 0; d < shape.size(); d++) a.shape[d] = shape[d], a.strides[d] = strides[d];
    return a;
}

const tartan_context kContext = {};

} // namespace

TEST(CudaBlockSoftmax, ProblemsHaveWhatTheOperandsHave) {
    const Layout layout = random_layout({50, 70, 16, 32, 6}, 0.5, 1),
                 empty = random_layout({50, 70, 16, 32, 6}, 0, 1),
                 none = random_layout({0, 70, 16, 32, 1}, 1, 1);
    const tartan_matrix x = matrix(layout.get(), TARTAN_F32, TARTAN_ROW_MAJOR, 4096);
    tartan_matrix y = matrix(layout.get(), TARTAN_BF16, TARTAN_COL_MAJOR, 8192);
    const tartan_array lse = array(TARTAN_F32, {6, 50}, {1, 6}, 512);
    tartan_op_block_softmax op = {};
    op.in.layout = layout.get();
    op.in.scale = 0.5;
    op.in.causal = true;
    op.in.query_offset = 20, op.in.causal_from = 3;
    op.x = &x, op.y = &y, op.lse = &lse;
    tartan_cuda_block_softmax p;
    ASSERT_OK(tartan_cuda_block_softmax_of(&tartan_i_host, &kContext, &op, &p));
    expect_blocks(x, p.x);
    expect_blocks(y, p.y);
    EXPECT_EQ(0.5, p.scale);
    EXPECT_TRUE(p.causal);
    EXPECT_EQ(20, p.query_offset);
    EXPECT_EQ(3, p.causal_from);
    EXPECT_EQ(lse.data, p.lse);
    EXPECT_EQ(1, p.lse_head);
    EXPECT_EQ(6, p.lse_row);
    EXPECT_EQ(nullptr, p.block_mask);
    EXPECT_FALSE(p.nothing);
    op.lse = nullptr;
    ASSERT_OK(tartan_cuda_block_softmax_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_EQ(nullptr, p.lse);
    const tartan_matrix blank = matrix(empty.get(), TARTAN_F32, TARTAN_ROW_MAJOR, 4096),
                        flat = matrix(none.get(), TARTAN_F32, TARTAN_ROW_MAJOR, 4096);
    op.x = &blank; // lse is written even so
    ASSERT_OK(tartan_cuda_block_softmax_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_FALSE(p.nothing);
    op.x = &flat;
    ASSERT_OK(tartan_cuda_block_softmax_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_TRUE(p.nothing);

    tartan_matrix dx = matrix(layout.get(), TARTAN_F16, TARTAN_ROW_MAJOR, 16384);
    tartan_op_block_softmax_gradient back = {};
    back.scale = 0.25;
    back.y = &y, back.y_grad = &x, back.x_grad = &dx;
    tartan_cuda_block_softmax_gradient g;
    ASSERT_OK(tartan_cuda_block_softmax_gradient_of(&tartan_i_host, &kContext, &back, &g));
    expect_blocks(y, g.y);
    expect_blocks(x, g.dy);
    expect_blocks(dx, g.dx);
    EXPECT_EQ(0.25, g.scale);
    EXPECT_FALSE(g.nothing);
    back.y = &blank;
    ASSERT_OK(tartan_cuda_block_softmax_gradient_of(&tartan_i_host, &kContext, &back, &g));
    EXPECT_TRUE(g.nothing);
}

TEST(CudaAttentionMerge, ProblemsHaveWhatTheOperandsHave) {
    const tartan_array out_a = array(TARTAN_F32, {2, 3, 5, 8}, {120, 40, 8, 1}, 4096),
                       out_b = array(TARTAN_BF16, {2, 3, 5, 8}, {1, 2, 6, 30}, 8192),
                       lse_a = array(TARTAN_F32, {2, 3, 5}, {15, 5, 1}, 512),
                       lse_b = array(TARTAN_F32, {2, 3, 5}, {1, 2, 6}, 1024);
    tartan_op_attention_merge op = {};
    op.out_a = &out_a, op.lse_a = &lse_a, op.out_b = &out_b, op.lse_b = &lse_b, op.out = &out_a,
    op.lse = &lse_a;
    tartan_cuda_attention_merge p;
    ASSERT_OK(tartan_cuda_attention_merge_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_EQ(2, p.batch);
    EXPECT_EQ(3, p.heads);
    EXPECT_EQ(5, p.tokens);
    EXPECT_EQ(8, p.d);
    EXPECT_EQ(TARTAN_F32, p.sum_dtype);
    EXPECT_EQ(out_a.data, p.out_a.data);
    EXPECT_EQ(40, p.out_a.head);
    EXPECT_EQ(TARTAN_BF16, p.out_b.dtype);
    EXPECT_EQ(30, p.out_b.element);
    EXPECT_EQ(lse_b.data, p.lse_b.data);
    EXPECT_EQ(6, p.lse_b.token);
    EXPECT_EQ(lse_a.data, p.lse.data);
    EXPECT_FALSE(p.nothing);
    op.lse = nullptr;
    ASSERT_OK(tartan_cuda_attention_merge_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_EQ(nullptr, p.lse.data);
    const tartan_array none = array(TARTAN_F32, {2, 3, 0, 8}, {120, 40, 8, 1}, 4096);
    op.out = &none;
    ASSERT_OK(tartan_cuda_attention_merge_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_TRUE(p.nothing);
}
