// SPDX-License-Identifier: Apache-2.0
// The problems of attention.
#include "tune_support.h"

using namespace tartan_test;

namespace {

// An array of consecutive elements whose dimensions lie in memory in the given order, the slowest first.
tartan_array array(int32_t dtype, std::vector<int64_t> shape, std::vector<int> order) {
    tartan_array a = {};
    a.data = (void *)4096;
    a.dtype = dtype;
    a.ndim = (int32_t)shape.size();
    int64_t stride = 1;
    for (auto d = order.rbegin(); d != order.rend(); ++d) {
        a.shape[*d] = shape[(size_t)*d];
        a.strides[*d] = stride;
        stride *= shape[(size_t)*d];
    }
    return a;
}

// Operands of 2 batch entries, 6 heads, 3 kv heads, 50 queries, 70 keys, d = 24.
struct Operands {
    Layout layout = random_layout({50, 70, 16, 32, 6}, 0.5, 1);
    tartan_array q = array(TARTAN_BF16, {2, 6, 50, 24}, {0, 2, 1, 3});
    tartan_array k = array(TARTAN_BF16, {2, 3, 70, 24}, {0, 1, 2, 3});
    tartan_array v = array(TARTAN_BF16, {2, 3, 70, 24}, {3, 2, 1, 0});
    tartan_array out = array(TARTAN_F32, {2, 6, 50, 24}, {1, 0, 2, 3});
    tartan_array lse = array(TARTAN_F32, {2, 6, 50}, {2, 1, 0});
    tartan_array bias = {}, sinks = {};
    tartan_i_attention in = {};

    Operands() {
        in.layout = layout.get();
        in.q = &q, in.k = &k, in.v = &v;
        in.scale = 0.25;
        in.causal = true;
        in.query_offset = 20, in.causal_from = 3;
        in.dropout = 0.5;
        in.seed = 7;
        in.any_order = true;
    }
    tartan_cuda_attention_forward forward(bool with_lse = true) {
        const tartan_context context = {};
        tartan_op_attention_forward op = {};
        op.in = in;
        op.sinks = sinks.ndim > 0 ? &sinks : nullptr;
        op.out = &out;
        op.lse = with_lse ? &lse : nullptr;
        tartan_cuda_attention_forward p;
        EXPECT_OK(tartan_cuda_attention_forward_of(&tartan_i_host, &context, &op, &p));
        return p;
    }
    tartan_cuda_attention_bias_gradient bias_gradient(const tartan_array *bias_grad,
                                                      const tartan_array *sinks_grad) {
        const tartan_context context = {};
        tartan_array of_bias = {}, of_sinks = {};
        tartan_op_attention_bias_gradient op = {};
        op.in = in;
        op.sinks = sinks.ndim > 0 ? &sinks : nullptr;
        op.out = op.out_grad = &out;
        op.lse = &lse;
        if (bias_grad != nullptr) op.bias_grad = &(of_bias = *bias_grad);
        if (sinks_grad != nullptr) op.sinks_grad = &(of_sinks = *sinks_grad);
        tartan_cuda_attention_bias_gradient p;
        EXPECT_OK(tartan_cuda_attention_bias_gradient_of(&tartan_i_host, &context, &op, &p));
        return p;
    }
    tartan_cuda_attention_backward backward() {
        const tartan_context context = {};
        tartan_op_attention_backward op = {};
        op.in = in;
        op.out = op.out_grad = &out;
        op.lse = &lse;
        op.q_grad = &q, op.k_grad = &k, op.v_grad = &v;
        tartan_cuda_attention_backward p;
        EXPECT_OK(tartan_cuda_attention_backward_of(&tartan_i_host, &context, &op, &p));
        return p;
    }
};

void expect_tensor(const tartan_array &a, const tartan_cuda_tensor &t) {
    EXPECT_EQ(a.data, t.data);
    EXPECT_EQ(a.dtype, t.dtype);
    EXPECT_EQ(a.strides[0], t.batch);
    EXPECT_EQ(a.strides[1], t.head);
    EXPECT_EQ(a.strides[2], t.token);
    EXPECT_EQ(a.ndim == 4 ? a.strides[3] : 0, t.element);
}

} // namespace

