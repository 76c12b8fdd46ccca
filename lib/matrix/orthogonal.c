// SPDX-License-Identifier: Apache-2.0
// Householder QR in f64.
#include "matrix/orthogonal.h"

#include <math.h>

// Eight running sums, so that the compiler can vectorise the loop; they are added in a fixed order.
static double dot(const double *restrict x, const double *restrict y, int64_t n) {
    double sums[8] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int64_t k = 0; k < 8; k++) sums[k] += x[i + k] * y[i + k];
    }
    for (; i < n; i++) rest += x[i] * y[i];
    return (((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]))) + rest;
}

static void subtract(double *restrict y, double factor, const double *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] -= factor * x[i];
}

// Finds H = I - tau v v', v[0] = 1, with x = H (beta, 0, ...). x[0] becomes beta, the rest of x the rest of v.
static double reflect(double *x, int64_t n) {
    double norm = sqrt(dot(x, x, n));
    if (norm == 0) return 0;
    double first = x[0], beta = first >= 0 ? -norm : norm;
    for (int64_t i = 1; i < n; i++) x[i] /= first - beta;
    x[0] = beta;
    return (beta - first) / beta;
}

// y = H y, where x holds v from its second element on.
static void apply(const double *x, double tau, double *y, int64_t n) {
    double factor = tau * (y[0] + dot(x + 1, y + 1, n - 1));
    y[0] -= factor;
    subtract(y + 1, factor, x + 1, n - 1);
}

void tartan_i_orthogonalise(double *vectors, int64_t length, int64_t count, double *work) {
    double *tau = work, *sign = work + count;
    for (int64_t k = 0; k < count; k++) {
        double *x = vectors + k * length + k;
        tau[k] = reflect(x, length - k);
        sign[k] = x[0] < 0 ? -1 : 1;
        for (int64_t j = k + 1; j < count; j++) apply(x, tau[k], vectors + j * length + k, length - k);
    }
    // Applies Q = H0 H1 ... to the unit vectors, from the last reflection back; each reads only the elements below
    // it.
    for (int64_t k = count - 1; k >= 0; k--) {
        double *column = vectors + k * length, *x = column + k;
        for (int64_t j = k + 1; j < count; j++) apply(x, tau[k], vectors + j * length + k, length - k);
        for (int64_t i = 0; i < k; i++) column[i] = 0;
        for (int64_t i = 1; i < length - k; i++) x[i] *= -tau[k];
        x[0] = 1 - tau[k];
    }
    for (int64_t k = 0; k < count; k++) {
        for (int64_t i = 0; i < length; i++) vectors[k * length + i] *= sign[k];
    }
}
