// SPDX-License-Identifier: Apache-2.0
#include "products.h"

#include <thread>

namespace {

using namespace tartan_test;

// One product with all that decides it.
struct Spmm {
    Layout layout;
    Matrix a;
    Dense gates, b, c;
    int32_t side = TARTAN_LEFT, op = TARTAN_NO_TRANSPOSE;
    double alpha = 1, beta = 0;
    bool gated = false;

    int64_t rows() const { return op ? layout->shape.cols : layout->shape.rows; } // of op(A)
    int64_t cols() const { return op ? layout->shape.rows : layout->shape.cols; }
    std::vector<int64_t> b_shape(std::vector<int64_t> batch, int64_t n) const {
        batch.push_back(side == TARTAN_LEFT ? cols() : n);
        batch.push_back(side == TARTAN_LEFT ? n : rows());
        return batch;
    }
    std::vector<int64_t> c_shape(std::vector<int64_t> batch, int64_t n) const {
        batch.push_back(side == TARTAN_LEFT ? rows() : n);
        batch.push_back(side == TARTAN_LEFT ? n : cols());
        return batch;
    }
    tartan_status run(tartan_context *context, Dense *out) const {
        return tartan_spmm(context, side, op, alpha, a.get(), gated ? &gates.array : nullptr, &b.array, beta,
                           &out->array);
    }

    // Element (i, k) of op(A) as it is multiplied; false where no block counts.
    bool factor(int64_t head, int64_t i, int64_t k, double *out) const {
        const tartan_layout *l = layout.get();
        if (op) std::swap(i, k);
        const int64_t id = tartan_i_layout_find(l, head, i / l->shape.block_rows, k / l->shape.block_cols);
        if (id < 0) return false;
        *out = entry(a.get(), id, i % l->shape.block_rows, k % l->shape.block_cols);
        if (!gated) return true;
        const int32_t sums = tartan_i_sum_dtype(a->dtype);
        const double gate = rounded(sums, gates.get(id));
        *out = rounded(sums, gate * *out);
        return gate != 0;
    }

