// SPDX-License-Identifier: Apache-2.0
// Hard-concrete gates of sparsifiers against the operations that they consist of, and Adam written by hand.
#include "sparsifier_support.h"

#include <cmath>
#include <limits>
#include <map>

using namespace tartan_test;

namespace {

const tartan_shape kShape = {60, 75, 8, 16, 1}, kOther = {64, 32, 8, 8, 2};

tartan_array list_of(std::vector<double> &list) {
    tartan_array out;
    const int64_t n = (int64_t)list.size();
    EXPECT_OK(tartan_array_init(list.data(), TARTAN_F64, 1, &n, nullptr, &out));
    return out;
}
std::vector<double> gates_of(const tartan_sparsifier *s, int64_t weight, int32_t training) {
    std::vector<double> out((size_t)tartan_layout_blocks(layout_of(s, weight).get()));
    EXPECT_OK(tartan_sparsifier_get_gates(s, weight, training, out.data(), (int64_t)out.size()));
    return out;
}
double penalty_of(const tartan_sparsifier *s) {
    double out = -1;
    EXPECT_OK(tartan_sparsifier_get_penalty(s, &out));
    return out;
}
std::vector<double> gates_for(std::vector<double> loga, int64_t seed) {
    tartan_array x = list_of(loga);
    const std::string options = "seed=" + std::to_string(seed);
    if (seed < 0)
        EXPECT_OK(tartan_concrete_gate_infer(cpu(), &x, nullptr, &x));
    else
        EXPECT_OK(tartan_concrete_gate(cpu(), &x, options.c_str(), &x));
    return loga;
}
std::vector<int64_t> positions_of(const tartan_layout *l) {
    std::vector<int64_t> heads((size_t)tartan_layout_blocks(l)), rows(heads), cols(heads);
    const int64_t n = (int64_t)heads.size();
    EXPECT_OK(tartan_layout_get_coordinates(l, heads.data(), n, rows.data(), n, cols.data(), n));
    for (size_t i = 0; i < heads.size(); i++)
        heads[i] = (heads[i] * tartan_layout_grid_rows(l) + rows[i]) * tartan_layout_grid_cols(l) + cols[i];
    return heads;
}
double sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}
// With the defaults of the gates, log alpha of this or less is closed.
const double kClosed = -std::log(11.0), kShift = 2.0 / 3 * std::log(11.0);

// The gate of a block by hand.
struct Gate {
    double loga, mean = 0, square = 0;
};
using Gates = std::map<int64_t, Gate>; // by position

std::vector<double> logs_of(const Gates &gates) {
    std::vector<double> out;
    for (const auto &[position, gate] : gates) out.push_back(gate.loga);
    return out;
}

// A step of Adam on all of them: the scores are the negative gradient of the loss.
void learn(Gates &gates, std::vector<double> scores, int64_t seed, int64_t step, double rate, double l0,
           double share) {
    std::vector<double> logs = logs_of(gates);
    for (double &x : scores) x = -x;
    const tartan_array x = list_of(logs);
    tartan_array grad = list_of(scores);
    const std::string options = "seed=" + std::to_string(seed);
    ASSERT_OK(tartan_concrete_gate_gradient(cpu(), &x, &grad, options.c_str(), &grad));
    size_t i = 0;
    for (auto &[position, gate] : gates) {
        const double p = sigmoid(gate.loga + kShift), g = scores[i++] + l0 * share * p * (1 - p);
        gate.mean = 0.9 * gate.mean + 0.1 * g;
        gate.square = 0.999 * gate.square + 0.001 * g * g;
        gate.loga -= rate * (gate.mean / (1 - std::pow(0.9, step))) /
                     (std::sqrt(gate.square / (1 - std::pow(0.999, step))) + 1e-8);
    }
}

TEST(SparsifierGates, AreThoseOfTheOperations) {
    const Layout a = random_layout(kShape, 0.7, 3), b = random_layout(kOther, 0.5, 4);
    const Sparsifier s = sparsifier_of("score=gate seed=11 gate_initial=-1.5 begin=100", {a.get(), b.get()});
    for (int64_t step = 1; step <= 3; step++) {
        for (int64_t i = 0; i < 2; i++) {
            const std::vector<double> logs((size_t)tartan_layout_blocks((i == 0 ? a : b).get()), -1.5);
            EXPECT_EQ(gates_of(s.get(), i, 1), gates_for(logs, 11 + 2 * step + i));
            EXPECT_EQ(gates_of(s.get(), i, 0), gates_for(logs, -1));
        }
        EXPECT_EQ(tartan_sparsifier_needs_norms(s.get()), 0);
        ASSERT_OK(tartan_sparsifier_prepare(s.get()));
        ASSERT_OK(tartan_sparsifier_commit(s.get())); // without scores: nothing is learned
    }
    EXPECT_EQ(gates_of(sparsifier_of("score=gate", {a.get()}).get(), 0, 0),
              gates_for(std::vector<double>((size_t)tartan_layout_blocks(a.get()), 2), -1));
}

