// SPDX-License-Identifier: Apache-2.0
#include "products.h"

#include <sstream>

namespace {

using namespace tartan_test;

struct Growth {
    tartan_shape shape = {};
    int32_t norm = TARTAN_NORM_MAX;
    double scale = 1, beta = 0;
    std::vector<Dense> x, y;
    Dense score;

    static Growth make(uint64_t seed) {
        std::mt19937_64 random(seed);
        Growth p;
        p.shape = {(int64_t)below(random, 80), (int64_t)below(random, 80), (int64_t)(1 + below(random, 17)),
                   (int64_t)(1 + below(random, 17)), 1};
        p.norm = pick(random, {(int)TARTAN_NORM_MAX, (int)TARTAN_NORM_L2});
        p.scale = pick(random, {1.0, -0.5, 0.0});
        p.beta = pick(random, {0.0, 0.7});
        const int32_t dtype = kDtypes[below(random, 4)];
        for (size_t pairs = 1 + below(random, 3); pairs > 0; pairs--) {
            const int64_t k = pick(random, {0, 1, 5, 64, 300});
            p.x.emplace_back(dtype, std::vector<int64_t>{p.shape.rows, k}, (Style)below(random, kStyles));
            p.y.emplace_back(dtype, std::vector<int64_t>{k, p.shape.cols}, (Style)below(random, kStyles));
            p.x.back().fill(random);
            p.y.back().fill(random);
        }
        p.score = Dense(tartan_i_sum_dtype(dtype),
                        {grid(p.shape.rows, p.shape.block_rows), grid(p.shape.cols, p.shape.block_cols)},
                        (Style)below(random, kRepeated));
        p.score.fill(random);
        return p;
    }
    tartan_status run(tartan_context *context, Dense *out) const {
        std::vector<tartan_array> xs, ys;
        for (const auto &d : x) xs.push_back(d.array);
        for (const auto &d : y) ys.push_back(d.array);
        const int64_t block[] = {shape.block_rows, shape.block_cols};
        std::ostringstream options;
        options << "norm=" << (norm == TARTAN_NORM_MAX ? "max" : "l2") << " scale=" << scale
                << " beta=" << beta;
        return tartan_growth_score(context, xs.data(), ys.data(), (int64_t)xs.size(), block, 2,
                                   options.str().c_str(), &out->array);
    }
    double norm_of(const Dense &d, bool columns, int64_t block, int64_t k, int64_t size) const {
        const int64_t edge = columns ? shape.block_cols : shape.block_rows,
                      all = columns ? shape.cols : shape.rows;
        double most = 0, squares = 0;
        for (int64_t i = block * edge; i < std::min(all, (block + 1) * edge); i++) {
            const double v = d.get(columns ? k * all + i : i * size + k);
            most = std::max(most, std::fabs(v));
            squares += v * v;
        }
        return norm == TARTAN_NORM_MAX ? most : std::sqrt(squares);
    }
    void check(const Dense &got) const {
        for (int64_t i = 0; i < got.array.shape[0]; i++) {
            for (int64_t j = 0; j < got.array.shape[1]; j++) {
                Chain chain(x[0].array.dtype);
                for (size_t p = 0; p < x.size(); p++) {
                    const int64_t n = x[p].array.shape[1];
                    for (int64_t k = 0; k < n; k++)
                        chain.add(norm_of(x[p], false, i, k, n), norm_of(y[p], true, j, k, n));
                }
                const int64_t at = i * got.array.shape[1] + j;
                ASSERT_TRUE(chain.within(got.get(at), scale, beta, score.get(at), got.array.dtype))
                    << i << ", " << j << ": " << got.get(at);
            }
        }
    }
};

TEST(GrowthScore, RandomCases) {
    Context contexts[] = {open_context(1), open_context(3)};
    for (uint64_t seed = 0; seed < rounds(400u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const WithFeatures with(feature_sets()[seed % feature_sets().size()]);
        const Growth p = Growth::make(seed);
        Dense got = p.score;
        ASSERT_OK(p.run(contexts[seed % 2].get(), &got));
        p.check(got);
        if (HasFailure()) return;
    }
}

TEST(GrowthScore, SameBitsForKernelsAndThreads) {
    for (uint64_t seed = 0; seed < 40; seed++) {
        const Growth p = Growth::make(seed);
        Dense first = p.score;
        ASSERT_OK(p.run(open_context(1).get(), &first));
        for (const auto set : feature_sets()) {
            const WithFeatures with(set);
            for (int32_t threads : {1, 2, 3, 7}) {
                Dense got = p.score;
                ASSERT_OK(p.run(open_context(threads).get(), &got));
                ASSERT_EQ(first.memory(), got.memory()) << "seed " << seed;
            }
        }
    }
}

// The same bits for any threads and instruction sets, and zero where all terms cancel or a number is not finite.
TEST(GrowthScore, NormsOfTheGradient) {
    std::mt19937_64 random(9);
    Dense x(TARTAN_F32, {70, 50}), y(TARTAN_F32, {50, 150}), first(TARTAN_F32, {9, 10});
    x.fill(random), y.fill(random);
    const int64_t block[] = {8, 15};
    const auto run = [&](tartan_context *context, Dense &score) {
        return tartan_growth_score(context, &x.array, &y.array, 1, block, 2, "norm=gradient", &score.array);
    };
    ASSERT_OK(run(open_context(1).get(), first));
    for (const auto set : feature_sets()) {
        const WithFeatures with(set);
        for (int32_t threads : {1, 2, 3, 7}) {
            Dense got(TARTAN_F32, {9, 10});
            ASSERT_OK(run(open_context(threads).get(), got));
            ASSERT_EQ(first.memory(), got.memory());
        }
    }
    for (int64_t r = 0; r < 8; r++)
        for (int64_t k = 0; k < 50; k++) x.set(r * 50 + k, k % 2 == 0 ? 1 : -1);
    for (int64_t k = 0; k < 50; k++)
        for (int64_t c = 0; c < 15; c++) y.set(k * 150 + c, 1);
    x.set(8 * 50, NAN);
    ASSERT_OK(run(open_context(2).get(), first));
    EXPECT_EQ(0, first.get(0));
    for (int64_t j = 0; j < 10; j++) EXPECT_EQ(0, first.get(10 + j));
    EXPECT_LT(0, first.get(25));
}

// openai/blocksparse's test of the reduced gradient: blocks of 32, a grid of 2 x 4, 8 time steps, N = 64, f16.
TEST(GrowthScore, ReducedGradientOfEightSteps) {
    Context context = open_context(1);
    std::mt19937_64 random(8);
    for (int32_t norm : {TARTAN_NORM_MAX, TARTAN_NORM_L2}) {
        Growth p;
        p.shape = {64, 128, 32, 32, 1};
        p.norm = norm;
        for (int step = 0; step < 8; step++) {
            p.x.emplace_back(TARTAN_F16, std::vector<int64_t>{64, 64});
            p.y.emplace_back(TARTAN_F16, std::vector<int64_t>{64, 128});
            p.x.back().fill(random);
            p.y.back().fill(random);
        }
        p.score = Dense(TARTAN_F32, {2, 4});
        Dense got = p.score;
        ASSERT_OK(p.run(context.get(), &got));
        p.check(got);
    }
}

TEST(GrowthScore, WhatIsNotFiniteBecomesZero) {
    Context context = open_context(1);
    for (int32_t norm : {TARTAN_NORM_MAX, TARTAN_NORM_L2}) {
        for (double bad : {(double)NAN, (double)INFINITY, -(double)INFINITY}) {
            Dense x(TARTAN_F32, {4, 2}), y(TARTAN_F32, {2, 4}), score(TARTAN_F32, {2, 2});
            for (int64_t i = 0; i < 8; i++) x.set(i, 1), y.set(i, 1);
            x.set(0, bad);
            const int64_t block[] = {2, 2};
            ASSERT_OK(tartan_growth_score(context.get(), &x.array, &y.array, 1, block, 2,
                                          norm == TARTAN_NORM_MAX ? nullptr : "norm=l2", &score.array));
            EXPECT_EQ(0, score.get(0));
            EXPECT_EQ(0, score.get(1));
            EXPECT_NEAR(norm == TARTAN_NORM_MAX ? 2 : 4, score.get(2), 1e-6);
        }
    }
}

TEST(GrowthScore, ASecondCallNeedsNoMemory) {
    const Context context = open_context(2);
    Growth p = Growth::make(3);
    Dense first = p.score, second = p.score;
    ASSERT_OK(p.run(context.get(), &first));
    tartan_i_memory_fail_at(0);
    const tartan_status status = p.run(context.get(), &second);
    tartan_i_memory_fail_at(-1);
    ASSERT_OK(status);
    p.check(second);
}

// What the function of shapes refuses; tests/ops/schema_test.cc has the rest.
TEST(GrowthScore, Refusals) {
    Context context = open_context(1);
    Dense score(TARTAN_F32, {2, 3});
    const auto call = [&](const std::vector<Dense> &x, const std::vector<Dense> &y,
                          const std::vector<int64_t> &block) {
        std::vector<tartan_array> xs, ys;
        for (const auto &d : x) xs.push_back(d.array);
        for (const auto &d : y) ys.push_back(d.array);
        return tartan_growth_score(context.get(), xs.data(), ys.data(), (int64_t)xs.size(), block.data(),
                                   (int64_t)block.size(), nullptr, &score.array);
    };
    const auto of = [](const std::vector<int64_t> &shape) { return Dense(TARTAN_F32, shape); };
    EXPECT_OK(call({of({4, 3}), of({4, 5})}, {of({3, 6}), of({5, 6})}, {2, 2}));
    EXPECT_FAILS(SHAPE, "tartan_growth_score: x has shape [1, 4, 3], expected 2 dimensions",
                 call({of({1, 4, 3})}, {of({3, 6})}, {2, 2}));
    EXPECT_FAILS(SHAPE, "y has shape [6], expected 2 dimensions", call({of({4, 3})}, {of({6})}, {2, 2}));
    EXPECT_FAILS(SHAPE, "x has shape [5, 3], expected [4, 3], which is [m, k]",
                 call({of({4, 3}), of({5, 3})}, {of({3, 6}), of({3, 6})}, {2, 2}));
    EXPECT_FAILS(SHAPE, "y has shape [4, 6], expected [3, 6], which is [k, n]",
                 call({of({4, 3})}, {of({4, 6})}, {2, 2}));
    EXPECT_FAILS(SHAPE, "y has shape [3, 7], expected [3, 6], which is [k, n]",
                 call({of({4, 3}), of({4, 3})}, {of({3, 6}), of({3, 7})}, {2, 2}));
    EXPECT_FAILS(SHAPE,
                 "score has shape [2, 3], expected [4, 2], which is [rows, columns of the grid of blocks]",
                 call({of({4, 3})}, {of({3, 6})}, {1, 3}));
    EXPECT_FAILS(SHAPE, "block has 0 entries, expected rows and columns",
                 call({of({4, 3})}, {of({3, 6})}, {}));
    EXPECT_FAILS(SHAPE, "block has 3 entries", call({of({4, 3})}, {of({3, 6})}, {2, 2, 2}));
    EXPECT_FAILS(ARGUMENT, "block is 0 x 2, expected 1 .. 256 each",
                 call({of({4, 3})}, {of({3, 6})}, {0, 2}));
    EXPECT_FAILS(ARGUMENT, "block is 2 x 257, expected 1 .. 256 each",
                 call({of({4, 3})}, {of({3, 6})}, {2, 257}));
    Dense long_x = of({1, 3}), long_y = of({3, 1});
    long_x.array.shape[0] = INT64_C(1) << 31, long_x.array.strides[0] = 0;
    EXPECT_FAILS(OVERFLOW, "the grid has 2147483648 x 6 blocks, expected at most 2^31 - 1 a side",
                 call({long_x}, {of({3, 6})}, {1, 1}));
    long_y.array.shape[1] = INT64_C(1) << 31, long_y.array.strides[1] = 0;
    EXPECT_FAILS(OVERFLOW, "the grid has 4 x 2147483648 blocks", call({of({4, 3})}, {long_y}, {1, 1}));
}

} // namespace
