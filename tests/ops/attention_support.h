// SPDX-License-Identifier: Apache-2.0
// What the tests of attention share: a problem with all its operands, and its oracle in long double.
#ifndef TARTAN_TESTS_ATTENTION_SUPPORT_H
#define TARTAN_TESTS_ATTENTION_SUPPORT_H

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

    // The keys that a query sees, and their scores.
    struct Row {
        std::vector<int64_t> keys, ids;
        Numbers scores, weights, slopes; // slopes: of the softcap
        long double lse = -INFINITY;
    };
    // The inputs in row-major order of their indices.
    struct Inputs {
        std::vector<double> q, k, v, out_grad;
        explicit Inputs(const Attention &p)
            : q(flat(p.q)), k(flat(p.k)), v(flat(p.v)), out_grad(flat(p.out_grad)) {}
        static std::vector<double> flat(const Dense &a) {
            std::vector<double> all((size_t)a.elements());
            for (size_t i = 0; i < all.size(); i++) all[i] = a.get((int64_t)i);
            return all;
        }
    };
    static long double dot(const double *x, const double *y, int64_t n) {
        long double sum = 0;
        for (int64_t t = 0; t < n; t++) sum += (long double)x[t] * y[t];
        return sum;
    }
    Row row_of(const Inputs &in, int64_t b, int64_t h, int64_t i, Round round) const {
        Row r;
        const int64_t g = h / (heads / kv_heads);
        for (int64_t j = 0, id; j < tk(); j++) {
            if (!sees(b, h, i, j, &id)) continue;
            r.keys.push_back(j);
            r.ids.push_back(id);
            long double s =
                (long double)scale_used() * dot(in.q.data() + ((b * heads + h) * tq() + i) * d,
                                                in.k.data() + ((b * kv_heads + g) * tk() + j) * d, d);
            const long double t = softcap > 0 ? std::tanh(s / softcap) : 0;
            if (softcap > 0) s = softcap * t;
            r.slopes.push_back(1 - t * t);
            r.scores.push_back(round(*this, s + bias_of(b, h, i, j, id)));
        }
        if (has_sinks) r.lse = sinks.get(h);
        bool none = true;
        for (long double s : r.scores) none &= s == -INFINITY;
        if (none) { // the sink alone, or nothing
            r.weights.assign(r.scores.size(), 0);
            return r;
        }
        const long double most = std::max(r.lse, *std::max_element(r.scores.begin(), r.scores.end()));
        long double sum = std::exp(r.lse - most); // the sink, or 0
        for (long double s : r.scores) sum += std::exp(s - most);
        r.lse = most + std::log(sum);
        for (long double s : r.scores) r.weights.push_back(round(*this, std::exp(s - r.lse)));
        return r;
    }

    AttentionResults results(Round round = exact) const {
        AttentionResults all;
        const Inputs in(*this);
        all.out = Sums(batch * heads * tq() * value_size());
        all.q_grad = Sums(batch * heads * tq() * d);
        all.k_grad = Sums(batch * kv_heads * tk() * d);
        all.v_grad = Sums(batch * kv_heads * tk() * value_size());
        if (bias_kind != TARTAN_I_BIAS_NONE) all.bias_grad = Sums(bias.elements());
        if (has_sinks) all.sinks_grad = Sums(heads);
        for (int64_t b = 0; b < batch; b++)
            for (int64_t h = 0; h < heads; h++)
                for (int64_t i = 0; i < tq(); i++) add_row(in, b, h, i, round, &all);
        for (Sums *grads : {&all.q_grad, &all.k_grad, &all.v_grad})
            for (long double &x : grads->values) x = round(*this, x);
        return all;
    }

  private:
    void add_row(const Inputs &in, int64_t b, int64_t h, int64_t i, Round round,
                 AttentionResults *all) const {
        const Row r = row_of(in, b, h, i, round);
        const int64_t at = (b * heads + h) * tq() + i, kv = (b * kv_heads + h / (heads / kv_heads)) * tk();
        const int64_t n_v = value_size();
        const long double kept = 1 - (long double)dropout, factor = scale_used();
        all->lse.push_back(r.lse);
        for (size_t n = 0; n < r.keys.size(); n++)
            for (int64_t t = 0; t < n_v && !dropped(b, h, i, r.keys[n]); t++) {
                const long double x = r.weights[n] / kept * in.v[(size_t)((kv + r.keys[n]) * n_v + t)];
                all->out.add(at * n_v + t, x, x);
            }
        long double delta = 0, delta_size = 0;
        for (int64_t t = 0; t < n_v; t++) {
            long double &x = all->out.values[(size_t)(at * n_v + t)];
            x = round(*this, x);
            delta += x * in.out_grad[(size_t)(at * n_v + t)];
            delta_size +=
                all->out.sizes[(size_t)(at * n_v + t)] * std::fabs(in.out_grad[(size_t)(at * n_v + t)]);
        }
        if (has_sinks && !std::isinf(sinks.get(h))) {
            const long double weight = std::exp(sinks.get(h) - r.lse);
            all->sinks_grad.add(h, -weight * delta, weight * delta_size);
        }
        for (size_t n = 0; n < r.keys.size(); n++) {
            const bool drop = dropped(b, h, i, r.keys[n]);
            const int64_t key = kv + r.keys[n];
            const long double dp =
                drop ? 0
                     : round(*this, dot(in.out_grad.data() + at * n_v, in.v.data() + key * n_v, n_v) / kept);
            const long double plain = round(*this, r.weights[n] * (dp - delta)),
                              plain_size = r.weights[n] * (std::fabs(dp) + delta_size);
            const long double slope = factor * r.slopes[n], ds = slope * plain, size = slope * plain_size;
            if (bias_kind != TARTAN_I_BIAS_NONE) {
                const double times = bias_factor(i, r.keys[n]);
                all->bias_grad.add(bias_element(b, h, i, r.keys[n], r.ids[n]), plain * times,
                                   plain_size * times);
            }
            for (int64_t t = 0; t < d; t++) {
                const double x = in.q[(size_t)(at * d + t)], y = in.k[(size_t)(key * d + t)];
                all->q_grad.add(at * d + t, ds * y, size * y);
                all->k_grad.add(key * d + t, ds * x, size * x);
            }
            for (int64_t t = 0; t < n_v && !drop; t++) {
                const long double x = r.weights[n] / kept * in.out_grad[(size_t)(at * n_v + t)];
                all->v_grad.add(key * n_v + t, x, x);
            }
        }
    }
};

