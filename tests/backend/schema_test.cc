// SPDX-License-Identifier: Apache-2.0
// Every operation of the schema on every backend: the results of the CPU, the same bits in every run, with every number of threads and
// every instruction set, gradients that finite differences confirm, operands of other devices refused.
#include "../support/json.h"
#include "../support/schema_placed.h"
#include "explained.h"

namespace {

using namespace tartan_test;

class BackendOperations : public OnBackend {
  protected:
    // Calls f(operation) for each.
    template <typename F> void each(F f) {
        for (int op = 0; op < tartan_i_schema_count; op++) {
            SCOPED_TRACE(schema_of(op).name);
            f(op);
            if (HasFailure()) return;
        }
    }
    PlacedCase put(Case &c) { return PlacedCase(context.get(), c, on_host()); }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendOperations, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

// Of the largest result: a device may sum in another order than the CPU, and round functions otherwise.
// Attention rounds its weights to the dtype of v, relative to another maximum on each.
double bound(Case &c, int i, double want, double largest) {
    const bool has_weights = c.find("v") >= 0;
    return 2 * epsilon(c.dtype_of(i)) * std::fabs(want) +
           256 * epsilon(tartan_i_sum_dtype(c.dtype_of(i))) * largest +
           (has_weights ? 2 * epsilon(c.wish.dtype) * largest : 0);
}

TEST_P(BackendOperations, GiveWhatTheCpuGives) {
    const Context host = open_context(2);
    each([&](int op) {
        for (uint64_t seed = 0; seed < rounds(20u); seed++) {
            SCOPED_TRACE(::testing::Message() << "seed " << seed);
            Wish wish = random_wish(seed);
            wish.extras = seed % 3 == 0, wish.plain_sizes = seed % 5 == 4, wish.scale = seed % 5 == 4 ? 7 : 1;
            Case want(op, wish), got(op, wish), again(op, wish);
            SCOPED_TRACE(want.text());
            PlacedCase first = put(got), second = put(again);
            RUN_OR_NEXT(first.run());
            ASSERT_OK(second.run());
            first.fetch(), second.fetch();
            ASSERT_OK(want.run(host.get()));
            for (int i = 0; i < want.count(); i++) {
                if (!want.has_values(i) || !want.is_output(i)) continue;
                SCOPED_TRACE(want.rule(i).name);
                double largest = 0;
                for (const double value : want.values(i)) largest = std::max(largest, std::fabs(value));
                for (int64_t e = 0; e < want.elements(i); e++) {
                    const double w = want.get(i, e), g = got.get(i, e);
                    if (w == g || (std::isnan(w) && std::isnan(g))) continue;
                    ASSERT_EQ("cuda", GetParam()) << "element " << e << " is " << g << ", expected " << w;
                    ASSERT_NEAR(w, g, bound(want, i, w, largest)) << "element " << e;
                }
                ASSERT_EQ(got.values(i), again.values(i)) << "two runs gave different bits";
                ASSERT_TRUE(!got.is_array(i) || marks_intact(got.dense(i)));
            }
        }
    });
}

// Each operand left in host memory while the context is elsewhere. Nothing is written.
TEST_P(BackendOperations, RefuseOperandsOfTheHost) {
    if (on_host()) return;
    each([&](int op) {
        for (int i = 0; i < schema_of(op).narguments; i++) {
            Case c(op, Wish());
            if (!c.has_values(i)) continue;
            PlacedCase on = put(c);
            on.fetch(); // padding becomes 0
            const auto before = c.memory_of_outputs();
            on.given[(size_t)i] = c.given[(size_t)i];
            EXPECT_FAILS(UNSUPPORTED,
                         std::string(c.schema.function) + ": " + c.rule(i).name +
                             " is on device 1:0, expected 2:",
                         on.run());
            on.fetch();
            EXPECT_TRUE(before == c.memory_of_outputs());
        }
    });
}

// What the device itself refuses, or cannot do: the dummy can be told to.
TEST_P(BackendOperations, LeaveOutputsIfTheDeviceFails) {
    if (!dummy()) return;
    each([&](int op) {
        Case c(op, Wish());
        PlacedCase on = put(c);
        on.fetch();
        const auto before = c.memory_of_outputs();
        tartan_dummy.refusal = "it is a test";
        EXPECT_FAILS(UNSUPPORTED, "it is a test", on.run());
        tartan_dummy.refusal = nullptr;
        tartan_dummy.lost = true;
        EXPECT_EQ(TARTAN_ERR_DEVICE, on.run());
        tartan_dummy.lost = false;
        on.fetch();
        EXPECT_TRUE(before == c.memory_of_outputs());
    });
}

// It says what would run, and doesn't.
TEST_P(BackendOperations, ExplainThemselves) {
    each([&](int op) {
        Case c(op, Wish());
        PlacedCase on = put(c);
        on.fetch();
        const auto before = c.memory_of_outputs();
        const Json all = Json::read(explained([&] { return on.run(); }));
        ASSERT_EQ(Json::kList, all.kind);
        if (c.schema.run != nullptr) { // others say what it is made of
            ASSERT_LE(1u, all.items.size());
        } else {
            ASSERT_EQ(1u, all.items.size());
            EXPECT_EQ(c.schema.name, all.items[0]["operation"].text);
        }
        on.fetch();
        EXPECT_TRUE(before == c.memory_of_outputs());
    });
}

// ---- Gradients ----

// The gradient of an operation, called with the operands and results of `c`. Empty where it has none.
class GradientCase {
  public:
    std::unique_ptr<Case> grad;
    std::map<int, int> weights; // output of the operation: argument of the gradient that is its gradient
    std::map<int, int> slopes;  // input: output of the gradient

