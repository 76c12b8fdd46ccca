// SPDX-License-Identifier: Apache-2.0
// Many blocks at a time: what block by block gives, byte for byte.
#include "matrix_support.h"

extern "C" {
#include "matrix/gather.h"
}

using namespace tartan_test;

namespace {

std::vector<int64_t> random_sources(int64_t count, int64_t blocks, std::mt19937_64 &random) {
    std::vector<int64_t> sources((size_t)count);
    for (int64_t &one : sources) one = (int64_t)(random() % (uint64_t)(blocks + 1)) - 1;
    return sources;
}

TEST(Gather, TakesBlocksAsBlockCopyDoes) {
    std::mt19937_64 random(1);
    for (int n = 0; n < rounds(600); n++) {
        tartan_shape s = random_shape(random);
        s.block_rows = 1 + (int64_t)(random() % (n % 3 ? 4 : 12));
        s.block_cols = n % 2 ? s.block_rows : 1 + (int64_t)(random() % 5);
        const bool transposed = random() % 2;
        tartan_shape t = s;
        if (transposed) std::swap(t.rows, t.cols), std::swap(t.block_rows, t.block_cols);
        const int32_t dtype = all_dtypes[random() % 6], other = n % 5 ? dtype : all_dtypes[random() % 6];
        const Matrix from = random_matrix(s, dtype, (int32_t)(random() % 2), random);
        const Matrix want = random_matrix(t, other, (int32_t)(random() % 2), random);
        const int64_t blocks = want->layout->blocks;
        tartan_matrix *made = nullptr;
        ASSERT_OK(tartan_matrix_create(want->layout, other, want->block_order, &made));
        const Matrix got(made);
        const std::vector<int64_t> sources = random_sources(blocks, from->layout->blocks, random);
        const int64_t begin = blocks / 3;
        for (int64_t id = 0; id < blocks; id++)
            tartan_i_block_copy(want.get(), id, from.get(), sources[(size_t)id], transposed);
        tartan_i_blocks_take(got.get(), from.get(), sources.data(), 0, begin, transposed);
        tartan_i_blocks_take(got.get(), from.get(), sources.data(), begin, blocks, transposed);
        const size_t bytes =
            (size_t)(blocks * tartan_i_block_elements(want.get()) * tartan_dtype_bytes(other));
        ASSERT_EQ(0, std::memcmp(want->values, got->values, bytes));
    }
}

TEST(Gather, MissingBlocksAreWhatTheCallerSays) {
    std::mt19937_64 random(2);
    for (const int64_t edge : {1, 2, 3, 4, 9, 16}) {
        const Matrix from = random_matrix({4 * edge, 4 * edge, edge, edge, 1}, TARTAN_F64, 0, random);
        const std::vector<int64_t> sources = random_sources(50, from->layout->blocks, random);
        const int64_t n = edge * edge;
        const std::vector<double> missing((size_t)n, -0.0);
        std::vector<double> got((size_t)(50 * n));
        tartan_i_blocks_gather(got.data(), from.get(), sources.data(), 50, missing.data());
        for (size_t i = 0; i < 50; i++) {
            const void *block = sources[i] < 0 ? missing.data() : tartan_i_block_at(from.get(), sources[i]);
            EXPECT_EQ(0, std::memcmp(&got[i * (size_t)n], block, (size_t)n * sizeof(double)));
        }
    }
}

} // namespace
