// SPDX-License-Identifier: Apache-2.0
// The words of points.def on numbers with error bounds: the exact value of an expression, computed in long double, and how far a
// computation that rounds each step to T may be from it.
#ifndef TARTAN_TESTS_KERNELS_POINTS_BOUND_H
#define TARTAN_TESTS_KERNELS_POINTS_BOUND_H

#include <cmath>
#include <limits>

namespace tartan_test {

template <typename T> struct Bound {
    long double value = 0, error = 0; // an infinite error: nothing is known

    Bound(long double v, long double e) : value(v), error(e) {
        const long double most = std::numeric_limits<T>::max();
        if (std::isnan(error)) error = INFINITY;
        if (std::isnan(value)) {
            error = std::isinf(error) ? error : 0;
        } else if (std::fabs(value) - error > most * (1 + std::numeric_limits<T>::epsilon() / 4)) {
            value = value > 0 ? INFINITY : -INFINITY; // it overflows as T does
            error = 0;
        } else if (std::fabs(value) + error > most) {
            error = INFINITY;
        }
    }
};

// The value of a step, with what its operands' errors make of it, and the error of the step itself in units of the last place.
template <typename T> Bound<T> step(long double value, long double error, double units = 0.5) {
    const long double size = std::isfinite(value) ? std::fabs(value) : 0;
    const long double place = std::fmax((size + error) * std::numeric_limits<T>::epsilon(),
                                        (long double)std::numeric_limits<T>::denorm_min());
    return Bound<T>(value, error + (long double)units * place);
}

template <typename T> Bound<T> operator-(Bound<T> a) {
    return Bound<T>(-a.value, a.error);
}
template <typename T> Bound<T> operator+(Bound<T> a, Bound<T> b) {
    return step<T>(a.value + b.value, a.error + b.error);
}
template <typename T> Bound<T> operator-(Bound<T> a, Bound<T> b) {
    return a + -b;
}

// The error of a product; nothing comes of an exact infinity or NaN.
template <typename T> long double product_error(Bound<T> a, Bound<T> b) {
    if (std::isnan(a.value) || std::isnan(b.value)) return 0;
    if (!std::isfinite(a.value) || !std::isfinite(b.value)) return a.error > 0 || b.error > 0 ? INFINITY : 0;
    return std::fabs(a.value) * b.error + std::fabs(b.value) * a.error + a.error * b.error;
}
template <typename T> Bound<T> operator*(Bound<T> a, Bound<T> b) {
    return step<T>(a.value * b.value, product_error(a, b));
}
template <typename T> Bound<T> operator/(Bound<T> a, Bound<T> b) {
    const long double value = a.value / b.value, least = std::fabs(b.value) - b.error;
    if ((a.error == 0 && b.error == 0) || std::isnan(a.value) || std::isnan(b.value))
        return step<T>(value, 0);
    if (!(least > 0) || !std::isfinite(a.value) || !std::isfinite(b.value)) return Bound<T>(value, INFINITY);
    return step<T>(value, (a.error + std::fabs(value) * b.error) / least);
}
template <typename T> Bound<T> fma_of(Bound<T> a, Bound<T> b, Bound<T> c) {
    return step<T>(std::fma(a.value, b.value, c.value), product_error(a, b) + c.error);
}

// ---- Functions: f, the largest |f'| within the error, and the error of the function itself in units ----

template <typename T, typename F, typename Slope>
Bound<T> function_of(Bound<T> x, F f, Slope slope, double units) {
    const long double value = f(x.value);
    if (x.error == 0 || std::isnan(x.value)) return step<T>(value, 0, units);
    if (std::isinf(x.error) || std::isinf(x.value)) return Bound<T>(value, INFINITY);
    return step<T>(value, std::fmax(slope(x.value - x.error), slope(x.value + x.error)) * x.error, units);
}

// Phi(x); a rounding of its argument counts where the argument is far below 0.
inline long double wide_normal(long double x) {
    if (std::isinf(x)) return x > 0 ? 1 : 0;
    const long double half = std::sqrt(0.5L),
                      half_rest = 1.8950325588932571e-20L; // sqrt(1/2) = half + half_rest
    const bool precise =
        half == 0.707106781186547524400844362104849039L && std::numeric_limits<long double>::digits == 64;
    const long double z = x * half, rest = std::fma(x, half, -z) + (precise ? x * half_rest : 0);
    const long double slope = -2 / std::sqrt(std::acos(-1.0L)) * std::exp(-z * z);
    return (std::erfc(-z) - slope * rest) / 2;
}

template <typename T> Bound<T> sqrt_of(Bound<T> x) {
    return function_of(
        x, [](long double v) { return std::sqrt(v); },
        [](long double v) { return v > 0 ? 0.5L / std::sqrt(v) : INFINITY; }, 0.5);
}
template <typename T> Bound<T> exp_of(Bound<T> x) {
    const auto f = [](long double v) { return std::exp(v); };
    return function_of(x, f, f, 1);
}
template <typename T> Bound<T> expm1_of(Bound<T> x) {
    return function_of(
        x, [](long double v) { return std::expm1(v); }, [](long double v) { return std::exp(v); }, 1.25);
}
template <typename T> Bound<T> log_of(Bound<T> x) {
    return function_of(
        x, [](long double v) { return std::log(v); },
        [](long double v) { return v > 0 ? 1 / v : (long double)INFINITY; }, 1);
}
template <typename T> Bound<T> tanh_of(Bound<T> x) {
    return function_of(
        x, [](long double v) { return std::tanh(v); }, [](long double) { return 1.0L; }, 1);
}
template <typename T> Bound<T> erf_of(Bound<T> x) {
    return function_of(
        x, [](long double v) { return std::erf(v); }, [](long double) { return 1.129L; }, 1.25);
}
template <typename T> Bound<T> sigmoid_of(Bound<T> x) {
    const auto f = [](long double v) {
        return v > 0 ? 1 / (1 + std::exp(-v)) : std::exp(v) / (1 + std::exp(v));
    };
    return function_of(x, f, f, 2.5);
}
template <typename T> Bound<T> normal_of(Bound<T> x) {
    return function_of(
        x, wide_normal, [](long double v) { return 0.4L * std::exp(-v * v / 2); }, 5);
}

// ---- Choices: known only if they do not depend on the errors ----

struct Choice {
    bool known, holds;
};
template <typename T> Choice greater_of(Bound<T> a, Bound<T> b) {
    const bool exact = a.error == 0 && b.error == 0;
    return {exact || std::fabs(a.value - b.value) > a.error + b.error, a.value > b.value};
}
template <typename T> Bound<T> choose(Choice choice, Bound<T> a, Bound<T> b) {
    const Bound<T> chosen = choice.holds ? a : b;
    return choice.known ? chosen : Bound<T>(chosen.value, INFINITY);
}
template <typename T> Bound<T> equal_of(Bound<T> a, Bound<T> b) {
    return std::isnan(b.value) ? b : a;
}

} // namespace tartan_test

// In a function with `using B = Bound<T>`. A number has the precision of double in the source and that of T in the kernels.
#define NUM(x)          B((long double)(x), std::fabs((long double)(x) - (long double)(T)(x)))
#define FMA(a, b, c)    fma_of(a, b, c)
#define GREATER(a, b)   greater_of(a, b)
#define SELECT(m, a, b) choose(m, a, b)
#define MAX(a, b)       choose(greater_of(a, b), a, b)
#define MIN(a, b)       choose(greater_of(b, a), a, b)
#define EQUAL(a, b)     equal_of(a, b)
#define KEEP_NAN(x, a)  (std::isnan((x).value) ? (x) : (a))
#define SQRT(x)         sqrt_of(x)
#define EXP(x)          exp_of(x)
#define EXPM1(x)        expm1_of(x)
#define LOG(x)          log_of(x)
#define TANH(x)         tanh_of(x)
#define ERF(x)          erf_of(x)
#define SIGMOID(x)      sigmoid_of(x)
#define NORMAL(x)       normal_of(x)

#endif
