// SPDX-License-Identifier: Apache-2.0
// Element-wise arithmetic against dense oracles in f64.
#include "matrix_support.h"

#include <functional>
#include <limits>

using namespace tartan_test;

namespace {

const double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

Matrix any_matrix(const tartan_shape &s, std::mt19937_64 &random, size_t dtypes = 6) {
    return random_matrix(s, all_dtypes[random() % dtypes], (int32_t)(random() % 2), random);
}

Matrix copy_of(const Matrix &m) {
    tartan_matrix *copy = nullptr;
    EXPECT_OK(tartan_matrix_copy(cpu(), m.get(), &copy));
    return Matrix(copy);
}

// Each element of `result` is want(x, y) rounded once to its dtype where the layout of the result has it.
void expect_elements(const Matrix &result, const std::vector<double> &x, const std::vector<double> &y,
                     const std::function<double(double, double)> &want) {
    const std::vector<double> z = elements_of(result.get());
    for (size_t i = 0; i < z.size(); i++)
        ASSERT_TRUE(same(round_to(want(x[i], y[i]), result->dtype), z[i])) << z[i] << " at " << i;
}

int32_t common(int32_t a, int32_t b) {
    return tartan_dtype_bytes(a) == tartan_dtype_bytes(b) && a != b
               ? (tartan_dtype_bytes(a) == 1 ? TARTAN_F16 : TARTAN_F32)
               : (tartan_dtype_bytes(a) >= tartan_dtype_bytes(b) ? a : b);
}

TEST(Add, IsTheSumOverTheUnion) {
    std::mt19937_64 random(1);
    for (int n = 0; n < rounds(600); n++) {
        const tartan_shape s = random_shape(random);
        const Matrix a = any_matrix(s, random), b = any_matrix(s, random);
        const double alpha = n % 3 ? 0.75 : 1, beta = n % 5 ? -1.5 : 1;
        const int32_t dtype = n % 4 ? 0 : all_dtypes[random() % 6];
        const Matrix c = made([&](tartan_context *context, tartan_matrix **out) {
            return tartan_matrix_add(context, alpha, a.get(), beta, b.get(), dtype, out);
        });
        ASSERT_EQ(dtype != 0 ? dtype : common(a->dtype, b->dtype), c->dtype);
        ASSERT_EQ(a->block_order, c->block_order);
        tartan_layout *both = nullptr;
        ASSERT_OK(tartan_layout_union(a->layout, b->layout, &both));
        ASSERT_EQ(1, tartan_layout_equal(both, c->layout));
        tartan_layout_free(both);
        expect_elements(c, elements_of(a.get()), elements_of(b.get()),
                        [&](double x, double y) { return alpha * x + beta * y; });
    }
}

TEST(Add, OfEqualLayoutsSharesTheLayout) {
    std::mt19937_64 random(2);
    const tartan_shape s = {70, 50, 8, 16, 2};
    const Layout layout = random_layout(s, 0.4, 1), equal = random_layout(s, 0.4, 1);
    for (int32_t order : {0, 1}) {
        const Matrix a = from_dense(layout, random_dense(s, TARTAN_F32, random), 0, 0);
        const Matrix b = from_dense(equal, random_dense(s, TARTAN_F32, random), 0, order);
        const Matrix c = made([&](tartan_context *context, tartan_matrix **out) {
            return tartan_matrix_add(context, 1, a.get(), 1, b.get(), 0, out);
        });
        EXPECT_EQ(layout.get(), c->layout);
        expect_elements(c, elements_of(a.get()), elements_of(b.get()),
                        [](double x, double y) { return (double)((float)x + (float)y); });
    }
}

// R tells NA from NaN by the low word.
TEST(Add, MovesTheBitsOfBlocksThatOneOperandStores) {
    const tartan_shape s = {4, 6, 2, 2, 1};
    const Layout left = from_mask(s, {1, 0, 0, 1, 0, 0}), right = from_mask(s, {0, 1, 0, 0, 0, 1});
    const uint64_t na = 0x7ff00000000007a2;
    uint64_t x[8], y[8];
    for (int i = 0; i < 8; i++) x[i] = na, y[i] = na + (uint64_t)i;
    auto wrap = [&](const Layout &layout, uint64_t *data) {
        tartan_array values;
        const int64_t shape[] = {2, 2, 2};
        EXPECT_OK(tartan_array_init(data, TARTAN_F64, 3, shape, nullptr, &values));
        tartan_matrix *m = nullptr;
        EXPECT_OK(tartan_matrix_wrap(layout.get(), &values, nullptr, nullptr, &m));
        return Matrix(m);
    };
    const Matrix a = wrap(left, x), b = wrap(right, y);
    const Matrix c = made([&](tartan_context *context, tartan_matrix **out) {
        return tartan_matrix_add(context, 1, a.get(), 1, b.get(), 0, out);
    });
    const uint64_t *bits =
        (const uint64_t *)c->values; /* blocks (0,0) of a, (0,1) of b, (1,0) of a, (1,2) of b */
    for (int i = 0; i < 4; i++) {
        EXPECT_EQ(na, bits[i]);
        EXPECT_EQ(na + (uint64_t)i, bits[4 + i]);
        EXPECT_EQ(na, bits[8 + i]);
        EXPECT_EQ(na + 4 + (uint64_t)i, bits[12 + i]);
    }
    tartan_matrix *same_bits = nullptr;
    const double zero = 0;
    ASSERT_OK(tartan_matrix_add_diagonal(cpu(), 1, b.get(), 5, &zero, 1, 0, &same_bits));
    EXPECT_EQ(0, std::memcmp(same_bits->values, y, 4 * sizeof *y));
    tartan_matrix_free(same_bits);
}

TEST(Add, WhatIsNotStoredIsZeroEvenTimesNaN) {
    const tartan_shape s = {2, 4, 2, 2, 1};
    const Layout left = from_mask(s, {1, 0}), right = from_mask(s, {0, 1});
    Dense dense(TARTAN_F64, {2, 4});
    for (int64_t i = 0; i < 8; i++) dense.set({i / 4, i % 4}, i == 0 ? kNaN : i == 1 ? kInf : 1);
    const Matrix a = from_dense(left, dense), b = from_dense(right, dense);
    tartan_matrix *c = nullptr;
    ASSERT_OK(tartan_matrix_add(cpu(), 0, a.get(), 2, b.get(), 0, &c));
    const std::vector<double> x = elements_of(c);
    EXPECT_TRUE(std::isnan(x[0]) && std::isnan(x[1])); // 0 * NaN, 0 * infinity
    EXPECT_EQ(0, x[4]);
    EXPECT_EQ(2, x[2]);
    tartan_matrix_free(c);
}

TEST(Axpby, WritesIntoALargerLayoutAndIntoItself) {
    std::mt19937_64 random(3);
    for (int n = 0; n < rounds(400); n++) {
        const tartan_shape s = random_shape(random);
        const Matrix a = any_matrix(s, random), b = any_matrix(s, random);
        tartan_layout *raw = nullptr;
        ASSERT_OK(tartan_layout_union(a->layout, b->layout, &raw));
        const Layout both(raw), more = random_layout(s, 0.2, random());
        ASSERT_OK(tartan_layout_union(both.get(), more.get(), &raw));
        const Layout all(raw);
        const Matrix c = from_dense(all, random_dense(s, all_dtypes[random() % 6], random), 0, n % 2);
        const std::vector<double> x = elements_of(a.get()), y = elements_of(b.get());
        const Matrix twice = copy_of(c);
        ASSERT_OK(tartan_axpby(one_worker.get(), 0.5, a.get(), 3, b.get(), c.get()));
        ASSERT_OK(tartan_axpby(five_workers.get(), 0.5, a.get(), 3, b.get(), twice.get()));
        expect_elements(c, x, y, [](double u, double v) { return 0.5 * u + 3 * v; });
        ASSERT_EQ(elements_of(c.get()), elements_of(twice.get()));
        ASSERT_TRUE(padding_is_zero(c.get()));
        const std::vector<double> z = elements_of(c.get());
        ASSERT_OK(tartan_axpby(cpu(), -1, a.get(), 1, c.get(), c.get()));
        expect_elements(c, x, z, [](double u, double w) { return -1 * u + w; });
        const std::vector<double> w = elements_of(c.get());
        ASSERT_OK(tartan_axpby(cpu(), 1, c.get(), 1, c.get(), c.get()));
        expect_elements(c, w, w, [](double u, double) { return u + u; });
    }
}

TEST(Axpby, RefusesBlocksWithoutAPlaceAndOverlap) {
    std::mt19937_64 random(4);
    const tartan_shape s = {8, 8, 4, 4, 1};
    const Layout all = from_mask(s, {1, 1, 1, 1}), some = from_mask(s, {1, 0, 0, 1});
    const Matrix a = from_dense(all, random_dense(s, TARTAN_F64, random, false)),
                 b = from_dense(some, random_dense(s, TARTAN_F64, random, false));
    const std::vector<double> before = elements_of(b.get());
    EXPECT_FAILS(LAYOUT, "c stores 2 of the 4 blocks of a",
                 tartan_axpby(cpu(), 1, a.get(), 1, b.get(), b.get()));
    EXPECT_FAILS(LAYOUT, "of b", tartan_axpby(cpu(), 1, b.get(), 1, a.get(), b.get()));
    EXPECT_EQ(before, elements_of(b.get()));
    tartan_array part = {};
    ASSERT_OK(tartan_matrix_values(a.get(), &part));
    part.shape[0] = 2;
    tartan_matrix *raw = nullptr;
    ASSERT_OK(tartan_matrix_wrap(some.get(), &part, nullptr, nullptr, &raw));
    const Matrix inside(raw);
    EXPECT_FAILS(ARGUMENT, "overlaps", tartan_axpby(cpu(), 1, inside.get(), 1, a.get(), a.get()));
    const Matrix c = copy_of(b); // the only allocations are those of the lists
    BRUTAL(tartan_axpby(cpu(), 1, b.get(), 1, c.get(), a.get()), (void)0);
}

TEST(Combine, MultipliesOverTheIntersectionAndComparesOverTheUnion) {
    std::mt19937_64 random(5);
    for (int n = 0; n < rounds(300); n++) {
        const tartan_shape s = random_shape(random);
        const Matrix a = any_matrix(s, random), b = any_matrix(s, random);
        for (int32_t how : {TARTAN_COMBINE_MULTIPLY, TARTAN_COMBINE_MAXIMUM, TARTAN_COMBINE_MINIMUM}) {
            const Matrix c = made([&](tartan_context *context, tartan_matrix **out) {
                return tartan_matrix_combine(context, how, a.get(), b.get(), 0, out);
            });
            tartan_layout *layout = nullptr;
            ASSERT_OK(how == TARTAN_COMBINE_MULTIPLY
                          ? tartan_layout_intersection(a->layout, b->layout, &layout)
                          : tartan_layout_union(a->layout, b->layout, &layout));
            ASSERT_EQ(1, tartan_layout_equal(layout, c->layout));
            tartan_layout_free(layout);
            expect_elements(c, elements_of(a.get()), elements_of(b.get()), [&](double x, double y) {
                return how == TARTAN_COMBINE_MULTIPLY  ? x * y
                       : how == TARTAN_COMBINE_MAXIMUM ? std::max(x, y)
                                                       : std::min(x, y);
            });
        }
    }
}

TEST(Combine, PassesNaNOn) {
    const tartan_shape s = {1, 4, 1, 4, 1};
    const Layout layout = from_mask(s, {1});
    Dense x(TARTAN_F64, {1, 4}), y(TARTAN_F64, {1, 4});
    for (int64_t i = 0; i < 4; i++) x.set({0, i}, i == 0 ? kNaN : 1), y.set({0, i}, i == 1 ? kNaN : 2);
    const Matrix a = from_dense(layout, x), b = from_dense(layout, y);
    for (int32_t how : {TARTAN_COMBINE_MAXIMUM, TARTAN_COMBINE_MINIMUM}) {
        tartan_matrix *c = nullptr;
        ASSERT_OK(tartan_matrix_combine(cpu(), how, a.get(), b.get(), 0, &c));
        const std::vector<double> z = elements_of(c);
        EXPECT_TRUE(std::isnan(z[0]) && std::isnan(z[1]));
        EXPECT_EQ(how == TARTAN_COMBINE_MAXIMUM ? 2 : 1, z[2]);
        tartan_matrix_free(c);
    }
}

TEST(Apply, EveryFunction) {
    std::mt19937_64 random(6);
    const std::function<double(double)> wants[] = {
        [](double x) { return x * -0.3; },
        [](double x) { return x / 7; },
        [](double x) { return x * x; },
        [](double x) { return std::fabs(x); },
        [](double x) { return (double)((x > 0) - (x < 0)); },
        [](double x) { return std::nearbyint(x); },
    };
    const std::pair<int32_t, double> functions[] = {
        {TARTAN_APPLY_MULTIPLY, -0.3}, {TARTAN_APPLY_DIVIDE, 7},  {TARTAN_APPLY_POWER, 2},
        {TARTAN_APPLY_ABS, kNaN},      {TARTAN_APPLY_SIGN, kNaN}, {TARTAN_APPLY_ROUND, kNaN}};
    for (int n = 0; n < rounds(150); n++) {
        const tartan_shape s = random_shape(random);
        const Matrix a = any_matrix(s, random);
        const std::vector<double> x = elements_of(a.get());
        for (int f = 0; f < 6; f++) {
            const int32_t dtype = n % 3 ? 0 : all_dtypes[random() % 6];
            const Matrix c = made([&](tartan_context *context, tartan_matrix **out) {
                return tartan_matrix_apply(context, functions[f].first, functions[f].second, a.get(), dtype,
                                           out);
            });
            ASSERT_EQ(a->layout, c->layout);
            ASSERT_EQ(dtype != 0 ? dtype : a->dtype, c->dtype);
            expect_elements(c, x, x, [&](double u, double) { return wants[f](u); });
        }
    }
}

TEST(Apply, PowersAndSpecialNumbers) {
    const tartan_shape s = {1, 4, 1, 4, 1};
    const Layout layout = from_mask(s, {1});
    Dense x(TARTAN_F64, {1, 4});
    const double in[] = {4, -0.0, kNaN, -kInf};
    for (int64_t i = 0; i < 4; i++) x.set({0, i}, in[i]);
    const Matrix a = from_dense(layout, x);
    auto apply = [&](int32_t function, double parameter) {
        tartan_matrix *c = nullptr;
        EXPECT_OK(tartan_matrix_apply(cpu(), function, parameter, a.get(), 0, &c));
        return elements_of(Matrix(c).get());
    };
    EXPECT_EQ(2, apply(TARTAN_APPLY_POWER, 0.5)[0]);
    EXPECT_EQ(8, apply(TARTAN_APPLY_POWER, 1.5)[0]);
    EXPECT_EQ(0, apply(TARTAN_APPLY_POWER, 1.5)[1]);
    EXPECT_TRUE(std::isnan(apply(TARTAN_APPLY_POWER, 0.5)[3]));
    EXPECT_TRUE(std::isnan(apply(TARTAN_APPLY_SIGN, 0)[2]));
    EXPECT_EQ(-1, apply(TARTAN_APPLY_SIGN, 0)[3]);
    EXPECT_EQ(kInf, apply(TARTAN_APPLY_ABS, 0)[3]);
    EXPECT_FALSE(std::signbit(apply(TARTAN_APPLY_ABS, 0)[1]));
}

// Numbers for lines: [n], or [heads, n] if there are as many.
tartan_array factors_of(const std::vector<double> &numbers, int64_t n) {
    const int64_t count = (int64_t)numbers.size(), shape[] = {n > 0 ? count / n : 1, n};
    tartan_array a = {};
    EXPECT_OK(tartan_array_init(const_cast<double *>(numbers.data()), TARTAN_F64, count == n ? 1 : 2,
                                count == n ? shape + 1 : shape, nullptr, &a));
    return a;
}

TEST(Scale, ByRowsAndColumnsInBothOrders) {
    std::mt19937_64 random(7);
    for (int n = 0; n < rounds(400); n++) {
        const tartan_shape s = random_shape(random);
        const Matrix a = any_matrix(s, random);
        const bool by_head = n % 2, no_rows = n % 5 == 0, no_cols = n % 7 == 0;
        const int64_t copies = by_head ? s.heads : 1;
        const std::vector<double> r = random_values((size_t)(copies * s.rows), random(), -3, 3),
                                  c = random_values((size_t)(copies * s.cols), random(), -3, 3);
        const Matrix b = made([&](tartan_context *context, tartan_matrix **out) {
            const tartan_array rows = factors_of(r, s.rows), cols = factors_of(c, s.cols);
            return tartan_matrix_scale(context, no_rows ? nullptr : &rows, no_cols ? nullptr : &cols, a.get(),
                                       0, out);
        });
        const std::vector<double> x = elements_of(a.get()), y = elements_of(b.get());
        size_t i = 0;
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t row = 0; row < s.rows; row++)
                for (int64_t col = 0; col < s.cols; col++, i++) {
                    double want = x[i];
                    if (!no_rows) want *= r[(size_t)((by_head ? h * s.rows : 0) + row)];
                    if (!no_cols) want *= c[(size_t)((by_head ? h * s.cols : 0) + col)];
                    ASSERT_EQ(round_to(want, a->dtype), y[i]);
                }
    }
}

