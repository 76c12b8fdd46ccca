/* SPDX-License-Identifier: Apache-2.0
 * The words of lib/kernels/points.def, norms.def and steps.def on numbers of type S. */
#ifndef TARTAN_CUDA_WORDS_CUH
#define TARTAN_CUDA_WORDS_CUH

#include "device/ptx_math.cuh"

#define NUM(number)             ((S)(number))
#define PRODUCT(a, b)           product(a, b)
#define KEEP_NAN(x, value)      (isnan(x) ? (x) : (value))
#define ABS(x)                  fabs(x)
#define ROUND(x)                rint(x)
#define POWER(x, p)             power(x, p)
#define EXP(x)                  exp(x)
#define EXPM1(x)                expm1(x)
#define LOG(x)                  log(x)
#define SQRT(x)                 sqrt(x)
#define TANH(x)                 tanh(x)
#define ERF(x)                  erf(x)
#define FMA(a, b, c)            fma(a, b, c)
#define MAX(a, b)               larger(a, b)
#define MIN(a, b)               smaller(a, b)
#define GREATER(a, b)           ((a) > (b))
#define SELECT(condition, a, b) ((condition) ? (a) : (b))
#define EQUAL(a, b)             equal(a, b)
#define SIGMOID(x)              sigmoid(x)
#define NORMAL(x)               normal(x)
#define RSQRT(x)                inverse_root(x)
#define LEADING(x)              leading(x)

namespace tartan_cuda {
namespace {

/* Not contracted with a sum. */
[[maybe_unused]] __device__ __forceinline__ double product(double a, double b) {
    return __dmul_rn(a, b);
}

/* Long, and called in one place of many. */
[[maybe_unused]] __device__ __noinline__ double power(double x, double p) {
    return pow(x, p);
}

/* The second number if one of them is NaN. */
template <typename S> __device__ __forceinline__ S larger(S a, S b) {
    return a > b ? a : b;
}
template <typename S> __device__ __forceinline__ S smaller(S a, S b) {
    return a < b ? a : b;
}

/* Equal numbers have equal bits or are zeros; a NaN stays one whatever bits are added. */
[[maybe_unused]] __device__ __forceinline__ float equal(float a, float b) {
    return __uint_as_float(__float_as_uint(a) | __float_as_uint(b));
}
[[maybe_unused]] __device__ __forceinline__ double equal(double a, double b) {
    return __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b));
}

[[maybe_unused]] __device__ __forceinline__ float leading(float x) {
    return __uint_as_float(__float_as_uint(x) & 0x7F800000u);
}
[[maybe_unused]] __device__ __forceinline__ double leading(double x) {
    return __longlong_as_double(__double_as_longlong(x) & 0x7FF0000000000000ll);
}

/* By a power that does not overflow. */
[[maybe_unused]] __device__ __forceinline__ float sigmoid(float x) {
    const float power = exp(-fabs(x)), part = reciprocal_fast(1 + power);
    return x < 0 ? power * part : part;
}
[[maybe_unused]] __device__ __forceinline__ double sigmoid(double x) {
    const double power = exp(-fabs(x)), part = 1 / (1 + power);
    return x < 0 ? power * part : part;
}

/* The distribution function of the normal distribution: for t = |x| <= 15, beyond which it rounds to 0,
 * Phi(-t) = e^(-t^2 / 2) p(q) / (t + a) with q = (t - a) / (t + a), a = 3.75, and p a minimax polynomial with a relative error of 2^-26. */
[[maybe_unused]] __device__ __forceinline__ float normal(float x) {
    constexpr float A = 3.75f, terms[] = {0x1.d0fdb8p-12f, 0x1.0b3146p-11f, -0x1.113884p-8f,
                                          0x1.3a978ep-10f, 0x1.33237cp-5f,  -0x1.36508ep-3f,
                                          0x1.6969p-2f,    -0x1.2d2704p-1f, 0x1.80268cp-1f};
    const float t = smaller(15.0f, fabs(x)), square = t * t, low = fma(t, t, -square);
    const float inverse = reciprocal_fast(t + A), q = fma(-2 * A, inverse, 1.0f);
    float power = exp(-0.5f * square), sum = terms[0];
    power = fma(power, -0.5f * low, power);
#pragma unroll
    for (int i = 1; i < 9; i++) sum = fma(sum, q, terms[i]);
    const float below = power * (inverse * sum);
    return x > 0 ? 1 - below : below;
}
[[maybe_unused]] __device__ __forceinline__ double normal(double x) {
    return normcdf(x);
}

/* 1 / sqrt(x); of f32 the instruction's result, improved by a step of Newton's method. */
[[maybe_unused]] __device__ __forceinline__ float inverse_root(float x) {
    const float root = rsqrtf(x), better = fma(root * 0.5f, fma(-x * root, root, 1.0f), root);
    return x > 0 && root > 0 ? better : root;
}
[[maybe_unused]] __device__ __forceinline__ double inverse_root(double x) {
    return rsqrt(x);
}

} // namespace
} // namespace tartan_cuda

#endif
