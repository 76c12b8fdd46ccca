// SPDX-License-Identifier: Apache-2.0
// The product tests of the projects whose work this takes over, as facts: their layouts, sizes and dtypes, with
// results asserted against f64.
#include "products.h"

namespace {

using namespace tartan_test;

// The dense f64 value of a matrix of one head.
std::vector<double> dense_of(const tartan_matrix *m) {
    const tartan_layout *l = m->layout;
    std::vector<double> out((size_t)(l->shape.rows * l->shape.cols));
    for (int64_t id = 0; id < l->blocks; id++)
        for (int64_t i = 0; i < tartan_i_rows_of(l, l->block_rows[id]); i++)
            for (int64_t j = 0; j < tartan_i_cols_of(l, l->block_cols[id]); j++)
                out[(size_t)((l->block_rows[id] * l->shape.block_rows + i) * l->shape.cols +
                             l->block_cols[id] * l->shape.block_cols + j)] = entry(m, id, i, j);
    return out;
}

// ---- openai/blocksparse: Barabasi-Albert graph of 160 vertices, 5 edges each, with the diagonal and a corner ----

Layout small_world(int64_t block) {
    const tartan_shape shape = {160 * block, 160 * block, block, block, 1};
    tartan_layout *layout = nullptr;
    EXPECT_OK(tartan_layout_from_pattern(&shape, "barabasi_albert", "m=5 diagonal=1 corner=1", 1, &layout));
    return Layout(layout);
}

struct OpenAi {
    Layout layout;
    Matrix w;
    int64_t size, n;
    Dense x, e; // [features, N]
    std::vector<int64_t> columns;

    OpenAi(int64_t block, int64_t n_of, int32_t dtype)
        : layout(small_world(block)), size(160 * block), n(n_of) {
        std::mt19937_64 random((uint64_t)(block + n));
        w = random_matrix(layout, dtype, TARTAN_ROW_MAJOR, random, -0.02, 0.02);
        x = Dense(dtype, {size, n});
        e = Dense(dtype, {size, n});
        x.fill(random, -0.2, 0.2);
        e.fill(random, -0.2, 0.2);
        for (int64_t j = 0; j < n; j += std::max<int64_t>(1, n / 4)) columns.push_back(j);
        columns.push_back(n - 1);
    }