TEST(Arithmetic, IsNotBlamedForTheOperands) {
    std::mt19937_64 random(8);
    const tartan_shape s = {8, 8, 4, 4, 2};
    const Matrix a = random_matrix(s, TARTAN_F32, 0, random, 1),
                 wide = random_matrix({8, 9, 4, 4, 2}, TARTAN_F32, 0, random),
                 fine = random_matrix({8, 8, 2, 4, 2}, TARTAN_F32, 0, random), far = on_device(a->layout);
    const std::vector<double> f(20, 1), many(24, 1), eight(8, 1);
    tartan_matrix *out = nullptr;
    tartan_context *none = nullptr;
    EXPECT_FAILS(SHAPE, "b is 8 x 9", tartan_matrix_add(cpu(), 1, a.get(), 1, wide.get(), 0, &out));
    EXPECT_FAILS(SHAPE, "blocks of 2 x 4", tartan_matrix_add(cpu(), 1, a.get(), 1, fine.get(), 0, &out));
    EXPECT_FAILS(ARGUMENT, "alpha is 1e+300", tartan_matrix_add(cpu(), 1e300, a.get(), 1, a.get(), 0, &out));
    EXPECT_OK(tartan_matrix_add(cpu(), 1e300, a.get(), 1, a.get(), TARTAN_F64, &out));
    tartan_matrix_free(out);
    EXPECT_FAILS(ARGUMENT, "beta is nan", tartan_matrix_add(cpu(), 1, a.get(), kNaN, a.get(), 0, &out));
    EXPECT_FAILS(DTYPE, "dtype is 7", tartan_matrix_add(cpu(), 1, a.get(), 1, a.get(), TARTAN_U8, &out));
    EXPECT_FAILS(HANDLE, "a is NULL", tartan_matrix_add(cpu(), 1, nullptr, 1, a.get(), 0, &out));
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_matrix_add(none, 1, a.get(), 1, a.get(), 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "b is on device", tartan_matrix_add(cpu(), 1, a.get(), 1, far.get(), 0, &out));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_matrix_add(cpu(), 1, a.get(), 1, a.get(), 0, nullptr));
    EXPECT_FAILS(UNSUPPORTED, "c is on device", tartan_axpby(cpu(), 1, a.get(), 1, a.get(), far.get()));
    EXPECT_FAILS(SHAPE, "c is 8 x 9", tartan_axpby(cpu(), 1, a.get(), 1, a.get(), wide.get()));
    EXPECT_FAILS(ARGUMENT, "beta is", tartan_axpby(cpu(), 1, a.get(), kInf, a.get(), a.get()));
    EXPECT_FAILS(ARGUMENT, "combination is 9", tartan_matrix_combine(cpu(), 9, a.get(), a.get(), 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "a is on device", tartan_matrix_combine(cpu(), 1, far.get(), a.get(), 0, &out));
    EXPECT_FAILS(ARGUMENT, "kind is 0", tartan_matrix_apply(cpu(), 0, 1, a.get(), 0, &out));
    EXPECT_FAILS(ARGUMENT, "to divide by",
                 tartan_matrix_apply(cpu(), TARTAN_APPLY_DIVIDE, 0, a.get(), 0, &out));
    EXPECT_FAILS(ARGUMENT, "exponent above 0",
                 tartan_matrix_apply(cpu(), TARTAN_APPLY_POWER, -1, a.get(), 0, &out));
    EXPECT_FAILS(ARGUMENT, "parameter is inf",
                 tartan_matrix_apply(cpu(), TARTAN_APPLY_MULTIPLY, kInf, a.get(), 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device",
                 tartan_matrix_apply(cpu(), TARTAN_APPLY_ABS, 0, far.get(), 0, &out));
    const tartan_array twenty = factors_of(f, 20), three = factors_of(many, 8);
    tartan_array halves = factors_of(eight, 8), there = halves;
    halves.dtype = TARTAN_F16;
    there.device_type = TARTAN_CUDA;
    EXPECT_FAILS(SHAPE, "row_factors has shape [20], expected [8] or [2, 8]",
                 tartan_matrix_scale(cpu(), &twenty, nullptr, a.get(), 0, &out));
    EXPECT_FAILS(SHAPE, "col_factors has shape [3, 8]",
                 tartan_matrix_scale(cpu(), nullptr, &three, a.get(), 0, &out));
    EXPECT_FAILS(DTYPE, "row_factors is of float16, expected float32 or float64",
                 tartan_matrix_scale(cpu(), &halves, nullptr, a.get(), 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "col_factors is on device 2:0, expected 1:0",
                 tartan_matrix_scale(cpu(), nullptr, &there, a.get(), 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device",
                 tartan_matrix_scale(cpu(), nullptr, nullptr, far.get(), 0, &out));
    EXPECT_EQ(nullptr, out);
}

TEST(Arithmetic, FailsCleanlyWithoutMemory) {
    std::mt19937_64 random(9);
    const tartan_shape s = {9, 9, 4, 4, 1};
    const Matrix a = random_matrix(s, TARTAN_F32, 0, random), b = random_matrix(s, TARTAN_F32, 0, random);
    const std::vector<double> numbers = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const tartan_array factors = factors_of(numbers, 9);
    tartan_matrix *out = nullptr;
    { BRUTAL(tartan_matrix_add(cpu(), 1, a.get(), 1, b.get(), 0, &out), tartan_matrix_free(out)); }
    { BRUTAL(tartan_matrix_combine(cpu(), 1, a.get(), b.get(), 0, &out), tartan_matrix_free(out)); }
    { BRUTAL(tartan_matrix_apply(cpu(), 4, 0, a.get(), 0, &out), tartan_matrix_free(out)); }
    { BRUTAL(tartan_matrix_scale(cpu(), &factors, &factors, a.get(), 0, &out), tartan_matrix_free(out)); }
}

} // namespace
