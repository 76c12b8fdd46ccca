// SPDX-License-Identifier: Apache-2.0
// Calls of optimisers on lists of arrays.
#ifndef TARTAN_TESTS_BACKEND_OPTIMISERS_H
#define TARTAN_TESTS_BACKEND_OPTIMISERS_H

#include "../support/schema_placed.h"

#include <cmath>
#include <map>

namespace tartan_test {

// The operands of a call by name: lists of arrays.
using real = long double;
using Lists = std::map<std::string, std::vector<Dense>>;

// Runs the operation called `name` on the lists, on a backend.
inline tartan_status call(tartan_context *context, bool on_host, const std::string &name,
                          const std::string &options, Lists &lists) {
    int32_t op = -1;
    EXPECT_OK(tartan_op_find(name.c_str(), &op));
    const tartan_i_schema &schema = tartan_i_schemas[op];
    std::vector<std::vector<Placed>> placed((size_t)schema.narguments);
    std::vector<std::vector<tartan_array>> arrays((size_t)schema.narguments);
    std::vector<void *> given((size_t)schema.narguments);
    size_t count = 0;
    for (size_t i = 0; i < given.size(); i++) {
        const auto found = lists.find(schema.arguments[i].name);
        if (found == lists.end()) continue;
        if (schema.arguments[i].kind == TARTAN_OPERAND_ARRAYS) count = found->second.size();
        for (const Dense &one : found->second) {
            if (on_host)
                arrays[i].push_back(one.array);
            else
                arrays[i].push_back(placed[i].emplace_back(context, one).array);
        }
        given[i] = arrays[i].data();
    }
    const std::string text = "count=" + std::to_string(count) + " " + options;
    const tartan_status status =
        tartan_op_run(context, op, given.data(), (int64_t)given.size(), text.c_str());
    for (size_t i = 0; i < given.size(); i++)
        for (size_t j = 0; j < placed[i].size(); j++)
            if (schema.arguments[i].use != TARTAN_I_IN)
                placed[i][j].fetch(lists[schema.arguments[i].name][j]);
    return status;
}

// Shapes of parameters, some of them longer than what a thread takes at a time, and without elements.
inline const std::vector<std::vector<int64_t>> kShapes = {
    {5}, {}, {3, 4, 2}, {2, 1500}, {0}, {70, 33}, {4, 0, 3}, {1}, {6, 8, 8}, {9001}, {2, 3, 4, 5}};

inline std::vector<Dense> list(std::mt19937_64 &random, const std::vector<int32_t> &dtypes, bool written,
                               double low, double high, bool plain = false) {
    std::vector<Dense> all;
    for (size_t i = 0; i < kShapes.size(); i++) {
        const int32_t dtype = dtypes[i];
        const Style style =
            plain || random() % 2 ? kRows : (Style)below(random, written ? kRepeated : kStyles);
        all.emplace_back(dtype, kShapes[i], style);
        all.back().fill(random, low, high);
    }
    return all;
}

// One for each parameter; those of f64 have gradients and moments of f64.
inline std::vector<int32_t> dtypes_like(std::mt19937_64 &random, const std::vector<int32_t> &parameters) {
    std::vector<int32_t> all;
    for (const int32_t p : parameters)
        all.push_back(p == TARTAN_F64 ? p : pick<int32_t>(random, {TARTAN_F32, TARTAN_F16, TARTAN_BF16}));
    return all;
}

// A number for each slice, or none: 0 or others.
inline std::vector<Dense> slices(std::mt19937_64 &random, const std::vector<Dense> &parameters, bool zeros) {
    std::vector<Dense> all;
    for (const Dense &p : parameters) {
        const int64_t count = random() % 3 == 0 ? 0 : p.array.ndim == 0 ? 1 : p.array.shape[0];
        all.emplace_back(tartan_i_sum_dtype(p.array.dtype), std::vector<int64_t>{count}, kRows);
        for (int64_t i = 0; i < count; i++)
            all.back().set(i, zeros && random() % 2 ? 0 : pick(random, {1.0, 0.5, 2.0, -3.0}));
    }
    return all;
}

// Elements are the wanted ones up to rounding, with `slack` times as much for sums; what lies between them is untouched.
inline void expect_list(const std::vector<Dense> &before, const std::vector<Dense> &after,
                        const std::vector<std::vector<real>> &want, const std::vector<real> &slack,
                        const char *what) {
    for (size_t i = 0; i < after.size(); i++) {
        const int32_t dtype = after[i].array.dtype;
        ASSERT_TRUE(marks_intact(after[i])) << what << " of parameter " << i;
        for (int64_t e = 0; e < after[i].elements(); e++) {
            const real w = want[i][(size_t)e];
            const double got = after[i].get(e);
            ASSERT_LE(std::fabs((double)(w - got)),
                      epsilon(dtype) * std::fabs((double)w) +
                          64 * epsilon(tartan_i_sum_dtype(dtype)) * (double)slack[i] +
                          (dtype == TARTAN_F16 ? 0x1p-24 : 0))
                << what << " of parameter " << i << ", element " << e << ": " << got << ", was "
                << before[i].get(e) << ", expected " << (double)w;
        }
    }
}

} // namespace tartan_test

#endif
