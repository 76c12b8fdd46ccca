// SPDX-License-Identifier: Apache-2.0
// Normalisation along lines on every backend, against the formulas in f64.
#include "called.h"

#include <cmath>

namespace {

using namespace tartan_test;

const char *const kNames[] = {"rms_norm", "l2_norm", "layer_norm"};

struct Norm {
    std::string name;
    bool centred;
    double epsilon = 1e-3;
    int32_t dtype, sums;
    int64_t n, lines;
    Dense x, gain, bias, y, stats, y_grad, x_grad, gain_grad, bias_grad;
    bool has_gain, has_bias;

    Norm(const std::string &name_, int32_t dtype_, std::vector<int64_t> lines_of, int64_t n_,
         std::mt19937_64 &random, double centre = 0.5, int style = -1)
        : name(name_), centred(name_ == "layer_norm"), dtype(dtype_), sums(tartan_i_sum_dtype(dtype_)), n(n_),
          lines(1), has_gain(random() % 4 != 0), has_bias(centred && random() % 4 != 0) {
        for (int64_t length : lines_of) lines *= length;
        std::vector<int64_t> shape = lines_of, pairs = lines_of;
        shape.push_back(n);
        if (centred) pairs.push_back(2);
        const auto in_style = [&](bool written) {
            return style >= 0     ? (Style)style
                   : random() % 2 ? kRows
                                  : (Style)below(random, written ? kRepeated : kStyles);
        };
        x = Dense(dtype, shape, in_style(false));
        y = Dense(random() % 2 ? dtype : sums, shape, in_style(true));
        y_grad = Dense(like_dtype(dtype, random), shape, in_style(false));
        x_grad = Dense(like_dtype(dtype, random), shape, in_style(true));
        stats = Dense(sums, pairs, (Style)below(random, kRepeated));
        for (Dense *one : {&gain, &bias, &gain_grad, &bias_grad})
            *one = Dense(sums, {n}, (Style)below(random, kRepeated));
        x.fill(random, centre - 2, centre + 2);
        for (Dense *one : {&gain, &bias, &y_grad}) one->fill(random, -2, 2);
        if (name == "l2_norm" && random() % 2)
            epsilon = 4.0 / 3 * (double)n; // about as large as sums of squares
    }
    // The factor of a line whose terms have this mean, and whether it is the same for similar lines.
    double scale_of(long double mean) const {
        if (name != "l2_norm") return (double)(1 / std::sqrt(mean + (long double)epsilon));
        return (double)(1 / std::sqrt(std::fmax(mean * (long double)n, (long double)epsilon)));
    }
    bool is_constant(long double mean) const {
        return name == "l2_norm" && mean * (long double)n < (long double)epsilon;
    }
};

void expect_near(double want, double got, int32_t dtype, double allowed, const char *what, int64_t i) {
    ASSERT_LE(std::fabs(want - got),
              epsilon(dtype) * std::fabs(want) + allowed + (dtype == TARTAN_F16 ? 0x1p-24 : 0))
        << what << ' ' << i << ": " << got << ", not " << want;
}

class BackendNorms : public OnBackend {
  protected:
    // The CPU adds up in f64, whatever the dtype.
    bool sums_are_wide(const Norm &p) const { return GetParam() != "cuda" && p.sums == TARTAN_F32; }

    // Forward, with the stats, and back; false if the backend refuses.
    bool check(Norm &p, std::mt19937_64 &random) {
        const double eps = epsilon(p.sums), steps = sums_are_wide(p) ? 1 : 8;
        Operand x = {context.get(), p.x}, gain = {context.get(), p.gain}, bias = {context.get(), p.bias},
                y = {context.get(), p.y}, stats = {context.get(), p.stats};
        const bool in_place = p.x.array.dtype == p.y.array.dtype && random() % 3 == 0 &&
                              tartan_i_array_check("", "", &p.x.array, true) == TARTAN_OK;
        std::vector<void *> arguments = {x.array(), p.has_gain ? gain.array() : nullptr};
        if (p.centred) arguments.push_back(p.has_bias ? bias.array() : nullptr);
        arguments.push_back(in_place ? x.array() : y.array());
        arguments.push_back(stats.array());
        const std::string options = "epsilon=" + std::to_string(p.epsilon);
        p.epsilon = std::stod(options.substr(8));
        tartan_status status = call(context.get(), p.name, arguments, options);
        if (is_refused(status)) return false;
        EXPECT_OK(status);
        const Dense got = (in_place ? x : y).got(), kept = stats.got();
        EXPECT_TRUE(marks_intact(got) && marks_intact(kept));
        for (int64_t line = 0; line < p.lines; line++) {
            long double mean = 0, squares = 0;
            for (int64_t i = 0; i < p.n && p.centred; i++)
                mean += (long double)p.x.get(line * p.n + i) / (long double)p.n;
            for (int64_t i = 0; i < p.n; i++)
                squares += std::pow((long double)p.x.get(line * p.n + i) - mean, 2.0L) / (long double)p.n;
            const double rstd = p.scale_of(squares);
            for (int64_t i = 0; i < p.n; i++) {
                const double z = (double)((long double)p.x.get(line * p.n + i) - mean) * rstd,
                             factor = p.has_gain ? p.gain.get(i) : 1, term = p.has_bias ? p.bias.get(i) : 0;
                // Sums of f64 have no wider type, so there the mean is itself rounded.
                const double of_mean =
                    p.sums == TARTAN_F64 ? 4 * eps * std::fabs((double)mean * rstd * factor) : 0;
                expect_near(z * factor + term, got.get(line * p.n + i), got.array.dtype,
                            steps * eps * (1 + std::fabs(z * factor) + std::fabs(term)) + of_mean, "y",
                            line * p.n + i);
            }
            if (p.n == 0) continue;
            if (p.centred)
                expect_near((double)mean, kept.get(2 * line), p.sums,
                            4 * eps * std::fabs((double)mean) + 1e-15, "mean", line);
            expect_near(rstd, kept.get(p.centred ? 2 * line + 1 : line), p.sums, 4 * eps * rstd, "rstd",
                        line);
        }
        return !HasFailure() && check_gradient(p, kept, options, random);
    }

