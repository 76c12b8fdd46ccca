// SPDX-License-Identifier: Apache-2.0
// What every backend must do: the error rule on all operations, with operands of any strides, batches and sizes,
// and nothing else written.
#include "placed.h"

namespace {

using namespace tartan_test;

class Backend : public OnBackend {};
INSTANTIATE_TEST_SUITE_P(Each, Backend, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

tartan_shape some_shape(std::mt19937_64 &random) {
    const std::pair<int, int> blocks[] = {{1, 1}, {3, 5}, {8, 8}, {16, 16}, {7, 2}};
    const auto block = blocks[below(random, 5)];
    return {(int64_t)below(random, 40), (int64_t)below(random, 40), block.first, block.second,
            pick<int64_t>(random, {1, 1, 2})};
}
std::vector<int64_t> some_batch(std::mt19937_64 &random, int64_t heads) {
    std::vector<int64_t> batch;
    if (random() % 2) batch.push_back((int64_t)below(random, 4));
    if (heads > 1) batch.push_back(heads);
    return batch;
}

// Boundaries that are multiples of 8, but for the end.
std::vector<int64_t> even_bounds(std::mt19937_64 &random) {
    std::vector<int64_t> bounds = random_bounds(random, 1 + (int64_t)below(random, 5), 3);
    for (auto &b : bounds) b *= 8;
    if (random() % 3 == 0) bounds.back() -= (int64_t)below(random, 8);
    return bounds;
}

// Of blocks of one size or, sometimes, different ones.
Layout some_layout(const tartan_shape &shape, uint64_t seed) {
    if (seed % 7 == 5) return random_variable_layout(shape, 0.5, seed);
    if (seed % 7 != 3) return random_layout(shape, 0.5, seed);
    std::mt19937_64 random(seed);
    const std::vector<int64_t> rows = even_bounds(random), cols = even_bounds(random);
    return with_boundaries(
        random_layout({(int64_t)rows.size() - 1, (int64_t)cols.size() - 1, 1, 1, shape.heads}, 0.5, seed),
        rows, cols);
}

// A random product and its check.
struct SpmmCase {
    tartan_shape shape;
    Layout layout;
    int32_t dtype, out_dtype, side, op;
    bool gated, transposed;
    int64_t out, in, n;
    double alpha, beta;
    Matrix a;
    Dense gates, b, c;

    explicit SpmmCase(uint64_t seed) {
        std::mt19937_64 random(seed);
        layout = some_layout(some_shape(random), seed);
        shape = layout->shape;
        dtype = kDtypes[below(random, 4)];
        out_dtype = tartan_dtype_bytes(dtype) == 2 && random() % 3 == 0 ? (int32_t)TARTAN_F32 : dtype;
        side = (int32_t)(seed % 2), op = (int32_t)(seed / 2 % 2);
        a = random_matrix(layout, dtype, (int32_t)below(random, 2), random);
        gates = Dense(random() % 2 ? TARTAN_F64 : TARTAN_F32, {layout->blocks});
        for (int64_t i = 0; i < layout->blocks; i++)
            gates.set(i, pick(random, {0.0, 1.0, 0.5, -2.0})); // exact in 16 bits
        gated = random() % 3 == 0, transposed = (op == 1) != (side == kRight);
        out = transposed ? shape.cols : shape.rows, in = transposed ? shape.rows : shape.cols;
        n = (int64_t)below(random, 20);
        std::vector<int64_t> b_shape = some_batch(random, shape.heads), c_shape = b_shape;
        b_shape.insert(b_shape.end(), {side ? n : in, side ? in : n});
        c_shape.insert(c_shape.end(), {side ? n : out, side ? out : n});
        b = Dense(dtype, b_shape, (Style)below(random, kStyles));
        c = Dense(out_dtype, c_shape, (Style)below(random, kRepeated));
        b.fill(random);
        c.fill(random);
        alpha = pick(random, {1.0, -0.5}), beta = pick(random, {0.0, 0.25});
    }

    void check(const Dense &got) const {
        for (int64_t e = 0; e * out * n < c.elements(); e++)
            for (int64_t i = 0; i < out; i++)
                for (int64_t j = 0; j < n; j++) {
                    const int64_t at = side ? (e * n + j) * out + i : (e * out + i) * n + j;
                    ASSERT_TRUE(chain(e, i, j).within(got.get(at), alpha, beta, c.get(at), out_dtype))
                        << i << ", " << j << ": " << got.get(at);
                }
    }

  private:
    Chain chain(int64_t e, int64_t i, int64_t j) const {
        Chain chain(dtype);
        for (int64_t k = 0; k < in; k++) {
            const tartan_layout *l = layout.get();
            const int64_t row = transposed ? k : i, col = transposed ? i : k,
                          block_row = tartan_i_block_row_at(l, row),
                          block_col = tartan_i_block_col_at(l, col);
            const int64_t id = tartan_i_layout_find(l, e % shape.heads, block_row, block_col);
            if (id < 0 || (gated && gates.get(id) == 0)) continue;
            chain.add((gated ? gates.get(id) : 1) * entry(a.get(), id, row - tartan_i_row_begin(l, block_row),
                                                          col - tartan_i_col_begin(l, block_col)),
                      b.get(side ? (e * n + j) * in + k : (e * in + k) * n + j));
        }
        return chain;
    }
};

TEST_P(Backend, Spmm) {
    for (uint64_t seed = 0; seed < rounds(300u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const SpmmCase one(seed);
        const Matrix a = placed(context.get(), one.a);
        const Placed gates(context.get(), one.gates), b(context.get(), one.b);
        Placed c(context.get(), one.c);
        RUN_OR_NEXT(tartan_spmm(context.get(), a.get(), one.gated ? &gates.array : nullptr, &b.array,
                                one.alpha, one.beta, spmm_options(one.side, one.op), &c.array));
        Dense got = one.c;
        c.fetch(got);
        one.check(got);
        ASSERT_TRUE(marks_intact(got));
        if (HasFatalFailure()) return;
    }
}

// The terms of element (i, j) of block `id` of S.
Chain sampled(const Layout &layout, int64_t id, int64_t i, int64_t j, const Dense &x, const Dense &y,
              int64_t k) {
    const tartan_shape &shape = layout->shape;
    const int64_t entries = shape.rows * k == 0 ? 0 : x.elements() / (shape.rows * k);
    const int64_t head = shape.heads > 1 ? tartan_i_layout_head(layout.get(), id) : 0;
    Chain chain(x.array.dtype);
    for (int64_t e = head; e < entries; e += shape.heads)
        for (int64_t t = 0; t < k; t++)
            chain.add(
                x.get((e * shape.rows + tartan_i_row_begin(layout.get(), layout->block_rows[id]) + i) * k +
                      t),
                y.get((e * k + t) * shape.cols + tartan_i_col_begin(layout.get(), layout->block_cols[id]) +
                      j));
    return chain;
}

TEST_P(Backend, Sddmm) {
    for (uint64_t seed = 0; seed < rounds(300u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        const Layout layout = some_layout(some_shape(random), seed);
        const tartan_shape shape = layout->shape;
        const int32_t dtype = kDtypes[below(random, 4)];
        const int32_t s_dtype =
            tartan_dtype_bytes(dtype) == 2 && random() % 3 == 0 ? (int32_t)TARTAN_F32 : dtype;
        const Matrix s = random_matrix(layout, s_dtype, (int32_t)below(random, 2), random);
        Dense gates(TARTAN_F32, {layout->blocks});
        for (int64_t i = 0; i < layout->blocks; i++) gates.set(i, pick(random, {0.0, 1.0, 0.5}));
        const bool gated = random() % 3 == 0;
        const int64_t k = (int64_t)below(random, 20);
        std::vector<int64_t> x_shape = some_batch(random, shape.heads), y_shape = x_shape;
        x_shape.insert(x_shape.end(), {shape.rows, k});
        y_shape.insert(y_shape.end(), {k, shape.cols});
        Dense x(dtype, x_shape, (Style)below(random, kStyles)),
            y(dtype, y_shape, (Style)below(random, kStyles));
        x.fill(random);
        y.fill(random);
        const Placed there(context.get(), gates), left(context.get(), x), right(context.get(), y);
        const Matrix sum = placed(context.get(), s);
        RUN_OR_NEXT(tartan_sddmm(context.get(), &left.array, &right.array, 1, gated ? &there.array : nullptr,
                                 -0.5, 0.25, sum.get()));
        const Matrix got = fetched(context.get(), sum);
        for (int64_t id = 0; id < layout->blocks; id++) {
            const double gate = gated ? gates.get(id) : 1;
            for (int64_t i = 0; i < tartan_i_rows_of(layout.get(), layout->block_rows[id]); i++)
                for (int64_t j = 0; j < tartan_i_cols_of(layout.get(), layout->block_cols[id]); j++) {
                    const Chain chain = gate == 0 ? Chain(dtype) : sampled(layout, id, i, j, x, y, k);
                    ASSERT_TRUE(chain.within(entry(got.get(), id, i, j), -0.5 * gate, 0.25,
                                             entry(s.get(), id, i, j), s_dtype));
                }
        }
    }
}

// Eight pairs of different summed sizes.
TEST_P(Backend, SddmmOfManyPairs) {
    for (uint64_t seed = 0; seed < rounds(20u); seed++) {
        std::mt19937_64 random(seed);
        const tartan_shape shape = {30, 41, 8, 8, 1};
        const Layout layout = random_layout(shape, 0.5, seed);
        const int32_t dtype = kDtypes[seed % 4];
        const Matrix s = random_matrix(layout, dtype, 0, random), sum = placed(context.get(), s);
        std::vector<Dense> x(8), y(8);
        std::vector<Placed> kept;
        std::vector<tartan_array> xs, ys;
        for (int p = 0; p < 8; p++) {
            const int64_t k = (int64_t)below(random, 12);
            x[p] = Dense(dtype, {30, k}, (Style)below(random, kStyles));
            y[p] = Dense(dtype, {k, 41}, (Style)below(random, kStyles));
            x[p].fill(random);
            y[p].fill(random);
            for (const Dense *operand : {&x[p], &y[p]}) kept.emplace_back(context.get(), *operand);
            xs.push_back(kept[kept.size() - 2].array);
            ys.push_back(kept.back().array);
        }
        RUN_OR_NEXT(tartan_sddmm(context.get(), xs.data(), ys.data(), 8, nullptr, 1, 0, sum.get()));
        const Matrix got = fetched(context.get(), sum);
        for (int64_t id = 0; id < layout->blocks; id++) {
            Chain all(dtype);
            for (int p = 0; p < 8; p++) {
                const Chain one = sampled(layout, id, 0, 0, x[p], y[p], x[p].array.shape[1]);
                all.exact += one.exact, all.size += one.size, all.terms += one.terms;
            }
            ASSERT_TRUE(all.within(entry(got.get(), id, 0, 0), 1, 0, 0, dtype));
        }
    }
}

TEST_P(Backend, GateGradient) {
    for (uint64_t seed = 0; seed < rounds(300u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        const Layout layout = some_layout(some_shape(random), seed);
        const int32_t dtype = kDtypes[below(random, 4)], real = tartan_i_sum_dtype(dtype);
        const bool gated = seed % 3 != 0;
        const Matrix w = random_matrix(layout, dtype, (int32_t)below(random, 2), random),
                     dw = random_matrix(layout, dtype, (int32_t)below(random, 2), random);
        Dense gates(random() % 2 ? TARTAN_F32 : TARTAN_F64, {layout->blocks},
                    pick(random, {kRows, kReversed})),
            sums(real, {layout->blocks}, pick(random, {kRows, kGaps}));
        gates.fill(random, -2, 2);
        const Matrix w_there = placed(context.get(), w), dw_there = placed(context.get(), dw);
        const Placed gates_there(context.get(), gates);
        Placed sums_there(context.get(), sums);
        RUN_OR_NEXT(tartan_gate_gradient(context.get(), w_there.get(), gated ? &gates_there.array : nullptr,
                                         dw_there.get(), &sums_there.array));
        Dense got = sums;
        sums_there.fetch(got);
        ASSERT_TRUE(marks_intact(got));
        const Matrix scaled = fetched(context.get(), dw_there);
        for (int64_t id = 0; id < layout->blocks; id++) {
            Chain want(dtype);
            for (int64_t i = 0; i < tartan_i_rows_of(layout.get(), layout->block_rows[id]); i++)
                for (int64_t j = 0; j < tartan_i_cols_of(layout.get(), layout->block_cols[id]); j++) {
                    const double old = entry(dw.get(), id, i, j);
                    want.add(entry(w.get(), id, i, j), old);
                    ASSERT_EQ(gated ? rounded(dtype, rounded(real, rounded(real, gates.get(id)) * old)) : old,
                              entry(scaled.get(), id, i, j));
                }
            ASSERT_TRUE(want.within(got.get(id), 1, 0, 0, sums.array.dtype));
        }
    }
}

double norm_of(const Dense &a, bool rows, int32_t norm, int64_t begin, int64_t end, int64_t k) {
    double result = 0;
    for (int64_t i = begin; i < end; i++) {
        const double size = std::fabs(a.get(rows ? i * a.array.shape[1] + k : k * a.array.shape[1] + i));
        result = norm == TARTAN_NORM_MAX ? std::max(result, size) : result + size * size;
    }
    return norm == TARTAN_NORM_MAX ? result : std::sqrt(result);
}

TEST_P(Backend, GrowthScore) {
    for (uint64_t seed = 0; seed < rounds(60u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        tartan_shape shape = some_shape(random);
        shape.heads = 1;
        const int32_t dtype = kDtypes[seed % 4], norm = seed % 8 < 4 ? TARTAN_NORM_MAX : TARTAN_NORM_L2;
        const int64_t k = (int64_t)below(random, 9), grid_rows = grid(shape.rows, shape.block_rows),
                      grid_cols = grid(shape.cols, shape.block_cols);
        Dense x(dtype, {shape.rows, k}, (Style)below(random, kStyles)),
            y(dtype, {k, shape.cols}, (Style)below(random, kStyles)),
            score(tartan_i_sum_dtype(dtype), {grid_rows, grid_cols}, (Style)below(random, kRepeated));
        x.fill(random);
        y.fill(random);
        score.fill(random);
        const Placed x_there(context.get(), x), y_there(context.get(), y);
        Placed score_there(context.get(), score);
        const int64_t block[] = {shape.block_rows, shape.block_cols};
        RUN_OR_NEXT(tartan_growth_score(context.get(), &x_there.array, &y_there.array, 1, block, 2,
                                        norm == TARTAN_NORM_MAX ? "scale=0.5 beta=0.25"
                                                                : "norm=l2 scale=0.5 beta=0.25",
                                        &score_there.array));
        Dense got = score;
        score_there.fetch(got);
        for (int64_t at = 0; at < score.elements(); at++) {
            const int64_t i = at / grid_cols * shape.block_rows, j = at % grid_cols * shape.block_cols;
            Chain want(dtype);
            for (int64_t t = 0; t < k; t++)
                want.add(norm_of(x, true, norm, i, std::min(i + shape.block_rows, shape.rows), t),
                         norm_of(y, false, norm, j, std::min(j + shape.block_cols, shape.cols), t));
            ASSERT_TRUE(want.within(got.get(at), 0.5, 0.25, score.get(at), score.array.dtype));
        }
    }
}

// Norms of the blocks of the product of two pairs themselves. A block whose terms cancel has the norm 0.
TEST_P(Backend, GrowthScoreOfTheGradient) {
    for (uint64_t seed = 0; seed < rounds(200u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        tartan_shape shape = some_shape(random);
        const int32_t dtype = kDtypes[seed % 4];
        const int64_t k = (int64_t)below(random, 40), grid_rows = grid(shape.rows, shape.block_rows),
                      grid_cols = grid(shape.cols, shape.block_cols);
        Dense x(dtype, {shape.rows, k}, (Style)below(random, kStyles)),
            y(dtype, {k, shape.cols}, (Style)below(random, kStyles)),
            score(tartan_i_sum_dtype(dtype), {grid_rows, grid_cols}, (Style)below(random, kRepeated));
        x.fill(random);
        y.fill(random);
        score.fill(random);
        Dense minus = x; // cancels a half of the first product
        for (int64_t e = 0; e < minus.elements(); e++) minus.set(e, -x.get(e) / 2);
        const Placed x_there(context.get(), x), y_there(context.get(), y), minus_there(context.get(), minus);
        Placed score_there(context.get(), score);
        const int64_t block[] = {shape.block_rows, shape.block_cols};
        const tartan_array xs[] = {x_there.array, minus_there.array}, ys[] = {y_there.array, y_there.array};
        RUN_OR_NEXT(tartan_growth_score(context.get(), xs, ys, 2, block, 2, "norm=gradient scale=2 beta=0.25",
                                        &score_there.array));
        Dense got = score;
        score_there.fetch(got);
        ASSERT_TRUE(marks_intact(got));
        for (int64_t at = 0; at < score.elements(); at++) {
            const int64_t i = at / grid_cols * shape.block_rows, j = at % grid_cols * shape.block_cols;
            long double squares = 0, sizes = 0;
            for (int64_t r = i; r < std::min(i + shape.block_rows, shape.rows); r++)
                for (int64_t c = j; c < std::min(j + shape.block_cols, shape.cols); c++) {
                    long double sum = 0, size = 0;
                    for (int64_t t = 0; t < k; t++) {
                        const long double xt = x.get(r * k + t), mt = minus.get(r * k + t),
                                          yt = y.get(t * shape.cols + c);
                        sum += (xt + mt) * yt, size += (std::fabs(xt) + std::fabs(mt)) * std::fabs(yt);
                    }
                    squares += sum * sum, sizes += size * size;
                }
            const long double want = 2 * std::sqrt(squares) + 0.25L * score.get(at);
            ASSERT_LE(std::fabs(want - got.get(at)),
                      epsilon(score.array.dtype) *
                          ((double)std::sqrt(sizes) * (8 + 2 * std::sqrt(2.0 * (double)k)) +
                           std::fabs((double)want)));
        }
    }
}

// NaN and infinity in B reach the results of the stored blocks and no others: an absent block is not a block of
// zeros, and neither is one whose gate is 0. With beta = 0 what the output held does not matter.
TEST_P(Backend, SpecialValuesStayWithTheirBlocks) {
    int number = 0;
    for (int64_t block : {3, 8, 16, 24, 32, 64, 72, 128})
        for (int64_t n : {128, 520})               // kernels for few columns, and for many
            for (int32_t kind : {0, 1, 2, 3, 4}) { // the last one in the mode tf32
                if (!is_of_the_share(number++)) continue;
                const int32_t dtype = kind < 4 ? kDtypes[kind] : (int32_t)TARTAN_F32;
                context = open(kind < 4 ? "math=exact" : "math=tf32");
                SCOPED_TRACE(::testing::Message() << "block " << block << ", " << tartan_dtype_name(dtype)
                                                  << ", " << kind << ", " << n);
                const int64_t size = 2 * block;
                // Block (1, 0) is there, but gated away.
                const Layout layout = from_mask({size, size, block, block, 1}, {1, 0, 1, 1});
                std::mt19937_64 random(3);
                const Matrix a = placed(context.get(), random_matrix(layout, dtype, 0, random));
                // Rows after the output, which belong to someone else: tiles of it reach beyond its end.
                const int64_t behind = 128;
                Dense gates(TARTAN_F32, {3}), b(dtype, {size, n}), c(dtype, {size + behind, n});
                for (int64_t id = 0; id < 3; id++) gates.set(id, id == 1 ? 0 : 1);
                b.fill(random);
                b.set((block - 1) * n + 3, NAN); // of the block column that the first block row has
                b.set(block * n + 7, INFINITY);  // of the other
                for (int64_t i = 0; i < c.elements(); i++) c.set(i, i < size * n ? NAN : 5);
                const Placed gates_there(context.get(), gates), b_there(context.get(), b);
                Placed c_there(context.get(), c);
                tartan_array out = c_there.array;
                out.shape[0] = size;
                RUN_OR_NEXT(tartan_spmm(context.get(), a.get(), &gates_there.array, &b_there.array, 1, 0,
                                        nullptr, &out));
                c_there.fetch(c);
                for (int64_t i = 0; i < size; i++)
                    for (int64_t j = 0; j < n; j++) {
                        const bool special = i < block ? j == 3 : j == 7;
                        ASSERT_EQ(special, !std::isfinite(c.get(i * n + j))) << i << ", " << j;
                    }
                for (int64_t i = size * n; i < c.elements(); i++) ASSERT_EQ(5, c.get(i)) << i;
            }
}

TEST_P(Backend, OperandsElsewhereAreRefused) {
    std::mt19937_64 random(1);
    const Layout layout = random_layout({8, 8, 4, 4, 1}, 1, 1);
    const Matrix host_a = random_matrix(layout, TARTAN_F32, 0, random), a = placed(context.get(), host_a);
    Dense b(TARTAN_F32, {8, 2}), c(TARTAN_F32, {8, 2}), gates(TARTAN_F32, {layout->blocks});
    const Placed b_there(context.get(), b), gates_there(context.get(), gates);
    Placed c_there(context.get(), c);
    const auto product = [&](const Matrix &m, const tartan_array &g, const tartan_array &x,
                             tartan_array out) {
        return tartan_spmm(context.get(), m.get(), &g, &x, 1, 0, nullptr, &out);
    };
    EXPECT_OK(product(a, gates_there.array, b_there.array, c_there.array));
    if (!on_host()) {
        EXPECT_FAILS(UNSUPPORTED, "a is on device 1:0",
                     product(host_a, gates_there.array, b_there.array, c_there.array));
        EXPECT_FAILS(UNSUPPORTED, "gates is on device 1:0",
                     product(a, gates.array, b_there.array, c_there.array));
        EXPECT_FAILS(UNSUPPORTED, "b is on device 1:0",
                     product(a, gates_there.array, b.array, c_there.array));
        EXPECT_FAILS(UNSUPPORTED, "c is on device 1:0",
                     product(a, gates_there.array, b_there.array, c.array));
    }
    tartan_array far = b_there.array;
    far.device_type = TARTAN_CUDA;
    far.device_id = 7;
    EXPECT_FAILS(UNSUPPORTED, "b is on device 2:7", product(a, gates_there.array, far, c_there.array));
    EXPECT_OK(product(a, gates_there.array, b_there.array, c_there.array));
}

// More than any device has: refused, and all goes on.
TEST_P(Backend, MoreMemoryThanThereIs) {
    const int64_t lengths[] = {int64_t(1) << 22, int64_t(1) << 22};
    tartan_buffer *buffer = nullptr;
    EXPECT_EQ(TARTAN_ERR_MEMORY,
              tartan_buffer_create(context.get(), TARTAN_F64, lengths, 2, TARTAN_ROW_MAJOR, &buffer))
        << tartan_last_error();
    EXPECT_EQ(nullptr, buffer);
    const SpmmCase one(4);
    const Matrix a = placed(context.get(), one.a);
    const Placed b(context.get(), one.b);
    Placed c(context.get(), one.c);
    const tartan_status status = tartan_spmm(context.get(), a.get(), nullptr, &b.array, 1, 0,
                                             spmm_options(one.side, one.op), &c.array);
    if (!is_refused(status)) {
        EXPECT_EQ(TARTAN_OK, status) << tartan_last_error();
    }
    EXPECT_OK(tartan_context_sync(context.get()));
}

TEST_P(Backend, BuffersOutliveTheContextAndGoInAnyThread) {
    Dense dense(TARTAN_F32, {5, 6});
    Placed here(context.get(), dense);
    const Layout layout = random_layout({8, 8, 4, 4, 1}, 1, 1);
    std::mt19937_64 random(1);
    Matrix matrix = placed(context.get(), random_matrix(layout, TARTAN_F32, 0, random));
    std::thread([&] { context.reset(); }).join();
    std::thread([&] { here = Placed(); }).join();
    std::thread([&] { matrix.reset(); }).join();
}

} // namespace
