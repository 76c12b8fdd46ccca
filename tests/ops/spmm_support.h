// SPDX-License-Identifier: Apache-2.0
// What the tests of tartan_spmm share: a product with all its operands, and its oracle.
#ifndef TARTAN_TESTS_SPMM_SUPPORT_H
#define TARTAN_TESTS_SPMM_SUPPORT_H

#include "products.h"

namespace tartan_test {

// One product with all that decides it.
struct Spmm {
    Layout layout;
    Matrix a;
    Dense gates, b, c;
    int32_t side = kLeft, op = kAsIs;
    double alpha = 1, beta = 0;
    bool gated = false;

    int64_t rows() const { return op ? layout->shape.cols : layout->shape.rows; } // of op(A)
    int64_t cols() const { return op ? layout->shape.rows : layout->shape.cols; }
    std::vector<int64_t> b_shape(std::vector<int64_t> batch, int64_t n) const {
        batch.push_back(side == kLeft ? cols() : n);
        batch.push_back(side == kLeft ? n : rows());
        return batch;
    }
    std::vector<int64_t> c_shape(std::vector<int64_t> batch, int64_t n) const {
        batch.push_back(side == kLeft ? rows() : n);
        batch.push_back(side == kLeft ? n : cols());
        return batch;
    }
    tartan_status run(tartan_context *context, Dense *out) const {
        return tartan_spmm(context, a.get(), gated ? &gates.array : nullptr, &b.array, alpha, beta,
                           spmm_options(side, op), &out->array);
    }

    // Element (i, k) of op(A) as it is multiplied; false where no block counts.
    bool factor(int64_t head, int64_t i, int64_t k, double *out) const {
        const tartan_layout *l = layout.get();
        if (op) std::swap(i, k);
        const int64_t block_row = tartan_i_block_row_at(l, i), block_col = tartan_i_block_col_at(l, k);
        const int64_t id = tartan_i_layout_find(l, head, block_row, block_col);
        if (id < 0) return false;
        *out = entry(a.get(), id, i - tartan_i_row_begin(l, block_row), k - tartan_i_col_begin(l, block_col));
        if (!gated) return true;
        const int32_t sums = tartan_i_sum_dtype(a->dtype);
        const double gate = rounded(sums, gates.get(id));
        *out = rounded(sums, gate * *out);
        return gate != 0;
    }

