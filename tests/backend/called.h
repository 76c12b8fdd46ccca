// SPDX-License-Identifier: Apache-2.0
// Operations of the schema on operands of a backend under test, called by their names.
#ifndef TARTAN_TESTS_CALLED_H
#define TARTAN_TESTS_CALLED_H

#include "placed.h"

#include <cmath>

namespace tartan_test {

// A dense operand and its copy on the device.
struct Operand {
    Dense dense;
    Placed placed;

    Operand() = default;
    Operand(tartan_context *context, Dense of) : dense(std::move(of)), placed(context, dense) {}
    tartan_array *array() { return &placed.array; }
    // What the device has now.
    Dense got() const {
        Dense copy = dense;
        placed.fetch(copy);
        return copy;
    }
};

inline tartan_status call(tartan_context *context, const std::string &name, std::vector<void *> arguments,
                          const std::string &options = "") {
    int32_t op = -1;
    PASS(tartan_op_find(name.c_str(), &op));
    return tartan_op_run(context, op, arguments.data(), (int64_t)arguments.size(), options.c_str());
}

// A dtype with the same type of sums as `dtype`.
inline int32_t like_dtype(int32_t dtype, std::mt19937_64 &random) {
    return dtype == TARTAN_F64 ? TARTAN_F64 : pick<int32_t>(random, {TARTAN_F32, TARTAN_F16, TARTAN_BF16});
}

// The right number, rounded to the dtype, within the additional tolerance.
inline void expect_near(long double want, double got, int32_t dtype, double allowed,
                        const std::string &what) {
    if ((std::isinf(want) || std::isnan(want)) && (std::isnan(want) ? std::isnan(got) : want == got)) return;
    ASSERT_LE(std::fabs(want - (long double)got),
              epsilon(dtype) * std::fabs(want) + allowed + (dtype == TARTAN_F16 ? 0x1p-24 : 0))
        << what << ": " << got << ", not " << (double)want;
}

// A shape of a few thousand elements at most.
inline std::vector<int64_t> any_shape(std::mt19937_64 &random, size_t least) {
    std::vector<int64_t> shape;
    const size_t ndim = least + random() % 4;
    for (size_t d = 0; d < ndim; d++)
        shape.push_back(ndim > 3 ? (int64_t)below(random, 5) + (random() % 20 != 0)
                                 : pick<int64_t>(random, {1, 2, 7, 16, 24}));
    return shape;
}

} // namespace tartan_test

#endif
