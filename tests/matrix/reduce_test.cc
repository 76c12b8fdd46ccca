// SPDX-License-Identifier: Apache-2.0
// Reductions, norms and comparison against dense oracles in f64.
#include "matrix_support.h"

#include <limits>

using namespace tartan_test;

namespace {

const double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

std::vector<double> reduce(const tartan_matrix *m, int32_t reduction, int32_t each, int64_t count) {
    std::vector<double> one((size_t)count, 7), five((size_t)count, 8);
    EXPECT_OK(tartan_matrix_reduce(one_worker.get(), m, reduction, each, one.data(), count));
    EXPECT_OK(tartan_matrix_reduce(five_workers.get(), m, reduction, each, five.data(), count));
    EXPECT_EQ(0, count == 0 ? 0 : std::memcmp(one.data(), five.data(), one.size() * sizeof one[0]));
    return one;
}

// The same of a list of numbers, added in order; chains of a head's rows are added by the caller.
double oracle(const std::vector<double> &x, int32_t reduction) {
    double sum = 0, least = kInf, largest = -kInf, size = 0, ones = 0, squares = 0, nonzeros = 0;
    for (double v : x) {
        sum += v, ones += std::fabs(v), squares += v * v, nonzeros += v != 0;
        least = std::min(least, v), largest = std::max(largest, v), size = std::max(size, std::fabs(v));
    }
    const double results[] = {sum,
                              sum / (double)x.size(),
                              x.empty() ? kNaN : least,
                              x.empty() ? kNaN : largest,
                              ones,
                              size,
                              std::sqrt(squares),
                              nonzeros};
    return results[reduction - 1];
}

bool near(double a, double b) {
    return same(a, b) || std::fabs(a - b) <= 1e-13 * (1 + std::fabs(b));
}

TEST(Reduce, IsThatOfTheDenseMatrix) {
    std::mt19937_64 random(1);
    for (int n = 0; n < rounds(300); n++) {
        const tartan_shape s = random_shape(random);
        const Matrix a =
            random_matrix(s, all_dtypes[random() % 6], (int32_t)(random() % 2), random, n % 4 ? 0.5 : 1);
        const std::vector<double> x = elements_of(a.get());
        for (int32_t reduction = TARTAN_REDUCE_SUM; reduction <= TARTAN_REDUCE_NONZEROS; reduction++) {
            const std::vector<double> rows = reduce(a.get(), reduction, TARTAN_EACH_ROW, s.heads * s.rows),
                                      cols = reduce(a.get(), reduction, TARTAN_EACH_COLUMN, s.heads * s.cols),
                                      heads = reduce(a.get(), reduction, TARTAN_EACH_HEAD, s.heads);
            for (int64_t h = 0; h < s.heads; h++) {
                const auto begin = x.begin() + h * s.rows * s.cols;
                for (int64_t r = 0; r < s.rows; r++)
                    ASSERT_TRUE(same(oracle({begin + r * s.cols, begin + (r + 1) * s.cols}, reduction),
                                     rows[(size_t)(h * s.rows + r)]));
                for (int64_t c = 0; c < s.cols; c++) {
                    std::vector<double> column;
                    for (int64_t r = 0; r < s.rows; r++) column.push_back(begin[r * s.cols + c]);
                    ASSERT_TRUE(same(oracle(column, reduction), cols[(size_t)(h * s.cols + c)]));
                }
                const double whole = oracle({begin, begin + s.rows * s.cols}, reduction);
                ASSERT_TRUE(near(heads[(size_t)h], whole)) << heads[(size_t)h] << " " << whole;
            }
        }
    }
}

TEST(Reduce, BlocksHaveNoPadding) {
    std::mt19937_64 random(2);
    for (int n = 0; n < rounds(150); n++) {
        const tartan_shape s = random_shape(random);
        const Matrix a = random_matrix(s, all_dtypes[random() % 6], (int32_t)(random() % 2), random);
        const tartan_layout *l = a->layout;
        for (int32_t reduction = TARTAN_REDUCE_SUM; reduction <= TARTAN_REDUCE_NONZEROS; reduction++) {
            const std::vector<double> got = reduce(a.get(), reduction, TARTAN_EACH_BLOCK, l->blocks);
            for (int64_t id = 0; id < l->blocks; id++) {
                std::vector<double> block;
                for (int64_t r = 0; r < tartan_i_rows_of(l, l->block_rows[id]); r++)
                    for (int64_t c = 0; c < tartan_i_cols_of(l, l->block_cols[id]); c++)
                        block.push_back(tartan_i_load(tartan_i_block_at(a.get(), id), a->dtype,
                                                      r * tartan_i_block_row_stride(a.get()) +
                                                          c * tartan_i_block_col_stride(a.get())));
                ASSERT_TRUE(near(got[(size_t)id], oracle(block, reduction)));
            }
        }
    }
}

// The extremes of a head are those of its rows, one after the other, also in which NaN and which zero they are.
TEST(Reduce, ExtremesOfHeadsAreThoseOfRows) {
    std::mt19937_64 random(7);
    const double few[] = {0.0, -0.0, -1.5, 2.5, -kInf, kInf, kNaN, -kNaN};
    const double stored[] = {1, 0.5, 0.5, 0.1, 0.03};
    for (int n = 0; n < rounds(300); n++) {
        const tartan_shape s = random_shape(random);
        const Matrix a =
            random_matrix(s, all_dtypes[random() % 6], (int32_t)(random() % 2), random, stored[n % 5]);
        const int64_t values = a->layout->blocks * tartan_i_block_elements(a.get());
        const size_t choice = 2 + random() % 7; /* of numbers; NaN is rarest */
        for (int64_t i = 0; i < values && n % 4; i++)
            tartan_i_store(a->values, a->dtype, i, few[random() % choice % (random() % 9 ? 6 : 8)]);
        for (const int32_t reduction :
             {TARTAN_REDUCE_MINIMUM, TARTAN_REDUCE_MAXIMUM, TARTAN_REDUCE_ABS_MAXIMUM}) {
            const std::vector<double> rows = reduce(a.get(), reduction, TARTAN_EACH_ROW, s.heads * s.rows),
                                      heads = reduce(a.get(), reduction, TARTAN_EACH_HEAD, s.heads);
            if (s.rows == 0 || s.cols == 0) continue;
            for (int64_t h = 0; h < s.heads; h++) {
                double y = reduction == TARTAN_REDUCE_ABS_MAXIMUM ? 0.0
                           : reduction == TARTAN_REDUCE_MINIMUM   ? kInf
                                                                  : -kInf;
                for (int64_t r = h * s.rows; r < (h + 1) * s.rows; r++) {
                    const double x = rows[(size_t)r];
                    if ((reduction == TARTAN_REDUCE_MINIMUM ? x < y : x > y) || std::isnan(x)) y = x;
                }
                ASSERT_EQ(0, std::memcmp(&y, &heads[(size_t)h], sizeof y)) << y << " " << heads[(size_t)h];
            }
        }
    }
}

TEST(Reduce, LargeBlocksAndBothOrdersHaveTheSameBits) {
    std::mt19937_64 random(3);
    const tartan_shape s = {600, 500, 256, 200, 1};
    const Layout layout = random_layout(s, 0.7, 3);
    const Dense dense = random_dense(s, TARTAN_F64, random, false);
    const Matrix by_row = from_dense(layout, dense, 0, 0), by_col = from_dense(layout, dense, 0, 1);
    for (int32_t reduction = TARTAN_REDUCE_SUM; reduction <= TARTAN_REDUCE_NONZEROS; reduction++)
        for (const auto &[each, count] : {std::pair<int32_t, int64_t>{TARTAN_EACH_ROW, 600},
                                          {TARTAN_EACH_COLUMN, 500},
                                          {TARTAN_EACH_HEAD, 1}})
            EXPECT_EQ(reduce(by_row.get(), reduction, each, count),
                      reduce(by_col.get(), reduction, each, count));
}

TEST(Reduce, NormsBeyondTheRangeOfSquares) {
    const tartan_shape s = {4, 4, 2, 2, 2};
    const Layout layout = from_mask(s, {1, 0, 0, 1, 1, 0, 0, 1});
    for (const double unit : {1e200, 1e-200, 5e-324, 1.0}) {
        Dense dense(TARTAN_F64, {2, 4, 4});
        for (int64_t i = 0; i < 32; i++)
            dense.set({i / 16, i / 4 % 4, i % 4}, i % 4 < 2 ? 3 * unit : 4 * unit);
        for (int64_t r = 2; r < 4; r++)
            dense.set({1, r, 2}, 1), dense.set({1, r, 3}, 0); // in head 1, an ordinary row
        const Matrix a = from_dense(layout, dense);
        const std::vector<double> rows = reduce(a.get(), TARTAN_REDUCE_NORM, TARTAN_EACH_ROW, 8),
                                  cols = reduce(a.get(), TARTAN_REDUCE_NORM, TARTAN_EACH_COLUMN, 8),
                                  blocks = reduce(a.get(), TARTAN_REDUCE_NORM, TARTAN_EACH_BLOCK, 4),
                                  heads = reduce(a.get(), TARTAN_REDUCE_NORM, TARTAN_EACH_HEAD, 2);
        auto is = [&](double got, double want) {
            return std::fabs(got - want) <= 1e-14 * want + 1.01 * std::numeric_limits<double>::denorm_min();
        };
        EXPECT_TRUE(is(rows[0], std::sqrt(18.0) * unit)) << rows[0];
        EXPECT_TRUE(is(rows[2], std::sqrt(32.0) * unit)) << rows[2];
        EXPECT_EQ(1, rows[6]);
        EXPECT_TRUE(is(cols[0], std::sqrt(18.0) * unit)) << cols[0];
        EXPECT_TRUE(is(blocks[0], 6 * unit)) << blocks[0];
        EXPECT_TRUE(is(heads[0], 10 * unit)) << heads[0];
        EXPECT_TRUE(is(heads[1], unit == 1  ? std::sqrt(38.0)
                                 : unit > 1 ? 6 * unit
                                            : std::sqrt(2.0)))
            << heads[1];
    }
}

TEST(Reduce, SpecialNumbers) {
    const tartan_shape s = {3, 4, 1, 2, 1};
    const Layout layout = from_mask(s, {1, 1, 1, 0, 0, 0});
    Dense dense(TARTAN_F64, {3, 4});
    const double in[] = {1, kNaN, 2, kInf, -kInf, 5, 0, 0, 0, 0, 0, 0};
    for (int64_t i = 0; i < 12; i++) dense.set({i / 4, i % 4}, in[i]);
    const Matrix a = from_dense(layout, dense);
    for (int32_t reduction = TARTAN_REDUCE_SUM; reduction <= TARTAN_REDUCE_NORM; reduction++) {
        const std::vector<double> rows = reduce(a.get(), reduction, TARTAN_EACH_ROW, 3);
        EXPECT_TRUE(std::isnan(rows[0])) << reduction;
        EXPECT_EQ(0, rows[2]);
        EXPECT_TRUE(std::isnan(reduce(a.get(), reduction, TARTAN_EACH_HEAD, 1)[0])) << reduction;
    }
    EXPECT_EQ(-kInf, reduce(a.get(), TARTAN_REDUCE_MINIMUM, TARTAN_EACH_ROW, 3)[1]);
    EXPECT_EQ(kInf, reduce(a.get(), TARTAN_REDUCE_NORM, TARTAN_EACH_ROW, 3)[1]);
    EXPECT_EQ(6, reduce(a.get(), TARTAN_REDUCE_NONZEROS, TARTAN_EACH_HEAD, 1)[0]);
    const Matrix none = from_dense(from_mask({3, 0, 1, 2, 1}, {}), Dense(TARTAN_F64, {3, 0}));
    EXPECT_EQ(0, reduce(none.get(), TARTAN_REDUCE_SUM, TARTAN_EACH_ROW, 3)[0]);
    for (int32_t reduction : {TARTAN_REDUCE_MEAN, TARTAN_REDUCE_MINIMUM, TARTAN_REDUCE_MAXIMUM})
        EXPECT_TRUE(std::isnan(reduce(none.get(), reduction, TARTAN_EACH_ROW, 3)[0]));
}

TEST(Norm, OfEveryKind) {
    std::mt19937_64 random(4);
    for (int n = 0; n < rounds(200); n++) {
        const tartan_shape s = random_shape(random);
        const Matrix a = random_matrix(s, TARTAN_F64, (int32_t)(random() % 2), random);
        const std::vector<double> x = elements_of(a.get());
        double got[4][3];
        for (int32_t kind = TARTAN_MATRIX_NORM_ONE; kind <= TARTAN_MATRIX_NORM_MAX; kind++)
            ASSERT_OK(tartan_matrix_norm(n % 2 ? one_worker.get() : five_workers.get(), a.get(), kind,
                                         got[kind - 1], s.heads));
        for (int64_t h = 0; h < s.heads; h++) {
            double one = 0, infinity = 0, squares = 0, largest = 0;
            auto at = [&](int64_t r, int64_t c) {
                return std::fabs(x[(size_t)((h * s.rows + r) * s.cols + c)]);
            };
            for (int64_t r = 0; r < s.rows; r++) {
                double sum = 0;
                for (int64_t c = 0; c < s.cols; c++)
                    sum += at(r, c), squares += at(r, c) * at(r, c), largest = std::max(largest, at(r, c));
                infinity = std::max(infinity, sum);
            }
            for (int64_t c = 0; c < s.cols; c++) {
                double sum = 0;
                for (int64_t r = 0; r < s.rows; r++) sum += at(r, c);
                one = std::max(one, sum);
            }
            ASSERT_EQ(one, got[0][h]);
            ASSERT_EQ(infinity, got[1][h]);
            ASSERT_TRUE(near(got[2][h], std::sqrt(squares)));
            ASSERT_EQ(largest, got[3][h]);
        }
    }
}

double different(const Matrix &a, const Matrix &b, double relative = 0, double absolute = 0,
                 bool equal_nan = false) {
    double one = -1, five = -2;
    EXPECT_OK(tartan_matrix_count_different(one_worker.get(), a.get(), b.get(), relative, absolute, equal_nan,
                                            &one));
    EXPECT_OK(tartan_matrix_count_different(five_workers.get(), a.get(), b.get(), relative, absolute,
                                            equal_nan, &five));
    EXPECT_EQ(one, five);
    return one;
}

TEST(CountDifferent, LooksAtValuesAlone) {
    std::mt19937_64 random(5);
    for (int n = 0; n < rounds(400); n++) {
        const tartan_shape s = random_shape(random);
        const Dense dense = random_dense(s, TARTAN_F64, random);
        const Matrix a = from_dense(random_layout(s, 0.6, random()), dense, all_dtypes[random() % 6], n % 2),
                     b = from_dense(random_layout(s, 0.6, random()), dense, all_dtypes[random() % 6],
                                    n / 2 % 2);
        const std::vector<double> x = elements_of(a.get()), y = elements_of(b.get());
        double all = 0, beyond = 0;
        for (size_t i = 0; i < x.size(); i++) {
            all += x[i] != y[i];
            beyond += std::fabs(x[i] - y[i]) > 0.01 + 0.1 * std::fabs(y[i]);
        }
        ASSERT_EQ(all, different(a, b));
        ASSERT_EQ(beyond, different(a, b, 0.1, 0.01));
        ASSERT_EQ(0, different(a, a));
    }
}

TEST(CountDifferent, SpecialNumbers) {
    const tartan_shape s = {1, 4, 1, 4, 1};
    auto of = [&](std::vector<double> x) {
        Dense dense(TARTAN_F64, {1, 4});
        for (int64_t i = 0; i < 4; i++) dense.set({0, i}, x[(size_t)i]);
        return from_dense(from_mask(s, {1}), dense);
    };
    const Matrix a = of({kNaN, kInf, 0, 1}), b = of({kNaN, -kInf, -0.0, 1}), c = of({1, 1, 0, kInf});
    EXPECT_EQ(1, different(a, a));
    EXPECT_EQ(0, different(a, a, 0, 0, true));
    EXPECT_EQ(2, different(a, b, 1e300, 1e300));
    EXPECT_EQ(3, different(a, c, 1, 1, true)); // infinity is near nothing
    EXPECT_EQ(3, different(c, a, 1, 1, true));
}

TEST(Reduce, RefusesWhatDoesNotFit) {
    std::mt19937_64 random(6);
    const tartan_shape s = {8, 12, 4, 4, 1};
    const Matrix a = random_matrix(s, TARTAN_F64, 0, random, 1), far = on_device(a->layout),
                 other = random_matrix({8, 12, 2, 4, 1}, TARTAN_F64, 0, random);
    double out[12], value = 5;
    EXPECT_FAILS(ARGUMENT, "reduction is 0", tartan_matrix_reduce(cpu(), a.get(), 0, 1, out, 8));
    EXPECT_FAILS(ARGUMENT, "each is 5", tartan_matrix_reduce(cpu(), a.get(), 1, 5, out, 8));
    EXPECT_FAILS(SHAPE, "out_results has 8 entries, expected 12",
                 tartan_matrix_reduce(cpu(), a.get(), 1, 2, out, 8));
    EXPECT_FAILS(ARGUMENT, "overlaps", tartan_matrix_reduce(cpu(), a.get(), 1, 1, (double *)a->values, 8));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device", tartan_matrix_reduce(cpu(), far.get(), 1, 1, out, 8));
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_matrix_reduce(nullptr, a.get(), 1, 1, out, 8));
    EXPECT_FAILS(ARGUMENT, "kind is 5", tartan_matrix_norm(cpu(), a.get(), 5, out, 1));
    EXPECT_FAILS(SHAPE, "heads", tartan_matrix_norm(cpu(), a.get(), 1, out, 2));
    EXPECT_FAILS(ARGUMENT, "overlaps", tartan_matrix_norm(cpu(), a.get(), 1, (double *)a->values, 1));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device", tartan_matrix_norm(cpu(), far.get(), 1, out, 1));
    EXPECT_FAILS(SHAPE, "blocks of 2 x 4",
                 tartan_matrix_count_different(cpu(), a.get(), other.get(), 0, 0, 0, &value));
    EXPECT_FAILS(ARGUMENT, "tolerances",
                 tartan_matrix_count_different(cpu(), a.get(), a.get(), -1, 0, 0, &value));
    EXPECT_FAILS(ARGUMENT, "tolerances",
                 tartan_matrix_count_different(cpu(), a.get(), a.get(), 0, kNaN, 0, &value));
    EXPECT_FAILS(UNSUPPORTED, "b is on device",
                 tartan_matrix_count_different(cpu(), a.get(), far.get(), 0, 0, 0, &value));
    EXPECT_FAILS(HANDLE, "out_value",
                 tartan_matrix_count_different(cpu(), a.get(), a.get(), 0, 0, 0, nullptr));
    EXPECT_EQ(5, value);
    { BRUTAL(tartan_matrix_reduce(cpu(), a.get(), TARTAN_REDUCE_NORM, TARTAN_EACH_HEAD, out, 1), (void)0); }
    { BRUTAL(tartan_matrix_norm(cpu(), a.get(), TARTAN_MATRIX_NORM_ONE, out, 1), (void)0); }
    const Matrix b = random_matrix(s, TARTAN_F64, 0, random, 0.5); // of another layout, which needs lists
    { BRUTAL(tartan_matrix_count_different(cpu(), a.get(), b.get(), 0, 0, 0, &value), (void)0); }
}

} // namespace
