// SPDX-License-Identifier: Apache-2.0
// Every row of norms.def, and sums of lines: the same bits with every instruction set, near the exact results. A new row is tested
// without a change here.
#include "exp_error.h"

namespace {

using namespace tartan_test;

const char *const kNames[] = {
#define NORM(name, ...) #name,
#include "kernels/norms.def"
#undef NORM
};

class Norms : public ::testing::TestWithParam<tartan_i_cpu_features> {};
INSTANTIATE_TEST_SUITE_P(Each, Norms, ::testing::ValuesIn(feature_sets()),
                         [](const auto &set) { return features_name(set.param); });

template <typename T> const tartan_i_line_kernels &lines_of(const tartan_i_kernels &k) {
    return k.lines[sizeof(T) == 8];
}

// A line of numbers about `center`, whose deviations are of about `size`.
template <typename T> std::vector<T> line_of(size_t n, double center, double size, std::mt19937_64 &random) {
    std::vector<T> x(n);
    std::normal_distribution<double> normal(0, 1);
    for (T &one : x) one = (T)(center + size * normal(random));
    return x;
}

template <typename T> void expect_same(const std::vector<T> &want, const T *got, const std::string &what) {
    for (size_t i = 0; i < want.size(); i++)
        ASSERT_TRUE(std::memcmp(&want[i], &got[i], sizeof(T)) == 0 ||
                    (std::isnan(want[i]) && std::isnan(got[i])))
            << what << ", element " << i << ": " << got[i] << ", not " << want[i];
}

size_t length_of(size_t round, std::mt19937_64 &random) {
    return round < 70 ? round : round % 10 == 0 ? below(random, 5000) : below(random, 600);
}

// ---- The same bits ----

// Lines of a group in memory, one after the other with a gap between them.
template <typename T> struct Lines {
    size_t n, count;
    std::vector<T> values;
    Lines(size_t n_, size_t count_) : n(n_), count(count_), values((n_ + 3) * count_, (T)7) {}
    T *line(size_t l) { return values.data() + l * (n + 3); }
    tartan_i_norm_memory memory() { return {(char *)values.data(), (int64_t)((n + 3) * sizeof(T))}; }
    void fill(double center, std::mt19937_64 &random) {
        for (size_t l = 0; l < count; l++) {
            const std::vector<T> one = line_of<T>(n, center, 1, random);
            std::copy(one.begin(), one.end(), line(l));
        }
    }
};

template <typename T> void expect_same(const Lines<T> &want, const Lines<T> &got, const std::string &what) {
    expect_same(want.values, got.values.data(), what);
}

template <typename T>
void check_value(const Tables<double> &tables, int row, size_t n, std::mt19937_64 &random) {
    const size_t count = 1 + below(random, TARTAN_I_NORM_LINES);
    Lines<T> x(n, count), want(n, count), got(n, count);
    x.fill(random() % 2 ? 0 : 1000, random);
    if (random() % 8 == 0 && n > 0)
        x.line(below(random, count))[below(random, n)] = random() % 2 ? (T)INFINITY : (T)NAN;
    Lines<T> same_place = x;
    const std::vector<double> gain = line_of<double>(n, 1, 1, random),
                              bias = line_of<double>(n, 0, 1, random);
    tartan_i_norm_group group = {};
    group.n = (int64_t)n, group.lines = (int64_t)count, group.p = 1e-5, group.gain = gain.data(),
    group.bias = bias.data();
    group.x = x.memory(), group.y = want.memory();
    lines_of<T>(tables.c).norms[row].value(&group);
    const tartan_i_norm_group portable = group;
    group.y = got.memory();
    lines_of<T>(tables.best).norms[row].value(&group);
    expect_same(std::vector<double>(portable.center, portable.center + count), group.center, "center");
    expect_same(std::vector<double>(portable.scale, portable.scale + count), group.scale, "scale");
    group.x = group.y = same_place.memory();
    lines_of<T>(tables.best).norms[row].value(&group);
    expect_same(want, got, kNames[row]);
    for (size_t l = 0; l < count; l++)
        expect_same(std::vector<T>(want.line(l), want.line(l) + n), same_place.line(l),
                    std::string(kNames[row]) + " in place");
    // Lines do not know of each other.
    for (size_t l = 0; l < count; l++) {
        Lines<T> alone(n, 1);
        group.lines = 1, group.x = {(char *)x.line(l), 0}, group.y = alone.memory();
        lines_of<T>(tables.best).norms[row].value(&group);
        expect_same(std::vector<T>(want.line(l), want.line(l) + n), alone.line(0), "a line alone");
    }
}

template <typename T>
void check_gradient(const Tables<double> &tables, int row, size_t n, std::mt19937_64 &random) {
    const size_t count = 1 + below(random, TARTAN_I_NORM_LINES);
    Lines<T> x(n, count), y_grad(n, count), want(n, count);
    x.fill(1, random), y_grad.fill(0, random);
    const std::vector<double> gain = line_of<double>(n, 1, 1, random),
                              start = line_of<double>(n, 0, 1, random);
    std::vector<double> want_gain = start, want_bias = start;
    Lines<T> got = y_grad;
    Guarded<double> gain_sums(n, 3), bias_sums(n, 5);
    const auto restart = [&] {
        std::copy(start.begin(), start.end(), gain_sums.data());
        std::copy(start.begin(), start.end(), bias_sums.data());
    };
    restart();
    tartan_i_norm_gradient_group group = {};
    group.n = (int64_t)n, group.lines = (int64_t)count, group.p = random() % 2 ? 1e-5 : 4,
    group.gain = gain.data();
    for (size_t l = 0; l < count; l++) group.center[l] = 1.125 + (double)l, group.scale[l] = 0.75 + (double)l;
    group.x = x.memory(), group.y_grad = y_grad.memory(), group.x_grad = want.memory();
    group.gain_sums = want_gain.data(), group.bias_sums = want_bias.data();
    lines_of<T>(tables.c).norms[row].gradient(&group);
    group.y_grad = group.x_grad = got.memory(); // in place
    group.gain_sums = gain_sums.data(), group.bias_sums = bias_sums.data();
    lines_of<T>(tables.best).norms[row].gradient(&group);
    for (size_t l = 0; l < count; l++)
        expect_same(std::vector<T>(want.line(l), want.line(l) + n), got.line(l),
                    std::string(kNames[row]) + " gradient");
    expect_same(want_gain, gain_sums.data(), std::string(kNames[row]) + " gradient of gain");
    expect_same(want_bias, bias_sums.data(), std::string(kNames[row]) + " gradient of bias");
    EXPECT_TRUE(gain_sums.intact() && bias_sums.intact());

    // Line after line.
    restart();
    for (size_t l = 0; l < count; l++) {
        tartan_i_norm_gradient_group one = group;
        Lines<T> alone(n, 1);
        one.lines = 1, one.center[0] = group.center[l], one.scale[0] = group.scale[l];
        one.x = {(char *)x.line(l), 0}, one.y_grad = {(char *)y_grad.line(l), 0}, one.x_grad = alone.memory();
        lines_of<T>(tables.best).norms[row].gradient(&one);
        expect_same(std::vector<T>(want.line(l), want.line(l) + n), alone.line(0), "a line alone");
    }
    expect_same(want_gain, gain_sums.data(), "gain, line after line");
    expect_same(want_bias, bias_sums.data(), "bias, line after line");

    // Each of the results alone.
    group.y_grad = y_grad.memory(), group.x_grad = {nullptr, 0};
    restart();
    group.bias_sums = nullptr;
    lines_of<T>(tables.best).norms[row].gradient(&group);
    expect_same(want_gain, gain_sums.data(), "gain alone");
    Lines<T> alone(n, count);
    group.gain_sums = nullptr, group.x_grad = alone.memory();
    lines_of<T>(tables.best).norms[row].gradient(&group);
    expect_same(want, alone, "x_grad alone");
}

template <typename T> void check_bits(const Tables<double> &tables) {
    std::mt19937_64 random(21);
    for (size_t round = 0; round < rounds(1000u); round++) {
        const size_t n = length_of(round, random);
        SCOPED_TRACE(::testing::Message() << n << " elements");
        for (int row = 0; row < TARTAN_I_NORM_ROWS; row++) {
            check_value<T>(tables, row, n, random);
            check_gradient<T>(tables, row, n, random);
        }
        if (testing::Test::HasFailure()) return;
    }
}

TEST_P(Norms, HaveTheBitsOfPortableC) {
    check_bits<float>(Tables<double>(GetParam()));
    check_bits<double>(Tables<double>(GetParam()));
}

// ---- Accuracy ----

#define CENTERED        true
#define PLAIN           false
#define NUM(x)          ((long double)(x))
#define FMA(a, b, c)    ((a) * (b) + (c))
#define MAX(a, b)       ((a) > (b) ? (a) : (b))
#define GREATER(a, b)   ((a) > (b))
#define SELECT(m, a, b) ((m) ? (a) : (b))
#define SQRT(x)         std::sqrt(x)
#define RSQRT(x)        (1 / std::sqrt(x))

// Results of one line in long double.
struct Wide {
    long double center = 0, scale = 0;
    std::vector<long double> y, z, x_grad;
};

template <typename T>
Wide wide_norm(int row, const std::vector<T> &x_of, const std::vector<double> &gain_of,
               const std::vector<double> &bias_of, const std::vector<T> &y_grad, long double p) {
    const long double n = (long double)x_of.size();
    int at = 0;
    Wide w;
#define NORM(name, centered, epsilon, factor, value, gradient)                                               \
    if (at++ == row) {                                                                                       \
        long double mean = 0, mean_g = 0, mean_gz = 0;                                                       \
        long double rest = 0; /* of the mean */                                                              \
        for (size_t i = 0; (centered) && i < x_of.size(); i++) w.center += x_of[i] / n;                      \
        for (size_t i = 0; (centered) && i < x_of.size(); i++) rest += (x_of[i] - w.center) / n;             \
        for (size_t i = 0; i < x_of.size(); i++) {                                                           \
            const long double x = (x_of[i] - w.center) - rest;                                               \
            mean += x * x / n;                                                                               \
        }                                                                                                    \
        const long double scale = w.scale = factor;                                                          \
        for (size_t i = 0; i < x_of.size(); i++) {                                                           \
            const long double x = (x_of[i] - w.center) - rest, gain = gain_of[i], bias = bias_of[i];         \
            (void)gain, (void)bias;                                                                          \
            w.y.push_back(value);                                                                            \
            w.z.push_back(x *scale);                                                                         \
            mean_g += y_grad[i] * gain / n;                                                                  \
            mean_gz += y_grad[i] * gain * w.z[i] / n;                                                        \
        }                                                                                                    \
        for (size_t i = 0; i < x_of.size(); i++) {                                                           \
            const long double z = w.z[i], g = y_grad[i] * (long double)gain_of[i];                           \
            (void)mean_g;                                                                                    \
            w.x_grad.push_back(gradient);                                                                    \
        }                                                                                                    \
    }
#include "kernels/norms.def"
#undef NORM
    return w;
}

// Errors in eps of T, of what the results are made of. f32 lines are computed in f64.
template <typename T> void check_accuracy(double center, double size) {
    const Tables<double> tables(tartan_i_cpu_in_use());
    std::mt19937_64 random(22);
    const long double eps = std::numeric_limits<T>::epsilon(), allowed = sizeof(T) == 4 ? 1.01L : 32;
    for (size_t round = 1; round < rounds(100u); round++) {
        const size_t n = length_of(round, random) + 1;
        const std::vector<T> x = line_of<T>(n, center, size, random), y_grad = line_of<T>(n, 0, 1, random);
        const std::vector<double> gain = line_of<double>(n, 1, 1, random),
                                  bias = line_of<double>(n, 0, 1, random);
        for (int row = 0; row < TARTAN_I_NORM_ROWS; row++) {
            SCOPED_TRACE(::testing::Message() << kNames[row] << " of " << n << " about " << center);
            const Wide want = wide_norm<T>(row, x, gain, bias, y_grad, (long double)1e-5);
            std::vector<T> y(n), x_grad(n);
            tartan_i_norm_group line = {};
            line.n = (int64_t)n, line.lines = 1, line.p = 1e-5, line.x = {(char *)x.data(), 0},
            line.y = {(char *)y.data(), 0};
            line.gain = gain.data(), line.bias = bias.data();
            lines_of<T>(tables.best).norms[row].value(&line);
            const long double part = allowed * eps;
            ASSERT_NEAR((double)want.scale, line.scale[0], (double)(64 * 0x1p-52L * want.scale));
            ASSERT_NEAR((double)want.center, line.center[0], 32 * 0x1p-52 * (std::fabs(center) + size));
            for (size_t i = 0; i < n; i++)
                ASSERT_LE(std::fabs(y[i] - want.y[i]),
                          part * (std::fabs(want.y[i]) / 2 +
                                  (sizeof(T) == 8) * std::fabs(gain[i]) * (1 + std::fabs(want.z[i])) +
                                  0x1p-20L * (1 + std::fabs(gain[i]))) +
                              (sizeof(T) == 4) * 4 * 0x1p-52L * std::fabs(center) * want.scale *
                                  std::fabs(gain[i]))
                    << i;
            if (center != 0) continue; // the mean as the gradient takes it is rounded
            tartan_i_norm_gradient_group back = {};
            back.n = (int64_t)n, back.lines = 1, back.p = line.p, back.center[0] = line.center[0],
            back.scale[0] = line.scale[0];
            back.gain = gain.data();
            back.x = line.x, back.y_grad = {(char *)y_grad.data(), 0},
            back.x_grad = {(char *)x_grad.data(), 0};
            lines_of<T>(tables.best).norms[row].gradient(&back);
            for (size_t i = 0; i < n; i++)
                ASSERT_LE(std::fabs(x_grad[i] - want.x_grad[i]),
                          part *
                              (std::fabs(want.x_grad[i]) / 2 +
                               want.scale * (sizeof(T) == 8 ? 4 : 0x1p-20L) * (1 + std::fabs(want.z[i])) * 3))
                    << i;
        }
    }
}

TEST(NormsAccuracy, OfF32) {
    for (double center : {0., 0.9, 1.1, 3., 1e4, -1e6}) check_accuracy<float>(center, 1);
    check_accuracy<float>(0, 1e-3);
    check_accuracy<float>(1e20, 1e19);
}
TEST(NormsAccuracy, OfF64) {
    if (!has_wide<double>()) return;
    for (double center : {0., 1., 1e6, -1e12}) check_accuracy<double>(center, 1);
    check_accuracy<double>(0, 1e-3);
    check_accuracy<double>(1e100, 1e99);
}

// ---- Sums ----

template <typename T> void check_sums(const Tables<double> &tables) {
    std::mt19937_64 random(23);
    for (size_t round = 0; round < rounds(1000u); round++) {
        const size_t n = round % 50 == 49 ? 100000 + below(random, 1000) : length_of(round, random);
        const std::vector<T> x = line_of<T>(n, (double)(round % 3), 1, random);
        const double sum = lines_of<T>(tables.best).sum((int64_t)n, x.data());
        EXPECT_EQ(lines_of<T>(tables.c).sum((int64_t)n, x.data()), sum);
        long double exact = 0, size = 0;
        for (T one : x) exact += one, size += std::fabs((long double)one);
        EXPECT_LE(std::fabs(exact - sum), 24 * 0x1p-53L * size) << n;
        Guarded<double> sums(n, 2);
        for (size_t i = 0; i < n; i++) sums.data()[i] = (double)i;
        lines_of<T>(tables.best).add((int64_t)n, x.data(), sums.data());
        for (size_t i = 0; i < n; i++) ASSERT_EQ((double)i + (double)x[i], sums.data()[i]);
        EXPECT_TRUE(sums.intact());
    }
    const T inf[] = {1, (T)INFINITY, 2}, both[] = {(T)INFINITY, -(T)INFINITY};
    EXPECT_EQ(INFINITY, lines_of<T>(tables.best).sum(3, inf));
    EXPECT_TRUE(std::isnan(lines_of<T>(tables.best).sum(2, both)));
    EXPECT_EQ(0, lines_of<T>(tables.best).sum(0, nullptr));
}

TEST_P(Norms, SumsAreNearTheExactOnes) {
    check_sums<float>(Tables<double>(GetParam()));
    check_sums<double>(Tables<double>(GetParam()));
}

} // namespace
