// SPDX-License-Identifier: Apache-2.0
// Arithmetic of matrices on every backend: the bits of the CPU, but for powers. What the CPU
// does is tested against plain loops in tests/matrix.
#include "matrices.h"

#include <cstring>
#include <functional>

namespace {

using namespace tartan_test;

class Arithmetic : public OnMatrices {
  protected:
    using Make = std::function<tartan_status(tartan_context *, const tartan_matrix *, const tartan_matrix *,
                                             tartan_matrix **)>;
    // The result has the same bits here and there, and there again.
    void compare(const Matrix &a, const Matrix &b, const Make &make) {
        const Matrix a_there = placed(context.get(), a), b_there = placed(context.get(), b);
        tartan_matrix *raw = nullptr;
        ASSERT_OK(make(cpu(), a.get(), b.get(), &raw));
        const Matrix want(raw);
        raw = nullptr;
        ASSERT_OK(make(context.get(), a_there.get(), b_there.get(), &raw));
        const Matrix got(raw);
        ASSERT_STREQ(tartan_matrix_device(a_there.get()), tartan_matrix_device(raw));
        ASSERT_EQ(want->dtype, got->dtype);
        ASSERT_EQ(want->block_order, got->block_order);
        ASSERT_EQ(1, tartan_layout_equal(want->layout, got->layout));
        ASSERT_EQ(bits_of(want.get()), bits_of(got.get()));
        tartan_matrix *again = nullptr;
        ASSERT_OK(make(context.get(), a_there.get(), b_there.get(), &again));
        ASSERT_EQ(bits_of(got.get()), bits_of(again));
        tartan_matrix_free(again);
    }
};
INSTANTIATE_TEST_SUITE_P(Each, Arithmetic, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

TEST_P(Arithmetic, AddsOverTheUnion) {
    for (int n = 0; n < rounds(180); n++) {
        SCOPED_TRACE(::testing::Message() << "case " << n);
        const tartan_shape s = shape_of(n);
        const Matrix a = some_matrix(n / 10, s), b = some_matrix(n / 30, s);
        const int32_t dtype = n % 3 ? 0 : kAll[random() % 6];
        const double alpha = n % 4 == 1 ? 1 : -0.75, beta = n % 5 == 1 ? 1 : 3.1;
        compare(a, b,
                [&](tartan_context *c, const tartan_matrix *x, const tartan_matrix *y, tartan_matrix **out) {
                    return tartan_matrix_add(c, alpha, x, beta, y, dtype, out);
                });
        if (HasFailure()) return;
    }
}

TEST_P(Arithmetic, OfOneLayout) {
    for (int n = 0; n < rounds(120); n++) {
        SCOPED_TRACE(::testing::Message() << "case " << n);
        const tartan_shape s = shape_of(n);
        const Layout layout = some_layout(s, 0.7);
        const Matrix a = random_matrix(layout, kAll[n / 10 % 6], n % 2, random),
                     b = random_matrix(layout, kAll[random() % 6], random() % 4 ? n % 2 : 1 - n % 2, random);
        compare(a, b,
                [&](tartan_context *c, const tartan_matrix *x, const tartan_matrix *y, tartan_matrix **out) {
                    PASS(tartan_matrix_add(c, 0.3, x, 1 / 7.0, y, 0, out));
                    return tartan_axpby(c, -1.1, x, 0.9, *out, *out); // in place
                });
        if (HasFailure()) return;
    }
}

TEST_P(Arithmetic, WritesIntoALargerLayout) {
    for (int n = 0; n < rounds(60); n++) {
        const tartan_shape s = shape_of(n);
        const Matrix a = some_matrix(n / 10, s), b = some_matrix((int)(random() % 6), s);
        const Layout all = some_layout(s, 1);
        const Matrix c = random_matrix(all, kAll[random() % 6], n % 2, random);
        const Matrix c_there = placed(context.get(), c), a_there = placed(context.get(), a),
                     b_there = placed(context.get(), b);
        ASSERT_OK(tartan_axpby(cpu(), 0.5, a.get(), 1, b.get(), c.get()));
        ASSERT_OK(tartan_axpby(context.get(), 0.5, a_there.get(), 1, b_there.get(), c_there.get()));
        ASSERT_EQ(bits_of(c.get()), bits_of(c_there.get())) << "case " << n;
    }
}

TEST_P(Arithmetic, Combines) {
    for (int n = 0; n < rounds(90); n++) {
        SCOPED_TRACE(::testing::Message() << "case " << n);
        const tartan_shape s = shape_of(n);
        const Matrix a = some_matrix(n / 10, s), b = some_matrix(n / 30, s);
        compare(a, b,
                [&](tartan_context *c, const tartan_matrix *x, const tartan_matrix *y, tartan_matrix **out) {
                    return tartan_matrix_combine(c, 1 + n % 3, x, y, 0, out);
                });
        if (HasFailure()) return;
    }
}

TEST_P(Arithmetic, AppliesFunctions) {
    const std::pair<int32_t, double> functions[] = {{TARTAN_APPLY_MULTIPLY, -0.3}, {TARTAN_APPLY_DIVIDE, 7},
                                                    {TARTAN_APPLY_POWER, 2},       {TARTAN_APPLY_ABS, 0},
                                                    {TARTAN_APPLY_SIGN, 0},        {TARTAN_APPLY_ROUND, 0}};
    for (int n = 0; n < rounds(180); n++) {
        SCOPED_TRACE(::testing::Message() << "case " << n);
        const Matrix a = some_matrix(n / 10, shape_of(n));
        const auto &f = functions[n % 6];
        const int32_t dtype = n % 5 ? 0 : kAll[random() % 6];
        compare(a, a,
                [&](tartan_context *c, const tartan_matrix *x, const tartan_matrix *, tartan_matrix **out) {
                    return tartan_matrix_apply(c, f.first, f.second, x, dtype, out);
                });
        if (HasFailure()) return;
    }
}

// Numbers that have a power.
TEST_P(Arithmetic, Powers) {
    const Layout layout = random_layout({40, 40, 8, 8, 1}, 0.5, 1);
    for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_BF16}) {
        const Matrix a = random_matrix(layout, dtype, 0, random, 0, 4), there = placed(context.get(), a);
        for (double p : {0.5, 1.7, 3.0}) {
            tartan_matrix *raw = nullptr;
            ASSERT_OK(tartan_matrix_apply(cpu(), TARTAN_APPLY_POWER, p, a.get(), 0, &raw));
            const Matrix want(raw);
            ASSERT_OK(tartan_matrix_apply(context.get(), TARTAN_APPLY_POWER, p, there.get(), 0, &raw));
            const Matrix far(raw), got = fetched(context.get(), far);
            if (p == 0.5) {
                ASSERT_EQ(bits_of(want.get()), bits_of(got.get()));
            }
            const double unit = dtype == TARTAN_F64 ? 0x1p-52 : dtype == TARTAN_F32 ? 0x1p-23 : 0x1p-7;
            for (int64_t i = 0; i < layout->blocks * 64; i++) {
                const double x = tartan_i_load(want->values, dtype, i);
                ASSERT_NEAR(x, tartan_i_load(got->values, dtype, i), 2 * unit * x);
            }
        }
    }
}

