// SPDX-License-Identifier: Apache-2.0
// Attention: sinks, queries that see nothing, scores that exp cannot take, values that are not finite, merged results, dropout.
#include "attention_support.h"

namespace {

using namespace tartan_test;

// ---- Sinks ----

TEST(Attention, SinksWithoutKeys) {
    const Context context = open_context(2);
    for (int32_t dtype : kDtypes) {
        Attention p = plain({40, 32, 16, 16, 2}, 0, dtype, 16);
        std::mt19937_64 random(1);
        p.add_sinks(random);
        p.sinks.set(0, 0.5), p.sinks.set(1, -(double)INFINITY);
        run_and_check(p, context.get());
        for (int64_t i = 0; i < 80; i++) EXPECT_EQ(i < 40 ? 0.5 : -(double)INFINITY, p.lse.get(i));
        for (int64_t i = 0; i < p.out.elements(); i++) EXPECT_EQ(0, p.out.get(i));
    }
}

// A sink of -infinity changes no bit; one of infinity takes all weights; NaN stays in its head.
TEST(Attention, SinksOfSpecialValues) {
    const Context context = open_context(2);
    for (int32_t dtype : kDtypes) {
        Attention p = plain({40, 48, 16, 16, 4}, 0.6, dtype, 16);
        p.layout =
            from_mask({40, 48, 16, 16, 1}, {1, 0, 1, 0, 0, 0, 1, 1, 0}); // the second row of blocks is empty
        ASSERT_OK(p.forward(context.get()));
        const Numbers out = numbers_of(p.out), lse = numbers_of(p.lse);
        std::mt19937_64 random(1);
        p.add_sinks(random);
        const double sinks[] = {-(double)INFINITY, (double)INFINITY, (double)NAN, -1e4};
        for (int64_t h = 0; h < 4; h++) p.sinks.set(h, sinks[h]);
        ASSERT_OK(p.forward(context.get()));
        for (int64_t i = 0; i < p.out.elements(); i++) {
            const int64_t head = i / 16 / 40, query = i / 16 % 40;
            const double got = p.out.get(i), sum = p.lse.get(i / 16);
            SCOPED_TRACE(::testing::Message() << tartan_dtype_name(dtype) << " element " << i);
            const double sums[] = {(double)lse[(size_t)(i / 16)], (double)INFINITY, (double)NAN,
                                   query / 16 == 1 ? -1e4 : (double)lse[(size_t)(i / 16)]};
            if (head == 2) {
                EXPECT_TRUE(std::isnan(got) && std::isnan(sum));
            } else {
                EXPECT_EQ(head == 1 ? 0 : (double)out[(size_t)i], got);
                EXPECT_EQ(sums[head], sum);
            }
            if (HasFailure()) return;
        }
    }
}

// A sink is a key whose value is 0.
TEST(Attention, ASinkIsAKeyWithoutAValue) {
    const Context context = open_context(2);
    Attention with = plain({32, 48, 16, 16, 1}, 1, TARTAN_F64, 16),
              without = plain({32, 49, 16, 16, 1}, 1, TARTAN_F64, 16);
    std::mt19937_64 random(1);
    with.add_sinks(random);
    with.sinks.set(0, 0);
    for (int64_t i = 0; i < 49 * 16; i++) {
        without.k.set(i, i < 48 * 16 ? with.k.get(i) : 0); // its score is 0
        without.v.set(i, i < 48 * 16 ? with.v.get(i) : 0);
    }
    for (int64_t i = 0; i < 32 * 16; i++)
        without.q.set(i, with.q.get(i)), without.out_grad.set(i, with.out_grad.get(i));
    for (Attention *p : {&with, &without}) {
        ASSERT_OK(p->forward(context.get()));
        ASSERT_OK(p->backward(context.get()));
    }
    for (int64_t i = 0; i < 32; i++) EXPECT_NEAR(without.lse.get(i), with.lse.get(i), 1e-14);
    for (int64_t i = 0; i < 32 * 16; i++) {
        EXPECT_NEAR(without.out.get(i), with.out.get(i), 1e-14);
        EXPECT_NEAR(without.q_grad.get(i), with.q_grad.get(i), 1e-14);
    }
    for (int64_t i = 0; i < 48 * 16; i++) {
        EXPECT_NEAR(without.k_grad.get(i), with.k_grad.get(i), 1e-14);
        EXPECT_NEAR(without.v_grad.get(i), with.v_grad.get(i), 1e-14);
    }
}

// ---- Special values ----

TEST(Attention, QueriesThatSeeNothing) {
    const Context context = open_context(2);
    for (int32_t dtype : kDtypes) {
        Attention p = plain({48, 32, 16, 16, 1}, 0, dtype, 16);
        p.layout = from_mask({48, 32, 16, 16, 1}, {0, 0, 0, 1, 1, 1}); // the first row of blocks is empty
        p.causal = true;
        p.query_offset = -24; // queries before 24 see no key either
        run_and_check(p, context.get());
        for (int64_t i = 0; i < 48; i++) {
            EXPECT_EQ(i < 24 || i - 24 < 0 || (i < 32 && i - 24 < 16), std::isinf(p.lse.get(i))) << i;
            if (!std::isinf(p.lse.get(i))) continue;
            for (int64_t t = 0; t < 16; t++) {
                EXPECT_EQ(0, p.out.get(i * 16 + t));
                EXPECT_EQ(0, p.q_grad.get(i * 16 + t));
            }
        }
    }
}

TEST(Attention, EmptyThings) {
    const Context context = open_context(2);
    for (const tartan_shape &shape : std::vector<tartan_shape>{
             {0, 16, 8, 8, 1}, {16, 0, 8, 8, 1}, {0, 0, 8, 8, 1}, {1, 1, 8, 8, 1}, {16, 1, 8, 8, 2}}) {
        for (int64_t d : {0, 16}) {
            Attention p = plain(shape, 1, TARTAN_F32, d);
            run_and_check(p, context.get());
            p.dtype = p.out_dtype = TARTAN_BF16;
            std::mt19937_64 random(1);
            p.make(random);
            run_and_check(p, context.get());
        }
    }
    Attention p = plain({16, 0, 8, 8, 1}, 1, TARTAN_F32, 16);
    ASSERT_OK(p.forward(context.get()));
    for (int64_t i = 0; i < 16; i++) EXPECT_EQ(-INFINITY, p.lse.get(i));
    for (int64_t i = 0; i < p.out.elements(); i++) EXPECT_EQ(0, p.out.get(i));
    p.batch = 0;
    std::mt19937_64 random(1);
    p.make(random);
    EXPECT_OK(p.forward(context.get()));
    EXPECT_OK(p.backward(context.get()));
}

// Scores that exp cannot take: only differences from the maximum matter.
TEST(Attention, LargeScores) {
    const Context context = open_context(2);
    for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_BF16}) {
        for (double sign : {1.0, -1.0}) {
            Attention p = plain({32, 600, 16, 16, 1}, 1, dtype, 16);
            p.scale = sign * 1e4 / 16; // scores are sums of 16 products of -1 or 1, so exact
            for (Dense *a : {&p.q, &p.k})
                for (int64_t i = 0; i < a->elements(); i++) a->set(i, a->get(i) < 0 ? -1 : 1);
            run_and_check(p, context.get(), 1e3); // within 1e4 * epsilon, which is half a unit of such scores
        }
    }
}

