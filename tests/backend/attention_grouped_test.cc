// SPDX-License-Identifier: Apache-2.0
// Attention whose heads of queries share heads of keys: devices may add up the gradients of keys and values in parts.
#include "attention_placed.h"

namespace {

using namespace tartan_test;

class AttentionGrouped : public AttentionOnBackend {
  protected:
    static constexpr int64_t kQueries = 140, kKeys = 170;
    Attention problem(int number, int64_t block, int64_t d) {
        Attention p;
        p.dtype = p.out_dtype = number % 2 ? TARTAN_F16 : TARTAN_BF16;
        p.batch = 1 + number % 2, p.heads = 6, p.kv_heads = 1 + number % 3;
        p.d = d;
        p.causal = number % 4 < 2;
        p.layout = random_layout({kQueries, kKeys, block, block, number % 5 == 0 ? p.heads : 1}, 0.7,
                                 (uint64_t)number);
        std::mt19937_64 random((uint64_t)number);
        p.make(random, number % 3 ? kTokens : kHeads);
        return p;
    }
};
INSTANTIATE_TEST_SUITE_P(Each, AttentionGrouped, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

TEST_P(AttentionGrouped, HeadsOfQueriesShareKeys) {
    int number = 0;
    for (int64_t block : {16, 64, 128})
        for (int64_t d : {64, 72, 128, 256}) {
            if (!is_of_the_share(number++)) continue;
            SCOPED_TRACE(::testing::Message() << "block " << block << " d " << d << " number " << number);
            Attention p = problem(number, block, d);
            There there(context.get(), p);
            if (!ran(there.forward(context.get()))) continue;
            const AttentionResults want = p.results();
            const std::pair<Placed *, Dense *> got[] = {
                {&there.q_grad, &p.q_grad}, {&there.k_grad, &p.k_grad}, {&there.v_grad, &p.v_grad}};
            const Sums *wanted[] = {&want.q_grad, &want.k_grad, &want.v_grad};
            for (const bool deterministic : {true, false}) {
                p.deterministic = deterministic;
                if (!ran(there.backward(context.get()))) continue;
                for (int i = 0; i < 3; i++) {
                    got[i].first->fetch(*got[i].second);
                    EXPECT_LE(error_of(*got[i].second, *wanted[i]), allowed(p))
                        << "gradient " << i << " deterministic " << deterministic;
                }
            }
            if (HasFailure()) return;
        }
}

// Infinity in the gradient of a query reaches the keys of its stored blocks and no others, also where a device multiplies several
// lines of blocks at a time.
TEST_P(AttentionGrouped, InfinityReachesTheKeysOfStoredBlocks) {
    for (int64_t block : {64, 128}) {
        SCOPED_TRACE(::testing::Message() << "block " << block);
        Attention p = problem(4, block, 128);
        const int64_t tokens = 2 * block + 44, query = block + 2, end = 2 * block;
        std::vector<uint8_t> lower;
        for (int64_t i = 0; i < 3; i++)
            for (int64_t j = 0; j < 3; j++) lower.push_back(j <= i);
        p.causal = false, p.layout = from_mask({tokens, tokens, block, block, 1}, lower);
        std::mt19937_64 random(1);
        p.make(random);
        for (int64_t e = 0; e < p.d; e++) p.out_grad.set(query * p.d + e, INFINITY);
        There there(context.get(), p);
        if (!ran(there.forward(context.get())) || !ran(there.backward(context.get()))) continue;
        there.k_grad.fetch(p.k_grad);
        there.v_grad.fetch(p.v_grad);
        for (int64_t key = 0; key < tokens; key++)
            for (const Dense *grad : {&p.k_grad, &p.v_grad})
                ASSERT_EQ(key >= end, std::isfinite(grad->get(key * p.d))) << "key " << key;
    }
}

} // namespace
