// SPDX-License-Identifier: Apache-2.0
// What tartan_attention_forward and tartan_attention_backward refuse; nothing is written then.
#include "attention_support.h"

namespace {

using namespace tartan_test;

class AttentionRefusals : public ::testing::Test {
  protected:
    Context context = open_context(1);
    Attention p = make();
    const Dense out = p.out, lse = p.lse, q_grad = p.q_grad, k_grad = p.k_grad, v_grad = p.v_grad;

    static Attention make(int64_t layout_heads = 1) {
        std::mt19937_64 random(1);
        Attention a;
        a.batch = 2, a.heads = 4, a.kv_heads = 2, a.d = 8;
        a.layout = random_layout({32, 48, 16, 16, layout_heads}, 1, 1);
        a.make(random);
        return a;
    }
    tartan_status forward(const char *options = "", const tartan_array *bias = nullptr,
                          const tartan_array *sinks = nullptr) {
        return tartan_attention_forward(context.get(), p.layout.get(), &p.q.array, &p.k.array, &p.v.array,
                                        options, p.mask.get(), bias, sinks, &p.out.array, &p.lse.array);
    }
    tartan_status backward(const char *options = "", const tartan_array *bias = nullptr) {
        return tartan_attention_backward(
            context.get(), p.layout.get(), &p.q.array, &p.k.array, &p.v.array, options, p.mask.get(), bias,
            &p.out.array, &p.lse.array, &p.out_grad.array, &p.q_grad.array, &p.k_grad.array, &p.v_grad.array);
    }
    void TearDown() override {
        EXPECT_EQ(out.memory(), p.out.memory()) << "a refused call wrote";
        EXPECT_EQ(lse.memory(), p.lse.memory());
        EXPECT_EQ(q_grad.memory(), p.q_grad.memory());
        EXPECT_EQ(k_grad.memory(), p.k_grad.memory());
        EXPECT_EQ(v_grad.memory(), p.v_grad.memory());
    }
    // An array with another length of one dimension while this object lives.
    struct Longer {
        tartan_array &array;
        const tartan_array before;
        Longer(Dense &a, int32_t dimension, int64_t by = 1) : array(a.array), before(a.array) {
            array.shape[dimension] += by;
        }
        ~Longer() { array = before; }
    };
    struct OfDtype {
        tartan_array &array;
        const tartan_array before;
        OfDtype(Dense &a, int32_t dtype) : array(a.array), before(a.array) { array.dtype = dtype; }
        ~OfDtype() { array = before; }
    };
    struct At {
        tartan_array &array;
        const tartan_array before;
        At(Dense &a, const Dense &place) : array(a.array), before(a.array) { array.data = place.array.data; }
        ~At() { array = before; }
    };
};

TEST_F(AttentionRefusals, Handles) {
    tartan_array *const q = &p.q.array, *const k = &p.k.array, *const v = &p.v.array, *const o = &p.out.array,
                        *const l = &p.lse.array, *const g = &p.out_grad.array, *const dq = &p.q_grad.array,
                        *const dk = &p.k_grad.array, *const dv = &p.v_grad.array;
    tartan_context *const c = context.get();
    const tartan_layout *const layout = p.layout.get();
    const auto fwd = [&](tartan_context *context_, const tartan_layout *layout_, const tartan_array *q_,
                         const tartan_array *k_, const tartan_array *v_, tartan_array *out_) {
        return tartan_attention_forward(context_, layout_, q_, k_, v_, nullptr, nullptr, nullptr, nullptr,
                                        out_, nullptr);
    };
    EXPECT_FAILS(HANDLE, "tartan_attention_forward: context is NULL", fwd(nullptr, layout, q, k, v, o));
    EXPECT_FAILS(HANDLE, "layout is NULL", fwd(c, nullptr, q, k, v, o));
    EXPECT_FAILS(HANDLE, "q is NULL", fwd(c, layout, nullptr, k, v, o));
    EXPECT_FAILS(HANDLE, "k is NULL", fwd(c, layout, q, nullptr, v, o));
    EXPECT_FAILS(HANDLE, "v is NULL", fwd(c, layout, q, k, nullptr, o));
    EXPECT_FAILS(HANDLE, "out is NULL", fwd(c, layout, q, k, v, nullptr));
    const auto bwd = [&](tartan_context *context_, const tartan_array *out_, const tartan_array *lse_,
                         const tartan_array *grad_, tartan_array *dq_, tartan_array *dk_, tartan_array *dv_) {
        return tartan_attention_backward(context_, layout, q, k, v, nullptr, nullptr, nullptr, out_, lse_,
                                         grad_, dq_, dk_, dv_);
    };
    EXPECT_FAILS(HANDLE, "tartan_attention_backward: context is NULL", bwd(nullptr, o, l, g, dq, dk, dv));
    EXPECT_FAILS(HANDLE, "out is NULL", bwd(c, nullptr, l, g, dq, dk, dv));
    EXPECT_FAILS(HANDLE, "lse is NULL", bwd(c, o, nullptr, g, dq, dk, dv));
    EXPECT_FAILS(HANDLE, "out_grad is NULL", bwd(c, o, l, nullptr, dq, dk, dv));
    EXPECT_FAILS(HANDLE, "q_grad is NULL", bwd(c, o, l, g, nullptr, dk, dv));
    EXPECT_FAILS(HANDLE, "k_grad is NULL", bwd(c, o, l, g, dq, nullptr, dv));
    EXPECT_FAILS(HANDLE, "v_grad is NULL", bwd(c, o, l, g, dq, dk, nullptr));
}

TEST_F(AttentionRefusals, Shapes) {
    {
        Longer q(p.q, 2);
        EXPECT_FAILS(SHAPE, "q has shape [2, 4, 33, 8], expected 32 tokens, the rows of the layout",
                     forward());
    }
    {
        Longer k(p.k, 2);
        EXPECT_FAILS(SHAPE, "k has shape [2, 2, 49, 8], expected 48 tokens, the columns of the layout",
                     forward());
    }
    for (int32_t dimension : {0, 3}) {
        Longer k(p.k, dimension);
        EXPECT_FAILS(SHAPE, "expected the batch and the head dimension of q, 2 and 8", forward());
    }
    {
        Longer k(p.k, 1), v(p.v, 1);
        EXPECT_FAILS(SHAPE, "k has 3 heads, expected a divisor of the 4 of q", forward());
    }
    {
        Longer k(p.k, 1, -2), v(p.v, 1, -2);
        EXPECT_FAILS(SHAPE, "k has 0 heads, expected a divisor of the 4 of q", forward());
    }
    {
        Longer v(p.v, 3);
        EXPECT_FAILS(SHAPE, "v has shape [2, 2, 48, 9], expected [2, 2, 48, 8] (that of k)", forward());
    }
    p.q.array.ndim = 3;
    EXPECT_FAILS(SHAPE, "q has shape [2, 4, 32], expected [batch, heads, tokens, d]", forward());
    p.q.array.ndim = 4;
    {
        Longer o(p.out, 1, -1);
        EXPECT_FAILS(SHAPE, "out has shape [2, 3, 32, 8], expected [2, 4, 32, 8] (that of q)", forward());
    }
    {
        Longer l(p.lse, 2, -1);
        EXPECT_FAILS(SHAPE, "lse has shape [2, 4, 31], expected [2, 4, 32] (batch, heads and tokens of q)",
                     forward());
        EXPECT_FAILS(SHAPE, "lse has shape [2, 4, 31]", backward());
    }
    {
        Longer g(p.out_grad, 2, -1);
        EXPECT_FAILS(SHAPE, "out_grad has shape [2, 4, 31, 8]", backward());
    }
    for (Dense *a : {&p.q_grad, &p.k_grad, &p.v_grad}) {
        Longer g(*a, 1, -1);
        EXPECT_FAILS(SHAPE, "(that of the input it belongs to)", backward());
    }
    p.layout = random_layout({32, 48, 16, 16, 3}, 1, 1);
    EXPECT_FAILS(SHAPE, "layout has 3 heads, expected 1, 4 (those of q) or 8 (those of all batch entries)",
                 forward());
}

TEST_F(AttentionRefusals, Dtypes) {
    {
        OfDtype q(p.q, TARTAN_F8E4M3);
        EXPECT_FAILS(DTYPE, "q is of float8_e4m3fn, expected float64, float32, float16 or bfloat16",
                     forward());
    }
    {
        OfDtype q(p.q, TARTAN_U8);
        EXPECT_FAILS(DTYPE, "q has dtype 7, expected 1 .. 6", forward());
    }
    {
        OfDtype k(p.k, TARTAN_F16);
        EXPECT_FAILS(DTYPE, "k is of float16, expected float32 (that of q)", forward());
    }
    {
        OfDtype v(p.v, TARTAN_F16);
        EXPECT_FAILS(DTYPE, "v is of float16, expected float32 (that of q)", forward());
    }
    {
        OfDtype o(p.out, TARTAN_BF16);
        EXPECT_FAILS(DTYPE, "out is of bfloat16, expected float32", forward());
    }
    {
        OfDtype l(p.lse, TARTAN_BF16);
        EXPECT_FAILS(DTYPE, "lse is of bfloat16, expected float32", forward());
    }
    for (Dense *a : {&p.q_grad, &p.k_grad, &p.v_grad}) {
        OfDtype g(*a, TARTAN_F16);
        EXPECT_FAILS(DTYPE, "grad is of float16, expected float32 (that of q)", backward());
    }
    OfDtype q(p.q, TARTAN_BF16), k(p.k, TARTAN_BF16), v(p.v, TARTAN_BF16), g(p.out_grad, TARTAN_BF16);
    EXPECT_FAILS(DTYPE, "out_grad is of bfloat16, expected float32 (that of out)", backward());
}

TEST_F(AttentionRefusals, Options) {
    EXPECT_FAILS(ARGUMENT, "options has 'scale=x', expected scale to be a finite number", forward("scale=x"));
    EXPECT_FAILS(ARGUMENT, "expected scale to be a finite number", forward("scale=inf"));
    EXPECT_FAILS(ARGUMENT, "scale is 1e+300, expected a number that is finite in float32",
                 forward("scale=1e300"));
    EXPECT_FAILS(ARGUMENT, "options has 'causal=2', expected causal to be a whole number 0 .. 1",
                 forward("causal=2"));
    EXPECT_FAILS(ARGUMENT, "expected query_offset to be a whole number",
                 forward("causal=1 query_offset=0.5"));
    EXPECT_FAILS(ARGUMENT, "expected query_offset to be a whole number",
                 forward("causal=1 query_offset=1099511627777"));
    EXPECT_FAILS(ARGUMENT, "expected causal_from to be a whole number", forward("causal=1 causal_from=-1"));
    EXPECT_FAILS(ARGUMENT, "options has causal_from, which needs causal=1", forward("causal_from=3"));
    EXPECT_FAILS(ARGUMENT, "options has query_offset, which needs causal=1 or a bias",
                 forward("query_offset=3"));
    for (const char *text : {"dropout=1", "dropout=-0.1", "dropout=x"})
        EXPECT_FAILS(ARGUMENT, "expected dropout to be a number from 0 to less than 1", forward(text));
    EXPECT_FAILS(ARGUMENT, "expected seed to be a whole number", forward("seed=-1"));
    for (const char *text : {"deterministic=2", "deterministic=no"})
        EXPECT_FAILS(ARGUMENT, "expected deterministic to be a whole number 0 .. 1", forward(text));
    EXPECT_FAILS(ARGUMENT, "options has scale twice, expected it once", forward("scale=1,scale=2"));
    EXPECT_FAILS(
        ARGUMENT,
        "options has 'window=3', expected scale, causal, query_offset, causal_from, bias, dropout, seed or "
        "deterministic",
        forward("window=3"));
    EXPECT_FAILS(ARGUMENT, "tartan_attention_backward: options has 'window=3'", backward("window=3"));
}

TEST_F(AttentionRefusals, Bias) {
    Dense slopes(TARTAN_F32, {4}), distances(TARTAN_F32, {4, 7}), blocks(TARTAN_F32, {1, 6});
    EXPECT_FAILS(ARGUMENT, "options has 'bias=alibi', expected bias to be slopes, distance or block",
                 forward("bias=alibi", &slopes.array));
    EXPECT_FAILS(ARGUMENT, "bias is given, but options does not say what it holds",
                 forward("", &slopes.array));
    EXPECT_FAILS(ARGUMENT, "options has bias, but the array bias is NULL", forward("bias=slopes"));
    EXPECT_FAILS(SHAPE, "bias has shape [4, 7], expected [4] (one slope for each head)",
                 forward("bias=slopes", &distances.array));
    EXPECT_FAILS(SHAPE, "bias has shape [4], expected [4 or 1, an odd number of distances]",
                 forward("bias=distance", &slopes.array));
    distances.array.shape[1] = 6;
    EXPECT_FAILS(SHAPE, "bias has shape [4, 6], expected [4 or 1, an odd number",
                 forward("bias=distance", &distances.array));
    blocks.array.shape[1] = 5;
    EXPECT_FAILS(SHAPE, "bias has shape [1, 5], expected [heads or 1, 6], a number for each block",
                 forward("bias=block", &blocks.array));
    slopes.array.dtype = TARTAN_F64;
    EXPECT_FAILS(DTYPE, "bias is of float64, expected float32", forward("bias=slopes", &slopes.array));
    p.layout = random_layout({32, 48, 16, 16, 4}, 1, 1);
    Dense planes(TARTAN_F32, {4, 24});
    EXPECT_FAILS(SHAPE, "bias has shape [4, 24], expected [1, 24], a number for each block",
                 forward("bias=block", &planes.array));
}

TEST_F(AttentionRefusals, Sinks) {
    Dense sinks(TARTAN_F32, {4}), five(TARTAN_F32, {5}), plane(TARTAN_F32, {4, 1}), wide(TARTAN_F64, {4});
    EXPECT_FAILS(SHAPE,
                 "tartan_attention_forward: sinks has shape [5], expected [4] (one sink for each head)",
                 forward("", nullptr, &five.array));
    EXPECT_FAILS(SHAPE, "sinks has shape [4, 1], expected [4]", forward("", nullptr, &plane.array));
    EXPECT_FAILS(DTYPE, "sinks is of float64, expected float32", forward("", nullptr, &wide.array));
    sinks.array.device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "sinks is on device 2:0, expected 1:0", forward("", nullptr, &sinks.array));
    sinks.array.device_type = TARTAN_CPU;
    for (Dense *output : {&p.out, &p.lse}) {
        At o(sinks, *output);
        EXPECT_FAILS(ARGUMENT, "overlaps sinks", forward("", nullptr, &sinks.array));
    }
}

