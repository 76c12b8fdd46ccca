// SPDX-License-Identifier: Apache-2.0
// The choice among kernels of spmm, their refusals and the rates that the model expects.
#include "tune_support.h"

using namespace tartan_test;

TEST(CudaTune, SpmmOnHopper) {
    for (const int32_t block : kBlocks) {
        EXPECT_EQ("spmm_mma", Spmm(TARTAN_F64, block).chosen(kHopper));
        EXPECT_EQ("spmm_simt", Spmm(TARTAN_F32, block).chosen(kHopper));
        Spmm tf32(TARTAN_F32, block);
        tf32.p.tf32 = true;
        if (block >= 16) { // blocks of 8 gain nothing by tf32
            EXPECT_EQ("spmm_mma", tf32.chosen(kAmpere));
        }
        for (int order_of_b = 0; order_of_b < 2; order_of_b++) {
            EXPECT_EQ("", tf32.refusal("spmm_wgmma", kHopper));
            std::swap(tf32.p.a_m, tf32.p.a_k);
            EXPECT_EQ("tf32 needs the summed index of a to be contiguous",
                      tf32.refusal("spmm_wgmma", kHopper));
            std::swap(tf32.p.a_m, tf32.p.a_k);
            std::swap(tf32.p.b.row_stride, tf32.p.b.col_stride);
        }
        tf32.p.b.col_stride = 2, tf32.p.b.row_stride = 8192; // nothing is contiguous
        EXPECT_EQ("spmm_simt", tf32.chosen(kHopper));
    }
    for (const int32_t block : {64, 128}) {
        EXPECT_EQ("spmm_wgmma", Spmm(TARTAN_BF16, block).chosen(kHopper));
        EXPECT_EQ("spmm_wgmma", Spmm(TARTAN_F16, block).chosen(kHopper));
        Spmm tf32(TARTAN_F32, block);
        tf32.p.tf32 = true;
        EXPECT_EQ("spmm_wgmma", tf32.chosen(kHopper)); // b in rows
        std::swap(tf32.p.b.row_stride, tf32.p.b.col_stride);
        EXPECT_EQ("spmm_wgmma", tf32.chosen(kHopper));
    }
}

// B that no tensor map can describe is copied, which takes a while.
TEST(CudaTune, SpmmCopiesBOfOtherStrides) {
    const Spmm aligned(TARTAN_BF16, 32);
    const auto mappable = [](const Spmm &s) {
        return tartan_cuda_is_mappable(&s.p.b, s.p.heads, s.p.batch.entries, s.p.batch.first[0]);
    };
    ASSERT_TRUE(mappable(aligned));
    const double rate = tartan_cuda_spmm_wgmma_rate(&aligned.p);
    const auto copied = [&](void (*change)(tartan_cuda_spmm &)) {
        Spmm s = aligned;
        change(s.p);
        EXPECT_FALSE(mappable(s));
        EXPECT_EQ("", s.refusal("spmm_wgmma", kHopper));
        EXPECT_GT(rate, tartan_cuda_spmm_wgmma_rate(&s.p));
        EXPECT_LT(rate / 3, tartan_cuda_spmm_wgmma_rate(&s.p));
    };
    copied([](tartan_cuda_spmm &p) { p.b.data = (void *)4104; });
    copied([](tartan_cuda_spmm &p) { p.b.row_stride = 4100; });
    copied([](tartan_cuda_spmm &p) { p.b.row_stride = -4096; });
    copied([](tartan_cuda_spmm &p) { p.b.row_stride = 0; });
    copied([](tartan_cuda_spmm &p) { p.heads = 2, p.b.head_stride = 12; });
    copied([](tartan_cuda_spmm &p) { p.batch = {1, 2, {2}, {0}, {4096 * 4096}}; });
}

TEST(CudaTune, SpmmOfAnOddNumberOfColumnsStaysFast) {
    Spmm odd(TARTAN_BF16, 32);
    odd.p.n = odd.p.b.row_stride = odd.p.c.row_stride = 2047;
    EXPECT_EQ("spmm_wgmma", odd.chosen(kHopper));
}