    // The oracle's value of every element of C, and whether `got` keeps the error rule.
    void check(const Dense &got) const {
        const bool left = side == kLeft;
        const int64_t n = b.array.shape[b.array.ndim - (left ? 1 : 2)];
        // On the right op(A) acts by columns.
        const int64_t out_size = left ? rows() : cols(), in_size = left ? cols() : rows();
        const int64_t heads = layout->shape.heads,
                      entries = out_size * n == 0 ? 0 : got.elements() / (out_size * n);
        std::vector<double> numbers((size_t)b.elements());
        for (size_t i = 0; i < numbers.size(); i++) numbers[i] = b.get((int64_t)i);
        for (int64_t e = 0; e < entries; e++) {
            for (int64_t i = 0; i < out_size; i++) {
                std::vector<Chain> chains((size_t)n, Chain(a->dtype));
                for (int64_t k = 0; k < in_size; k++) {
                    double value;
                    if (!(left ? factor(e % heads, i, k, &value) : factor(e % heads, k, i, &value))) continue;
                    const double *const first =
                        numbers.data() + (left ? (e * in_size + k) * n : e * n * in_size + k);
                    for (int64_t j = 0; j < n; j++)
                        chains[(size_t)j].add(value, first[left ? j : j * in_size]);
                }
                for (int64_t j = 0; j < n; j++) {
                    const Chain &chain = chains[(size_t)j];
                    const int64_t at = left ? (e * out_size + i) * n + j : (e * n + j) * out_size + i;
                    const double old = c.get(at), value = got.get(at);
                    if (has_chains(a->dtype)) {
                        ASSERT_EQ(chain.result(alpha, beta, old, got.array.dtype), value)
                            << "entry " << e << " at " << i << ", " << j;
                    }
                    ASSERT_TRUE(chain.within(value, alpha, beta, old, got.array.dtype))
                        << "entry " << e << " at " << i << ", " << j << ": " << value;
                }
            }
        }
    }
    // Runs it and checks every element; the memory around C must not change.
    void run_and_check(tartan_context *context) const {
        Dense got = c;
        ASSERT_OK(run(context, &got));
        check(got);
    }
};

// Any product: block shapes, dtypes, sides, transposes, batches, strides, gates. Every fourth has blocks of different sizes.
inline Spmm make_spmm(uint64_t seed) {
    std::mt19937_64 random(seed);
    Spmm p;
    const std::pair<int, int> blocks[] = {{1, 1}, {3, 5},  {8, 8},   {16, 16}, {4, 1},
                                          {7, 2}, {9, 12}, {32, 32}, {1, 8}};
    const auto block = blocks[below(random, 9)];
    const int64_t heads = pick(random, {1, 1, 1, 2, 3});
    const int64_t limit = heads > 1 ? 30 : 70;
    const tartan_shape shape = {(int64_t)below(random, (size_t)limit), (int64_t)below(random, (size_t)limit),
                                block.first, block.second, heads};
    const double density = pick(random, {0.0, 0.1, 0.4, 1.0});
    p.layout = (seed % 4 == 3 ? random_variable_layout : random_layout)(shape, density, seed);
    const int32_t dtype =
        pick(random, {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16, TARTAN_F8E4M3, TARTAN_F8E5M2});
    p.a = random_matrix(p.layout, dtype, (int32_t)below(random, 2), random);
    p.side = (int32_t)below(random, 2);
    p.op = (int32_t)below(random, 2);
    p.alpha = pick(random, {1.0, 1.0, -0.5, 0.3, 0.0});
    p.beta = pick(random, {0.0, 0.0, 1.0, -0.7});
    p.gated = random() % 3 == 0;
    p.gates = Dense(pick(random, {(int)TARTAN_F32, (int)TARTAN_F64}), {p.layout->blocks},
                    pick(random, {kRows, kReversed, kGaps}));
    const bool switches =
        random() % 2; // kernels that do not scale blocks leave out those that are switched off
    for (int64_t i = 0; i < p.layout->blocks; i++)
        p.gates.set(i, switches ? pick(random, {0.0, 1.0}) : pick(random, {0.0, 1.0, 0.37, -2.5}));
    std::vector<int64_t> batch;
    for (size_t d = below(random, 3); d > 0; d--) batch.push_back((int64_t)below(random, 4));
    if (heads > 1) batch.push_back(heads);
    const int64_t n = pick(random, {0, 1, 2, 7, 16, 20, 49, 64, 100});
    p.b = Dense(dtype, p.b_shape(batch, n), (Style)below(random, kStyles));
    p.b.fill(random);
    const bool wide = (dtype == TARTAN_F16 || dtype == TARTAN_BF16) && random() % 2;
    const int32_t narrow = pick(random, {TARTAN_F32, TARTAN_F16, TARTAN_BF16}); /* of 8-bit factors */
    p.c = Dense(tartan_dtype_bytes(dtype) == 1 ? narrow
                : wide                         ? TARTAN_F32
                                               : dtype,
                p.c_shape(batch, n), (Style)below(random, kRepeated));
    p.c.fill(random);
    return p;
}

// A product of one kind.
inline Spmm plain(const tartan_shape &shape, double density, int32_t dtype, std::vector<int64_t> batch,
                  int64_t n, uint64_t seed, Style style = kRows, int32_t op = kAsIs, int32_t side = kLeft) {
    std::mt19937_64 random(seed);
    Spmm p;
    p.layout = random_layout(shape, density, seed);
    p.a = random_matrix(p.layout, dtype, TARTAN_ROW_MAJOR, random);
    p.op = op;
    p.side = side;
    p.b = Dense(dtype, p.b_shape(batch, n), style);
    p.b.fill(random);
    p.c = Dense(dtype, p.c_shape(batch, n), style);
    p.c.fill(random);
    p.gates = Dense(TARTAN_F32, {p.layout->blocks});
    p.gates.fill(random);
    return p;
}

} // namespace tartan_test

#endif
