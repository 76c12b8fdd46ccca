// SPDX-License-Identifier: Apache-2.0
// A problem of attention with all its operands.
#ifndef TARTAN_TESTS_ATTENTION_PROBLEM_H
#define TARTAN_TESTS_ATTENTION_PROBLEM_H

#include "../support/attention_calls.h"
#include "products.h"

extern "C" {
#include "backend/attention.h"
#include "core/random.h"
#include "layout/block_mask.h"
}

namespace tartan_test {

struct FreeMask {
    void operator()(tartan_block_mask *p) const { tartan_block_mask_free(p); }
};
using BlockMask = std::unique_ptr<tartan_block_mask, FreeMask>;

// How an array of [batch, heads, tokens, d] lies in memory: by rows, by columns (d slowest of the last two), with
// gaps, reversed, or as [batch, tokens, heads, d].
enum TokenStyle { kHeads, kTokenColumns, kTokenGaps, kTokenReversed, kTokens, kTokenStyles };

inline Dense token_array(int32_t dtype, int64_t batch, int64_t heads, int64_t tokens, int64_t d,
                         TokenStyle style = kHeads) {
    if (style != kTokens) {
        const Style styles[] = {kRows, kColumns, kGaps, kReversed};
        return Dense(dtype, {batch, heads, tokens, d}, styles[style]);
    }
    Dense a(dtype, {batch, tokens, heads, d});
    std::swap(a.array.shape[1], a.array.shape[2]);
    std::swap(a.array.strides[1], a.array.strides[2]);
    return a;
}

using Numbers = std::vector<long double>;

// Sums, and the sizes of what they add: their error is in proportion to these, however much cancels.
struct Sums {
    Numbers values, sizes;
    explicit Sums(int64_t n = 0) : values((size_t)n, 0), sizes((size_t)n, 0) {}
    void add(int64_t at, long double x, long double size) {
        values[(size_t)at] += x;
        sizes[(size_t)at] += std::fabs(size);
    }
};

// The results of both passes, in row-major order of the indices.
struct AttentionResults {
    Sums out, q_grad, k_grad, v_grad, bias_grad, sinks_grad;
    Numbers lse;
};

struct Attention {
    Layout layout;
    BlockMask mask;
    int32_t dtype = TARTAN_F32, out_dtype = TARTAN_F32;
    int64_t batch = 1, heads = 1, kv_heads = 1, d = 16,
            dv = 0; // dv: 0 as long as values have d elements, too
    Dense q, k, v, bias, sinks, out, lse, out_grad, q_grad, k_grad, v_grad, bias_grad, sinks_grad;
    tartan_i_bias bias_kind = TARTAN_I_BIAS_NONE;
    bool has_sinks = false;
    double scale = NAN; // NAN: the default
    double softcap = 0;
    bool by_batch = false;
    bool causal = false;
    int64_t query_offset = 0, causal_from = 0;
    double dropout = 0;
    int64_t seed = 0;
    bool deterministic = true;

    int64_t tq() const { return layout->shape.rows; }
    int64_t tk() const { return layout->shape.cols; }
    int64_t value_size() const { return dv > 0 ? dv : d; }
    int32_t sum_dtype() const { return tartan_i_sum_dtype(dtype); }
    double scale_used() const { return std::isnan(scale) ? d > 0 ? 1 / std::sqrt((double)d) : 1 : scale; }