// A copy pays where the product takes a few times as long.
TEST(CudaTune, SpmmSimtCopiesBInRows) {
    const auto copies = [](int64_t n, void (*change)(tartan_cuda_spmm &)) {
        Spmm s(TARTAN_F32, 64, n);
        change(s.p);
        return tartan_cuda_spmm_simt_copies(&s.p);
    };
    EXPECT_TRUE(copies(511, [](tartan_cuda_spmm &) {}));
    EXPECT_TRUE(copies(4095, [](tartan_cuda_spmm &) {}));
    EXPECT_TRUE(copies(511, [](tartan_cuda_spmm &p) { p.batch = {1, 2, {2}, {1}, {1}}; }));
    EXPECT_FALSE(copies(4095, [](tartan_cuda_spmm &p) { p.blocks /= 20; }));
    EXPECT_FALSE(copies(511, [](tartan_cuda_spmm &p) { std::swap(p.b.row_stride, p.b.col_stride); }));
    EXPECT_FALSE(copies(511, [](tartan_cuda_spmm &p) { p.batch = {2, 4, {2, 2}, {1, 1}, {1, 1}}; }));
}

TEST(CudaTune, SpmmGatherCopiesWhatItWouldLoadSingly) {
    const auto copies = [](int32_t dtype, int64_t n, auto change) {
        Spmm x(dtype, 20, n);
        change(x.p);
        return tartan_cuda_spmm_gather_copies(&x.p);
    };
    const auto turn = [](tartan_cuda_spmm &p) { p.b.row_stride = 1, p.b.col_stride = 4096; };
    const auto shift = [](tartan_cuda_spmm &p) { p.b.data = (void *)4098; };
    EXPECT_FALSE(copies(TARTAN_BF16, 512, [](tartan_cuda_spmm &) {}));
    EXPECT_TRUE(copies(TARTAN_BF16, 512, turn));
    EXPECT_TRUE(copies(TARTAN_BF16, 512, shift));
    EXPECT_FALSE(copies(TARTAN_BF16, 1, [&](tartan_cuda_spmm &p) { // too little work
        shift(p);
        p.blocks = 10;
    }));
    EXPECT_FALSE(copies(TARTAN_F64, 512, turn)); // single elements come asynchronously
    EXPECT_FALSE(copies(TARTAN_BF16, 512, [](tartan_cuda_spmm &p) { p.b.row_stride = p.b.col_stride = 3; }));
    EXPECT_FALSE(copies(TARTAN_BF16, 512, [&](tartan_cuda_spmm &p) {
        shift(p);
        p.batch = {2, 4, {2, 2}, {1, 1}, {1, 1}};
    }));
}

TEST(CudaTune, SpmmElsewhere) {
    for (const int32_t block : kBlocks)
        for (const auto &chip : {kAmpere, kAda, kBlackwell}) {
            EXPECT_EQ("spmm_mma", Spmm(TARTAN_BF16, block).chosen(chip));
            EXPECT_EQ("spmm_mma", Spmm(TARTAN_F64, block).chosen(chip));
            EXPECT_EQ("spmm_simt", Spmm(TARTAN_F32, block).chosen(chip));
        }
    for (const int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16})
        for (const int32_t block : {1, 5, 20, 36, 100})
            EXPECT_EQ("spmm_gather", Spmm(dtype, block).chosen(kAmpere)) << block;
    EXPECT_EQ("spmm_plain", Spmm(TARTAN_F8E4M3, 20).chosen(kAmpere));
}

TEST(CudaTune, SpmmOfNothingIsPlain) {
    for (const int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16}) {
        Spmm empty(dtype, 64, 0);
        empty.p.blocks = 0;
        EXPECT_EQ("spmm_plain", empty.chosen(kHopper));
    }
}