TEST_P(Arithmetic, OfSpecialNumbers) {
    const double numbers[] = {0.0,      -0.0,  NAN, INFINITY, -INFINITY, 1e-310,
                              0x1p-149, 65520, 2.5, -3.5,     1e300,     448};
    const Layout layout = from_mask({1, 12, 1, 12, 1}, {1});
    std::vector<double> room(std::begin(numbers), std::end(numbers));
    const tartan_array values = array_of(room.data(), TARTAN_F64, {1, 1, 12});
    tartan_matrix *raw = nullptr;
    ASSERT_OK(tartan_matrix_wrap(layout.get(), &values, nullptr, nullptr, &raw));
    const Matrix here(raw), there = placed(context.get(), here);
    const std::function<tartan_status(tartan_context *, const tartan_matrix *, tartan_matrix **)> calls[] = {
        [](auto *c, auto *x, auto **out) { return tartan_matrix_add(c, 1, x, 0, x, 0, out); },
        [](auto *c, auto *x, auto **out) { return tartan_matrix_combine(c, 2, x, x, 0, out); },
        [](auto *c, auto *x, auto **out) { return tartan_matrix_combine(c, 3, x, x, 0, out); },
        [](auto *c, auto *x, auto **out) { return tartan_matrix_apply(c, TARTAN_APPLY_SIGN, 0, x, 0, out); },
        [](auto *c, auto *x, auto **out) { return tartan_matrix_apply(c, TARTAN_APPLY_ABS, 0, x, 0, out); },
        [](auto *c, auto *x, auto **out) { return tartan_matrix_apply(c, TARTAN_APPLY_ROUND, 0, x, 0, out); },
        [](auto *c, auto *x, auto **out) {
            return tartan_matrix_apply(c, TARTAN_APPLY_POWER, 0.5, x, 0, out);
        },
        [](auto *c, auto *x, auto **out) {
            return tartan_matrix_apply(c, TARTAN_APPLY_DIVIDE, 3, x, 0, out);
        },
        [](auto *c, auto *x, auto **out) {
            return tartan_matrix_apply(c, TARTAN_APPLY_MULTIPLY, 1, x, TARTAN_F16, out);
        }};
    for (size_t f = 0; f < sizeof calls / sizeof calls[0]; f++) {
        ASSERT_OK(calls[f](cpu(), here.get(), &raw));
        const Matrix want(raw);
        ASSERT_OK(calls[f](context.get(), there.get(), &raw));
        const Matrix far(raw), got = fetched(context.get(), far);
        for (int64_t i = 0; i < 12; i++) {
            const double x = tartan_i_load(want->values, want->dtype, i),
                         y = tartan_i_load(got->values, got->dtype, i);
            EXPECT_TRUE((std::isnan(x) && std::isnan(y)) || (x == y && std::signbit(x) == std::signbit(y)))
                << "call " << f << ", number " << i << ": " << x << " and " << y;
        }
    }
}

