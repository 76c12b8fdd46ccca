// SPDX-License-Identifier: Apache-2.0
// Optimisers on every backend, against their formulas in long double.
#include "optimisers.h"

#include <cmath>

namespace {

using namespace tartan_test;

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

} // namespace