    bool check_gradient(Norm &p, const Dense &kept, const std::string &options, std::mt19937_64 &random) {
        Operand x = {context.get(), p.x}, gain = {context.get(), p.gain}, stats = {context.get(), kept},
                x_grad = {context.get(), p.x_grad}, gain_grad = {context.get(), p.gain_grad},
                bias_grad = {context.get(), p.bias_grad};
        const bool wants[3] = {random() % 5 != 0, random() % 5 != 0, p.centred && random() % 5 != 0};
        const bool in_place =
            random() % 3 == 0 && tartan_i_array_check("", "", &p.y_grad.array, true) == TARTAN_OK;
        Dense to_x = p.x_grad;
        std::vector<std::vector<char>> bits;
        for (int run = 0; run < 2; run++) {
            Operand g = {context.get(), p.y_grad}, &to = in_place ? g : x_grad;
            std::vector<void *> arguments = {
                x.array(), p.has_gain ? gain.array() : nullptr, stats.array(),
                g.array(), wants[0] ? to.array() : nullptr,     wants[1] ? gain_grad.array() : nullptr};
            if (p.centred) arguments.push_back(wants[2] ? bias_grad.array() : nullptr);
            const tartan_status status =
                call(context.get(), p.name + "_gradient", arguments, p.name == "l2_norm" ? options : "");
            if (is_refused(status)) return false;
            EXPECT_OK(status);
            to_x = to.got();
            bits.push_back(to_x.memory());
            for (const Operand *one : {&gain_grad, &bias_grad}) bits.push_back(one->got().memory());
        }
        for (size_t i = 0; i < 3; i++) EXPECT_EQ(bits[i], bits[i + 3]) << "a second run has other bits";
        const Dense to_gain = gain_grad.got(), to_bias = bias_grad.got();
        EXPECT_TRUE(marks_intact(to_x) && marks_intact(to_gain) && marks_intact(to_bias));
        const double eps = epsilon(p.sums);
        std::vector<long double> gains((size_t)p.n), biases((size_t)p.n);
        std::vector<double> sizes((size_t)p.n), bias_sizes((size_t)p.n);
        for (int64_t line = 0; line < p.lines; line++) {
            const double mean = p.centred ? kept.get(2 * line) : 0,
                         rstd = kept.get(p.centred ? 2 * line + 1 : line);
            const auto z_of = [&](int64_t i) { return (p.x.get(line * p.n + i) - mean) * rstd; };
            const auto g_of = [&](int64_t i) {
                return p.y_grad.get(line * p.n + i) * (p.has_gain ? p.gain.get(i) : 1);
            };
            double mean_g = 0, mean_gz = 0, size = 0;
            long double squares = 0;
            for (int64_t i = 0; i < p.n; i++) {
                const double z = z_of(i), y_grad = p.y_grad.get(line * p.n + i);
                squares += std::pow((long double)p.x.get(line * p.n + i), 2.0L) / (long double)p.n;
                if (p.centred) mean_g += g_of(i) / (double)p.n;
                mean_gz += g_of(i) * z / (double)p.n;
                size = std::max(size, std::fabs(z));
                gains[(size_t)i] += y_grad * z, sizes[(size_t)i] += std::fabs(y_grad * z);
                biases[(size_t)i] += y_grad, bias_sizes[(size_t)i] += std::fabs(y_grad);
            }
            if (p.name == "l2_norm") mean_gz *= p.is_constant(squares) ? 0 : (double)p.n;
            for (int64_t i = 0; i < p.n && wants[0]; i++)
                expect_near(rstd * (g_of(i) - mean_g - z_of(i) * mean_gz), to_x.get(line * p.n + i),
                            to_x.array.dtype, 32 * eps * rstd * (1 + size) * (1 + size), "x_grad",
                            line * p.n + i);
        }
        const double of_sums = sums_are_wide(p) ? 0x1p-42 : 4 * eps;
        for (int64_t i = 0; i < p.n; i++) {
            if (wants[1])
                expect_near((double)gains[(size_t)i], to_gain.get(i), p.sums, of_sums * sizes[(size_t)i],
                            "gain_grad", i);
            if (wants[2])
                expect_near((double)biases[(size_t)i], to_bias.get(i), p.sums,
                            of_sums * bias_sizes[(size_t)i], "bias_grad", i);
        }
        return !HasFailure();
    }
};

TEST_P(BackendNorms, GiveTheirFormulas) {
    std::mt19937_64 random(4);
    for (int round = 0; round < rounds(160); round++) {
        SCOPED_TRACE(round);
        Norm p(kNames[random() % 3], kDtypes[round % 4], any_shape(random, 0),
               pick<int64_t>(random, {1, 2, 3, 8, 16, 17, 64, 100, 257, 768}), random);
        if (!check(p, random) && HasFailure()) return;
    }
}

// Every way in which threads share lines: parts of a warp, warps, a CTA, several rounds; in units and one by one; across lines.
TEST_P(BackendNorms, OfLinesOfAllLengths) {
    std::mt19937_64 random(5);
    int number = 0;
    for (int64_t n : {8, 40, 248, 256, 520, 1024, 2048, 3000, 5000, 8192, 9000, 33000})
        for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_BF16})
            for (int style : {(int)kRows, (int)kColumns, (int)kGaps}) {
                if (!is_of_the_share(number++)) continue;
                SCOPED_TRACE(::testing::Message() << n << " " << dtype << " " << style);
                Norm p(kNames[number % 3], dtype, {n > 4000 ? 5 : 37}, n, random, 0.5, style);
                if (!check(p, random) && HasFailure()) return;
            }
}