TEST(Attention, NanAndInfinityStayInTheirRows) {
    const Context context = open_context(2);
    for (int32_t dtype : kDtypes)
        for (double bad : {(double)NAN, (double)INFINITY, -(double)INFINITY}) {
            Attention p = plain({64, 64, 16, 16, 1}, 1, dtype, 16);
            ASSERT_OK(p.forward(context.get()));
            const Numbers good = numbers_of(p.out);
            p.q.set(20 * 16 + 3, bad);
            ASSERT_OK(p.forward(context.get()));
            for (int64_t i = 0; i < p.out.elements(); i++)
                if (i / 16 == 20)
                    EXPECT_TRUE(std::isnan(p.out.get(i))) << i;
                else
                    EXPECT_EQ((double)good[(size_t)i], p.out.get(i)) << i;
            EXPECT_TRUE(std::isnan(p.lse.get(20)));
        }
}

// Without visible keys between, two copies of the same keys have the weights of one.
TEST(Attention, LseMergesPartialResults) {
    const Context context = open_context(2);
    Attention all = plain({32, 96, 16, 16, 1}, 1, TARTAN_F64, 16),
              part = plain({32, 96, 16, 16, 1}, 1, TARTAN_F64, 16);
    ASSERT_OK(all.forward(context.get()));
    std::vector<uint8_t> left, right;
    for (int i = 0; i < 12; i++) left.push_back(i % 6 < 2), right.push_back(i % 6 >= 2);
    part.layout = from_mask({32, 96, 16, 16, 1}, left);
    ASSERT_OK(part.forward(context.get()));
    const Dense out = part.out, lse = part.lse;
    part.layout = from_mask({32, 96, 16, 16, 1}, right);
    ASSERT_OK(part.forward(context.get()));
    for (int64_t i = 0; i < 32; i++) {
        const double share = 1 / (1 + std::exp(part.lse.get(i) - lse.get(i)));
        for (int64_t t = 0; t < 16; t++)
            EXPECT_NEAR(all.out.get(i * 16 + t),
                        share * out.get(i * 16 + t) + (1 - share) * part.out.get(i * 16 + t), 1e-14);
    }
}

