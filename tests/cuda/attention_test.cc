// SPDX-License-Identifier: Apache-2.0
// Attention: its problems, the choice among kernels, their refusals and the rates that the model expects.
#include "tune_support.h"

#include <functional>

using namespace tartan_test;

namespace {

const char *const kWgmma = "attention_forward_wgmma", *const kPlain = "attention_forward_plain",
                  *const kBackward = "attention_backward_plain",
                  *const kBackwardWgmma = "attention_backward_wgmma",
                  *const kFused = "attention_backward_fused";

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

void expect_tensor(const tartan_array &a, const tartan_cuda_tensor &t) {
    EXPECT_EQ(a.data, t.data);
    EXPECT_EQ(a.dtype, t.dtype);
    EXPECT_EQ(a.strides[0], t.batch);
    EXPECT_EQ(a.strides[1], t.head);
    EXPECT_EQ(a.strides[2], t.token);
    EXPECT_EQ(a.ndim == 4 ? a.strides[3] : 0, t.element);
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

// ---- The choice ----

TEST(CudaAttention, HopperHasAKernelForSixteenBits) {
    for (const int32_t dtype : {TARTAN_F16, TARTAN_BF16})
        for (const int32_t block_q : kBlocks)
            for (const int32_t block_k : kBlocks) {
                EXPECT_EQ(kWgmma, Forward(dtype, block_q, block_k).chosen(kHopper)) << block_q;
                EXPECT_EQ(kPlain, Forward(dtype, block_q, block_k).chosen(kAmpere)) << block_q;
                EXPECT_EQ(kPlain, Forward(dtype, block_q, block_k).chosen(kBlackwell)) << block_q;
            }
    for (const int32_t dtype : {TARTAN_F64, TARTAN_F32})
        EXPECT_EQ(kPlain, Forward(dtype, 64, 64).chosen(kHopper));
}

TEST(CudaAttention, PlainKernelsRefuseNothing) {
    for (const int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16})
        for (const int32_t block : {1, 3, 256})
            for (const int64_t d : {0, 1, 300}) {
                EXPECT_EQ("", Forward(dtype, block, 7, d).refusal(kPlain, kAmpere));
                EXPECT_EQ("", Backward(dtype, block, 7, d).refusal(kBackward, kAmpere));
                EXPECT_EQ(kPlain, Forward(dtype, block, 7, d).chosen(kHopper));
                EXPECT_EQ(kBackward, Backward(dtype, block, 7, d).chosen(kHopper));
            }
}

// Five products instead of seven, if the order of sums may depend on the run. Up to 64 elements that is no gain where both sides
// have blocks of 128.
TEST(CudaAttention, SumsInAnyOrderAreFaster) {
    for (const int32_t dtype : {TARTAN_F16, TARTAN_BF16})
        for (const int64_t d : {16, 64, 80, 128})
            for (const int32_t block_q : {64, 128}) {
                Backward p(dtype, block_q, 128, d);
                EXPECT_EQ(kBackwardWgmma, p.chosen(kHopper));
                p.p.in.any_order = true;
                EXPECT_EQ(d > 64 || block_q < 128 ? kFused : kBackwardWgmma, p.chosen(kHopper));
                EXPECT_EQ(kBackward, p.chosen(kAmpere));
            }
}

// ---- Refusals ----

TEST(CudaAttention, RefusalsOfFused) {
    Backward half(TARTAN_BF16, 64, 64);
    EXPECT_EQ("its sums depend on the run, only for deterministic=0", half.refusal(kFused, kHopper));
    half.p.in.any_order = true;
    EXPECT_EQ("needs compute capability 9.0", half.refusal(kFused, kAmpere));
    EXPECT_REFUSES(half, kFused, kHopper, "up to 128 elements", p.in.d = 136);
    EXPECT_REFUSES(half, kFused, kHopper, "blocks of 64 or 128 keys", p.in.block_k = 32);
    Backward narrow(TARTAN_BF16, 64, 8, 64);
    narrow.p.in.any_order = true;
    EXPECT_EQ("", narrow.refusal(kFused, kHopper));
    EXPECT_REFUSES(half, kFused, kHopper, "float16", p.in.dtype = TARTAN_F32);
    EXPECT_REFUSES(half, kFused, kHopper, "bias", p.in.bias = &p);
    EXPECT_REFUSES(half, kFused, kHopper, "dropout", p.in.dropout = 0.1);
    EXPECT_REFUSES(half, kFused, kHopper, "dtype of q", p.out_grad.dtype = TARTAN_F32);
    EXPECT_REFUSES(half, kFused, kHopper, "of out_grad", p.out_grad.element = 2);
}

TEST(CudaAttention, RefusalsOfWgmma) {
    const Forward half(TARTAN_BF16, 64, 32);
    EXPECT_EQ("needs compute capability 9.0", half.refusal(kWgmma, kAmpere));
    EXPECT_EQ("needs compute capability 9.0", half.refusal(kWgmma, kBlackwell));
    EXPECT_REFUSES(half, kWgmma, kHopper, "float16", p.in.dtype = TARTAN_F32);
    EXPECT_REFUSES(half, kWgmma, kHopper, "float16", p.in.dtype = TARTAN_F64);
    for (const int64_t d : {8, 20, 264}) EXPECT_REFUSES(half, kWgmma, kHopper, "in eights", p.in.d = d);
    for (const int32_t block : {1, 24, 256}) {
        EXPECT_REFUSES(half, kWgmma, kHopper, "only for blocks of", p.in.block_q = block);
        EXPECT_REFUSES(half, kWgmma, kHopper, "only for blocks of", p.in.block_k = block);
    }
    EXPECT_REFUSES(half, kWgmma, kHopper, "no blocks", p.in.blocks = 0);
    EXPECT_REFUSES(half, kWgmma, kHopper, "no heads", p.in.heads = 0);
    EXPECT_REFUSES(half, kWgmma, kHopper, "2^31 queries", p.in.tq = INT32_MAX);
    EXPECT_REFUSES(half, kWgmma, kHopper, "2^31 queries", p.in.tk = INT32_MAX);
    EXPECT_REFUSES(half, kWgmma, kHopper, "2e9 tiles", p.in.batch = 1000000);
    for (const double scale : {0.0, -1.0})
        EXPECT_REFUSES(half, kWgmma, kHopper, "positive", p.in.scale = scale);
    for (const int64_t offset : {-((int64_t)1 << 30) - 1, ((int64_t)1 << 30) + 1})
        EXPECT_REFUSES(half, kWgmma, kHopper, "below 2^30", p.in.bias = &p; p.in.query_offset = offset);
    EXPECT_REFUSES(half, kWgmma, kHopper, "1e-20", p.in.bias = &p; p.in.scale = 1e-21);
    EXPECT_REFUSES(half, kWgmma, kHopper, "together with a block mask", p.in.bias_kind = TARTAN_I_BIAS_BLOCK;
                   p.in.block_mask = (const tartan_block_mask *)&p);
}

TEST(CudaAttention, WgmmaNeedsTensorsThatTmaCanLoad) {
    const Forward half(TARTAN_F16, 64, 64);
    const std::function<void(tartan_cuda_tensor &)> changes[] = {
        [](tartan_cuda_tensor &t) { t.data = (void *)4098; },
        [](tartan_cuda_tensor &t) { t.element = 2; },
        [](tartan_cuda_tensor &t) { t.token = 2052; },
        [](tartan_cuda_tensor &t) { t.token = 0; },
        [](tartan_cuda_tensor &t) { t.token = -2048; },
        [](tartan_cuda_tensor &t) { t.head = 12; },
        [](tartan_cuda_tensor &t) { t.head = (int64_t)1 << 38; },
        [](tartan_cuda_tensor &t) { t.batch = 0; },
    };
    for (const auto &change : changes)
        for (const auto tensor :
             {&tartan_cuda_attention::q, &tartan_cuda_attention::k, &tartan_cuda_attention::v}) {
            EXPECT_REFUSES(half, kWgmma, kHopper, "contiguous", change(p.in.*tensor));
            auto changed = half;
            change(changed.p.in.*tensor);
            EXPECT_EQ(kPlain, changed.chosen(kHopper));
        }
    // The strides of one head and one batch entry do not count.
    Forward single(TARTAN_F16, 64, 64);
    single.p.in.batch = single.p.in.heads = single.p.in.kv_heads = 1;
    single.p.in.q.head = single.p.in.k.batch = 3;
    EXPECT_EQ("", single.refusal(kWgmma, kHopper));
}

// ---- Rates ----

TEST(CudaAttention, RatesOfPlainKernels) {
    const auto forward = [](int32_t dtype, int32_t block, int64_t d) {
        return Forward(dtype, block, 64, d).rate(kPlain);
    };
    EXPECT_NEAR(12, forward(TARTAN_F32, 128, 128), 1e-9);
    EXPECT_NEAR(12, forward(TARTAN_BF16, 64, 64), 1e-9);
    EXPECT_NEAR(10, forward(TARTAN_F32, 32, 128), 1e-9);
    EXPECT_NEAR(7, forward(TARTAN_F32, 16, 128), 1e-9);
    EXPECT_NEAR(3.5, forward(TARTAN_F32, 8, 128), 1e-9);             // half of the threads are idle
    EXPECT_NEAR(12 * 36 / 64.0, forward(TARTAN_F32, 72, 128), 1e-9); // two pieces of 36
    EXPECT_NEAR(12 * 2 / 3.0, forward(TARTAN_F32, 64, 32), 1e-9);    // sums are made of 64 elements
    EXPECT_NEAR(12 * 2 / 3.0, forward(TARTAN_F32, 64, 256), 1e-9);   // the scores are computed twice
    EXPECT_NEAR(6, forward(TARTAN_F64, 128, 128), 1e-9);
    EXPECT_EQ(0, forward(TARTAN_F32, 64, 0));
    const auto backward = [](int32_t dtype, int32_t block_q, int32_t block_k, int64_t d) {
        return Backward(dtype, block_q, block_k, d).rate(kBackward);
    };
    EXPECT_NEAR(10 * 5 / 7.0, backward(TARTAN_F32, 64, 64, 128), 1e-9); // the scores are computed twice
    EXPECT_GT(backward(TARTAN_F32, 64, 64, 128), backward(TARTAN_F32, 64, 8, 128));
    EXPECT_GT(backward(TARTAN_F32, 64, 64, 128), backward(TARTAN_F32, 8, 64, 128));
    EXPECT_NEAR(6 * 5 / 9.0, backward(TARTAN_F64, 64, 64, 128), 1e-9); // and a third time
}

// Where the queries of several block rows share a tile, it has all keys that any of them sees.
TEST(CudaAttention, RatesOfWgmma) {
    EXPECT_GT(Forward(TARTAN_BF16, 128, 128).rate(kWgmma), Forward(TARTAN_BF16, 64, 128).rate(kWgmma));
    Forward shared(TARTAN_BF16, 16, 64), apart(TARTAN_BF16, 16, 64);
    for (int i = 0; i < TARTAN_CUDA_SHARES; i++) shared.p.in.figures.share[0][i] = 1 << i;
    EXPECT_NEAR(4 * apart.rate(kWgmma), shared.rate(kWgmma), 1e-9);
    EXPECT_NEAR(Forward(TARTAN_BF16, 64, 64).rate(kWgmma), shared.rate(kWgmma), 1e-9);
}

// Tiles of the backward pass have all queries that any of their keys sees, and dq's all keys.
TEST(CudaAttention, RatesOfTheBackwardPass) {
    Backward shared(TARTAN_BF16, 16, 16), apart(TARTAN_BF16, 16, 16);
    for (int i = 0; i < TARTAN_CUDA_SHARES; i++)
        shared.p.in.figures.share[0][i] = shared.p.in.figures.share[1][i] = 1 << i;
    EXPECT_NEAR(4 * apart.rate(kBackwardWgmma), shared.rate(kBackwardWgmma), 1e-9);
    EXPECT_GT(Backward(TARTAN_BF16, 128, 128).rate(kBackwardWgmma),
              Backward(TARTAN_BF16, 128, 16).rate(kBackwardWgmma));
    EXPECT_GT(Backward(TARTAN_BF16, 128, 128).rate(kBackwardWgmma),
              Backward(TARTAN_BF16, 16, 128).rate(kBackwardWgmma));
    EXPECT_EQ(Backward(TARTAN_BF16, 128, 128).rate(kFused), Backward(TARTAN_BF16, 8, 128).rate(kFused));
    // Two blocks of 64 keys share a tile of 128, which pays if the same queries see them.
    Backward pair(TARTAN_BF16, 64, 64);
    pair.p.in.any_order = true;
    EXPECT_EQ(kBackwardWgmma, pair.chosen(kHopper));
    pair.p.in.figures.share[1][1] = 2;
    EXPECT_EQ(kFused, pair.chosen(kHopper));
}
