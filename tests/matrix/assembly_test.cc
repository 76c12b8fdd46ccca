// SPDX-License-Identifier: Apache-2.0
// Matrices from lists of blocks, and blocks and elements added into matrices by plans, against dense oracles.
#include "matrix_support.h"

#include "tartan/operations.h"

#include <numeric>
#include <set>

using namespace tartan_test;

namespace {

struct Blocks {
    std::vector<int64_t> heads, rows, cols;
    int64_t count() const { return (int64_t)rows.size(); }
    Argument<tartan_places> places() const {
        return places_of(heads.data(), rows.data(), cols.data(), count());
    }
};

int64_t parts(int64_t n, int64_t b) {
    return (n + b - 1) / b;
}

Blocks random_blocks(const tartan_shape &s, size_t n, std::mt19937_64 &random) {
    Blocks b;
    const int64_t grid_rows = parts(s.rows, s.block_rows), grid_cols = parts(s.cols, s.block_cols);
    for (size_t i = 0; i < n && grid_rows > 0 && grid_cols > 0; i++) {
        b.heads.push_back((int64_t)(random() % (uint64_t)s.heads));
        b.rows.push_back((int64_t)(random() % (uint64_t)grid_rows));
        b.cols.push_back((int64_t)(random() % (uint64_t)grid_cols));
    }
    return b;
}

// Numbers whose sums are exact in every dtype but the 8-bit ones; padding is NaN.
Dense random_values(const tartan_shape &s, const Blocks &b, int32_t dtype, std::mt19937_64 &random) {
    Dense values(dtype, {b.count(), s.block_rows, s.block_cols}, &random);
    for (int64_t i = 0; i < b.count(); i++)
        for (int64_t r = 0; r < s.block_rows; r++)
            for (int64_t c = 0; c < s.block_cols; c++) {
                const bool inside = b.rows[(size_t)i] * s.block_rows + r < s.rows &&
                                    b.cols[(size_t)i] * s.block_cols + c < s.cols;
                values.set({i, r, c}, inside ? (double)(int64_t)(random() % 9) / 4 - 1 : NAN);
            }
    return values;
}

// Sums of the blocks in the order of the list.
std::vector<double> dense_of(const tartan_shape &s, const Blocks &b, const Dense &values, int32_t dtype) {
    std::vector<double> x((size_t)(s.heads * s.rows * s.cols));
    for (int64_t i = 0; i < b.count(); i++)
        for (int64_t r = 0; r < s.block_rows; r++)
            for (int64_t c = 0; c < s.block_cols; c++) {
                const int64_t row = b.rows[(size_t)i] * s.block_rows + r,
                              col = b.cols[(size_t)i] * s.block_cols + c;
                if (row < s.rows && col < s.cols)
                    x[(size_t)((b.heads[(size_t)i] * s.rows + row) * s.cols + col)] += values.get({i, r, c});
            }
    for (double &v : x) v = round_to(v, dtype);
    return x;
}

TEST(FromBlocks, AddsRepeatsAndStoresTheirBlocksAlone) {
    std::mt19937_64 random(1);
    const Context one = open_context(1), five = open_context("cpu", "threads=5", &backwards_hooks);
    for (int n = 0; n < rounds(400); n++) {
        const tartan_shape s = random_shape(random, 3);
        const Blocks b = random_blocks(s, random() % 40, random);
        const int32_t from = all_dtypes[random() % 4], to = n % 3 ? 0 : all_dtypes[random() % 4];
        const Dense values = random_values(s, b, from, random);
        Matrix all[2];
        for (int i = 0; i < 2; i++) {
            tartan_matrix *out = nullptr;
            ASSERT_OK(tartan_matrix_from_blocks(i == 0 ? one.get() : five.get(), &s, b.places(), &values.array, to, n % 2, &out));
            all[i] = Matrix(out);
        }
        const Matrix &a = all[0];
        expect_same_bits(a.get(), all[1].get());
        ASSERT_EQ(to != 0 ? to : from, a->dtype);
        ASSERT_EQ(n % 2, a->block_order);
        ASSERT_EQ(dense_of(s, b, values, a->dtype), elements_of(a.get()));
        ASSERT_TRUE(padding_is_zero(a.get()));
        std::set<std::vector<int64_t>> places;
        for (size_t i = 0; i < b.rows.size(); i++) places.insert({b.heads[i], b.rows[i], b.cols[i]});
        ASSERT_EQ((int64_t)places.size(), a->layout->blocks);
    }
}

TEST(FromBlocks, Refusals) {
    const tartan_shape s = {4, 6, 2, 3, 1}, two_heads = {4, 6, 2, 3, 2};
    const int64_t rows[] = {1, 0, 1}, cols[] = {0, 1, 0}, outside[] = {1, 0, 2};
    const Context own = open_context(1);
    Dense values(TARTAN_F64, {3, 2, 3}), wide(TARTAN_F64, {3, 3, 2}), bytes(TARTAN_F64, {3, 2, 3});
    tartan_matrix *out = nullptr;
    const auto from = [&](const tartan_shape &shape, const int64_t *i, const tartan_array &x, int32_t dtype,
                          int32_t order) {
        const tartan_status status =
            tartan_matrix_from_blocks(own.get(), &shape, places_of(nullptr, i, cols, 3), &x, dtype, order, &out);
        EXPECT_TRUE(status == TARTAN_OK || out == nullptr);
        return status;
    };
    EXPECT_FAILS(LAYOUT, "rows[2] is 2, expected 0 .. 1", from(s, outside, values.array, 0, 0));
    EXPECT_FAILS(SHAPE, "values has shape [3, 3, 2], expected [3, 2, 3]", from(s, rows, wide.array, 0, 0));
    EXPECT_FAILS(HANDLE, "heads is NULL, expected the head of each block of a shape with 2 heads",
                 from(two_heads, rows, values.array, 0, 0));
    EXPECT_FAILS(DTYPE, "dtype is 99", from(s, rows, values.array, 99, 0));
    EXPECT_FAILS(ARGUMENT, "block_order is 2, expected 0 (row-major) or 1 (column-major)",
                 from(s, rows, values.array, 0, 2));
    EXPECT_FAILS(HANDLE, "places is NULL",
                 tartan_matrix_from_blocks(own.get(), &s, nullptr, &values.array, 0, 0, &out));
    EXPECT_FAILS(
        HANDLE, "context is NULL",
        tartan_matrix_from_blocks(nullptr, &s, places_of(nullptr, rows, cols, 3), &values.array, 0, 0, &out));
    ASSERT_OK(from(s, rows, values.array, 0, 0)); // the context gets its workspace
    tartan_matrix_free(out);
    BRUTAL(from(s, rows, values.array, 0, 0), tartan_matrix_free(out));
}

tartan_array lined(const std::vector<int64_t> &list) {
    tartan_array array = {};
    const int64_t n = (int64_t)list.size();
    EXPECT_OK(tartan_array_init(const_cast<int64_t *>(list.data()), TARTAN_I64, 1, &n, nullptr, &array));
    return array;
}

// Again and again on one layout: the matrix becomes its old values and the blocks.
TEST(Plans, BlocksAreAddedByOnePlan) {
    std::mt19937_64 random(2);
    const Context own = open_context(1);
    for (int n = 0; n < rounds(200); n++) {
        const tartan_shape s = random_shape(random, 3);
        const Blocks b = random_blocks(s, random() % 40, random),
                     more = random_blocks(s, random() % 20, random);
        Blocks all = b;
        all.heads.insert(all.heads.end(), more.heads.begin(), more.heads.end());
        all.rows.insert(all.rows.end(), more.rows.begin(), more.rows.end());
        all.cols.insert(all.cols.end(), more.cols.begin(), more.cols.end());
        const Dense first = random_values(s, all, TARTAN_F64, random);
        tartan_matrix *made = nullptr;
        ASSERT_OK(tartan_matrix_from_blocks(own.get(), &s, all.places(), &first.array, 0, n % 2, &made));
        const Matrix w(made);
        std::vector<int64_t> order((size_t)b.count()), ends((size_t)w->layout->blocks);
        ASSERT_OK(tartan_layout_block_plan(w->layout, b.places(), order.data(), b.count(), ends.data(),
                                           w->layout->blocks));
        const tartan_array list = lined(order), last = lined(ends);
        tartan_array values;
        ASSERT_OK(tartan_matrix_values(made, &values));
        std::vector<double> want = elements_of(made);
        for (int again = 0; again < 2; again++) {
            const Dense added = random_values(s, b, TARTAN_F64, random);
            ASSERT_OK(tartan_segment_sum(own.get(), &values, &added.array, &list, &last, nullptr, &values));
            const std::vector<double> sum = dense_of(s, b, added, TARTAN_F64);
            for (size_t i = 0; i < want.size(); i++) want[i] += sum[i];
            ASSERT_EQ(want, elements_of(made));
        }
    }
}

TEST(Plans, ElementsAreAddedByOnePlan) {
    std::mt19937_64 random(3);
    const Context own = open_context(1);
    for (int n = 0; n < rounds(200); n++) {
        const tartan_shape s = random_shape(random, 3);
        const Matrix w = random_matrix(s, TARTAN_F64, n % 2, random);
        const tartan_layout *l = w->layout;
        Blocks e;
        for (size_t i = 0; i < random() % 60 && l->blocks > 0; i++) {
            const int64_t id = (int64_t)(random() % (uint64_t)l->blocks), head = tartan_i_layout_head(l, id);
            e.heads.push_back(head);
            e.rows.push_back(l->block_rows[id] * s.block_rows +
                             (int64_t)(random() % (uint64_t)tartan_i_rows_of(l, l->block_rows[id])));
            e.cols.push_back(l->block_cols[id] * s.block_cols +
                             (int64_t)(random() % (uint64_t)tartan_i_cols_of(l, l->block_cols[id])));
        }
        const int64_t stored = l->blocks * s.block_rows * s.block_cols;
        std::vector<int64_t> order((size_t)e.count()), ends((size_t)stored);
        ASSERT_OK(
            tartan_layout_element_plan(l, e.places(), n % 2, order.data(), e.count(), ends.data(), stored));
        const tartan_array list = lined(order), last = lined(ends);
        tartan_array values;
        ASSERT_OK(tartan_array_init(w->values, TARTAN_F64, 1, &stored, nullptr, &values));
        std::vector<double> want = elements_of(w.get());
        Dense added(TARTAN_F64, {e.count()});
        for (int64_t i = 0; i < e.count(); i++) {
            added.set({i}, (double)(int64_t)(random() % 64) / 4);
            want[(size_t)((e.heads[(size_t)i] * s.rows + e.rows[(size_t)i]) * s.cols + e.cols[(size_t)i])] +=
                added.get({i});
        }
        ASSERT_OK(tartan_segment_sum(own.get(), &values, &added.array, &list, &last, nullptr, &values));
        ASSERT_EQ(want, elements_of(w.get()));
    }
}

TEST(Plans, Refusals) {
    const tartan_shape s = {4, 6, 2, 3, 1};
    const int64_t at[] = {0, 1}, rows[] = {1, 0, 1}, cols[] = {1, 1, 0}, here[] = {0, 1, 1};
    tartan_layout *layout = nullptr;
    ASSERT_OK(tartan_layout_from_coordinates(&s, places_of(nullptr, at, at, 2), &layout));
    int64_t order[3] = {7, 7, 7}, ends[12] = {7, 7};
    const auto plan = [&](const int64_t *i, const int64_t *j, int64_t nends) {
        return tartan_layout_block_plan(layout, places_of(nullptr, i, j, 3), order, 3, ends, nends);
    };
    EXPECT_FAILS(LAYOUT, "block 1 of the list is at (0, 1), expected a block that is stored",
                 plan(rows, cols, 2));
    EXPECT_FAILS(SHAPE, "out_ends", plan(here, here, 3));
    const int64_t far[] = {2, 0, 0};
    EXPECT_FAILS(LAYOUT, "rows[0] is 2, expected 0 .. 1", plan(far, here, 2));
    const auto elements = [&](const int64_t *i, const int64_t *j, int32_t block_order, int64_t norder,
                              int64_t nends) {
        return tartan_layout_element_plan(layout, places_of(nullptr, i, j, 3), block_order, order, norder,
                                          ends, nends);
    };
    const int64_t row[] = {1, 3, 3}, col[] = {2, 3, 2}, stored[] = {2, 3, 5};
    EXPECT_FAILS(LAYOUT, "element 2 of the list is at (3, 2), expected one of a stored block",
                 elements(row, col, 0, 3, 12));
    EXPECT_FAILS(ARGUMENT, "block_order is 3", elements(row, stored, 3, 3, 12));
    EXPECT_FAILS(SHAPE, "out_order", elements(row, stored, 0, 2, 12));
    EXPECT_FAILS(HANDLE, "layout is NULL",
                 tartan_layout_block_plan(nullptr, places_of(nullptr, here, here, 3), order, 3, ends, 2));
    EXPECT_FAILS(
        HANDLE, "layout is NULL",
        tartan_layout_element_plan(nullptr, places_of(nullptr, here, here, 3), 0, order, 3, ends, 2));
    EXPECT_FAILS(HANDLE, "places is NULL",
                 tartan_layout_element_plan(layout, nullptr, 0, order, 3, ends, 12));
    EXPECT_EQ(7, order[0]);
    EXPECT_EQ(7, ends[0]);
    { BRUTAL(plan(here, here, 2), (void)0); }
    EXPECT_EQ(0, order[0]);
    EXPECT_EQ(1, ends[0]);
    EXPECT_EQ(3, ends[1]);
    { BRUTAL(elements(row, stored, 0, 3, 12), (void)0); }
    tartan_layout_free(layout);
}

} // namespace