// R tells NA from NaN by the low word: a block that one operand alone stores keeps its bits.
TEST_P(Arithmetic, MovesBits) {
    const tartan_shape s = {4, 6, 2, 2, 1};
    const Layout left = from_mask(s, {1, 0, 0, 1, 0, 0}), right = from_mask(s, {0, 1, 0, 0, 0, 1});
    for (int32_t dtype : kAll) {
        const int64_t bytes = tartan_dtype_bytes(dtype);
        std::vector<char> x((size_t)(8 * bytes)), y = x;
        for (size_t i = 0; i < x.size(); i++) x[i] = (char)random(), y[i] = (char)random();
        const tartan_array x_values = array_of(x.data(), dtype, {2, 2, 2}),
                           y_values = array_of(y.data(), dtype, {2, 2, 2});
        tartan_matrix *raw = nullptr;
        ASSERT_OK(tartan_matrix_wrap(left.get(), &x_values, nullptr, nullptr, &raw));
        const Matrix a(raw);
        ASSERT_OK(tartan_matrix_wrap(right.get(), &y_values, nullptr, nullptr, &raw));
        const Matrix b(raw);
        compare(a, b,
                [&](tartan_context *c, const tartan_matrix *u, const tartan_matrix *v, tartan_matrix **out) {
                    return tartan_matrix_add(c, 1, u, 1, v, 0, out);
                });
        ASSERT_OK(tartan_matrix_add(cpu(), 1, a.get(), 1, b.get(), 0, &raw));
        const Matrix sum(raw);
        const auto *values = (const char *)sum->values;
        for (size_t id = 0, block = (size_t)(4 * bytes); id < 4; id++)
            ASSERT_EQ(0,
                      std::memcmp(values + id * block, (id % 2 == 0 ? x : y).data() + id / 2 * block, block))
                << tartan_dtype_name(dtype) << ", block " << id;
    }
}

