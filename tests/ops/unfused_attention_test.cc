// SPDX-License-Identifier: Apache-2.0
// Attention as three operations, scores, weights and sums, beside the fused one.
#include "block_softmax_support.h"

namespace {

using namespace tartan_test;

// Attention by its parts; the layout has batch * heads heads.
struct Unfused {
    Layout layout;
    BlockMask mask;
    Matrix scores, weights, dscores;
    Dense out, q_grad, k_grad, v_grad;
};

// [batch, heads, tokens, d], contiguous, as [batch * heads, tokens, d].
tartan_array folded(const Dense &a) {
    tartan_array x = a.array;
    x.ndim = 3;
    x.shape[0] = a.array.shape[0] * a.array.shape[1];
    for (int32_t d = 1; d < 3; d++) x.shape[d] = a.array.shape[d + 1], x.strides[d] = a.array.strides[d + 1];
    x.strides[0] = a.array.strides[1];
    return x;
}
tartan_array turned(tartan_array a) {
    std::swap(a.shape[1], a.shape[2]);
    std::swap(a.strides[1], a.strides[2]);
    return a;
}

using Rule = int32_t (*)(void *, int64_t head, int64_t row, int64_t col);

// Both passes of attention by its parts. `rule`: the block mask of all heads, or NULL.
void run_unfused(const Attention &p, Rule rule, tartan_context *context, Unfused *u) {
    const tartan_shape &s = p.layout->shape;
    const int64_t heads = p.batch * p.heads;
    std::vector<uint8_t> one((size_t)(s.heads * p.layout->grid_rows * p.layout->grid_cols)), all;
    ASSERT_OK(tartan_layout_get_mask(p.layout.get(), one.data(), (int64_t)one.size()));
    for (int64_t n = 0; n < heads / s.heads; n++) all.insert(all.end(), one.begin(), one.end());
    u->layout = from_mask({s.rows, s.cols, s.block_rows, s.block_cols, heads}, all);
    if (rule != nullptr) {
        tartan_block_mask *raw = nullptr;
        ASSERT_OK(tartan_block_mask_from_rule(u->layout.get(), rule, nullptr, &raw));
        u->mask.reset(raw);
    }
    const auto matrix = [&](int32_t dtype) {
        tartan_matrix *raw = nullptr;
        EXPECT_OK(tartan_matrix_create(u->layout.get(), dtype, TARTAN_ROW_MAJOR, &raw));
        return Matrix(raw);
    };
    u->scores = matrix(p.sum_dtype()), u->dscores = matrix(p.sum_dtype());
    u->weights = matrix(p.dtype);
    u->out = p.out, u->q_grad = p.q_grad, u->k_grad = p.k_grad, u->v_grad = p.v_grad;
    const tartan_array q = folded(p.q), k = folded(p.k), v = folded(p.v), k_turned = turned(k),
                       v_turned = turned(v), out_grad = folded(p.out_grad);
    const std::string options = "scale=" + std::to_string(p.scale) + (p.causal ? " causal=1" : "") +
                                (p.causal_from > 0 ? " causal_from=" + std::to_string(p.causal_from) : "");
    const auto multiply = [&](int32_t transpose, const Matrix &a, const tartan_array &b, Dense &c) {
        tartan_array to = folded(c);
        EXPECT_OK(tartan_spmm(context, a.get(), nullptr, &b, 1, 0, spmm_options(kLeft, transpose), &to));
    };
    ASSERT_OK(tartan_sddmm(context, &q, &k_turned, 1, nullptr, 1, 0, u->scores.get()));
    ASSERT_OK(tartan_block_softmax(context, u->scores.get(), options.c_str(), u->mask.get(), u->weights.get(),
                                   nullptr));
    multiply(kAsIs, u->weights, v, u->out);
    multiply(kTransposed, u->weights, out_grad, u->v_grad);
    ASSERT_OK(tartan_sddmm(context, &out_grad, &v_turned, 1, nullptr, 1, 0, u->dscores.get()));
    tartan_matrix *ds = u->dscores.get();
    Matrix narrow;
    if (p.dtype != p.sum_dtype()) {
        narrow = matrix(p.dtype);
        ds = narrow.get();
    }
    ASSERT_OK(tartan_block_softmax_gradient(context, u->weights.get(), u->dscores.get(), p.scale, ds));
    multiply(kAsIs, narrow != nullptr ? narrow : u->dscores, k, u->q_grad);
    multiply(kTransposed, narrow != nullptr ? narrow : u->dscores, q, u->k_grad);
}

// Compares the parts with the oracle and with fused attention; both have the error that the dtype allows.
void check_unfused(Attention &p, Rule rule, tartan_context *context) {
    Unfused u;
    run_unfused(p, rule, context, &u);
    ASSERT_OK(p.forward(context));
    ASSERT_OK(p.backward(context));
    const AttentionResults want = p.results();
    const double most = allowed(p);
    EXPECT_LE(error_of(u.out, want.out), most);
    EXPECT_LE(error_of(u.q_grad, want.q_grad), most);
    EXPECT_LE(error_of(u.k_grad, want.k_grad), most);
    EXPECT_LE(error_of(u.v_grad, want.v_grad), most);
    EXPECT_LE(error_of(numbers_of(u.out), numbers_of(p.out), want.out.sizes), 2 * most);
    EXPECT_LE(error_of(numbers_of(u.q_grad), numbers_of(p.q_grad), want.q_grad.sizes), 2 * most);
    EXPECT_LE(error_of(numbers_of(u.k_grad), numbers_of(p.k_grad), want.k_grad.sizes), 2 * most);
    EXPECT_LE(error_of(numbers_of(u.v_grad), numbers_of(p.v_grad), want.v_grad.sizes), 2 * most);
}

int32_t checkerboard(void *, int64_t, int64_t row, int64_t col) {
    return (row + col) % 2 == 0;
}

TEST(UnfusedAttention, EqualsFusedAttention) {
    const Context own = open_context(2);
    int number = 0;
    for (int32_t dtype : kDtypes)
        for (bool causal : {false, true})
            for (Rule rule : {(Rule) nullptr, (Rule)checkerboard}) {
                SCOPED_TRACE(::testing::Message() << "case " << number);
                std::mt19937_64 random((uint64_t)number++);
                std::vector<uint8_t> mask(2 * 5 * 4);
                for (auto &m : mask) m = random() % 3 > 0;
                Attention p;
                p.dtype = p.out_dtype = dtype;
                p.batch = p.heads = p.kv_heads = 2, p.d = 24;
                p.scale = 0.0625; // exact in a text
                p.causal = causal, p.causal_from = causal ? 7 : 0;
                p.layout = from_mask({75, 90, 16, 24, 2}, mask);
                p.make(random);
                if (rule != nullptr) {
                    tartan_block_mask *raw = nullptr;
                    ASSERT_OK(tartan_block_mask_from_rule(p.layout.get(), rule, nullptr, &raw));
                    p.mask.reset(raw);
                }
                check_unfused(p, rule, own.get());
                if (HasFailure()) return;
            }
}

} // namespace