    GradientCase(Case &c, const std::string &name) {
        int32_t op = -1;
        EXPECT_OK(tartan_op_find(name.c_str(), &op));
        grad = std::make_unique<Case>(op, c.wish);
        grad->options.clear();
        for (int i = 0; i < grad->count(); i++) {
            const std::string called = grad->rule(i).name;
            const int same = c.find(called),
                      of = called.size() > 5 ? c.find(called.substr(0, called.size() - 5)) : -1;
            const int like = same >= 0 ? same : of;
            EXPECT_GE(like, 0) << called;
            if (like < 0) continue;
            if (c.given[(size_t)like] == nullptr) {
                grad->given[(size_t)i] = nullptr;
            } else if (c.is_array(like)) {
                const tartan_array &a = c.array(like);
                grad->give_array(i, same >= 0 ? c.dense(like) : Dense(a.dtype, {a.shape, a.shape + a.ndim}));
                if (same < 0) grad->dense(i).fill(grad->random(), 0.4, 1.6);
            } else if (c.is_matrix(like)) {
                tartan_matrix *raw = nullptr;
                EXPECT_OK(tartan_matrix_copy(cpu(), c.matrix(like), &raw));
                grad->give_matrix(i, Matrix(raw));
                std::uniform_real_distribution<double> uniform(0.4, 1.6);
                for (int64_t e = 0; same < 0 && e < grad->elements(i); e++)
                    grad->set(i, e, uniform(grad->random()));
            } else {
                grad->given[(size_t)i] = c.given[(size_t)like];
            }
            if (same >= 0 || grad->given[(size_t)i] == nullptr) continue;
            (grad->is_output(i) ? slopes : weights)[like] = i;
        }
        take_options(c);
    }

