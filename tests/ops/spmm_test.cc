// SPDX-License-Identifier: Apache-2.0
#include "../backend/explained.h"
#include "spmm_support.h"

#include <thread>

namespace {

using namespace tartan_test;

TEST(Spmm, RandomProductsEqualTheChain) {
    Context contexts[] = {open_context(1), open_context(2), open_context(3), open_context(7)};
    for (uint64_t seed = 0; seed < rounds(1200u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const WithFeatures with(feature_sets()[seed % feature_sets().size()]);
        make_spmm(seed).run_and_check(contexts[seed / 3 % 4].get());
        if (HasFailure()) return;
    }
}

TEST(Spmm, WritesNothingBesideItsOutput) {
    Context context = open_context(2);
    for (uint64_t seed = 0; seed < rounds(200u); seed++) {
        const Spmm p = make_spmm(seed);
        Dense got = p.c;
        ASSERT_OK(p.run(context.get(), &got));
        for (int64_t i = 0; i < got.elements(); i++) got.set(i, p.c.get(i));
        ASSERT_EQ(p.c.memory(), got.memory()) << "seed " << seed;
    }
}

TEST(Spmm, SameBitsForKernelsThreadsAndRepeats) {
    for (uint64_t seed = 5000; seed < 5060; seed++) {
        const Spmm p = make_spmm(seed);
        Dense first = p.c;
        {
            const WithFeatures none(0);
            ASSERT_OK(p.run(open_context(1).get(), &first));
        }
        for (const auto set : feature_sets()) {
            const WithFeatures with(set);
            if (!has_chains(p.a->dtype)) { // bits of its own, the same for all threads and runs
                first = p.c;
                ASSERT_OK(p.run(open_context(1).get(), &first));
            }
            for (int32_t threads : {1, 2, 3, 7, 16}) {
                if (threads == 16 && seed % 4 != 0) continue; // slow on few cores
                Context context = open_context(threads);
                for (int repeat = 0; repeat < (threads == 3 ? 3 : 1); repeat++) {
                    Dense got = p.c;
                    ASSERT_OK(p.run(context.get(), &got));
                    ASSERT_EQ(first.memory(), got.memory())
                        << "seed " << seed << " kernels " << features_name(set) << " threads " << threads;
                }
            }
        }
    }
}

// A host's own loop: other threads, the last worker first.
TEST(Spmm, SameBitsInAHostsLoop) {
    tartan_hooks hooks = {sizeof hooks, nullptr, nullptr};
    hooks.parallel_for = [](void *, int32_t workers, tartan_task task, void *data) {
        std::vector<std::thread> threads;
        for (int32_t w = workers; w-- > 0;) threads.emplace_back(task, data, w);
        for (auto &t : threads) t.join();
    };
    Context host = open_context("cpu", "threads=5", &hooks), own = open_context(1);
    for (uint64_t seed = 7000; seed < 7050; seed++) {
        const Spmm p = make_spmm(seed);
        Dense a = p.c, b = p.c;
        ASSERT_OK(p.run(own.get(), &a));
        ASSERT_OK(p.run(host.get(), &b));
        ASSERT_EQ(a.memory(), b.memory()) << "seed " << seed;
    }
}

// ---- Shapes at the edges of the machinery ----

TEST(Spmm, BlockShapesOfAllKinds) {
    int number = 0;
    Context context = open_context(2);
    const std::pair<int64_t, int64_t> blocks[] = {{1, 1},   {3, 5},     {8, 8},     {16, 16},
                                                  {32, 32}, {64, 64},   {128, 128}, {256, 1},
                                                  {1, 256}, {256, 256}, {33, 17}};
    for (const auto &block : blocks) {
        for (int32_t dtype : kDtypes) {
            for (int32_t op : {0, 1}) {
                if (!is_of_the_share(number++)) continue;
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

// More blocks in a row than one list of terms holds, with and without conversion, packed and in place; and a ragged
// block after many whole ones, which alone is converted where kernels work on pairs.
TEST(Spmm, RowsOfManyBlocks) {
    int number = 0;
    for (int32_t threads : {1, 3}) {
        Context context = open_context(threads);
        for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16}) {
            plain({32, 8200, 32, 32, 1}, 1.0, dtype, {}, 40, 5).run_and_check(context.get());
            for (bool gated : {false, true}) {
                if (!is_of_the_share(number++)) continue;
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

// Blocks whose rows in op(A) are neighbours are transposed first, for many columns: ragged blocks, several batch entries and heads.
TEST(Spmm, BlocksThatAreTransposedFirst) {
    for (const auto &set : feature_sets())
        for (int32_t dtype : {TARTAN_F64, TARTAN_F32}) {
            const WithFeatures with(set);
            Spmm all[] = {plain({130, 140, 128, 128, 1}, 0.7, dtype, {}, 390, 1, kRows, kTransposed),
                          plain({75, 140, 70, 130, 1}, 0.7, dtype, {3}, 130, 2, kRows, kTransposed),
                          plain({75, 140, 70, 130, 2}, 0.7, dtype, {2, 2}, 195, 3, kColumns, kAsIs, kRight)};
            for (const Spmm &p : all) {
                Dense got = p.c;
                EXPECT_HAS(explained([&] { return p.run(open_context(1).get(), &got); }),
                           "blocks are transposed first\"");
                for (int32_t threads : {1, 3}) p.run_and_check(open_context(threads).get());
                if (HasFailure()) return;
            }
        }
    const Spmm p = plain({130, 140, 128, 128, 1}, 0.7, TARTAN_F32, {}, 390, 1, kRows, kTransposed);
    BRUTAL(in_new_context(2, [&](tartan_context *own) {
               Dense got = p.c;
               return p.run(own, &got);
           }), );
}

// Values of the caller may begin anywhere. Between lines of cache they are transposed first for fewer columns.
TEST(Spmm, ValuesThatBeginBetweenLinesOfCache) {
    for (const auto &set : feature_sets())
        for (int32_t dtype : {TARTAN_F64, TARTAN_F32}) {
            const WithFeatures with(set);
            const int64_t n = dtype == TARTAN_F64 ? 130 : 390, bytes = tartan_dtype_bytes(dtype);
            Spmm p = plain({130, 95, 32, 32, 1}, 0.7, dtype, {}, n, 1, kRows, kTransposed);
            const int64_t count = p.layout->blocks * 32 * 32;
            std::vector<char> room((size_t)(count * bytes) + 2 * 64);
            char *values = room.data() + (64 - (uintptr_t)room.data() % 64) + 16;
            std::memcpy(values, p.a->values, (size_t)(count * bytes));
            const int64_t shape[] = {p.layout->blocks, 32, 32};
            tartan_array view;
            ASSERT_OK(tartan_array_init(values, dtype, 3, shape, nullptr, &view));
            tartan_matrix *wrapped;
            ASSERT_OK(tartan_matrix_wrap(p.layout.get(), &view, nullptr, nullptr, &wrapped));
            const Matrix aligned = std::move(p.a);
            p.a = Matrix(wrapped);
            Dense got = p.c;
            const std::string text = explained([&] { return p.run(open_context(1).get(), &got); });
            if (set & TARTAN_I_CPU_AVX512) {
                EXPECT_HAS(text, "blocks are transposed first\"");
            }
            for (int32_t threads : {1, 3}) p.run_and_check(open_context(threads).get());
            if (HasFailure()) return;
        }
}

// More rows of B than fit in L2 as a sliver, so that sums go on in C: the last parts are ragged, and some rows of blocks have no block
// in a part. Several panels and several groups of rows of blocks.
TEST(Spmm, SumsLongerThanL2) {
    const int64_t rows = tartan_i_cpu_l2_bytes() / 4 * 3 / 192;
    Context one = open_context(1), three = open_context(3);
    const auto check = [&](const Spmm &p) {
        Dense got = p.c, again = p.c;
        ASSERT_OK(p.run(one.get(), &got));
        p.check(got);
        ASSERT_OK(p.run(three.get(), &again));
        EXPECT_EQ(got.memory(), again.memory());
    };
    for (int32_t dtype : {TARTAN_F64, TARTAN_F32}) {
        const int64_t n = dtype == TARTAN_F64 ? 112 : 224;
        for (Style style : {kRows, kColumns}) {
            SCOPED_TRACE(::testing::Message() << "dtype " << dtype << " style " << style);
            check(plain({163, rows * 5 / 2 + 5, 9, 65, 1}, 0.9, dtype, {}, n, 1, style));
            check(plain({rows * 5 / 2 + 5, 650, 128, 5, 1}, 0.15, dtype, {}, n / 2, 2, style, kTransposed));
            if (HasFailure()) return;
        }
    }
}

TEST(Spmm, WidePanelsAndManyBatchEntries) {
    Context context = open_context(3);
    plain({24, 24, 8, 8, 1}, 0.5, TARTAN_F32, {}, 3000, 1).run_and_check(context.get());
    plain({24, 24, 8, 8, 1}, 0.5, TARTAN_F64, {7, 11}, 5, 2).run_and_check(context.get());
    plain({24, 40, 8, 8, 1}, 0.5, TARTAN_F32, {50}, 1, 3, kColumns).run_and_check(context.get());
    plain({24, 40, 8, 8, 1}, 0.5, TARTAN_F32, {5, 4}, 6, 4, kRows, 1, kRight).run_and_check(context.get());
    plain({9, 9, 4, 4, 5}, 0.5, TARTAN_F32, {3, 5}, 6, 5, kRows, 1, kRight).run_and_check(context.get());
}

// Columns that a kernel works on together may belong to two batch entries, by any number of them. Few blocks for many
// rows of B, which is then used where it lies.
TEST(Spmm, BatchEntriesOfAnyWidthEqualSingleProducts) {
    const int64_t entries = 3;
    int number = 0;
    for (int32_t threads : {1, 3}) {
        Context context = open_context(threads);
        for (int32_t dtype : {TARTAN_F64, TARTAN_F32})
            for (int64_t n = 1; n <= 70; n++) {
                if (!is_of_the_share(number++)) continue;
                SCOPED_TRACE(::testing::Message() << "dtype " << dtype << " n " << n);
                Spmm p = plain({16, 64, 8, 8, 1}, 0.3, dtype, {entries}, n, (uint64_t)n);
                Dense got = p.c;
                ASSERT_OK(p.run(context.get(), &got));
                for (int64_t e = 0; e < entries; e++) {
                    tartan_array b = p.b.array, c = p.c.array;
                    b.ndim = c.ndim = 2;
                    for (tartan_array *a : {&b, &c})
                        for (int d = 0; d < 2; d++)
                            a->shape[d] = a->shape[d + 1], a->strides[d] = a->strides[d + 1];
                    b.data = tartan_i_at(b.data, dtype, e * p.b.array.strides[0]);
                    Dense one(dtype, {16, n});
                    c.data = one.array.data;
                    ASSERT_OK(tartan_spmm(context.get(), p.a.get(), nullptr, &b, 1, 0, nullptr, &c));
                    for (int64_t i = 0; i < 16 * n; i++) ASSERT_EQ(one.get(i), got.get(e * 16 * n + i)) << e;
                }
            }
    }
}

// Every row of C is written, whoever has it: also where the last rows have no blocks, and rows are fewer than threads.
TEST(Spmm, LastRowsWithoutBlocksAreWrittenByAnyNumberOfThreads) {
    for (bool narrow : {false, true}) // one column, by kernels of their own
        for (int64_t rows = 1; rows <= 9; rows++)
            for (int32_t threads = 1; threads <= 7; threads++) {
                SCOPED_TRACE(::testing::Message()
                             << rows << " rows of blocks, " << threads << " threads, narrow " << narrow);
                Context context = open_context(threads);
                std::vector<uint8_t> mask((size_t)rows * 2);
                for (int64_t i = 0; i < (rows + 1) / 2; i++) mask[(size_t)(2 * i)] = 1;
                std::mt19937_64 random((uint64_t)rows);
                const tartan_shape shape = {rows * 8, 8, 8, 4, 1};
                Spmm p = plain(shape, 0, TARTAN_F64, {}, narrow ? 1 : 5, 1);
                p.layout = from_mask(shape, mask);
                p.a =
                    random_matrix(p.layout, TARTAN_F64, narrow ? TARTAN_COL_MAJOR : TARTAN_ROW_MAJOR, random);
                Dense got = p.c;
                for (int64_t i = 0; i < got.elements(); i++) got.set(i, NAN);
                ASSERT_OK(p.run(context.get(), &got));
                p.check(got);
                if (HasFailure()) return;
            }
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

// A gate is rounded to the type of the sums before it is looked at: one that f32 cannot tell from 0 skips its block.
TEST(Spmm, GatesAreRoundedToTheTypeOfTheSums) {
    Context context = open_context(1);
    for (int32_t dtype : kDtypes) {
        Spmm p = plain({4, 4, 2, 2, 1}, 1, dtype, {}, 5, 1);
        p.gated = true;
        p.gates = Dense(TARTAN_F64, {4});
        for (int64_t i = 0; i < 4; i++) p.gates.set(i, i % 2 ? 1 + 1e-12 : 1e-60);
        for (int64_t i = 0; i < 4; i++) tartan_i_store(p.a->values, dtype, i, INFINITY); // block 0
        Dense got = p.c;
        ASSERT_OK(p.run(context.get(), &got));
        for (int64_t i = 0; i < 10; i++) EXPECT_EQ(!std::isfinite(got.get(i)), dtype == TARTAN_F64) << i;
        if (dtype != TARTAN_F64) p.check(got);
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

// ---- Memory ----

TEST(Spmm, SurvivesEveryFailedAllocation) {
    for (int32_t dtype : {TARTAN_F64, TARTAN_BF16}) {
        for (int32_t op : {0, 1}) {
            const Spmm p = plain({40, 40, 8, 8, 2}, 0.5, dtype, {2}, 20, 1, kRows, op);
            Dense got = p.c;
            BRUTAL(in_new_context(2, [&](tartan_context *own) { return p.run(own, &got); }), p.check(got));
        }
    }
}

TEST(Spmm, AFailedAllocationLeavesTheOutputUntouched) {
    const Spmm p = plain({40, 40, 8, 8, 1}, 0.5, TARTAN_F32, {}, 20, 1);
    for (int64_t n = 0;; n++) {
        Dense got = p.c;
        tartan_i_memory_fail_at(n);
        const tartan_status status = in_new_context(1, [&](tartan_context *own) { return p.run(own, &got); });
        tartan_i_memory_fail_at(-1);
        if (status == TARTAN_OK) break;
        EXPECT_EQ(p.c.memory(), got.memory());
    }
}

} // namespace