    // Makes the arrays, with random numbers in the inputs.
    void make(std::mt19937_64 &random, TokenStyle style = kHeads, double size = 1) {
        q = token_array(dtype, batch, heads, tq(), d, style);
        k = token_array(dtype, batch, kv_heads, tk(), d, style);
        v = token_array(dtype, batch, kv_heads, tk(), value_size(), style);
        out = token_array(out_dtype, batch, heads, tq(), value_size(), style);
        out_grad = token_array(out_dtype, batch, heads, tq(), value_size(), style);
        lse = Dense(sum_dtype(), {batch, heads, tq()}, style == kTokenGaps ? kGaps : kRows);
        q_grad = token_array(dtype, batch, heads, tq(), d, style);
        k_grad = token_array(dtype, batch, kv_heads, tk(), d, style);
        v_grad = token_array(dtype, batch, kv_heads, tk(), value_size(), style);
        for (Dense *a : {&q, &k, &v}) a->fill(random, -size, size);
        out_grad.fill(random);
        if (dtype != out_dtype) // like the gradient of an f32 result that is rounded
            for (int64_t i = 0; i < out_grad.elements(); i++)
                out_grad.set(i, rounded(dtype, out_grad.get(i)));
    }
    void add_bias(tartan_i_bias kind, std::mt19937_64 &random, int64_t reach = 5) {
        bias_kind = kind;
        const int64_t planes = random() % 2 && layout->shape.heads == 1 ? heads : 1;
        const auto some = [&](int64_t n) { return random() % 2 ? n : 1; };
        bias = kind == TARTAN_I_BIAS_SLOPES ? Dense(sum_dtype(), {heads}, kReversed)
               : kind == TARTAN_I_BIAS_DENSE
                   ? Dense(sum_dtype(), {some(batch), some(heads), tq(), tk()}, kGaps)
               : kind == TARTAN_I_BIAS_DISTANCE ? Dense(sum_dtype(), {planes, 2 * reach + 1}, kGaps)
                                                : Dense(sum_dtype(), {planes, layout->blocks}, kColumns);
        bias.fill(random, -0.3, 0.3);
        for (int64_t i = 0; kind == TARTAN_I_BIAS_DENSE && i < bias.elements(); i++)
            if (random() % 7 == 0) bias.set(i, -INFINITY);
        bias_grad = bias;
        bias_grad.fill(random);
    }
    void add_sinks(std::mt19937_64 &random) {
        has_sinks = true;
        sinks = Dense(sum_dtype(), {heads}, kReversed);
        sinks.fill(random, -3, 3);
        if (heads > 1 && random() % 4 == 0) sinks.set((int64_t)below(random, (size_t)heads), -INFINITY);
        sinks_grad = sinks;
        sinks_grad.fill(random);
    }
    // Keeps an element with this probability.
    void add_mask(double density, uint64_t seed_) {
        struct Rule {
            uint64_t seed;
            double density;
        } rule = {seed_, density};
        tartan_block_mask *raw = nullptr;
        const auto keep = [](void *user, int64_t head, int64_t row, int64_t col) -> int32_t {
            const Rule *r = (const Rule *)user;
            return (double)std::mt19937_64(r->seed + (uint64_t)((head * 4099 + row) * 4099 + col))() <
                   r->density * 0x1p64;
        };
        EXPECT_OK(tartan_block_mask_from_rule(layout.get(), keep, &rule, &raw));
        mask.reset(raw);
    }

    std::string options() const {
        static const char *const kinds[] = {"", "slopes", "distance", "block", "dense"};
        char text[256];
        std::string all;
        const auto add = [&](const char *format, auto value) {
            std::snprintf(text, sizeof text, format, value);
            all += text;
        };
        if (!std::isnan(scale)) add("scale=%.17g ", scale);
        if (softcap > 0) add("softcap=%.17g ", softcap);
        if (by_batch) all += "by_batch=1 ";
        if (causal) all += "causal=1 ";
        if (causal && causal_from > 0) add("causal_from=%lld ", (long long)causal_from);
        if (query_offset != 0) add("query_offset=%lld ", (long long)query_offset);
        if (bias_kind != TARTAN_I_BIAS_NONE) add("bias_kind=%s ", kinds[bias_kind]);
        if (dropout > 0) add("dropout=%.17g ", dropout);
        if (seed != 0) add("seed=%lld ", (long long)seed);
        if (!deterministic) all += "deterministic=0 ";
        return all;
    }
    const tartan_array *bias_array() const { return bias_kind == TARTAN_I_BIAS_NONE ? nullptr : &bias.array; }
    const tartan_array *sinks_array() const { return has_sinks ? &sinks.array : nullptr; }
    tartan_status forward(tartan_context *context) {
        return attention_forward(context, layout.get(), &q.array, &k.array, &v.array, options().c_str(),
                                 mask.get(), bias_array(), sinks_array(), &out.array, &lse.array);
    }
    tartan_status backward(tartan_context *context) {
        return attention_backward(context, layout.get(), &q.array, &k.array, &v.array, options().c_str(),
                                  mask.get(), bias_array(), &out.array, &lse.array, &out_grad.array,
                                  &q_grad.array, &k_grad.array, &v_grad.array);
    }

