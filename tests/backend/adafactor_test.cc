// SPDX-License-Identifier: Apache-2.0
// Adafactor on every backend, against its formula in long double.
#include "optimisers.h"

namespace {

using namespace tartan_test;

// Means of rows and columns of parameters: their shapes lack the last axis, and the last but one.
std::vector<Dense> means(std::mt19937_64 &random, const std::vector<Dense> &parameters, bool rows) {
    std::vector<Dense> all;
    for (const Dense &p : parameters) {
        const std::vector<int64_t> shape(p.array.shape, p.array.shape + p.array.ndim);
        std::vector<int64_t> own = shape;
        if (shape.size() > 1)
            own.erase(own.end() - (rows ? 1 : 2));
        else if (!rows)
            own = {0};
        all.emplace_back(tartan_i_sum_dtype(p.array.dtype), own,
                         random() % 2 ? kRows : (Style)below(random, kRepeated));
        all.back().fill(random, 0.1, 2);
    }
    return all;
}

struct Numbers {
    real rate = 0.25L, d = 0, epsilon = 0.0625L, clip = 0, relative = 0, decay = 0.125L, factor = 1;
};

// The new values of one parameter and its means.
struct Result {
    std::vector<real> p, rows, cols;
};

Result expected(const Dense &p, const Dense &g, const Dense &r, const Dense &c, const Numbers &n) {
    const bool flat = p.array.ndim < 2;
    const int64_t elements = p.elements(), cols = flat ? elements : p.array.shape[p.array.ndim - 1],
                  rows = flat ? 1 : p.array.shape[p.array.ndim - 2];
    Result out;
    std::vector<real> x((size_t)elements);
    const auto mean_of = [&](real old, real sum, int64_t terms) {
        return n.d * old + (1 - n.d) * (sum / (real)terms + n.epsilon);
    };
    const auto square = [&](int64_t e) { return (real)g.get(e) * g.get(e) * n.factor * n.factor; };
    if (flat) {
        for (int64_t e = 0; e < elements; e++) {
            out.rows.push_back(mean_of(r.get(e), square(e), 1));
            x[(size_t)e] = g.get(e) * n.factor / std::sqrt(out.rows.back());
        }
    } else {
        for (int64_t i = 0; i < r.elements(); i++) {
            real sum = 0;
            for (int64_t j = 0; j < cols; j++) sum += square(i * cols + j);
            out.rows.push_back(cols > 0 ? mean_of(r.get(i), sum, cols) : (real)r.get(i));
        }
        for (int64_t i = 0; i < c.elements(); i++) {
            real sum = 0;
            for (int64_t j = 0; j < rows; j++) sum += square((i / cols * rows + j) * cols + i % cols);
            out.cols.push_back(rows > 0 ? mean_of(c.get(i), sum, rows) : (real)c.get(i));
        }
        std::vector<real> matrix_means((size_t)(elements > 0 ? elements / (rows * cols) : 0));
        for (size_t i = 0; i < out.rows.size() && elements > 0; i++)
            matrix_means[i / (size_t)rows] += out.rows[i] / (real)rows;
        for (int64_t e = 0; e < elements; e++) {
            const int64_t matrix = e / (rows * cols);
            const real mean = matrix_means[(size_t)matrix];
            x[(size_t)e] =
                g.get(e) * n.factor /
                std::sqrt(out.rows[(size_t)(e / cols)] * out.cols[(size_t)(matrix * cols + e % cols)] / mean);
        }
    }
    real x_sum = 0, p_sum = 0;
    for (int64_t e = 0; e < elements; e++) {
        x_sum += x[(size_t)e] * x[(size_t)e];
        p_sum += (real)p.get(e) * p.get(e);
    }
    const real x_rms = std::sqrt(x_sum / (real)elements), p_rms = std::sqrt(p_sum / (real)elements);
    const real size = n.relative > 0 ? std::fmax(n.relative, p_rms) : 1;
    const real clipped = n.clip > 0 ? std::fmax(1.0L, x_rms / n.clip) : 1;
    for (int64_t e = 0; e < elements; e++)
        out.p.push_back(p.get(e) - n.rate * (n.decay * p.get(e) + size * x[(size_t)e] / clipped));
    return out;
}

class BackendAdafactor : public OnBackend {
  protected:
    tartan_status run(const std::string &options, Lists &lists) {
        return call(context.get(), on_host(), "adafactor", options, lists);
    }
    void check(uint64_t seed) {
        std::mt19937_64 random(seed);
        std::vector<int32_t> dtypes;
        for (size_t i = 0; i < kShapes.size(); i++)
            dtypes.push_back(seed % 3 == 0 ? TARTAN_F32 : kDtypes[below(random, 4)]);
        Numbers n;
        const int step = 1 + (int)(seed % 4);
        std::string options = "rate=0.25 epsilon=0.0625 weight_decay=0.125 step=" + std::to_string(step);
        n.d = 0.75L * (1 - std::pow(0.75L, step)) / (1 - std::pow(0.75L, step + 1));
        if (seed % 2)
            n.d = 1 - std::pow((real)step, -0.75L), options += " power=0.75";
        else
            options += " beta2=0.75";
        n.clip = pick<real>(random, {0, 0.5L, 100});
        n.relative = pick<real>(random, {0, 0.25L, 8});
        options += " clip_threshold=" + std::to_string((double)n.clip) +
                   " relative=" + std::to_string((double)n.relative);
        Lists lists;
        lists["parameters"] = list(random, dtypes, true, -2, 2, seed % 2 == 0);
        lists["gradients"] =
            list(random, seed % 3 == 0 ? dtypes : dtypes_like(random, dtypes), false, -2, 2, seed % 2 == 0);
        lists["row_squares"] = means(random, lists["parameters"], true);
        lists["col_squares"] = means(random, lists["parameters"], false);
        if (seed % 5 > 2) {
            options += " grad_scale=2";
            lists["scale"] = {Dense(pick<int32_t>(random, {TARTAN_F32, TARTAN_F64}), {1}, kRows)};
            lists["scale"][0].set(0, 0.75);
            n.factor = 1.5L;
        }
        const Lists before = lists;
        const tartan_status status = run(options, lists);
        if (is_refused(status)) return;
        ASSERT_OK(status);
        std::vector<std::vector<real>> p, rows, cols;
        for (size_t i = 0; i < kShapes.size(); i++) {
            Result want = expected(before.at("parameters")[i], before.at("gradients")[i],
                                   before.at("row_squares")[i], before.at("col_squares")[i], n);
            p.push_back(want.p), rows.push_back(want.rows), cols.push_back(want.cols);
        }
        const std::vector<real> slack(kShapes.size(), 16);
        expect_list(before.at("parameters"), lists["parameters"], p, slack, "parameters");
        expect_list(before.at("row_squares"), lists["row_squares"], rows, slack, "row_squares");
        expect_list(before.at("col_squares"), lists["col_squares"], cols, slack, "col_squares");
    }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendAdafactor, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

TEST_P(BackendAdafactor, ComputesItsFormula) {
    for (uint64_t seed = 0; seed < rounds(24u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        check(seed);
        if (HasFatalFailure()) return;
    }
}

// Matrices that several threads, tiles and bands share, in either memory order; shapes that openai/blocksparse tested.
TEST_P(BackendAdafactor, ComputesItsFormulaOnLargeMatrices) {
    std::mt19937_64 random(3);
    for (const std::vector<int64_t> &shape : std::vector<std::vector<int64_t>>{
             {1}, {1, 2048}, {1024, 1023}, {1, 1023}, {100003}, {70, 32, 32}, {3, 8, 300, 40}, {2, 129, 130}})
        for (const Style style : {kRows, kColumns}) {
            SCOPED_TRACE(::testing::Message() << ::testing::PrintToString(shape) << " style " << style);
            Lists lists;
            for (const char *name : {"parameters", "gradients"}) {
                lists[name].emplace_back(TARTAN_F32, shape, style);
                lists[name][0].fill(random, -2, 2);
            }
            lists["row_squares"] = means(random, lists["parameters"], true);
            lists["col_squares"] = means(random, lists["parameters"], false);
            const Lists before = lists;
            Numbers n;
            n.rate = 5e-4L, n.d = 0.999L / 1.999L, n.epsilon = 1e-30L, n.clip = 1, n.decay = 0;
            const tartan_status status = run("", lists);
            if (is_refused(status)) return;
            ASSERT_OK(status);
            const Result want = expected(before.at("parameters")[0], before.at("gradients")[0],
                                         before.at("row_squares")[0], before.at("col_squares")[0], n);
            expect_list(before.at("parameters"), lists["parameters"], {want.p}, {4}, "parameters");
            expect_list(before.at("row_squares"), lists["row_squares"], {want.rows}, {16}, "row_squares");
            expect_list(before.at("col_squares"), lists["col_squares"], {want.cols}, {16}, "col_squares");
        }
}

TEST_P(BackendAdafactor, FiltersGradientsAndSkipsWhatIsNotFinite) {
    std::mt19937_64 random(4);
    Lists lists;
    for (const char *name : {"parameters", "gradients"}) {
        lists[name].emplace_back(TARTAN_F32, std::vector<int64_t>{5, 6}, kRows);
        lists[name][0].fill(random, 1, 2);
    }
    lists["row_squares"] = means(random, lists["parameters"], true);
    lists["col_squares"] = means(random, lists["parameters"], false);
    Lists filtered = lists, zeros = lists, skipped = lists;
    const std::pair<int64_t, double> odd[] = {{3, INFINITY}, {7, NAN}, {29, -INFINITY}};
    for (const auto &[at, x] : odd) filtered["gradients"][0].set(at, x), zeros["gradients"][0].set(at, 0);
    const tartan_status status = run("zero_infs=1 zero_nans=1 saturate=1.5", filtered);
    if (is_refused(status)) return;
    ASSERT_OK(status);
    ASSERT_OK(run("saturate=1.5", zeros));
    for (const char *name : {"parameters", "row_squares", "col_squares"})
        EXPECT_TRUE(filtered[name][0].memory() == zeros[name][0].memory()) << name;
    const Lists before = skipped;
    for (const double scale : {0.0, (double)INFINITY, (double)NAN}) {
        skipped["scale"] = {Dense(TARTAN_F64, {1}, kRows)};
        skipped["scale"][0].set(0, scale);
        ASSERT_OK(run("", skipped));
        for (const char *name : {"parameters", "row_squares", "col_squares"})
            EXPECT_TRUE(skipped[name][0].memory() == before.at(name)[0].memory()) << name;
    }
}

TEST(Adafactor, GivesTheSameBitsForAnyNumberOfThreads) {
    std::vector<std::string> first;
    for (const int threads : {1, 2, 3, 7}) {
        std::mt19937_64 random(5);
        const Context context = open_context(threads);
        Lists lists;
        for (const char *name : {"parameters", "gradients"})
            for (const auto &shape : std::vector<std::vector<int64_t>>{{40000}, {300, 517}, {70, 32, 32}}) {
                lists[name].emplace_back(TARTAN_F32, shape, kRows);
                lists[name].back().fill(random, -2, 2);
            }
        lists["row_squares"] = means(random, lists["parameters"], true);
        lists["col_squares"] = means(random, lists["parameters"], false);
        ASSERT_OK(call(context.get(), true, "adafactor", "relative=1e-3", lists));
        std::vector<std::string> bits;
        for (const auto &[name, all] : lists)
            for (const Dense &one : all) bits.emplace_back(one.memory().begin(), one.memory().end());
        if (first.empty()) first = bits;
        EXPECT_TRUE(first == bits) << threads << " threads";
    }
}

} // namespace