// ---- Problems ----

TEST(CudaAttention, ProblemsHaveWhatTheOperandsHave) {
    Operands x;
    const tartan_cuda_attention_forward p = x.forward();
    expect_tensor(x.q, p.in.q);
    expect_tensor(x.k, p.in.k);
    expect_tensor(x.v, p.in.v);
    expect_tensor(x.out, p.out);
    expect_tensor(x.lse, p.lse);
    EXPECT_EQ(TARTAN_BF16, p.in.dtype);
    EXPECT_EQ(TARTAN_F32, p.in.sum_dtype);
    EXPECT_EQ(2, p.in.batch);
    EXPECT_EQ(6, p.in.heads);
    EXPECT_EQ(3, p.in.kv_heads);
    EXPECT_EQ(50, p.in.tq);
    EXPECT_EQ(70, p.in.tk);
    EXPECT_EQ(24, p.in.d);
    EXPECT_EQ(6, p.in.layout_heads);
    EXPECT_EQ(4, p.in.grid_q);
    EXPECT_EQ(3, p.in.grid_k);
    EXPECT_EQ(16, p.in.block_q);
    EXPECT_EQ(32, p.in.block_k);
    EXPECT_EQ(x.layout->blocks, p.in.blocks);
    EXPECT_EQ(0.25, p.in.scale);
    EXPECT_TRUE(p.in.causal);
    EXPECT_EQ(20, p.in.query_offset);
    EXPECT_EQ(3, p.in.causal_from);
    EXPECT_EQ(0.5, p.in.dropout);
    EXPECT_EQ(7, p.in.seed);
    EXPECT_TRUE(p.in.any_order);
    EXPECT_EQ(nullptr, p.in.bias);
    EXPECT_FALSE(p.nothing);
    EXPECT_EQ(nullptr, x.forward(false).lse.data);
    const tartan_cuda_attention_backward b = x.backward();
    expect_tensor(x.out, b.out);
    expect_tensor(x.out, b.out_grad);
    expect_tensor(x.lse, b.lse);
    expect_tensor(x.q, b.q_grad);
    expect_tensor(x.k, b.k_grad);
    expect_tensor(x.v, b.v_grad);
    EXPECT_FALSE(b.nothing);
}

TEST(CudaAttention, ProblemsTakeLayoutsOfOneHeadOfAllHeadsAndOfAllBatchEntries) {
    Operands x;
    const auto expect = [&](int64_t heads, int64_t entry, int64_t head) {
        x.layout = random_layout({50, 70, 16, 32, heads}, 0.5, 1);
        x.in.layout = x.layout.get();
        for (const tartan_cuda_attention &in : {x.forward().in, x.backward().in}) {
            EXPECT_EQ(heads, in.layout_heads);
            EXPECT_EQ(entry, in.layout_entry);
            EXPECT_EQ(head, in.layout_head);
        }
    };
    expect(1, 0, 0);
    expect(6, 0, 1);
    expect(12, 6, 1);
}

TEST(CudaAttention, ProblemsTakeEveryKindOfBias) {
    Operands x;
    x.in.bias = &x.bias;
    const auto expect = [&](tartan_i_bias kind, tartan_array bias, int64_t head, int64_t element,
                            int64_t reach) {
        x.in.bias_kind = kind;
        x.bias = bias;
        const tartan_cuda_attention in = x.forward().in;
        EXPECT_EQ(kind, in.bias_kind);
        EXPECT_EQ(bias.data, in.bias);
        EXPECT_EQ(head, in.bias_head);
        EXPECT_EQ(element, in.bias_element);
        EXPECT_EQ(reach, in.bias_reach);
    };
    expect(TARTAN_I_BIAS_SLOPES, array(TARTAN_F32, {6}, {0}), 1, 0, 0);
    expect(TARTAN_I_BIAS_DISTANCE, array(TARTAN_F32, {6, 21}, {0, 1}), 21, 1, 10);
    expect(TARTAN_I_BIAS_DISTANCE, array(TARTAN_F32, {6, 21}, {1, 0}), 1, 6, 10);
    expect(TARTAN_I_BIAS_DISTANCE, array(TARTAN_F32, {1, 21}, {0, 1}), 0, 1, 10);
    expect(TARTAN_I_BIAS_BLOCK, array(TARTAN_F32, {1, x.layout->blocks}, {0, 1}), 0, 1, 0);
}