TEST(CudaTune, SpmmRefusals) {
    const Spmm half(TARTAN_BF16, 64), f32(TARTAN_F32, 32), f64(TARTAN_F64, 16);
    const char *const wgmma = "spmm_wgmma", *const mma = "spmm_mma", *const simt = "spmm_simt";
    EXPECT_EQ("needs compute capability 9.0", half.refusal(wgmma, kAmpere));
    EXPECT_EQ("needs compute capability 9.0", half.refusal(wgmma, kBlackwell));
    EXPECT_REFUSES(half, wgmma, kHopper, "float16", p.dtype = TARTAN_F64);
    EXPECT_REFUSES(half, wgmma, kHopper, "multiples of 8", p.block_m = 36);
    EXPECT_REFUSES(half, wgmma, kHopper, "the layout is dynamic", (p.block_m = 32, p.dynamic = true));
    EXPECT_REFUSES(half, wgmma, kHopper, "2^31 rows of sub-blocks",
                   (p.block_k = 24, p.blocks = (int64_t)1 << 25));
    EXPECT_REFUSES(half, wgmma, kHopper, "columns of sub-blocks", (p.block_m = 24, p.k = 4100));
    EXPECT_REFUSES(half, wgmma, kHopper, "2e9 tiles", (p.block_m = 72, p.batch.entries = 500000));
    EXPECT_REFUSES(half, wgmma, kHopper, "no blocks", p.blocks = 0);
    EXPECT_REFUSES(half, wgmma, kHopper, "8 columns", p.n = 7);
    EXPECT_REFUSES(half, wgmma, kHopper, "2^31", p.n = (int64_t)1 << 31);
    EXPECT_REFUSES(half, wgmma, kHopper, "values of a", p.values = (void *)4098);
    EXPECT_REFUSES(half, wgmma, kHopper, "one batch", p.batch.ndim = 2);
    EXPECT_REFUSES(half, wgmma, kHopper, "2e9 tiles", p.batch.entries = 2000000);
    EXPECT_REFUSES(half, mma, kHopper, "2e9 tiles", p.batch.entries = 2000000);
    EXPECT_REFUSES(half, wgmma, kHopper, "whole block columns", p.k = 4095);
    EXPECT_REFUSES(half, wgmma, kHopper, "gated values", (p.gates.data = &p, p.c.dtype = TARTAN_F32));
    EXPECT_REFUSES(half, wgmma, kHopper, "contiguous", p.b.col_stride = 2);
    EXPECT_REFUSES(f64, mma, kAmpere, "multiples of 8", p.block_k = 15);
    EXPECT_REFUSES(f64, mma, kAmpere, "the layout is dynamic", (p.block_k = 24, p.dynamic = true));
    EXPECT_REFUSES(f64, mma, kAmpere, "2^31 rows of sub-blocks",
                   (p.block_k = 24, p.blocks = (int64_t)1 << 27));
    EXPECT_REFUSES(f64, mma, kAmpere, "no blocks", p.blocks = 0);
    EXPECT_REFUSES(f64, mma, kAmpere, "contiguous", p.b.col_stride = 2);
    EXPECT_REFUSES(f64, mma, kAmpere, "below 2^31 bytes", p.b.row_stride = (int64_t)1 << 29);
    EXPECT_REFUSES(f64, mma, kAmpere, "below 2^31 bytes", p.b.row_stride = -((int64_t)1 << 29));
    EXPECT_REFUSES(f64, mma, kAmpere, "fewer than 2^31", p.k = (int64_t)1 << 31);
    EXPECT_REFUSES(half, mma, kAmpere, "gated values", (p.gates.data = &p, p.c.dtype = TARTAN_F32));
    EXPECT_NE("", f32.refusal(mma, kHopper));
    Spmm odd(TARTAN_BF16, 20);
    const char *const gather = "spmm_gather";
    EXPECT_EQ("", odd.refusal(gather, kAmpere));
    tartan_cuda_chip turing = kAmpere;
    turing.major = 7;
    EXPECT_EQ("needs compute capability 8.0 or more", odd.refusal(gather, turing));
    EXPECT_REFUSES(odd, gather, kAmpere, "16 bits", p.dtype = TARTAN_F8E4M3);
    EXPECT_REFUSES(odd, gather, kAmpere, "no blocks", p.blocks = 0);
    EXPECT_REFUSES(odd, gather, kAmpere, "only where spmm_mma and spmm_simt cannot",
                   p.block_m = p.block_k = 24);
    EXPECT_REFUSES(odd, gather, kAmpere, "2^31 rows and columns", p.k = (int64_t)1 << 31);
    Spmm strided(TARTAN_F64, 24);
    strided.p.b.col_stride = 2;
    EXPECT_EQ("", strided.refusal(gather, kAmpere)); // nobody else but spmm_plain can
    EXPECT_REFUSES(odd, gather, kAmpere, "round gated values", (p.gates.data = &p, p.c.dtype = TARTAN_F32));
    EXPECT_REFUSES(f32, simt, kAmpere, "float32", p.dtype = TARTAN_F64);
    EXPECT_REFUSES(f32, simt, kAmpere, "multiples of 8", p.block_m = 4);
    EXPECT_REFUSES(f32, simt, kAmpere, "multiples of 8", p.block_k = 36);
    EXPECT_REFUSES(f32, simt, kAmpere, "no blocks", p.blocks = 0);
}