    // The oracle's value of every element of C, and whether `got` keeps the error rule.
    void check(const Dense &got) const {
        const bool left = side == TARTAN_LEFT;
        const int64_t n = b.array.shape[b.array.ndim - (left ? 1 : 2)];
        // On the right op(A) acts by columns.
        const int64_t out_size = left ? rows() : cols(), in_size = left ? cols() : rows();
        const int64_t heads = layout->shape.heads,
                      entries = out_size * n == 0 ? 0 : got.elements() / (out_size * n);
        for (int64_t e = 0; e < entries; e++) {
            for (int64_t i = 0; i < out_size; i++) {
                std::vector<std::pair<int64_t, double>> terms;
                for (int64_t k = 0; k < in_size; k++) {
                    double value;
                    if (left ? factor(e % heads, i, k, &value) : factor(e % heads, k, i, &value))
                        terms.push_back({k, value});
                }
                for (int64_t j = 0; j < n; j++) {
                    Chain chain(a->dtype);
                    for (const auto &t : terms)
                        chain.add(t.second, b.get(left ? (e * in_size + t.first) * n + j
                                                       : (e * n + j) * in_size + t.first));
                    const int64_t at = left ? (e * out_size + i) * n + j : (e * n + j) * out_size + i;
                    const double old = c.get(at), value = got.get(at);
                    ASSERT_EQ(chain.result(alpha, beta, old, got.array.dtype), value)
                        << "entry " << e << " at " << i << ", " << j;
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

Spmm make_spmm(uint64_t seed) {
    std::mt19937_64 random(seed);
    Spmm p;
    const std::pair<int, int> blocks[] = {{1, 1}, {3, 5},  {8, 8},   {16, 16}, {4, 1},
                                          {7, 2}, {9, 12}, {32, 32}, {1, 8}};
    const auto block = blocks[below(random, 9)];
    const int64_t heads = pick(random, {1, 1, 1, 2, 3});
    const int64_t limit = heads > 1 ? 30 : 70;
    const tartan_shape shape = {(int64_t)below(random, (size_t)limit), (int64_t)below(random, (size_t)limit),
                                block.first, block.second, heads};
    p.layout = random_layout(shape, pick(random, {0.0, 0.1, 0.4, 1.0}), seed);
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
    for (int64_t i = 0; i < p.layout->blocks; i++) p.gates.set(i, pick(random, {0.0, 1.0, 0.37, -2.5}));
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

TEST(Spmm, RandomProductsEqualTheChain) {
    Context contexts[] = {open_context(1), open_context(2), open_context(3), open_context(7)};
    for (uint64_t seed = 0; seed < 1200; seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const AtLevel at(levels()[seed % levels().size()]);
        make_spmm(seed).run_and_check(contexts[seed / 3 % 4].get());
        if (HasFailure()) return;
    }
}

TEST(Spmm, WritesNothingBesideItsOutput) {
    Context context = open_context(2);
    for (uint64_t seed = 0; seed < 200; seed++) {
        const Spmm p = make_spmm(seed);
        Dense got = p.c;
        ASSERT_OK(p.run(context.get(), &got));
        for (int64_t i = 0; i < got.elements(); i++) got.set(i, p.c.get(i));
        ASSERT_EQ(p.c.memory(), got.memory()) << "seed " << seed;
    }
}

TEST(Spmm, SameBitsForLevelsThreadsAndRepeats) {
    for (uint64_t seed = 5000; seed < 5060; seed++) {
        const Spmm p = make_spmm(seed);
        Dense first = p.c;
        ASSERT_OK(p.run(open_context(1).get(), &first));
        for (const auto level : levels()) {
            const AtLevel at(level);
            for (int32_t threads : {1, 2, 3, 7}) {
                Context context = open_context(threads);
                for (int repeat = 0; repeat < (threads == 3 ? 10 : 1); repeat++) {
                    Dense got = p.c;
                    ASSERT_OK(p.run(context.get(), &got));
                    ASSERT_EQ(first.memory(), got.memory())
                        << "seed " << seed << " level " << level << " threads " << threads;
                }
            }
        }
    }
}

// A host's own loop: other threads, the last worker first.
TEST(Spmm, SameBitsInAHostsLoop) {
    tartan_context_options options;
    tartan_context_options_init(&options);
    options.threads = 5;
    options.parallel_for = [](void *, int32_t workers, tartan_task task, void *data) {
        std::vector<std::thread> threads;
        for (int32_t w = workers; w-- > 0;) threads.emplace_back(task, data, w);
        for (auto &t : threads) t.join();
    };
    tartan_context *raw = nullptr;
    ASSERT_OK(tartan_context_create(&options, &raw));
    Context host(raw), own = open_context(1);
    for (uint64_t seed = 7000; seed < 7050; seed++) {
        const Spmm p = make_spmm(seed);
        Dense a = p.c, b = p.c;
        ASSERT_OK(p.run(own.get(), &a));
        ASSERT_OK(p.run(host.get(), &b));
        ASSERT_EQ(a.memory(), b.memory()) << "seed " << seed;
    }
}

// ---- Shapes at the edges of the machinery ----

Spmm plain(const tartan_shape &shape, double density, int32_t dtype, std::vector<int64_t> batch, int64_t n,
           uint64_t seed, Style style = kRows, int32_t op = TARTAN_NO_TRANSPOSE, int32_t side = TARTAN_LEFT) {
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

TEST(Spmm, BlockShapesOfAllKinds) {
    Context context = open_context(2);
    const std::pair<int64_t, int64_t> blocks[] = {{1, 1},   {3, 5},     {8, 8},     {16, 16},
                                                  {32, 32}, {64, 64},   {128, 128}, {256, 1},
                                                  {1, 256}, {256, 256}, {33, 17}};
    for (const auto &block : blocks) {
        for (int32_t dtype : kDtypes) {
            for (int32_t op : {0, 1}) {
                SCOPED_TRACE(::testing::Message()
                             << block.first << " x " << block.second << " dtype " << dtype << " op " << op);
                // Ragged in both directions where the block is larger than one.
                const tartan_shape shape = {block.first * 2 + block.first / 2,
                                            block.second * 2 + block.second / 3 + 1, block.first,
                                            block.second, 1};
                plain(shape, 0.7, dtype, {}, 19, 1, dtype % 2 ? kRows : kColumns, op)
                    .run_and_check(context.get());
                if (HasFailure()) return;
            }
        }
    }
}

// More blocks in a row than one list of terms holds, with and without conversion, packed and in place.
TEST(Spmm, RowsOfManyBlocks) {
    for (int32_t threads : {1, 3}) {
        Context context = open_context(threads);
        for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_F16}) {
            for (bool gated : {false, true}) {
                SCOPED_TRACE(::testing::Message() << "dtype " << dtype << " gated " << gated);
                Spmm p = plain({2, 1600, 1, 1, 1}, 0.9, dtype, {}, 130, 2);
                p.gated = gated;
                p.run_and_check(context.get());
                p = plain({40, 1100, 20, 1, 1}, 1.0, dtype, {}, 50, 3, kColumns);
                p.gated = gated;
                p.run_and_check(context.get());
                p = plain({300, 3, 1, 2, 1}, 1.0, dtype, {2}, 40, 4);
                p.gated = gated;
                p.run_and_check(context.get());
                if (HasFailure()) return;
            }
        }
    }
}

TEST(Spmm, WidePanelsAndManyBatchEntries) {
    Context context = open_context(3);
    plain({24, 24, 8, 8, 1}, 0.5, TARTAN_F32, {}, 3000, 1).run_and_check(context.get());
    plain({24, 24, 8, 8, 1}, 0.5, TARTAN_F64, {7, 11}, 5, 2).run_and_check(context.get());
    plain({24, 40, 8, 8, 1}, 0.5, TARTAN_F32, {50}, 1, 3, kColumns).run_and_check(context.get());
    plain({24, 40, 8, 8, 1}, 0.5, TARTAN_F32, {5, 4}, 6, 4, kRows, 1, TARTAN_RIGHT)
        .run_and_check(context.get());
    plain({9, 9, 4, 4, 5}, 0.5, TARTAN_F32, {3, 5}, 6, 5, kRows, 1, TARTAN_RIGHT)
        .run_and_check(context.get());
}

TEST(Spmm, AnySizeMayBeZero) {
    Context context = open_context(2);
    for (int32_t side : {0, 1}) {
        for (int32_t op : {0, 1}) {
            for (const auto &size :
                 std::vector<std::vector<int64_t>>{{0, 5, 3}, {5, 0, 3}, {5, 5, 0}, {0, 0, 0}, {0, 0, 4}}) {
                Spmm p = plain({size[0], size[1], 2, 2, 1}, 1, TARTAN_F32, {}, size[2], 1, kRows, op, side);
                p.beta = 0.5;
                p.run_and_check(context.get());
                p.b.array.data = p.b.elements() == 0 ? nullptr : p.b.array.data;
                Dense got = p.c;
                EXPECT_OK(p.run(context.get(), &got));
            }
        }
    }
    Spmm p = plain({6, 6, 2, 2, 1}, 1, TARTAN_F32, {0}, 4, 1);
    Dense got = p.c;
    EXPECT_OK(p.run(context.get(), &got));
}

TEST(Spmm, RowsWithoutBlocksGiveZerosThenBetaC) {
    Context context = open_context(1);
    Spmm p = plain({8, 8, 4, 4, 1}, 0, TARTAN_F64, {}, 3, 1);
    Dense got = p.c;
    ASSERT_OK(p.run(context.get(), &got));
    for (int64_t i = 0; i < got.elements(); i++) EXPECT_EQ(0, got.get(i));
    p.beta = 2;
    got = p.c;
    ASSERT_OK(p.run(context.get(), &got));
    for (int64_t i = 0; i < got.elements(); i++) EXPECT_EQ(2 * p.c.get(i), got.get(i));
}

// ---- What is not read does not matter ----

TEST(Spmm, BetaZeroDoesNotReadC) {
    Context context = open_context(1);
    for (int32_t dtype : kDtypes) {
        for (Style style : {kRows, kColumns, kGaps}) {
            Spmm p = plain({20, 20, 4, 4, 1}, 0.5, dtype, {}, 9, 1, style);
            Dense got = p.c;
            for (int64_t i = 0; i < got.elements(); i++) got.set(i, NAN);
            ASSERT_OK(p.run(context.get(), &got));
            p.check(got);
        }
    }
}

TEST(Spmm, RowsOfBWithoutBlocksAreNotRead) {
    Context context = open_context(1);
    std::mt19937_64 random(1);
    for (Style style : {kRows, kColumns}) {
        Spmm p;
        p.layout = from_mask({4, 6, 2, 2, 1}, {1, 0, 0, 1, 0, 1}); // block column 1 has no block
        p.a = random_matrix(p.layout, TARTAN_F32, 0, random);
        p.b = Dense(TARTAN_F32, {6, 5}, style);
        p.b.fill(random);
        for (int64_t j = 0; j < 5; j++) p.b.set(2 * 5 + j, NAN), p.b.set(3 * 5 + j, INFINITY);
        p.c = Dense(TARTAN_F32, {4, 5});
        p.run_and_check(context.get());
    }
}

TEST(Spmm, AGateOfZeroSkipsTheBlockWhateverIsInIt) {
    Context context = open_context(1);
    for (int32_t dtype : kDtypes) {
        Spmm p = plain({4, 4, 2, 2, 1}, 1, dtype, {}, 5, 1);
        p.gated = true;
        for (int64_t i = 0; i < 4; i++) p.gates.set(i, i % 2 ? 1.5 : 0);
        for (int64_t i = 0; i < 4; i++) tartan_i_store(p.a->values, dtype, i, NAN); // block 0
        p.run_and_check(context.get());
    }
}

TEST(Spmm, NaNAndInfinityGoThroughChains) {
    Context context = open_context(1);
    Spmm p = plain({4, 4, 2, 2, 1}, 1, TARTAN_F32, {}, 20, 1);
    p.b.set(0, INFINITY);
    p.b.set(1, NAN);
    Dense got = p.c;
    ASSERT_OK(p.run(context.get(), &got));
    for (int64_t i = 0; i < 4; i++) {
        EXPECT_TRUE(std::isinf(got.get(i * 20)));
        EXPECT_TRUE(std::isnan(got.get(i * 20 + 1)));
        EXPECT_TRUE(std::isfinite(got.get(i * 20 + 2)));
    }
}

// ---- Laws ----

TEST(Spmm, SplittingBlocksInFourChangesNothing) {
    Context context = open_context(2);
    std::mt19937_64 random(11);
    for (int64_t block : {2, 6, 16, 32}) {
        for (int32_t op : {0, 1}) {
            for (int32_t dtype : kDtypes) {
                const int64_t size = block * 4 - 1;
                Spmm coarse =
                    plain({size, size, block, block, 1}, 0.5, dtype, {}, 33, (uint64_t)block, kRows, op);
                const int64_t fine_grid = grid(size, block / 2);
                std::vector<uint8_t> mask((size_t)(fine_grid * fine_grid));
                for (int64_t i = 0; i < fine_grid; i++)
                    for (int64_t j = 0; j < fine_grid; j++)
                        mask[(size_t)(i * fine_grid + j)] =
                            tartan_i_layout_find(coarse.layout.get(), 0, i / 2, j / 2) >= 0;
                Spmm fine;
                fine.layout = from_mask({size, size, block / 2, block / 2, 1}, mask);
                fine.a = random_matrix(fine.layout, dtype, TARTAN_COL_MAJOR, random);
                for (int64_t i = 0; i < size; i++) {
                    for (int64_t j = 0; j < size; j++) {
                        double value;
                        if (!coarse.factor(0, op ? j : i, op ? i : j, &value)) continue;
                        const int64_t half = block / 2,
                                      id = tartan_i_layout_find(fine.layout.get(), 0, i / half, j / half);
                        tartan_i_store(tartan_i_block_at(fine.a.get(), id), dtype, i % half + j % half * half,
                                       value);
                    }
                }
                fine.op = op;
                fine.b = coarse.b;
                Dense a = coarse.c, b = coarse.c;
                ASSERT_OK(coarse.run(context.get(), &a));
                ASSERT_OK(fine.run(context.get(), &b));
                EXPECT_EQ(a.memory(), b.memory()) << block << " op " << op << " dtype " << dtype;
            }
        }
    }
}

// op(A) B and (B' op(A)')' are one computation.
TEST(Spmm, LeftIsRightTransposed) {
    Context context = open_context(1);
    for (uint64_t seed = 0; seed < 1000; seed++) {
        Spmm p = make_spmm(seed);
        tartan_array b = p.b.exchanged();
        Dense left = p.c, right = p.c;
        tartan_array c = right.exchanged();
        const tartan_array *gates = p.gated ? &p.gates.array : nullptr;
        ASSERT_OK(p.run(context.get(), &left));
        ASSERT_OK(tartan_spmm(context.get(), !p.side, !p.op, p.alpha, p.a.get(), gates, &b, p.beta, &c));
        ASSERT_EQ(left.memory(), right.memory()) << "seed " << seed;
    }
}

TEST(Spmm, InnerProductsOfATransposeAgree) {
    Context context = open_context(1);
    for (uint64_t seed = 0; seed < 1000; seed++) {
        std::mt19937_64 random(seed);
        Spmm p = plain({(int64_t)(1 + below(random, 40)), (int64_t)(1 + below(random, 40)),
                        (int64_t)(1 + below(random, 9)), (int64_t)(1 + below(random, 9)), 1},
                       0.4, TARTAN_F64, {}, 1, seed);
        Spmm q = plain(p.layout->shape, 0.4, TARTAN_F64, {}, 1, seed, kRows, TARTAN_TRANSPOSE); // the same A
        q.b = Dense(TARTAN_F64, {p.layout->shape.rows, 1});
        q.b.fill(random);
        Dense ax = p.c, aty = q.c;
        ASSERT_OK(p.run(context.get(), &ax));
        ASSERT_OK(tartan_spmm(context.get(), 0, 1, 1, p.a.get(), nullptr, &q.b.array, 0, &aty.array));
        double left = 0, right = 0, size = 1;
        for (int64_t i = 0; i < ax.elements(); i++)
            left += ax.get(i) * q.b.get(i), size += std::fabs(ax.get(i));
        for (int64_t i = 0; i < aty.elements(); i++)
            right += aty.get(i) * p.b.get(i), size += std::fabs(aty.get(i));
        ASSERT_NEAR(left, right, 1e-13 * size) << "seed " << seed;
    }
}

// Powers of two scale exactly; a sum of two right sides gives the sum, within the error rule.
TEST(Spmm, IsLinear) {
    Context context = open_context(1);
    for (uint64_t seed = 0; seed < 1000; seed++) {
        std::mt19937_64 random(seed);
        Spmm p = plain({(int64_t)(1 + below(random, 40)), (int64_t)(1 + below(random, 40)), 4, 3, 1}, 0.5,
                       TARTAN_F64, {}, 6, seed);
        Dense once = p.c, four = p.c;
        ASSERT_OK(p.run(context.get(), &once));
        p.alpha = 4;
        ASSERT_OK(p.run(context.get(), &four));
        for (int64_t i = 0; i < once.elements(); i++)
            ASSERT_EQ(4 * once.get(i), four.get(i)) << "seed " << seed;
        Spmm q = plain(p.layout->shape, 0.5, TARTAN_F64, {}, 6, seed);
        q.b.fill(random);
        Dense second = p.c, sum = p.c;
        ASSERT_OK(q.run(context.get(), &second));
        for (int64_t i = 0; i < p.b.elements(); i++) p.b.set(i, p.b.get(i) + q.b.get(i));
        p.alpha = 1;
        ASSERT_OK(p.run(context.get(), &sum));
        for (int64_t i = 0; i < sum.elements(); i++)
            ASSERT_NEAR(once.get(i) + second.get(i), sum.get(i), 1e-13) << "seed " << seed;
    }
}

// ---- Memory ----

TEST(Spmm, SurvivesEveryFailedAllocation) {
    Context context = open_context(2);
    for (int32_t dtype : {TARTAN_F64, TARTAN_BF16}) {
        for (int32_t op : {0, 1}) {
            const Spmm p = plain({40, 40, 8, 8, 2}, 0.5, dtype, {2}, 20, 1, kRows, op);
            Dense got = p.c;
            BRUTAL(p.run(context.get(), &got), p.check(got));
        }
    }
}

TEST(Spmm, AFailedAllocationLeavesTheOutputUntouched) {
    Context context = open_context(1);
    const Spmm p = plain({40, 40, 8, 8, 1}, 0.5, TARTAN_F32, {}, 20, 1);
    for (int64_t n = 0;; n++) {
        Dense got = p.c;
        tartan_i_memory_fail_at(n);
        const tartan_status status = p.run(context.get(), &got);
        tartan_i_memory_fail_at(-1);
        if (status == TARTAN_OK) break;
        EXPECT_EQ(p.c.memory(), got.memory());
    }
}

// ---- Refusals ----

class SpmmRefusals : public ::testing::Test {
  protected:
    Context context = open_context(1);
    Spmm p = plain({8, 6, 2, 3, 1}, 1, TARTAN_F32, {}, 5, 1);
    Dense before = p.c;
    tartan_status call() {
        return tartan_spmm(context.get(), p.side, p.op, p.alpha, p.a.get(),
                           p.gated ? &p.gates.array : nullptr, &p.b.array, p.beta, &p.c.array);
    }
    void TearDown() override { EXPECT_EQ(before.memory(), p.c.memory()) << "a refused call wrote"; }
};

TEST_F(SpmmRefusals, Handles) {
    tartan_context *none = nullptr;
    EXPECT_FAILS(HANDLE, "tartan_spmm: context is NULL",
                 tartan_spmm(none, 0, 0, 1, p.a.get(), nullptr, &p.b.array, 0, &p.c.array));
    EXPECT_FAILS(HANDLE, "a is NULL",
                 tartan_spmm(context.get(), 0, 0, 1, nullptr, nullptr, &p.b.array, 0, &p.c.array));
    EXPECT_FAILS(HANDLE, "b is NULL",
                 tartan_spmm(context.get(), 0, 0, 1, p.a.get(), nullptr, nullptr, 0, &p.c.array));
    EXPECT_FAILS(HANDLE, "c is NULL",
                 tartan_spmm(context.get(), 0, 0, 1, p.a.get(), nullptr, &p.b.array, 0, nullptr));
    uint32_t foreign[64] = {1};
    EXPECT_FAILS(
        HANDLE, "a is closed or not one of Tartan's",
        tartan_spmm(context.get(), 0, 0, 1, (tartan_matrix *)foreign, nullptr, &p.b.array, 0, &p.c.array));
    EXPECT_FAILS(
        HANDLE, "context is closed or not one of Tartan's",
        tartan_spmm((tartan_context *)foreign, 0, 0, 1, p.a.get(), nullptr, &p.b.array, 0, &p.c.array));
    p.b.array.data = nullptr;
    EXPECT_FAILS(HANDLE, "b of shape [6, 5] has data NULL", call());
}

TEST_F(SpmmRefusals, Arguments) {
    p.side = 2;
    EXPECT_FAILS(ARGUMENT, "side is 2, expected 0 (left) or 1 (right)", call());
    p.side = 0, p.op = -1;
    EXPECT_FAILS(ARGUMENT, "op is -1", call());
    p.op = 0, p.alpha = NAN;
    EXPECT_FAILS(ARGUMENT, "alpha is nan", call());
    p.alpha = 1e300; // finite, but not in f32
    EXPECT_FAILS(ARGUMENT, "alpha is 1e+300, expected a number that is finite in float32", call());
    p.alpha = 1, p.beta = -INFINITY;
    EXPECT_FAILS(ARGUMENT, "beta is -inf", call());
}

TEST_F(SpmmRefusals, Shapes) {
    p.b.array.shape[0] = 5;
    EXPECT_FAILS(SHAPE, "b has shape [5, 5], expected [..., 6, cols]", call());
    p.b.array.shape[0] = 6, p.c.array.shape[0] = 7;
    EXPECT_FAILS(SHAPE, "c has shape [7, 5], expected [..., 8, cols]", call());
    p.c.array.shape[0] = 8, p.c.array.shape[1] = 4;
    EXPECT_FAILS(SHAPE, "c has 4 columns, expected 5 (those of b)", call());
    p.c.array.shape[1] = 5, p.side = TARTAN_RIGHT;
    EXPECT_FAILS(SHAPE, "b has shape [6, 5], expected [..., rows, 8]", call());
    p.side = TARTAN_LEFT, p.b.array.ndim = 1;
    EXPECT_FAILS(SHAPE, "b has shape [6], expected at least 2 dimensions", call());
    p.b.array.ndim = 3, p.b.array.shape[0] = 1, p.b.array.shape[1] = 6, p.b.array.shape[2] = 5;
    p.b.array.strides[0] = 30, p.b.array.strides[1] = 5, p.b.array.strides[2] = 1;
    EXPECT_FAILS(SHAPE, "c has shape [8, 5], expected the batch dimensions of b, [1, 6, 5]", call());
    p.b.array.ndim = 9;
    EXPECT_FAILS(ARGUMENT, "b has ndim 9", call());
}

TEST_F(SpmmRefusals, Heads) {
    Spmm h = plain({8, 6, 2, 3, 3}, 1, TARTAN_F32, {3}, 5, 1);
    h.b.array.shape[0] = 2;
    EXPECT_FAILS(SHAPE, "b has shape [2, 6, 5], expected [..., 3, rows, cols] (heads of the layout)",
                 h.run(context.get(), &h.c));
    h.b.array.ndim = 2, h.b.array.shape[0] = 6, h.b.array.shape[1] = 5;
    EXPECT_FAILS(SHAPE, "(heads of the layout)", h.run(context.get(), &h.c));
}

TEST_F(SpmmRefusals, Gates) {
    p.gated = true;
    p.gates.array.shape[0] = 7;
    EXPECT_FAILS(SHAPE, "gates has shape [7], expected [8]", call());
    p.gates = Dense(TARTAN_F16, {8});
    EXPECT_FAILS(DTYPE, "gates is of float16, expected float32 or float64", call());
    p.gates = Dense(TARTAN_F32, {8, 1});
    EXPECT_FAILS(SHAPE, "gates has shape [8, 1]", call());
    p.gates = Dense(TARTAN_F32, {8});
    p.gates.array.data = nullptr;
    EXPECT_FAILS(HANDLE, "gates", call());
}

TEST_F(SpmmRefusals, Dtypes) {
    p.b.array.dtype = TARTAN_BF16;
    EXPECT_FAILS(DTYPE, "b is of bfloat16, expected float32 (that of a)", call());
    p.b.array.dtype = TARTAN_F32, p.c.array.dtype = TARTAN_F16;
    EXPECT_FAILS(DTYPE, "c is of float16, expected float32", call());
    p.c.array.dtype = 99;
    EXPECT_FAILS(DTYPE, "c has dtype 99", call());
    Spmm h = plain({8, 6, 2, 3, 1}, 1, TARTAN_F16, {}, 5, 1);
    h.c = Dense(TARTAN_BF16, {8, 5});
    EXPECT_FAILS(DTYPE, "c is of bfloat16, expected float16 or float32", h.run(context.get(), &h.c));
    Spmm e = plain({8, 6, 2, 3, 1}, 1, TARTAN_F8E4M3, {}, 5, 1);
    for (int32_t dtype : {TARTAN_F8E4M3, TARTAN_F8E5M2, TARTAN_F64}) {
        e.c = Dense(dtype, {8, 5});
        EXPECT_FAILS(DTYPE,
                     std::string("c is of ") + tartan_dtype_name(dtype) +
                         ", expected float32, float16 or bfloat16",
                     e.run(context.get(), &e.c));
    }
    e.c = Dense(TARTAN_F32, {8, 5});
    EXPECT_OK(e.run(context.get(), &e.c));
    e.b.array.dtype = TARTAN_F8E5M2;
    EXPECT_FAILS(DTYPE, "b is of float8_e5m2, expected float8_e4m3fn (that of a)",
                 e.run(context.get(), &e.c));
}

TEST_F(SpmmRefusals, Overlap) {
    Dense whole(TARTAN_F32, {14, 5});
    tartan_array b = whole.array, c = whole.array;
    b.shape[0] = 6, c.shape[0] = 8;
    c.data = (float *)whole.array.data + 29; // one element shared
    EXPECT_FAILS(ARGUMENT, "c overlaps b",
                 tartan_spmm(context.get(), 0, 0, 1, p.a.get(), nullptr, &b, 0, &c));
    c.data = (float *)whole.array.data + 30;
    EXPECT_OK(tartan_spmm(context.get(), 0, 0, 1, p.a.get(), nullptr, &b, 0, &c));
    c.data = p.a->values;
    EXPECT_FAILS(ARGUMENT, "c overlaps the values of a",
                 tartan_spmm(context.get(), 0, 0, 1, p.a.get(), nullptr, &p.b.array, 0, &c));
    c.data = p.gates.array.data;
    EXPECT_FAILS(ARGUMENT, "c overlaps gates",
                 tartan_spmm(context.get(), 0, 0, 1, p.a.get(), &p.gates.array, &p.b.array, 0, &c));
}

TEST_F(SpmmRefusals, RepeatingOutput) {
    p.c.array.strides[0] = 0;
    EXPECT_FAILS(ARGUMENT, "repeat or interleave", call());
}

TEST_F(SpmmRefusals, MemoryOfAnotherDevice) {
    p.b.array.device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "b is on device 2:0, expected 1:0", call());
    p.b.array.device_type = TARTAN_CPU, p.c.array.device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "c is on device 2:0", call());
    p.c.array.device_type = TARTAN_CPU, p.a->device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "a is on device 2:0", call());
    p.a->device_type = TARTAN_CPU, p.gated = true, p.gates.array.device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "gates is on device 2:0", call());
}

TEST_F(SpmmRefusals, Overflow) {
    p.b.array.strides[0] = INT64_MAX / 2;
    EXPECT_FAILS(OVERFLOW, "b of shape [6, 5]", call());
}

} // namespace