// More lines than CTAs, each with some threads, along and across; and lines that occupy a whole GPU.
TEST_P(BackendNorms, OfManyLines) {
    std::mt19937_64 random(6);
    for (int64_t n : {7, 16, 64, 520})
        for (Style style : {kRows, kColumns}) {
            SCOPED_TRACE(::testing::Message() << n << " " << style);
            Norm p("layer_norm", n == 64 ? TARTAN_BF16 : TARTAN_F32, {n > 100 ? 3000 : 20000}, n, random, 0.5,
                   style);
            if (!check(p, random) && HasFailure()) return;
        }
    for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_BF16})
        for (const char *name : kNames) {
            SCOPED_TRACE(::testing::Message() << name << " " << dtype);
            Norm p(name, dtype, {2}, 70000, random, 0.5, kRows);
            if (!check(p, random) && HasFailure()) return;
        }
}

// On Hopper clusters of 1 to 16 CTAs have these lines but the longest: those of units of 16 bytes and those that begin at any address.
TEST_P(BackendNorms, OfLongLines) {
    std::mt19937_64 random(7);
    int number = 0;
    for (const std::vector<int64_t> &shape : std::vector<std::vector<int64_t>>{{70, 6145},
                                                                               {70, 12301},
                                                                               {70, 30001},
                                                                               {40, 32768},
                                                                               {62, 66667},
                                                                               {12, 131072},
                                                                               {9, 262141},
                                                                               {3, 300007}})
        for (int32_t dtype : {TARTAN_F32, TARTAN_F16, TARTAN_BF16}) {
            if (!is_of_the_share(number++)) continue;
            SCOPED_TRACE(::testing::Message() << shape[1] << " " << dtype);
            Norm p(kNames[(number + number / 3) % 3], dtype, {shape[0]}, shape[1], random, 0.5, kRows);
            p.y = Dense(dtype, shape), p.x_grad = Dense(dtype, shape);
            p.y_grad = Dense(dtype, shape);
            p.y_grad.fill(random, -2, 2);
            if (!check(p, random) && HasFailure()) return;
        }
}

