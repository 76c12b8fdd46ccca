// SPDX-License-Identifier: Apache-2.0
// Every row of steps.def: the same bits with every instruction set. tests/ops and tests/backend check values.
#include "tables.h"

namespace {

using namespace tartan_test;

class Steps : public ::testing::TestWithParam<tartan_i_cpu_features> {};
INSTANTIATE_TEST_SUITE_P(Each, Steps, ::testing::ValuesIn(feature_sets()),
                         [](const auto &set) { return features_name(set.param); });

std::vector<double> numbers(size_t n, std::mt19937_64 &random) {
    const double special[] = {0.0, -0.0, 0.5, -1.5, INFINITY, -INFINITY, NAN, 0x1p-1074, -0x1p52, 0x1.8p51};
    std::vector<double> x(n);
    fill(x.data(), n, random);
    for (double &one : x)
        if (random() % 8 == 0) one = special[random() % (sizeof special / sizeof *special)];
    return x;
}

// Equal bits, or both NaN.
void expect_same(const std::vector<double> &want, Guarded<double> &got, const std::string &what) {
    EXPECT_TRUE(got.intact()) << what;
    for (size_t i = 0; i < want.size(); i++) {
        const double one = got.data()[i];
        ASSERT_TRUE(std::memcmp(&want[i], &one, sizeof one) == 0 || (std::isnan(want[i]) && std::isnan(one)))
            << what << ", element " << i << ": " << one << ", not " << want[i];
    }
}

TEST_P(Steps, OfElementsHaveTheSameBits) {
    const Tables<double> tables(GetParam());
    std::mt19937_64 random(1);
    for (int row = 0; row < TARTAN_I_STEPS; row++)
        for (size_t i = 0; i < rounds((size_t)1000); i++) {
            const size_t n = i < 70 ? i : below(random, 200);
            const std::vector<double> x = numbers(n, random), y = numbers(n, random);
            const double p = (double)below(random, 9) / 2 - 1, q = -1.25;
            std::vector<double> want(n);
            Guarded<double> got(n, below(random, 16));
            tables.c.steps->step[row]((int64_t)n, p, q, x.data(), y.data(), want.data());
            tables.best.steps->step[row]((int64_t)n, p, q, x.data(), y.data(), got.data());
            expect_same(want, got, "step " + std::to_string(row) + ", n = " + std::to_string(n));
        }
}

TEST_P(Steps, OfChainsHaveTheSameBits) {
    const Tables<double> tables(GetParam());
    std::mt19937_64 random(2);
    for (int row = 0; row < TARTAN_I_CHAINS; row++)
        for (size_t i = 0; i < rounds((size_t)1000); i++) {
            const size_t n = i < 70 ? i : below(random, 200);
            const size_t rows = below(random, 40);
            const std::vector<double> x = numbers(rows * n, random), units = numbers(n, random);
            std::vector<double> want = numbers(n, random);
            Guarded<double> got(n, below(random, 16));
            std::copy(want.begin(), want.end(), got.data());
            tables.c.steps->chain[row]((int64_t)rows, (int64_t)n, x.data(), units.data(), want.data());
            tables.best.steps->chain[row]((int64_t)rows, (int64_t)n, x.data(), units.data(), got.data());
            expect_same(want, got, "chain " + std::to_string(row) + ", n = " + std::to_string(n));
        }
}

// Chains with elements of their own: those of one instruction set are those of all, and of `chain`.
TEST_P(Steps, OfRunsHaveTheSameBits) {
    const Tables<double> tables(GetParam());
    std::mt19937_64 random(4);
    for (int row = 0; row < TARTAN_I_CHAINS; row++)
        for (size_t i = 0; i < rounds((size_t)300); i++) {
            const size_t n = i < 40 ? i : below(random, 60);
            const int64_t length = 1 + (int64_t)below(random, 5), stride = length + (int64_t)below(random, 4);
            const std::vector<double> x = numbers(1000, random), units = numbers(n, random);
            std::vector<const double *> begins(n);
            std::vector<int64_t> counts(n);
            for (size_t j = 0; j < n; j++)
                begins[j] = &x[below(random, 500)], counts[j] = (int64_t)below(random, 40);
            std::vector<double> want = numbers(n, random);
            Guarded<double> got(n, below(random, 16)), best(n, 0);
            std::copy(want.begin(), want.end(), got.data());
            std::copy(want.begin(), want.end(), best.data());
            for (size_t j = 0; j < n; j++)
                for (int64_t k = 0; k < counts[j]; k++)
                    tables.c.steps->chain[row](length, 1, begins[j] + k * stride, &units[j], &want[j]);
            for (const auto &[table, to] : {std::pair{&tables.c, got.data()}, {&tables.best, best.data()}})
                table->steps->runs[row]((int64_t)n, begins.data(), counts.data(), length, stride,
                                        units.data(), to);
            expect_same(want, got, "runs " + std::to_string(row) + ", n = " + std::to_string(n));
            expect_same(want, best, "runs " + std::to_string(row) + ", n = " + std::to_string(n));
        }
}

// Chains that are continued are one chain.
TEST_P(Steps, ChainsGoOn) {
    const Tables<double> tables(GetParam());
    std::mt19937_64 random(3);
    for (int row = 0; row < TARTAN_I_CHAINS; row++) {
        const std::vector<double> x = numbers(20 * 5, random), units = numbers(5, random);
        std::vector<double> want(5, 1);
        Guarded<double> got(5, 0);
        std::copy(want.begin(), want.end(), got.data());
        tables.best.steps->chain[row](20, 5, x.data(), units.data(), want.data());
        tables.best.steps->chain[row](7, 5, x.data(), units.data(), got.data());
        tables.best.steps->chain[row](13, 5, x.data() + 7 * 5, units.data(), got.data());
        expect_same(want, got, "chain " + std::to_string(row));
    }
}

} // namespace