// A matrix of that density, in a context that allows a dense copy.
static Spmm dense(int32_t dtype, int32_t block, double density, int64_t n = 4096) {
    Spmm x(dtype, block, n);
    x.p.blocks = (int64_t)(density * (double)(x.p.grid_m * x.p.grid_k));
    x.p.allow_dense = true;
    return x;
}

TEST(CudaTune, SpmmOfDenseMatrices) {
    const char *const number = "spmm_dense";
    for (const int32_t block : kBlocks) {
        EXPECT_EQ("spmm_wgmma", dense(TARTAN_BF16, block, block == 8 ? 0.05 : 0.1).chosen(kHopper)) << block;
        for (const int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16}) {
            Spmm full = dense(dtype, block, 1);
            EXPECT_EQ("spmm_dense", full.chosen(kHopper)) << block;
            EXPECT_EQ("spmm_dense", full.chosen(kAmpere)) << block;
            full.p.allow_dense = false;
            EXPECT_NE("spmm_dense", full.chosen(kHopper));
            EXPECT_EQ("uses cuBLAS with a dense copy of a, which the context does not allow",
                      full.refusal(number, kHopper));
        }
    }
    // Blocks that have no fast kernel, the better part of them absent; few columns, which memory limits.
    EXPECT_EQ("spmm_dense", dense(TARTAN_BF16, 20, 0.1).chosen(kHopper));
    EXPECT_EQ("spmm_gather", dense(TARTAN_BF16, 20, 0.001).chosen(kHopper));
    EXPECT_EQ("spmm_narrow", dense(TARTAN_BF16, 128, 0.8, 16).chosen(kHopper));
    // The copy counts: 2 * 4096^3 operations at 770e12 a second, and 2 * 2 * 4096^2 bytes at 3e12.
    const Spmm full = dense(TARTAN_BF16, 64, 1);
    EXPECT_NEAR(2 * 4096.0 / (2 * 4096.0 / 770 + 4 / 3.0), full.steady_rate(number), 1e-9);
}

TEST(CudaTune, SpmmOfDenseMatricesRefusals) {
    const char *const number = "spmm_dense";
    const Spmm half = dense(TARTAN_BF16, 64, 1);
    EXPECT_EQ("", half.refusal(number, kHopper));
    tartan_cuda_chip alone = kHopper;
    alone.no_cublas = "cuBLAS was not found";
    EXPECT_EQ("cuBLAS was not found", half.refusal(number, alone));
    EXPECT_EQ("spmm_wgmma", half.chosen(alone));
    EXPECT_REFUSES(half, number, kHopper, "16 bits", p.dtype = TARTAN_F8E4M3);
    EXPECT_REFUSES(half, number, kHopper, "no blocks", p.blocks = 0);
    EXPECT_REFUSES(half, number, kHopper, "gated values", (p.gates.data = &p, p.c.dtype = TARTAN_F32));
    EXPECT_REFUSES(half, number, kHopper, "one batch", p.batch.ndim = 2);
    EXPECT_REFUSES(half, number, kHopper, "b needs", p.b.row_stride = 4095);
    EXPECT_REFUSES(half, number, kHopper, "c needs", p.c.col_stride = 2);
}

