// SPDX-License-Identifier: Apache-2.0
// Attention: both passes against the oracle, on any operands; equal bits; failed allocations.
#include "attention_support.h"

namespace {

using namespace tartan_test;

TEST(Attention, RandomProblemsEqualTheOracle) {
    Context contexts[] = {open_context(1), open_context(2), open_context(3), open_context(7)};
    for (uint64_t seed = 0; seed < rounds(400u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const WithFeatures with(feature_sets()[seed % feature_sets().size()]);
        Attention p = make_attention(seed);
        run_and_check(p, contexts[seed / 3 % 4].get());
        if (HasFailure()) return;
    }
}

TEST(Attention, BlocksOfAllSizes) {
    Context context = open_context(2);
    int number = 0;
    for (int64_t rows : {8, 16, 32, 64, 128, 256})
        for (int64_t cols : {8, 16, 32, 64, 128, 256})
            for (int32_t dtype : kDtypes) {
                if (!is_of_the_share(number++)) continue;
                SCOPED_TRACE(::testing::Message() << rows << " x " << cols << " dtype " << dtype);
                Attention p = plain({rows + rows / 2, 2 * cols + 3, rows, cols, 1}, 0.7, dtype, 16);
                p.causal = true;
                p.query_offset = cols;
                run_and_check(p, context.get());
                if (HasFailure()) return;
            }
}

// More keys than a chunk has, and more entries than a round packs.
TEST(Attention, LongRows) {
    for (int32_t dtype : kDtypes)
        for (int32_t threads : {1, 3}) {
            SCOPED_TRACE(::testing::Message() << "dtype " << dtype << " threads " << threads);
            Attention p = plain({40, 1500, 16, 24, 1}, 0.9, dtype, 24);
            p.causal = true;
            p.query_offset = 1460;
            run_and_check(p, open_context(threads).get());
        }
}

// Two blocks and the ragged one have fewer keys than a chunk may have, but three blocks have more.
TEST(Attention, RaggedBlocksInAChunk) {
    Context context = open_context(1);
    for (int64_t block : {96, 120, 7})
        for (int32_t dtype : kDtypes) {
            SCOPED_TRACE(::testing::Message() << "block " << block << " dtype " << dtype);
            const int64_t full = 256 / block;
            Attention p = plain({50, full * block + 256 % block / 2 + 1, 32, block, 1}, 1, dtype, 40);
            run_and_check(p, context.get());
        }
}

TEST(Attention, HeadDimensions) {
    Context context = open_context(1);
    for (int64_t d : {1, 2, 31, 64, 96, 128, 200, 256})
        for (int32_t dtype : kDtypes) {
            SCOPED_TRACE(::testing::Message() << "d " << d << " dtype " << dtype);
            Attention p = plain({40, 50, 32, 32, 1}, 0.8, dtype, d);
            run_and_check(p, context.get());
        }
}

// Blocks of whole spans of keys and queries, which AMX computes in stages: full chunks, chunks that a mask or the diagonal
// cuts, ragged ends, several rounds of chunks.
TEST(Attention, WholeSpans) {
    uint64_t seed = 0;
    for (int64_t block : {32, 64, 96, 128})
        for (int kind = 0; kind < 6; kind++) {
            SCOPED_TRACE(::testing::Message() << "block " << block << " kind " << kind);
            const int64_t tq = kind % 2 == 0 ? block : block + 9, tk = kind % 3 == 0 ? 640 : 600;
            const int64_t d = ++seed % 3 == 0 ? 96 : 32;
            Attention p = plain({tq, tk, block, kind == 1 ? 64 : block, 1}, 0.9, TARTAN_BF16, d, seed,
                                (TokenStyle)(seed % kTokenStyles));
            if (kind == 2 || kind == 3) p.causal = true, p.query_offset = 500;
            if (kind == 4) p.add_mask(0.7, seed);
            if (kind == 5) p.scale = -0.3;
            run_and_check(p, open_context(1 + (int32_t)(seed % 3)).get());
            if (HasFailure()) return;
        }
}

// Scores that grow by far from chunk to chunk, so that the maximum of the first keys is of no use, or fall; and keys whose
// scores are infinite.
TEST(Attention, ScoresThatGrow) {
    Context context = open_context(1);
    for (double step : {0.02, 0.2, 2.0, -0.2, -2.0})
        for (int64_t jump : {1, 300, 700}) {
            SCOPED_TRACE(::testing::Message() << "step " << step << " jump " << jump);
            Attention p = plain({64, 1024, 64, 64, 1}, 1, TARTAN_BF16, 32);
            p.scale = 1;
            for (int64_t i = 0; i < 64; i++) p.q.set(i * 32, 1);
            for (int64_t j = 0; j < 1024; j++) // large ones are multiples of what bf16 can tell apart
                p.k.set(j * 32, rounded(TARTAN_BF16, step * (double)(j / jump)));
            ASSERT_OK(p.forward(context.get()));
            const AttentionResults want = p.results();
            EXPECT_LE(error_of(p.out, want.out), allowed(p));
            for (int64_t i = 0; i < 64; i++)
                EXPECT_NEAR(want.lse[(size_t)i], p.lse.get(i), 2e-6 + 5e-7 * std::fabs(want.lse[(size_t)i]));
        }
    for (int64_t count : {1, 32, 256, 300}) {
        SCOPED_TRACE(::testing::Message() << count << " infinite scores");
        Attention p = plain({64, 1024, 64, 64, 1}, 1, TARTAN_BF16, 32);
        for (int64_t i = 0; i < 64; i++) p.q.set(i * 32, 1);
        for (int64_t j = 0; j < count; j++) p.k.set(j * 32, -INFINITY);
        const double few = (double)p.tk() - (double)count;
        ASSERT_OK(p.forward(context.get()));
        for (int64_t i = 0; i < 64; i++) EXPECT_NEAR(std::log(few), p.lse.get(i), 1.5);
        for (int64_t i = 0; i < p.out.elements(); i++) EXPECT_LT(std::fabs(p.out.get(i)), 1);
    }
}

// The gradients are those of the function that the forward pass computes.
TEST(Attention, GradientsEqualFiniteDifferences) {
    Context context = open_context(2);
    const double step = 1e-5;
    for (uint64_t seed = 0; seed < rounds(40u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        Attention p = make_attention(seed);
        if (p.dtype != TARTAN_F64 || p.tq() == 0 || p.tk() == 0) continue;
        const auto value = [&] {
            double sum = 0;
            EXPECT_OK(p.forward(context.get()));
            for (int64_t i = 0; i < p.out.elements(); i++) sum += p.out.get(i) * p.out_grad.get(i);
            return sum;
        };
        value();
        ASSERT_OK(p.backward(context.get()));
        const std::pair<Dense *, Dense *> pairs[] = {{&p.q, &p.q_grad}, {&p.k, &p.k_grad}, {&p.v, &p.v_grad}};
        for (const auto &pair : pairs)
            for (int n = 0; n < 6; n++) {
                const int64_t at = (int64_t)below(random, (size_t)pair.first->elements());
                const double x = pair.first->get(at);
                pair.first->set(at, x + step);
                const double more = value();
                pair.first->set(at, x - step);
                const double less = value();
                pair.first->set(at, x);
                EXPECT_NEAR((more - less) / (2 * step), pair.second->get(at), 1e-7) << at;
            }
    }
}

// ---- Promises ----

TEST(Attention, SameBitsForKernelsThreadsAndRepeats) {
    for (uint64_t seed = 5000; seed < 5000 + rounds(30u); seed++) {
        Attention p = make_attention(seed);
        const auto bits = [&](int32_t threads, int repeats = 1) {
            Context context = open_context(threads);
            std::vector<char> all;
            for (int n = 0; n < repeats; n++) {
                EXPECT_OK(p.forward(context.get()));
                EXPECT_OK(p.backward(context.get()));
            }
            for (const Dense *a : {&p.out, &p.lse, &p.q_grad, &p.k_grad, &p.v_grad})
                all.insert(all.end(), a->memory().begin(), a->memory().end());
            return all;
        };
        std::vector<char> first;
        {
            const WithFeatures none(0);
            first = bits(1);
        }
        for (const auto set : feature_sets()) {
            const WithFeatures with(set);
            if (!has_chains(p.dtype)) first = bits(1); // bits of its own, the same for all threads and runs
            for (int32_t threads : {1, 2, 3, 7})
                ASSERT_EQ(first, bits(threads, threads == 3 ? 2 : 1))
                    << "seed " << seed << " kernels " << features_name(set) << " threads " << threads;
        }
    }
}

TEST(Attention, SurvivesEveryFailedAllocation) {
    const Context context = open_context(2);
    for (int32_t dtype : {TARTAN_F64, TARTAN_BF16}) {
        Attention p = plain({40, 50, 16, 16, 2}, 0.6, dtype, 24);
        run_and_check(p, context.get()); // which allocates the memory of this context
        BRUTAL(in_new_context(2, [&](tartan_context *own) { return p.forward(own); }),
               run_and_check(p, context.get()));
    }
    for (int32_t dtype : {TARTAN_F64, TARTAN_BF16}) {
        Attention p = plain({40, 50, 16, 16, 2}, 0.6, dtype, 24);
        run_and_check(p, context.get()); // which allocates the memory of this context
        BRUTAL(in_new_context(2, [&](tartan_context *own) { return p.backward(own); }),
               run_and_check(p, context.get()));
    }
}

// Nothing else is written: gaps between elements keep their marks.
TEST(Attention, WritesItsOutputsAlone) {
    const Context context = open_context(2);
    for (TokenStyle style : {kTokenGaps, kTokenColumns, kTokens}) {
        Attention p = plain({37, 45, 16, 16, 1}, 0.5, TARTAN_BF16, 20, 1, style);
        ASSERT_OK(p.forward(context.get()));
        ASSERT_OK(p.backward(context.get()));
        for (const Dense *a : {&p.out, &p.q_grad, &p.k_grad, &p.v_grad}) {
            std::vector<bool> used(a->memory().size());
            for (int64_t i = 0; i < a->elements(); i++)
                for (int64_t b = 0; b < 2; b++) used[(size_t)(a->offset(i) * 2 + b)] = true;
            for (size_t i = 0; i < used.size(); i++)
                ASSERT_TRUE(used[i] || a->memory()[i] == (char)0x5a) << i;
        }
    }
}

} // namespace
