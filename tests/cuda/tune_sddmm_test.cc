// SPDX-License-Identifier: Apache-2.0
// The choice among kernels of sddmm, their refusals, and the forms of their tiles.
#include "tune_support.h"

#include <array>

using namespace tartan_test;

TEST(CudaTune, SddmmChoices) {
    for (const int32_t block : kBlocks) {
        EXPECT_EQ(block == 16 || block == 32 ? "sddmm_gather" : "sddmm_mma",
                  Sddmm(TARTAN_F64, block).chosen(kHopper));
        EXPECT_EQ("sddmm_gather", Sddmm(TARTAN_F32, block).chosen(kHopper));
        EXPECT_EQ("sddmm_mma", Sddmm(TARTAN_F16, block).chosen(kAmpere));
        Sddmm tf32(TARTAN_F32, block);
        tf32.p.tf32 = true;
        EXPECT_EQ("sddmm_mma", tf32.chosen(kAda));
    }
    EXPECT_EQ("sddmm_wgmma", Sddmm(TARTAN_BF16, 128).chosen(kHopper));
    for (const int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16})
        for (const int32_t block : {1, 5, 20, 36, 100})
            for (const auto &chip : {kAmpere, kHopper})
                EXPECT_EQ("sddmm_gather", Sddmm(dtype, block).chosen(chip)) << block;
}

TEST(CudaTune, SddmmRefusals) {
    const Sddmm half(TARTAN_F16, 32), f32(TARTAN_F32, 32), f64(TARTAN_F64, 8);
    const char *const wgmma = "sddmm_wgmma", *const mma = "sddmm_mma";
    EXPECT_EQ("needs compute capability 9.0", half.refusal(wgmma, kAda));
    EXPECT_REFUSES(half, wgmma, kHopper, "float16", p.dtype = TARTAN_F32);
    EXPECT_REFUSES(half, wgmma, kHopper, "multiples of 8", p.block_n = 20);
    EXPECT_REFUSES(half, wgmma, kHopper, "at most 256 columns", p.block_n = 264);
    EXPECT_REFUSES(half, wgmma, kHopper, "the layout is dynamic", (p.block_n = 24, p.dynamic = true));
    EXPECT_REFUSES(half, wgmma, kHopper, "2^31 rows of sub-blocks",
                   (p.block_n = 24, p.blocks = (int64_t)1 << 28));
    EXPECT_REFUSES(half, wgmma, kHopper, "no blocks", p.blocks = 0);
    EXPECT_REFUSES(half, wgmma, kHopper, "2^31", p.m = (int64_t)1 << 31);
    EXPECT_REFUSES(half, wgmma, kHopper, "8 to 2^31", p.pair[1].k = 4);
    EXPECT_REFUSES(half, wgmma, kHopper, "one batch", p.pair[1].batch.ndim = 2);
    EXPECT_REFUSES(half, wgmma, kHopper, "of x are contiguous", p.pair[1].x.col_stride = 2);
    EXPECT_REFUSES(half, wgmma, kHopper, "of y are contiguous",
                   p.pair[0].y.col_stride = p.pair[0].y.row_stride = 2);
    const double rate = tartan_cuda_sddmm_wgmma_rate(&half.p); // other strides cost a copy
    Sddmm odd = half;
    odd.p.pair[0].x.row_stride = 4100;
    EXPECT_EQ("", odd.refusal(wgmma, kHopper));
    EXPECT_GT(rate, tartan_cuda_sddmm_wgmma_rate(&odd.p));
    const double once = tartan_cuda_sddmm_wgmma_rate(&odd.p);
    odd.p.pair[0].y.data = (void *)4098;
    EXPECT_EQ("", odd.refusal(wgmma, kHopper));
    EXPECT_GT(once, tartan_cuda_sddmm_wgmma_rate(&odd.p));
    EXPECT_REFUSES(half, mma, kAmpere, "columns of x are contiguous", p.pair[1].x.col_stride = 3);
    EXPECT_REFUSES(half, mma, kAmpere, "columns of y are contiguous", p.pair[0].y.row_stride = 3);
    EXPECT_REFUSES(half, mma, kAmpere, "below 2^31 bytes", p.pair[1].x.row_stride = (int64_t)1 << 31);
    EXPECT_REFUSES(half, mma, kAmpere, "fewer than 2^31", p.pair[1].k = (int64_t)1 << 31);
    EXPECT_REFUSES(half, mma, kAmpere, "the same memory order",
                   std::swap(p.pair[1].x.row_stride, p.pair[1].x.col_stride));
    EXPECT_REFUSES(f64, mma, kAmpere, "multiples of 8", p.block_n = 9);
    EXPECT_REFUSES(f64, mma, kAmpere, "the layout is dynamic", (p.block_m = 24, p.dynamic = true));
    EXPECT_REFUSES(f64, mma, kAmpere, "no blocks", p.blocks = 0);
    EXPECT_NE("", f32.refusal(mma, kHopper));
    const Sddmm other(TARTAN_BF16, 20);
    const char *const gather = "sddmm_gather";
    tartan_cuda_chip turing = kAmpere;
    turing.major = 7;
    EXPECT_EQ("needs compute capability 8.0 or more", other.refusal(gather, turing));
    EXPECT_REFUSES(other, gather, kAmpere, "no blocks", p.blocks = 0);
    EXPECT_REFUSES(other, gather, kAmpere, "only in float64 where sddmm_mma can", p.block_m = p.block_n = 24);
    EXPECT_REFUSES(other, gather, kAmpere, "2^30 rows and columns", p.n = (int64_t)1 << 30);
    EXPECT_REFUSES(other, gather, kAmpere, "2^31 rows of tiles", p.heads = (int64_t)1 << 24);
}