    // Weights are (in, out) and features come first: Y = W' X forward, dX = W E backward. Checks some columns.
    void check(const Dense &from, const Dense &to, bool forward) const {
        const tartan_layout *l = layout.get();
        const int64_t b = l->shape.block_rows;
        for (int64_t j : columns) {
            std::vector<Chain> sums((size_t)size, Chain(w->dtype));
            for (int64_t id = 0; id < l->blocks; id++) {
                const int64_t c = l->block_rows[id] * b, k = l->block_cols[id] * b;
                for (int64_t i = 0; i < b; i++) {
                    for (int64_t o = 0; o < b; o++) {
                        Chain &chain = sums[(size_t)(forward ? k + o : c + i)];
                        const long double p = (long double)entry(w.get(), id, i, o) *
                                              from.get((forward ? c + i : k + o) * n + j);
                        chain.exact += p, chain.size += std::fabs(p), chain.terms++;
                    }
                }
            }
            for (int64_t i = 0; i < size; i++)
                ASSERT_TRUE(sums[(size_t)i].within(to.get(i * n + j), 1, 0, 0, to.array.dtype))
                    << (forward ? "forward " : "backward ") << i << ", " << j;
        }
    }
    // dW = X E' at the blocks. Checks some elements of every block.
    void check_update(const tartan_matrix *dw) const {
        const tartan_layout *l = layout.get();
        const int64_t b = l->shape.block_rows;
        for (int64_t id = 0; id < l->blocks; id++) {
            for (int64_t at : {(int64_t)0, b * b / 2 + id % b, b * b - 1}) {
                Chain chain(w->dtype);
                for (int64_t t = 0; t < n; t++)
                    chain.add(x.get((l->block_rows[id] * b + at / b) * n + t),
                              e.get((l->block_cols[id] * b + at % b) * n + t));
                ASSERT_TRUE(chain.within(entry(dw, id, at / b, at % b), 1, 0, 0, dw->dtype))
                    << "block " << id;
            }
        }
    }
};

class OpenAiMatmul : public ::testing::TestWithParam<std::tuple<int64_t, int32_t>> {};
INSTANTIATE_TEST_SUITE_P(Blocks, OpenAiMatmul,
                         ::testing::Combine(::testing::Values(32, 16, 8),
                                            ::testing::Values((int)TARTAN_F16, (int)TARTAN_F32)));

TEST_P(OpenAiMatmul, ForwardBackwardUpdateOnBothFeatureAxes) {
    const auto [block, dtype] = GetParam();
    Context context = open_context(2);
    for (int64_t n : {256, 128, 64, 32, 16, 8}) {
        SCOPED_TRACE(::testing::Message() << "N " << n);
        const OpenAi p(block, n, dtype);
        Dense y(dtype, {p.size, n}), dx(dtype, {p.size, n});
        ASSERT_OK(tartan_spmm(context.get(), p.w.get(), nullptr, &p.x.array, 1, 0, "transpose=1", &y.array));
        ASSERT_OK(tartan_spmm(context.get(), p.w.get(), nullptr, &p.e.array, 1, 0, nullptr, &dx.array));
        p.check(p.x, y, true);
        p.check(p.e, dx, false);
        tartan_matrix *raw = nullptr;
        ASSERT_OK(tartan_matrix_create(p.layout.get(), dtype, TARTAN_ROW_MAJOR, &raw));
        Matrix dw(raw);
        const tartan_array e_exchanged = p.e.exchanged();
        ASSERT_OK(tartan_sddmm(context.get(), &p.x.array, &e_exchanged, 1, nullptr, 1, 0, dw.get()));
        p.check_update(dw.get());
        if (HasFailure()) return;

        // Feature axis 1: rows are samples. Y = X W, dX = E W', dW = X' E; the same numbers in the same order.
        Dense x1(dtype, {n, p.size}), e1(dtype, {n, p.size}), y1(dtype, {n, p.size}), dx1(dtype, {n, p.size});
        for (int64_t i = 0; i < p.size; i++)
            for (int64_t j = 0; j < n; j++)
                x1.set(j * p.size + i, p.x.get(i * n + j)), e1.set(j * p.size + i, p.e.get(i * n + j));
        ASSERT_OK(tartan_spmm(context.get(), p.w.get(), nullptr, &x1.array, 1, 0, "side=right", &y1.array));
        ASSERT_OK(tartan_spmm(context.get(), p.w.get(), nullptr, &e1.array, 1, 0, "side=right transpose=1",
                              &dx1.array));
        for (int64_t i = 0; i < p.size; i++) {
            for (int64_t j = 0; j < n; j++) {
                ASSERT_EQ(y.get(i * n + j), y1.get(j * p.size + i));
                ASSERT_EQ(dx.get(i * n + j), dx1.get(j * p.size + i));
            }
        }
        ASSERT_OK(tartan_matrix_create(p.layout.get(), dtype, TARTAN_ROW_MAJOR, &raw));
        Matrix dw1(raw);
        const tartan_array x1_exchanged = x1.exchanged();
        ASSERT_OK(tartan_sddmm(context.get(), &x1_exchanged, &e1.array, 1, nullptr, 1, 0, dw1.get()));
        const size_t bytes = (size_t)(p.layout->blocks * block * block * tartan_dtype_bytes(dtype));
        ASSERT_EQ(0, std::memcmp(dw->values, dw1->values, bytes));
    }
}

// Their disabled test of gates: blocks of 8, a checkerboard of gates, N = 128, f32: dx, dw, dg. (A smaller graph.)
TEST(OpenAiGated, CheckerboardOfGates) {
    Context context = open_context(2);
    const OpenAi p(8, 128, TARTAN_F32);
    const tartan_layout *l = p.layout.get();
    Dense gates(TARTAN_F32, {l->blocks}), sums(TARTAN_F32, {l->blocks}), dx(TARTAN_F32, {p.size, p.n});
    for (int64_t id = 0; id < l->blocks; id++)
        gates.set(id, (l->block_rows[id] & 1) ^ (l->block_cols[id] & 1) ^ 1);
    ASSERT_OK(tartan_spmm(context.get(), p.w.get(), &gates.array, &p.e.array, 1, 0, nullptr, &dx.array));
    OpenAi off(8, 128, TARTAN_F32);
    for (int64_t id = 0; id < l->blocks; id++)
        if (gates.get(id) == 0) std::memset(tartan_i_block_at(off.w.get(), id), 0, 64 * 4);
    off.check(p.e, dx, false);

    tartan_matrix *raw = nullptr;
    ASSERT_OK(tartan_matrix_create(p.layout.get(), TARTAN_F32, TARTAN_ROW_MAJOR, &raw));
    Matrix dw(raw);
    const tartan_array e = p.e.exchanged();
    ASSERT_OK(tartan_sddmm(context.get(), &p.x.array, &e, 1, nullptr, 1, 0, dw.get()));
    p.check_update(dw.get());
    std::vector<Chain> want((size_t)l->blocks, Chain(TARTAN_F32));
    for (int64_t id = 0; id < l->blocks; id++)
        for (int64_t i = 0; i < 64; i++)
            want[(size_t)id].add(entry(dw.get(), id, i / 8, i % 8), entry(p.w.get(), id, i / 8, i % 8));
    ASSERT_OK(tartan_gate_gradient(context.get(), p.w.get(), &gates.array, dw.get(), &sums.array));
    for (int64_t id = 0; id < l->blocks; id++) {
        EXPECT_TRUE(want[(size_t)id].within(sums.get(id), 1, 0, 0, TARTAN_F32)) << "block " << id;
        if (gates.get(id) == 0) {
            EXPECT_EQ(0, entry(dw.get(), id, 3, 3));
        }
    }
}

// ---- pytorch_block_sparse: dense times sparse, both ways round, and the product on the sparse support ----

Layout from_list(int64_t rows, int64_t cols, const std::vector<std::pair<int64_t, int64_t>> &blocks) {
    std::vector<int64_t> is, js;
    for (const auto &b : blocks) is.push_back(b.first), js.push_back(b.second);
    const tartan_shape shape = {rows, cols, 32, 32, 1};
    tartan_layout *layout = nullptr;
    EXPECT_OK(tartan_layout_from_coordinates(
        &shape, places_of(nullptr, is.data(), js.data(), (int64_t)is.size()), &layout));
    return Layout(layout);
}

// Positive data, every element within rtol 1e-5 and atol 1e-8 of the dense product.
void reverse_matmul(const Layout &layout, const std::vector<int64_t> &batch, bool transposed) {
    Context context = open_context(2);
    std::mt19937_64 random(5);
    Matrix w = random_matrix(layout, TARTAN_F32, TARTAN_ROW_MAJOR, random, 0, 1);
    const int64_t m = layout->shape.rows, n = layout->shape.cols, in = transposed ? n : m,
                  out = transposed ? m : n;
    std::vector<int64_t> a_shape = batch, c_shape = batch;
    a_shape.push_back(in), c_shape.push_back(out);
    Dense a(TARTAN_F32, a_shape), c(TARTAN_F32, c_shape);
    a.fill(random, 0, 1);
    ASSERT_OK(tartan_spmm(context.get(), w.get(), nullptr, &a.array, 1, 0, spmm_options(kRight, transposed),
                          &c.array));
    const std::vector<double> dense = dense_of(w.get());
    const int64_t lines = a.elements() / in;
    for (int64_t line = 0; line < lines; line += std::max<int64_t>(1, lines / 50)) {
        std::vector<double> want((size_t)out);
        for (int64_t k = 0; k < in; k++) {
            const double v = a.get(line * in + k);
            for (int64_t j = 0; j < out; j++)
                want[(size_t)j] += v * dense[(size_t)(transposed ? j * n + k : k * n + j)];
        }
        for (int64_t j = 0; j < out; j++)
            ASSERT_LE(std::fabs(c.get(line * out + j) - want[(size_t)j]),
                      1e-8 + 1e-5 * std::fabs(want[(size_t)j]))
                << line << ", " << j;
    }
}

TEST(PytorchBlockSparse, ReverseMatmul) {
    const std::vector<std::pair<int64_t, int64_t>> lists[] = {{{0, 0}},
                                                              {{0, 0}, {1, 0}},
                                                              {{0, 0}, {0, 1}},
                                                              {{0, 0}, {1, 0}, {2, 0}, {0, 1}},
                                                              {{1, 1}, {3, 0}, {2, 1}}};
    const std::pair<int64_t, int64_t> sizes[] = {{32, 32}, {64, 32}, {32, 64}, {128, 64}, {128, 64}};
    for (size_t i = 0; i < 5; i++) {
        for (const std::vector<int64_t> &batch :
             std::vector<std::vector<int64_t>>{{1}, {32}, {256}, {2, 64}, {4, 16}}) {
            for (bool transposed : {false, true}) {
                reverse_matmul(from_list(sizes[i].first, sizes[i].second, lists[i]), batch, transposed);
                if (HasFailure()) return;
            }
        }
    }
}

TEST(PytorchBlockSparse, ReverseMatmulOfALayer) {
    for (double density : {0.42, 1.0}) {
        const Layout layout = random_layout({1024, 2048, 32, 32, 1}, density, 42);
        for (const std::vector<int64_t> &batch : std::vector<std::vector<int64_t>>{{1}, {1000}, {64, 16}}) {
            for (bool transposed : {false, true}) {
                reverse_matmul(layout, batch, transposed);
                if (HasFailure()) return;
            }
        }
    }
}

// dW at the support, from operands stored as they are or transposed, within rtol 1e-4.
TEST(PytorchBlockSparse, SupportMatmul) {
    Context context = open_context(2);
    std::mt19937_64 random(6);
    const Layout layout = random_layout({1024, 2048, 32, 32, 1}, 0.1, 1);
    for (const std::vector<int64_t> &batch : std::vector<std::vector<int64_t>>{{1}, {600}, {75, 8}}) {
        for (int stored : {0, 1, 2, 3}) {
            std::vector<int64_t> a_shape = batch, b_shape = batch;
            a_shape.push_back(1024), b_shape.push_back(2048);
            if (batch.size() == 1) a_shape.insert(a_shape.begin(), 1), b_shape.insert(b_shape.begin(), 1);
            Dense a(TARTAN_F32, a_shape, stored & 1 ? kColumns : kRows),
                b(TARTAN_F32, b_shape, stored & 2 ? kColumns : kRows);
            a.fill(random, 0, 1);
            b.fill(random, 0, 1);
            tartan_matrix *raw = nullptr;
            ASSERT_OK(tartan_matrix_create(layout.get(), TARTAN_F32, TARTAN_ROW_MAJOR, &raw));
            Matrix s(raw);
            const tartan_array x = a.exchanged();
            ASSERT_OK(tartan_sddmm(context.get(), &x, &b.array, 1, nullptr, 1, 0, s.get()));
            const int64_t lines = a.elements() / 1024;
            for (int64_t id = 0; id < layout->blocks; id += 7) {
                const int64_t i = id % 32, j = id / 32 % 32;
                double want = 0;
                for (int64_t t = 0; t < lines; t++)
                    want += a.get(t * 1024 + layout->block_rows[id] * 32 + i) *
                            b.get(t * 2048 + layout->block_cols[id] * 32 + j);
                ASSERT_LE(std::fabs(entry(s.get(), id, i, j) - want), 1e-4 * std::fabs(want))
                    << "block " << id;
            }
        }
    }
}

// The emulator's odd blocks.
TEST(PytorchBlockSparse, OtherBlockShapes) {
    for (const auto &block :
         std::vector<std::pair<int64_t, int64_t>>{{1, 2}, {2, 4}, {4, 1}, {8, 4}, {16, 32}})
        for (bool transposed : {false, true})
            reverse_matmul(random_layout({64, 96, block.first, block.second, 1}, 0.5, 3), {17}, transposed);
}

} // namespace
