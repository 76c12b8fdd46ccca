// SPDX-License-Identifier: Apache-2.0
// Every row of points.def: the same bits with every instruction set, near the exact value, and gradients within the error that
// rounding each step allows. A new row is tested without a change here.
#include "exp_error.h"
#include "points_bound.h"

#include <set>

namespace {

using namespace tartan_test;

const char *const kNames1[] = {
#define POINT1(name, ...)      #name,
#define POINT1_WITH(name, ...) #name,
#define POINT2(name, ...)
#include "kernels/points.def"
#include "kernels/sums.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2
};
const char *const kNames2[] = {
#define POINT1(name, ...)
#define POINT1_WITH(name, ...)
#define POINT2(name, ...) #name,
#include "kernels/points.def"
#include "kernels/sums.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2
};

class Points : public ::testing::TestWithParam<tartan_i_cpu_features> {};
INSTANTIATE_TEST_SUITE_P(Each, Points, ::testing::ValuesIn(feature_sets()),
                         [](const auto &set) { return features_name(set.param); });

// Equal bits, or both NaN.
template <typename T> void expect_same(const std::vector<T> &want, const T *got, const std::string &what) {
    for (size_t i = 0; i < want.size(); i++)
        ASSERT_TRUE(std::memcmp(&want[i], &got[i], sizeof(T)) == 0 ||
                    (std::isnan(want[i]) && std::isnan(got[i])))
            << what << ", element " << i << ": " << got[i] << ", not " << want[i];
}

// Numbers of all kinds: about half of them of ordinary size.
template <typename T> T any_number(std::mt19937_64 &random) {
    using Limits = std::numeric_limits<T>;
    const T special[] = {0,
                         -(T)0,
                         1,
                         -1,
                         (T)INFINITY,
                         -(T)INFINITY,
                         (T)NAN,
                         Limits::max(),
                         Limits::lowest(),
                         Limits::min(),
                         -Limits::min(),
                         Limits::denorm_min(),
                         -Limits::denorm_min()};
    const double u = std::uniform_real_distribution<double>(-1, 1)(random);
    switch (random() % 8) {
    case 0:
        return special[random() % (sizeof special / sizeof *special)];
    case 1:
        return (T)std::ldexp(u, (int)below(random, 2 * Limits::max_exponent) - Limits::max_exponent);
    case 2:
        return (T)(u * 100);
    case 3:
        return (T)std::ldexp(u, -(int)below(random, 30));
    default:
        return (T)(u * 8);
    }
}

template <typename T> std::vector<T> any_numbers(size_t n, std::mt19937_64 &random) {
    std::vector<T> x(n);
    for (T &one : x) one = any_number<T>(random);
    return x;
}

// ---- The same bits ----

template <typename T> void check_row1(const Tables<T> &tables, int row, size_t n, std::mt19937_64 &random) {
    const double p[] = {any_number<T>(random), any_number<T>(random), (double)(random() % 2),
                        (double)(random() % 2)};
    const std::vector<T> x = any_numbers<T>(n, random), y = any_numbers<T>(n, random),
                         g = any_numbers<T>(n, random);
    const auto &c = tables.c.point1[row], &best = tables.best.point1[row];
    const size_t shift = below(random, 16);
    const int64_t count = (int64_t)n;
    std::vector<T> want(n);
    Guarded<T> got(n, shift), same_place(n, shift);
    c.value(count, p, x.data(), want.data());
    best.value(count, p, x.data(), got.data());
    std::copy(x.begin(), x.end(), same_place.data());
    best.value(count, p, same_place.data(), same_place.data());
    expect_same(want, got.data(), kNames1[row]);
    expect_same(want, same_place.data(), std::string(kNames1[row]) + " in place");
    c.gradient(count, p, x.data(), y.data(), g.data(), want.data());
    best.gradient(count, p, x.data(), y.data(), g.data(), got.data());
    std::copy(g.begin(), g.end(), same_place.data());
    best.gradient(count, p, x.data(), y.data(), same_place.data(), same_place.data());
    expect_same(want, got.data(), std::string(kNames1[row]) + " gradient");
    expect_same(want, same_place.data(), std::string(kNames1[row]) + " gradient in place");
    EXPECT_TRUE(got.intact() && same_place.intact());
}

template <typename T> void check_row2(const Tables<T> &tables, int row, size_t n, std::mt19937_64 &random) {
    std::vector<T> a = any_numbers<T>(n, random), b = any_numbers<T>(n, random);
    for (size_t i = 0; i < n; i++)
        if (random() % 4 == 0) b[i] = a[i]; // equal numbers
    const std::vector<T> y = any_numbers<T>(n, random), g = any_numbers<T>(n, random);
    const auto &c = tables.c.point2[row], &best = tables.best.point2[row];
    const size_t shift = below(random, 16);
    const int64_t count = (int64_t)n;
    std::vector<T> want(n);
    Guarded<T> got(n, shift);
    c.value(count, a.data(), b.data(), want.data());
    best.value(count, a.data(), b.data(), got.data());
    expect_same(want, got.data(), kNames2[row]);
    for (int k = 0; k < 2; k++) {
        c.gradient[k](count, a.data(), b.data(), y.data(), g.data(), want.data());
        best.gradient[k](count, a.data(), b.data(), y.data(), g.data(), got.data());
        expect_same(want, got.data(), std::string(kNames2[row]) + " gradient " + std::to_string(k));
    }
    EXPECT_TRUE(got.intact());
}

template <typename T> void check_bits(const Tables<T> &tables) {
    std::mt19937_64 random(11);
    for (size_t round = 0; round < rounds(200u); round++) {
        const size_t n = round < 70 ? round : below(random, 400);
        for (int row = 0; row < TARTAN_I_POINT1_ROWS; row++) check_row1(tables, row, n, random);
        for (int row = 0; row < TARTAN_I_POINT2_ROWS; row++) check_row2(tables, row, n, random);
        if (testing::Test::HasFailure()) return;
    }
}

TEST_P(Points, HaveTheBitsOfPortableC) {
    check_bits(Tables<float>(GetParam()));
    check_bits(Tables<double>(GetParam()));
}

// ---- Accuracy ----

// |got - want.value| is at most the bound. What overflows may be infinite.
template <typename T> bool is_within(T got, const Bound<T> &want) {
    if (std::isinf(want.error)) return true; // counted by the caller
    if (std::isnan(want.value)) return std::isnan(got);
    if (std::isinf(want.value)) return (long double)got == want.value;
    return std::fabs((long double)got - want.value) <= want.error;
}

// x times a subnormal number is only known to |x| times the smallest number.
constexpr long double kSmall = 128, kSmallError = 1024;

// Of these, the argument of an exponential function is a rounded product, the factor of any number may be subnormal, or a sum may cancel:
// they are held to the bounds of their expressions alone.
const std::set<std::string> kOfProducts = {"gelu_tanh", "swish", "glu",
                                           "swiglu",    "geglu", "concrete_gate_infer"};

// The value in units of the last place of T, and the gradient within its bound.
template <typename T> struct Accuracy {
    double most_units = 0, at = 0;
    int64_t results = 0, unknown = 0;
    void add(const char *name, bool is_value, T got, const Bound<T> &want, T x) {
        results++;
        if (std::isinf(want.error)) unknown++;
        EXPECT_TRUE(is_within(got, want))
            << name << (is_value ? " of " : " gradient at ") << x << " is " << got << ", not "
            << (double)want.value << " to " << (double)want.error;
        if (!is_value || std::isnan(want.value) || kOfProducts.count(name) > 0) return;
        if (std::fabs(want.value) < kSmall * std::numeric_limits<T>::min()) {
            EXPECT_LE(std::fabs(got - want.value), kSmallError * std::numeric_limits<T>::denorm_min())
                << name << x;
            return;
        }
        const double found = units(got < 0 ? -got : got, std::fabs(want.value));
        if (found > most_units) most_units = found, at = x;
    }
};

// Values of rows may be this far from the exact ones, those of functions of a + b from the ones of the rounded sum.
constexpr double kUnits = 6;

template <typename T> void report(const char *name, const Accuracy<T> &found) {
    testing::Test::RecordProperty(std::string(name) + (sizeof(T) == 4 ? "_f32" : "_f64"),
                                  std::to_string(found.most_units));
    EXPECT_LE(found.most_units, kUnits) << name << " at " << found.at;
    EXPECT_LE(found.unknown, found.results / 8) << name;
}

template <typename T> void check_accuracy() {
    if (!has_wide<T>()) return;
    const Tables<T> tables(tartan_i_cpu_in_use());
    std::mt19937_64 random(12);
    const size_t n = rounds(40000u);
    std::vector<T> x = any_numbers<T>(n, random), y(n), out(n), b = any_numbers<T>(n, random), g(n);
    const double factors[][4] = {{1.25, 20, 1, 1}, {(T)-0.7, 20, 1, 1}};
    for (size_t i = 0; i < n; i++) g[i] = (T)std::uniform_real_distribution<double>(-2, 2)(random);
    int row = 0;
    using B = Bound<T>;
    const auto exact = [](T v) { return B(v, 0); };
#define POINT1(name, help, result, slope) POINT1_WITH(name, (), help, result, slope)
#define POINT1_WITH(name, parameters, help, result, slope)                                                   \
    {                                                                                                        \
        Accuracy<T> found;                                                                                   \
        const auto value = [](B x, B p, B q, B r, B s) {                                                     \
            (void)p, (void)q, (void)r, (void)s;                                                              \
            return result;                                                                                   \
        };                                                                                                   \
        const auto gradient = [](B x, B y, B g, B p, B q, B r, B s) {                                        \
            (void)x, (void)y, (void)p, (void)q, (void)r, (void)s;                                            \
            return slope;                                                                                    \
        };                                                                                                   \
        for (const auto &factor : factors) {                                                                 \
            tables.best.point1[row].value((int64_t)n, factor, x.data(), y.data());                           \
            tables.best.point1[row].gradient((int64_t)n, factor, x.data(), y.data(), g.data(), out.data());  \
            for (size_t i = 0; i < n; i++) {                                                                 \
                const B in = exact(x[i]);                                                                    \
                const auto of = [&](int k) { return exact((T)factor[k]); };                                  \
                found.add(#name, true, y[i], value(in, of(0), of(1), of(2), of(3)), x[i]);                   \
                found.add(#name, false, out[i],                                                              \
                          gradient(in, exact(y[i]), exact(g[i]), of(0), of(1), of(2), of(3)), x[i]);         \
            }                                                                                                \
        }                                                                                                    \
        report(#name, found);                                                                                \
        row++;                                                                                               \
    }
#define POINT2(...)
#include "kernels/points.def"
#include "kernels/sums.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2
    row = 0;
#define POINT1(...)
#define POINT1_WITH(...)
#define POINT2(name, help, result, of_a, of_b)                                                               \
    {                                                                                                        \
        Accuracy<T> found;                                                                                   \
        const auto value = [](B a, B b) { return result; };                                                  \
        const auto a_gradient = [](B a, B b, B y, B g) {                                                     \
            (void)a, (void)b, (void)y;                                                                       \
            return of_a;                                                                                     \
        };                                                                                                   \
        const auto b_gradient = [](B a, B b, B y, B g) {                                                     \
            (void)a, (void)b, (void)y;                                                                       \
            return of_b;                                                                                     \
        };                                                                                                   \
        tables.best.point2[row].value((int64_t)n, x.data(), b.data(), y.data());                             \
        for (size_t i = 0; i < n; i++) {                                                                     \
            const bool of_sum = std::string(#name).rfind("add_", 0) == 0;                                    \
            const B a = exact(of_sum ? x[i] + b[i] : x[i]), other = exact(of_sum ? 0 : b[i]);                \
            found.add(#name, true, y[i], value(a, other), x[i]);                                             \
        }                                                                                                    \
        for (int k = 0; k < 2; k++) {                                                                        \
            tables.best.point2[row].gradient[k]((int64_t)n, x.data(), b.data(), y.data(), g.data(),          \
                                                out.data());                                                 \
            for (size_t i = 0; i < n; i++) {                                                                 \
                const B of[] = {exact(x[i]), exact(b[i]), exact(y[i]), exact(g[i])};                         \
                const B want = k == 0 ? a_gradient(of[0], of[1], of[2], of[3])                               \
                                      : b_gradient(of[0], of[1], of[2], of[3]);                              \
                found.add(#name, false, out[i], want, x[i]);                                                 \
            }                                                                                                \
        }                                                                                                    \
        report(#name, found);                                                                                \
        row++;                                                                                               \
    }
#include "kernels/points.def"
#include "kernels/sums.def"
#undef POINT1
#undef POINT1_WITH
#undef POINT2
}

TEST(PointsAccuracy, OfF32) {
    check_accuracy<float>();
}
TEST(PointsAccuracy, OfF64) {
    check_accuracy<double>();
}

// ---- What is known of single functions ----

template <typename T>
T value_at(tartan_i_point1_row row, double x, double p = 1, double q = 0, double r = 0, double s = 0) {
    const Tables<T> tables(tartan_i_cpu_in_use());
    const T in = (T)x;
    const double all[] = {p, q, r, s};
    T out;
    tables.best.point1[row].value(1, all, &in, &out);
    return out;
}
template <typename T> T slope_at(tartan_i_point1_row row, double x, double p = 1) {
    const Tables<T> tables(tartan_i_cpu_in_use());
    const T in = (T)x, y = value_at<T>(row, x, p), g = 1;
    const double all[] = {p, 0, 0, 0};
    T out;
    tables.best.point1[row].gradient(1, all, &in, &y, &g, &out);
    return out;
}
template <typename T> T value_at(tartan_i_point2_row row, double a, double b) {
    const Tables<T> tables(tartan_i_cpu_in_use());
    const T x = (T)a, y = (T)b;
    T out;
    tables.best.point2[row].value(1, &x, &y, &out);
    return out;
}

template <typename T> void check_special() {
    const double inf = INFINITY;
    for (double far : {-1e3, -1e4, -(double)std::numeric_limits<T>::max(), -inf}) {
        for (auto row : {TARTAN_I_POINT1_silu, TARTAN_I_POINT1_gelu, TARTAN_I_POINT1_gelu_tanh,
                         TARTAN_I_POINT1_swish, TARTAN_I_POINT1_sigmoid}) {
            EXPECT_EQ(0, value_at<T>(row, far)) << kNames1[row] << far;
            EXPECT_EQ(0, slope_at<T>(row, far)) << kNames1[row] << far;
        }
        for (auto row :
             {TARTAN_I_POINT1_silu, TARTAN_I_POINT1_gelu, TARTAN_I_POINT1_gelu_tanh, TARTAN_I_POINT1_swish}) {
            EXPECT_EQ((T)-far, value_at<T>(row, -far)) << kNames1[row] << -far;
            EXPECT_EQ(1, slope_at<T>(row, -far)) << kNames1[row] << -far;
        }
        EXPECT_EQ(1, value_at<T>(TARTAN_I_POINT1_sigmoid, -far));
        EXPECT_EQ(-1, value_at<T>(TARTAN_I_POINT1_tanh, far));
        EXPECT_EQ(-2, value_at<T>(TARTAN_I_POINT1_elu, far, 2));
        EXPECT_EQ((T)far / 4, value_at<T>(TARTAN_I_POINT1_leaky_relu, far, 0.25));
        EXPECT_EQ((T)-far, value_at<T>(TARTAN_I_POINT1_leaky_relu, -far, 0.25));
        EXPECT_EQ(0, value_at<T>(TARTAN_I_POINT1_softplus, far));
        EXPECT_EQ(0, slope_at<T>(TARTAN_I_POINT1_softplus, far));
        EXPECT_EQ((T)-far, value_at<T>(TARTAN_I_POINT1_softplus, -far));
        EXPECT_EQ(1, slope_at<T>(TARTAN_I_POINT1_softplus, -far));
    }
    for (int row = 0; row < TARTAN_I_POINT1_ROWS; row++)
        EXPECT_TRUE(std::isnan(value_at<T>((tartan_i_point1_row)row, NAN))) << kNames1[row];
    for (int row = 0; row < TARTAN_I_POINT2_ROWS; row++) {
        EXPECT_TRUE(std::isnan(value_at<T>((tartan_i_point2_row)row, NAN, 1))) << kNames2[row];
        EXPECT_TRUE(std::isnan(value_at<T>((tartan_i_point2_row)row, 1, NAN))) << kNames2[row];
        EXPECT_TRUE(std::isnan(value_at<T>((tartan_i_point2_row)row, -inf, NAN))) << kNames2[row];
    }
    const T most = std::numeric_limits<T>::max();
    const auto filter = [](double x, double scale, double saturate, double infs, double nans) {
        return value_at<T>(TARTAN_I_POINT1_filter_tensor, x, scale, saturate, infs, nans);
    };
    for (double sign : {-1.0, 1.0}) {
        EXPECT_EQ(0, filter(sign * inf, 2, 0, 1, 0));
        EXPECT_EQ(sign * inf, filter(sign * inf, 2, 0, 0, 1));
        EXPECT_EQ(sign * 65504, filter(sign * inf, 2, 65504, 0, 1));
        EXPECT_EQ(sign * most, filter(sign * (double)most, 1, 0, 1, 1));
        EXPECT_EQ(sign * 6, filter(sign * 3, 2, 7, 1, 1));
        EXPECT_EQ(sign * 7, filter(sign * 4, 2, 7, 1, 1));
        const T least = std::numeric_limits<T>::denorm_min();
        EXPECT_EQ(sign * least, filter(sign * (double)least, 1, 0, 1, 1));
    }
    EXPECT_EQ(0, filter(NAN, 2, 65504, 0, 1));
    EXPECT_TRUE(std::isnan(filter(NAN, 2, 65504, 1, 0)));
    EXPECT_EQ((T)6, value_at<T>(TARTAN_I_POINT1_scale, 3, 2));
    EXPECT_EQ((T)-0.5, value_at<T>(TARTAN_I_POINT2_glu, -1, 0));
    EXPECT_EQ(0, value_at<T>(TARTAN_I_POINT2_swiglu, 3, -inf));
    EXPECT_EQ(0, value_at<T>(TARTAN_I_POINT2_geglu, 3, -inf));
    EXPECT_EQ(12, value_at<T>(TARTAN_I_POINT2_reglu, 3, 4));
    EXPECT_EQ(1, value_at<T>(TARTAN_I_POINT2_add_relu, 3, -2));
    EXPECT_EQ(0, value_at<T>(TARTAN_I_POINT2_add_silu, 3, -inf));
    EXPECT_EQ(0, value_at<T>(TARTAN_I_POINT2_add_gelu, 3, -inf));
    EXPECT_EQ(inf, value_at<T>(TARTAN_I_POINT2_maximum, inf, inf));
    EXPECT_EQ(-inf, value_at<T>(TARTAN_I_POINT2_minimum, inf, -inf));
    EXPECT_EQ(-inf, value_at<T>(TARTAN_I_POINT1_log, 0));
    EXPECT_EQ(0, value_at<T>(TARTAN_I_POINT1_log, 1));
    EXPECT_TRUE(std::isnan(value_at<T>(TARTAN_I_POINT1_log, -1)));
    EXPECT_TRUE(std::isnan(value_at<T>(TARTAN_I_POINT1_sqrt, -1)));
    EXPECT_EQ(inf, slope_at<T>(TARTAN_I_POINT1_sqrt, 0));
    EXPECT_EQ(inf, value_at<T>(TARTAN_I_POINT1_reciprocal, 0));
}

TEST(PointsSpecial, NumbersAtTheEnds) {
    check_special<float>();
    check_special<double>();
}

} // namespace