TEST(CudaTune, BlocksOfDifferentSizesAreForGeneralKernels) {
    Spmm spmm(TARTAN_F16, 64);
    Sddmm sddmm(TARTAN_F16, 64);
    EXPECT_NE("spmm_gather", spmm.chosen(kHopper));
    EXPECT_NE("sddmm_gather", sddmm.chosen(kHopper));
    spmm.p.variable = sddmm.p.variable = true;
    EXPECT_EQ("spmm_gather", spmm.chosen(kHopper));
    EXPECT_EQ("sddmm_gather", sddmm.chosen(kHopper));
    const std::string multiples = "only for boundaries that are multiples of 8 where blocks differ in size";
    for (const char *kernel : {"spmm_simt", "spmm_swapped", "spmm_narrow", "spmm_dense"})
        EXPECT_EQ("only for blocks of one size", spmm.refusal(kernel, kHopper));
    EXPECT_EQ("only for blocks of one size", sddmm.refusal("sddmm_wgmma", kHopper));
    EXPECT_EQ(multiples, spmm.refusal("spmm_mma", kHopper));
    EXPECT_EQ(multiples, spmm.refusal("spmm_wgmma", kHopper));
    EXPECT_EQ(multiples, sddmm.refusal("sddmm_mma", kHopper));
}

// Boundaries that are multiples of 16, the largest block having 64 rows: squares of 16, a quarter of all.
TEST(CudaTune, BlocksOfDifferentSizesAreSquares) {
    Spmm spmm(TARTAN_F16, 64);
    Sddmm sddmm(TARTAN_F16, 64);
    spmm.p.variable = sddmm.p.variable = true;
    spmm.p.figures.edge = sddmm.p.figures.edge = 16;
    spmm.p.figures.filled = sddmm.p.figures.filled = 0.25;
    spmm.p.m = spmm.p.k = 1600;
    EXPECT_EQ("spmm_wgmma", spmm.chosen(kHopper));
    EXPECT_EQ("spmm_mma", spmm.chosen(kAmpere));
    EXPECT_EQ("sddmm_mma", sddmm.chosen(kHopper));
    EXPECT_EQ(16, tartan_cuda_spmm_edge(&spmm.p));
    EXPECT_EQ(16, tartan_cuda_spmm_wgmma_edge(&spmm.p));
    const tartan_cuda_spmm squares = tartan_cuda_spmm_in_sub_blocks(&spmm.p, 16);
    EXPECT_EQ(spmm.p.blocks * 4, squares.blocks);
    EXPECT_EQ(100, squares.grid_m);
    EXPECT_EQ(100, squares.grid_k);
    EXPECT_EQ(sddmm.p.blocks * 4, tartan_cuda_sddmm_in_sub_blocks(&sddmm.p, 16).blocks);
}

