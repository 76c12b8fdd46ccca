// SPDX-License-Identifier: Apache-2.0
// What attention refuses that no entry of the schema says: heads, biases and options that do not fit together.
#include "attention_support.h"

namespace {

using namespace tartan_test;

class AttentionRefusals : public ::testing::Test {
  protected:
    Context context = open_context(1);
    Attention p = make();
    const Dense out = p.out, lse = p.lse, q_grad = p.q_grad, k_grad = p.k_grad, v_grad = p.v_grad;

    static Attention make() {
        std::mt19937_64 random(1);
        Attention a;
        a.batch = 2, a.heads = 4, a.kv_heads = 2, a.d = 8;
        a.layout = random_layout({32, 48, 16, 16, 1}, 1, 1);
        a.make(random);
        return a;
    }
    tartan_status forward(const char *options = "", const tartan_array *bias = nullptr) {
        return attention_forward(context.get(), p.layout.get(), &p.q.array, &p.k.array, &p.v.array, options,
                                 p.mask.get(), bias, nullptr, &p.out.array, &p.lse.array);
    }
    tartan_status backward(const char *options = "") {
        return attention_backward(context.get(), p.layout.get(), &p.q.array, &p.k.array, &p.v.array, options,
                                  p.mask.get(), nullptr, &p.out.array, &p.lse.array, &p.out_grad.array,
                                  &p.q_grad.array, &p.k_grad.array, &p.v_grad.array);
    }
    void TearDown() override {
        EXPECT_EQ(out.memory(), p.out.memory()) << "a refused call wrote";
        EXPECT_EQ(lse.memory(), p.lse.memory());
        EXPECT_EQ(q_grad.memory(), p.q_grad.memory());
        EXPECT_EQ(k_grad.memory(), p.k_grad.memory());
        EXPECT_EQ(v_grad.memory(), p.v_grad.memory());
    }
};

TEST_F(AttentionRefusals, Heads) {
    const Dense k = p.k;
    for (const int64_t heads : {3, 0}) {
        p.k = p.v = Dense(TARTAN_F32, {2, heads, 48, 8});
        EXPECT_FAILS(SHAPE, "k has " + std::to_string(heads) + " heads, expected a divisor of the 4 of q",
                     forward());
    }
    p.k = p.v = k;
    p.layout = random_layout({32, 48, 16, 16, 3}, 1, 1);
    EXPECT_FAILS(SHAPE, "layout has 3 heads, expected 1, 4 (heads of q) or 8 (heads of all batch entries)",
                 forward());
}

TEST_F(AttentionRefusals, BlocksOfDifferentSizes) {
    p.layout = with_boundaries(from_mask({2, 2, 1, 1, 1}, {1, 1, 0, 1}), {0, 12, 32}, {0, 16, 48});
    const char *text = "layout has blocks of different sizes, which are not supported here: sddmm, "
                       "block_softmax and spmm take them";
    EXPECT_FAILS(UNSUPPORTED, text, forward());
    EXPECT_FAILS(UNSUPPORTED, text, backward());
}

// A message has the sizes that are known.
TEST_F(AttentionRefusals, ShapesInNumbers) {
    p.k = Dense(TARTAN_F32, {2, 2, 48, 9});
    EXPECT_FAILS(SHAPE,
                 "k has shape [2, 2, 48, 9], expected [2, kv_heads, 48, 8], which is [batch, kv_heads, "
                 "layout.cols, d]",
                 forward());
    p.k = Dense(TARTAN_F32, {2, 2, 48, 8});
    Dense slopes(TARTAN_F32, {3});
    EXPECT_FAILS(
        SHAPE,
        "bias has shape [3], expected [4] or [bias_heads, n] or [bias_batch, bias_heads, 32, 48], which is "
        "[heads] or [bias_heads, n] or [bias_batch, bias_heads, layout.rows, layout.cols]",
        forward("bias_kind=slopes", &slopes.array));
}

TEST_F(AttentionRefusals, DtypeOfTheGradient) {
    p.q = p.k = p.v = Dense(TARTAN_BF16, {2, 4, 32, 8});
    p.layout = random_layout({32, 32, 16, 16, 1}, 1, 1);
    const tartan_array *q = &p.q.array;
    Dense half(TARTAN_BF16, {2, 4, 32, 8}), q_grad_ = half, k_grad_ = half, v_grad_ = half;
    EXPECT_FAILS(DTYPE, "out_grad is of bfloat16, expected float32 (as out)",
                 attention_backward(context.get(), p.layout.get(), q, q, q, "", nullptr, nullptr,
                                    &p.out.array, &p.lse.array, &half.array, &q_grad_.array, &k_grad_.array,
                                    &v_grad_.array));
}

TEST_F(AttentionRefusals, OptionsThatNeedOthers) {
    EXPECT_FAILS(ARGUMENT, "scale is 1e+300, expected a number that is finite in float32",
                 forward("scale=1e300"));
    EXPECT_FAILS(ARGUMENT, "options has causal_from, which needs causal=1", forward("causal_from=3"));
    EXPECT_FAILS(ARGUMENT, "tartan_attention_backward: options has causal_from, which needs causal=1",
                 backward("causal_from=3"));
    EXPECT_FAILS(ARGUMENT, "options has query_offset, which needs causal=1 or a bias",
                 forward("query_offset=3"));
}

TEST_F(AttentionRefusals, Bias) {
    Dense slopes(TARTAN_F32, {4}), distances(TARTAN_F32, {4, 7}), even(TARTAN_F32, {4, 6}),
        blocks(TARTAN_F32, {1, 5});
    EXPECT_FAILS(ARGUMENT, "bias is given, but options does not say what it holds",
                 forward("", &slopes.array));
    EXPECT_FAILS(ARGUMENT, "options has bias_kind, but the array bias is NULL", forward("bias_kind=slopes"));
    EXPECT_FAILS(SHAPE, "bias has shape [4, 7], expected [4] (one slope for each head)",
                 forward("bias_kind=slopes", &distances.array));
    EXPECT_FAILS(SHAPE, "bias has shape [4], expected [4 or 1, an odd number of distances]",
                 forward("bias_kind=distance", &slopes.array));
    EXPECT_FAILS(SHAPE, "bias has shape [4, 6], expected [4 or 1, an odd number",
                 forward("bias_kind=distance", &even.array));
    EXPECT_FAILS(SHAPE, "bias has shape [1, 5], expected [heads or 1, 6], a number for each block",
                 forward("bias_kind=block", &blocks.array));
    Dense dense(TARTAN_F32, {2, 3, 32, 48});
    EXPECT_FAILS(SHAPE,
                 "bias has shape [2, 3, 32, 48], expected [2 or 1, 4 or 1, 32, 48], a number for each score",
                 forward("bias_kind=dense", &dense.array));
    EXPECT_FAILS(SHAPE, "bias has shape [4], expected [2 or 1, 4 or 1, 32, 48]",
                 forward("bias_kind=dense", &slopes.array));
    p.layout = random_layout({32, 48, 16, 16, 4}, 1, 1);
    EXPECT_FAILS(SHAPE,
                 "layout has 4 heads, expected 2, one for each batch entry, since options has by_batch",
                 forward("by_batch=1"));
    Dense planes(TARTAN_F32, {4, 24});
    EXPECT_FAILS(SHAPE, "bias has shape [4, 24], expected [1, 24], a number for each block",
                 forward("bias_kind=block", &planes.array));
}

TEST_F(AttentionRefusals, MasksOfDynamicLayouts) {
    p.add_mask(0.5, 1);
    const Dense scores(TARTAN_F32, {2, 3});
    tartan_layout *dynamic = nullptr;
    ASSERT_OK(tartan_layout_from_device_scores(context.get(), &p.layout->shape, &scores.array, 2, &dynamic));
    p.layout.reset(dynamic);
    EXPECT_FAILS(LAYOUT, "block_mask has another layout than layout", forward());
    EXPECT_FAILS(LAYOUT, "expected the same blocks (dynamic)", backward());
    p.mask.reset();
}

} // namespace
