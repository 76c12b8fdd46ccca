// SPDX-License-Identifier: Apache-2.0
// Products whose rows of blocks stay in cache while the packed rows of B go by.
#include "spmm_support.h"

extern "C" {
#include "backend/cpu_spmm.h"
}

namespace {

using namespace tartan_test;

struct Case {
    tartan_shape shape;
    double density;
    std::vector<int64_t> batch;
    int64_t n;
    int32_t op;
};

// Ragged in both directions, blocks of several terms, of rows that strips do not divide, and so large that a row of them takes several
// batches; rows without blocks, heads, batch entries, and a last sliver that is narrower.
const std::vector<Case> &cases() {
    static const std::vector<Case> all = {{{260, 300, 32, 32, 1}, 0.6, {}, 130, kAsIs},
                                          {{300, 210, 45, 37, 2}, 0.7, {2, 2}, 30, kAsIs},
                                          {{330, 330, 64, 80, 1}, 0.9, {3}, 50, kTransposed},
                                          {{250, 150, 26, 9, 1}, 0.15, {}, 100, kAsIs},
                                          {{1030, 520, 256, 128, 1}, 0.9, {}, 70, kAsIs}};
    return all;
}

TEST(SpmmByRows, EqualsTheChainWithAnyNumberOfThreads) {
    Context contexts[] = {open_context(1), open_context(2), open_context(3)};
    for (const auto &set : feature_sets())
        for (const Case &c : cases())
            for (int32_t dtype : {TARTAN_F64, TARTAN_F32})
                for (uint64_t seed = 0; seed < 3; seed++) {
                    SCOPED_TRACE(::testing::Message()
                                 << features_name(set) << " " << c.shape.block_rows << " seed " << seed);
                    const WithFeatures with(set);
                    Spmm p = plain(c.shape, c.density, dtype, c.batch, c.n, seed, kRows, c.op);
                    p.alpha = seed == 1 ? 0.5 : 1;
                    p.beta = seed == 2 ? 2 : 0;
                    p.run_and_check(contexts[seed].get());
                    if (HasFailure()) return;
                }
}

// Only where strips are short: with blocks of more rows than a sliver has columns.
TEST(SpmmByRows, IsTheOrderOfAvx2) {
    const Context context = open_context(1);
    for (const auto &set : feature_sets())
        for (int64_t block : {8, 24, 32}) {
            SCOPED_TRACE(::testing::Message() << features_name(set) << " " << block);
            const WithFeatures with(set);
            const Spmm s = plain({320, 320, block, block, 1}, 0.9, TARTAN_F32, {}, 130, 1);
            Dense got = s.c;
            ASSERT_OK(s.run(context.get(), &got)); // makes the lists of columns
            tartan_op_spmm op = {};
            op.a = s.a.get(), op.b = &s.b.array, op.c = &s.c.array, op.alpha = 1;
            const bool avx2 = (set & TARTAN_I_CPU_AVX2) && !(set & TARTAN_I_CPU_AVX512);
            EXPECT_EQ(avx2 && block == 32, tartan_i_spmm_plan(context.get(), &op, 1).by_rows);
        }
}

} // namespace
