// SPDX-License-Identifier: Apache-2.0
// Attention: both passes against the oracle, on any operands.
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

TEST(Attention, ValuesOfAnotherSize) {
    Context context = open_context(2);
    for (const auto &[d, dv] :
         std::vector<std::pair<int64_t, int64_t>>{{192, 128}, {64, 1}, {8, 72}, {33, 64}, {32, 256}})
        for (int32_t dtype : kDtypes)
            for (TokenStyle style : {kHeads, kTokenColumns, kTokens}) {
                SCOPED_TRACE(::testing::Message() << "d " << d << " and " << dv << " dtype " << dtype);
                Attention p = plain({40, 50, 16, 32, 2}, 0.8, dtype, d);
                std::mt19937_64 random(4);
                p.dv = dv;
                p.make(random, style);
                run_and_check(p, context.get());
            }
}

TEST(Attention, Softcap) {
    Context context = open_context(2);
    for (double softcap : {0.3, 5.0, 50.0})
        for (double scale : {0.4, -0.4, 3.0})
            for (int32_t dtype : kDtypes) {
                SCOPED_TRACE(::testing::Message() << softcap << " scale " << scale << " dtype " << dtype);
                Attention p = plain({40, 50, 16, 32, 2}, 0.8, dtype, 16);
                p.softcap = softcap;
                p.scale = scale;
                p.causal = true, p.query_offset = 10;
                run_and_check(p, context.get(), scale > 1 ? 4 : 1);
            }
}

// Rows of blocks of one row, some of which see the same keys: all of them, groups of four, or only by chance.
TEST(Attention, BlocksOfOneRow) {
    int number = 0;
    for (int64_t rows : {2, 7, 16, 65, 130})
        for (int64_t together : {(int64_t)1, (int64_t)4, rows})
            for (int32_t dtype : kDtypes) {
                SCOPED_TRACE(::testing::Message()
                             << rows << " rows, " << together << " together, dtype " << dtype);
                std::mt19937_64 random((uint64_t)++number);
                const tartan_shape s = {rows, 310, 1, 24, 1 + number % 2};
                std::vector<uint8_t> mask;
                for (int64_t head = 0; head < s.heads; head++)
                    for (int64_t row = 0; row < rows; row++)
                        for (int64_t col = 0; col < 13; col++)
                            mask.push_back(row % together == 0 ? (uint8_t)(random() % 3 != 0)
                                                               : mask[mask.size() - 13]);
                Attention p;
                p.dtype = p.out_dtype = dtype;
                p.heads = p.kv_heads = 2, p.d = 24;
                p.layout = from_mask(s, mask);
                p.causal = number % 3 == 0, p.query_offset = p.causal ? 300 - rows : 0;
                p.make(random);
                if (number % 4 == 1) p.add_mask(0.5, (uint64_t)number);
                if (number % 4 != 0) p.add_bias((tartan_i_bias)(number % 4 + 1), random);
                if (number % 5 == 0) p.dropout = 0.3;
                run_and_check(p, open_context(1 + number % 3).get());
                if (HasFailure()) return;
            }
}

TEST(Attention, BlocksOfOneRowSurviveEveryFailedAllocation) {
    for (int32_t dtype : {TARTAN_F32, TARTAN_BF16}) {
        Attention p = plain({5, 60, 1, 24, 1}, 1, dtype, 16);
        const std::vector<uint8_t> mask(15, 1);
        const auto run = [&](tartan_context *context) { // a new layout keeps no plan of the run before
            tartan_layout *layout = nullptr;
            tartan_status status =
                tartan_layout_from_mask(&p.layout->shape, mask.data(), (int64_t)mask.size(), &layout);
            if (status == TARTAN_OK)
                status = attention_forward(context, layout, &p.q.array, &p.k.array, &p.v.array, "", nullptr,
                                           nullptr, nullptr, &p.out.array, &p.lse.array);
            tartan_layout_free(layout);
            return status;
        };
        BRUTAL(in_new_context(1, run), );
    }
}

