// SPDX-License-Identifier: Apache-2.0
// Merging attentions to disjoint sets of keys.
#include "block_softmax_support.h"

namespace {

using namespace tartan_test;

// A part without keys is not read, so NaN there disappears; NaN of a part with keys does not.
TEST(AttentionMerge, PartsWithoutKeysAreNotRead) {
    const Context own = open_context(2);
    for (int32_t dtype : kDtypes) {
        Merge p;
        for (Dense *a : {&p.out_a, &p.out_b, &p.out}) *a = Dense(dtype, {1, 1, 4, 8});
        for (Dense *a : {&p.lse_a, &p.lse_b, &p.lse}) *a = Dense(tartan_i_sum_dtype(dtype), {1, 1, 4});
        for (int64_t i = 0; i < 32; i++) p.out_a.set(i, NAN), p.out_b.set(i, 0.25 * (double)i);
        const double none = -(double)INFINITY, lse_a[] = {none, none, 1.0, -1e4},
                     lse_b[] = {2.0, none, 1.0, 1.0};
        for (int64_t i = 0; i < 4; i++) p.lse_a.set(i, lse_a[i]), p.lse_b.set(i, lse_b[i]);
        for (bool swapped : {false, true}) {
            ASSERT_OK(p.run(own.get()));
            for (int64_t t = 0; t < 8; t++) {
                EXPECT_EQ(0.25 * (double)t, p.out.get(t)) << swapped;
                EXPECT_EQ(0, p.out.get(8 + t));
                EXPECT_TRUE(std::isnan(p.out.get(16 + t)));
                EXPECT_TRUE(std::isnan(p.out.get(24 + t)));
            }
            EXPECT_EQ(2, p.lse.get(0));
            EXPECT_EQ(none, p.lse.get(1));
            EXPECT_EQ(1, p.lse.get(3));
            std::swap(p.out_a, p.out_b);
            std::swap(p.lse_a, p.lse_b);
        }
        p.lse_a.set(0, NAN);
        ASSERT_OK(p.run(own.get()));
        EXPECT_TRUE(std::isnan(p.lse.get(0)));
        EXPECT_TRUE(std::isnan(p.out.get(0)));
        p.lse_b.set(0, none); // of the other part nothing is left
        for (int swapped = 0; swapped < 2; swapped++) {
            ASSERT_OK(p.run(own.get()));
            EXPECT_TRUE(std::isnan(p.lse.get(0))) << swapped;
            std::swap(p.out_a, p.out_b);
            std::swap(p.lse_a, p.lse_b);
        }
        EXPECT_OK(tartan_attention_merge(own.get(), &p.out_a.array, &p.lse_a.array, &p.out_b.array,
                                         &p.lse_b.array, &p.out.array, nullptr));
    }
}

// Attention to all keys is the merge of attention to two, or to three, parts of them.
TEST(AttentionMerge, MakesAttentionOfItsParts) {
    const Context own = open_context(2);
    for (int32_t dtype : kDtypes) {
        std::mt19937_64 random(4);
        Attention p;
        p.dtype = dtype;
        p.out_dtype = tartan_i_sum_dtype(dtype);
        p.batch = 2, p.heads = p.kv_heads = 2, p.d = 24;
        p.layout = from_mask({50, 96, 16, 16, 1}, std::vector<uint8_t>(24, 1));
        p.make(random);
        p.causal = true;
        p.query_offset = 20;
        ASSERT_OK(p.forward(own.get()));
        const Dense want = p.out, want_lse = p.lse;
        const AttentionResults results = p.results();
        Dense out, lse;
        for (int part = 0; part < 3; part++) {
            std::vector<uint8_t> mask;
            for (int i = 0; i < 24; i++) mask.push_back(i % 6 / 2 == part);
            p.layout = from_mask({50, 96, 16, 16, 1}, mask);
            ASSERT_OK(p.forward(own.get()));
            if (part == 0)
                out = p.out, lse = p.lse;
            else
                ASSERT_OK(tartan_attention_merge(own.get(), &out.array, &lse.array, &p.out.array,
                                                 &p.lse.array, &out.array, &lse.array));
        }
        EXPECT_LE(error_of(numbers_of(out), numbers_of(want), results.out.sizes), 2 * allowed(p));
        EXPECT_LE(error_of(numbers_of(lse), numbers_of(want_lse), Numbers(results.lse.size(), 1)),
                  16 * epsilon(p.sum_dtype()));
    }
}

} // namespace