TEST(SparsifierGates, ThePenaltyIsTheExpectedDensity) {
    const Layout a = random_layout(kShape, 0.7, 3), b = random_layout(kOther, 0.5, 4);
    const Sparsifier s = sparsifier_of("score=gate l0=0.3 gate_initial=0.4", {a.get(), b.get()});
    const double stored =
                     (double)tartan_layout_blocks(a.get()) * 128 + (double)tartan_layout_blocks(b.get()) * 64,
                 all = 8 * 5 * 128 + 8 * 4 * 2 * 64;
    EXPECT_NEAR(penalty_of(s.get()), 0.3 * sigmoid(0.4 + kShift) * stored / all, 1e-14);
    EXPECT_EQ(penalty_of(sparsifier_of("score=gate", {a.get()}).get()), 0);
    EXPECT_EQ(penalty_of(sparsifier_of("score=gate l0=1", {}).get()), 0);
}

struct Case {
    const char *options;
    int64_t every;
    double rate, l0;
};

// Training by hand beside the sparsifier: what its gates are after each step, through closed, swapped and skipped ones.
class SparsifierGatesLearn : public testing::TestWithParam<Case> {};
TEST_P(SparsifierGatesLearn, LikeAdamByHand) {
    const Case c = GetParam();
    const Layout first[2] = {random_layout(kShape, 1, 3), random_layout(kOther, 0.8, 4)};
    const Sparsifier s = sparsifier_of(c.options, {first[0].get(), first[1].get()});
    Trained a(first[0].get(), 1), b(first[1].get(), 2);
    const double all = 8 * 5 * 128 + 8 * 4 * 2 * 64, share[2] = {128 / all, 64 / all};
    Gates gates[2];
    for (int i = 0; i < 2; i++)
        for (int64_t p : positions_of(first[i].get())) gates[i][p] = {0.5};
    const auto numbers = [](const Gates &g, int64_t seed) {
        return random_values(g.size(), (uint64_t)seed, -2, 1); // more gates close than open
    };
    int64_t removed = 0, grown = 0;
    for (int64_t step = 1; step <= 24; step++) {
        for (int64_t i = 0; i < 2 && step % 5 != 0; i++) { // each fifth step is skipped
            std::vector<double> scores = numbers(gates[i], 10 * step + i), half = scores;
            for (double &x : half) x /= 2; // given in two parts
            for (int part = 0; part < 2; part++)
                ASSERT_OK(tartan_sparsifier_add_scores(s.get(), i, half.data(), (int64_t)half.size()));
            learn(gates[i], scores, 5 + 2 * step + i, step, c.rate, c.l0, share[i]);
        }
        tartan_matrix *parts[2] = {a.parts[0], b.parts[0]};
        ASSERT_OK(tartan_sparsifier_step(cpu(), s.get(), parts, 2));
        a.parts[0] = parts[0], b.parts[0] = parts[1];
        for (int64_t i = 0; i < 2; i++) {
            const Layout now = layout_of(s.get(), i);
            const std::vector<int64_t> positions = positions_of(now.get());
            Gates next;
            for (int64_t p : positions) {
                const auto found = gates[i].find(p);
                grown += found == gates[i].end();
                next[p] = found == gates[i].end() ? Gate{0.5} : found->second;
            }
            if (step % c.every == 0 && std::string(c.options).find("swap") == std::string::npos) {
                for (const auto &[p, gate] : gates[i])
                    EXPECT_EQ(next.count(p), gate.loga > kClosed ? 1u : 0u) << step << " " << gate.loga;
            } else if (step % c.every != 0) {
                EXPECT_EQ(next.size(), gates[i].size());
            }
            removed += (int64_t)(gates[i].size() - next.size());
            gates[i] = next;
            const std::vector<double> expected = gates_for(logs_of(next), -1),
                                      found = gates_of(s.get(), i, 0);
            for (size_t k = 0; k < found.size(); k++) ASSERT_NEAR(found[k], expected[k], 1e-12) << step;
        }
    }
    EXPECT_GT(removed, 10);
    EXPECT_EQ(grown > 0, std::string(c.options).find("swap") != std::string::npos);
}
INSTANTIATE_TEST_SUITE_P(
    Options, SparsifierGatesLearn,
    testing::Values(
        Case{"score=gate gate_initial=0.5 gate_rate=0.3 every=4 seed=5", 4, 0.3, 0},
        Case{"score=gate gate_initial=0.5 gate_rate=0.2 every=3 seed=5 l0=40 scope=model", 3, 0.2, 40},
        Case{"score=gate gate_initial=0.5 gate_rate=0.3 every=4 swap=0.3 growth=random seed=5", 4, 0.3, 0}));