// Expected times beside those of an H100 80GB HBM3, 2026-11-22.
TEST(CudaTune, SpmmRatesAreNearMeasuredOnes) {
    const struct {
        int32_t dtype, block;
        int64_t size, n;
        const char *kernel;
        double us;
    } all[] = {
        {TARTAN_BF16, 32, 8192, 1, "spmm_narrow", 6.35},  {TARTAN_BF16, 32, 8192, 2, "spmm_narrow", 11.8},
        {TARTAN_BF16, 32, 8192, 8, "spmm_narrow", 8.48},  {TARTAN_BF16, 32, 8192, 15, "spmm_narrow", 12.2},
        {TARTAN_BF16, 32, 8192, 63, "spmm_narrow", 12.9}, {TARTAN_BF16, 32, 8192, 64, "spmm_narrow", 8.74},
        {TARTAN_BF16, 8, 4096, 64, "spmm_narrow", 9.02},  {TARTAN_BF16, 16, 4096, 64, "spmm_narrow", 5.04},
        {TARTAN_BF16, 24, 4104, 64, "spmm_narrow", 6.04}, {TARTAN_BF16, 32, 4096, 64, "spmm_narrow", 5.19},
        {TARTAN_BF16, 72, 4104, 64, "spmm_narrow", 7.34}, {TARTAN_F32, 16, 4096, 4096, "spmm_simt", 335},
        {TARTAN_F32, 24, 4104, 4096, "spmm_simt", 471},   {TARTAN_F32, 40, 4080, 4096, "spmm_simt", 451},
        {TARTAN_F32, 48, 4080, 4096, "spmm_simt", 335},   {TARTAN_F32, 64, 4096, 4096, "spmm_simt", 330},
        {TARTAN_F32, 72, 4104, 4096, "spmm_simt", 461},   {TARTAN_F64, 16, 4096, 4096, "spmm_mma", 447},
        {TARTAN_F64, 24, 4104, 4096, "spmm_mma", 467},    {TARTAN_F64, 32, 4096, 4096, "spmm_mma", 350},
        {TARTAN_F64, 40, 4080, 4096, "spmm_mma", 409},    {TARTAN_F64, 48, 4080, 4096, "spmm_mma", 372},
        {TARTAN_F64, 64, 4096, 4096, "spmm_mma", 308},    {TARTAN_F64, 72, 4104, 4096, "spmm_mma", 383},
        {TARTAN_F64, 128, 4096, 4096, "spmm_mma", 346}};
    for (const auto &one : all) {
        Spmm x(one.dtype, one.block, one.n);
        x.p.m = x.p.k = one.size, x.p.grid_m = x.p.grid_k = one.size / one.block;
        const Layout layout = random_layout({one.size, one.size, one.block, one.block, 1}, 0.1, 1);
        x.p.blocks = x.p.grid_m * x.p.grid_k / 10;
        ASSERT_OK(tartan_cuda_figures_of(&tartan_i_host, layout.get(), &x.p.figures));
        const double us = x.operations() / x.rate(one.kernel) / 1e6;
        EXPECT_NEAR(1, us / one.us, 0.12) << tartan_dtype_name(one.dtype) << " " << one.block << " " << one.n
                                          << ": " << us << " us, measured " << one.us;
        EXPECT_EQ(one.kernel, x.chosen(kHopper)) << one.block << " " << one.n;
    }
}

