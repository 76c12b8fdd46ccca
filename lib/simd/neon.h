/* SPDX-License-Identifier: Apache-2.0
 * The vector vocabulary in NEON (AArch64). See simd/simd.h. */
#ifndef TARTAN_SIMD_NEON_H
#define TARTAN_SIMD_NEON_H

#include <arm_neon.h>
#include <string.h>

/* Of 32 registers: 8 x 3 sums, 3 vectors of the right factor and one of the left. */
#define VEC_STRIP_ROWS                                                                                       \
    { 8, 8, 8, 6 }
enum { PEAK_CHAINS = 24, VEC_STRIP_VECTORS = 3, VEC_REGISTERS = 32, VEC_SPREAD_ROWS = 8 };

#if TARTAN_I_REAL == 32
typedef float32x4_t vec;
enum { LANES = 4 };
#define vec_zero()       vdupq_n_f32(0)
#define vec_fill(x)      vdupq_n_f32(x)
#define vec_load(p)      vld1q_f32(p)
#define vec_store(p, v)  vst1q_f32(p, v)
#define vec_add(a, b)    vaddq_f32(a, b)
#define vec_sub(a, b)    vsubq_f32(a, b)
#define vec_mul(a, b)    vmulq_f32(a, b)
#define vec_div(a, b)    vdivq_f32(a, b)
#define vec_sqrt(a)      vsqrtq_f32(a)
#define vec_fma(a, b, c) vfmaq_f32(c, a, b)

typedef uint32x4_t vec_mask;
#define vec_greater(a, b)   vcgtq_f32(a, b)
#define vec_is_nan(a)       (~vceqq_f32(a, a))
#define vec_select(m, a, b) vbslq_f32(m, a, b)
static inline vec_mask vec_mask_of(uint32_t bits) {
    const uint32_t lane[LANES] = {1, 2, 4, 8};
    return vtstq_u32(vdupq_n_u32(bits), vld1q_u32(lane));
}
static inline uint32_t vec_bits_of_mask(vec_mask m) {
    const uint32_t lane[LANES] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(m, vld1q_u32(lane)));
}

static inline float vec_sum(vec v) {
    const float32x2_t half = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(half, 0) + vget_lane_f32(half, 1);
}
static inline float vec_largest(vec v) {
    const float32x2_t low = vget_low_f32(v), high = vget_high_f32(v);
    const float32x2_t half = vbsl_f32(vcgt_f32(low, high), low, high);
    const float a = vget_lane_f32(half, 0), b = vget_lane_f32(half, 1);
    return a > b ? a : b;
}

static inline vec vec_load_halves(const float *p, const float *q) {
    return vcombine_f32(vld1_f32(p), vld1_f32(q));
}
static inline void vec_store_halves(float *p, float *q, vec v) {
    vst1_f32(p, vget_low_f32(v));
    vst1_f32(q, vget_high_f32(v));
}

