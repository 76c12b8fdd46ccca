// SPDX-License-Identifier: Apache-2.0
// Muon on every backend, against its formula in long double.
#include "optimisers.h"

namespace {

using namespace tartan_test;

using Grid = std::vector<std::vector<real>>;

Grid product(const Grid &a, const Grid &b) {
    Grid c(a.size(), std::vector<real>(b[0].size(), 0));
    for (size_t i = 0; i < a.size(); i++)
        for (size_t k = 0; k < b.size(); k++)
            for (size_t j = 0; j < b[0].size(); j++) c[i][j] += a[i][k] * b[k][j];
    return c;
}

Grid transpose(const Grid &a) {
    Grid t(a[0].size(), std::vector<real>(a.size()));
    for (size_t i = 0; i < a.size(); i++)
        for (size_t j = 0; j < a[0].size(); j++) t[j][i] = a[i][j];
    return t;
}

Grid orthogonal(Grid x, int iterations, real epsilon) {
    const bool tall = x.size() > x[0].size();
    real sum = 0;
    for (const auto &row : x)
        for (const real e : row) sum += e * e;
    for (auto &row : x)
        for (real &e : row) e /= std::fmax(std::sqrt(sum), epsilon);
    if (tall) x = transpose(x);
    for (int i = 0; i < iterations; i++) {
        const Grid a = product(x, transpose(x)), squares = product(a, a);
        Grid b = a;
        for (size_t r = 0; r < a.size(); r++)
            for (size_t c = 0; c < a.size(); c++) b[r][c] = -4.775L * a[r][c] + 2.0315L * squares[r][c];
        const Grid more = product(b, x);
        for (size_t r = 0; r < x.size(); r++)
            for (size_t c = 0; c < x[0].size(); c++) x[r][c] = 3.4445L * x[r][c] + more[r][c];
    }
    return tall ? transpose(x) : x;
}

// Parameters of matrices, one in each list.
const std::vector<std::vector<int64_t>> kMatrices = {{4, 7},   {7, 4}, {1, 5},   {3, 8, 8},   {2, 3, 16, 5},
                                                     {33, 40}, {0, 4}, {70, 20}, {5, 32, 32}, {1, 1}};

class BackendMuon : public OnBackend {
  protected:
    tartan_status run(const std::string &options, Lists &lists) {
        return call(context.get(), on_host(), "muon", options, lists);
    }
    Lists random_lists(std::mt19937_64 &random, const std::vector<std::vector<int64_t>> &shapes,
                       bool any_dtype) {
        Lists lists;
        for (const auto &shape : shapes) {
            const int32_t dtype = any_dtype ? kDtypes[below(random, 4)] : TARTAN_F32;
            for (const char *name : {"parameters", "gradients", "means"}) {
                const int32_t own = name[0] == 'p' || dtype == TARTAN_F64 || !any_dtype
                                        ? dtype
                                        : pick<int32_t>(random, {TARTAN_F32, TARTAN_F16, TARTAN_BF16});
                const Style style =
                    random() % 2 ? kRows : (Style)below(random, name[0] == 'g' ? kStyles : kRepeated);
                lists[name].emplace_back(own, shape, style);
                lists[name].back().fill(random, -2, 2);
            }
        }
        return lists;
    }
    void expect(const std::vector<std::vector<int64_t>> &shapes, const Lists &before, const Lists &after,
                bool nesterov, bool match, int iterations, real factor) {
        std::vector<std::vector<real>> p, m;
        for (size_t l = 0; l < shapes.size(); l++) {
            const std::vector<int64_t> &shape = shapes[l];
            const int64_t rows = shape[shape.size() - 2], cols = shape.back();
            const real size = match ? 0.2L * std::sqrt((real)std::max(rows, cols))
                                    : std::sqrt(std::fmax(1.0L, (real)rows / (real)cols));
            p.emplace_back(), m.emplace_back();
            for (int64_t first = 0; first < before.at("parameters")[l].elements(); first += rows * cols) {
                Grid u((size_t)rows, std::vector<real>((size_t)cols));
                for (int64_t e = 0; e < rows * cols; e++) {
                    const real g = before.at("gradients")[l].get(first + e) * factor;
                    m[l].push_back(0.75L * before.at("means")[l].get(first + e) + 0.25L * g);
                    u[(size_t)(e / cols)][(size_t)(e % cols)] =
                        nesterov ? 0.75L * m[l].back() + 0.25L * g : m[l].back();
                }
                const Grid x = orthogonal(u, iterations, 1e-7L);
                for (int64_t e = 0; e < rows * cols; e++)
                    p[l].push_back((1 - 0.25L * 0.125L) * before.at("parameters")[l].get(first + e) -
                                   0.25L * size * x[(size_t)(e / cols)][(size_t)(e % cols)]);
            }
        }
        expect_list(before.at("parameters"), after.at("parameters"), p, std::vector<real>(shapes.size(), 64),
                    "parameters");
        expect_list(before.at("means"), after.at("means"), m, std::vector<real>(shapes.size(), 8), "means");
    }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendMuon, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

TEST_P(BackendMuon, ComputesItsFormula) {
    for (uint64_t seed = 0; seed < rounds(16u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        const bool nesterov = seed % 2, match = seed % 3 == 0;
        const int iterations = seed % 5 == 4 ? (int)(seed % 3) : 5;
        Lists lists = random_lists(random, kMatrices, seed % 4 > 0);
        std::string options =
            "rate=0.25 momentum=0.75 weight_decay=0.125 iterations=" + std::to_string(iterations) +
            (nesterov ? "" : " heavy_ball=1") + (match ? " match_rms=1" : "");
        real factor = 1;
        if (seed % 5 > 2) {
            options += " grad_scale=2";
            lists["scale"] = {Dense(pick<int32_t>(random, {TARTAN_F32, TARTAN_F64}), {1}, kRows)};
            lists["scale"][0].set(0, 0.75);
            factor = 1.5L;
        }
        const Lists before = lists;
        const tartan_status status = run(options, lists);
        if (is_refused(status)) return;
        ASSERT_OK(status);
        expect(kMatrices, before, lists, nesterov, match, iterations, factor);
        if (HasFatalFailure()) return;
    }
}

// Matrices for all ways to run on a GPU: by a warp, by a CTA, and by a CTA without shared memory for them.
TEST_P(BackendMuon, ComputesItsFormulaOnMatricesOfAllSizes) {
    const std::vector<std::vector<int64_t>> shapes = {
        {2, 64, 64}, {128, 128}, {40, 8, 8}, {130, 150}, {16, 2000}};
    std::mt19937_64 random(3);
    Lists lists = random_lists(random, shapes, false);
    const Lists before = lists;
    const tartan_status status = run("rate=0.25 momentum=0.75 weight_decay=0.125", lists);
    if (is_refused(status)) return;
    ASSERT_OK(status);
    expect(shapes, before, lists, true, false, 5, 1);
}

// A step without momentum and decay along a random gradient is about orthogonal: its singular values are from 0.7 to 1.2 if those
// of u are not near 0, so its product with its transpose has such squares on the diagonal.
TEST_P(BackendMuon, StepsAreAboutOrthogonal) {
    const int64_t b = 16, blocks = 20;
    std::mt19937_64 random(5);
    Lists lists;
    for (const char *name : {"parameters", "gradients", "means"})
        lists[name] = {Dense(TARTAN_F32, {blocks, b, b}, kRows)};
    for (int64_t e = 0; e < blocks * b * b; e++) {
        lists["parameters"][0].set(e, 0), lists["means"][0].set(e, 0);
        lists["gradients"][0].set(e, (e / b % b == e % b ? 3 : 0) + (double)(random() % 1000) * 1e-3 - 0.5);
    }
    const tartan_status status = run("rate=-1 momentum=0", lists);
    if (is_refused(status)) return;
    ASSERT_OK(status);
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t i = 0; i < b; i++) {
            real sum = 0;
            for (int64_t j = 0; j < b; j++) {
                const double x = lists["parameters"][0].get((block * b + i) * b + j);
                sum += x * x;
            }
            EXPECT_LT(0.49, (double)sum);
            EXPECT_GT(1.5, (double)sum);
        }
}

TEST_P(BackendMuon, FiltersGradientsAndSkipsWhatIsNotFinite) {
    std::mt19937_64 random(4);
    Lists lists = random_lists(random, {{5, 6}}, false);
    Lists filtered = lists, zeros = lists, skipped = lists;
    const std::pair<int64_t, double> odd[] = {{3, INFINITY}, {7, NAN}, {29, -INFINITY}};
    for (const auto &[at, x] : odd) filtered["gradients"][0].set(at, x), zeros["gradients"][0].set(at, 0);
    const tartan_status status = run("zero_infs=1 zero_nans=1 saturate=1.5", filtered);
    if (is_refused(status)) return;
    ASSERT_OK(status);
    ASSERT_OK(run("saturate=1.5", zeros));
    for (const char *name : {"parameters", "means"})
        EXPECT_TRUE(filtered[name][0].memory() == zeros[name][0].memory()) << name;
    const Lists before = skipped;
    for (const double scale : {0.0, (double)INFINITY, (double)NAN}) {
        skipped["scale"] = {Dense(TARTAN_F64, {1}, kRows)};
        skipped["scale"][0].set(0, scale);
        ASSERT_OK(run("", skipped));
        for (const char *name : {"parameters", "means"})
            EXPECT_TRUE(skipped[name][0].memory() == before.at(name)[0].memory()) << name;
    }
}

TEST(Muon, GivesTheSameBitsForAnyNumberOfThreads) {
    std::vector<std::string> first;
    for (const int threads : {1, 2, 7}) {
        std::mt19937_64 random(5);
        const Context context = open_context(threads);
        Lists lists;
        for (const char *name : {"parameters", "gradients", "means"})
            for (const auto &shape : std::vector<std::vector<int64_t>>{{60, 80}, {70, 32, 32}}) {
                lists[name].emplace_back(TARTAN_F32, shape, kRows);
                lists[name].back().fill(random, -2, 2);
            }
        ASSERT_OK(call(context.get(), true, "muon", "", lists));
        std::vector<std::string> bits;
        for (const auto &[name, all] : lists)
            for (const Dense &one : all) bits.emplace_back(one.memory().begin(), one.memory().end());
        if (first.empty()) first = bits;
        EXPECT_TRUE(first == bits) << threads << " threads";
    }
}

TEST(Muon, RefusesVectors) {
    Dense one(TARTAN_F32, {3, 2}, kRows), vector(TARTAN_F32, {3}, kRows);
    tartan_array p[] = {one.array, vector.array}, g[] = {one.array, vector.array},
                 m[] = {one.array, vector.array};
    Dense g_own(TARTAN_F32, {3, 2}, kRows), g_vector(TARTAN_F32, {3}, kRows),
        m_own(TARTAN_F32, {3, 2}, kRows), m_vector(TARTAN_F32, {3}, kRows);
    g[0] = g_own.array, g[1] = g_vector.array, m[0] = m_own.array, m[1] = m_vector.array;
    EXPECT_FAILS(SHAPE, "muon: array 2 of parameters has shape [3], expected two dimensions or more",
                 tartan_muon(cpu(), p, g, m, nullptr, 2, ""));
}

} // namespace
