// SPDX-License-Identifier: Apache-2.0
// Sums, extremes, norms and counts on every backend: the numbers of the CPU, but for sums in another order. What the CPU does
// is tested against plain loops in tests/matrix.
#include "matrices.h"

namespace {

using namespace tartan_test;

class Reductions : public OnMatrices {};
INSTANTIATE_TEST_SUITE_P(Each, Reductions, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

TEST_P(Reductions, OfEveryKind) {
    for (int n = 0; n < rounds(30); n++) {
        const tartan_shape s = shape_of(n);
        const Matrix a = some_matrix(n, s), there = placed(context.get(), a);
        const int64_t counts[] = {0, s.heads * s.rows, s.heads * s.cols, a->layout->blocks, s.heads};
        for (int32_t each = TARTAN_EACH_ROW; each <= TARTAN_EACH_HEAD; each++) {
            std::vector<double> sizes((size_t)counts[each] + 1);
            ASSERT_OK(tartan_matrix_reduce(cpu(), a.get(), TARTAN_REDUCE_ABS_SUM, each, sizes.data(),
                                           counts[each]));
            for (int32_t kind = TARTAN_REDUCE_SUM; kind <= TARTAN_REDUCE_NONZEROS; kind++) {
                SCOPED_TRACE(::testing::Message()
                             << "case " << n << ", each " << each << ", reduction " << kind);
                std::vector<double> want((size_t)counts[each] + 1, -1), got = want, again = want;
                ASSERT_OK(tartan_matrix_reduce(cpu(), a.get(), kind, each, want.data(), counts[each]));
                ASSERT_OK(
                    tartan_matrix_reduce(context.get(), there.get(), kind, each, got.data(), counts[each]));
                ASSERT_OK(
                    tartan_matrix_reduce(context.get(), there.get(), kind, each, again.data(), counts[each]));
                ASSERT_EQ(got, again);
                ASSERT_EQ(-1, got.back());
                const bool exact = on_host() || kind == TARTAN_REDUCE_MINIMUM ||
                                   kind == TARTAN_REDUCE_MAXIMUM || kind == TARTAN_REDUCE_ABS_MAXIMUM ||
                                   kind == TARTAN_REDUCE_NONZEROS;
                for (size_t i = 0; i < (size_t)counts[each]; i++) {
                    if (exact)
                        ASSERT_EQ(want[i], got[i]);
                    else
                        ASSERT_NEAR(want[i], got[i],
                                    1e-13 * (kind == TARTAN_REDUCE_NORM ? want[i] : sizes[i]));
                }
            }
        }
        for (int32_t kind = TARTAN_MATRIX_NORM_ONE; kind <= TARTAN_MATRIX_NORM_MAX; kind++) {
            std::vector<double> want((size_t)s.heads), got = want;
            ASSERT_OK(tartan_matrix_norm(cpu(), a.get(), kind, want.data(), s.heads));
            ASSERT_OK(tartan_matrix_norm(context.get(), there.get(), kind, got.data(), s.heads));
            for (size_t i = 0; i < want.size(); i++) ASSERT_NEAR(want[i], got[i], 1e-13 * want[i]);
        }
    }
}

// Rows of hundreds of blocks and columns of as many: every thread of the second step has several.
TEST_P(Reductions, OfLongLines) {
    const Layout layout = random_layout({900, 1100, 2, 2, 1}, 0.8, 3);
    const Matrix a = random_matrix(layout, TARTAN_F32, 0, random), there = placed(context.get(), a);
    for (int32_t each : {TARTAN_EACH_ROW, TARTAN_EACH_COLUMN}) {
        const int64_t count = each == TARTAN_EACH_ROW ? 900 : 1100;
        std::vector<double> want((size_t)count), got = want;
        for (int32_t kind : {TARTAN_REDUCE_SUM, TARTAN_REDUCE_MAXIMUM, TARTAN_REDUCE_NONZEROS}) {
            ASSERT_OK(tartan_matrix_reduce(cpu(), a.get(), kind, each, want.data(), count));
            ASSERT_OK(tartan_matrix_reduce(context.get(), there.get(), kind, each, got.data(), count));
            for (size_t i = 0; i < want.size(); i++)
                ASSERT_NEAR(want[i], got[i], kind == TARTAN_REDUCE_SUM ? 1e-12 : 0.0);
        }
    }
}

TEST_P(Reductions, OfExtremeAndSpecialNumbers) {
    const double nan = std::nan("");
    const std::vector<std::vector<double>> rows = {{3e200, -4e200}, {3e-200, -4e-200}, {3e-310, -4e-310},
                                                   {0, -0.0},       {1, -INFINITY},    {nan, 1},
                                                   {1, nan},        {nan, -INFINITY}};
    const Layout layout = from_mask({8, 4, 1, 2, 1}, {1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0});
    std::vector<double> room;
    for (const auto &row : rows) room.insert(room.end(), row.begin(), row.end());
    const tartan_array values = array_of(room.data(), TARTAN_F64, {8, 1, 2});
    tartan_matrix *raw = nullptr;
    ASSERT_OK(tartan_matrix_wrap(layout.get(), &values, nullptr, nullptr, &raw));
    const Matrix here(raw), there = placed(context.get(), here);
    for (int32_t each : {TARTAN_EACH_ROW, TARTAN_EACH_COLUMN, TARTAN_EACH_BLOCK, TARTAN_EACH_HEAD})
        for (int32_t kind = TARTAN_REDUCE_SUM; kind <= TARTAN_REDUCE_NONZEROS; kind++) {
            const int64_t count = each == TARTAN_EACH_HEAD ? 1 : each == TARTAN_EACH_COLUMN ? 4 : 8;
            double want[8], got[8];
            ASSERT_OK(tartan_matrix_reduce(cpu(), here.get(), kind, each, want, count));
            ASSERT_OK(tartan_matrix_reduce(context.get(), there.get(), kind, each, got, count));
            for (int64_t i = 0; i < count; i++)
                EXPECT_TRUE((std::isnan(want[i]) && std::isnan(got[i])) || want[i] == got[i] ||
                            std::fabs(want[i] - got[i]) <= 1e-14 * std::fabs(want[i]) + 1e-323)
                    << each << ", " << kind << ", " << i << ": " << want[i] << " and " << got[i];
        }
}

TEST_P(Reductions, CountDifferences) {
    for (int n = 0; n < rounds(90); n++) {
        const tartan_shape s = shape_of(n);
        const Matrix a = some_matrix(n / 10, s), other = some_matrix((int)(random() % 6), s);
        tartan_matrix *raw = nullptr; // near a: differs where its dtype cannot hold the numbers
        ASSERT_OK(tartan_matrix_cast(cpu(), a.get(), kAll[random() % 6], (int32_t)(random() % 2), &raw));
        const Matrix near(raw);
        const Matrix a_there = placed(context.get(), a);
        for (const Matrix *b : {&other, &near, &a}) {
            const Matrix b_there = placed(context.get(), *b);
            for (double tolerance : {0.0, 0.05}) {
                double want = -1, got = -2;
                ASSERT_OK(tartan_matrix_count_different(cpu(), a.get(), b->get(), tolerance, 0.3 * tolerance,
                                                        n % 2, &want));
                ASSERT_OK(tartan_matrix_count_different(context.get(), a_there.get(), b_there.get(),
                                                        tolerance, 0.3 * tolerance, n % 2, &got));
                ASSERT_EQ(want, got) << "case " << n;
            }
        }
    }
}

} // namespace
