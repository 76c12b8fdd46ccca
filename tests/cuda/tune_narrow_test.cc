// SPDX-License-Identifier: Apache-2.0
// The kernel for few columns: its refusals, its rate, and how it reads B.
#include "tune_support.h"

using namespace tartan_test;

TEST(CudaTune, SpmmOfFewColumns) {
    for (const int32_t dtype : {TARTAN_F16, TARTAN_BF16})
        for (const int32_t block : {16, 32, 64, 128})
            for (const int64_t n : {1, 8, 64, 100, 128}) {
                Spmm thin(dtype, block, n);
                thin.p.b.data = (void *)4098; // any begin and any strides will do
                thin.p.b.row_stride = 2 * n + 1, thin.p.b.col_stride = 2;
                EXPECT_EQ("spmm_narrow", thin.chosen(kHopper)) << block << " " << n;
                EXPECT_EQ("spmm_narrow", thin.chosen(kAmpere)) << block << " " << n;
            }
    for (const int32_t block : {16, 32, 64, 128})
        for (const int64_t n : {8, 64, 128}) {
            EXPECT_EQ("spmm_narrow", Spmm(TARTAN_BF16, block, n).chosen(kHopper)) << block << " " << n;
            Spmm shared(TARTAN_BF16, block, n); // neighbouring block rows have the same columns
            for (auto &direction : shared.p.figures.share)
                for (int i = 0; i < TARTAN_CUDA_SHARES; i++) direction[i] = 1 << i;
            EXPECT_EQ("spmm_narrow", shared.chosen(kHopper)) << block << " " << n;
        }
    EXPECT_EQ("spmm_narrow", Spmm(TARTAN_BF16, 32, 256).chosen(kHopper));
    for (const int32_t block : {64, 128})
        EXPECT_EQ("spmm_wgmma", Spmm(TARTAN_BF16, block, 256).chosen(kHopper));
    const char *const narrow = "spmm_narrow";
    const Spmm half(TARTAN_BF16, 32, 64);
    EXPECT_REFUSES(half, narrow, kHopper, "float16", p.dtype = TARTAN_F32);
    EXPECT_REFUSES(half, narrow, kHopper, "multiples of 8", p.block_m = 20);
    EXPECT_REFUSES(half, narrow, kHopper, "multiples of 8", p.block_k = 20);
    EXPECT_REFUSES(half, narrow, kHopper, "no blocks", p.blocks = 0);
    EXPECT_REFUSES(half, narrow, kHopper, "1024 columns", p.n = 1025);
    EXPECT_REFUSES(half, narrow, kHopper, "2^31 terms", p.k = (int64_t)1 << 31);
    EXPECT_REFUSES(half, narrow, kHopper, "2^28 block rows", p.grid_m = (int64_t)1 << 28);
    EXPECT_REFUSES(half, narrow, kHopper, "2^16 batch", p.batch.entries = 65536);
    EXPECT_REFUSES(half, narrow, kHopper, "values of a", p.values = (void *)4104);
    EXPECT_REFUSES(half, narrow, kHopper, "gated values", (p.gates.data = &p, p.c.dtype = TARTAN_F32));
    tartan_cuda_chip turing = kAmpere;
    turing.major = 7;
    EXPECT_EQ("needs compute capability 8.0 or more", half.refusal(narrow, turing));
}

