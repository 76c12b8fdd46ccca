// SPDX-License-Identifier: Apache-2.0
// Attention: sinks, queries that see nothing, scores that exp cannot take, values that are not finite, dropout.
#include "attention_support.h"

namespace {

using namespace tartan_test;

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

} // namespace
