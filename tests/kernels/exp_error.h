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
    int exponent;
    std::frexp(truth, &exponent);
    const int place = std::max(exponent, Limits::min_exponent) - Limits::digits;
    return (double)std::fabs(std::ldexp(value - truth, -place));
}

// The largest error over `x`, after a check that all sets of kernels give the same bits (NaNs are alike).
template <typename T> double worst_exp(const std::vector<Tables<T>> &tables, const std::vector<T> &x) {
    std::vector<T> want(x.size()), got(x.size());
    tables[0].c.row_exp_sum((int64_t)x.size(), 1, x.data(), 0, nullptr, want.data());
    for (const Tables<T> &t : tables) {
        t.best.row_exp_sum((int64_t)x.size(), 1, x.data(), 0, nullptr, got.data());
        for (size_t i = 0; i < x.size(); i++)
            if (std::memcmp(&want[i], &got[i], sizeof(T)) != 0 &&
                !(std::isnan(want[i]) && std::isnan(got[i])))
                return ADD_FAILURE() << "exp(" << x[i] << ") is " << got[i] << " and " << want[i], INFINITY;
    }
    double worst = 0;
    for (size_t i = 0; i < x.size(); i++) worst = std::max(worst, units(want[i], wide_exp(x[i])));
    return worst;
}

template <typename T> std::vector<Tables<T>> all_tables() {
    std::vector<Tables<T>> all;
    for (tartan_i_cpu_features set : feature_sets()) all.emplace_back(set);
    return all;
}

// The largest error over every `step`-th number of 32 bits from `begin` on, before `end`.
inline double worst_exp_f32(uint64_t begin, uint64_t end, uint64_t step) {
    const std::vector<Tables<float>> tables = all_tables<float>();
    std::vector<float> x;
    double worst = 0;
    for (uint64_t bits = begin; bits < end; bits += step) {
        const uint32_t low = (uint32_t)bits;
        float value;
        std::memcpy(&value, &low, 4);
        x.push_back(value);
        if (x.size() < 8192 && bits + step < end) continue;
        worst = std::max(worst, worst_exp(tables, x));
        x.clear();
    }
    return worst;
}

} // namespace tartan_test

#endif
