// SPDX-License-Identifier: Apache-2.0
// Products of blocks whose edges are multiples of 8, but no powers of two: taken as sub-blocks, or with swapped factors.
#include "tune_support.h"

#include <array>

using namespace tartan_test;

// Blocks whose edges are multiples of 8 are taken as sub-blocks.
TEST(CudaTune, SpmmOfSubBlocks) {
    for (const int32_t block : {24, 40, 48, 72, 96, 192, 256}) {
        for (const int32_t dtype : {TARTAN_F16, TARTAN_BF16}) {
            const bool swapped = block > 64 && block < 128;
            EXPECT_EQ(swapped ? "spmm_swapped" : "spmm_wgmma", Spmm(dtype, block).chosen(kHopper)) << block;
            EXPECT_EQ("spmm_mma", Spmm(dtype, block).chosen(kAmpere)) << block;
        }
        EXPECT_EQ("spmm_mma", Spmm(TARTAN_F64, block).chosen(kHopper)) << block;
        EXPECT_EQ("spmm_simt", Spmm(TARTAN_F32, block).chosen(kHopper)) << block; // tf32 is not allowed
        EXPECT_EQ("spmm_simt", Spmm(TARTAN_F32, block).chosen(kAmpere)) << block;
        Spmm tf32(TARTAN_F32, block);
        tf32.p.tf32 = true;
        EXPECT_EQ(block > 64 && block < 128 ? "spmm_swapped" : "spmm_wgmma", tf32.chosen(kHopper)) << block;
    }
    for (const int32_t block_k : {8, 24, 64, 128}) {
        Spmm oblong(TARTAN_BF16, 16), single(TARTAN_F32, 16);
        oblong.p.block_k = single.p.block_k = block_k;
        EXPECT_EQ("spmm_wgmma", oblong.chosen(kHopper)) << block_k;
        EXPECT_EQ("spmm_simt", single.chosen(kHopper)) << block_k;
    }
    // The sub-blocks decide the rate: blocks of 256 are as good as blocks of 64, and blocks of 24 as blocks of 8.
    EXPECT_NEAR(Spmm(TARTAN_BF16, 64).steady_rate("spmm_mma"), Spmm(TARTAN_BF16, 256).steady_rate("spmm_mma"),
                1e-9);
    EXPECT_NEAR(36, Spmm(TARTAN_BF16, 24).steady_rate("spmm_mma"), 1e-9);
    EXPECT_NEAR(31, Spmm(TARTAN_F32, 24).steady_rate("spmm_simt"), 1e-9);
    // But fewer zeros are multiplied: of 64 rows 48 are two block rows of 24, and 64 are 8 of 8.
    EXPECT_NEAR(450 * 0.75 / 2, Spmm(TARTAN_BF16, 24).steady_rate("spmm_wgmma"), 1e-9);
    EXPECT_NEAR(450 / 8.0, Spmm(TARTAN_BF16, 8).steady_rate("spmm_wgmma"), 1e-9);
}

// A is gathered where blocks are taken as sub-blocks, so these are at most 64 bytes wide.
TEST(CudaTune, SubBlocksOfWgmma) {
    const auto edge = [](int32_t dtype, int32_t rows, int32_t cols) {
        Spmm x(dtype, rows);
        x.p.block_k = cols;
        return tartan_cuda_spmm_wgmma_edge(&x.p);
    };
    for (const int32_t dtype : {TARTAN_BF16, TARTAN_F32, TARTAN_F8E4M3})
        for (const int32_t block : kBlocks) EXPECT_EQ(block, edge(dtype, block, block));
    EXPECT_EQ(8, edge(TARTAN_F16, 24, 24));
    EXPECT_EQ(16, edge(TARTAN_F16, 48, 80));
    EXPECT_EQ(32, edge(TARTAN_F16, 96, 96));
    EXPECT_EQ(32, edge(TARTAN_F16, 64, 128));
    EXPECT_EQ(32, edge(TARTAN_F16, 256, 256));
    EXPECT_EQ(16, edge(TARTAN_F32, 96, 96));
    EXPECT_EQ(64, edge(TARTAN_F8E5M2, 192, 192));
    EXPECT_EQ(0, edge(TARTAN_F16, 20, 24));
}

