// SPDX-License-Identifier: Apache-2.0
// The instruction sets that tests iterate over: all sets of features of this CPU that give different kernels.
#ifndef TARTAN_TESTS_FEATURE_SETS_H
#define TARTAN_TESTS_FEATURE_SETS_H

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

extern "C" {
#include "core/cpu.h"
#include "kernels/kernels.h"
}

namespace tartan_test {

inline std::vector<tartan_i_cpu_features> feature_sets() {
    std::vector<tartan_i_cpu_features> sets;
    std::vector<std::vector<tartan_i_cpu_features>> seen;
    const tartan_i_cpu_features all = tartan_i_cpu_detect() & tartan_i_kernels_known();
    for (tartan_i_cpu_features set = 0; set <= all; set++) {
        if (set & ~all) continue;
        std::vector<tartan_i_cpu_features> kernels;
        for (int32_t factor : {TARTAN_F32, TARTAN_F64, TARTAN_F16, TARTAN_BF16}) {
            tartan_i_kernels k;
            tartan_i_kernels_fill(set, factor, &k);
            kernels.push_back(k.uses);
            kernels.push_back(k.product.uses);
        }
        if (std::find(seen.begin(), seen.end(), kernels) != seen.end()) continue;
        seen.push_back(kernels);
        sets.push_back(set);
    }
    return sets;
}

// Whether products of a dtype are made of reals, each sum one chain of fused multiply-adds.
inline bool has_chains(int32_t dtype) {
    tartan_i_kernels k;
    tartan_i_kernels_fill(tartan_i_cpu_in_use(), dtype, &k);
    return k.product.factor == k.dtype;
}

inline std::string features_name(tartan_i_cpu_features set) {
    char text[64];
    tartan_i_cpu_list(set, text, sizeof text);
    std::string name = text;
    std::replace(name.begin(), name.end(), ',', '_');
    return name;
}

// Uses a set until the end of the scope.
struct WithFeatures {
    explicit WithFeatures(tartan_i_cpu_features set) : before(tartan_i_cpu_in_use()) {
        tartan_i_cpu_use(set);
    }
    ~WithFeatures() { tartan_i_cpu_use(before); }
    tartan_i_cpu_features before;
};

} // namespace tartan_test

#endif