static inline vec vec_load_f16(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static inline void vec_store_f16(uint16_t *p, vec v) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)));
}
static inline vec vec_load_bf16(const uint16_t *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static inline void vec_store_bf16(uint16_t *p, vec v) {
    const uint32x4_t bits = vreinterpretq_u32_f32(v), upper = vshrq_n_u32(bits, 16);
    const uint32x4_t odd = vandq_u32(upper, vdupq_n_u32(1));
    const uint32x4_t round = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(upper, vdupq_n_u32(0x40));
    vst1_u16(p, vmovn_u32(vbslq_u32(vceqq_f32(v, v), vshrq_n_u32(round, 16), quiet)));
}

enum { TILE = 4 };
static inline void part_transpose(const float *in, int64_t in_row, vec *out) {
    /* Rows i and i + 2 interleaved, twice. */
    const float32x4x2_t even = vzipq_f32(vld1q_f32(in), vld1q_f32(in + 2 * in_row));
    const float32x4x2_t odd = vzipq_f32(vld1q_f32(in + in_row), vld1q_f32(in + 3 * in_row));
    const float32x4x2_t low = vzipq_f32(even.val[0], odd.val[0]), high = vzipq_f32(even.val[1], odd.val[1]);
    out[0] = low.val[0], out[1] = low.val[1], out[2] = high.val[0], out[3] = high.val[1];
}
#else
typedef float64x2_t vec;
enum { LANES = 2 };
#define vec_zero()          vdupq_n_f64(0)
#define vec_fill(x)         vdupq_n_f64(x)
#define vec_load(p)         vld1q_f64(p)
#define vec_store(p, v)     vst1q_f64(p, v)
#define vec_add(a, b)       vaddq_f64(a, b)
#define vec_sub(a, b)       vsubq_f64(a, b)
#define vec_mul(a, b)       vmulq_f64(a, b)
#define vec_div(a, b)       vdivq_f64(a, b)
#define vec_sqrt(a)         vsqrtq_f64(a)
#define vec_fma(a, b, c)    vfmaq_f64(c, a, b)

typedef uint64x2_t vec_mask;
#define vec_greater(a, b)   vcgtq_f64(a, b)
#define vec_is_nan(a)       (~vceqq_f64(a, a))
#define vec_select(m, a, b) vbslq_f64(m, a, b)
static inline vec_mask vec_mask_of(uint32_t bits) {
    const uint64_t lane[LANES] = {1, 2};
    return vtstq_u64(vdupq_n_u64(bits), vld1q_u64(lane));
}
static inline uint32_t vec_bits_of_mask(vec_mask m) {
    const uint64_t lane[LANES] = {1, 2};
    return (uint32_t)vaddvq_u64(vandq_u64(m, vld1q_u64(lane)));
}

static inline double vec_sum(vec v) {
    return vgetq_lane_f64(v, 0) + vgetq_lane_f64(v, 1);
}
static inline double vec_largest(vec v) {
    const double a = vgetq_lane_f64(v, 0), b = vgetq_lane_f64(v, 1);
    return a > b ? a : b;
}

static inline vec vec_load_halves(const double *p, const double *q) {
    return vcombine_f64(vld1_f64(p), vld1_f64(q));
}
static inline void vec_store_halves(double *p, double *q, vec v) {
    vst1_f64(p, vget_low_f64(v));
    vst1_f64(q, vget_high_f64(v));
}

#define vec_load_f32(p)     vcvt_f64_f32(vld1_f32(p))
#define vec_store_f32(p, v) vst1_f32(p, vcvt_f32_f64(v))

enum { TILE = 2 };
static inline void part_transpose(const double *in, int64_t in_row, vec *out) {
    const float64x2_t first = vld1q_f64(in), second = vld1q_f64(in + in_row);
    out[0] = vzip1q_f64(first, second), out[1] = vzip2q_f64(first, second);
}
#endif

typedef vec part_vec;
#define part_zero()       vec_zero()
#define part_fill(x)      vec_fill(x)
#define part_load(p)      vec_load(p)
#define part_store(p, v)  vec_store(p, v)
#define part_fma(a, b, c) vec_fma(a, b, c)

/* The instructions for this return the number if the other operand is NaN; vec_max returns b. */
static inline vec vec_max(vec a, vec b) {
    return vec_select(vec_greater(a, b), a, b);
}
static inline vec vec_min(vec a, vec b) {
    return vec_select(vec_greater(b, a), a, b);
}

static inline vec vec_load_first(const real *p, int64_t n) {
    real lanes[LANES] = {0};
    memcpy(lanes, p, (size_t)n * sizeof *p);
    return vec_load(lanes);
}
static inline void vec_store_first(real *p, int64_t n, vec v) {
    real lanes[LANES];
    vec_store(lanes, v);
    memcpy(p, lanes, (size_t)n * sizeof *p);
}

#define vec_prefetch(p)     __builtin_prefetch(p)
#define vec_prefetch_far(p) __builtin_prefetch(p, 0, 2)

typedef uint64x2_t vec_u64;
enum { U64_LANES = 2 };
#define vec_u64_product(a, b) vmull_u32(vmovn_u64(a), vmovn_u64(b))
#define vec_u64_upper(a)      vshrq_n_u64(a, 32)
static inline void vec_u64_store_pairs(uint64_t *p, vec_u64 a, vec_u64 b) {
    vst2q_u64(p, ((uint64x2x2_t){{a, b}}));
}

#endif
