// SPDX-License-Identifier: Apache-2.0
// The rows of fused.def and random numbers: the same bits with every instruction set, and the words of Philox.
#include "../support/support.h"
#include "tables.h"

extern "C" {
#include "core/random.h"
}

namespace {

using namespace tartan_test;

class Fused : public ::testing::TestWithParam<tartan_i_cpu_features> {};
INSTANTIATE_TEST_SUITE_P(Each, Fused, ::testing::ValuesIn(feature_sets()),
                         [](const auto &set) { return features_name(set.param); });

template <typename T> void check_rows(const Tables<T> &tables) {
    const double special[] = {0, -0.0, INFINITY, NAN, 1e-40, 300};
    std::mt19937_64 random(21);
    for (int round = 0; round < rounds(1000); round++)
        for (int row = 0; row < TARTAN_I_FUSED_ROWS; row++) {
            const size_t n = round < 40 ? (size_t)round : below(random, round % 10 == 0 ? 400 : 80);
            std::vector<std::vector<T>> in(TARTAN_I_FUSED_IN, std::vector<T>(n)),
                want(TARTAN_I_FUSED_OUT, std::vector<T>(n)), got = want;
            double p[TARTAN_I_FUSED_PARAMETERS];
            const void *from[TARTAN_I_FUSED_IN];
            void *to[TARTAN_I_FUSED_OUT], *other[TARTAN_I_FUSED_OUT];
            for (double &one : p) one = std::uniform_real_distribution<double>(0.1, 1)(random);
            for (int k = 0; k < TARTAN_I_FUSED_IN; k++) {
                for (T &x : in[(size_t)k])
                    x = random() % 16 == 0 ? (T)special[random() % 6]
                                           : (T)std::uniform_real_distribution<double>(-3, 3)(random);
                from[k] = in[(size_t)k].data();
            }
            for (int k = 0; k < TARTAN_I_FUSED_OUT; k++)
                to[k] = want[(size_t)k].data(), other[k] = got[(size_t)k].data();
            tables.c.fused[row]((int64_t)n, p, from, to);
            tables.best.fused[row]((int64_t)n, p, from, other);
            for (int k = 0; k < TARTAN_I_FUSED_OUT; k++)
                for (size_t i = 0; i < n; i++)
                    ASSERT_TRUE(std::memcmp(&want[(size_t)k][i], &got[(size_t)k][i], sizeof(T)) == 0 ||
                                (std::isnan(want[(size_t)k][i]) && std::isnan(got[(size_t)k][i])))
                        << "row " << row << ", result " << k << ", element " << i;
        }
}

TEST_P(Fused, HaveTheBitsOfPortableC) {
    check_rows(Tables<float>(GetParam()));
    check_rows(Tables<double>(GetParam()));
}

// `size` is what normal numbers of a pair are made of.
double number(const tartan_i_drawing &of, uint64_t n, bool wide, double *size) {
    uint32_t words[4];
    double two[2];
    const bool four = of.draw == TARTAN_I_DRAW_KEPT || of.draw == TARTAN_I_DRAW_WORD;
    tartan_i_philox(of.seed, of.stream, four ? n / 4 : n / 2, of.place, words);
    if (of.draw == TARTAN_I_DRAW_WORD) return wide ? words[n % 4] * 0x1p-32 : (words[n % 4] >> 8) * 0x1p-24;
    if (of.draw == TARTAN_I_DRAW_KEPT) return words[n % 4] >= of.threshold;
    if (of.draw == TARTAN_I_DRAW_NORMAL) {
        tartan_i_normal_pair(of.seed, of.stream, n / 2, of.place, two);
        *size = std::hypot(two[0], two[1]);
        return two[n % 2];
    }
    const uint64_t both = (uint64_t)words[n % 2 * 2] << 32 | words[n % 2 * 2 + 1];
    return wide ? (double)(both >> 11) * 0x1p-53 : (double)(both >> 40) * 0x1p-24;
}

template <typename T> void check_numbers(const Tables<T> &tables) {
    std::mt19937_64 random(22);
    for (int round = 0; round < rounds(1000); round++) {
        tartan_i_drawing of = {};
        of.draw = (tartan_i_draw)(TARTAN_I_DRAW_KEPT + (int)below(random, 4));
        of.stream = (uint32_t)random(), of.seed = random(), of.threshold = (uint32_t)random(),
        of.place = (uint32_t)random();
        const uint64_t first = random() % 3 == 0 ? random() >> 3 : below(random, 200);
        const size_t n = round < 40 ? (size_t)round : below(random, 300);
        Guarded<T> out(n, below(random, 16));
        std::vector<T> portable(n);
        tables.best.draw(&of, first, (int64_t)n, out.data());
        tables.c.draw(&of, first, (int64_t)n, portable.data());
        for (size_t i = 0; i < n; i++) {
            double size = 0;
            const double want = number(of, first + i, sizeof(T) == 8, &size), got = (double)out.data()[i];
            const double eps =
                of.draw == TARTAN_I_DRAW_NORMAL ? (double)std::numeric_limits<T>::epsilon() : 0;
            ASSERT_NEAR(want, got, eps / 2 * std::fabs(want) + 0x1p-50 * size)
                << i; // angles in radians are rounded
            ASSERT_EQ((double)portable[i], got) << i;
        }
        EXPECT_TRUE(out.intact());
    }
}

TEST_P(Fused, NumbersAreThoseOfPhilox) {
    check_numbers(Tables<float>(GetParam()));
    check_numbers(Tables<double>(GetParam()));
}

} // namespace
