// SPDX-License-Identifier: Apache-2.0
// What the tests of the unfused parts of attention share: problems with their operands, and oracles in long double.
#ifndef TARTAN_TESTS_BLOCK_SOFTMAX_SUPPORT_H
#define TARTAN_TESTS_BLOCK_SOFTMAX_SUPPORT_H

#include "attention_support.h"

namespace tartan_test {

// The smallest number that a dtype has.
inline double smallest(int32_t dtype) {
    return dtype == TARTAN_F64   ? 0x1p-1074
           : dtype == TARTAN_F16 ? 0x1p-24
           : dtype == TARTAN_F32 ? 0x1p-149
                                 : 0x1p-133;
}

// Softmax of a matrix, and its gradient.
struct Softmax {
    Layout layout;
    BlockMask mask;
    Matrix x, y, dy, dx;
    Dense lse;
    double scale = 1;
    bool causal = false;
    int64_t query_offset = 0, causal_from = 0;

    int64_t heads() const { return layout->shape.heads; }
    int64_t rows() const { return layout->shape.rows; }
    int32_t sum_dtype() const { return tartan_i_sum_dtype(x->dtype); }

    // Matrices of these dtypes and block orders; y and dx hold numbers, too, which results replace.
    void make(std::mt19937_64 &random, const int32_t (&dtypes)[4], const int32_t (&orders)[4],
              double size = 2, Style lse_style = kRows) {
        x = random_matrix(layout, dtypes[0], orders[0], random, -size, size);
        y = random_matrix(layout, dtypes[1], orders[1], random);
        dy = random_matrix(layout, dtypes[2], orders[2], random);
        dx = random_matrix(layout, dtypes[3], orders[3], random);
        lse = Dense(sum_dtype(), {heads(), rows()}, lse_style);
    }
    void make(std::mt19937_64 &random, int32_t dtype, int32_t order = TARTAN_ROW_MAJOR, double size = 2) {
        make(random, {dtype, dtype, dtype, dtype}, {order, order, order, order}, size);
    }
    // As Attention has them, for the same layout.
    void take_mask(double density, uint64_t seed) {
        Attention a;
        a.layout.swap(layout);
        a.add_mask(density, seed);
        a.layout.swap(layout);
        mask = std::move(a.mask);
    }
    std::string options() const {
        std::string all = "scale=" + std::to_string(scale);
        if (causal)
            all += " causal=1 query_offset=" + std::to_string(query_offset) +
                   " causal_from=" + std::to_string(causal_from);
        return all;
    }
    tartan_status forward(tartan_context *context) {
        return tartan_block_softmax(context, x.get(), options().c_str(), mask.get(), y.get(), &lse.array);
    }
    tartan_status backward(tartan_context *context) {
        return tartan_block_softmax_gradient(context, y.get(), dy.get(), scale, dx.get());
    }

    // ---- The oracle ----

    bool sees(int64_t id, int64_t i, int64_t j) const { // in block `id`
        const int64_t row = tartan_i_row_begin(layout.get(), layout->block_rows[id]) + i,
                      col = tartan_i_col_begin(layout.get(), layout->block_cols[id]) + j;
        if (causal && col > row + query_offset && col >= causal_from) return false;
        return mask == nullptr || tartan_i_block_mask_keeps(mask.get(), id, i, j);
    }
    // f(id, i, j) for the stored elements of a row.
    template <typename F> void each(int64_t head, int64_t row, F f) const {
        const tartan_layout *l = layout.get();
        const int64_t line = tartan_i_block_row_at(l, row), i = row - tartan_i_row_begin(l, line);
        const int64_t *at = l->row_pointers + head * l->grid_rows + line;
        for (int64_t id = at[0]; id < at[1]; id++)
            for (int64_t j = 0; j < tartan_i_cols_of(l, l->block_cols[id]); j++) f(id, i, j);
    }
    template <typename F> void each_row(F f) const {
        for (int64_t h = 0; h < heads(); h++)
            for (int64_t row = 0; row < rows(); row++) f(h, row);
    }

    // The relative error that exp and sums may add to rounding, for scores up to `most`.
    double slack(double most) const { return epsilon(sum_dtype()) * (32 + 2 * most); }