TEST(CudaAttention, ProblemsTakeSinks) {
    Operands x;
    EXPECT_EQ(nullptr, x.forward().sinks);
    x.sinks = array(TARTAN_F32, {6}, {0});
    x.sinks.strides[0] = -2;
    EXPECT_EQ(x.sinks.data, x.forward().sinks);
    EXPECT_EQ(-2, x.forward().sinks_element);
}

TEST(CudaAttention, ProblemsOfBiasGradientsHaveWhatTheOperandsHave) {
    Operands x;
    x.in.bias = &x.bias;
    x.in.bias_kind = TARTAN_I_BIAS_DISTANCE;
    x.bias = array(TARTAN_F32, {6, 21}, {0, 1});
    x.sinks = array(TARTAN_F32, {6}, {0});
    x.sinks.strides[0] = -2;
    tartan_array bias_grad = array(TARTAN_F32, {6, 21}, {1, 0}), sinks_grad = array(TARTAN_F32, {6}, {0});
    bias_grad.data = (void *)8192, sinks_grad.data = (void *)12288;
    sinks_grad.strides[0] = 3;
    const tartan_cuda_attention_bias_gradient p = x.bias_gradient(&bias_grad, &sinks_grad);
    expect_tensor(x.q, p.in.q);
    expect_tensor(x.out, p.out);
    expect_tensor(x.out, p.out_grad);
    expect_tensor(x.lse, p.lse);
    EXPECT_EQ(x.bias.data, p.in.bias);
    EXPECT_EQ(10, p.in.bias_reach);
    EXPECT_EQ(bias_grad.data, p.bias_grad);
    EXPECT_EQ(6, p.planes);
    EXPECT_EQ(21, p.width);
    EXPECT_EQ(1, p.plane_stride);
    EXPECT_EQ(6, p.number_stride);
    EXPECT_EQ(x.sinks.data, p.sinks);
    EXPECT_EQ(-2, p.sinks_element);
    EXPECT_EQ(sinks_grad.data, p.sinks_grad);
    EXPECT_EQ(3, p.sinks_grad_element);
    EXPECT_FALSE(p.nothing);
    const tartan_cuda_attention_bias_gradient bias = x.bias_gradient(&bias_grad, nullptr);
    EXPECT_EQ(bias_grad.data, bias.bias_grad);
    EXPECT_EQ(nullptr, bias.sinks_grad);
    EXPECT_FALSE(bias.nothing);
    const tartan_cuda_attention_bias_gradient sinks = x.bias_gradient(nullptr, &sinks_grad);
    EXPECT_EQ(nullptr, sinks.bias_grad);
    EXPECT_EQ(0, sinks.planes * sinks.width);
    EXPECT_EQ(sinks_grad.data, sinks.sinks_grad);
    EXPECT_FALSE(sinks.nothing);
}

