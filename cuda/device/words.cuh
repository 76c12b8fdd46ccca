/* SPDX-License-Identifier: Apache-2.0
 * The words of the expressions in lib/kernels/points.def and steps.def, on numbers of type S. */
#ifndef TARTAN_CUDA_WORDS_CUH
#define TARTAN_CUDA_WORDS_CUH

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
#define NORMAL(x)               normcdf(x)

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
template <typename S> __device__ __forceinline__ S tartan_cuda_sigmoid(S x) {
    const S power = exp(-fabs(x)), part = 1 / (1 + power);
    return x < 0 ? power * part : part;
}

#endif