TEST(Attention, DropoutDropsTheShareItSays) {
    const Context context = open_context(2);
    Attention p = plain({256, 256, 32, 32, 1}, 1, TARTAN_F32, 1);
    p.dropout = 0.3;
    p.seed = 5;
    for (int64_t i = 0; i < p.v.elements(); i++) p.q.set(i, 0), p.v.set(i, 1);
    ASSERT_OK(p.forward(context.get()));
    double mean = 0; // each weight is 1/256; what is kept counts 1/0.7 of that
    for (int64_t i = 0; i < 256; i++) mean += p.out.get(i) / 256;
    EXPECT_NEAR(mean, 1, 0.01);
    const Numbers first = numbers_of(p.out);
    p.seed = 6;
    ASSERT_OK(p.forward(context.get()));
    EXPECT_NE(first, numbers_of(p.out));
}

// The same problem in smaller blocks is the same problem.
TEST(Attention, DoesNotDependOnBlocks) {
    const Context context = open_context(2);
    Attention p = plain({128, 128, 64, 64, 1}, 1, TARTAN_F64, 16);
    p.layout = from_mask({128, 128, 64, 64, 1}, {1, 0, 1, 1});
    p.causal = true;
    ASSERT_OK(p.forward(context.get()));
    const Numbers big = numbers_of(p.out);
    std::vector<uint8_t> mask;
    for (int i = 0; i < 64; i++) mask.push_back(!(i / 8 < 4 && i % 8 >= 4));
    p.layout = from_mask({128, 128, 16, 16, 1}, mask);
    ASSERT_OK(p.forward(context.get()));
    EXPECT_LE(error_of(numbers_of(p.out), big, big), 1e-15);
}

TEST(Attention, DynamicLayouts) {
    const Context context = open_context(2);
    for (int32_t dtype : {TARTAN_F32, TARTAN_BF16}) {
        Attention p = plain({40, 50, 16, 8, 2}, 0.5, dtype, 16);
        p.causal = true;
        ASSERT_OK(p.forward(context.get()));
        ASSERT_OK(p.backward(context.get()));
        const Numbers want[] = {numbers_of(p.out), numbers_of(p.q_grad), numbers_of(p.k_grad)};
        const tartan_layout *fixed = p.layout.get();
        std::vector<uint8_t> mask((size_t)(2 * fixed->grid_rows * fixed->grid_cols));
        ASSERT_OK(tartan_layout_get_mask(fixed, mask.data(), (int64_t)mask.size()));
        tartan_layout *raw = nullptr;
        tartan_array bytes = {};
        const int64_t shape[] = {2, fixed->grid_rows, fixed->grid_cols};
        ASSERT_OK(tartan_array_init(mask.data(), TARTAN_U8, 3, shape, nullptr, &bytes));
        ASSERT_OK(
            tartan_layout_from_device_mask(context.get(), &fixed->shape, &bytes, fixed->blocks + 3, &raw));
        p.layout.reset(raw);
        ASSERT_OK(p.forward(context.get()));
        ASSERT_OK(p.backward(context.get()));
        EXPECT_EQ(want[0], numbers_of(p.out));
        EXPECT_EQ(want[1], numbers_of(p.q_grad));
        EXPECT_EQ(want[2], numbers_of(p.k_grad));
    }
}

} // namespace