// Density and threshold are of the logarithms of alpha.
TEST(SparsifierGates, DensityAndThreshold) {
    const Layout l = random_layout({32, 64, 8, 8, 1}, 1, 1);
    std::vector<double> scores(32);
    for (size_t i = 0; i < 32; i++) scores[i] = i % 3 == 0 ? -5 : 5;
    for (const char *options :
         {"score=gate density=0.65625", "score=gate density=0.65625 scope=model", "score=gate threshold=2"}) {
        // With large steps: those whose gates are to close are below 2, and others above.
        const Sparsifier s =
            sparsifier_of((std::string(options) + " gate_rate=0.1 begin=30 end=30").c_str(), {l.get()});
        tartan_matrix *parts[1] = {normal_on(l.get(), 1).release()};
        for (int step = 1; step <= 30; step++) {
            ASSERT_EQ(tartan_layout_blocks(layout_of(s.get()).get()), 32);
            ASSERT_OK(tartan_sparsifier_add_scores(s.get(), 0, scores.data(), 32));
            ASSERT_OK(tartan_sparsifier_step(cpu(), s.get(), parts, 1));
        }
        const Layout left = layout_of(parts[0]);
        tartan_matrix_free(parts[0]);
        std::vector<int64_t> expected;
        for (int64_t i = 0; i < 32; i++)
            if (i % 3 != 0) expected.push_back(i);
        EXPECT_EQ(positions_of(left.get()), expected) << options;
    }
}

TEST(SparsifierGates, Refusals) {
    const Layout l = random_layout({32, 64, 8, 8, 1}, 1, 1);
    const Sparsifier s = sparsifier_of("score=gate", {l.get()}),
                     other = sparsifier_of("score=movement", {l.get()});
    const Matrix w = normal_on(l.get(), 1);
    double out[32];
    EXPECT_FAILS(ARGUMENT, "sparsifier has no gates, expected the option score=gate",
                 tartan_sparsifier_get_gates(other.get(), 0, 1, out, 32));
    EXPECT_FAILS(ARGUMENT, "sparsifier has no gates", tartan_sparsifier_get_penalty(other.get(), out));
    EXPECT_FAILS(ARGUMENT, "weight is 1, expected one of the 1",
                 tartan_sparsifier_get_gates(s.get(), 1, 1, out, 32));
    EXPECT_FAILS(ARGUMENT, "training is 2, expected 0 or 1",
                 tartan_sparsifier_get_gates(s.get(), 0, 2, out, 32));
    EXPECT_FAILS(SHAPE, "out_gates has 31 entries, expected 32 (blocks)",
                 tartan_sparsifier_get_gates(s.get(), 0, 1, out, 31));
    EXPECT_FAILS(HANDLE, "sparsifier is NULL", tartan_sparsifier_get_gates(nullptr, 0, 1, out, 32));
    EXPECT_FAILS(HANDLE, "sparsifier is NULL", tartan_sparsifier_get_penalty(nullptr, out));
    EXPECT_FAILS(HANDLE, "out_value is NULL", tartan_sparsifier_get_penalty(s.get(), nullptr));
    EXPECT_FAILS(ARGUMENT, "option score=gate, expected that of a norm",
                 tartan_sparsifier_measure(cpu(), s.get(), 0, w.get()));
    // What would make logarithms of alpha NaN.
    std::vector<double> scores(32, 1e308);
    scores[3] = INFINITY;
    EXPECT_FAILS(ARGUMENT, "scores[3] is inf, expected finite numbers and sums",
                 tartan_sparsifier_add_scores(s.get(), 0, scores.data(), 32));
    scores[3] = 0;
    ASSERT_OK(tartan_sparsifier_add_scores(s.get(), 0, scores.data(), 32));
    EXPECT_FAILS(ARGUMENT, "scores[0] is 1e+308, expected finite numbers and sums",
                 tartan_sparsifier_add_scores(s.get(), 0, scores.data(), 32));
    for (const char *options : {"l0=-1", "gate_rate=-0.1", "gate_initial=inf"}) {
        tartan_sparsifier *none = nullptr;
        EXPECT_FAILS(ARGUMENT, std::string("'") + options + "', expected a number",
                     tartan_sparsifier_create(options, &none));
    }
}

TEST(SparsifierGates, EveryAllocationMayFail) {
    tartan_sparsifier *created = nullptr;
    BRUTAL(tartan_sparsifier_create("score=gate", &created), tartan_sparsifier_free(created));
}
TEST(SparsifierGates, EveryAllocationOfAskingMayFail) {
    const Layout l = random_layout({32, 64, 8, 8, 1}, 1, 1);
    const Sparsifier s = sparsifier_of("score=gate l0=1", {l.get()});
    double gates[32], penalty;
    const auto ask = [&] {
        const tartan_status status = tartan_sparsifier_get_gates(s.get(), 0, 1, gates, 32);
        return status == TARTAN_OK ? tartan_sparsifier_get_penalty(s.get(), &penalty) : status;
    };
    BRUTAL(ask(), );
}

} // namespace
