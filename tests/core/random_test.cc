// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <set>

#include "support.h"

extern "C" {
#include "core/random.h"
}

namespace {

using Words = std::array<uint32_t, 4>;

Words philox(uint64_t seed, uint32_t stream, uint64_t index, uint32_t counter) {
    Words out;
    tartan_i_philox(seed, stream, index, counter, out.data());
    return out;
}

// The known answers that Random123 publishes for philox4x32-10 (kat_vectors), with the counter's words
// mapped as random.c says: counter, index low, index high, stream.
TEST(Random, KnownAnswersOfPhilox) {
    EXPECT_EQ(philox(0, 0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(philox(0xffffffffffffffff, 0xffffffff, 0xffffffffffffffff, 0xffffffff),
              (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(philox(0x299f31d0a4093822, 0x03707344, 0x13198a2e85a308d3, 0x243f6a88),
              (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, EveryArgumentCounts) {
    std::set<Words> seen;
    for (uint64_t bit = 0; bit < 64; bit++) {
        seen.insert(philox((uint64_t)1 << bit, 0, 0, 0));
        seen.insert(philox(0, 0, (uint64_t)1 << bit, 0));
    }
    for (uint32_t bit = 0; bit < 32; bit++) {
        seen.insert(philox(0, (uint32_t)1 << bit, 0, 0));
        seen.insert(philox(0, 0, 0, (uint32_t)1 << bit));
    }
    EXPECT_EQ(seen.size(), 192u);
}

TEST(Random, SequenceIsTheCountersInTurn) {
    tartan_i_sequence s;
    tartan_i_sequence_begin(&s, 7, TARTAN_I_STREAM_PATTERN, 5);
    for (uint32_t counter = 0; counter < 50; counter++)
        for (uint32_t word : philox(7, TARTAN_I_STREAM_PATTERN, 5, counter))
            ASSERT_EQ(tartan_i_next(&s), word);
}

TEST(Random, BelowIsInRangeAndFair) {
    tartan_i_sequence s;
    tartan_i_sequence_begin(&s, 1, 1, 0);
    for (uint64_t n : {1ull, 2ull, 3ull, 10ull, 0x80000001ull, 0xffffffffull, 0x100000000ull, 0x100000001ull,
                       0x7fffffffffffffffull, 0x8000000000000001ull, 0xffffffffffffffffull})
        for (int i = 0; i < 1000; i++) ASSERT_LT(tartan_i_below(&s, n), n);
    for (int i = 0; i < 100; i++) ASSERT_EQ(tartan_i_below(&s, 1), 0u);

    const int draws = 70000;
    std::array<int, 7> counts{};
    for (int i = 0; i < draws; i++) counts[tartan_i_below(&s, 7)]++;
    double chi = 0;
    for (int c : counts) chi += (c - draws / 7.0) * (c - draws / 7.0) / (draws / 7.0);
    EXPECT_LT(chi, 22.5); // 0.1% of chi-squared with 6 degrees of freedom

    // Four words for three results: without rejection a multiple of 3 comes up twice as often as another number,
    // and with bare remainders the lower third does.
    int low = 0, threes = 0;
    for (int i = 0; i < draws; i++) {
        const uint64_t x = tartan_i_below(&s, 3ull << 30);
        low += x < 1ull << 30;
        threes += x % 3 == 0;
    }
    EXPECT_NEAR(low, draws / 3.0, 5 * std::sqrt(draws * 2 / 9.0));
    EXPECT_NEAR(threes, draws / 3.0, 5 * std::sqrt(draws * 2 / 9.0));
}

TEST(Random, UniformHasItsMoments) {
    tartan_i_sequence s;
    tartan_i_sequence_begin(&s, 2, 1, 0);
    const int n = 100000;
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        double u = tartan_i_uniform(&s);
        ASSERT_GE(u, 0);
        ASSERT_LT(u, 1);
        ASSERT_EQ(u, std::ldexp(std::floor(std::ldexp(u, 53)), -53)); // a multiple of 2^-53
        sum += u;
        squares += u * u;
    }
    EXPECT_NEAR(sum / n, 1 / 2.0, 5 * std::sqrt(1 / 12.0 / n));
    EXPECT_NEAR(squares / n, 1 / 3.0, 5 * std::sqrt(4 / 45.0 / n));
}

TEST(Random, NormalPairHasItsMoments) {
    const int n = 100000;
    double sum = 0, squares = 0, fourth = 0, product = 0;
    for (int i = 0; i < n; i++) {
        double pair[2], again[2];
        tartan_i_normal_pair(3, TARTAN_I_STREAM_NORMAL, (uint64_t)i, 0, pair);
        tartan_i_normal_pair(3, TARTAN_I_STREAM_NORMAL, (uint64_t)i, 0, again);
        ASSERT_TRUE(std::isfinite(pair[0]) && std::isfinite(pair[1]));
        ASSERT_EQ(pair[0], again[0]);
        ASSERT_EQ(pair[1], again[1]);
        for (double x : pair) {
            sum += x;
            squares += x * x;
            fourth += x * x * x * x;
        }
        product += pair[0] * pair[1];
    }
    EXPECT_NEAR(sum / (2 * n), 0, 5 / std::sqrt(2.0 * n));
    EXPECT_NEAR(squares / (2 * n), 1, 5 * std::sqrt(2 / (2.0 * n)));
    EXPECT_NEAR(fourth / (2 * n), 3, 5 * std::sqrt(96 / (2.0 * n)));
    EXPECT_NEAR(product / n, 0, 5 / std::sqrt(1.0 * n));
}

} // namespace
