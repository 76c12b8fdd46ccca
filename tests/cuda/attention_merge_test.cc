// SPDX-License-Identifier: Apache-2.0
// The problems of the merge of attentions.
#include "tune_support.h"

using namespace tartan_test;

namespace {

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