TEST_P(Arithmetic, ScalesByFactorsHereAndThere) {
    for (int n = 0; n < rounds(120); n++) {
        SCOPED_TRACE(::testing::Message() << "case " << n);
        const tartan_shape s = shape_of(n);
        const Matrix a = some_matrix(n / 10, s);
        const int32_t dtype = n % 2 ? TARTAN_F32 : TARTAN_F64;
        const bool by_head = n % 3 == 0;
        const auto shape = [&](int64_t size) {
            return by_head ? std::vector<int64_t>{s.heads, size} : std::vector<int64_t>{size};
        };
        const Style style = pick(random, {kRows, kGaps, kReversed, kRepeated});
        Dense rows(dtype, shape(s.rows), style), cols(dtype, shape(s.cols), style);
        rows.fill(random), cols.fill(random);
        const Placed rows_there(context.get(), rows), cols_there(context.get(), cols);
        for (const bool there : {false, true})
            compare(
                a, a,
                [&](tartan_context *c, const tartan_matrix *x, const tartan_matrix *, tartan_matrix **out) {
                    const bool far = there && c == context.get();
                    return tartan_matrix_scale(c,
                                               n % 5 == 1 ? nullptr
                                               : far      ? &rows_there.array
                                                          : &rows.array,
                                               n % 5 == 2 ? nullptr
                                               : far      ? &cols_there.array
                                                          : &cols.array,
                                               x, 0, out);
                });
        if (HasFailure()) return;
    }
}

TEST_P(Arithmetic, Diagonals) {
    for (int n = 0; n < rounds(90); n++) {
        SCOPED_TRACE(::testing::Message() << "case " << n);
        const tartan_shape s = shape_of(n);
        const Matrix a = some_matrix(n / 10, s);
        const int64_t offset = n % 3 - 1,
                      length = std::max<int64_t>(0, std::min(s.rows - std::max<int64_t>(0, -offset),
                                                             s.cols - std::max<int64_t>(0, offset)));
        if (offset < -s.rows || offset > s.cols) continue;
        const std::vector<double> d = random_values((size_t)(s.heads * length), random());
        const int64_t count =
            n % 2 && length != 1 ? std::min<int64_t>(1, (int64_t)d.size()) : (int64_t)d.size();
        if (count == 0) continue;
        compare(a, a,
                [&](tartan_context *c, const tartan_matrix *x, const tartan_matrix *, tartan_matrix **out) {
                    PASS(tartan_matrix_add_diagonal(c, 0.7, x, offset, d.data(), count,
                                                    n % 4 ? 0 : TARTAN_F32, out));
                    return tartan_matrix_set_diagonal(c, *out, offset, d.data(), (int64_t)d.size());
                });
        const Matrix there = placed(context.get(), a);
        std::vector<double> want(d.size()), got(d.size()), traces((size_t)s.heads), traces_there = traces;
        ASSERT_OK(tartan_matrix_get_diagonal(cpu(), a.get(), offset, want.data(), (int64_t)want.size()));
        ASSERT_OK(
            tartan_matrix_get_diagonal(context.get(), there.get(), offset, got.data(), (int64_t)got.size()));
        ASSERT_EQ(want, got);
        ASSERT_OK(tartan_matrix_trace(cpu(), a.get(), 0, traces.data(), s.heads));
        ASSERT_OK(tartan_matrix_trace(context.get(), there.get(), 0, traces_there.data(), s.heads));
        ASSERT_EQ(traces, traces_there);
        if (HasFailure()) return;
    }
}

TEST_P(Arithmetic, DropsZeros) {
    for (int n = 0; n < rounds(40); n++) {
        const Matrix a = some_matrix(n, shape_of(n));
        std::vector<double> sizes((size_t)a->layout->blocks);
        ASSERT_OK(
            tartan_matrix_block_norms(cpu(), a.get(), TARTAN_NORM_MAX, sizes.data(), a->layout->blocks));
        std::sort(sizes.begin(), sizes.end());
        const double tolerance = n % 4 == 0 || sizes.empty() ? 0 : sizes[sizes.size() / 2];
        compare(a, a,
                [&](tartan_context *c, const tartan_matrix *x, const tartan_matrix *, tartan_matrix **out) {
                    return tartan_matrix_drop_zeros(c, x, tolerance, out);
                });
        if (HasFailure()) return;
    }
}

