// SPDX-License-Identifier: Apache-2.0
// The gradients of attention's bias and sinks against an oracle.
#include "attention_support.h"

namespace {

using namespace tartan_test;

const tartan_i_bias kKinds[] = {TARTAN_I_BIAS_NONE, TARTAN_I_BIAS_SLOPES, TARTAN_I_BIAS_DISTANCE,
                                TARTAN_I_BIAS_BLOCK, TARTAN_I_BIAS_DENSE};

// A problem with a bias of this kind, and with sinks.
Attention problem(const tartan_shape &shape, tartan_i_bias kind, int32_t dtype, int64_t heads = 4,
                  int64_t kv_heads = 2, int64_t batch = 2, uint64_t seed = 1) {
    std::mt19937_64 random(seed);
    Attention p;
    p.dtype = p.out_dtype = dtype;
    p.batch = batch, p.heads = heads, p.kv_heads = kv_heads, p.d = 12;
    p.layout = random_layout(shape, 0.6, seed);
    p.make(random);
    if (kind != TARTAN_I_BIAS_NONE) p.add_bias(kind, random);
    p.add_sinks(random);
    return p;
}

void check(Attention &p) {
    const AttentionResults want = p.results();
    EXPECT_LE(p.bias_kind == TARTAN_I_BIAS_NONE ? 0 : error_of(p.bias_grad, want.bias_grad), allowed(p));
    EXPECT_LE(p.has_sinks ? error_of(p.sinks_grad, want.sinks_grad) : 0, allowed(p));
}

void check_bias_gradient(Attention &p, tartan_context *context) {
    ASSERT_OK(p.forward(context));
    ASSERT_OK(p.bias_gradient(context));
    check(p);
}

// Any problem that has such a gradient.
Attention any_problem(uint64_t seed) {
    std::mt19937_64 random(seed);
    Attention p = make_attention(seed);
    if (p.bias_kind == TARTAN_I_BIAS_NONE) p.add_bias(kKinds[1 + below(random, 4)], random);
    return p;
}

TEST(AttentionBias, RandomProblemsEqualTheOracle) {
    Context contexts[] = {open_context(1), open_context(2), open_context(3), open_context(7)};
    for (uint64_t seed = 30000; seed < 30000 + rounds(300u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const WithFeatures with(feature_sets()[seed % feature_sets().size()]);
        Attention p = any_problem(seed);
        check_bias_gradient(p, contexts[seed / 3 % 4].get());
        if (HasFailure()) return;
    }
}

// More rows of blocks than slots, more keys than a chunk has, and more entries than are packed at a time.
TEST(AttentionBias, LongProblems) {
    Context one = open_context(1), three = open_context(3);
    for (tartan_i_bias kind : kKinds) {
        SCOPED_TRACE(::testing::Message() << "kind " << kind);
        Attention tall = problem({600, 20, 2, 8, 1}, kind, TARTAN_F32, 2, 1);
        Attention wide = problem({40, 1500, 16, 24, 1}, kind, TARTAN_F64, 2, 2, 1);
        wide.causal = true, wide.query_offset = 1460;
        Attention many = problem({9, 3000, 4, 64, 1}, kind, TARTAN_F64, 12, 12, 10);
        for (Attention *p : {&tall, &wide, &many}) {
            check_bias_gradient(*p, one.get());
            const std::vector<char> bias_grad = p->bias_grad.memory(), sinks_grad = p->sinks_grad.memory();
            ASSERT_OK(p->forward(three.get()));
            ASSERT_OK(p->bias_gradient(three.get()));
            EXPECT_EQ(bias_grad, p->bias_grad.memory());
            EXPECT_EQ(sinks_grad, p->sinks_grad.memory());
        }
    }
}

TEST(AttentionBias, Heads) {
    Context context = open_context(2);
    for (int64_t layout_heads : {1, 4, 12}) // shared, q's, or heads of all batch entries
        for (int32_t dtype : kDtypes)
            for (tartan_i_bias kind : kKinds) {
                SCOPED_TRACE(::testing::Message() << layout_heads << " " << dtype << " kind " << kind);
                Attention p = problem({40, 50, 16, 8, layout_heads}, kind, dtype, 4, 2, 3, 5);
                check_bias_gradient(p, context.get());
            }
}

// A single head, whose batch entries share blocks, or each have their own.
TEST(AttentionBias, BatchOfOneHead) {
    Context context = open_context(2);
    for (int64_t layout_heads : {1, 3})
        for (tartan_i_bias kind : kKinds) {
            SCOPED_TRACE(::testing::Message() << layout_heads << " kind " << kind);
            Attention p = problem({40, 50, 16, 8, layout_heads}, kind, TARTAN_F64, 1, 1, 3, 5);
            check_bias_gradient(p, context.get());
        }
}

// One may be left out, and the other has the same bits then.
TEST(AttentionBias, OneOfThem) {
    Context context = open_context(2);
    Attention p = problem({40, 50, 16, 8, 1}, TARTAN_I_BIAS_DISTANCE, TARTAN_F32);
    check_bias_gradient(p, context.get());
    const Dense bias = p.bias_grad, sinks = p.sinks_grad;
    std::mt19937_64 random(7);
    p.bias_grad.fill(random), p.sinks_grad.fill(random);
    const auto call = [&](tartan_array *bias_grad, tartan_array *sinks_grad) {
        return attention_bias_gradient(context.get(), p.layout.get(), &p.q.array, &p.k.array, &p.v.array,
                                       "bias_kind=distance", nullptr, &p.bias.array, &p.sinks.array,
                                       &p.out.array, &p.lse.array, &p.out_grad.array, bias_grad, sinks_grad);
    };
    ASSERT_OK(call(&p.bias_grad.array, nullptr));
    EXPECT_EQ(bias.memory(), p.bias_grad.memory());
    EXPECT_NE(sinks.memory(), p.sinks_grad.memory());
    ASSERT_OK(call(nullptr, &p.sinks_grad.array));
    EXPECT_EQ(sinks.memory(), p.sinks_grad.memory());
}

TEST(AttentionBias, EmptyThings) {
    const Context context = open_context(2);
    for (tartan_i_bias kind : kKinds)
        for (const tartan_shape &shape : std::vector<tartan_shape>{
                 {0, 16, 8, 8, 1}, {16, 0, 8, 8, 1}, {0, 0, 8, 8, 1}, {16, 16, 8, 8, 1}, {16, 16, 8, 8, 2}})
            for (int64_t batch : {0, 2})
                for (int64_t d : {0, 4}) {
                    SCOPED_TRACE(::testing::Message() << "kind " << kind << " of " << shape.rows << " x "
                                                      << shape.cols << " batch " << batch << " d " << d);
                    Attention p = problem(shape, kind, TARTAN_F32, 2, 1, batch);
                    std::mt19937_64 random(2);
                    p.d = d;
                    p.make(random);
                    if (shape.rows * shape.cols > 0) p.layout = random_layout(shape, 0, 1);
                    if (kind == TARTAN_I_BIAS_BLOCK) p.add_bias(kind, random);
                    check_bias_gradient(p, context.get());
                    for (int64_t i = 0; kind != TARTAN_I_BIAS_NONE && i < p.bias_grad.elements(); i++)
                        EXPECT_EQ(0, p.bias_grad.get(i));
                    for (int64_t i = 0; i < 2; i++) EXPECT_EQ(0, p.sinks_grad.get(i));
                }
    Attention p = problem({16, 16, 8, 8, 1}, TARTAN_I_BIAS_DISTANCE, TARTAN_F32, 0, 0);
    p.bias = p.bias_grad = Dense(TARTAN_F32, {1, 5});
    ASSERT_OK(p.bias_gradient(context.get()));
    for (int64_t i = 0; i < 5; i++) EXPECT_EQ(0, p.bias_grad.get(i)); // no head has any
}

TEST(AttentionBias, SpecialSinks) {
    const Context context = open_context(2);
    for (int32_t dtype : kDtypes) {
        Attention p = problem({40, 48, 16, 16, 1}, TARTAN_I_BIAS_SLOPES, dtype);
        const double sinks[] = {-(double)INFINITY, (double)INFINITY, (double)NAN, 0.5};
        for (int64_t h = 0; h < 4; h++) p.sinks.set(h, sinks[h]);
        ASSERT_OK(p.forward(context.get()));
        ASSERT_OK(p.bias_gradient(context.get()));
        EXPECT_EQ(0, p.sinks_grad.get(0));
        EXPECT_EQ(0, p.sinks_grad.get(1));
        EXPECT_EQ(0, p.bias_grad.get(1)); // nothing is left to the keys
        EXPECT_TRUE(std::isnan(p.sinks_grad.get(2)) && std::isnan(p.bias_grad.get(2)));
        for (int64_t h : {0, 3}) EXPECT_TRUE(std::isfinite(p.bias_grad.get(h)) && p.bias_grad.get(h) != 0);
        EXPECT_TRUE(std::isfinite(p.sinks_grad.get(3)) && p.sinks_grad.get(3) != 0);
    }
}

// Where every bias is minus infinity, a query has no weights, and its log-sum-exp is minus infinity, too.
TEST(AttentionBias, QueriesWithoutWeights) {
    const Context context = open_context(2);
    for (int32_t dtype : kDtypes)
        for (tartan_i_bias kind : {TARTAN_I_BIAS_DISTANCE, TARTAN_I_BIAS_BLOCK}) {
            SCOPED_TRACE(::testing::Message() << dtype << " kind " << kind);
            Attention p = problem({40, 48, 16, 16, 1}, kind, dtype);
            p.has_sinks = false;
            for (int64_t i = 0; i < p.bias.elements(); i++) p.bias.set(i, -INFINITY);
            ASSERT_OK(p.forward(context.get()));
            EXPECT_EQ(-INFINITY, p.lse.get(0));
            ASSERT_OK(p.bias_gradient(context.get()));
            for (int64_t i = 0; i < p.bias_grad.elements(); i++) ASSERT_EQ(0, p.bias_grad.get(i)) << i;
        }
}

TEST(AttentionBias, NoGradientThatIsAskedFor) {
    Context context = open_context(1);
    Attention p = problem({32, 48, 16, 16, 1}, TARTAN_I_BIAS_SLOPES, TARTAN_F32);
    EXPECT_FAILS(
        ARGUMENT,
        "tartan_attention_bias_gradient: bias_grad and sinks_grad are NULL, expected at least one of them",
        attention_bias_gradient(context.get(), p.layout.get(), &p.q.array, &p.k.array, &p.v.array,
                                "bias_kind=slopes", nullptr, &p.bias.array, &p.sinks.array, &p.out.array,
                                &p.lse.array, &p.out_grad.array, nullptr, nullptr));
}

} // namespace
