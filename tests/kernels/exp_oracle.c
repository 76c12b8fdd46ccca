/* SPDX-License-Identifier: Apache-2.0 */
#include "exp_oracle.h"

#include <math.h>
#include <string.h>

enum { LANES = 8 };

static double from_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static uint64_t to_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* 2^k exp(r) with Taylor's series of exp(r), |r| <= ln(2) / 2, whose first term left out is below 2^-57. */
static inline double wide_exp(double x) {
    static const double terms[] = {
        1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040,
        1. / 720,        1. / 120,       1. / 24,       1. / 6,       1. / 2,      1,          1};
    const double round = 0x1.8p52, moved = x * 0x1.71547652b82fep+0 + round, k = moved - round;
    /* The first part of ln 2 has so few bits that k times it is exact. */
    const double r = (x - k * 0x1.62e42fep-1) - k * 0x1.f473de6af278fp-30;
    double sum = terms[0];
    for (int i = 1; i < (int)(sizeof terms / sizeof terms[0]); i++) sum = sum * r + terms[i];
    return sum * from_bits((to_bits(moved) + 1023) << 52);
}

double tartan_test_exp_units(int64_t n, const float *x, const float *got) {
    const double top = 0x1p128, least = 0x1p-126;
    double worst[LANES] = {0};
    int32_t faults[LANES] = {0};
    for (int64_t i = 0; i < n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            double in = x[i + j], out = got[i + j];
            faults[j] |= (in != in) ^ (out != out);
            out = in != in ? 0 : out;   /* of NaN only the fault counts */
            in = in > -200 ? in : -200; /* rounds to 0, and overflows */
            in = in < 200 ? in : 200;
            out = out < top ? out : top;
            double truth = wide_exp(in);
            truth = truth < top ? truth : top;
            /* The power of two that is not above `truth`; the distance of neighbours there is 2^-23 of it. */
            double scale = from_bits(to_bits(truth) & (uint64_t)0x7ff << 52);
            scale = scale > least ? scale : least;
            const double per_unit = from_bits(((uint64_t)2046 << 52) - to_bits(scale)) * 0x1p23;
            const double units = fabs(out - truth) * per_unit;
            worst[j] = units > worst[j] ? units : worst[j];
        }
    double most = 0;
    for (int j = 0; j < LANES; j++) {
        if (faults[j]) return (double)INFINITY;
        most = worst[j] > most ? worst[j] : most;
    }
    return most;
}