    // The gradients of the bias and the sinks, if there are any.
    bool has_bias_gradient() const { return bias_kind != TARTAN_I_BIAS_NONE || has_sinks; }
    tartan_status bias_gradient(tartan_context *context) {
        return attention_bias_gradient(context, layout.get(), &q.array, &k.array, &v.array, options().c_str(),
                                       mask.get(), bias_array(), sinks_array(), &out.array, &lse.array,
                                       &out_grad.array,
                                       bias_kind == TARTAN_I_BIAS_NONE ? nullptr : &bias_grad.array,
                                       has_sinks ? &sinks_grad.array : nullptr);
    }

    // ---- The oracle ----

    bool sees(int64_t b, int64_t h, int64_t i, int64_t j, int64_t *out_id) const {
        const tartan_shape &s = layout->shape;
        const int64_t of = s.heads == 1 ? 0 : by_batch ? b : s.heads == heads ? h : b * heads + h;
        const int64_t id = tartan_i_layout_find(layout.get(), of, i / s.block_rows, j / s.block_cols);
        *out_id = id;
        if (id < 0 || (causal && j > i + query_offset && j >= causal_from)) return false;
        return mask == nullptr ||
               tartan_i_block_mask_keeps(mask.get(), id, i % s.block_rows, j % s.block_cols);
    }
    // The element of the bias that a pair has.
    int64_t bias_element(int64_t b, int64_t h, int64_t i, int64_t j, int64_t id) const {
        if (bias_kind == TARTAN_I_BIAS_SLOPES) return h;
        if (bias_kind == TARTAN_I_BIAS_DENSE) {
            const int64_t *n = bias.array.shape;
            return (((n[0] > 1 ? b : 0) * n[1] + (n[1] > 1 ? h : 0)) * tq() + i) * tk() + j;
        }
        const int64_t n = bias.array.shape[1], plane = bias.array.shape[0] > 1 ? h : 0, r = n / 2;
        return plane * n +
               (bias_kind == TARTAN_I_BIAS_BLOCK ? id : std::clamp(j - i - query_offset, -r, r) + r);
    }
    double bias_factor(int64_t i, int64_t j) const {
        return bias_kind == TARTAN_I_BIAS_SLOPES ? (double)(j - i - query_offset) : 1;
    }
    double bias_of(int64_t b, int64_t h, int64_t i, int64_t j, int64_t id) const {
        if (bias_kind == TARTAN_I_BIAS_NONE) return 0;
        return bias_factor(i, j) * bias.get(bias_element(b, h, i, j, id));
    }
    bool dropped(int64_t b, int64_t h, int64_t i, int64_t j) const {
        uint32_t words[4];
        tartan_i_philox((uint64_t)seed, TARTAN_I_STREAM_DROPOUT, (uint64_t)((b * heads + h) * tq() + i),
                        (uint32_t)(4 * (j / 16) + j % 8 / 2), words);
        return (double)words[2 * (j / 8 % 2) + j % 2] < std::floor(dropout * 0x1p32);
    }

    // Rounds what a plain implementation in the dtype would round after each step; the oracle itself does not.
    using Round = long double (*)(const Attention &, long double);
    static long double exact(const Attention &, long double x) { return x; }
    static long double plain(const Attention &a, long double x) {
        return std::isfinite((double)x) ? rounded(a.dtype, (double)x) : x;
    }

    AttentionResults results(Round round = exact) const;
};

} // namespace tartan_test

#endif
