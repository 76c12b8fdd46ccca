// SPDX-License-Identifier: Apache-2.0
// What every backend's attention must do: results within the error of its dtype, and nothing else written. A problem that a
// device refuses (UNSUPPORTED) is skipped; on the CPU and the dummy nothing may be refused.
#include "../device/dynamic.h"
#include "attention_placed.h"
#include "explained.h"

namespace {

using namespace tartan_test;

class BackendAttention : public AttentionOnBackend {
  protected:
    static void check(const Placed &there, Dense &here, const Sums &want, double most) {
        there.fetch(here);
        EXPECT_LE(error_of(here, want), most);
        EXPECT_TRUE(marks_intact(here));
    }
    // Runs and checks what is not refused.
    void run_and_check(Attention &p) {
        There there(context.get(), p);
        if (!ran(there.forward(context.get()))) return;
        const AttentionResults want = p.results();
        const double most = allowed(p);
        check(there.out, p.out, want.out, most);
        there.lse.fetch(p.lse);
        EXPECT_LE(error_of(numbers_of(p.lse), want.lse, Numbers(want.lse.size(), 1)),
                  16 * epsilon(p.sum_dtype()));
        for (const bool deterministic : {true, false}) {
            SCOPED_TRACE(::testing::Message() << "deterministic " << deterministic);
            p.deterministic = deterministic;
            if (!ran(there.backward(context.get()))) return;
            check(there.q_grad, p.q_grad, want.q_grad, most);
            check(there.k_grad, p.k_grad, want.k_grad, most);
            check(there.v_grad, p.v_grad, want.v_grad, most);
        }
        p.deterministic = true;
        if (!p.has_bias_gradient() || !ran(there.bias_gradient(context.get()))) return;
        if (p.bias_array() != nullptr) check(there.bias_grad, p.bias_grad, want.bias_grad, most);
        if (p.has_sinks) check(there.sinks_grad, p.sinks_grad, want.sinks_grad, most);
    }
    // The bytes of all results, and the kernels that made them.
    std::pair<std::vector<std::vector<char>>, std::string> bits_of(Attention &p) {
        There there(context.get(), p);
        const std::string text = explained([&] {
            EXPECT_OK(there.forward(context.get()));
            return there.backward(context.get());
        });
        std::string kernels;
        for (size_t at = text.find("\"kernel\": "); at != std::string::npos;
             at = text.find("\"kernel\": ", at + 1))
            kernels += text.substr(at, text.find(',', at) - at);
        EXPECT_OK(there.forward(context.get()));
        EXPECT_OK(there.backward(context.get()));
        std::vector<std::vector<char>> bits;
        const std::pair<const Placed *, Dense *> results[] = {{&there.out, &p.out},
                                                              {&there.lse, &p.lse},
                                                              {&there.q_grad, &p.q_grad},
                                                              {&there.k_grad, &p.k_grad},
                                                              {&there.v_grad, &p.v_grad}};
        for (const auto &[placed, here] : results) {
            placed->fetch(*here);
            bits.push_back(here->memory());
        }
        return {bits, kernels};
    }
    // Batch entry b of p alone, with the part of the layout that it has, gets the same bits.
    void check_entry(const Attention &p, int64_t b) {
        Attention one;
        one.dtype = p.dtype, one.out_dtype = p.out_dtype, one.d = p.d;
        one.heads = p.heads, one.kv_heads = p.kv_heads;
        one.causal = p.causal, one.query_offset = p.query_offset;
        tartan_shape shape = p.layout->shape;
        const int64_t positions = p.heads * p.layout->grid_rows * p.layout->grid_cols;
        std::vector<uint8_t> mask((size_t)(shape.heads * p.layout->grid_rows * p.layout->grid_cols));
        ASSERT_OK(tartan_layout_get_mask(p.layout.get(), mask.data(), (int64_t)mask.size()));
        shape.heads = p.heads;
        one.layout = from_mask(shape, {mask.begin() + b * positions, mask.begin() + (b + 1) * positions});
        std::mt19937_64 random(1);
        one.make(random);
        const std::pair<const Dense *, Dense *> inputs[] = {
            {&p.q, &one.q}, {&p.k, &one.k}, {&p.v, &one.v}, {&p.out_grad, &one.out_grad}};
        for (const auto &[all, part] : inputs)
            for (int64_t i = 0; i < part->elements(); i++) part->set(i, all->get(b * part->elements() + i));
        bits_of(one);
        const std::pair<const Dense *, const Dense *> results[] = {{&p.out, &one.out},
                                                                   {&p.lse, &one.lse},
                                                                   {&p.q_grad, &one.q_grad},
                                                                   {&p.k_grad, &one.k_grad},
                                                                   {&p.v_grad, &one.v_grad}};
        for (const auto &[all, part] : results)
            for (int64_t i = 0; i < part->elements(); i++) {
                const double want = all->get(b * part->elements() + i), got = part->get(i);
                if (dummy() || on_host() || std::isinf(want))
                    ASSERT_EQ(want, got) << "entry " << b << " element " << i;
                else
                    ASSERT_NEAR(want, got, 8 * epsilon(p.dtype) * (1 + std::fabs(want)));
            }
    }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendAttention, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

TEST_P(BackendAttention, RandomProblems) {
    for (uint64_t seed = 10000; seed < 10000 + rounds(150u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Attention p = make_attention(seed);
        run_and_check(p);
        if (HasFailure()) return;
    }
}

// Sizes for which devices have kernels of their own.
TEST_P(BackendAttention, BlocksAndHeadsOfAllSizes) {
    int number = 0;
    for (int64_t block : {8, 16, 32, 64, 128})
        for (int64_t d : {16, 64, 128, 256})
            for (int32_t dtype : {TARTAN_F32, TARTAN_F16, TARTAN_BF16}) {
                if (!is_of_the_share(number++)) continue;
                const bool causal = number % 2;
                SCOPED_TRACE(::testing::Message() << "block " << block << " d " << d << " causal " << causal
                                                  << " " << tartan_dtype_name(dtype));
                std::mt19937_64 random((uint64_t)number);
                Attention p;
                p.dtype = p.out_dtype = dtype;
                p.d = d, p.heads = 2, p.kv_heads = 1 + number / 4 % 2, p.causal = causal;
                p.layout = random_layout({block + 70, 2 * block + 70, block, block, 1 + number / 2 % 2}, 0.6,
                                         (uint64_t)number);
                p.make(random, number % 3 == 0 ? kTokens : kHeads);
                run_and_check(p);
                if (HasFailure()) return;
            }
}

// What is added to scores, hides them or drops weights, in blocks for which devices have kernels of their own.
TEST_P(BackendAttention, BiasDropoutSinksAndMasksOfTunedSizes) {
    int number = 0;
    for (const auto &[block_q, block_k] : std::vector<std::pair<int64_t, int64_t>>{
             {128, 128}, {64, 64}, {32, 16}, {8, 8}, {16, 128}, {128, 32}})
        for (int kind = TARTAN_I_BIAS_NONE; kind <= TARTAN_I_BIAS_DENSE; kind++)
            for (int32_t dtype : {TARTAN_F16, TARTAN_BF16}) {
                if (!is_of_the_share(number++)) continue;
                SCOPED_TRACE(::testing::Message()
                             << "blocks " << block_q << " x " << block_k << " bias " << kind << " number "
                             << number << " " << tartan_dtype_name(dtype));
                std::mt19937_64 random((uint64_t)number);
                Attention p;
                p.dtype = p.out_dtype = dtype;
                p.d = number % 4 < 2 ? 64 : 128, p.heads = 2, p.kv_heads = 1 + number / 4 % 2;
                p.causal = number % 3 == 0, p.query_offset = p.causal ? 40 : 0;
                p.layout =
                    random_layout({150, 200, block_q, block_k, 1 + number / 2 % 2}, 0.6, (uint64_t)number);
                p.make(random, kHeads);
                if (kind != TARTAN_I_BIAS_NONE) p.add_bias((tartan_i_bias)kind, random, 30);
                if (number % 2) p.dropout = 0.25, p.seed = number;
                if (number % 5 < 2) p.add_sinks(random);
                if (number % 7 < 3) p.add_mask(number % 7 == 0 ? 0.999 : 0.6, (uint64_t)number);
                run_and_check(p);
                if (HasFailure()) return;
            }
}

// Blocks of few keys, several of which a tuned kernel gathers into one tile: the diagonal and masks run through them.
TEST_P(BackendAttention, BlocksOfFewKeys) {
    int number = 0;
    for (int64_t block_q : {64, 128})
        for (int64_t block_k : {16, 32})
            for (bool causal : {false, true})
                for (bool masked : {false, true}) {
                    if (!is_of_the_share(number++)) continue;
                    SCOPED_TRACE(::testing::Message()
                                 << "blocks " << block_q << " x " << block_k << (causal ? " causal" : "")
                                 << (masked ? " masked" : ""));
                    std::mt19937_64 random((uint64_t)number);
                    Attention p;
                    p.dtype = p.out_dtype = number % 3 ? TARTAN_BF16 : TARTAN_F16;
                    p.d = number % 5 < 2 ? 64 : 128, p.heads = 2, p.kv_heads = 1 + number % 2;
                    p.causal = causal, p.query_offset = causal ? 90 : 0;
                    p.layout = random_layout({300, 390, block_q, block_k, number % 3 == 0 ? 2 : 1}, 0.5,
                                             (uint64_t)number);
                    p.make(random, number % 2 ? kTokens : kHeads);
                    if (masked) p.add_mask(0.6, (uint64_t)number);
                    run_and_check(p);
                    if (HasFailure()) return;
                }
}

// More tiles of queries than a device works on at a time.
TEST_P(BackendAttention, ManyTiles) {
    std::mt19937_64 random(1);
    Attention p;
    p.batch = 2, p.d = 16, p.heads = p.kv_heads = 16;
    p.layout = random_layout({2100, 70, 128, 64, 1}, 0.7, 1);
    for (const int32_t dtype : {TARTAN_BF16, TARTAN_F16}) {
        p.dtype = p.out_dtype = dtype;
        p.make(random);
        run_and_check(p);
    }
}

// Few queries and long lists of keys, which devices may split.
TEST_P(BackendAttention, FewQueriesOverManyKeys) {
    int number = 0;
    for (int64_t block_k : {16, 64, 128})
        for (int64_t queries : {1, 5, 16}) {
            if (!is_of_the_share(number++)) continue;
            SCOPED_TRACE(::testing::Message() << queries << " queries, blocks of " << block_k << " keys");
            std::mt19937_64 random((uint64_t)number);
            Attention p;
            p.dtype = TARTAN_BF16, p.out_dtype = number % 3 ? TARTAN_BF16 : TARTAN_F32;
            p.batch = 1 + number % 2, p.d = 64, p.heads = 4, p.kv_heads = number % 2 ? 4 : 2;
            p.layout =
                random_layout({queries, 4000, 16, block_k, number % 3 == 1 ? 4 : 1}, 0.7, (uint64_t)number);
            p.causal = number % 2, p.query_offset = p.causal ? 3000 : 0;
            p.make(random);
            if (number % 4 < 2) p.add_sinks(random);
            if (number % 4 == 3) p.dropout = 0.2;
            run_and_check(p);
            if (HasFailure()) return;
        }
}

// Queries with and without keys, and special sinks.
TEST_P(BackendAttention, Sinks) {
    for (int32_t dtype : kDtypes) {
        SCOPED_TRACE(tartan_dtype_name(dtype));
        std::mt19937_64 random(1);
        Attention p;
        p.dtype = p.out_dtype = dtype;
        p.heads = 4, p.kv_heads = 2;
        p.layout = from_mask({40, 48, 16, 16, 1}, {1, 0, 1, 0, 0, 0, 1, 1, 0});
        p.make(random);
        p.add_sinks(random);
        p.sinks.set(0, -INFINITY);
        run_and_check(p);
        p.sinks.set(1, INFINITY), p.sinks.set(2, NAN);
        There there(context.get(), p);
        if (!ran(there.forward(context.get()))) continue;
        there.out.fetch(p.out);
        there.lse.fetch(p.lse);
        for (int64_t i = 0; i < 160; i++) {
            const double lse = p.lse.get(i), out = p.out.get(i * 16);
            const bool as_expected[] = {(i % 40 / 16 == 1) == (lse == -INFINITY), lse == INFINITY && out == 0,
                                        std::isnan(lse) && std::isnan(out), std::isfinite(lse)};
            EXPECT_TRUE(as_expected[i / 40]) << i << ": " << lse << ", " << out;
        }
    }
}

// Each batch entry has blocks of its own, and gets the result of a call for it alone.
TEST_P(BackendAttention, LayoutsOfAllBatchEntries) {
    int number = 0;
    for (int64_t block : {16, 64, 128, 24})
        for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_BF16})
            for (int64_t heads : {1, 4}) {
                SCOPED_TRACE(::testing::Message()
                             << "block " << block << " heads " << heads << " " << tartan_dtype_name(dtype));
                std::mt19937_64 random((uint64_t)++number);
                Attention p;
                p.dtype = p.out_dtype = dtype;
                p.batch = 3, p.heads = heads, p.kv_heads = heads > 1 ? heads / 2 : 1, p.d = 32;
                p.causal = number % 2, p.query_offset = p.causal ? 20 : 0;
                const tartan_shape all = {block + 20, block + 30, block, block, 3 * heads};
                p.layout = random_layout(all, 0.5, (uint64_t)number);
                p.make(random);
                run_and_check(p);
                for (int64_t b = 0; b < 3 && !HasFailure(); b++) check_entry(p, b);
            }
}

// A dynamic layout gives the bits of an ordinary layout of the same blocks.
TEST_P(BackendAttention, DynamicLayouts) {
    int number = 0, same = 0;
    for (int64_t block : {8, 16, 32, 64, 128, 24})
        for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16}) {
            SCOPED_TRACE(::testing::Message() << "block " << block << " " << tartan_dtype_name(dtype));
            std::mt19937_64 random((uint64_t)++number);
            Attention p;
            p.dtype = p.out_dtype = dtype;
            p.batch = 2, p.heads = 4, p.kv_heads = number % 2 ? 4 : 2;
            p.d = pick<int64_t>(random, {16, 64, 128});
            p.causal = number % 3 != 0;
            const tartan_shape shape = {block + 70, 2 * block + 70, block, block,
                                        pick<int64_t>(random, {1, 4, 8})};
            p.layout = random_layout(shape, 0.5, (uint64_t)number);
            p.make(random);
            if (number % 4 == 0) p.add_bias(TARTAN_I_BIAS_SLOPES, random);
            const auto [fixed, fixed_kernel] = bits_of(p);
            std::vector<uint8_t> mask((size_t)(shape.heads * p.layout->grid_rows * p.layout->grid_cols));
            ASSERT_OK(tartan_layout_get_mask(p.layout.get(), mask.data(), (int64_t)mask.size()));
            std::vector<uint8_t> other(mask.size(), 0);
            other[0] = 1;
            Dynamic dynamic(context.get(), shape, other, p.layout->blocks + number % 2, false);
            p.layout.reset(tartan_layout_retain(dynamic.layout.get()));
            const auto [first, any_kernel] = bits_of(p); // makes the index sets that the kernels need
            dynamic.update(mask, number % 5 == 0);
            const auto [got, kernel] = bits_of(p);
            if (kernel != fixed_kernel) continue;
            same++;
            EXPECT_TRUE(got == fixed) << kernel;
            EXPECT_FALSE(got == first);
        }
    EXPECT_GE(same, 14);
}

