// SPDX-License-Identifier: Apache-2.0
// Random numbers, dropout and hard-concrete gates on every backend, against numbers made one by one as operations.h says.
#include "called.h"

extern "C" {
#include "core/random.h"
}

#include <cmath>

namespace {

using namespace tartan_test;

class BackendRandom : public OnBackend {
  protected:
    Operand operand(int32_t dtype, const std::vector<int64_t> &shape, std::mt19937_64 &random, bool written) {
        Dense d(dtype, shape, (Style)below(random, written ? kRepeated : kStyles));
        d.fill(random, -2, 2);
        return {context.get(), d};
    }
    // A call with options of its own; what a test compares with follows from them.
    struct Draws {
        int64_t seed, offset;
        std::string text;
    };
    static Draws draws(std::mt19937_64 &random) {
        Draws d;
        d.seed = random() % 3 == 0 ? (int64_t)(random() >> 1) : (int64_t)below(random, 5);
        d.offset = random() % 2
                       ? 0
                       : pick<int64_t>(random, {1, 2, 3, 4, 7, 64, (int64_t)1 << 33, ((int64_t)1 << 34) - 2});
        d.text = " seed=" + std::to_string(d.seed) + " offset=" + std::to_string(d.offset);
        return d;
    }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendRandom, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

std::string in_full(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", value);
    return text;
}

uint32_t word(uint64_t seed, uint32_t stream, uint64_t number) {
    uint32_t words[4];
    tartan_i_philox(seed, stream, number / 4, 0, words);
    return words[number % 4];
}

double uniform(uint64_t seed, uint32_t stream, uint64_t number, int32_t dtype) {
    uint32_t words[4];
    tartan_i_philox(seed, stream, number / 2, 0, words);
    const uint32_t high = words[number % 2 * 2], low = words[number % 2 * 2 + 1];
    if (tartan_i_sum_dtype(dtype) == TARTAN_F32) return (high >> 8) * 0x1p-24;
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}

// The element of an array with the lengths `part` that meets element i of an array with the lengths `whole`, to which it is broadcast.
uint64_t met(const std::vector<int64_t> &whole, const std::vector<int64_t> &part, int64_t i) {
    int64_t at = 0, step = 1;
    for (size_t d = 1; d <= whole.size(); d++) {
        const int64_t length = whole[whole.size() - d];
        if (d <= part.size()) {
            const int64_t own = part[part.size() - d];
            if (own != 1) at += i % length * step;
            step *= own;
        }
        i /= length;
    }
    return (uint64_t)at;
}

TEST_P(BackendRandom, DropoutKeepsWhatItsWordsSay) {
    std::mt19937_64 random(1);
    for (int round = 0; round < rounds(200); round++) {
        SCOPED_TRACE(round);
        std::vector<int64_t> shape = any_shape(random, 0);
        if (round % 5 == 0) shape = {pick<int64_t>(random, {1, 1023, 4096, 5001})};
        const int32_t dtype = kDtypes[round % 4];
        const double p = pick<double>(random, {0, 0.1, 0.5, 0.9});
        const Draws d = draws(random);
        std::string options = "dropout=" + in_full(p) + d.text;
        std::vector<int64_t> numbers = shape;
        if (round % 3 == 0 && !shape.empty()) {
            numbers.erase(numbers.begin(), numbers.begin() + (std::ptrdiff_t)below(random, shape.size()));
            std::string text;
            for (int64_t &length : numbers) {
                if (random() % 2) length = 1;
                text += (text.empty() ? "" : "x") + std::to_string(length);
            }
            options += " mask_shape=" + text;
        }
        for (const bool back : {false, true}) {
            Operand x = operand(dtype, shape, random, false),
                    y = operand(back ? like_dtype(dtype, random) : dtype, shape, random, true);
            RUN_OR_NEXT(
                call(context.get(), back ? "dropout_gradient" : "dropout", {x.array(), y.array()}, options));
            const Dense got = y.got();
            for (int64_t i = 0; i < got.elements(); i++) {
                const uint64_t number = (uint64_t)d.offset + met(shape, numbers, i);
                const bool kept =
                    word((uint64_t)d.seed, TARTAN_I_STREAM_ELEMENT_DROPOUT, number) >= (uint32_t)(p * 0x1p32);
                const bool wide = dtype == TARTAN_F64;
                const double scale = wide ? 1 / (1 - p) : (double)(float)(1 / (1 - p)), in = x.dense.get(i);
                const double want = !kept ? 0 : wide ? in * scale : (double)((float)in * (float)scale);
                ASSERT_EQ(rounded(got.array.dtype, want), got.get(i)) << i;
            }
            EXPECT_TRUE(marks_intact(got));
        }
        if (HasFailure()) return;
    }
}

// A long array has the same numbers as its parts, whatever the threads; about as many are kept as should be.
TEST_P(BackendRandom, PartsHaveTheNumbersOfTheWhole) {
    const int64_t n = 100003, cut = 50001;
    std::mt19937_64 random(2);
    Dense ones(TARTAN_F32, {n});
    for (int64_t i = 0; i < n; i++) ones.set(i, 1);
    Operand x(context.get(), ones), whole(context.get(), ones);
    ASSERT_OK(call(context.get(), "dropout", {x.array(), whole.array()}, "dropout=0.25 seed=3"));
    Dense rest(TARTAN_F32, {n - cut});
    for (int64_t i = 0; i < n - cut; i++) rest.set(i, 1);
    Operand part(context.get(), rest), out(context.get(), rest);
    ASSERT_OK(
        call(context.get(), "dropout", {part.array(), out.array()}, "dropout=0.25 seed=3 offset=50001"));
    const Dense all = whole.got(), some = out.got();
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        kept += all.get(i) != 0;
        if (i >= cut) {
            ASSERT_EQ(all.get(i), some.get(i - cut)) << i;
        }
    }
    EXPECT_NEAR(0.75, (double)kept / (double)n, 0.006); // 4 standard deviations
}

TEST_P(BackendRandom, UniformAndNormalNumbers) {
    std::mt19937_64 random(3);
    for (int round = 0; round < rounds(80); round++) {
        SCOPED_TRACE(round);
        const std::vector<int64_t> shape = any_shape(random, 0);
        const int32_t dtype = kDtypes[round % 4], sums = tartan_i_sum_dtype(dtype);
        const Draws d = draws(random);
        const auto wide = [&](double v) { return sums == TARTAN_F64 ? v : (double)(float)v; };
        Operand y = operand(dtype, shape, random, true);
        RUN_OR_NEXT(call(context.get(), "random_uniform", {y.array()}, "low=-1 high=2" + d.text));
        Dense got = y.got();
        for (int64_t i = 0; i < got.elements(); i++) {
            const double u =
                uniform((uint64_t)d.seed, TARTAN_I_STREAM_UNIFORM, (uint64_t)(d.offset + i), dtype);
            ASSERT_EQ(rounded(dtype, wide(std::fma(u, 3, -1))), got.get(i)) << i;
        }
        RUN_OR_NEXT(call(context.get(), "random_normal", {y.array()}, "mean=0.5 deviation=2" + d.text));
        got = y.got();
        for (int64_t i = 0; i < got.elements(); i++) {
            double two[2];
            tartan_i_normal_pair((uint64_t)d.seed, TARTAN_I_STREAM_ARRAY_NORMAL, (uint64_t)(d.offset + i) / 2,
                                 0, two);
            const double want = 2 * two[(d.offset + i) % 2] + 0.5;
            ASSERT_NEAR(want, got.get(i),
                        epsilon(dtype) * std::fabs(want) + 16 * epsilon(sums) + // 8 of the deviation
                            (dtype == TARTAN_F16 ? 0x1p-24 : 0))
                << i;
        }
        EXPECT_TRUE(marks_intact(got));
        if (HasFailure()) return;
    }
}

TEST_P(BackendRandom, HardConcreteGates) {
    std::mt19937_64 random(4);
    int64_t closed = 0, open = 0, all = 0;
    for (int round = 0; round < rounds(80); round++) {
        SCOPED_TRACE(round);
        const std::vector<int64_t> shape = any_shape(random, 0);
        const int32_t dtype = kDtypes[round % 4], sums = tartan_i_sum_dtype(dtype);
        const Draws d = draws(random);
        Operand loga = operand(dtype, shape, random, false), gate = operand(dtype, shape, random, true),
                g = operand(like_dtype(dtype, random), shape, random, false),
                grad = operand(like_dtype(dtype, random), shape, random, true);
        const std::string options = "temperature=0.5 limit_a=-0.25 limit_b=1.5 epsilon=0.001" + d.text;
        RUN_OR_NEXT(call(context.get(), "concrete_gate", {loga.array(), gate.array()}, options));
        RUN_OR_NEXT(
            call(context.get(), "concrete_gate_gradient", {loga.array(), g.array(), grad.array()}, options));
        const Dense got = gate.got(), slope = grad.got();
        for (int64_t i = 0; i < got.elements(); i++) {
            double u = uniform((uint64_t)d.seed, TARTAN_I_STREAM_GATE, (uint64_t)(d.offset + i), dtype);
            u = std::min(std::max(u, 0.001), 0.999);
            const double s = 1 / (1 + std::exp(-(std::log(u) - std::log1p(-u) + loga.dense.get(i)) / 0.5)),
                         t = s * 1.75 - 0.25;
            const double want = std::min(1.0, std::max(0.0, t)), room = 64 * epsilon(sums);
            ASSERT_NEAR(want, got.get(i), epsilon(dtype) + room) << i;
            closed += got.get(i) == 0, open += got.get(i) == 1, all++;
            if (std::fabs(t) < room || std::fabs(t - 1) < room) continue;
            const double factor = t < 0 || t > 1 ? 0 : 1.75 * s * (1 - s) / 0.5 * g.dense.get(i);
            ASSERT_NEAR(factor, slope.get(i),
                        epsilon(slope.array.dtype) * std::fabs(factor) + 4 * room +
                            (slope.array.dtype == TARTAN_F16 ? 0x1p-24 : 0))
                << i;
        }
        if (HasFailure()) return;
    }
    EXPECT_GT(closed, all / 20);
    EXPECT_GT(open, all / 20);
}

// The numbers that every language has for these seeds.
TEST_P(BackendRandom, KnownNumbers) {
    Dense ones(TARTAN_F64, {16});
    for (int64_t i = 0; i < 16; i++) ones.set(i, 1);
    Operand x(context.get(), ones), y(context.get(), ones);
    ASSERT_OK(call(context.get(), "dropout", {x.array(), y.array()}, "dropout=0.5 seed=7"));
    std::string kept;
    Dense got = y.got();
    for (int64_t i = 0; i < 16; i++) kept += got.get(i) != 0 ? '1' : '0';
    EXPECT_EQ("1111011101000101", kept);
    ASSERT_OK(call(context.get(), "random_uniform", {y.array()}, "seed=7"));
    got = y.got();
    const double want[] = {0.13418846748340363, 0.44570915609319905, 0.6398692349670435};
    for (int64_t i = 0; i < 3; i++) EXPECT_EQ(want[i], got.get(i)) << in_full(got.get(i));
}

// What is refused besides what the schema says.
TEST_P(BackendRandom, OptionsThatDoNotFit) {
    Operand x(context.get(), Dense(TARTAN_F32, {3, 4})), y(context.get(), Dense(TARTAN_F32, {3, 4}));
    EXPECT_FAILS(
        ARGUMENT,
        "tartan_dropout: options has a mask_shape with length 3, expected 1 or 4, for the shape [3, 4]",
        call(context.get(), "dropout", {x.array(), y.array()}, "mask_shape=1x3"));
    EXPECT_FAILS(
        ARGUMENT,
        "tartan_dropout: options has a mask_shape of 3 lengths, expected at most 2, for the shape [3, 4]",
        call(context.get(), "dropout", {x.array(), y.array()}, "mask_shape=1x3x4"));
    EXPECT_FAILS(ARGUMENT,
                 "tartan_concrete_gate: options has limit_a=2 and limit_b=1.1, expected a smaller one first",
                 call(context.get(), "concrete_gate", {x.array(), y.array()}, "limit_a=2"));
    EXPECT_FAILS(ARGUMENT,
                 "tartan_random_uniform: options has low=2 and high=1, expected the lower one first",
                 call(context.get(), "random_uniform", {y.array()}, "low=2"));
}

// ---- The gates of an LSTM ----

TEST_P(BackendRandom, LstmGates) {
    std::mt19937_64 random(5);
    for (int round = 0; round < rounds(80); round++) {
        SCOPED_TRACE(round);
        std::vector<int64_t> shape = any_shape(random, 1), wide = shape;
        wide.insert(wide.end() - 1, 4);
        const int64_t n = shape.back();
        const int32_t dtype = kDtypes[round % 4], sums = tartan_i_sum_dtype(dtype);
        const bool biased = random() % 2, has_c = random() % 4 != 0, has_h = random() % 4 != 0;
        const double forget = pick<double>(random, {0, 1});
        const std::string options = "forget_bias=" + in_full(forget);
        Operand c = operand(dtype, shape, random, false),
                gates = operand(like_dtype(dtype, random), wide, random, false),
                bias = operand(sums, {4, n}, random, false), next = operand(dtype, shape, random, true),
                h = operand(dtype, shape, random, true),
                c_g = operand(like_dtype(dtype, random), shape, random, false),
                h_g = operand(like_dtype(dtype, random), shape, random, false),
                to_c = operand(like_dtype(dtype, random), shape, random, true),
                to_gates = operand(like_dtype(dtype, random), wide, random, true),
                to_bias = operand(sums, {4, n}, random, true);
        RUN_OR_NEXT(call(context.get(), "lstm_gates",
                         {c.array(), gates.array(), biased ? bias.array() : nullptr, next.array(), h.array()},
                         options));
        RUN_OR_NEXT(
            call(context.get(), "lstm_gates_gradient",
                 {c.array(), gates.array(), biased ? bias.array() : nullptr, has_c ? c_g.array() : nullptr,
                  has_h ? h_g.array() : nullptr, to_c.array(), to_gates.array(), to_bias.array()},
                 options));
        const Dense got_c = next.got(), got_h = h.got(), grad_c = to_c.got(), grad_gates = to_gates.got(),
                    grad_bias = to_bias.got();
        const auto near = [&](double want, const Dense &got, int64_t i, const char *what) {
            const int32_t of = got.array.dtype;
            ASSERT_NEAR(want, got.get(i),
                        epsilon(of) * std::fabs(want) + 64 * epsilon(sums) + (of == TARTAN_F16 ? 0x1p-24 : 0))
                << what << i;
        };
        std::vector<double> sum((size_t)(4 * n)), size((size_t)(4 * n));
        for (int64_t i = 0; i < got_c.elements() && !HasFailure(); i++) {
            const int64_t line = i / n, k = i % n;
            const auto gate = [&](int part) {
                return gates.dense.get((line * 4 + part) * n + k) +
                       (biased ? bias.dense.get(part * n + k) : 0);
            };
            const auto logistic = [](double v) { return 1 / (1 + std::exp(-v)); };
            const double in = logistic(gate(0)), u = std::tanh(gate(1)), f = logistic(gate(2) + forget),
                         o = logistic(gate(3)), old = c.dense.get(i), now = f * old + in * u,
                         t = std::tanh(now);
            near(now, got_c, i, "c_next ");
            near(o * t, got_h, i, "h ");
            const double dh = has_h ? h_g.dense.get(i) : 0,
                         g = (has_c ? c_g.dense.get(i) : 0) + dh * o * (1 - t * t);
            const double want[] = {g * u * in * (1 - in), g * in * (1 - u * u), g * old * f * (1 - f),
                                   dh * t * o * (1 - o)};
            near(g * f, grad_c, i, "c_grad ");
            for (int part = 0; part < 4; part++) {
                const int64_t at = (line * 4 + part) * n + k;
                near(want[part], grad_gates, at, "gates_grad ");
                sum[(size_t)(part * n + k)] += grad_gates.get(at);
                size[(size_t)(part * n + k)] += std::fabs(grad_gates.get(at));
            }
        }
        for (int64_t i = 0; i < 4 * n && got_c.elements() > 0; i++)
            ASSERT_NEAR(sum[(size_t)i], grad_bias.get(i), 8 * epsilon(sums) * size[(size_t)i])
                << "bias_grad " << i;
        for (const Dense *one : {&got_c, &got_h, &grad_c, &grad_gates, &grad_bias})
            EXPECT_TRUE(marks_intact(*one));
        if (HasFailure()) return;
    }
}

} // namespace