TEST_F(AttentionRefusals, Masks) {
    Attention other = make();
    other.layout = random_layout({32, 48, 8, 16, 1}, 1, 1);
    other.add_mask(0.5, 1);
    std::swap(p.mask, other.mask);
    EXPECT_FAILS(LAYOUT, "block_mask is of another layout", forward());
    EXPECT_FAILS(LAYOUT, "block_mask is of another layout", backward());
    p.mask.reset();
    EXPECT_FAILS(HANDLE, "block_mask is closed or not one of Tartan's",
                 tartan_attention_forward(context.get(), p.layout.get(), &p.q.array, &p.k.array, &p.v.array,
                                          "", (const tartan_block_mask *)p.layout.get(), nullptr, nullptr,
                                          &p.out.array, nullptr));
    p.add_mask(0.5, 1);
    const Dense scores(TARTAN_F32, {2, 3});
    tartan_layout *dynamic = nullptr;
    ASSERT_OK(tartan_layout_from_device_scores(context.get(), &p.layout->shape, &scores.array, 2, &dynamic));
    p.layout.reset(dynamic);
    EXPECT_FAILS(UNSUPPORTED, "layout is dynamic, expected an ordinary one, since block_mask is given",
                 forward());
    EXPECT_FAILS(UNSUPPORTED, "layout is dynamic, expected an ordinary one", backward());
    p.mask.reset();
}

