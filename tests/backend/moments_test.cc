// SPDX-License-Identifier: Apache-2.0
// Optimisers with moments of 8 bits: the numbers that they keep, and what becomes of a parameter after many steps.
#include "optimisers.h"

extern "C" {
#include "core/random.h"
}

namespace {

using namespace tartan_test;

constexpr double kLargest = 448, kLeast = 0x1p-9, kLeastScale = 0x1p-126;
constexpr int64_t kSeed = 4000000000;

struct Moments {
    const char *name, *scales;
    bool squares;
    uint32_t stream;
};
struct Optimiser {
    const char *name, *options;
    std::vector<Moments> moments;
};
const Optimiser kOptimisers[] = {
    {"adam",
     "rate=0.25 beta1=0.5 beta2=0.75 epsilon=0.125 weight_decay=0.0625 grad_scale=2",
     {{"means", "mean_scales", false, TARTAN_I_STREAM_MEAN},
      {"squares", "square_scales", true, TARTAN_I_STREAM_SQUARE}}},
    {"sgd",
     "rate=0.25 momentum=0.5 weight_decay=0.0625 saturate=1.5",
     {{"velocities", "velocity_scales", false, TARTAN_I_STREAM_MEAN}}},
    {"lion",
     "rate=0.25 beta1=0.5 beta2=0.75 weight_decay=0.0625",
     {{"means", "mean_scales", false, TARTAN_I_STREAM_MEAN}}}};

int64_t slices_of(const Dense &p) {
    return p.array.ndim == 0 ? 1 : p.array.shape[0];
}

// A number that has 8 bits.
double small_number(std::mt19937_64 &random, bool squares) {
    const double size = (double)(8 + below(random, 8)) * std::ldexp(1, (int)below(random, 10) - 10);
    return random() % 8 == 0 ? 0 : !squares && random() % 2 ? -size : size;
}

// The scale of numbers of which this is the largest.
double scale_for(double largest) {
    double scale = kLeastScale;
    while (largest > kLargest * scale) scale *= 2;
    return scale;
}

// x, rounded at random to a number of 8 bits.
double rounded(double x, double u) {
    const double size = std::fabs(x);
    if (size == 0 || std::isnan(x)) return x;
    const double unit = std::ldexp(1, std::max(std::ilogb(size), -6) - 3), down = std::floor(size / unit);
    return std::copysign((u < size / unit - down ? down + 1 : down) * unit, x);
}

class BackendMoments : public OnBackend {
  protected:
    tartan_status run(const std::string &name, const std::string &options, Lists &lists) {
        return call(context.get(), on_host(), name, options, lists);
    }

    // Moments of f32 with the same numbers as the moments of 8 bits.
    static Lists widened(const Optimiser &o, const Lists &lists) {
        Lists wide = lists;
        for (const Moments &m : o.moments) {
            for (size_t i = 0; i < wide[m.name].size(); i++) {
                const Dense &small = lists.at(m.name)[i], &scales = lists.at(m.scales)[i];
                if (small.array.dtype != TARTAN_F8E4M3) continue;
                Dense &to = wide[m.name][i];
                to = Dense(TARTAN_F32,
                           std::vector<int64_t>(small.array.shape, small.array.shape + small.array.ndim),
                           kRows);
                const int64_t each = small.elements() / std::max<int64_t>(slices_of(small), 1);
                for (int64_t e = 0; e < small.elements(); e++) {
                    const double number = small.get(e) * scales.get(e / each);
                    to.set(e, m.squares ? number * number : number);
                }
            }
            wide.erase(m.scales);
        }
        return wide;
    }

    // What is kept of moments whose new values are `wide`, where slices changed.
    static void expect_kept(const Moments &m, const Lists &before, const Lists &lists, const Lists &wide,
                            const std::vector<std::vector<bool>> &live, int64_t step) {
        for (size_t i = 0; i < lists.at(m.name).size(); i++) {
            const Dense &got = lists.at(m.name)[i], &want = wide.at(m.name)[i],
                        &scales = lists.at(m.scales)[i];
            if (got.array.dtype != TARTAN_F8E4M3) {
                ASSERT_TRUE(got.memory() == want.memory()) << m.name << " of parameter " << i;
                continue;
            }
            const int64_t slices = slices_of(got), each = got.elements() / std::max<int64_t>(slices, 1);
            ASSERT_TRUE(marks_intact(got) && marks_intact(scales));
            for (int64_t s = 0; s < slices && each > 0; s++) {
                float largest = 0;
                for (int64_t e = s * each; e < (s + 1) * each; e++)
                    largest = std::fmax(largest, (float)std::fabs(want.get(e)));
                const double scale = scale_for(m.squares ? std::sqrt(largest) : largest);
                ASSERT_EQ(live[i][(size_t)s] ? scale : before.at(m.scales)[i].get(s), scales.get(s))
                    << m.scales << " of slice " << s << " of parameter " << i;
                for (int64_t e = s * each; e < (s + 1) * each; e++) {
                    uint32_t words[4];
                    tartan_i_philox((uint64_t)kSeed | (uint64_t)step << 32, m.stream, (uint64_t)e / 4,
                                    (uint32_t)i, words);
                    const double x = want.get(e), u = (words[e % 4] >> 8) * 0x1p-24,
                                 root = m.squares ? (double)std::sqrt((float)x) : x;
                    const double exact = m.squares && x > 0 ? std::fmax(kLeast, root / scale) : root / scale;
                    ASSERT_EQ(live[i][(size_t)s] ? rounded(exact, u) : before.at(m.name)[i].get(e),
                              got.get(e))
                        << m.name << ", element " << e << " of parameter " << i << ", from " << x;
                }
            }
        }
    }

