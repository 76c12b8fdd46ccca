// SPDX-License-Identifier: Apache-2.0
// Sums of any number of arrays on every backend.
#include "selections.h"

namespace {

using namespace tartan_test;

class BackendAddN : public WithIndices {};
INSTANTIATE_TEST_SUITE_P(Each, BackendAddN, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

// Sums of more arrays than are read in one pass, of any strides and 16-bit dtypes, are rounded once.
TEST_P(BackendAddN, RoundsOnce) {
    for (const int32_t dtype : kDtypes)
        for (const int64_t count : {1, 2, 7, 8, 20})
            for (const std::vector<int64_t> &shape : kLineShapes) {
                if (shape.back() > 5000) continue;
                std::vector<Operand> all;
                std::vector<tartan_array> arrays;
                for (int64_t i = 0; i < count; i++)
                    all.emplace_back(context.get(),
                                     numbers(i == 0 ? dtype : like_dtype(dtype, random), shape, false));
                for (Operand &one : all) arrays.push_back(*one.array());
                Dense y = numbers(dtype, shape, true);
                Operand out = {context.get(), y};
                const tartan_status status = call(context.get(), "add_n", {arrays.data(), out.array()},
                                                  "count=" + std::to_string(count));
                if (is_refused(status)) continue;
                ASSERT_OK(status);
                const Dense got = out.got();
                ASSERT_TRUE(marks_intact(got));
                for (int64_t e = 0; e < y.elements(); e++) {
                    long double want = 0;
                    for (const Operand &one : all) want += one.dense.get(e);
                    expect_near(want, got.get(e), dtype,
                                4 * (double)count * epsilon(tartan_i_sum_dtype(dtype)) * (double)count,
                                "sum");
                }
                if (HasFailure()) return;
            }
}

TEST_P(BackendAddN, RefusesArraysThatDiffer) {
    if (!on_host()) return;
    Dense x(TARTAN_F32, {2, 300}), one(TARTAN_F32, {2}), y = x;
    tartan_array arrays[] = {x.array, one.array};
    EXPECT_FAILS(SHAPE, "tartan_add_n: array 2 of x has shape [2], expected [2, 300] (as the first)",
                 call(cpu(), "add_n", {arrays, &y.array}, "count=2"));
    Dense wide(TARTAN_F64, {2, 300});
    arrays[1] = wide.array;
    EXPECT_FAILS(
        DTYPE,
        "tartan_add_n: array 2 of x is of float64, expected float32, float16 or bfloat16 (the first is of "
        "float32)",
        call(cpu(), "add_n", {arrays, &y.array}, "count=2"));
}

} // namespace
