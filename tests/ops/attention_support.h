// SPDX-License-Identifier: Apache-2.0
// What the tests of attention share: problems, and their oracle, in a type wider than that of their sums.
#ifndef TARTAN_TESTS_ATTENTION_SUPPORT_H
#define TARTAN_TESTS_ATTENTION_SUPPORT_H

#include "attention_problem.h"

namespace tartan_test {

// Sums as the oracle adds them up.
template <typename Real> struct RealSums {
    std::vector<Real> values, sizes;
    explicit RealSums(int64_t n = 0) : values((size_t)n, 0), sizes((size_t)n, 0) {}
    // Adds x times each of n numbers, whose sizes are multiplied by `size`.
    void add(int64_t at, Real x, Real size, const double *numbers, int64_t n) {
        Real *const to = values.data() + at, *const sizes_to = sizes.data() + at;
        for (int64_t t = 0; t < n; t++) {
            to[t] += x * numbers[t];
            sizes_to[t] += std::fabs(size * numbers[t]);
        }
    }
    void add(int64_t at, Real x, Real size) {
        const double one = 1;
        add(at, x, size, &one, 1);
    }
    Sums sums() const {
        Sums all;
        all.values.assign(values.begin(), values.end());
        all.sizes.assign(sizes.begin(), sizes.end());
        return all;
    }
};

// The results of a problem, computed in Real, which is wider than the type that the library sums in.
template <typename Real> class AttentionOracle {
    using Reals = std::vector<Real>;
    // The keys that a query sees, and their scores.
    struct Row {
        std::vector<int64_t> keys, ids;
        Reals scores, weights, slopes; // slopes: of the softcap
        Real lse = -INFINITY;
    };

    const Attention &p;
    const Attention::Round how;
    const std::vector<double> q, k, v, out_grad; // in row-major order of their indices
    const int64_t tq, tk, d, n_v;
    RealSums<Real> out, q_grad, k_grad, v_grad, bias_grad, sinks_grad;
    Numbers lse;

    static std::vector<double> flat(const Dense &a) {
        std::vector<double> all((size_t)a.elements());
        for (size_t i = 0; i < all.size(); i++) all[i] = a.get((int64_t)i);
        return all;
    }
    static Real dot(const double *x, const double *y, int64_t n) {
        Real sum = 0;
        for (int64_t t = 0; t < n; t++) sum += (Real)x[t] * y[t];
        return sum;
    }
    Real round(Real x) const { return how == Attention::exact ? x : (Real)how(p, x); }

    Row row_of(int64_t b, int64_t h, int64_t i) const {
        Row r;
        const int64_t g = h / (p.heads / p.kv_heads);
        for (int64_t j = 0, id; j < tk; j++) {
            if (!p.sees(b, h, i, j, &id)) continue;
            r.keys.push_back(j);
            r.ids.push_back(id);
            Real s = (Real)p.scale_used() * dot(q.data() + ((b * p.heads + h) * tq + i) * d,
                                                k.data() + ((b * p.kv_heads + g) * tk + j) * d, d);
            const Real t = p.softcap > 0 ? std::tanh(s / (Real)p.softcap) : 0;
            if (p.softcap > 0) s = (Real)p.softcap * t;
            r.slopes.push_back(1 - t * t);
            r.scores.push_back(round(s + (Real)p.bias_of(b, h, i, j, id)));
        }
        if (p.has_sinks) r.lse = p.sinks.get(h);
        bool none = true;
        for (Real s : r.scores) none &= s == -INFINITY;
        if (none) { // the sink alone, or nothing
            r.weights.assign(r.scores.size(), 0);
            return r;
        }
        const Real most = std::max(r.lse, *std::max_element(r.scores.begin(), r.scores.end()));
        Real sum = std::exp(r.lse - most); // the sink, or 0
        for (Real s : r.scores) sum += std::exp(s - most);
        r.lse = most + std::log(sum);
        for (Real s : r.scores) r.weights.push_back(round(std::exp(s - r.lse)));
        return r;
    }

    void add_row(int64_t b, int64_t h, int64_t i) {
        const Row r = row_of(b, h, i);
        const int64_t at = (b * p.heads + h) * tq + i,
                      kv = (b * p.kv_heads + h / (p.heads / p.kv_heads)) * tk;
        const Real kept = 1 - (Real)p.dropout, factor = p.scale_used();
        const double *const y_grad = out_grad.data() + at * n_v;
        std::vector<bool> drops(r.keys.size());
        lse.push_back(r.lse);
        for (size_t n = 0; n < r.keys.size(); n++) {
            drops[n] = p.dropped(b, h, i, r.keys[n]);
            const Real weight = drops[n] ? 0 : r.weights[n] / kept;
            if (!drops[n]) out.add(at * n_v, weight, weight, v.data() + (kv + r.keys[n]) * n_v, n_v);
        }
        Real delta = 0, delta_size = 0;
        for (int64_t t = 0; t < n_v; t++) {
            Real &x = out.values[(size_t)(at * n_v + t)];
            x = round(x);
            delta += x * y_grad[t];
            delta_size += out.sizes[(size_t)(at * n_v + t)] * std::fabs(y_grad[t]);
        }
        if (p.has_sinks && !std::isinf(p.sinks.get(h))) {
            const Real weight = std::exp((Real)p.sinks.get(h) - r.lse);
            sinks_grad.add(h, -weight * delta, weight * delta_size);
        }
        for (size_t n = 0; n < r.keys.size(); n++) {
            const int64_t key = kv + r.keys[n];
            const Real dp = drops[n] ? 0 : round(dot(y_grad, v.data() + key * n_v, n_v) / kept);
            const Real plain = round(r.weights[n] * (dp - delta)),
                       plain_size = r.weights[n] * (std::fabs(dp) + delta_size);
            const Real slope = factor * r.slopes[n], ds = slope * plain, size = slope * plain_size;
            if (p.bias_kind != TARTAN_I_BIAS_NONE) {
                const Real times = p.bias_factor(i, r.keys[n]);
                bias_grad.add(p.bias_element(b, h, i, r.keys[n], r.ids[n]), plain * times,
                              plain_size * times);
            }
            q_grad.add(at * d, ds, size, k.data() + key * d, d);
            k_grad.add(key * d, ds, size, q.data() + at * d, d);
            const Real weight = r.weights[n] / kept;
            if (!drops[n]) v_grad.add(key * n_v, weight, weight, y_grad, n_v);
        }
    }

  public:
    AttentionOracle(const Attention &of, Attention::Round round_by)
        : p(of), how(round_by), q(flat(of.q)), k(flat(of.k)), v(flat(of.v)), out_grad(flat(of.out_grad)),
          tq(of.tq()), tk(of.tk()), d(of.d), n_v(of.value_size()), out(of.batch * of.heads * tq * n_v),
          q_grad(of.batch * of.heads * tq * d), k_grad(of.batch * of.kv_heads * tk * d),
          v_grad(of.batch * of.kv_heads * tk * n_v),
          bias_grad(of.bias_kind != TARTAN_I_BIAS_NONE ? of.bias.elements() : 0),
          sinks_grad(of.has_sinks ? of.heads : 0) {
        for (int64_t b = 0; b < p.batch; b++)
            for (int64_t h = 0; h < p.heads; h++)
                for (int64_t i = 0; i < tq; i++) add_row(b, h, i);
        for (RealSums<Real> *grads : {&q_grad, &k_grad, &v_grad})
            for (Real &x : grads->values) x = round(x);
    }
    AttentionResults results() const {
        return {out.sums(), q_grad.sums(), k_grad.sums(), v_grad.sums(), bias_grad.sums(), sinks_grad.sums(),
                lse};
    }
};

inline AttentionResults Attention::results(Round round) const {
    return dtype == TARTAN_F64 ? AttentionOracle<long double>(*this, round).results()
                               : AttentionOracle<double>(*this, round).results();
}

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