TEST_P(Arithmetic, OfAnEmptyLayout) {
    const Matrix none = random_matrix(from_mask({9, 7, 4, 4, 1}, std::vector<uint8_t>(6, 0)), TARTAN_F32, 0,
                                      random),
                 all = random_matrix(from_mask({9, 7, 4, 4, 1}, std::vector<uint8_t>(6, 1)), TARTAN_F32, 0,
                                     random);
    compare(none, all,
            [](tartan_context *c, const tartan_matrix *x, const tartan_matrix *y, tartan_matrix **out) {
                return tartan_matrix_add(c, 2, x, 3, y, 0, out);
            });
    compare(none, all,
            [](tartan_context *c, const tartan_matrix *x, const tartan_matrix *y, tartan_matrix **out) {
                return tartan_matrix_combine(c, TARTAN_COMBINE_MULTIPLY, x, y, 0, out);
            });
    const double one = 1;
    compare(none, none,
            [&](tartan_context *c, const tartan_matrix *x, const tartan_matrix *, tartan_matrix **out) {
                return tartan_matrix_add_diagonal(c, 2, x, 0, &one, 1, 0, out);
            });
    const Matrix there = placed(context.get(), none), all_there = placed(context.get(), all);
    double numbers[9] = {5, 5, 5, 5, 5, 5, 5, 5, 5}, value = 5;
    for (int32_t kind : {TARTAN_REDUCE_SUM, TARTAN_REDUCE_MINIMUM, TARTAN_REDUCE_NORM}) {
        ASSERT_OK(tartan_matrix_reduce(context.get(), there.get(), kind, TARTAN_EACH_ROW, numbers, 9));
        for (double x : numbers) EXPECT_EQ(0, x);
    }
    ASSERT_OK(
        tartan_matrix_reduce(context.get(), there.get(), TARTAN_REDUCE_SUM, TARTAN_EACH_BLOCK, nullptr, 0));
    ASSERT_OK(tartan_matrix_get_diagonal(context.get(), there.get(), 0, numbers, 7));
    for (int i = 0; i < 7; i++) EXPECT_EQ(0, numbers[i]);
    ASSERT_OK(tartan_matrix_count_different(context.get(), there.get(), there.get(), 0, 0, 0, &value));
    EXPECT_EQ(0, value);
    ASSERT_OK(tartan_matrix_count_different(context.get(), there.get(), all_there.get(), 0, 0, 0, &value));
    EXPECT_EQ(63, value);
}