// Other dtypes and blocks have a kernel without tensor cores.
TEST(CudaTune, SpmmOfFewColumnsOfAnyKind) {
    for (const int64_t n : {1, 2, 8, 16}) {
        for (const int32_t dtype :
             n < 16 ? std::vector<int32_t>{TARTAN_F64, TARTAN_F32} : std::vector<int32_t>{TARTAN_F32})
            for (const int32_t block : {1, 4, 5, 8, 32, 64, 128})
                for (const auto &chip : {kHopper, kAmpere})
                    EXPECT_EQ("spmm_few", Spmm(dtype, block, n).chosen(chip)) << block << " " << n;
    }
    for (const int32_t block : {1, 3, 20})
        EXPECT_EQ("spmm_few", Spmm(TARTAN_BF16, block, 1).chosen(kHopper)) << block;
    for (const int32_t dtype : {TARTAN_F64, TARTAN_F32})
        for (const int32_t block : {16, 32, 64})
            EXPECT_EQ("spmm_gather", Spmm(dtype, block, 128).chosen(kHopper)) << block;
    EXPECT_EQ("spmm_simt", Spmm(TARTAN_F32, 32, 256).chosen(kHopper));
    EXPECT_EQ("spmm_mma", Spmm(TARTAN_F64, 64, 512).chosen(kHopper));
    const char *const few = "spmm_few";
    const Spmm f32(TARTAN_F32, 32, 8);
    EXPECT_EQ("", f32.refusal(few, kHopper));
    EXPECT_REFUSES(f32, few, kHopper, "one size", p.variable = true);
    EXPECT_REFUSES(f32, few, kHopper, "16 bits", p.dtype = TARTAN_F8E4M3);
    EXPECT_REFUSES(f32, few, kHopper, "no blocks", p.blocks = 0);
    EXPECT_REFUSES(f32, few, kHopper, "spmm_narrow", p.dtype = p.c.dtype = TARTAN_BF16);
    EXPECT_REFUSES(f32, few, kHopper, "128 columns", p.n = 129);
    EXPECT_REFUSES(f32, few, kHopper, "2^27 rows", p.grid_m = (1 << 22) + 1);
    EXPECT_REFUSES(f32, few, kHopper, "2^16 batch", p.batch.entries = 65536);
}

// Few columns of blocks of other sizes, for which there is another instance of the kernel.
TEST(CudaTune, SpmmOfFewColumnsAndAnyBlocks) {
    for (const int32_t block : {8, 24, 40, 48, 72, 96, 256})
        for (const int64_t n : {1, 8, 64, 128}) {
            const Spmm thin(TARTAN_BF16, block, n);
            EXPECT_EQ("spmm_narrow", thin.chosen(kHopper)) << block << " " << n;
            EXPECT_EQ("spmm_narrow", thin.chosen(kAmpere)) << block << " " << n;
            EXPECT_FALSE(tartan_cuda_spmm_narrow_tuned(&thin.p));
            EXPECT_EQ(block == 8 ? 16 : 32, tartan_cuda_spmm_narrow_rows(&thin.p));
        }
    for (const int32_t block : {16, 32, 64, 128}) {
        Spmm tuned(TARTAN_F16, block, 64);
        EXPECT_TRUE(tartan_cuda_spmm_narrow_tuned(&tuned.p));
        EXPECT_EQ(block == 16 ? 16 : 32, tartan_cuda_spmm_narrow_rows(&tuned.p));
        tuned.p.k = 4088; // ragged, but in whole octets
        EXPECT_FALSE(tartan_cuda_spmm_narrow_tuned(&tuned.p));
        EXPECT_EQ(TARTAN_CUDA_ALONG_N, tartan_cuda_spmm_narrow_reads(&tuned.p, false));
        tuned.p.k = 4096, tuned.p.block_k = 2 * block;
        EXPECT_FALSE(tartan_cuda_spmm_narrow_tuned(&tuned.p));
    }
    // Of the 32 rows of a tile a block of 24 fills 24; such blocks reach 0.8 of the others' rate.
    const auto rate = [](int32_t block, int64_t n) {
        return Spmm(TARTAN_BF16, block, n).steady_rate("spmm_narrow");
    };
    EXPECT_NEAR(140 * 0.8 * 24 / 32, rate(24, 128), 1e-9);
    EXPECT_NEAR(0.7 * 140 * 0.8 * 24 / 32, rate(24, 64), 1e-9); // few SMs have two tiles
    EXPECT_NEAR(0.7 * 140, rate(32, 64), 1e-9);
    // With one column, read along k, a tile takes half the time.
    EXPECT_NEAR(2 * 95 * 256 / 264.0 / 64, rate(16, 1), 1e-9);
}