    void check(const Optimiser &o, uint64_t seed) {
        std::mt19937_64 random(seed);
        const bool plain = seed % 2 == 0, lazy = seed % 5 == 3 && o.moments.size() == 2;
        const int64_t step = 1 + (int64_t)seed;
        std::vector<int32_t> dtypes, f32(kShapes.size(), TARTAN_F32);
        for (size_t i = 0; i < kShapes.size(); i++)
            dtypes.push_back(pick<int32_t>(random, {TARTAN_F32, TARTAN_F16, TARTAN_BF16}));
        Lists lists;
        lists["parameters"] = list(random, dtypes, true, -2, 2, plain);
        lists["gradients"] = list(random, dtypes_like(random, dtypes), false, -2, 2, plain);
        std::vector<std::vector<bool>> live;
        for (size_t i = 0; i < kShapes.size(); i++) {
            live.emplace_back((size_t)slices_of(lists["parameters"][i]), true);
            Dense &g = lists["gradients"][i];
            const int64_t each = g.elements() / std::max<int64_t>(slices_of(g), 1);
            for (size_t s = 0; s < live[i].size(); s++) {
                if (!lazy || random() % 2 || each == 0) continue;
                live[i][s] = false;
                for (int64_t e = 0; e < each; e++) g.set((int64_t)s * each + e, 0);
            }
        }
        if (seed % 4 > 1)
            for (size_t i = 0; i < kShapes.size(); i++) {
                lists["gates"].emplace_back(TARTAN_F32, std::vector<int64_t>{(int64_t)live[i].size()}, kRows);
                lists["rates"].emplace_back(TARTAN_F32, std::vector<int64_t>{(int64_t)live[i].size()}, kRows);
                for (size_t s = 0; s < live[i].size(); s++) {
                    const bool open = random() % 2;
                    lists["gates"][i].set((int64_t)s, open ? -2 : 0);
                    lists["rates"][i].set((int64_t)s, pick(random, {1.0, 0.5, 2.0}));
                    live[i][s] = live[i][s] && open;
                }
            }
        for (const Moments &m : o.moments)
            for (size_t i = 0; i < kShapes.size(); i++) {
                const bool small = random() % 4 != 0;
                const Style style = plain || random() % 2 ? kRows : (Style)below(random, kRepeated);
                lists[m.name].emplace_back(small ? TARTAN_F8E4M3 : TARTAN_F32, kShapes[i], style);
                Dense &moments = lists[m.name].back();
                for (int64_t e = 0; e < moments.elements(); e++)
                    moments.set(e, small_number(random, m.squares));
                lists[m.scales].emplace_back(TARTAN_F32, std::vector<int64_t>{small ? slices_of(moments) : 0},
                                             kRows);
                for (int64_t s = 0; small && s < slices_of(moments); s++)
                    lists[m.scales].back().set(s, std::ldexp(1, (int)below(random, 6) - 8));
            }
        const Lists before = lists;
        Lists wide = widened(o, lists);
        const std::string options = o.options + (" seed=" + std::to_string(kSeed)) +
                                    " step=" + std::to_string(step) + (lazy ? " lazy=1" : "") +
                                    (seed % 3 == 0 ? " stochastic=1" : "");
        const tartan_status status = run(o.name, options, lists);
        if (is_refused(status)) return;
        ASSERT_OK(status);
        ASSERT_OK(run(o.name, options, wide));
        for (size_t i = 0; i < kShapes.size(); i++)
            ASSERT_TRUE(lists["parameters"][i].memory() == wide["parameters"][i].memory()) << i;
        for (const Moments &m : o.moments) {
            expect_kept(m, before, lists, wide, live, step);
            if (HasFatalFailure()) return;
        }
    }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendMoments, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

// A step is the same as with moments of f32, which are then rounded at random.
TEST_P(BackendMoments, AreThoseOfF32Rounded) {
    for (const Optimiser &o : kOptimisers)
        for (uint64_t seed = 0; seed < rounds(20u); seed++) {
            SCOPED_TRACE(::testing::Message() << o.name << " seed " << seed);
            check(o, seed);
            if (HasFatalFailure()) return;
        }
}

// Numbers that change by less than what lies between two of 8 bits still follow their gradients, from zeros on.
TEST_P(BackendMoments, AreRightOnAverage) {
    const int64_t n = 512, steps = 300;
    Lists lists = {{"parameters", {Dense(TARTAN_F32, {4, n}, kRows)}},
                   {"gradients", {Dense(TARTAN_F32, {4, n}, kRows)}},
                   {"means", {Dense(TARTAN_F8E4M3, {4, n}, kRows)}},
                   {"squares", {Dense(TARTAN_F8E4M3, {4, n}, kRows)}},
                   {"mean_scales", {Dense(TARTAN_F32, {4}, kRows)}},
                   {"square_scales", {Dense(TARTAN_F32, {4}, kRows)}}};
    for (auto &[name, all] : lists)
        for (int64_t e = 0; e < all[0].elements(); e++) all[0].set(e, 0);
    for (int64_t e = 0; e < 4 * n; e++) lists["gradients"][0].set(e, e % 2 ? 1e-3 : -3);
    for (int64_t step = 1; step <= steps; step++) {
        const tartan_status status = run("adam", "rate=1e-3 beta2=0.99 step=" + std::to_string(step), lists);
        if (is_refused(status)) return;
        ASSERT_OK(status);
    }
    double means[2] = {}, squares[2] = {}, moved[2] = {};
    for (int64_t e = 0; e < 4 * n; e++) {
        const double s = lists["squares"][0].get(e) * lists["square_scales"][0].get(e / n);
        means[e % 2] += lists["means"][0].get(e) * lists["mean_scales"][0].get(e / n) / (2 * n);
        squares[e % 2] += s * s / (2 * n);
        moved[e % 2] += lists["parameters"][0].get(e) / (2 * n);
    }
    const double m = 1 - std::pow(0.9, steps), v = 1 - std::pow(0.99, steps);
    for (int k = 0; k < 2; k++) {
        const double g = k ? 1e-3 : -3;
        EXPECT_NEAR(g * m, means[k], 0.02 * std::fabs(g)) << k;
        EXPECT_NEAR(g * g * v, squares[k], 0.1 * g * g) << k;
        EXPECT_NEAR(g < 0 ? 0.3 : -0.3, moved[k], 0.02) << k;
    }
}

TEST_P(BackendMoments, OfWhatIsNotFiniteAreNaNAndOthersStay) {
    Lists lists = {{"parameters", {Dense(TARTAN_F32, {2, 64}, kRows)}},
                   {"gradients", {Dense(TARTAN_F32, {2, 64}, kRows)}},
                   {"velocities", {Dense(TARTAN_F8E4M3, {2, 64}, kRows)}},
                   {"velocity_scales", {Dense(TARTAN_F32, {2}, kRows)}}};
    for (auto &[name, all] : lists)
        for (int64_t e = 0; e < all[0].elements(); e++) all[0].set(e, name == "gradients" ? 448 : 0);
    lists["gradients"][0].set(3, INFINITY);
    lists["gradients"][0].set(4, NAN);
    const tartan_status status = run("sgd", "momentum=0.5", lists);
    if (is_refused(status)) return;
    ASSERT_OK(status);
    for (int64_t e = 0; e < 128; e++) {
        const double got = lists["velocities"][0].get(e);
        if (e == 3 || e == 4)
            EXPECT_TRUE(std::isnan(got)) << e;
        else
            EXPECT_EQ(448, got) << e;
    }
    for (int64_t s = 0; s < 2; s++) EXPECT_EQ(1, lists["velocity_scales"][0].get(s));
}

TEST_P(BackendMoments, HaveScales) {
    const auto lists_of = [](int32_t parameters, int32_t means, int64_t scales) {
        Lists lists = {{"parameters", {Dense(parameters, {3, 4}, kRows)}},
                       {"gradients", {Dense(parameters, {3, 4}, kRows)}},
                       {"means", {Dense(means, {3, 4}, kRows)}}};
        if (scales >= 0) lists["mean_scales"] = {Dense(TARTAN_F32, {scales}, kRows)};
        for (auto &[name, all] : lists)
            for (int64_t e = 0; e < all[0].elements(); e++) all[0].set(e, 1);
        return lists;
    };
    const auto refuses = [&](tartan_status want, const std::string &text, Lists lists) {
        const Lists before = lists;
        EXPECT_EQ(want, run("lion", "", lists));
        EXPECT_EQ("tartan_lion: " + text, std::string(tartan_last_error()));
        for (const auto &[name, all] : lists)
            EXPECT_TRUE(all[0].memory() == before.at(name)[0].memory()) << name;
    };
    for (const int64_t none : {-1, 0})
        refuses(TARTAN_ERR_ARGUMENT,
                "array 1 of means is of float8_e4m3fn, expected its scales as array 1 of mean_scales",
                lists_of(TARTAN_F32, TARTAN_F8E4M3, none));
    refuses(TARTAN_ERR_SHAPE,
            "mean_scales has shape [4], expected [3], which is [slices along the first axis] or [0]",
            lists_of(TARTAN_F32, TARTAN_F8E4M3, 4));
    refuses(TARTAN_ERR_DTYPE, "means is of float8_e4m3fn, expected float64 (parameters is of float64)",
            lists_of(TARTAN_F64, TARTAN_F8E4M3, -1));
}

} // namespace