TEST(CudaAttention, ProblemsWithADenseBias) {
    Operands x;
    x.in.bias = &x.bias;
    x.in.bias_kind = TARTAN_I_BIAS_DENSE;
    for (const int64_t batch : {1, 2})
        for (const int64_t heads : {1, 6}) {
            SCOPED_TRACE(::testing::Message() << batch << " " << heads);
            x.bias = array(TARTAN_F32, {batch, heads, 50, 70}, {0, 1, 3, 2});
            const tartan_cuda_attention in = x.forward().in;
            EXPECT_EQ(batch > 1 ? x.bias.strides[0] : 0, in.bias_batch);
            EXPECT_EQ(heads > 1 ? x.bias.strides[1] : 0, in.bias_head);
            EXPECT_EQ(1, in.bias_query);
            EXPECT_EQ(50, in.bias_element);
            tartan_array grad = x.bias;
            const tartan_cuda_attention_bias_gradient p = x.bias_gradient(&grad, nullptr);
            EXPECT_EQ(batch * heads, p.planes);
            EXPECT_EQ(heads, p.plane_heads);
            EXPECT_EQ(50 * 70, p.width);
            EXPECT_EQ(70, p.columns);
            EXPECT_EQ(grad.strides[0], p.plane_batch_stride);
            EXPECT_EQ(grad.strides[1], p.plane_stride);
            EXPECT_EQ(1, p.row_stride);
            EXPECT_EQ(50, p.number_stride);
            // Each group has the entries of its plane, and each entry is in one group.
            std::vector<int> seen(12);
            const int64_t entries = 12 / p.groups;
            for (int64_t g = 0; g < p.groups; g++)
                for (int64_t n = 0; n < entries; n++) {
                    const int64_t entry = g * p.member_first + n * p.member_step;
                    seen[(size_t)entry]++;
                    EXPECT_EQ((batch > 1 ? entry / 6 : 0) * heads + (heads > 1 ? entry % 6 : 0), g);
                }
            for (int count : seen) EXPECT_EQ(1, count);
        }
}

TEST(CudaAttention, ProblemsWithLayoutsOfBatchEntries) {
    Operands x;
    x.layout = random_layout({50, 70, 16, 32, 2}, 0.5, 1);
    x.in.layout = x.layout.get();
    x.in.by_batch = true;
    x.in.softcap = 30;
    x.v = array(TARTAN_BF16, {2, 3, 70, 40}, {3, 2, 1, 0});
    x.in.bias = &x.bias;
    x.in.bias_kind = TARTAN_I_BIAS_BLOCK;
    x.bias = array(TARTAN_F32, {1, x.layout->blocks}, {0, 1});
    const tartan_cuda_attention in = x.forward().in;
    EXPECT_EQ(1, in.layout_entry);
    EXPECT_EQ(0, in.layout_head);
    EXPECT_EQ(30, in.softcap);
    EXPECT_EQ(24, in.d);
    EXPECT_EQ(40, in.dv);
    tartan_array grad = x.bias;
    const tartan_cuda_attention_bias_gradient p = x.bias_gradient(&grad, nullptr);
    EXPECT_EQ(2, p.groups); // of the heads of an entry
    EXPECT_EQ(6, p.member_first);
    EXPECT_EQ(1, p.member_step);
}

// Groups are by planes of the bias; with a number for each block, by the heads of the layout.
TEST(CudaAttention, BiasGradientsAreOfGroups) {
    Operands x;
    x.in.bias = &x.bias;
    const auto expect = [&](int64_t groups, tartan_i_bias kind, int64_t layout_heads, int64_t planes) {
        SCOPED_TRACE(::testing::Message() << "kind " << kind << " heads " << layout_heads);
        x.layout = random_layout({50, 70, 16, 32, layout_heads}, 0.5, 1);
        x.in.layout = x.layout.get();
        x.in.bias_kind = kind;
        x.bias = kind == TARTAN_I_BIAS_SLOPES     ? array(TARTAN_F32, {planes}, {0})
                 : kind == TARTAN_I_BIAS_DISTANCE ? array(TARTAN_F32, {planes, 21}, {0, 1})
                                                  : array(TARTAN_F32, {planes, x.layout->blocks}, {0, 1});
        tartan_array grad = x.bias;
        const tartan_cuda_attention_bias_gradient p = x.bias_gradient(&grad, nullptr);
        EXPECT_EQ(groups, p.groups);
        EXPECT_EQ(planes, p.planes);
        EXPECT_EQ(kind == TARTAN_I_BIAS_SLOPES ? 1 : grad.shape[1], p.width);
        EXPECT_EQ(layout_heads, p.in.layout_heads);
        // What is in a group has one plane and, with a number for each block, one head of the layout.
        const int64_t entries = p.in.batch * p.in.heads;
        for (int64_t e = 0; e < entries; e++) {
            const int64_t first = e % p.groups, heads = p.in.heads;
            const auto head = [&](int64_t entry) {
                return entry / heads * p.in.layout_entry + entry % heads * p.in.layout_head;
            };
            EXPECT_EQ(planes > 1 ? e % heads : 0, first % planes);
            if (kind == TARTAN_I_BIAS_BLOCK) {
                EXPECT_EQ(head(first), head(e));
            }
        }
    };
    for (const int64_t layout_heads : {1, 6, 12}) {
        expect(6, TARTAN_I_BIAS_SLOPES, layout_heads, 6);
        expect(6, TARTAN_I_BIAS_DISTANCE, layout_heads, 6);
        expect(1, TARTAN_I_BIAS_DISTANCE, layout_heads, 1);
        expect(layout_heads, TARTAN_I_BIAS_BLOCK, layout_heads, 1);
    }
    expect(6, TARTAN_I_BIAS_BLOCK, 1, 6);
}

