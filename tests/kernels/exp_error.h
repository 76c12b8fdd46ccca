// SPDX-License-Identifier: Apache-2.0
// The error of row_exp_sum's exp in units in the last place of the exact result.
#ifndef TARTAN_TESTS_KERNELS_EXP_ERROR_H
#define TARTAN_TESTS_KERNELS_EXP_ERROR_H

#include "tables.h"

#include <limits>

namespace tartan_test {

// exp with more digits than T: in double for float, in long double for double.
inline double wide_exp(float x) {
    return std::exp((double)x);
}
inline long double wide_exp(double x) {
    return std::exp((long double)x);
}

// Whether wide_exp really has more digits than T: valgrind computes long double with those of double.
template <typename T> bool has_wide() {
    volatile long double one = 1, step = std::ldexp(1.0L, -60);
    return sizeof(T) == sizeof(float) || one + step != one;
}

// |got - exact| over the distance of neighbours in T at `exact`; an infinite `got` counts as the power of two above
// the largest T. Infinity where one of the two is NaN and the other not, or one infinite and the other not near.
template <typename T, typename Wide> double units(T got, Wide exact) {
    using Limits = std::numeric_limits<T>;
    if (std::isnan(got) || std::isnan(exact)) return std::isnan(got) == std::isnan(exact) ? 0 : INFINITY;
    const Wide top = std::ldexp((Wide)1, Limits::max_exponent);
    const Wide value = std::isinf(got) ? top : (Wide)got, truth = exact < top ? exact : top;
    int exponent = Limits::min_exponent; // of 0 too
    if (truth != 0) std::frexp(truth, &exponent);
    const int place = std::max(exponent, Limits::min_exponent) - Limits::digits;
    return (double)std::fabs(std::ldexp(value - truth, -place));
}

// exp of `x`, after a check that all sets of kernels give the same bits (NaNs are alike).
template <typename T>
std::vector<T> exp_by_all(const std::vector<Tables<T>> &tables, const std::vector<T> &x) {
    std::vector<T> want(x.size()), got(x.size());
    tables[0].c.row_exp_sum((int64_t)x.size(), 1, x.data(), 0, nullptr, want.data());
    for (const Tables<T> &t : tables) {
        if (t.best.row_exp_sum == tables[0].c.row_exp_sum) continue;
        t.best.row_exp_sum((int64_t)x.size(), 1, x.data(), 0, nullptr, got.data());
        if (std::memcmp(want.data(), got.data(), x.size() * sizeof(T)) == 0) continue;
        for (size_t i = 0; i < x.size(); i++)
            if (std::memcmp(&want[i], &got[i], sizeof(T)) != 0 &&
                !(std::isnan(want[i]) && std::isnan(got[i]))) {
                ADD_FAILURE() << "exp(" << x[i] << ") is " << got[i] << " and " << want[i];
                return want;
            }
    }
    return want;
}

// The largest error over `x`.
template <typename T> double worst_exp(const std::vector<Tables<T>> &tables, const std::vector<T> &x) {
    const std::vector<T> want = exp_by_all(tables, x);
    double worst = 0;
    for (size_t i = 0; i < x.size(); i++) worst = std::max(worst, units(want[i], wide_exp(x[i])));
    return worst;
}

// One table for each form of exp that this CPU has.
template <typename T> std::vector<Tables<T>> all_tables() {
    std::vector<Tables<T>> all;
    for (tartan_i_cpu_features set : feature_sets()) {
        const Tables<T> tables(set);
        const auto same = [&](const Tables<T> &t) { return t.best.row_exp_sum == tables.best.row_exp_sum; };
        if (std::none_of(all.begin(), all.end(), same)) all.push_back(tables);
    }
    return all;
}

inline float f32_of_bits(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

} // namespace tartan_test

#endif