    // Compares y and lse with what x says; `from`: x before a call in place.
    void check_forward(const tartan_matrix *from) const {
        each_row([&](int64_t h, int64_t row) {
            long double most = -INFINITY, sum = 0;
            double size = 0;
            const auto score = [&](int64_t id, int64_t i, int64_t j) {
                return (long double)scale * entry(from, id, i, j);
            };
            each(h, row, [&](int64_t id, int64_t i, int64_t j) {
                if (!sees(id, i, j)) return;
                most = std::max(most, score(id, i, j));
                size = std::max(size, std::fabs((double)score(id, i, j)));
            });
            each(h, row, [&](int64_t id, int64_t i, int64_t j) {
                if (sees(id, i, j)) sum += std::exp(score(id, i, j) - most);
            });
            const int64_t at = h * rows() + row;
            if (sum > 0)
                EXPECT_NEAR(lse.get(at), (double)(most + std::log(sum)), slack(size)) << "row " << row;
            else
                EXPECT_EQ(-INFINITY, lse.get(at)) << "row " << row;
            each(h, row, [&](int64_t id, int64_t i, int64_t j) {
                const long double want = sees(id, i, j) ? std::exp(score(id, i, j) - most) / sum : 0;
                const double got = entry(y.get(), id, i, j);
                if (want == 0) {
                    ASSERT_EQ(0, got) << "block " << id << ", " << i << ", " << j;
                    return;
                }
                const double allowed =
                    (double)want * (slack(size) + 0.5 * epsilon(y->dtype)) + smallest(y->dtype);
                ASSERT_NEAR(got, (double)want, allowed) << "block " << id << ", " << i << ", " << j;
            });
        });
    }
    // Compares dx with what y and dy say; `from`: dy before a call in place.
    void check_backward(const tartan_matrix *from) const {
        each_row([&](int64_t h, int64_t row) {
            long double sum = 0, size = 0;
            each(h, row, [&](int64_t id, int64_t i, int64_t j) {
                const long double term = (long double)entry(from, id, i, j) * entry(y.get(), id, i, j);
                sum += term, size += std::fabs(term);
            });
            each(h, row, [&](int64_t id, int64_t i, int64_t j) {
                const long double weight = (long double)scale * entry(y.get(), id, i, j),
                                  grad = entry(from, id, i, j);
                const double want = (double)(weight * (grad - sum));
                const double allowed = (double)(std::fabs(weight) * (std::fabs(grad) + size)) * slack(0) +
                                       0.5 * epsilon(dx->dtype) * std::fabs(want) + smallest(dx->dtype);
                ASSERT_NEAR(entry(dx.get(), id, i, j), want, allowed)
                    << "block " << id << ", " << i << ", " << j;
            });
        });
    }
};

inline std::vector<char> bytes_of(const Matrix &m) {
    const char *begin = (const char *)m->values;
    return {begin,
            begin + m->layout->blocks * tartan_i_block_elements(m.get()) * tartan_dtype_bytes(m->dtype)};
}

// Any problem: dtypes, orders, blocks, heads, masks, options. Every fourth has blocks of different sizes, and no mask.
inline Softmax make_softmax(uint64_t seed) {
    std::mt19937_64 random(seed);
    Softmax p;
    const int64_t block_rows = pick<int64_t>(random, {1, 8, 16, 16, 32, 64, 5, 24}),
                  block_cols = pick<int64_t>(random, {1, 8, 16, 16, 32, 64, 128, 3, 24});
    const bool variable = random() % 4 == 0;
    p.layout = (variable ? random_variable_layout
                         : random_layout)({(int64_t)below(random, 90), (int64_t)below(random, 200),
                                           block_rows, block_cols, pick<int64_t>(random, {1, 1, 2, 3})},
                                          pick(random, {0.2, 0.6, 1.0}), seed);
    if (random() % 3 == 0 && !tartan_i_is_variable(p.layout.get()))
        p.take_mask(pick(random, {0.1, 0.5, 0.95}), seed);
    p.causal = random() % 2;
    if (p.causal && random() % 2) p.causal_from = (int64_t)below(random, 40);
    if (p.causal && random() % 2) p.query_offset = (int64_t)below(random, 80) - 40;
    p.scale = pick(random, {1.0, 0.125, 1.5, -0.25, 0.0});
    int32_t dtypes[4], orders[4];
    const bool wide = random() % 4 == 0;
    for (int n = 0; n < 4; n++) {
        dtypes[n] = wide ? (int32_t)TARTAN_F64 : kDtypes[1 + below(random, 3)];
        orders[n] = (int32_t)(random() % 2);
    }
    p.make(random, dtypes, orders, 2, (Style)below(random, kRepeated));
    return p;
}

// Two parts of an attention and their merge.
struct Merge {
    Dense out_a, lse_a, out_b, lse_b, out, lse;