TEST_P(Arithmetic, OfOtherPlacesIsRefused) {
    if (on_host()) return;
    const Layout layout = random_layout({8, 8, 4, 4, 1}, 1, 1);
    const Matrix here = random_matrix(layout, TARTAN_F32, 0, random), there = placed(context.get(), here);
    tartan_context *c = context.get();
    const tartan_matrix *h = here.get(), *t = there.get();
    tartan_matrix *out = nullptr;
    double numbers[8];
    Dense factors(TARTAN_F64, {8});
    const Placed factors_there(c, factors);
    EXPECT_FAILS(UNSUPPORTED, "a is on device 1:0", tartan_matrix_add(c, 1, h, 1, t, 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "b is on device 1:0", tartan_matrix_add(c, 1, t, 1, h, 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "b is on device 2:", tartan_matrix_add(cpu(), 1, h, 1, t, 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "c is on device 1:0", tartan_axpby(c, 1, t, 1, t, here.get()));
    EXPECT_FAILS(UNSUPPORTED, "b is on device 1:0", tartan_matrix_combine(c, 1, t, h, 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 1:0", tartan_matrix_apply(c, 4, 0, h, 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 1:0",
                 tartan_matrix_scale(c, nullptr, nullptr, h, 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "row_factors is on device 2:",
                 tartan_matrix_scale(cpu(), &factors_there.array, nullptr, h, 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 1:0",
                 tartan_matrix_add_diagonal(c, 1, h, 0, numbers, 8, 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:", tartan_matrix_get_diagonal(cpu(), t, 0, numbers, 8));
    EXPECT_FAILS(UNSUPPORTED,
                 "matrix is on device 2:", tartan_matrix_set_diagonal(cpu(), there.get(), 0, numbers, 8));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:", tartan_matrix_trace(cpu(), t, 0, numbers, 1));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 1:0", tartan_matrix_reduce(c, h, 1, 1, numbers, 8));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 1:0", tartan_matrix_norm(c, h, 1, numbers, 1));
    EXPECT_FAILS(UNSUPPORTED, "b is on device 1:0", tartan_matrix_count_different(c, t, h, 0, 0, 0, numbers));
    EXPECT_FAILS(UNSUPPORTED, "a has its values on", tartan_matrix_multiply(c, t, t, 0, &out));
    EXPECT_EQ(nullptr, out);
}

// On the host, and on the dummy's device. A call that fails leaves its operands and outputs alone.
TEST_P(Arithmetic, SurvivesFullMemory) {
    const tartan_shape s = {9, 9, 4, 4, 1};
    const Matrix a = random_matrix(random_layout(s, 0.5, 1), TARTAN_F32, 0, random),
                 b = random_matrix(random_layout(s, 0.5, 2), TARTAN_F32, 0, random),
                 full = random_matrix(random_layout(s, 1, 2), TARTAN_F32, 0, random);
    const Matrix x = placed(context.get(), a), y = placed(context.get(), b), z = placed(context.get(), full);
    tartan_context *c = context.get();
    tartan_matrix *out = nullptr;
    Dense factors(TARTAN_F64, {9});
    factors.fill(random);
    double numbers[9], value;
    const std::vector<char> before = bits_of(z.get());
    const std::vector<std::function<tartan_status()>> calls = {
        [&] { return tartan_matrix_add(c, 2, x.get(), 1, y.get(), 0, &out); },
        [&] { return tartan_matrix_combine(c, 1, x.get(), y.get(), 0, &out); },
        [&] { return tartan_matrix_apply(c, 4, 0, x.get(), 0, &out); },
        [&] { return tartan_matrix_scale(c, &factors.array, &factors.array, x.get(), 0, &out); },
        [&] { return tartan_matrix_add_diagonal(c, 2, x.get(), 0, numbers, 9, 0, &out); },
        [&] { return tartan_matrix_set_diagonal(c, z.get(), 0, numbers, 9); },
        [&] { return tartan_matrix_get_diagonal(c, z.get(), 0, numbers, 9); },
        [&] { return tartan_matrix_trace(c, z.get(), 0, numbers, 1); },
        [&] { return tartan_matrix_reduce(c, x.get(), TARTAN_REDUCE_NORM, TARTAN_EACH_HEAD, numbers, 1); },
        [&] { return tartan_matrix_norm(c, x.get(), TARTAN_MATRIX_NORM_ONE, numbers, 1); },
        [&] { return tartan_matrix_count_different(c, x.get(), y.get(), 0, 0, 0, &value); },
        [&] { return tartan_axpby(c, 1, x.get(), 1, z.get(), z.get()); },
    };
    for (const auto &call : calls) {
        std::fill(std::begin(numbers), std::end(numbers), 1);
        ASSERT_OK(call()); // what layouts keep from now on
        tartan_matrix_free(out);
        out = nullptr;
    }
    ASSERT_NE(before, bits_of(z.get()));
    for (size_t i = 0; i < calls.size(); i++) {
        SCOPED_TRACE(::testing::Message() << "call " << i);
        int failures = 0;
        for (int on_device = 0; on_device < (dummy() ? 2 : 1); on_device++) {
            const std::vector<char> now = bits_of(z.get());
            std::fill(std::begin(numbers), std::end(numbers), 7);
            for (int n = 0;; n++) {
                if (on_device)
                    tartan_dummy.asked = 0, tartan_dummy.fail_at = n;
                else
                    tartan_i_memory_fail_at(n);
                const tartan_status status = calls[i]();
                tartan_i_memory_fail_at(-1);
                tartan_dummy.fail_at = -1;
                if (status == TARTAN_OK) break;
                failures++;
                ASSERT_TRUE(status == TARTAN_ERR_MEMORY || status == TARTAN_ERR_DEVICE)
                    << tartan_last_error();
                ASSERT_EQ(nullptr, out);
                ASSERT_EQ(7, numbers[0]);
                ASSERT_EQ(now, bits_of(z.get()));
            }
            tartan_matrix_free(out);
            out = nullptr;
        }
        EXPECT_GT(failures, 0);
    }
}

} // namespace