// Blocks of more queries than a strip has columns, where rows of Q and V have different lengths.
TEST(Attention, LargeBlocksOfAnotherD) {
    Context context = open_context(1);
    for (const int64_t block : {72, 128})
        for (const std::pair<int64_t, int64_t> &sizes :
             {std::pair<int64_t, int64_t>{16, 40}, {40, 16}, {33, 5}})
            for (int32_t dtype : {TARTAN_F32, TARTAN_BF16})
                for (double softcap : {0.0, 2.0}) {
                    SCOPED_TRACE(::testing::Message()
                                 << block << ", " << sizes.first << " and " << sizes.second << ", " << dtype
                                 << ", softcap " << softcap);
                    Attention p = plain({150, 140, block, block, 1}, 0.9, dtype, sizes.first);
                    std::mt19937_64 random(6);
                    p.dv = sizes.second, p.softcap = softcap;
                    p.make(random);
                    run_and_check(p, context.get());
                }
}

// Gradients are the differences of values.
TEST(Attention, GradientsAreDifferences) {
    Context context = open_context(1);
    std::mt19937_64 random(5);
    Attention p;
    p.dtype = p.out_dtype = TARTAN_F64;
    p.batch = 2, p.heads = 2, p.d = 5, p.dv = 3, p.softcap = 0.7, p.by_batch = true;
    p.layout = random_layout({9, 11, 4, 4, 2}, 0.8, 3);
    p.make(random);
    p.add_bias(TARTAN_I_BIAS_DENSE, random);
    ASSERT_OK(p.forward(context.get()));
    ASSERT_OK(p.backward(context.get()));
    ASSERT_OK(p.bias_gradient(context.get()));
    const auto loss = [&] {
        EXPECT_OK(p.forward(context.get()));
        double sum = 0;
        for (int64_t i = 0; i < p.out.elements(); i++) sum += p.out.get(i) * p.out_grad.get(i);
        return sum;
    };
    const struct {
        Dense *x, *grad;
    } pairs[] = {{&p.q, &p.q_grad}, {&p.k, &p.k_grad}, {&p.v, &p.v_grad}, {&p.bias, &p.bias_grad}};
    for (const auto &[x, grad] : pairs)
        for (int64_t i = 0; i < x->elements(); i += 3) {
            const double at = x->get(i), step = 1e-6;
            if (std::isinf(at)) continue;
            x->set(i, at + step);
            const double above = loss();
            x->set(i, at - step);
            const double below = loss();
            x->set(i, at);
            EXPECT_NEAR((above - below) / (2 * step), grad->get(i), 1e-7);
        }
}

// A layout for each batch entry, shared by its heads, equals a layout with the blocks once for each head.
TEST(Attention, LayoutsOfBatchEntries) {
    Context context = open_context(2);
    for (int64_t kv_heads : {1, 3})
        for (int32_t dtype : kDtypes) {
            SCOPED_TRACE(::testing::Message() << "dtype " << dtype << " kv heads " << kv_heads);
            std::mt19937_64 random(6);
            Attention p;
            p.dtype = p.out_dtype = dtype;
            p.batch = 3, p.heads = 3, p.kv_heads = kv_heads, p.by_batch = true; // as many heads as entries
            p.layout = random_layout({40, 50, 16, 8, 3}, 0.6, 3);
            p.add_mask(0.8, 4);
            p.make(random);
            p.add_bias(TARTAN_I_BIAS_BLOCK, random);
            run_and_check(p, context.get());
            ASSERT_OK(p.bias_gradient(context.get()));
            EXPECT_LE(error_of(p.bias_grad, p.results().bias_grad), allowed(p));
            const int64_t heads[] = {0, 0, 0, 1, 1, 1, 2, 2, 2};
            tartan_layout *each = nullptr;
            ASSERT_OK(tartan_layout_take_heads(p.layout.get(), heads, 9, &each));
            const Layout layout(each);
            const auto call = [&](const tartan_layout *of, const char *options) {
                return attention_forward(context.get(), of, &p.q.array, &p.k.array, &p.v.array, options,
                                         nullptr, nullptr, nullptr, &p.out.array, &p.lse.array);
            };
            ASSERT_OK(call(p.layout.get(), "by_batch=1"));
            const Dense by_batch = p.out;
            ASSERT_OK(call(each, ""));
            EXPECT_EQ(by_batch.memory(), p.out.memory());
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

// Scores that grow much from chunk to chunk, so that the maximum of the first keys is useless, or fall; and keys whose
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

} // namespace