// Blocks shared by all, blocks of each head, and blocks of each batch entry; the bias has a number for each block.
TEST_P(BackendAttention, BiasGradientsOfLayoutsOfAllHeads) {
    int number = 0;
    for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_BF16})
        for (int64_t heads : {1, 4})
            for (int64_t layout_heads : {(int64_t)1, heads, 3 * heads})
                for (int kind = TARTAN_I_BIAS_SLOPES; kind <= TARTAN_I_BIAS_DENSE; kind++) {
                    SCOPED_TRACE(::testing::Message()
                                 << layout_heads << " heads of blocks, " << heads << " of q, kind " << kind
                                 << " " << tartan_dtype_name(dtype));
                    std::mt19937_64 random((uint64_t)++number);
                    Attention p;
                    p.dtype = p.out_dtype = dtype;
                    p.batch = 3, p.heads = heads, p.kv_heads = heads > 1 ? heads / 2 : 1;
                    p.layout = random_layout({70, 90, 16, 32, layout_heads}, 0.5, (uint64_t)number);
                    p.make(random);
                    p.add_bias((tartan_i_bias)kind, random);
                    p.add_sinks(random);
                    run_and_check(p);
                    if (HasFailure()) return;
                }
}

// A dynamic layout gives the same gradients as an ordinary one of the same blocks, and 0 where it has no block.
TEST_P(BackendAttention, BiasGradientsOnDynamicLayouts) {
    int number = 0;
    for (int32_t dtype : {TARTAN_F32, TARTAN_BF16})
        for (int64_t layout_heads : {1, 2, 4})
            for (int kind = TARTAN_I_BIAS_SLOPES; kind <= TARTAN_I_BIAS_DENSE; kind++) {
                SCOPED_TRACE(::testing::Message() << layout_heads << " heads of blocks, kind " << kind << " "
                                                  << tartan_dtype_name(dtype));
                std::mt19937_64 random((uint64_t)++number);
                Attention p;
                p.dtype = p.out_dtype = dtype;
                p.batch = 2, p.heads = p.kv_heads = 2;
                p.layout = random_layout({40, 50, 16, 8, layout_heads}, 0.5, (uint64_t)number);
                p.make(random);
                p.add_bias((tartan_i_bias)kind, random);
                p.add_sinks(random);
                const tartan_shape shape = p.layout->shape;
                const int64_t blocks = p.layout->blocks;
                std::vector<uint8_t> mask((size_t)(layout_heads * p.layout->grid_rows * p.layout->grid_cols));
                ASSERT_OK(tartan_layout_get_mask(p.layout.get(), mask.data(), (int64_t)mask.size()));
                run_and_check(p);
                const Numbers want = numbers_of(p.bias_grad), want_sinks = numbers_of(p.sinks_grad);
                const Dynamic dynamic(context.get(), shape, mask, blocks + 3, false);
                int64_t planes = 1;
                if (kind == TARTAN_I_BIAS_BLOCK) {
                    const Dense few = p.bias;
                    planes = few.array.shape[0];
                    p.bias = Dense(p.sum_dtype(), {planes, blocks + 3});
                    for (int64_t i = 0; i < p.bias.elements(); i++) {
                        const int64_t plane = i / (blocks + 3), n = i % (blocks + 3);
                        p.bias.set(i, n < blocks ? few.get(plane * blocks + n) : (double)NAN);
                    }
                    p.bias_grad = p.bias;
                }
                p.layout.reset(tartan_layout_retain(dynamic.layout.get()));
                There there(context.get(), p);
                if (!ran(there.forward(context.get())) || !ran(there.bias_gradient(context.get()))) continue;
                there.bias_grad.fetch(p.bias_grad);
                there.sinks_grad.fetch(p.sinks_grad);
                EXPECT_EQ(want_sinks, numbers_of(p.sinks_grad));
                const int64_t width = p.bias_grad.elements() / planes, old = (int64_t)want.size() / planes;
                for (int64_t i = 0; i < p.bias_grad.elements(); i++)
                    EXPECT_EQ(i % width < old ? want[(size_t)(i / width * old + i % width)] : 0,
                              p.bias_grad.get(i))
                        << i;
                if (HasFailure()) return;
            }
}

