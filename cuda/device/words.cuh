/* SPDX-License-Identifier: Apache-2.0
 * The words of the expressions in lib/kernels/points.def and steps.def, on numbers of type S. */
#ifndef TARTAN_CUDA_WORDS_CUH
#define TARTAN_CUDA_WORDS_CUH

#include "device/ptx_math.cuh"

#define NUM(number)             ((S)(number))
#define PRODUCT(a, b)           tartan_cuda_product(a, b)
#define FMA(a, b, c)            fma(a, b, c)
#define MAX(a, b)               tartan_cuda_larger(a, b)
#define MIN(a, b)               tartan_cuda_smaller(a, b)
#define GREATER(a, b)           ((a) > (b))
#define SELECT(condition, a, b) ((condition) ? (a) : (b))
#define EQUAL(a, b)             tartan_cuda_equal(a, b)
#define KEEP_NAN(x, value)      (isnan(x) ? (x) : (value))
#define ABS(x)                  fabs(x)
#define SQRT(x)                 sqrt(x)
#define POWER(x, p)             tartan_cuda_power(x, p)
#define ROUND(x)                rint(x)
#define EXP(x)                  exp(x)
#define EXPM1(x)                expm1(x)
#define LOG(x)                  log(x)
#define TANH(x)                 tanh(x)
#define ERF(x)                  erf(x)
#define SIGMOID(x)              tartan_cuda_sigmoid(x)
#define NORMAL(x)               tartan_cuda_normal(x)

/* Rounded by itself: not contracted with a sum. */
__device__ __forceinline__ double tartan_cuda_product(double a, double b) {
    return __dmul_rn(a, b);
}

/* The second number if one of them is NaN. */
template <typename S> __device__ __forceinline__ S tartan_cuda_larger(S a, S b) {
    return a > b ? a : b;
}
template <typename S> __device__ __forceinline__ S tartan_cuda_smaller(S a, S b) {
    return a < b ? a : b;
}

/* Equal numbers have equal bits or are zeros; a NaN stays one whatever bits are added. */
__device__ __forceinline__ float tartan_cuda_equal(float a, float b) {
    return __uint_as_float(__float_as_uint(a) | __float_as_uint(b));
}
__device__ __forceinline__ double tartan_cuda_equal(double a, double b) {
    return __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b));
}

/* Long, and called in one place of many. */
static __device__ __noinline__ double tartan_cuda_power(double x, double p) {
    return pow(x, p);
}

/* Of a power that does not overflow. */
__device__ __forceinline__ float tartan_cuda_sigmoid(float x) {
    const float power = exp(-fabs(x)), part = tartan_cuda::reciprocal_fast(1 + power);
    return x < 0 ? power * part : part;
}
__device__ __forceinline__ double tartan_cuda_sigmoid(double x) {
    const double power = exp(-fabs(x)), part = 1 / (1 + power);
    return x < 0 ? power * part : part;
}

/* The distribution function of the normal distribution: for t = |x| <= 15, beyond which it rounds to 0,
 * Phi(-t) = e^(-t^2 / 2) p(q) / (t + a) with q = (t - a) / (t + a), a = 3.75, and p a minimax polynomial with a relative error of 2^-26. */
__device__ __forceinline__ float tartan_cuda_normal(float x) {
    constexpr float A = 3.75f, terms[] = {0x1.d0fdb8p-12f, 0x1.0b3146p-11f, -0x1.113884p-8f,
                                          0x1.3a978ep-10f, 0x1.33237cp-5f,  -0x1.36508ep-3f,
                                          0x1.6969p-2f,    -0x1.2d2704p-1f, 0x1.80268cp-1f};
    const float t = tartan_cuda_smaller(15.0f, fabs(x)), square = t * t, low = fma(t, t, -square);
    const float inverse = tartan_cuda::reciprocal_fast(t + A), q = fma(-2 * A, inverse, 1.0f);
    float power = exp(-0.5f * square), sum = terms[0];
    power = fma(power, -0.5f * low, power);
#pragma unroll
    for (int i = 1; i < 9; i++) sum = fma(sum, q, terms[i]);
    const float below = power * (inverse * sum);
    return x > 0 ? 1 - below : below;
}
__device__ __forceinline__ double tartan_cuda_normal(double x) {
    return normcdf(x);
}

#endif
