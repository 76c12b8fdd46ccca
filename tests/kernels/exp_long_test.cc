// SPDX-License-Identifier: Apache-2.0
// exp of every f32: a minute or two.
#include "exp_error.h"

#include <thread>

extern "C" {
#include "exp_oracle.h"
}

namespace {

using namespace tartan_test;

constexpr uint64_t kAll = uint64_t(1) << 32, kLine = 4096;

double worst_of_lines(uint64_t begin, uint64_t end) {
    const std::vector<Tables<float>> tables = all_tables<float>();
    std::vector<float> x(kLine);
    double worst = 0;
    for (uint64_t line = begin; line < end && !::testing::Test::HasFailure(); line++) {
        for (uint64_t i = 0; i < kLine; i++) x[i] = f32_of_bits((uint32_t)(line * kLine + i));
        worst = std::max(worst, tartan_test_exp_units(kLine, x.data(), exp_by_all(tables, x).data()));
    }
    return worst;
}

TEST(ExpLong, OfEveryF32IsWithinOneUnit) {
    const uint64_t lines = kAll / kLine, parts = std::max(1u, std::thread::hardware_concurrency());
    std::vector<double> worst(parts);
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < parts; i++)
        threads.emplace_back(
            [&, i] { worst[i] = worst_of_lines(lines * i / parts, lines * (i + 1) / parts); });
    for (std::thread &thread : threads) thread.join();
    const double most = *std::max_element(worst.begin(), worst.end());
    RecordProperty("units", std::to_string(most));
    EXPECT_GT(most, 0.5); // nothing rounded is better
    EXPECT_LT(most, 1);
}

// The oracle, of right and of wrong results, beside libm.
TEST(ExpLong, OracleAgreesWithTheMathLibrary) {
    for (uint64_t bits = 0; bits < kAll; bits += 10007) {
        const float x = f32_of_bits((uint32_t)bits), right = (float)wide_exp(x);
        for (float got : {right, right * (1 + 0x1p-20f), right / 2 + 3}) {
            const double want = units(got, wide_exp(x));
            const std::vector<float> in(8, x), out(8, got);
            const double found = tartan_test_exp_units(8, in.data(), out.data());
            if (std::isinf(want) || std::isinf(found))
                ASSERT_EQ(want, found) << x << ' ' << got;
            else
                ASSERT_NEAR(want, found, 0x1p-20 * std::max(1., want)) << x << ' ' << got;
        }
    }
    for (int lane = 0; lane < 8; lane++) { // each lane counts, NaN is unlike every number
        std::vector<float> in(8, 1), out(8, (float)wide_exp(1.f));
        out[lane] = 3;
        EXPECT_GT(tartan_test_exp_units(8, in.data(), out.data()), 1e6);
        out[lane] = NAN;
        EXPECT_EQ(INFINITY, tartan_test_exp_units(8, in.data(), out.data()));
        in[lane] = NAN;
        EXPECT_LT(tartan_test_exp_units(8, in.data(), out.data()), 1);
    }
}

} // namespace