// The mean is subtracted without losing what is small beside it.
TEST_P(BackendNorms, OfNumbersFarFromZero) {
    std::mt19937_64 random(7);
    for (double centre : {1e3, -1e5}) {
        Norm p("layer_norm", TARTAN_F32, {9}, 200, random, centre, kRows);
        p.has_gain = false;
        Operand x = {context.get(), p.x}, y = {context.get(), Dense(TARTAN_F32, {9, 200})};
        RUN_OR_NEXT(call(context.get(), "layer_norm", {x.array(), nullptr, nullptr, y.array(), nullptr}));
        const Dense got = y.got();
        for (int64_t line = 0; line < 9; line++) {
            double mean = 0, squares = 0;
            for (int64_t i = 0; i < 200; i++) mean += p.x.get(line * 200 + i) / 200;
            for (int64_t i = 0; i < 200; i++) squares += std::pow(p.x.get(line * 200 + i) - mean, 2) / 200;
            for (int64_t i = 0; i < 200; i++) {
                const double z = (p.x.get(line * 200 + i) - mean) / std::sqrt(squares + 1e-5);
                ASSERT_NEAR(z, got.get(line * 200 + i), 1e-6) << line << " " << i;
            }
        }
    }
}

// Squares of the numbers leave the range of f32, their norm does not.
TEST_P(BackendNorms, OfTheWholeRangeOfF32) {
    std::mt19937_64 random(9);
    for (const double size : {1e30, 1e-30})
        for (const int64_t n : {24, 1000, 3000, 3001, 40000}) {
            SCOPED_TRACE(::testing::Message() << size << " " << n);
            Dense of(TARTAN_F32, {3, n}, n == 3000 ? kColumns : kRows);
            of.fill(random, 0.5 * size, 2 * size);
            Operand x = {context.get(), of}, y = {context.get(), Dense(TARTAN_F32, {3, n})};
            RUN_OR_NEXT(
                call(context.get(), "rms_norm", {x.array(), nullptr, y.array(), nullptr}, "epsilon=0"));
            const Dense got = y.got();
            for (int64_t line = 0; line < 3; line++) {
                double squares = 0;
                for (int64_t i = 0; i < n; i++)
                    squares += std::pow(of.get(line * n + i) / size, 2) / (double)n;
                for (int64_t i = 0; i < n; i++)
                    ASSERT_NEAR(of.get(line * n + i) / size / std::sqrt(squares), got.get(line * n + i),
                                1e-6);
            }
        }
}

// Without lines, gradients of gain and bias are 0.
TEST_P(BackendNorms, SumsOfNothingAreZero) {
    Dense none(TARTAN_F32, {0, 5}), stats(TARTAN_F32, {0, 2}), five(TARTAN_F32, {5});
    std::mt19937_64 random(8);
    five.fill(random, 1, 2);
    Operand x = {context.get(), none}, s = {context.get(), stats}, gain = {context.get(), five},
            bias = {context.get(), five};
    ASSERT_OK(call(context.get(), "layer_norm_gradient",
                   {x.array(), nullptr, s.array(), x.array(), nullptr, gain.array(), bias.array()}));
    for (const Operand *one : {&gain, &bias}) {
        const Dense got = one->got();
        for (int64_t i = 0; i < 5; i++) EXPECT_EQ(0, got.get(i));
    }
}

TEST(CpuNorms, BitsDoNotDependOnThreadsOrInstructionSets) {
    for (int which = 0; which < 8; which++) {
        std::mt19937_64 random((uint64_t)which);
        Norm p(which % 2 ? "layer_norm" : "rms_norm", kDtypes[which / 2],
               which < 4 ? std::vector<int64_t>{7, 61} : std::vector<int64_t>{300}, which % 3 ? 130 : 700,
               random);
        std::vector<void *> forth = {&p.x.array, &p.gain.array},
                            back = {&p.x.array,      &p.gain.array,   &p.stats.array,
                                    &p.y_grad.array, &p.x_grad.array, &p.gain_grad.array};
        if (p.centred) forth.push_back(&p.bias.array), back.push_back(&p.bias_grad.array);
        forth.insert(forth.end(), {&p.y.array, &p.stats.array});
        const std::string name = p.centred ? "layer_norm" : "rms_norm";
        std::vector<std::vector<char>> first;
        for (const tartan_i_cpu_features set : feature_sets())
            for (const int32_t threads : {1, 2, 3, 7}) {
                const WithFeatures with(set);
                const Context context = open_context(threads);
                ASSERT_OK(call(context.get(), name, forth));
                ASSERT_OK(call(context.get(), name + "_gradient", back));
                std::vector<std::vector<char>> got;
                for (const Dense *one : {&p.y, &p.stats, &p.x_grad, &p.gain_grad, &p.bias_grad})
                    got.push_back(one->memory());
                if (first.empty()) first = got;
                ASSERT_TRUE(first == got) << threads << " threads, " << features_name(set);
            }
    }
}

INSTANTIATE_TEST_SUITE_P(Each, BackendNorms, ::testing::ValuesIn(backends()),
                         [](const auto &all) { return all.param; });

} // namespace