// Where rows of X and columns of Y are contiguous, blocks take the aligned pieces of 16 bytes that they may reach into.
TEST(CudaTune, SddmmPlacesOfBlocks) {
    const auto places = [](int32_t dtype, int32_t block, auto change) {
        Sddmm x(dtype, block);
        for (auto &pair : x.p.pair) {
            std::swap(pair.x.row_stride, pair.x.col_stride);
            std::swap(pair.y.row_stride, pair.y.col_stride);
        }
        change(x.p);
        return tartan_cuda_sddmm_places(&x.p);
    };
    const auto as_it_is = [](tartan_cuda_sddmm &) {};
    EXPECT_EQ(40, places(TARTAN_BF16, 36, as_it_is)); // at 0 or 4 of 8
    EXPECT_EQ(48, places(TARTAN_BF16, 37, as_it_is)); // at any
    EXPECT_EQ(40, places(TARTAN_BF16, 30, as_it_is)); // at 0, 2, 4 or 6
    EXPECT_EQ(0, places(TARTAN_BF16, 5, as_it_is));   // 16
    EXPECT_EQ(36, places(TARTAN_F32, 36, as_it_is));
    EXPECT_EQ(38, places(TARTAN_F64, 37, as_it_is));
    EXPECT_EQ(0, places(TARTAN_BF16, 36, [](tartan_cuda_sddmm &p) { p.variable = true; }));
    EXPECT_EQ(0, places(TARTAN_BF16, 36, [](tartan_cuda_sddmm &p) { p.pairs = 0; }));
    EXPECT_EQ(0, places(TARTAN_BF16, 36, [](tartan_cuda_sddmm &p) { p.pair[1].x.row_stride = 4096; }));
    const auto x_along = [](tartan_cuda_sddmm &p) {
        std::swap(p.pair[0].x.row_stride, p.pair[0].x.col_stride);
    };
    EXPECT_EQ(0, places(TARTAN_BF16, 36, x_along));
    EXPECT_EQ(36, places(TARTAN_F32, 36, x_along));
    EXPECT_EQ(0, places(TARTAN_F32, 36, [](tartan_cuda_sddmm &p) { p.pair[1].y.row_stride = 1; }));
}

TEST(CudaTune, SddmmGatherCopiesWhatItWouldLoadSingly) {
    const auto copies = [](int32_t dtype, int64_t k, auto change) {
        Sddmm x(dtype, 20);
        x.p.pairs = 1;
        x.p.pair[0].k = k;
        change(x.p.pair[0]);
        return tartan_cuda_sddmm_gather_copies(&x.p);
    };
    const auto turn_y = [](auto &pair) { std::swap(pair.y.row_stride, pair.y.col_stride); };
    const auto shift_y = [](auto &pair) { pair.y.data = (void *)4098; };
    EXPECT_FALSE(copies(TARTAN_BF16, 4096, [](auto &) {}));
    EXPECT_TRUE(copies(TARTAN_BF16, 4096, turn_y));
    EXPECT_FALSE(copies(TARTAN_BF16, 16, turn_y));  // too little work
    EXPECT_FALSE(copies(TARTAN_F32, 4096, turn_y)); // it is loaded as it lies
    EXPECT_TRUE(copies(TARTAN_BF16, 4096, shift_y));
    EXPECT_TRUE(copies(TARTAN_F32, 4096, shift_y));
    Sddmm nothing(TARTAN_BF16, 20);
    nothing.p.blocks = nothing.p.pairs = 0;
    EXPECT_FALSE(tartan_cuda_sddmm_gather_copies(&nothing.p));
}

TEST(CudaTune, SddmmTilesAreWideWhereThatIsFaster) {
    const auto is_wide = [](const Sddmm &x) { return tartan_cuda_sddmm_tiling(&x.p).rows == 128; };
    const Sddmm large(TARTAN_BF16, 128);
    EXPECT_TRUE(is_wide(large));
    for (const int32_t block : {8, 16, 32, 64}) {
        Sddmm half(TARTAN_BF16, block);
        EXPECT_FALSE(is_wide(half)) << block; // nobody shares an entry
        int32_t i = 0;
        while (block << i < 64) i++;
        half.p.figures.share[0][i + 1] = 1.4; // 48 < 36 * 1.4: an entry of 128 rows has so many blocks
        EXPECT_TRUE(is_wide(half)) << block;
        half.p.figures.share[0][i] = 1.1;
        EXPECT_FALSE(is_wide(half)) << block;
    }
}

// Blocks of other sizes are taken as slices, and tiles begin where block rows do.
TEST(CudaTune, SddmmTilesOfSlices) {
    const auto tiling = [](int32_t rows, int32_t cols) {
        Sddmm x(TARTAN_BF16, rows);
        x.p.block_n = cols;
        const tartan_cuda_tiling t = tartan_cuda_sddmm_tiling(&x.p);
        return std::array<int32_t, 3>{t.edge, t.rows, t.group};
    };
    using Tiling = std::array<int32_t, 3>;
    EXPECT_EQ((Tiling{8, 64, 6}), tiling(24, 24));
    EXPECT_EQ((Tiling{16, 64, 3}), tiling(48, 16));
    EXPECT_EQ((Tiling{8, 128, 9}), tiling(72, 72));
    EXPECT_EQ((Tiling{32, 128, 3}), tiling(96, 96));
    EXPECT_EQ((Tiling{16, 64, 4}), tiling(16, 128));
    EXPECT_EQ((Tiling{128, 128, 1}), tiling(128, 64));
    EXPECT_EQ((Tiling{64, 64, 1}), tiling(192, 192));
    EXPECT_EQ((Tiling{8, 64, 8}), tiling(136, 8));
    EXPECT_EQ((Tiling{0, 0, 0}), tiling(20, 24));
    EXPECT_EQ((Tiling{0, 0, 0}), tiling(24, 20));
    for (const int32_t block : {24, 40, 72, 96}) {
        EXPECT_EQ("sddmm_wgmma", Sddmm(TARTAN_BF16, block).chosen(kHopper)) << block;
        EXPECT_EQ("sddmm_gather", Sddmm(TARTAN_F64, block).chosen(kHopper)) << block;
    }
}