  private:
    void take_options(const Case &c) {
        std::string text = " " + c.text() + " ";
        for (int32_t i = 0; i < grad->schema.noptions; i++) {
            const std::string name = grad->schema.options[i].name;
            if (grad->schema.options[i].kind == TARTAN_I_OPTION_WINDOWS) continue;
            const size_t begin = text.find(" " + name + "=");
            if (begin == std::string::npos) continue;
            grad->options += text.substr(begin, text.find(' ', begin + 1) - begin);
        }
        grad->list = {};
        grad->windows = c.windows;
    }
};

TEST_P(BackendOperations, GradientsAreThoseOfFiniteDifferences) {
    each([&](int op) {
        char *text = nullptr;
        ASSERT_OK(tartan_op_describe(op, 1, &text));
        std::string name = Json::read(text)["gradient"].text;
        tartan_text_free(text);
        if (name == "quantize_gradient") name = ""; // goes straight through steps
        for (uint64_t seed = 0; !name.empty() && seed < rounds(6u); seed++) {
            SCOPED_TRACE(::testing::Message() << "seed " << seed);
            Wish wish = random_wish(4 * seed);
            wish.extras = seed % 2 == 0, wish.random = seed > 1, wish.repeated = false;
            wish.outputs = true; // the gradient needs some of them
            if (seed % 3 == 2) wish.low = -1.7, wish.high = -0.3;
            if (seed % 2 == 1)
                for (int32_t i = 0; i < schema_of(op).noptions; i++) {
                    const tartan_i_option_rule &o = schema_of(op).options[i];
                    if (o.kind == TARTAN_I_OPTION_FLAG) wish.options += std::string(" ") + o.name + "=1";
                    if (std::string(o.name) == "saturate")
                        continue; // where it limits numbers, there is no slope
                    if (o.kind == TARTAN_I_OPTION_REAL && !o.positional)
                        wish.options += std::string(" ") + o.name + "=" +
                                        Case::in_full(std::isnan(o.value) ? 0.7 : o.value + 0.2);
                }
            Case c(op, wish);
            const auto forward = [&] {
                PlacedCase on = put(c);
                const tartan_status status = on.run();
                on.fetch();
                return status;
            };
            RUN_OR_NEXT(forward());
            GradientCase g(c, name);
            const auto sum = [&] {
                long double all = 0;
                for (const auto &[output, weight] : g.weights)
                    for (int64_t e = 0; e < c.elements(output); e++)
                        all += (long double)c.get(output, e) * g.grad->get(weight, e);
                return all;
            };
            if (!std::isfinite((double)sum())) continue; // a logarithm of negative numbers
            PlacedCase on(context.get(), *g.grad, on_host());
            RUN_OR_NEXT(on.run());
            on.fetch();
            ASSERT_FALSE(g.weights.empty());
            for (const auto &[input, slope] : g.slopes)
                for (int64_t e = 0; e < c.elements(input); e += 1 + c.elements(input) / 12) {
                    const double h = 1e-5, x = c.get(input, e);
                    c.set(input, e, x + h);
                    ASSERT_OK(forward());
                    const long double above = sum();
                    c.set(input, e, x - h);
                    ASSERT_OK(forward());
                    const double want = (double)((above - sum()) / ((x + h) - (x - h)));
                    c.set(input, e, x);
                    ASSERT_NEAR(want, g.grad->get(slope, e), 1e-6 * (1 + std::fabs(want)))
                        << g.grad->rule(slope).name << " " << e;
                }
        }
    });
}

// ---- Bits, on the CPU ----

class CpuOperations : public ForOperation {
  protected:
    Case of(uint64_t seed) {
        Wish wish = random_wish(seed);
        wish.plain_sizes = seed / 4 % 2 == 1, wish.scale = wish.plain_sizes ? 13 : 1,
        wish.extras = seed % 3 == 0;
        return Case(op, wish);
    }
};
FOR_EACH_OPERATION(CpuOperations);

// Where instruction sets multiply 16-bit numbers themselves, as in attention and a layer of classes, they may round otherwise.
TEST_P(CpuOperations, BitsDoNotDependOnThreadsAndInstructionSets) {
    const Context teams[] = {open_context(1), open_context(2), open_context(3), open_context(7)};
    for (uint64_t seed = 0; seed < rounds(24u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::vector<std::string> first;
        for (const tartan_i_cpu_features set : feature_sets()) {
            const WithFeatures with(set);
            for (const Context &team : teams) {
                Case c = of(seed);
                ASSERT_OK(c.run(team.get()));
                const bool multiplies = c.find("v") >= 0 || (c.find("w") >= 0 && c.find("labels") >= 0);
                const bool own_bits = tartan_dtype_bytes(c.wish.dtype) == 2 && multiplies;
                if (first.empty() || (own_bits && &team == teams)) first = c.memory_of_outputs();
                ASSERT_TRUE(first == c.memory_of_outputs())
                    << features_name(set) << ", " << tartan_context_threads(team.get()) << " threads";
            }
        }
    }
}

} // namespace
