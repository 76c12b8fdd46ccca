// SPDX-License-Identifier: Apache-2.0
// The sets of instruction sets that tests go through: all that this CPU has and that give different kernels.
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
    std::vector<std::pair<tartan_i_cpu_features, tartan_i_cpu_features>> seen;
    const tartan_i_cpu_features all = tartan_i_cpu_detect() & tartan_i_kernels_known();
    for (tartan_i_cpu_features set = 0; set <= all; set++) {
        if (set & ~all) continue;
        tartan_i_kernels narrow, wide;
        tartan_i_kernels_fill(set, TARTAN_F32, &narrow);
        tartan_i_kernels_fill(set, TARTAN_F64, &wide);
        const std::pair<tartan_i_cpu_features, tartan_i_cpu_features> kernels(narrow.uses, wide.uses);
        if (std::find(seen.begin(), seen.end(), kernels) != seen.end()) continue;
        seen.push_back(kernels);
        sets.push_back(set);
    }
    return sets;
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