TEST(CudaTune, SpmmOfEightBits) {
    for (const int32_t dtype : {TARTAN_F8E4M3, TARTAN_F8E5M2}) {
        for (const int32_t block : kBlocks) {
            Spmm f8(dtype, block);
            f8.p.c.dtype = TARTAN_BF16;
            EXPECT_EQ("spmm_plain", f8.chosen(kHopper)); // b has its rows contiguous
            std::swap(f8.p.b.row_stride, f8.p.b.col_stride);
            EXPECT_EQ(block < 16 ? "spmm_plain" : "spmm_wgmma", f8.chosen(kHopper));
            EXPECT_EQ("spmm_plain", f8.chosen(kAmpere));
        }
        Spmm f8(dtype, 64);
        std::swap(f8.p.b.row_stride, f8.p.b.col_stride);
        const char *const wgmma = "spmm_wgmma";
        EXPECT_REFUSES(f8, wgmma, kHopper, "blocks of 16 or more", p.block_m = p.block_k = 8);
        EXPECT_REFUSES(f8, wgmma, kHopper, "blocks of 16 or more", p.block_m = 24);
        EXPECT_REFUSES(f8, wgmma, kHopper, "gated values", p.gates.data = (void *)4096);
        EXPECT_REFUSES(f8, wgmma, kHopper, "index of a", std::swap(p.a_m, p.a_k));
        EXPECT_REFUSES(f8, wgmma, kHopper, "index of b", std::swap(p.b.row_stride, p.b.col_stride));
        EXPECT_REFUSES(f8, wgmma, kHopper, "float16", p.dtype = TARTAN_F64);
        EXPECT_EQ("only for types of 16 bits or more", f8.refusal("spmm_mma", kHopper));
    }
}

TEST(CudaTune, SpmmTakesEitherOrderOfB) {
    Spmm half(TARTAN_F16, 128);
    std::swap(half.p.b.row_stride, half.p.b.col_stride);
    EXPECT_EQ("", half.refusal("spmm_wgmma", kHopper));
    half.p.b.data = nullptr; // as explain asks
    half.p.heads = 3;
    half.p.b.head_stride = 4096 * 4096;
    half.p.batch = {1, 2, {2}, {3 * 4096 * 4096}, {1}};
    EXPECT_EQ("", half.refusal("spmm_wgmma", kHopper));
}

// Where small blocks multiply from the right, b is transposed first if the sums are long enough.
TEST(CudaTune, SpmmTransposesNarrowB) {
    const auto right = [](int32_t dtype, int32_t block, int64_t n = 4096) {
        Spmm one(dtype, block, n);
        one.p.b.row_stride = 1, one.p.b.col_stride = one.p.k;
        return one;
    };
    const auto transposes = [](const Spmm &one) { return tartan_cuda_spmm_transposes(&one.p); };
    for (const int32_t dtype : {TARTAN_F16, TARTAN_BF16}) {
        EXPECT_TRUE(transposes(right(dtype, 8)));
        EXPECT_TRUE(transposes(right(dtype, 16)));
        for (const int32_t block : {32, 64, 128}) EXPECT_FALSE(transposes(right(dtype, block))) << block;
        for (const int32_t block : kBlocks) EXPECT_FALSE(transposes(Spmm(dtype, block))) << block;
    }
    for (const int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_F8E4M3})
        EXPECT_FALSE(transposes(right(dtype, 16))) << dtype;
    // What a stage loses grows with the sums, what a copy costs with b.
    EXPECT_TRUE(transposes(right(TARTAN_BF16, 8, 64)));
    EXPECT_TRUE(transposes(right(TARTAN_BF16, 16, 512)));
    Spmm few = right(TARTAN_BF16, 16, 512);
    few.p.blocks /= 16;
    EXPECT_FALSE(transposes(few));
    // Lists that several lines share are shorter; lists in the other direction do not matter.
    Spmm shared = right(TARTAN_BF16, 16, 512);
    shared.p.figures.share[1][2] = 4;
    EXPECT_TRUE(transposes(shared));
    shared.p.by_columns = true;
    EXPECT_FALSE(transposes(shared));
}

// The sizes with which tests/backend checks the results.
TEST(CudaTune, TestsOfTheBackendTransposeNarrowB) {
    const struct {
        int32_t block;
        int64_t k, n;
        double share; // two groups of lines, the second with few
    } all[] = {{8, 1024, 301, 3.7}, {16, 4096, 301, 2.1}};
    for (const auto &one : all) {
        Spmm problem(TARTAN_F16, one.block, one.n);
        auto &p = problem.p;
        p.m = 80, p.k = one.k, p.heads = 2;
        p.batch = {1, 3, {3}, {2 * one.k * one.n}, {2 * p.m * one.n}};
        p.grid_m = (p.m - 1) / one.block + 1, p.grid_k = one.k / one.block;
        p.blocks = (int64_t)(0.7 * (double)(p.heads * p.grid_m * p.grid_k));
        p.b.row_stride = 1, p.b.col_stride = one.k, p.b.head_stride = one.k * one.n;
        for (auto &direction : problem.p.figures.share)
            for (auto &share : direction) share = one.share;
        EXPECT_TRUE(tartan_cuda_spmm_transposes(&p)) << one.block;
        EXPECT_EQ("spmm_wgmma", problem.chosen(kHopper)) << one.block;
    }
}