TEST_F(AttentionRefusals, Overlap) {
    for (const Dense *a : {&p.q, &p.k, &p.v}) {
        At o(p.out, *a);
        EXPECT_FAILS(ARGUMENT, "out overlaps", forward());
    }
    for (const Dense *a : {&p.q, &p.k, &p.v, &p.out}) {
        At l(p.lse, *a);
        EXPECT_FAILS(ARGUMENT, "lse overlaps", forward());
    }
    Dense *const grads[] = {&p.q_grad, &p.k_grad, &p.v_grad};
    for (Dense *g : grads)
        for (const Dense *a : {&p.q, &p.k, &p.v, &p.out, &p.lse, &p.out_grad, (Dense *)grads[0]}) {
            if (a == g) continue;
            At o(*g, *a);
            EXPECT_FAILS(ARGUMENT, "overlaps", backward());
        }
    Dense slopes(TARTAN_F32, {4});
    slopes.array.data = p.out.array.data;
    EXPECT_FAILS(ARGUMENT, "out overlaps bias", forward("bias=slopes", &slopes.array));
    const tartan_array before = p.out.array;
    p.out.array.strides[2] = 0;
    EXPECT_FAILS(ARGUMENT, "out", forward());
    p.out.array = before;
}

TEST_F(AttentionRefusals, Devices) {
    for (Dense *a : {&p.q, &p.k, &p.v, &p.out, &p.lse}) {
        a->array.device_type = TARTAN_CUDA;
        EXPECT_FAILS(UNSUPPORTED, "is on device 2:0, expected 1:0", forward());
        a->array.device_type = TARTAN_CPU;
    }
}

} // namespace