// A number for each block that there is room for.
TEST_P(BackendAttention, BiasOfBlocksOnDynamicLayouts) {
    std::mt19937_64 random(1);
    Attention p;
    p.batch = 2, p.heads = p.kv_heads = 2;
    p.layout = random_layout({40, 50, 16, 8, 4}, 0.5, 1);
    const tartan_shape shape = p.layout->shape;
    p.make(random);
    p.add_bias(TARTAN_I_BIAS_BLOCK, random);
    const auto [fixed, fixed_kernel] = bits_of(p);
    const int64_t blocks = p.layout->blocks;
    std::vector<uint8_t> mask((size_t)(4 * p.layout->grid_rows * p.layout->grid_cols));
    ASSERT_OK(tartan_layout_get_mask(p.layout.get(), mask.data(), (int64_t)mask.size()));
    const Dynamic dynamic(context.get(), shape, mask, blocks + 3, false);
    const Dense few = p.bias;
    p.bias = Dense(p.sum_dtype(), {1, blocks + 3});
    for (int64_t i = 0; i < blocks + 3; i++) p.bias.set(i, i < blocks ? few.get(i) : (double)NAN);
    p.layout.reset(tartan_layout_retain(dynamic.layout.get()));
    const auto [got, kernel] = bits_of(p);
    EXPECT_EQ(kernel, fixed_kernel);
    EXPECT_TRUE(got == fixed);
    p.bias = few;
    There there(context.get(), p);
    EXPECT_FAILS(SHAPE, "a number for each block", there.forward(context.get()));
}

TEST_P(BackendAttention, ExplainsItself) {
    std::mt19937_64 random(1);
    Attention p;
    p.heads = p.kv_heads = 2;
    p.layout = random_layout({32, 48, 16, 16, 1}, 1, 1);
    p.make(random);
    p.add_sinks(random);
    There there(context.get(), p);
    const std::string text = explained([&] {
        EXPECT_OK(there.forward(context.get()));
        EXPECT_OK(there.backward(context.get()));
        return there.bias_gradient(context.get());
    });
    for (const char *part :
         {"}, {\"operation\": \"attention_bias_gradient\"", "{\"name\": \"sinks_grad\"",
          "[{\"operation\": \"attention_forward\"", "}, {\"operation\": \"attention_backward\"",
          "{\"name\": \"layout\"", "{\"name\": \"sinks\"", "\"flops\": 196608,", "\"flops\": 491520,",
          "\"kernel\": \""})
        EXPECT_NE(std::string::npos, text.find(part)) << part << " in " << text;
}

} // namespace