TEST(CudaAttention, BiasGradientsOfNothing) {
    const tartan_array planes = array(TARTAN_F32, {6, 21}, {0, 1}),
                       no_blocks = array(TARTAN_F32, {1, 0}, {0, 1}), no_heads = array(TARTAN_F32, {0}, {0}),
                       sinks_grad = array(TARTAN_F32, {6}, {0});
    const auto nothing = [](const tartan_array *bias_grad, const tartan_array *grad_of_sinks, int64_t heads,
                            int64_t batch) {
        Operands x;
        x.sinks = array(TARTAN_F32, {heads}, {0});
        x.q.shape[0] = batch, x.q.shape[1] = heads;
        return x.bias_gradient(bias_grad, grad_of_sinks).nothing;
    };
    EXPECT_FALSE(nothing(&planes, nullptr, 6, 2));
    EXPECT_FALSE(nothing(&planes, nullptr, 6, 0)); // zeros
    EXPECT_FALSE(nothing(nullptr, &sinks_grad, 6, 0));
    EXPECT_FALSE(nothing(&no_blocks, &sinks_grad, 6, 2));
    EXPECT_TRUE(nothing(&no_blocks, nullptr, 6, 2));
    EXPECT_TRUE(nothing(&no_heads, nullptr, 0, 2));
    EXPECT_TRUE(nothing(&no_heads, &no_heads, 0, 2));
}

TEST(CudaAttention, NothingIsToBeDoneWithoutOutputs) {
    const auto forward = [](void (*change)(Operands &)) {
        Operands x;
        change(x);
        return x.forward().nothing;
    };
    const auto backward = [](void (*change)(Operands &)) {
        Operands x;
        change(x);
        return x.backward().nothing;
    };
    const auto no_batch = [](Operands &x) { x.q.shape[0] = 0; };
    const auto no_heads = [](Operands &x) { x.q.shape[1] = x.k.shape[1] = 0; };
    const auto no_queries = [](Operands &x) { x.q.shape[2] = 0; };
    const auto no_keys = [](Operands &x) { x.k.shape[2] = 0; };
    const auto keys_alone = [](Operands &x) { x.q.shape[1] = 0; };
    const auto no_tokens = [](Operands &x) { x.q.shape[2] = x.k.shape[2] = 0; };
    EXPECT_TRUE(forward(no_batch));
    EXPECT_TRUE(forward(no_heads));
    EXPECT_TRUE(forward(no_queries));
    EXPECT_FALSE(forward(no_keys)); // zeros
    EXPECT_TRUE(backward(no_batch));
    EXPECT_TRUE(backward(no_heads));
    EXPECT_FALSE(backward(no_queries)); // gradients of keys are zeros
    EXPECT_FALSE(backward(no_keys));
    EXPECT_FALSE(backward(keys_alone));
    EXPECT_TRUE(backward(no_tokens));
}