// How spmm_narrow reads B, and when it copies B first.
TEST(CudaTune, SpmmOfFewColumnsReadsB) {
    enum { kAlongN = TARTAN_CUDA_ALONG_N, kAlongK = TARTAN_CUDA_ALONG_K, kSingly = TARTAN_CUDA_SINGLY };
    struct Way {
        int32_t reads;
        bool copies;
        bool operator==(const Way &other) const { return reads == other.reads && copies == other.copies; }
    };
    const auto way = [](int64_t n, int64_t row, int64_t col, void (*change)(tartan_cuda_spmm &) = nullptr) {
        Spmm thin(TARTAN_BF16, 32, n);
        thin.p.b.row_stride = row, thin.p.b.col_stride = col;
        if (change != nullptr) change(thin.p);
        return Way{tartan_cuda_spmm_narrow_reads(&thin.p, false), tartan_cuda_spmm_narrow_copies(&thin.p)};
    };
    EXPECT_EQ((Way{kAlongN, false}), way(16, 16, 1));
    EXPECT_EQ((Way{kAlongN, false}), way(8, 4096, 1));
    EXPECT_EQ((Way{kAlongK, false}), way(16, 1, 4096));
    for (const int64_t n : {2, 3, 5, 7, 9, 333}) {
        EXPECT_EQ((Way{kAlongK, false}), way(n, 1, 4096)) << n; // a column is a column, whatever their number
        EXPECT_EQ((Way{kSingly, true}), way(n, n, 1)) << n;
        EXPECT_EQ((Way{kSingly, true}), way(n, 4096, 1)) << n; // what follows the last row may not be read
        EXPECT_EQ((Way{kSingly, true}), way(n, 1, 4095)) << n;
    }
    // A vector: the stride of its one column does not matter. One with gaps is copied.
    EXPECT_EQ((Way{kAlongK, false}), way(1, 1, 1));
    EXPECT_EQ((Way{kAlongK, false}), way(1, 1, 4095));
    EXPECT_EQ((Way{kSingly, true}), way(1, 3, 7));
    EXPECT_EQ((Way{kSingly, true}), way(1, 1, 1, [](tartan_cuda_spmm &p) { p.b.data = (void *)4098; }));
    EXPECT_EQ((Way{kSingly, true}),
              way(1, 1, 1, [](tartan_cuda_spmm &p) { p.heads = 2, p.b.head_stride = 4; }));
    // Not copied: no contiguous index, two batch dimensions, a ragged last block column, or too little to do.
    EXPECT_EQ((Way{kSingly, false}), way(3, 8, 2));
    EXPECT_EQ((Way{kSingly, false}), way(3, 3, 1, [](tartan_cuda_spmm &p) {
                  p.batch = {2, 4, {2, 2}, {12288, 24577}, {12288, 24577}};
              }));
    EXPECT_EQ((Way{kSingly, false}), way(3, 3, 1, [](tartan_cuda_spmm &p) { p.k = 4095; }));
    EXPECT_EQ((Way{kSingly, false}), way(3, 3, 1, [](tartan_cuda_spmm &p) { p.blocks = 100; }));
    // The copy is padded.
    Spmm padded(TARTAN_BF16, 32, 3);
    padded.p.b.row_stride = 8;
    EXPECT_EQ(kSingly, tartan_cuda_spmm_narrow_reads(&padded.p, false));
    EXPECT_EQ(kAlongN, tartan_cuda_spmm_narrow_reads(&padded.p, true));
    // It costs time.
    Spmm odd(TARTAN_BF16, 32, 15), even(TARTAN_BF16, 32, 16);
    EXPECT_GT(even.rate("spmm_narrow"), odd.rate("spmm_narrow"));
    EXPECT_LT(even.rate("spmm_narrow") / 4, odd.rate("spmm_narrow"));
}
