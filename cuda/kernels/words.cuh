/* SPDX-License-Identifier: Apache-2.0
 * The words of lib/kernels/points.def and norms.def on numbers of type S. */
#ifndef TARTAN_CUDA_WORDS_CUH
#define TARTAN_CUDA_WORDS_CUH

#define NUM(number)             ((S)(number))
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
#define NAN_OR(a, b)            equal(a, b)
#define SIGMOID(x)              sigmoid(x)
#define NORMAL(x)               normcdf(x)

namespace tartan_cuda {
namespace {

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

/* Of a power that does not overflow. */
template <typename S> __device__ __forceinline__ S sigmoid(S x) {
    const S power = exp(-fabs(x)), part = 1 / (1 + power);
    return x < 0 ? power * part : part;
}

} // namespace
} // namespace tartan_cuda
#endif
