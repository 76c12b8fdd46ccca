// SPDX-License-Identifier: Apache-2.0
// Products large enough for the fast kernels of a device: square blocks of 8 to 128, aligned and ragged, all dtypes,
// sides, transposes, memory orders, gates, batches.
#include "large.h"

namespace {

using namespace tartan_test;

INSTANTIATE_TEST_SUITE_P(Each, Large, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

const int64_t kBlocks[] = {8, 16, 32, 64, 128};

TEST_P(Large, Spmm) {
    for (int64_t block : kBlocks)
        for (int32_t dtype : kDtypes)
            for (uint64_t seed = 0; seed < seeds() && !HasFailure(); seed++)
                dtype == TARTAN_F64 ? spmm<long double>(block, dtype, seed)
                                    : spmm<double>(block, dtype, seed);
}

// Blocks whose edges are multiples of 8, which devices take as sub-blocks.
const int64_t kOtherBlocks[] = {24, 40, 48, 56, 72, 80, 88, 96, 104, 112, 120, 136, 192};
struct Oblong {
    int64_t rows, cols;
};
const Oblong kOblongs[] = {{24, 8},  {16, 32},  {8, 40},   {64, 128}, {128, 64},
                           {80, 48}, {112, 72}, {72, 200}, {40, 104}, {120, 16}};

TEST_P(Large, SpmmOfSubBlocks) {
    look_at_some_rows();
    for (int64_t block : kOtherBlocks)
        for (int32_t dtype : kDtypes)
            for (uint64_t seed = 0; seed < (on_device() ? seeds() : block == 24) && !HasFailure(); seed++)
                dtype == TARTAN_F64 ? spmm<long double>(block, dtype, seed)
                                    : spmm<double>(block, dtype, seed);
}

TEST_P(Large, SddmmOfSubBlocks) {
    look_at_some_rows();
    for (int64_t block : kOtherBlocks)
        for (int32_t dtype : kDtypes)
            for (uint64_t seed = 0; seed < (on_device() ? seeds() : block == 24) && !HasFailure(); seed++)
                dtype == TARTAN_F64 ? sddmm<long double>(block, dtype, seed)
                                    : sddmm<double>(block, dtype, seed);
}

TEST_P(Large, Sddmm) {
    for (int64_t block : kBlocks)
        for (int32_t dtype : kDtypes)
            for (uint64_t seed = 0; seed < seeds() && !HasFailure(); seed++)
                dtype == TARTAN_F64 ? sddmm<long double>(block, dtype, seed)
                                    : sddmm<double>(block, dtype, seed);
}

TEST_P(Large, SpmmOfOblongBlocks) {
    look_at_some_rows();
    for (const Oblong &shape : kOblongs)
        for (int32_t dtype : kDtypes)
            for (uint64_t seed = 0; seed < (on_device() ? seeds() : shape.rows == 24) && !HasFailure();
                 seed++)
                dtype == TARTAN_F64 ? spmm<long double>(shape.rows, dtype, seed, 0, shape.cols)
                                    : spmm<double>(shape.rows, dtype, seed, 0, shape.cols);
}

TEST_P(Large, SddmmOfOblongBlocks) {
    look_at_some_rows();
    for (const Oblong &shape : kOblongs)
        for (int32_t dtype : kDtypes)
            for (uint64_t seed = 0; seed < (on_device() ? seeds() : shape.rows == 24) && !HasFailure();
                 seed++)
                dtype == TARTAN_F64 ? sddmm<long double>(shape.rows, dtype, seed, 0, shape.cols)
                                    : sddmm<double>(shape.rows, dtype, seed, 0, shape.cols);
}

// Few columns of any number, of B in rows and in columns, with gaps and without: a device reads 16 bytes at a time, where
// it must from a copy of B. Sums are long enough for a copy.
TEST_P(Large, SpmmOfAnyFewColumns) {
    const bool here = on_device();
    look_at_some_rows();
    int number = 0;
    for (const int64_t n : {1, 2, 3, 7, 8, 31, 67, 130})
        for (const int64_t block : {8, 16, 24, 32, 40, 72, 128})
            for (const Style style : {kRows, kColumns, kGaps}) {
                if (!here && ++number % 29 != 0) continue;
                std::mt19937_64 random((uint64_t)(n * 1000 + block + style));
                Setting s = {};
                s.block = block, s.dtype = random() % 2 ? TARTAN_F16 : TARTAN_BF16, s.out_dtype = s.dtype;
                s.block_order = (int32_t)(random() % 2), s.n = n, s.density = 0.7;
                const int64_t ragged = random() % 3 == 0 ? 8 : 0;
                s.block_cols = block == 40 ? 16 : block; // a few are oblong
                s.rows = (384 / block + 1) * block - ragged, s.cols = (384 / block + 1) * block - ragged;
                s.heads = pick<int64_t>(random, {1, 1, 2});
                s.batch = pick<int64_t>(random, {0, 0, 3});
                s.alpha = pick(random, {1.0, -0.5}), s.beta = pick(random, {0.0, 0.0, 0.25});
                s.gated = random() % 4 == 0, s.b_style = style, s.c_style = pick(random, {kRows, kColumns});
                forms<double>(s, here && random() % 2 ? std::vector<int>{2, 3} : std::vector<int>{0, 1},
                              random);
                if (HasFailure()) return;
            }
}

// Operands whose lines begin at any element, with any number of columns, beside NaN that no result may show.
TEST_P(Large, SpmmOfOddLines) {
    look_at_some_rows();
    for (const bool tf32 : {false, true}) {
        if (tf32) context = open("math=tf32");
        for (const int64_t block : {8, 16, 24, 32, 40, 64, 72, 112, 128})
            for (const int32_t dtype : kDtypes)
                for (uint64_t seed = 0; seed < (on_device() ? seeds() : block == 24) && !HasFailure();
                     seed++) {
                    if (tf32 && dtype != TARTAN_F32) continue;
                    std::mt19937_64 random(seed * 1000 + (uint64_t)block * 4 + (uint64_t)dtype + 99);
                    Setting s = setting_of(block, dtype, random);
                    s.n = pick<int64_t>(random, {5, 61, 200, 250, 256, 261, 509, 511, 515, 600});
                    s.beta = pick(random, {0.0, 0.0, 0.0, 0.25}), s.batch = pick<int64_t>(random, {0, 0, 2});
                    s.b_style = pick(random, {kRows, kOddLines}),
                    s.c_style = pick(random, {kRows, kOddLines});
                    const std::vector<int> list = {seed % 2 == 0 ? 0 : 2, seed % 4 == 0 ? 1 : 3};
                    SCOPED_TRACE(::testing::Message() << "seed " << seed);
                    dtype == TARTAN_F64 ? forms<long double>(s, list, random)
                                        : forms<double>(s, list, random, tf32 ? kTf32 : 0);
                }
    }
}

// Of the last block row less than half is there, and in tiles of a device less than half of the columns.
TEST_P(Large, SpmmOfRaggedBatches) {
    for (int64_t block : {32, 64, 128})
        for (int32_t dtype : {TARTAN_F16, TARTAN_BF16}) {
            std::mt19937_64 random((uint64_t)(block + dtype));
            Setting s = {};
            s.block = block, s.dtype = s.out_dtype = dtype, s.n = 40, s.heads = 2, s.batch = 3;
            s.density = 0.8, s.alpha = 1, s.gated = true;
            for (const int form : {0, 1}) { // ragged on the side of the output
                s.rows = form == 0 ? 2 * block + 5 : 2 * block,
                s.cols = form == 0 ? 2 * block : 2 * block + 5;
                forms<double>(s, {form}, random);
            }
        }
}

// More tiles than a device works on at a time, of a few blocks each or none, so that the room for results and for what is
// asked ahead is used again and again.
TEST_P(Large, SpmmOfManyShortRows) {
    const bool here = on_device();
    for (int64_t block : {32, 64, 128})
        for (bool by_cols : {false, true}) {
            std::mt19937_64 random((uint64_t)block + by_cols);
            Setting s = {};
            s.block = block, s.dtype = s.out_dtype = by_cols ? TARTAN_F16 : TARTAN_BF16;
            s.rows = here ? 4096 : 8 * block, s.cols = 2 * block, s.n = here ? 520 : 72;
            s.heads = here ? 4 : 2, s.density = 0.35, s.alpha = -0.5;
            s.c_style = by_cols ? kColumns : kRows;
            forms<double>(s, {0, 3}, random);
        }
}

// So few tiles of such long sums that several CTAs share each.
TEST_P(Large, SddmmOfLongSums) {
    for (int64_t block : kBlocks)
        for (int32_t dtype : {TARTAN_F16, TARTAN_BF16})
            for (uint64_t seed = 0; seed < seeds() && !HasFailure(); seed++) {
                std::mt19937_64 random(seed * 100 + (uint64_t)(block + dtype));
                Setting s = setting_of(block, dtype, random);
                s.rows = std::min<int64_t>(s.rows, 384), s.cols = std::min<int64_t>(s.cols, 384);
                s.n = pick<int64_t>(random, {1024, 1096, 2048, 2312}), s.heads = 1, s.batch = 0;
                if (dummy()) s.rows = s.cols = 2 * block < 96 ? 2 * block : 96;
                s.density = pick(random, {0.1, 0.4, 1.0});
                SCOPED_TRACE(::testing::Message() << "seed " << seed);
                sddmm<double>(s, random, 0);
            }
}

// Sums so long that a device copies B before it multiplies from the right by blocks of 8 and 16.
int64_t long_sum(int64_t block) {
    return block == 8 ? 1024 : 4096;
}

TEST_P(Large, SpmmOfLongSumsFromTheRight) {
    for (int64_t block : {8, 16, 24, 32, 48})
        for (int32_t dtype : {TARTAN_F16, TARTAN_BF16})
            for (uint64_t seed = 0; seed < (on_host() || dummy() ? 1 : 6) && !HasFailure(); seed++) {
                std::mt19937_64 random(seed * 1000 + (uint64_t)block * 4 + (uint64_t)dtype + 55);
                Setting s = {};
                s.block = block, s.dtype = dtype, s.block_order = (int32_t)(seed / 2 % 2);
                s.out_dtype = seed == 3 ? (int32_t)TARTAN_F32 : dtype;
                // fewer columns are for another kernel
                s.n = pick<int64_t>(random, {8, 16, 27, 61}) + 256, s.density = 0.7;
                s.heads = seed % 3 == 1 ? 2 : 1, s.batch = seed % 2 == 1 ? 3 : 0;
                s.gated = seed % 3 == 2;
                s.alpha = seed % 2 == 1 ? -0.5 : 1, s.beta = seed % 4 == 0 ? 0.25 : 0;
                s.b_style = kRows, s.c_style = seed == 4 ? kColumns : kRows;
                for (const int form : {1, 3}) { // the sum runs over A's rows, then over its columns
                    int64_t &sum = form == 1 ? s.rows : s.cols, &out = form == 1 ? s.cols : s.rows;
                    sum = long_sum(block), out = 96 - (int64_t)below(random, (size_t)block);
                    forms<double>(s, {form}, random);
                }
            }
}

// What is not finite in B stays with its blocks there too.
TEST_P(Large, SpecialValuesFromTheRight) {
    for (int64_t block : {8, 16, 24, 32, 48})
        for (int32_t dtype : {TARTAN_F16, TARTAN_BF16}) {
            SCOPED_TRACE(::testing::Message() << "block " << block << ", " << tartan_dtype_name(dtype));
            const int64_t sum = long_sum(block), out = 80, n = 326;
            std::mt19937_64 random((uint64_t)block);
            const Layout layout = random_layout({sum, out, block, block, 1}, 0.5, 9);
            const Matrix a = placed(context.get(), random_matrix(layout, dtype, 0, random));
            Dense b(dtype, {n, sum}), c(dtype, {n, out});
            b.fill(random);
            b.set(3 * sum + 2 * block + 1, NAN); // of block row 2
            b.set(69 * sum + sum - 1, INFINITY); // of the last
            for (int64_t i = 0; i < c.elements(); i++) c.set(i, NAN);
            const Placed b_there(context.get(), b);
            Placed c_there(context.get(), c);
            ASSERT_OK(tartan_spmm(context.get(), a.get(), nullptr, &b_there.array, 1, 0, "side=right",
                                  &c_there.array));
            c_there.fetch(c);
            const auto is = [&](int64_t row, int64_t j) {
                return tartan_i_layout_find(layout.get(), 0, row, j / block) >= 0;
            };
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < out; j++)
                    ASSERT_EQ((i == 3 && is(2, j)) || (i == 69 && is((sum - 1) / block, j)),
                              !std::isfinite(c.get(i * out + j)))
                        << i << ", " << j;
        }
}

// The mode in which a device may round f32 factors to tf32.
TEST_P(Large, Tf32) {
    context = open("math=tf32");
    look_at_some_rows();
    for (int64_t block : {8, 16, 24, 32, 48, 64, 72, 80, 88, 96, 104, 112, 120, 128})
        for (uint64_t seed = 0; seed < (on_host() || dummy() ? 1 : 4) && !HasFailure(); seed++) {
            spmm<double>(block, TARTAN_F32, 100 + seed, kTf32);
            sddmm<double>(block, TARTAN_F32, 100 + seed, kTf32);
        }
    for (const Oblong &shape : kOblongs)
        for (uint64_t seed = 0; seed < (on_device() ? 4 : 0) && !HasFailure(); seed++)
            spmm<double>(shape.rows, TARTAN_F32, 300 + seed, kTf32, shape.cols);
}

// A context in which a device may multiply a dense copy, which it does with matrices that have most of their blocks,
// and with blocks that it has no other fast kernel for.
TEST_P(Large, AllowDense) {
    context = open("allow_dense=1");
    for (int64_t block : {20, 24, 64, 128})
        for (int32_t dtype : kDtypes)
            for (uint64_t seed = 0; seed < (on_host() || dummy() ? 1 : 8) && !HasFailure(); seed++)
                dtype == TARTAN_F64 ? spmm<long double>(block, dtype, 200 + seed)
                                    : spmm<double>(block, dtype, 200 + seed);
    const Layout full = random_layout({2048, 2048, 24, 24, 1}, 1, 0);
    const std::string said = explain_spmm(context.get(), full.get(), TARTAN_F16, 2048);
    if (said.find("\"backend\": \"cuda\"") == std::string::npos) return; // its kernels have other names
    EXPECT_TRUE(said.find("\"kernel\": \"spmm_dense\"") != std::string::npos ||
                said.find("cuBLAS was not found") != std::string::npos)
        << said;
}

} // namespace
