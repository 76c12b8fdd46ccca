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

// Flat arrays that begin anywhere, up to the ends of their memory.
TEST_P(BackendAddN, ArraysAtAnyAddress) {
    constexpr int64_t kMost = 8; // elements before the first
    for (const int32_t dtype : kDtypes)
        for (const int64_t n : {1, 7, 16, 31, 40, 1000, 70003}) {
            std::vector<Operand> all;
            std::vector<tartan_array> arrays;
            std::vector<int64_t> skipped;
            for (int64_t i = 0; i < 3; i++) {
                skipped.push_back((int64_t)below(random, kMost));
                all.emplace_back(context.get(), numbers(dtype, {n + skipped.back()}, false));
            }
            for (size_t i = 0; i < all.size(); i++) {
                tartan_array a = *all[i].array();
                a.data = (char *)a.data + skipped[i] * a.strides[0] * (int64_t)tartan_dtype_bytes(dtype);
                a.shape[0] = n;
                arrays.push_back(a);
            }
            Dense y = numbers(dtype, {n}, true), z = y;
            Operand sum = {context.get(), y}, pair = {context.get(), z};
            const tartan_status status =
                call(context.get(), "add_n", {arrays.data(), sum.array()}, "count=3");
            if (is_refused(status)) continue;
            ASSERT_OK(status);
            ASSERT_OK(call(context.get(), "add", {&arrays[0], &arrays[1], pair.array()}));
            const Dense got = sum.got(), got_pair = pair.got();
            ASSERT_TRUE(marks_intact(got) && marks_intact(got_pair));
            for (int64_t e = 0; e < n; e++) {
                const auto of = [&](size_t i) { return (long double)all[i].dense.get(e + skipped[i]); };
                const double off = 16 * epsilon(tartan_i_sum_dtype(dtype));
                expect_near(of(0) + of(1) + of(2), got.get(e), dtype, off, "sum of three");
                expect_near(of(0) + of(1), got_pair.get(e), dtype, off, "sum of two");
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
