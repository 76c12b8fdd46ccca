// SPDX-License-Identifier: Apache-2.0
// Optimisers whose parameters are rounded at random, on every backend.
#include "optimisers.h"

extern "C" {
#include "core/random.h"
}

#include <cmath>

namespace {

using namespace tartan_test;

class BackendRounding : public OnBackend {
  protected:
    tartan_status run(const std::string &name, const std::string &options, Lists &lists) {
        return call(context.get(), on_host(), name, options, lists);
    }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendRounding, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

// Parameters of 16 bits become one of the two neighbours of the exact result, as their random numbers decide; others are rounded as usual.
TEST_P(BackendRounding, ParametersAreRoundedAtRandom) {
    for (uint64_t seed = 0; seed < rounds(12u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        const int64_t step = 1 + (int64_t)seed;
        std::vector<int32_t> dtypes, f32(kShapes.size(), TARTAN_F32);
        for (size_t i = 0; i < kShapes.size(); i++)
            dtypes.push_back(pick<int32_t>(random, {TARTAN_F32, TARTAN_F16, TARTAN_BF16, TARTAN_BF16}));
        const char *const names[] = {"sgd", "adam", "lion"};
        const std::string name = names[seed % 3];
        Lists lists;
        lists["parameters"] = list(random, dtypes, true, -2, 2, seed % 2 == 0);
        lists["gradients"] = list(random, f32, false, -2, 2, seed % 2 == 0);
        if (name != "sgd") lists["means"] = list(random, f32, true, -1, 2, seed % 2 == 0);
        if (name == "adam") lists["squares"] = list(random, f32, true, 0.1, 2, seed % 2 == 0);
        if (seed % 4 > 1) lists["gates"] = slices(random, lists["parameters"], true);
        Lists exact = lists; // the same step of parameters in f32
        for (Dense &p : exact["parameters"]) {
            Dense wide(TARTAN_F32, std::vector<int64_t>(p.array.shape, p.array.shape + p.array.ndim), kRows);
            for (int64_t e = 0; e < p.elements(); e++) wide.set(e, p.get(e));
            p = wide;
        }
        const std::string options = "rate=0.01 step=" + std::to_string(step);
        const tartan_status status = run(name, options + " stochastic=1 seed=4000000000", lists);
        if (is_refused(status)) return;
        ASSERT_OK(status);
        ASSERT_OK(run(name, options, exact));
        for (size_t i = 0; i < kShapes.size(); i++) {
            const Dense &p = lists["parameters"][i], &want = exact["parameters"][i];
            const bool f16 = p.array.dtype == TARTAN_F16;
            ASSERT_TRUE(marks_intact(p));
            for (int64_t e = 0; e < p.elements(); e++) {
                const double x = want.get(e), size = std::fabs(x);
                double rounded = x;
                if (p.array.dtype != TARTAN_F32 && size > 0) {
                    uint32_t words[4];
                    tartan_i_philox(4000000000u | (uint64_t)step << 32, TARTAN_I_STREAM_UPDATE,
                                    (uint64_t)e / 4, (uint32_t)i, words);
                    const int exponent = std::max(std::ilogb(size), f16 ? -14 : -126);
                    const double unit = std::ldexp(1, exponent - (f16 ? 10 : 7)),
                                 down = std::floor(size / unit), u = (words[e % 4] >> 8) * 0x1p-24;
                    rounded = std::copysign((u < size / unit - down ? down + 1 : down) * unit, x);
                }
                ASSERT_EQ(rounded, p.get(e))
                    << name << ": element " << e << " of parameter " << i << " from " << x;
            }
        }
    }
}

// A step that is too small for the nearest number moves the mean of many parameters all the same.
TEST_P(BackendRounding, SmallStepsAreNotLost) {
    const int64_t n = 100000;
    Lists lists;
    for (const char *name : {"parameters", "gradients"}) {
        lists[name] = {Dense(TARTAN_BF16, {n}, kRows)};
        for (int64_t i = 0; i < n; i++) lists[name][0].set(i, 1);
    }
    Lists nearest = lists;
    const tartan_status status =
        run("sgd", "rate=-0.0009765625 stochastic=1", lists); // an eighth of the way to the next number
    if (is_refused(status)) return;
    ASSERT_OK(status);
    ASSERT_OK(run("sgd", "rate=-0.0009765625", nearest));
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        ASSERT_EQ(1, nearest["parameters"][0].get(i));
        sum += lists["parameters"][0].get(i) - 1;
    }
    EXPECT_NEAR(0x1p-10, sum / (double)n, 4 * 0x1p-7 * std::sqrt(0.125 * 0.875 / (double)n));
}

} // namespace