// Columns of Y that are contiguous are loaded in boxes of up to 64, unless these read much past the block.
TEST(CudaTune, SddmmColumnsOfEntries) {
    const auto columns = [](int32_t block, bool contiguous) {
        Sddmm x(TARTAN_BF16, 64);
        x.p.block_n = block;
        if (contiguous) std::swap(x.p.pair[0].y.row_stride, x.p.pair[0].y.col_stride);
        const tartan_cuda_columns c = tartan_cuda_sddmm_columns(&x.p);
        EXPECT_EQ(block, c.width);
        return std::array<int32_t, 2>{c.pitch, c.piece};
    };
    using Columns = std::array<int32_t, 2>;
    for (int32_t block = 8; block <= 256; block += 8) {
        EXPECT_EQ((Columns{block, 0}), columns(block, false));
        const Columns c = columns(block, true);
        EXPECT_TRUE(c[0] >= block && c[0] <= 256 && c[0] % c[1] == 0) << block;
        EXPECT_TRUE(c[0] == block || c[1] == 64) << block; // lines of 128 bytes
    }
    for (const int32_t block : {8, 16, 32, 64}) EXPECT_EQ((Columns{block, block}), columns(block, true));
    EXPECT_EQ((Columns{40, 8}), columns(40, true));
    EXPECT_EQ((Columns{64, 64}), columns(48, true));
    EXPECT_EQ((Columns{72, 8}), columns(72, true));
    EXPECT_EQ((Columns{128, 64}), columns(88, true));
    EXPECT_EQ((Columns{192, 64}), columns(136, true));
}

TEST(CudaTune, SddmmFormsOfTiles) {
    const auto form_of = [](int32_t rows, int32_t pitch) {
        const tartan_cuda_columns columns = {pitch, pitch, 0};
        return tartan_cuda_sddmm_form(rows, &columns);
    };
    EXPECT_EQ(6, form_of(64, 72).entries); // 3 in the columns of each warpgroup
    EXPECT_EQ(3, form_of(128, 72).entries);
    EXPECT_EQ(36, form_of(128, 72).each);
    for (const int32_t block : kBlocks)
        for (const int32_t rows : {64, 128}) {
            const tartan_cuda_tile_form form = form_of(rows, block);
            EXPECT_EQ(64 * 512, rows * form.entries * block);
            EXPECT_EQ(rows / 2, form.base);
            EXPECT_EQ(block == 8 ? 6 : block / 2, form.each);
            EXPECT_EQ(152, form.least);
            EXPECT_EQ(block > 16, form.by_column);
        }
}

TEST(CudaTune, SddmmHandsOutWholeTilesWhereTheLastRoundIsFull) {
    const auto whole = [](int64_t tiles, int32_t block, int64_t steps) {
        return tartan_cuda_sddmm_whole(tiles, 152 * tiles, block, steps, 132);
    };
    EXPECT_TRUE(whole(132, 32, 64));
    EXPECT_TRUE(whole(10 * 132, 32, 64));
    EXPECT_TRUE(whole(123, 32, 64)); // within 8%
    EXPECT_FALSE(whole(122, 32, 64));
    EXPECT_FALSE(whole(133, 32, 64));
    EXPECT_FALSE(whole(132, 16, 64)); // the number of boxes limits small blocks
    EXPECT_TRUE(whole(133, 16, 15));  // short sums are not cut
}

TEST(CudaTune, SddmmTransposesNarrowY) {
    const auto transposes = [](int32_t block, int64_t tiles) {
        Sddmm half(TARTAN_BF16, block);
        EXPECT_FALSE(tartan_cuda_sddmm_transposes(&half.p, 10000, 132)); // k is contiguous already
        for (auto &pair : half.p.pair) std::swap(pair.y.row_stride, pair.y.col_stride);
        return tartan_cuda_sddmm_transposes(&half.p, tiles, 132);
    };
    // Two pairs of 4096 x 4096: 44 us for the copies, 77 us for the steps of 132 tiles.
    EXPECT_TRUE(transposes(8, 132));
    EXPECT_TRUE(transposes(16, 76));
    EXPECT_FALSE(transposes(16, 72));
    EXPECT_FALSE(transposes(32, 1320));
    EXPECT_TRUE(transposes(72, 132));
    EXPECT_FALSE(transposes(88, 1320)); // boxes of 64 columns do
}
