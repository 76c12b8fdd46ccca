// SPDX-License-Identifier: Apache-2.0
// What new blocks of weights hold at first.
#include "sparsifier_support.h"

#include <cmath>

using namespace tartan_test;

namespace {

// One weight of ragged blocks with a moment, after one step.
struct Recycled {
    Layout before;
    tartan_matrix *parts[2];
    Layout after;
    explicit Recycled(const char *options, int32_t dtype = TARTAN_F64,
                      const tartan_shape &shape = {250, 123, 16, 8, 2})
        : before(random_layout(shape, 0.5, 1)), parts{normal_on(before.get(), 1, dtype).release(),
                                                      normal_on(before.get(), 2, dtype).release()} {
        const Sparsifier s = sparsifier_of(options, {before.get()});
        EXPECT_OK(tartan_sparsifier_step(cpu(), s.get(), parts, 2));
        after = layout_of(s.get());
    }
    ~Recycled() {
        for (tartan_matrix *m : parts) tartan_matrix_free(m);
    }
    // For each block of the new layout whether it is new.
    std::vector<bool> fresh() const {
        std::vector<bool> out;
        for (double norm : norms_of(parts[1])) out.push_back(norm == 0);
        return out;
    }
};

// The sum of squares, the largest number, and the count of the elements of some blocks of a matrix.
struct Sums {
    double squares = 0, largest = 0, count = 0;
    double size() const { return std::sqrt(squares / count); }
};
Sums sums_of(const tartan_matrix *m, const tartan_layout *l, const std::vector<bool> &fresh, bool wanted) {
    Sums out;
    const std::vector<double> dense = dense_of(m);
    const int64_t rows = tartan_layout_rows(l), cols = tartan_layout_cols(l);
    std::vector<int64_t> heads(fresh.size()), at_row(fresh.size()), at_col(fresh.size());
    const int64_t n = (int64_t)fresh.size();
    EXPECT_OK(tartan_layout_get_coordinates(l, heads.data(), n, at_row.data(), n, at_col.data(), n));
    for (size_t i = 0; i < fresh.size(); i++) {
        if (fresh[i] != wanted) continue;
        for (int64_t r = at_row[i] * 16; r < std::min(rows, at_row[i] * 16 + 16); r++)
            for (int64_t c = at_col[i] * 8; c < std::min(cols, at_col[i] * 8 + 8); c++) {
                const double x = dense[(size_t)((heads[i] * rows + r) * cols + c)];
                out.squares += x * x;
                out.largest = std::max(out.largest, std::fabs(x));
                out.count++;
            }
    }
    return out;
}

TEST(SparsifierFill, NormalNumbersOfTheSizeOfThoseThatStay) {
    const Recycled r("swap=0.2 growth=random fill=normal fill_scale=0.5 seed=3");
    const std::vector<bool> fresh = r.fresh();
    const Sums stays = sums_of(r.parts[0], r.after.get(), fresh, false),
               made = sums_of(r.parts[0], r.after.get(), fresh, true);
    ASSERT_GT(made.count, 3000);
    EXPECT_NEAR(made.size() / stays.size(), 0.5, 0.03);
    EXPECT_GT(made.largest, 1.2 * stays.size());
}

TEST(SparsifierFill, UniformNumbersUpToTheSizeOfThoseThatStay) {
    const Recycled r("swap=0.2 growth=random fill=uniform");
    const std::vector<bool> fresh = r.fresh();
    const Sums stays = sums_of(r.parts[0], r.after.get(), fresh, false),
               made = sums_of(r.parts[0], r.after.get(), fresh, true);
    EXPECT_NEAR(made.size() / stays.size(), 0.1 / std::sqrt(3.0), 0.003);
    EXPECT_LE(made.largest, 0.1 * stays.size());
    EXPECT_GT(made.largest, 0.099 * stays.size());
}

TEST(SparsifierFill, BlocksThatStayKeepTheirValuesAndPaddingIsZero) {
    const char *options = "swap=0.2 growth=random fill=normal";
    const Recycled r(options), zeros("swap=0.2 growth=random");
    ASSERT_TRUE(tartan_layout_equal(r.after.get(), zeros.after.get()));
    const std::vector<double> filled = values_of(r.parts[0]), plain = values_of(zeros.parts[0]);
    const std::vector<bool> fresh = r.fresh();
    for (size_t i = 0; i < plain.size(); i++)
        if (!fresh[i / 128]) {
            ASSERT_EQ(filled[i], plain[i]);
        }
    double inside = 0, all = 0;
    for (double x : dense_of(r.parts[0])) inside += x * x;
    for (double x : filled) all += x * x;
    EXPECT_NEAR(inside, all, 1e-9 * all);
    EXPECT_EQ(values_of(r.parts[1]), values_of(zeros.parts[1]));
}

// The numbers depend on the weight and the step, and are those of all dtypes, rounded.
TEST(SparsifierFill, NumbersFollowFromSeedAndDtypesRoundThem) {
    const char *options = "swap=0.2 growth=random fill=normal seed=3 score=max";
    const Recycled a(options), b(options), narrow(options, TARTAN_F32),
        other("swap=0.2 growth=random fill=normal seed=4 score=max");
    EXPECT_EQ(dense_of(a.parts[0]), dense_of(b.parts[0]));
    EXPECT_NE(dense_of(a.parts[0]), dense_of(other.parts[0]));
    const std::vector<double> wide = dense_of(a.parts[0]);
    tartan_matrix *cast = nullptr;
    ASSERT_OK(tartan_matrix_cast(cpu(), narrow.parts[0], TARTAN_F64, TARTAN_ROW_MAJOR, &cast));
    const std::vector<double> found = dense_of(cast);
    tartan_matrix_free(cast);
    for (size_t i = 0; i < wide.size(); i++)
        ASSERT_NEAR(found[i], wide[i], 1e-6 * (std::fabs(wide[i]) + 0.1));
}

TEST(SparsifierFill, WithoutBlocksThatStayNewOnesAreZeros) {
    const Layout empty = from_mask({16, 32, 8, 8, 1}, std::vector<uint8_t>(8, 0));
    const Sparsifier s = sparsifier_of("density=0.5 growth=random fill=normal initial=0", {empty.get()});
    tartan_matrix *parts[1] = {zeros_on(empty.get()).release()};
    ASSERT_OK(tartan_sparsifier_step(cpu(), s.get(), parts, 1));
    EXPECT_EQ(values_of(parts[0]), std::vector<double>(4 * 64, 0.0));
    tartan_matrix_free(parts[0]);
}

TEST(SparsifierFill, Refusals) {
    const Layout l = random_layout({64, 64, 8, 8, 1}, 0.5, 1), thin = random_layout({64, 8, 8, 1, 1}, 0.5, 1);
    const Sparsifier s = sparsifier_of("swap=0.5 growth=random fill=normal", {l.get()});
    const Matrix w = normal_on(l.get(), 1), squares = normal_on(thin.get(), 2);
    EXPECT_FAILS(ARGUMENT, "no prepared step", tartan_sparsifier_fill(cpu(), s.get(), 0, w.get()));
    ASSERT_OK(tartan_sparsifier_measure(cpu(), s.get(), 0, w.get()));
    ASSERT_OK(tartan_sparsifier_prepare(s.get()));
    EXPECT_FAILS(ARGUMENT, "weight is 1", tartan_sparsifier_fill(cpu(), s.get(), 1, w.get()));
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_sparsifier_fill(nullptr, s.get(), 0, w.get()));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_sparsifier_fill(cpu(), s.get(), 0, nullptr));
    EXPECT_FAILS(LAYOUT, "expected those of weight 0 after the prepared step: ",
                 tartan_sparsifier_fill(cpu(), s.get(), 0, w.get()));
    tartan_matrix *moved = nullptr, *thin_moved = nullptr;
    ASSERT_OK(tartan_sparsifier_move(cpu(), s.get(), 0, w.get(), &moved));
    ASSERT_OK(tartan_sparsifier_move(cpu(), s.get(), 0, squares.get(), &thin_moved));
    EXPECT_FAILS(SHAPE, "matrix has blocks of 8 x 1, expected 8 x 8",
                 tartan_sparsifier_fill(cpu(), s.get(), 0, thin_moved));
    tartan_array view;
    ASSERT_OK(tartan_matrix_values(moved, &view));
    for (int64_t i = 0; i < view.shape[0] * 64; i++) { // all but the new blocks
        double &x = static_cast<double *>(view.data)[i];
        if (x != 0) x = INFINITY;
    }
    const std::vector<double> before = values_of(moved);
    EXPECT_FAILS(ARGUMENT, "values of weight 0 have the root mean square inf",
                 tartan_sparsifier_fill(cpu(), s.get(), 0, moved));
    EXPECT_EQ(values_of(moved), before);
    tartan_matrix_free(moved);
    tartan_matrix_free(thin_moved);
}

} // namespace