// Tiles of sub-blocks begin where block rows do, unless neighbouring block rows have the same columns.
TEST(CudaTune, TilesOfSubBlocks) {
    const auto form = [](int32_t rows, int32_t cols, bool same) {
        Spmm x(TARTAN_BF16, rows);
        x.p.block_k = cols;
        for (auto &direction : x.p.figures.share)
            for (int i = 0; i < TARTAN_CUDA_SHARES; i++) direction[i] = same ? 1 << i : 1;
        const tartan_cuda_tiling f = tartan_cuda_spmm_tiling(&x.p);
        return std::array<int32_t, 3>{f.edge, f.rows, f.group};
    };
    using Form = std::array<int32_t, 3>;
    EXPECT_EQ((Form{8, 64, 6}), form(24, 24, false));
    EXPECT_EQ((Form{8, 64, 5}), form(40, 40, false));
    EXPECT_EQ((Form{16, 64, 3}), form(48, 48, false));
    EXPECT_EQ((Form{8, 64, 8}), form(72, 72, false));
    EXPECT_EQ((Form{16, 64, 4}), form(80, 48, false));
    EXPECT_EQ((Form{32, 64, 2}), form(96, 96, false));
    EXPECT_EQ((Form{16, 128, 7}), form(112, 112, false));
    EXPECT_EQ((Form{8, 64, 8}), form(120, 120, false));
    EXPECT_EQ((Form{32, 64, 2}), form(192, 192, false));
    EXPECT_EQ((Form{8, 64, 8}), form(40, 40, true));
    EXPECT_EQ((Form{8, 64, 8}), form(72, 72, true));
    EXPECT_EQ((Form{64, 64, 1}), form(64, 64, false));
    EXPECT_EQ((Form{128, 128, 1}), form(128, 128, false));
}

// Blocks of 72 to 120 rows are multiplied whole, whatever their width, whether or not the last of them is.
TEST(CudaTune, SpmmOfBlocksWithoutSubBlocks) {
    for (int32_t rows = 72; rows < 128; rows += 8)
        for (const int32_t cols : {24, 64, 72, 120}) {
            Spmm x(TARTAN_BF16, rows);
            x.p.block_k = cols;
            EXPECT_EQ("spmm_swapped", x.chosen(kHopper)) << rows << " " << cols;
            x.p.k -= 3;
            EXPECT_EQ("spmm_swapped", x.chosen(kHopper)) << rows << " " << cols;
            x.p.dynamic = true;
            EXPECT_EQ("spmm_swapped", x.chosen(kHopper)) << rows << " " << cols;
            EXPECT_EQ("spmm_mma", Spmm(TARTAN_BF16, rows).chosen(kAmpere));
            Spmm tf32(TARTAN_F32, rows);
            tf32.p.block_k = cols;
            tf32.p.tf32 = true;
            EXPECT_EQ("spmm_swapped", tf32.chosen(kHopper)) << rows << " " << cols;
            EXPECT_EQ(rows, tartan_cuda_spmm_swapped_rows(&tf32.p));
        }
    for (const int32_t block : kBlocks)
        EXPECT_NE("spmm_swapped", Spmm(TARTAN_F16, block).chosen(kHopper)) << block;
    const auto rows = [](int32_t block) {
        const Spmm x(TARTAN_BF16, block);
        return tartan_cuda_spmm_swapped_rows(&x.p);
    };
    EXPECT_EQ(80, rows(72));
    EXPECT_EQ(80, rows(80));
    EXPECT_EQ(96, rows(88));
    EXPECT_EQ(112, rows(104));
    EXPECT_EQ(128, rows(120));
}

TEST(CudaTune, SpmmSwappedRefusals) {
    const Spmm half(TARTAN_BF16, 72);
    const char *const name = "spmm_swapped";
    EXPECT_EQ("", half.refusal(name, kHopper));
    EXPECT_EQ("needs compute capability 9.0", half.refusal(name, kAmpere));
    EXPECT_EQ("needs compute capability 9.0", half.refusal(name, kBlackwell));
    EXPECT_REFUSES(half, name, kHopper, "bfloat16 and tf32", p.dtype = TARTAN_F32);
    EXPECT_REFUSES(half, name, kHopper, "multiples of 8", p.block_m = 76);
    EXPECT_REFUSES(half, name, kHopper, "multiples of 8", p.block_k = 20);
    EXPECT_REFUSES(half, name, kHopper, "72 to 128 rows", p.block_m = 136);
    EXPECT_REFUSES(half, name, kHopper, "72 to 128 rows", p.block_m = 64);
    EXPECT_REFUSES(half, name, kHopper, "no blocks", p.blocks = 0);
    EXPECT_REFUSES(half, name, kHopper, "8 columns", p.n = 7);
    EXPECT_REFUSES(half, name, kHopper, "2^31", p.n = (int64_t)1 << 31);
    EXPECT_REFUSES(half, name, kHopper, "values of a", p.values = (void *)4098);
    EXPECT_REFUSES(half, name, kHopper, "one batch", p.batch.ndim = 2);
    EXPECT_REFUSES(half, name, kHopper, "2e9 tiles", p.batch.entries = 3000000);
    EXPECT_REFUSES(half, name, kHopper, "gated values", (p.gates.data = &p, p.c.dtype = TARTAN_F32));
    EXPECT_REFUSES(half, name, kHopper, "contiguous", p.b.col_stride = 2);
    Spmm tf32(TARTAN_F32, 72);
    tf32.p.tf32 = true;
    EXPECT_REFUSES(tf32, name, kHopper, "summed index of a", std::swap(p.a_m, p.a_k));
    EXPECT_REFUSES(tf32, name, kHopper, "columns of b", std::swap(p.b.row_stride, p.b.col_stride));
    EXPECT_REFUSES(tf32, name, kHopper, "one by one", p.c.row_stride = 4095);
    EXPECT_REFUSES(tf32, name, kHopper, "one by one", p.c.data = (void *)4100);
}