    tartan_status run(tartan_context *context) {
        return tartan_attention_merge(context, &out_a.array, &lse_a.array, &out_b.array, &lse_b.array,
                                      &out.array, &lse.array);
    }
    // Compares `got` and `got_lse` with the merged parts.
    void check(const Dense &got, const Dense &got_lse) const {
        const int64_t d = out_a.array.shape[3];
        const int32_t sums = lse_a.array.dtype;
        for (int64_t i = 0; i < lse_a.elements(); i++) {
            const long double a = lse_a.get(i), b = lse_b.get(i), most = std::max(a, b);
            const bool none = std::isinf(most);
            const long double weight_a = none ? 0 : std::exp(a - most),
                              weight_b = none ? 0 : std::exp(b - most), sum = weight_a + weight_b;
            if (none)
                EXPECT_EQ(-INFINITY, got_lse.get(i));
            else
                EXPECT_NEAR(got_lse.get(i), (double)(most + std::log(sum)),
                            2 * epsilon(sums) * (1 + std::fabs((double)most)));
            const double steps =
                none ? 0
                     : (8 + 2 * (double)std::fabs(a == b ? 0 : std::min(std::fabs(a - b), 800.0L))) *
                           epsilon(sums);
            for (int64_t t = i * d; t < (i + 1) * d; t++) {
                const long double x = none || weight_a == 0 ? 0 : weight_a / sum * out_a.get(t),
                                  y = none || weight_b == 0 ? 0 : weight_b / sum * out_b.get(t);
                const double allowed = (double)(std::fabs(x) + std::fabs(y)) * steps +
                                       0.5 * epsilon(got.array.dtype) * (double)std::fabs(x + y) +
                                       smallest(got.array.dtype);
                ASSERT_NEAR(got.get(t), (double)(x + y), allowed)
                    << "query " << i << " element " << t - i * d;
            }
        }
    }
};

inline Merge make_merge(uint64_t seed) {
    std::mt19937_64 random(seed);
    Merge p;
    const int64_t batch = (int64_t)below(random, 3), heads = 1 + (int64_t)below(random, 3),
                  tokens = (int64_t)below(random, 100),
                  d = pick<int64_t>(random, {1, 7, 8, 16, 24, 64, 128, 256, 0, 300});
    const bool wide = random() % 4 == 0;
    const auto dtype = [&] { return wide ? (int32_t)TARTAN_F64 : kDtypes[1 + below(random, 3)]; };
    const auto style = [&] { return (TokenStyle)below(random, kTokenStyles); };
    for (Dense *a : {&p.out_a, &p.out_b, &p.out}) {
        *a = token_array(dtype(), batch, heads, tokens, d, style());
        a->fill(random);
    }
    for (Dense *a : {&p.lse_a, &p.lse_b, &p.lse}) {
        *a = Dense(wide ? TARTAN_F64 : TARTAN_F32, {batch, heads, tokens}, (Style)below(random, kRepeated));
        a->fill(random, -3, 3);
    }
    for (int64_t i = 0; i < p.lse_a.elements(); i++) {
        if (random() % 5 == 0) p.lse_a.set(i, pick(random, {-(double)INFINITY, 1e4, -50.0}));
        if (random() % 5 == 0) p.lse_b.set(i, pick(random, {-(double)INFINITY, 1e4, -50.0}));
    }
    return p;
}

} // namespace tartan_test

#endif