// The error of `got` over the sizes of the sums: both as the root of the mean square, so that one unlucky element does not
// decide.
inline double error_of(const Numbers &got, const Numbers &want, const Numbers &sizes) {
    long double error = 0, size = 0;
    for (size_t i = 0; i < want.size(); i++) {
        if (got[i] == want[i] && std::isinf((double)got[i]))
            continue; /* valgrind knows no infinite long double */
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += sizes[i] * sizes[i];
    }
    return size > 0 ? (double)std::sqrt(error / size) : (double)std::sqrt(error);
}
inline Numbers numbers_of(const Dense &a) {
    Numbers all;
    for (int64_t i = 0; i < a.elements(); i++) all.push_back(a.get(i));
    return all;
}
inline double error_of(const Dense &got, const Sums &want) {
    return error_of(numbers_of(got), want.values, want.sizes);
}

// The error that the type of the arithmetic allows, for scores that are not large.
inline double allowed(const Attention &p) {
    return (tartan_dtype_bytes(p.dtype) == 2 ? 1 : 16) * epsilon(p.dtype);
}

// Any problem: dtypes, blocks, heads, masks, options, strides.
inline Attention make_attention(uint64_t seed) {
    std::mt19937_64 random(seed);
    Attention p;
    p.dtype = kDtypes[below(random, 4)];
    p.out_dtype = tartan_dtype_bytes(p.dtype) == 2 && random() % 3 == 0 ? (int32_t)TARTAN_F32 : p.dtype;
    p.kv_heads = pick<int64_t>(random, {1, 1, 2});
    p.heads = p.kv_heads * pick<int64_t>(random, {1, 1, 2, 3});
    p.batch = pick<int64_t>(random, {1, 1, 2});
    p.d = pick<int64_t>(random, {1, 7, 16, 16, 32, 33, 64, 80});
    if (random() % 5 == 0) p.dv = pick<int64_t>(random, {1, 8, 24, 64, 100});
    const int64_t block_rows = pick<int64_t>(random, {1, 8, 16, 16, 32, 64, 5, 24}),
                  block_cols = pick<int64_t>(random, {1, 8, 16, 16, 32, 64, 128, 3, 24});
    tartan_shape shape = {(int64_t)below(random, 70), (int64_t)below(random, 90), block_rows, block_cols,
                          pick<int64_t>(random, {1, p.heads, p.batch * p.heads, p.batch})};
    p.by_batch = shape.heads == p.batch && random() % 2;
    if (!p.by_batch && shape.heads == p.batch) shape.heads = p.batch * p.heads;
    p.layout = random_layout(shape, pick(random, {0.2, 0.6, 1.0}), seed);
    if (random() % 3 == 0) p.add_mask(pick(random, {0.1, 0.5, 0.95}), seed);
    p.causal = random() % 2;
    if (p.causal && random() % 2) p.causal_from = (int64_t)below(random, 40);
    if (random() % 3 == 0) p.scale = pick(random, {0.3, -0.2, 0.0, 1.0});
    p.make(random, (TokenStyle)below(random, kTokenStyles));
    if (random() % 3 == 0) p.add_bias((tartan_i_bias)(1 + below(random, 4)), random);
    if ((p.causal || p.bias_kind != TARTAN_I_BIAS_NONE) && random() % 2)
        p.query_offset = (int64_t)below(random, 40) - 10;
    if (random() % 5 == 0) p.softcap = pick(random, {0.5, 2.0, 30.0});
    if (random() % 4 == 0) p.dropout = 0.25, p.seed = (int64_t)seed;
    if (random() % 3 == 0) p.add_sinks(random);
    return p;
}

// Runs both passes and compares all results with the oracle.
inline void run_and_check(Attention &p, tartan_context *context, double slack = 1) {
    ASSERT_OK(p.forward(context));
    ASSERT_OK(p.backward(context));
    const AttentionResults want = p.results();
    const double most = slack * allowed(p);
    EXPECT_LE(error_of(p.out, want.out), most);
    EXPECT_LE(error_of(numbers_of(p.lse), want.lse, Numbers(want.lse.size(), 1)),
              16 * slack * epsilon(p.sum_dtype()));
    EXPECT_LE(error_of(p.q_grad, want.q_grad), most);
    EXPECT_LE(error_of(p.k_grad, want.k_grad), most);
    EXPECT_LE(error_of(p.v_grad, want.v_grad), most);
}

// A problem of one kind.
inline Attention plain(const tartan_shape &shape, double density, int32_t dtype, int64_t d, uint64_t seed = 1,
                       TokenStyle style = kHeads) {
    std::mt19937_64 random(seed);
    Attention p;
    p.dtype = p.out_dtype = dtype;
    p.d = d;
    p.heads = shape.heads;
    p.kv_heads = shape.heads;
    p.layout = random_layout(shape, density, seed);
    p.make(random, style);
    return p;
}

} // namespace tartan_test

#endif
