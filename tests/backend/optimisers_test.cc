// SPDX-License-Identifier: Apache-2.0
// Optimisers on every backend, against their formulas in long double.
#include "optimisers.h"

extern "C" {
#include "core/random.h"
}

#include <cmath>

namespace {

using namespace tartan_test;
// A number for each slice, or none: 0 or others.
std::vector<Dense> slices(std::mt19937_64 &random, const std::vector<Dense> &parameters, bool zeros) {
    std::vector<Dense> all;
    for (const Dense &p : parameters) {
        const int64_t count = random() % 3 == 0 ? 0 : p.array.ndim == 0 ? 1 : p.array.shape[0];
        all.emplace_back(tartan_i_sum_dtype(p.array.dtype), std::vector<int64_t>{count}, kRows);
        for (int64_t i = 0; i < count; i++)
            all.back().set(i, zeros && random() % 2 ? 0 : pick(random, {1.0, 0.5, 2.0, -3.0}));
    }
    return all;
}

double slice_of(const Lists &lists, const char *name, size_t place, int64_t element) {
    const auto found = lists.find(name);
    if (found == lists.end() || found->second[place].elements() == 0) return 1;
    const Dense &numbers = found->second[place];
    const tartan_array &p =
        (lists.count("parameters") ? lists.at("parameters") : lists.at("averages"))[place].array;
    int64_t each = 1;
    for (int32_t d = 1; d < p.ndim; d++) each *= p.shape[d];
    return numbers.get(element / each);
}

struct Numbers {
    real rate, beta1, beta2, epsilon, decay, sigmas, factor, scale, momentum, dampening;
    bool nesterov;
    int step;
};

// An element of each list, before and after.
struct Element {
    real p, g, m, v;
};

using Rule = Element (*)(Element, const Numbers &, real rate);

Element adam(Element e, const Numbers &n, real rate) {
    e.v = n.beta2 * e.v + (1 - n.beta2) * e.g * e.g;
    if (n.sigmas > 0) e.g = std::fmin(std::fmax(e.g, -n.sigmas * std::sqrt(e.v)), n.sigmas * std::sqrt(e.v));
    e.m = n.beta1 * e.m + (1 - n.beta1) * e.g;
    const real mean = e.m / (1 - std::pow(n.beta1, n.step)), square = e.v / (1 - std::pow(n.beta2, n.step));
    e.p -= rate * (n.decay * e.p + mean / (std::sqrt(square) + n.epsilon));
    return e;
}

Element sgd(Element e, const Numbers &n, real rate) {
    const real g = e.g + n.decay * e.p;
    e.m = n.step == 1 ? g : n.momentum * e.m + (1 - n.dampening) * g;
    e.p -= rate * (n.nesterov ? g + n.momentum * e.m : e.m);
    return e;
}

Element plain_sgd(Element e, const Numbers &n, real rate) {
    e.p -= rate * (e.g + n.decay * e.p);
    return e;
}

Element lion(Element e, const Numbers &n, real rate) {
    const real mixed = n.beta1 * e.m + (1 - n.beta1) * e.g;
    e.p -= rate * (n.decay * e.p + (real)(mixed > 0) - (real)(mixed < 0));
    e.m = n.beta2 * e.m + (1 - n.beta2) * e.g;
    return e;
}

Element average(Element e, const Numbers &n, real) {
    e.p += (1 - n.decay) * (e.g - e.p);
    return e;
}

struct Optimiser {
    const char *name, *p, *g, *m, *v; // of the lists
    Rule rule;
};
const Optimiser kOptimisers[] = {
    {"adam", "parameters", "gradients", "means", "squares", adam},
    {"sgd", "parameters", "gradients", "velocities", nullptr, sgd},
    {"sgd", "parameters", "gradients", nullptr, nullptr, plain_sgd},
    {"lion", "parameters", "gradients", "means", nullptr, lion},
    {"exponential_average", "averages", "parameters", nullptr, nullptr, average}};

// Zeros in about half of the slices.
void clear_slices(std::mt19937_64 &random, std::vector<Dense> &list) {
    for (Dense &one : list) {
        const int64_t count = one.array.ndim == 0 ? 1 : one.array.shape[0],
                      each = count == 0 ? 0 : one.elements() / count;
        for (int64_t s = 0; s < count; s++)
            for (int64_t e = 0; random() % 2 && e < each; e++) one.set(s * each + e, e % 2 ? -0.0 : 0);
    }
}

bool is_lazy(const Dense &g, int64_t element) {
    const int64_t count = g.array.ndim == 0 ? 1 : g.array.shape[0], each = g.elements() / count,
                  first = element / each * each;
    for (int64_t e = first; e < first + each; e++)
        if (g.get(e) != 0) return false;
    return true;
}

class BackendOptimisers : public OnBackend {
  protected:
    tartan_status run(const std::string &name, const std::string &options, Lists &lists) {
        return call(context.get(), on_host(), name, options, lists);
    }
    // One step on random lists.
    void check(const Optimiser &o, uint64_t seed) {
        std::mt19937_64 random(seed);
        std::vector<int32_t> dtypes;
        for (size_t i = 0; i < kShapes.size(); i++)
            dtypes.push_back(seed % 3 == 0 ? TARTAN_F32 : kDtypes[below(random, 4)]);
        const bool plain = seed % 2 == 0, gates = seed % 4 > 1, rates = seed % 5 > 2 && o.rule != average;
        Lists lists;
        const auto add = [&](const char *name, bool written, double low) {
            const auto like = seed % 3 == 0 ? dtypes : dtypes_like(random, dtypes);
            if (name != nullptr) lists[name] = list(random, like, written, low, 2, plain);
        };
        lists[o.p] = list(random, dtypes, true, -2, 2, plain);
        add(o.g, false, -2), add(o.m, true, -1), add(o.v, true, 0.1);
        if (gates) lists["gates"] = slices(random, lists[o.p], true);
        if (rates) lists["rates"] = slices(random, lists[o.p], false);
        Numbers n = {0.25L, 0.5L, 0.75L, 0.125L, 0.0625L, seed % 7 == 0 ? 0.5L : 0,
                     2,     1,    0.5L,  0.25L,  false,   1 + (int)(seed % 3)};
        std::string options;
        if (o.rule == adam)
            options = "rate=0.25 beta1=0.5 beta2=0.75 epsilon=0.125 weight_decay=0.0625 grad_scale=2 step=" +
                      std::to_string(n.step) + (n.sigmas > 0 ? " sigmas=0.5" : "");
        else if (o.rule == sgd)
            n.nesterov = seed % 2, n.dampening = n.nesterov ? 0 : n.dampening,
            options =
                "rate=0.25 momentum=0.5 weight_decay=0.0625 grad_scale=2 step=" + std::to_string(n.step) +
                (n.nesterov ? " nesterov=1" : " dampening=0.25");
        else if (o.rule == plain_sgd)
            options = "rate=0.25 weight_decay=0.0625 grad_scale=2";
        else if (o.rule == lion)
            options = "rate=0.25 beta1=0.5 beta2=0.75 weight_decay=0.0625 grad_scale=2";
        else
            options = "decay=0.0625", n.factor = 1;
        if (o.rule != average && seed % 2) {
            lists["scale"] = {Dense(pick<int32_t>(random, {TARTAN_F32, TARTAN_F64}), {1}, kRows)};
            lists["scale"][0].set(0, 0.5);
            n.scale = 0.5L;
        }
        const bool lazy = o.rule == adam && seed % 3 != 1;
        if (lazy) clear_slices(random, lists[o.g]), options += " lazy=1";
        const Lists before = lists;
        std::vector<std::vector<real>> p(kShapes.size()), m = p, v = p;
        std::vector<real> slack(kShapes.size(), 32);
        for (size_t i = 0; i < kShapes.size(); i++)
            for (int64_t e = 0; e < lists[o.p][i].elements(); e++) {
                const Element was = {lists[o.p][i].get(e), lists[o.g][i].get(e) * n.factor * n.scale,
                                     o.m != nullptr ? lists[o.m][i].get(e) : 0.0L,
                                     o.v != nullptr ? lists[o.v][i].get(e) : 0.0L};
                const bool live =
                    slice_of(before, "gates", i, e) != 0 && !(lazy && is_lazy(before.at(o.g)[i], e));
                const Element now = live ? o.rule(was, n, n.rate * slice_of(before, "rates", i, e)) : was;
                p[i].push_back(now.p), m[i].push_back(now.m), v[i].push_back(now.v);
            }
        const tartan_status status = run(o.name, options, lists);
        if (is_refused(status)) return;
        ASSERT_OK(status);
        expect_list(before.at(o.p), lists[o.p], p, slack, o.p);
        if (o.m != nullptr) expect_list(before.at(o.m), lists[o.m], m, slack, o.m);
        if (o.v != nullptr) expect_list(before.at(o.v), lists[o.v], v, slack, o.v);
    }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendOptimisers, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

TEST_P(BackendOptimisers, ComputeTheirFormulas) {
    for (const Optimiser &o : kOptimisers)
        for (uint64_t seed = 0; seed < rounds(16u); seed++) {
            SCOPED_TRACE(::testing::Message() << o.name << " seed " << seed);
            check(o, seed);
            if (HasFatalFailure()) return;
        }
}

// A gated optimiser of openai/blocksparse also ran the plain update over everything.
TEST_P(BackendOptimisers, AGateOfZeroKeepsItsBlockAndOthersStepOnce) {
    std::mt19937_64 random(1);
    Lists gated, plain;
    for (const char *name : {"parameters", "gradients", "means", "squares"}) {
        plain[name] = {Dense(TARTAN_F32, {4, 8, 8}, kRows)};
        plain[name][0].fill(random, 0.5, 1.5);
    }
    gated = plain;
    const Lists before = plain;
    gated["gates"] = {Dense(TARTAN_F32, {4}, kRows)};
    for (int64_t i = 0; i < 4; i++) gated["gates"][0].set(i, i % 2 ? 0 : 0.5);
    const tartan_status status = run("adam", "rate=0.1", plain);
    if (is_refused(status)) return;
    ASSERT_OK(status);
    ASSERT_OK(run("adam", "rate=0.1", gated));
    for (const char *name : {"parameters", "means", "squares"})
        for (int64_t e = 0; e < 256; e++)
            ASSERT_EQ((e / 64 % 2 ? before.at(name) : plain[name])[0].get(e), gated[name][0].get(e))
                << name << " " << e;
}

// NaN is not zero; long slices have it at their end.
TEST_P(BackendOptimisers, ALazySliceHasNoGradientAtAll) {
    std::mt19937_64 random(3);
    const int64_t n = 20001;
    Lists lists;
    for (const char *name : {"parameters", "gradients", "means", "squares"}) {
        lists[name] = {Dense(TARTAN_F32, {4, n}, kRows)};
        lists[name][0].fill(random, 0.5, 1.5);
    }
    Dense &g = lists["gradients"][0];
    for (int64_t e = 0; e < 4 * n; e++) g.set(e, 0);
    g.set(2 * n - 1, 1);
    g.set(3 * n - 1, NAN);
    const Lists before = lists;
    const tartan_status status = run("adam", "rate=0.1 lazy=1", lists);
    if (is_refused(status)) return;
    ASSERT_OK(status);
    for (const char *name : {"parameters", "means", "squares"})
        for (int64_t e = 0; e < 4 * n; e++)
            ASSERT_EQ(e / n == 0 || e / n == 3, before.at(name)[0].get(e) == lists[name][0].get(e))
                << name << " " << e;
    EXPECT_TRUE(std::isnan(lists["parameters"][0].get(3 * n - 1)));
}

TEST_P(BackendOptimisers, NothingChangesIfTheScaleIsZeroOrNotFinite) {
    for (const Optimiser &o : kOptimisers)
        for (const double scale : {0.0, (double)INFINITY, (double)NAN}) {
            if (o.rule == average) continue;
            std::mt19937_64 random(2);
            Lists lists;
            for (const char *name : {o.p, o.g, o.m, o.v})
                if (name != nullptr)
                    lists[name] =
                        list(random, std::vector<int32_t>(kShapes.size(), TARTAN_F32), true, 0.5, 1);
            lists["scale"] = {Dense(TARTAN_F32, {1}, kRows)};
            lists["scale"][0].set(0, scale);
            const Lists before = lists;
            const tartan_status status = run(o.name, o.rule == sgd ? "momentum=0.5" : "", lists);
            if (is_refused(status)) continue;
            ASSERT_OK(status);
            for (const auto &[name, all] : lists)
                for (size_t i = 0; i < all.size(); i++)
                    ASSERT_TRUE(all[i].memory() == before.at(name)[i].memory()) << o.name << ": " << name;
        }
}

TEST_P(BackendOptimisers, TheFilterComesBeforeTheFactor) {
    const double in[] = {INFINITY, -INFINITY, NAN, 5, -7, 1}, want[] = {0, 0, 0, 6, -6, 2};
    Lists lists;
    lists["parameters"] = {Dense(TARTAN_F32, {6}, kRows)};
    lists["gradients"] = {Dense(TARTAN_F16, {6}, kRows)};
    for (int64_t i = 0; i < 6; i++) {
        lists["parameters"][0].set(i, 0);
        lists["gradients"][0].set(i, in[i]);
    }
    Lists norm = {{"gradients", lists["gradients"]},
                  {"norm", {Dense(TARTAN_F64, {1}, kRows)}},
                  {"scale", {Dense(TARTAN_F32, {1}, kRows)}}};
    const std::string filter = "zero_infs=1 zero_nans=1 saturate=3 grad_scale=2";
    const tartan_status status = run("sgd", "rate=-1 " + filter, lists);
    if (is_refused(status)) return;
    ASSERT_OK(status);
    for (int64_t i = 0; i < 6; i++) EXPECT_EQ(want[i], lists["parameters"][0].get(i)) << i;
    ASSERT_OK(run("global_norm", filter + " clip=1", norm));
    EXPECT_NEAR(std::sqrt(76.0), norm["norm"][0].get(0), 1e-14);
    EXPECT_NEAR(1 / std::sqrt(76.0), norm["scale"][0].get(0), 1e-7);
    for (const char *one : {"zero_infs=1", "zero_nans=1"}) { // the other numbers stay
        ASSERT_OK(run("global_norm", one, norm));
        EXPECT_EQ(0, norm["scale"][0].get(0)) << one;
        EXPECT_FALSE(std::isfinite(norm["norm"][0].get(0))) << one;
    }
}

TEST_P(BackendOptimisers, TheNormIsThatOfAllGradients) {
    for (uint64_t seed = 0; seed < rounds(12u); seed++) {
        std::mt19937_64 random(seed);
        std::vector<int32_t> dtypes;
        for (size_t i = 0; i < kShapes.size(); i++) dtypes.push_back(kDtypes[below(random, 4)]);
        const double size = pick(random, {1.0, 1e30, 1e-30}); // squares of these are no numbers of f32
        if (size != 1) dtypes.assign(kShapes.size(), TARTAN_F32);
        Lists lists = {{"gradients", list(random, dtypes, false, -2 * size, 2 * size)},
                       {"norm", {Dense(TARTAN_F64, {1}, kRows)}},
                       {"scale", {Dense(TARTAN_F64, {1}, kRows)}}};
        real sum = 0;
        for (const Dense &g : lists["gradients"])
            for (int64_t e = 0; e < g.elements(); e++) sum += (real)g.get(e) * g.get(e);
        const real norm = 0.5L * std::sqrt(sum);
        const double clip = pick(random, {0.5, 1e9});
        const tartan_status status =
            run("global_norm", "grad_scale=-0.5 clip=" + std::to_string(clip), lists);
        if (is_refused(status)) continue;
        ASSERT_OK(status);
        EXPECT_NEAR((double)norm, lists["norm"][0].get(0), 1e-13 * (double)norm);
        EXPECT_NEAR((double)(norm > clip ? clip / norm : 1), lists["scale"][0].get(0), 1e-13);
    }
}

TEST_P(BackendOptimisers, GroupLassoShrinksEachSlice) {
    for (uint64_t seed = 0; seed < rounds(12u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        std::vector<int32_t> dtypes;
        for (size_t i = 0; i < kShapes.size(); i++) dtypes.push_back(kDtypes[below(random, 4)]);
        Lists lists = {{"parameters", list(random, dtypes, true, -2, 2)}};
        if (seed % 2) lists["gates"] = slices(random, lists["parameters"], true);
        const Lists before = lists;
        const real rate = seed % 3 == 0 ? 1e9L : 0.75L, epsilon = 0.5L;
        const tartan_status status =
            run("group_lasso", std::string("epsilon=0.5 rate=") + (seed % 3 == 0 ? "1e9" : "0.75"), lists);
        if (is_refused(status)) continue;
        ASSERT_OK(status);
        std::vector<std::vector<real>> want(kShapes.size());
        for (size_t i = 0; i < kShapes.size(); i++) {
            const Dense &p = before.at("parameters")[i];
            const int64_t count = p.array.ndim == 0 ? 1 : p.array.shape[0],
                          each = count == 0 ? 0 : p.elements() / count;
            for (int64_t s = 0; s < count; s++) {
                real sum = 0;
                for (int64_t e = s * each; e < (s + 1) * each; e++) sum += (real)p.get(e) * p.get(e);
                for (int64_t e = s * each; e < (s + 1) * each; e++) {
                    const bool live = slice_of(before, "gates", i, e) != 0;
                    const real part = std::fmin(rate / std::sqrt(sum + epsilon), 1.0L);
                    want[i].push_back(p.get(e) * (live ? 1 - part : 1));
                }
            }
        }
        expect_list(before.at("parameters"), lists["parameters"], want, std::vector<real>(kShapes.size(), 1),
                    "parameters");
    }
}

// ---- Parameters that are rounded at random ----

// Parameters of 16 bits become one of the two neighbours of the exact result, as their random numbers decide; others are rounded as usual.
TEST_P(BackendOptimisers, ParametersAreRoundedAtRandom) {
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
TEST_P(BackendOptimisers, SmallStepsAreNotLost) {
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

// ---- State follows the layout ----

// Where a block is, and which is at a place; -1: none.
int64_t block_at(const tartan_layout *l, int64_t row, int64_t col) {
    for (int64_t id = 0; id < l->blocks; id++)
        if (l->block_rows[id] == row && l->block_cols[id] == col) return id;
    return -1;
}

// Weights and moments of f32 and bf16 in every block order: blocks that stay keep their numbers, new blocks have zeros.
TEST_P(BackendOptimisers, MomentsFollowTheirWeights) {
    std::mt19937_64 random(11);
    const tartan_shape shape = {64, 48, 8, 16, 1};
    const Layout all = random_layout(shape, 0.5, 3);
    std::vector<double> gates((size_t)all->blocks);
    for (size_t id = 0; id < gates.size(); id++) gates[id] = id % 3 != 0;
    tartan_layout *raw = nullptr;
    ASSERT_OK(tartan_layout_prune(all.get(), gates.data(), all->blocks, &raw));
    const Layout pruned(raw);
    const int64_t new_rows[] = {0, 1, 7, 3}, new_cols[] = {2, 0, 1, 1};
    const tartan_places places = {nullptr, new_rows, new_cols, 4};
    ASSERT_OK(tartan_layout_grow(pruned.get(), &places, &raw));
    const Layout grown(raw);
    for (const int32_t dtype : {TARTAN_F32, TARTAN_BF16})
        for (const int32_t order : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}) {
            const Matrix here = random_matrix(all, dtype, order, random, 0.5, 1);
            Matrix matrix = placed(context.get(), here);
            for (const Layout *to : {&pruned, &grown}) {
                tartan_matrix *next = nullptr;
                ASSERT_OK(tartan_matrix_project(context.get(), matrix.get(), to->get(), &next));
                matrix.reset(next);
            }
            const Matrix found = fetched(context.get(), matrix);
            ASSERT_EQ(dtype, found->dtype);
            int64_t kept = 0, fresh = 0;
            for (int64_t id = 0; id < grown->blocks; id++) {
                const int64_t old = block_at(pruned.get(), grown->block_rows[id], grown->block_cols[id]);
                const int64_t first = block_at(all.get(), grown->block_rows[id], grown->block_cols[id]);
                (old >= 0 ? kept : fresh)++;
                for (int64_t r = 0; r < 8; r++)
                    for (int64_t c = 0; c < 16; c++)
                        ASSERT_EQ(old < 0 ? 0 : entry(here.get(), first, r, c), entry(found.get(), id, r, c));
            }
            ASSERT_EQ(pruned->blocks, kept);
            ASSERT_LT(0, fresh);
            // A block is moved to the place of one that was pruned; the others keep theirs.
            const int64_t moved = 0;
            int64_t empty = 0; // of 8 x 3 places
            while (block_at(grown.get(), empty / 3, empty % 3) >= 0) empty++;
            ASSERT_LT(empty, 24);
            const int64_t to_row = empty / 3, to_col = empty % 3;
            const tartan_places place = {nullptr, &to_row, &to_col, 1};
            std::vector<int64_t> sources((size_t)grown->blocks);
            ASSERT_OK(
                tartan_layout_move(grown.get(), &moved, 1, &place, sources.data(), grown->blocks, &raw));
            const Layout after(raw);
            tartan_matrix *next = nullptr;
            ASSERT_OK(tartan_matrix_rearrange(context.get(), matrix.get(), after.get(), sources.data(),
                                              after->blocks, &next));
            const Matrix there(next), got = fetched(context.get(), there);
            ASSERT_EQ(0, sources[(size_t)block_at(after.get(), to_row, to_col)]);
            for (int64_t id = 0; id < after->blocks; id++)
                ASSERT_EQ(entry(found.get(), sources[(size_t)id], 7, 15), entry(got.get(), id, 7, 15));
        }
}

// ---- Lists of many arrays, in host memory ----

struct Many {
    std::vector<std::vector<float>> numbers;
    std::vector<tartan_array> p, g, m, v;

    explicit Many(int64_t count) {
        for (std::vector<tartan_array> *one : {&p, &g, &m, &v})
            for (int64_t i = 0; i < count; i++) {
                numbers.emplace_back((size_t)(1 + i % 7), 1.0f);
                one->push_back(array_of(numbers.back().data(), TARTAN_F32, {1 + i % 7}));
            }
    }
    tartan_status run(tartan_context *context, const char *options = "") {
        const tartan_adam_arguments all = {p.data(), g.data(),          m.data(), v.data(), nullptr, nullptr,
                                           nullptr,  (int64_t)p.size(), nullptr,  nullptr,  options};
        return tartan_adam(context, &all);
    }
    bool untouched() const {
        for (const auto &one : numbers)
            for (const float x : one)
                if (x != 1) return false;
        return true;
    }
};

TEST(Optimisers, OfThousandsOfArrays) {
    Many all(3000), one(7);
    const Context context = open_context(2);
    ASSERT_OK(all.run(context.get()));
    ASSERT_OK(one.run(context.get()));
    for (size_t i = 0; i < all.numbers.size(); i++)
        for (const float x : all.numbers[i]) {
            const size_t list = i / 3000; // all arrays of a list are alike
            ASSERT_EQ(one.numbers[7 * list][0], x);
        }
}

TEST(Optimisers, RefuseWhatIsWrongWithOneOfManyArrays) {
    Many all(100);
    const auto expect = [&](tartan_status status, const char *text) {
        EXPECT_EQ(status, all.run(cpu()));
        EXPECT_NE(std::string(tartan_last_error()).find(text), std::string::npos) << tartan_last_error();
        EXPECT_TRUE(all.untouched());
    };
    all.g[41].shape[0] = 2;
    expect(TARTAN_ERR_SHAPE,
           "adam: array 42 of gradients has shape [2], expected [7] (as array 42 of parameters)");
    all.g[41].shape[0] = 7;
    all.m[3].dtype = TARTAN_F64;
    expect(TARTAN_ERR_DTYPE, "adam: array 4 of means is of float64, expected float32, float16, bfloat16 or "
                             "float8_e4m3fn (array 4 of parameters is of float32)");
    all.m[3].dtype = TARTAN_F32;
    all.p[99].data = nullptr;
    expect(TARTAN_ERR_HANDLE, "adam: array 100 of parameters of shape [2] has data NULL");
    all.p[99].data = all.p[98].data;
    expect(TARTAN_ERR_ARGUMENT, "overlap");
    all.p[99].data = all.g[0].data;
    expect(TARTAN_ERR_ARGUMENT, "overlap");
    Dense gates(TARTAN_F32, {2}, kRows);
    Many few(2);
    std::vector<tartan_array> two = {gates.array, gates.array};
    const tartan_adam_arguments arguments = {few.p.data(),
                                             few.g.data(),
                                             few.m.data(),
                                             few.v.data(),
                                             two.data(),
                                             nullptr,
                                             nullptr,
                                             2,
                                             nullptr,
                                             nullptr,
                                             ""};
    EXPECT_FAILS(SHAPE, "adam: array 1 of gates has shape [2], expected [1], which is",
                 tartan_adam(cpu(), &arguments));
    EXPECT_TRUE(few.untouched());
}

TEST(Optimisers, RefuseMomentumWithoutVelocities) {
    Dense p(TARTAN_F32, {3}, kRows), g(TARTAN_F32, {3}, kRows);
    const auto run = [&](const char *options) {
        const tartan_sgd_arguments all = {&p.array, &g.array, nullptr, nullptr, nullptr,
                                          1,        nullptr,  nullptr, options};
        return tartan_sgd(cpu(), &all);
    };
    for (int64_t e = 0; e < 3; e++) p.set(e, 1), g.set(e, 1);
    EXPECT_FAILS(ARGUMENT, "momentum is 0.5, expected 0 without velocities", run("momentum=0.5"));
    for (int64_t e = 0; e < 3; e++) EXPECT_EQ(1, p.get(e));
}

// Allocations for lists that are long fail cleanly.
TEST(Optimisers, SurviveEveryFailingAllocation) {
    Many all(200);
    const auto call = [&] {
        const tartan_status status =
            in_new_context(2, [&](tartan_context *context) { return all.run(context); });
        EXPECT_TRUE(status == TARTAN_OK || all.untouched());
        return status;
    };
    BRUTAL(call(), {});
}

TEST(Optimisers, GiveTheSameBitsForAnyNumberOfThreads) {
    std::vector<std::string> first;
    for (const int threads : {1, 2, 3, 7}) {
        std::mt19937_64 random(5);
        const Context context = open_context(threads);
        const std::vector<int32_t> dtypes(kShapes.size(), TARTAN_F32);
        Lists lists;
        for (const char *name : {"parameters", "gradients", "means", "squares"})
            lists[name] = list(random, dtypes, true, 0.1, 2);
        lists["norm"] = lists["scale"] = {Dense(TARTAN_F64, {1}, kRows)};
        ASSERT_OK(call(context.get(), true, "global_norm", "", lists));
        ASSERT_OK(call(context.get(), true, "adam", "", lists));
        ASSERT_OK(call(context.get(), true, "group_lasso", "", lists));
        std::vector<std::string> bits;
        for (const auto &[name, all] : lists)
            for (const Dense &one : all) bits.emplace_back(one.memory().begin(), one.memory().end());
        if (first.empty()) first = bits;
        EXPECT_TRUE(first == bits) << threads << " threads";
    }
}

} // namespace