// Tiles of 128 rows are for blocks of 128, and for blocks of 64 whose neighbours have the same columns.
TEST(CudaTune, TilesAreWideWhereThatIsFaster) {
    const Spmm large(TARTAN_BF16, 128);
    const auto is_wide = [](const Spmm &x) { return tartan_cuda_spmm_tiling(&x.p).rows == 128; };
    EXPECT_TRUE(is_wide(large));
    Spmm half(TARTAN_BF16, 64);
    EXPECT_FALSE(is_wide(half));
    half.p.figures.share[0][1] = 1.9;
    EXPECT_TRUE(is_wide(half));
    const double wide = half.rate("spmm_wgmma");
    half.p.figures.share[0][1] = 1;
    EXPECT_GT(wide, half.rate("spmm_wgmma"));
    half.p.by_columns = true; // other lists count then
    half.p.figures.share[0][1] = 2;
    EXPECT_FALSE(is_wide(half));
    Spmm small(TARTAN_BF16, 32);
    for (auto &share : small.p.figures.share[0]) share = 16;
    EXPECT_FALSE(is_wide(small));
}

TEST(CudaTune, RatesFollowTheModel) {
    // One line of 64 x 512: L2 feeds 8e12 * 64 * 512 / 576 operations a second; small n is bound by memory.
    const Spmm half(TARTAN_BF16, 64);
    EXPECT_NEAR(8.0 * 64 * 512 / 576, half.steady_rate("spmm_wgmma"), 1e-9);
    // Eight lines of 8 that share 1.4 blocks an entry, and all of them: products bind.
    Spmm small(TARTAN_BF16, 8);
    small.p.figures.share[0][3] = 1.4;
    EXPECT_NEAR(450 * 1.4 / 8, small.steady_rate("spmm_wgmma"), 1e-9);
    small.p.figures.share[0][3] = 8;
    EXPECT_NEAR(450, small.steady_rate("spmm_wgmma"), 1e-9);
    const Spmm thin(TARTAN_BF16, 64, 8);
    EXPECT_LT(thin.rate("spmm_wgmma"), 25);
    // Rates are positive and finite for whatever is run.
    for (const int64_t n : {0, 1, 100})
        for (int32_t i = 0; i < tartan_cuda_kernels_of(TARTAN_OP_SPMM)->count; i++) {
            const std::string kernel = tartan_cuda_kernels_of(TARTAN_OP_SPMM)->rows[i].name;
            const double rate = Spmm(TARTAN_F32, 16, n).rate(kernel);
            EXPECT_TRUE(rate >= 0 && rate < 1000) << kernel << " " << n << " " << rate;
        }
    Sddmm nothing(TARTAN_BF16, 16);
    nothing.p.blocks = nothing.p.pairs = 0;
    EXPECT_EQ("sddmm_plain", nothing.chosen(kHopper));
}

TEST(CudaTune, SimtTilesThatShareColumnsOfB) {
    const auto near = [](int64_t k, int64_t n, bool by_columns) {
        Spmm f32(TARTAN_F32, 32, n);
        f32.p.k = k;
        return tartan_cuda_spmm_near(&f32.p, 256, by_columns);
    };
    EXPECT_EQ(16, near(4096, 4096, false)); // 64 MB
    EXPECT_EQ(4, near(4096, 4096, true));   // 16 MB
    EXPECT_EQ(2, near(4096, 300, false));   // no more than there are
    EXPECT_EQ(1, near((int64_t)1 << 24, 4096, false));
    EXPECT_EQ(16, near(0, 4096, true));
}
