// SPDX-License-Identifier: Apache-2.0
// What holds for products whatever their values: other blocks, sides, transposes, sums and multiples.
#include "spmm_support.h"

namespace {

using namespace tartan_test;

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
    for (uint64_t seed = 0; seed < rounds(1000u); seed++) {
        Spmm p = make_spmm(seed);
        tartan_array b = p.b.exchanged();
        Dense left = p.c, right = p.c;
        tartan_array c = right.exchanged();
        const tartan_array *gates = p.gated ? &p.gates.array : nullptr;
        ASSERT_OK(p.run(context.get(), &left));
        ASSERT_OK(tartan_spmm(context.get(), p.a.get(), gates, &b, p.alpha, p.beta,
                              spmm_options(!p.side, !p.op), &c));
        ASSERT_EQ(left.memory(), right.memory()) << "seed " << seed;
    }
}

TEST(Spmm, InnerProductsOfATransposeAgree) {
    Context context = open_context(1);
    for (uint64_t seed = 0; seed < rounds(1000u); seed++) {
        std::mt19937_64 random(seed);
        Spmm p = plain({(int64_t)(1 + below(random, 40)), (int64_t)(1 + below(random, 40)),
                        (int64_t)(1 + below(random, 9)), (int64_t)(1 + below(random, 9)), 1},
                       0.4, TARTAN_F64, {}, 1, seed);
        Spmm q = plain(p.layout->shape, 0.4, TARTAN_F64, {}, 1, seed, kRows, kTransposed); // the same A
        q.b = Dense(TARTAN_F64, {p.layout->shape.rows, 1});
        q.b.fill(random);
        Dense ax = p.c, aty = q.c;
        ASSERT_OK(p.run(context.get(), &ax));
        ASSERT_OK(
            tartan_spmm(context.get(), p.a.get(), nullptr, &q.b.array, 1, 0, "transpose=1", &aty.array));
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
    for (uint64_t seed = 0; seed < rounds(1000u); seed++) {
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

} // namespace
