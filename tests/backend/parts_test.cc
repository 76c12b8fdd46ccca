// SPDX-License-Identifier: Apache-2.0
// The modes in which a CPU may multiply f32 as sums of bf16. Without AMX it does not, unless the context insists, as it does here.
#include "large.h"

extern "C" {
#include "backend/cpu_parts.h"
#include "core/dtype.h"
}

namespace {

using namespace tartan_test;

struct Mode {
    const char *name;
    double lost; // of a product, by docs/numerics.md
};
const Mode kModes[] = {{"bf16x3", 0x1p-15}, {"bf16x6", 0x1.01p-24}};

Context open_insisting(const char *mode, int threads) {
    Context context = open_context("cpu", "threads=" + std::to_string(threads) + " math=" + mode);
    context->options.parts_by_any = true;
    return context;
}

class MathParts : public Large {
  protected:
    // Small enough for kernels in C, large enough for tiles and for several slivers.
    Setting small(int64_t block, std::mt19937_64 &random) {
        Setting s = setting_of(block, TARTAN_F32, random);
        s.rows = std::min<int64_t>(s.rows, 150), s.cols = std::min<int64_t>(s.cols, 150);
        s.n = pick<int64_t>(random, {1, 16, 17, 31, 32, 33, 70, 96}), s.gated = random() % 8 == 0;
        return s;
    }
};
INSTANTIATE_TEST_SUITE_P(Each, MathParts, ::testing::Values("cpu"),
                         [](const auto &info) { return info.param; });

TEST_P(MathParts, ProductsAreWithinTheBound) {
    for (const Mode &mode : kModes)
        for (const int threads : {1, 3}) {
            context = open_insisting(mode.name, threads);
            for (int64_t block : {16, 17, 24, 32, 33, 48, 64, 128})
                for (uint64_t seed = 0; seed < tartan_test::rounds(3u) && !HasFailure(); seed++) {
                    std::mt19937_64 random(seed * 1000 + (uint64_t)(block * 4 + threads));
                    const Setting s = small(block, random);
                    forms<double>(s, {(int)(seed % 4), (int)((seed + 1) % 4)}, random, mode.lost);
                    sddmm<double>(s, random, mode.lost);
                }
        }
}

// Some rows have more blocks than are split at a time, others fewer.
TEST_P(MathParts, RowsOfManyLargeBlocks) {
    for (const Mode &mode : kModes)
        for (const int threads : {1, 2}) {
            context = open_insisting(mode.name, threads);
            std::mt19937_64 random((uint64_t)threads);
            Setting s = {};
            s.block = 128, s.dtype = s.out_dtype = TARTAN_F32, s.heads = 1, s.alpha = 1;
            s.block_order = threads - 1, s.n = 33;
            s.rows = 128 * 5 - 7, s.cols = 128 * 7, s.density = 0.6;
            forms<double>(s, {threads - 1}, random, mode.lost);
        }
}

// A product of a matrix by a matrix in a context.
Dense product(tartan_context *context, const Matrix &a, const Dense &b, int64_t rows, int64_t n) {
    Dense c(TARTAN_F32, {rows, n});
    tartan_array to = c.array;
    EXPECT_OK(tartan_spmm(context, a.get(), nullptr, &b.array, 1, 0, nullptr, &to));
    return c;
}

// Infinity, NaN and numbers that bf16 cannot hold give what they give in f32.
TEST_P(MathParts, SumsThatAreNotFiniteAreThoseOfF32) {
    const float specials[] = {INFINITY, -INFINITY, NAN, std::numeric_limits<float>::max(), -0x1.ffp127f};
    for (const Mode &mode : kModes)
        for (const int64_t block : {16, 32, 40})
            for (const float special : specials)
                for (const bool left : {false, true}) {
                    SCOPED_TRACE(::testing::Message()
                                 << mode.name << ", " << block << ", " << special << left);
                    std::mt19937_64 random((uint64_t)block);
                    const int64_t size = 3 * block - 5, n = 43;
                    const Layout layout = random_layout({size, size, block, block, 1}, 0.7, 5);
                    const Matrix a = random_matrix(layout, TARTAN_F32, 0, random);
                    Dense b(TARTAN_F32, {size, n});
                    b.fill(random);
                    if (left)
                        tartan_i_store(tartan_i_block_at(a.get(), 1), TARTAN_F32, 3 * block + 2, special);
                    else
                        b.set((block + 1) * n + 5, special);
                    const Context exact = open_context(1), parts = open_insisting(mode.name, 2);
                    const Dense want = product(exact.get(), a, b, size, n),
                                got = product(parts.get(), a, b, size, n);
                    for (int64_t i = 0; i < got.elements(); i++) {
                        const double x = want.get(i), y = got.get(i);
                        if (std::isfinite(x) && std::fabs(x) < 1e6)
                            ASSERT_NEAR(x, y, 2 * (mode.lost + 0x1p-20) * (double)size) << i;
                        else
                            ASSERT_TRUE(x == y || (std::isnan(x) && std::isnan(y))) << i << ": " << x << y;
                    }
                }
}

TEST_P(MathParts, SampledSumsThatAreNotFiniteAreThoseOfF32) {
    const float specials[] = {INFINITY, NAN, std::numeric_limits<float>::max()};
    for (const Mode &mode : kModes)
        for (const float special : specials)
            for (const int64_t k : {19, 1100}) { // in one round, and in two
                const Layout layout = random_layout({70, 70, 32, 32, 1}, 0.7, 5);
                std::mt19937_64 random(9);
                Dense x(TARTAN_F32, {3, 70, k}), y(TARTAN_F32, {3, k, 70});
                x.fill(random), y.fill(random);
                x.set(7 * k + 3, special), y.set(y.elements() - 5, special);
                const Matrix want = random_matrix(layout, TARTAN_F32, 0, random),
                             got = random_matrix(layout, TARTAN_F32, 0, random);
                const Context exact = open_context(1), parts = open_insisting(mode.name, 2);
                ASSERT_OK(tartan_sddmm(exact.get(), &x.array, &y.array, 1, nullptr, 1, 0, want.get()));
                ASSERT_OK(tartan_sddmm(parts.get(), &x.array, &y.array, 1, nullptr, 1, 0, got.get()));
                int64_t found = 0;
                for (int64_t id = 0; id < layout->blocks; id++)
                    for (int64_t i = 0; i < 32 * 32; i++) {
                        const double p = entry(want.get(), id, i / 32, i % 32),
                                     q = entry(got.get(), id, i / 32, i % 32);
                        found += !std::isfinite(p) || std::fabs(p) > 1e6;
                        if (std::isfinite(p) && std::fabs(p) < 1e6)
                            ASSERT_NEAR(p, q, 2 * (mode.lost + 0x1p-20) * 3 * (double)k) << id << ": " << i;
                        else
                            ASSERT_TRUE(p == q || (std::isnan(p) && std::isnan(q))) << id << ": " << p << q;
                    }
                EXPECT_GT(found, 0);
            }
}

TEST_P(MathParts, BitsDoNotDependOnThreads) {
    for (const Mode &mode : kModes) {
        std::mt19937_64 random(7);
        const Layout layout = random_layout({140, 200, 32, 32, 1}, 0.6, 5);
        const Matrix a = random_matrix(layout, TARTAN_F32, 1, random);
        Dense b(TARTAN_F32, {200, 130});
        b.fill(random);
        const Context one = open_insisting(mode.name, 1), four = open_insisting(mode.name, 4);
        EXPECT_EQ(product(one.get(), a, b, 140, 130).memory(), product(four.get(), a, b, 140, 130).memory());
    }
}

// Never silent: what is done is what `explain` says, and elsewhere the results are those of f32.
TEST_P(MathParts, ExplainSaysWhatIsDone) {
    const bool tiles = (tartan_i_cpu_in_use() & TARTAN_I_CPU_AMX) && tartan_i_cpu_tiles();
    for (const Mode &mode : kModes) {
        const std::string kernel = std::string("spmm_") + mode.name,
                          refused = "{\"kernel\": \"" + kernel + "\", \"why\": \"";
        const Layout layout = random_layout({128, 128, 32, 32, 1}, 0.5, 1),
                     tiny = random_layout({128, 128, 8, 8, 1}, 0.5, 1);
        const Context exact = open_context(1), asks = open_context("cpu", std::string("math=") + mode.name),
                      insists = open_insisting(mode.name, 1);
        const auto said = [&](const Context &in, const Layout &of, int64_t n) {
            return explain_spmm(in.get(), of.get(), TARTAN_F32, n);
        };
        EXPECT_HAS(said(exact, layout, 64), refused + "the context does not allow it");
        EXPECT_HAS(said(insists, layout, 64),
                   "\"kernel\": \"" + kernel + "\", \"instruction_set\": \"" + (tiles ? "amx" : "c"));
        EXPECT_HAS(said(insists, layout, 64), "slower than the products of bfloat16 that the context allows");
        EXPECT_HAS(said(insists, layout, 64), "blocks are split into parts of bfloat16");
        EXPECT_HAS(said(asks, layout, 64), tiles ? "\"kernel\": \"" + kernel + "\""
                                                 : refused + "float32 is faster on a CPU without amx");
        EXPECT_HAS(said(insists, layout, 15), refused + "fewer than 16 rows");
        EXPECT_HAS(said(insists, tiny, 64), refused + "fewer than 16 rows");
        EXPECT_HAS(explain_spmm(insists.get(), layout.get(), TARTAN_F64, 64), refused + "only for float32");
        const std::string sampled = std::string("sddmm_") + mode.name;
        EXPECT_HAS(explain_sddmm(insists.get(), layout.get(), TARTAN_F32, 64), "\"kernel\": \"" + sampled);
        EXPECT_HAS(explain_sddmm(exact.get(), layout.get(), TARTAN_F32, 64),
                   sampled + "\", \"why\": \"the context does not allow it");
        EXPECT_HAS(explain_sddmm(insists.get(), layout.get(), TARTAN_F64, 64),
                   sampled + "\", \"why\": \"only for float32");
        std::mt19937_64 random(7);
        const Matrix a = random_matrix(layout, TARTAN_F32, 0, random);
        Dense b(TARTAN_F32, {128, 64});
        b.fill(random);
        const auto same = [&](const Context &in) {
            return product(exact.get(), a, b, 128, 64).memory() == product(in.get(), a, b, 128, 64).memory();
        };
        EXPECT_FALSE(same(insists));
        EXPECT_EQ(!tiles, same(asks));
    }
}

TEST_P(MathParts, GatesThatScaleBlocksKeepF32) {
    const Layout layout = random_layout({64, 64, 32, 32, 1}, 1, 1);
    std::mt19937_64 random(7);
    const Matrix a = random_matrix(layout, TARTAN_F32, 0, random);
    Dense gates(TARTAN_F32, {layout->blocks}), b(TARTAN_F32, {64, 40}), want(TARTAN_F32, {64, 40}),
        got = want;
    b.fill(random);
    for (int64_t i = 0; i < layout->blocks; i++) gates.set(i, i == 0 ? 0.5 : 1);
    const Context exact = open_context(1), insists = open_insisting("bf16x3", 1);
    ASSERT_OK(tartan_spmm(exact.get(), a.get(), &gates.array, &b.array, 1, 0, nullptr, &want.array));
    ASSERT_OK(tartan_spmm(insists.get(), a.get(), &gates.array, &b.array, 1, 0, nullptr, &got.array));
    EXPECT_EQ(want.memory(), got.memory());
}

// Gates of 0 skip their blocks, whatever these hold, also where sums are computed again.
TEST_P(MathParts, GatesOfZeroSkipBlocks) {
    for (const Mode &mode : kModes)
        for (const int64_t size : {128, 5 * 128}) { // rows of one list of blocks, and of more
            const int64_t block = size == 128 ? 32 : 128;
            const Layout layout = random_layout({size, size, block, block, 1}, 1, 1);
            std::mt19937_64 random(7);
            const Matrix a = random_matrix(layout, TARTAN_F32, 0, random);
            Dense gates(TARTAN_F32, {layout->blocks}), b(TARTAN_F32, {size, 40}),
                want(TARTAN_F32, {size, 40}), got = want;
            b.fill(random);
            for (int64_t id = 0; id < layout->blocks; id++) gates.set(id, id % 3 == 0 ? 0 : 1);
            tartan_i_store(tartan_i_block_at(a.get(), 0), TARTAN_F32, 5, NAN);
            b.set((size - 1) * 40 + 3, INFINITY);
            const Context exact = open_context(1), parts = open_insisting(mode.name, 1);
            ASSERT_OK(tartan_spmm(exact.get(), a.get(), &gates.array, &b.array, 1, 0, nullptr, &want.array));
            ASSERT_OK(tartan_spmm(parts.get(), a.get(), &gates.array, &b.array, 1, 0, nullptr, &got.array));
            for (int64_t i = 0; i < got.elements(); i++)
                if (std::isfinite(want.get(i)))
                    ASSERT_NEAR(want.get(i), got.get(i), 2 * (mode.lost + 0x1p-20) * (double)size) << i;
                else
                    ASSERT_EQ(want.get(i), got.get(i)) << i;
        }
}

// A last row without a partner meets zeros, not what follows it in memory.
TEST_P(MathParts, RowsThatAreMissingAreZeros) {
    for (const int32_t factor : {TARTAN_I_BF16X3, TARTAN_I_BF16X6})
        for (const int64_t rows : {1, 7, 31, 33, 65})
            for (const bool by_cols : {false, true}) {
                const tartan_i_kernels *k = tartan_i_cpu_table_of(factor);
                const int64_t cols = 70, width = 72, units = (rows + 1) / 2, parts = k->product.parts;
                std::vector<float> in((size_t)((rows + 1) * (cols + 1)), NAN);
                const int64_t in_row = by_cols ? 1 : cols, in_col = by_cols ? rows + 1 : 1;
                for (int64_t i = 0; i < rows; i++)
                    for (int64_t j = 0; j < cols; j++) in[(size_t)(i * in_row + j * in_col)] = (float)(i + j);
                std::vector<uint32_t> out((size_t)(units * parts * width), 77);
                tartan_i_split_right(k, (const char *)in.data(), in_row, in_col, rows, cols,
                                     (char *)out.data(), width);
                for (int64_t i = 0; i < 2 * units; i++)
                    for (int64_t j = 0; j < width; j++) {
                        float sum = 0;
                        for (int64_t p = 0; p < parts; p++) {
                            const uint32_t pair = out[(size_t)((i / 2 * parts + p) * width + j)];
                            ASSERT_TRUE(j < cols || pair == 77u);
                            sum += tartan_i_f32_of_bf16((uint16_t)(i % 2 ? pair >> 16 : pair));
                        }
                        ASSERT_TRUE(j >= cols || sum == (i < rows ? (float)(i + j) : 0)) << i << ", " << j;
                    }
            }
}

TEST_P(MathParts, AFailedAllocationLeavesTheOutputUntouched) {
    const Layout layout = random_layout({64, 64, 32, 32, 1}, 1, 1);
    std::mt19937_64 random(7);
    const Matrix a = random_matrix(layout, TARTAN_F32, 0, random);
    Dense b(TARTAN_F32, {64, 40});
    b.fill(random);
    Dense before(TARTAN_F32, {64, 40});
    before.fill(random);
    int64_t n = 0;
    for (;; n++) {
        const Context context_now = open_insisting("bf16x6", 2);
        Dense got = before;
        tartan_i_memory_fail_at(n);
        const tartan_status status =
            tartan_spmm(context_now.get(), a.get(), nullptr, &b.array, 1, 0, nullptr, &got.array);
        tartan_i_memory_fail_at(-1);
        if (status == TARTAN_OK) break;
        EXPECT_EQ(before.memory(), got.memory());
    }
    EXPECT_GT(n, 2);
}

} // namespace
