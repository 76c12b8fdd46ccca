// SPDX-License-Identifier: Apache-2.0
// Attention whose scores change much from one tile of keys to the next: what a kernel subtracts from them has to follow.
#include "attention_placed.h"

namespace {

using namespace tartan_test;

class AttentionScores : public AttentionOnBackend {
  protected:
    static constexpr int64_t kQueries = 80, kKeys = 384;
    // All scores of 64 keys from number 64 * part on are near level(part).
    Attention problem(int64_t block, int64_t d, int32_t dtype, double (*level)(int64_t)) {
        Attention p;
        p.dtype = p.out_dtype = dtype;
        p.d = d;
        p.layout = random_layout({kQueries, kKeys, block, block, 1}, 1, 1);
        std::mt19937_64 random(1);
        p.make(random, kHeads, 0.3);
        for (int64_t i = 0; i < kQueries; i++) p.q.set(i * d, 4);
        for (int64_t j = 0; j < kKeys; j++) p.k.set(j * d, level(j / 64) * std::sqrt((double)d) / 4);
        return p;
    }
    void check(Attention &p) {
        There there(context.get(), p);
        if (!ran(there.forward(context.get()))) return;
        const AttentionResults want = p.results();
        there.out.fetch(p.out);
        there.lse.fetch(p.lse);
        EXPECT_LE(error_of(p.out, want.out), allowed(p));
        // Besides its own 16 eps lse has the error of scores, which are sums of products up to 22.
        const double most = (16 + 8 * 22) * epsilon(p.sum_dtype());
        for (int64_t i = 0; i < p.lse.elements(); i++)
            ASSERT_NEAR(want.lse[(size_t)i], p.lse.get(i), most) << "query " << i;
    }
};
INSTANTIATE_TEST_SUITE_P(Each, AttentionScores, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

TEST_P(AttentionScores, ChangeFromTileToTile) {
    const struct {
        const char *name;
        double (*level)(int64_t part);
    } patterns[] = {
        {"rise slowly", [](int64_t part) { return -8 + 3.0 * (double)part; }},
        {"jump", [](int64_t part) { return (double)(part * 7 % 5) * 8 - 16; }},
        {"fall", [](int64_t part) { return 15 - 4.0 * (double)part; }},
        {"are all negative", [](int64_t part) { return -12.0 - (double)(part % 3); }},
        {"become less negative", [](int64_t part) { return -20 + 3.0 * (double)part; }},
    };
    int number = 0;
    for (const auto &pattern : patterns)
        for (int64_t block : {64, 128})
            for (int64_t d : {64, 128, 256}) {
                const int32_t dtype = number++ % 2 ? TARTAN_F16 : TARTAN_BF16;
                SCOPED_TRACE(::testing::Message() << "scores " << pattern.name << ", block " << block << " d "
                                                  << d << " " << tartan_dtype_name(dtype));
                Attention p = problem(block, d, dtype, pattern.level);
                check(p);
                if (HasFailure()) return;
            }
}

// Rows see only some of the keys, and NaN stays in its row.
TEST_P(AttentionScores, OfRowsThatDiffer) {
    for (int64_t d : {64, 128, 256})
        for (int32_t dtype : {TARTAN_F16, TARTAN_BF16}) {
            SCOPED_TRACE(::testing::Message() << "d " << d << " " << tartan_dtype_name(dtype));
            Attention p = problem(128, d, dtype, [](int64_t part) { return -10 + 4.0 * (double)part; });
            p.causal = true, p.query_offset = 200;
            for (int64_t i = 0; i < kQueries; i += 3) p.q.set(i * d, -4); // falling scores beside rising ones
            check(p);
            p.q.set(5 * d, NAN);
            There there(context.get(), p);
            if (!ran(there.forward(context.get()))) continue;
            there.out.fetch(p.out);
            for (int64_t i = 0; i < kQueries; i++) EXPECT_EQ(i == 5, std::isnan(p.out.get(i * d))) << i;
        }
}

} // namespace
