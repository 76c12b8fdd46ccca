// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <numeric>

#include "layouts.h"

extern "C" {
#include "layout/layout.h"
}

using namespace tartan_test;

namespace {

using Binary = tartan_status (*)(const tartan_layout *, const tartan_layout *, tartan_layout **);

Layout apply(Binary op, const Layout &a, const Layout &b) {
    tartan_layout *out = nullptr;
    EXPECT_OK(op(a.get(), b.get(), &out));
    return Layout(out);
}
Layout transposed(const Layout &a) {
    tartan_layout *out = nullptr;
    EXPECT_OK(tartan_layout_transpose(a.get(), &out));
    return Layout(out);
}
bool same(const Layout &a, const Layout &b) {
    return tartan_layout_equal(a.get(), b.get()) == 1;
}

TEST(SetAlgebra, AgreesWithMasksAndItsLaws) {
    std::mt19937_64 random(20);
    for (int i = 0; i < rounds(1000); i++) {
        tartan_shape s = random_shape(random);
        Layout a = random_layout(s, (double)(random() % 5) / 4, random()),
               b = random_layout(s, (double)(random() % 5) / 4, random());
        Mask x = mask_of(a), y = mask_of(b), both(x.size()), any(x.size()), minus(x.size());
        for (size_t k = 0; k < x.size(); k++) {
            both[k] = x[k] & y[k];
            any[k] = x[k] | y[k];
            minus[k] = x[k] & !y[k];
        }
        Layout u = apply(tartan_layout_union, a, b), n = apply(tartan_layout_intersection, a, b),
               d = apply(tartan_layout_difference, a, b);
        ASSERT_EQ(mask_of(u), any);
        ASSERT_EQ(mask_of(n), both);
        ASSERT_EQ(mask_of(d), minus);
        ASSERT_TRUE(same(apply(tartan_layout_union, b, a), u));
        ASSERT_TRUE(same(apply(tartan_layout_intersection, b, a), n));
        ASSERT_TRUE(same(apply(tartan_layout_union, d, n), a));
        ASSERT_TRUE(same(apply(tartan_layout_union, a, a), a));
        ASSERT_TRUE(same(apply(tartan_layout_intersection, a, u), a));
        ASSERT_EQ(tartan_layout_blocks(apply(tartan_layout_difference, a, a).get()), 0);
        // the transpose goes through
        ASSERT_TRUE(same(transposed(u), apply(tartan_layout_union, transposed(a), transposed(b))));
        ASSERT_TRUE(same(transposed(d), apply(tartan_layout_difference, transposed(a), transposed(b))));
    }
}

TEST(SetAlgebra, OriginsSayWhichOperandHasABlock) {
    std::mt19937_64 random(21);
    for (int i = 0; i < rounds(300); i++) {
        const tartan_shape s = random_shape(random);
        const Layout a = random_layout(s, (double)(random() % 5) / 4, random()),
                     b = random_layout(s, (double)(random() % 5) / 4, random());
        tartan_layout *out = nullptr;
        uint8_t *origins = nullptr;
        ASSERT_OK(tartan_i_layout_unite("test", a.get(), b.get(), &origins, &out));
        const Layout u(out);
        ASSERT_TRUE(same(u, apply(tartan_layout_union, a, b)));
        ASSERT_EQ(same(a, b), origins == nullptr);
        const Mask x = mask_of(a), y = mask_of(b);
        int64_t id = 0;
        for (size_t k = 0; k < x.size() && origins != nullptr; k++)
            if (x[k] || y[k]) {
                ASSERT_EQ(x[k] + 2 * y[k], origins[id++]);
            }
        tartan_i_free(origins);
    }
}

TEST(SetAlgebra, Refusals) {
    Layout a = pattern({4, 4, 2, 2, 1}, "dense");
    for (Binary op : {tartan_layout_union, tartan_layout_intersection, tartan_layout_difference}) {
        EXPECT_FAILS(HANDLE, "out is NULL", op(a.get(), a.get(), nullptr));
        EXPECT_NO_LAYOUT(HANDLE, "a is NULL", op(nullptr, a.get(), &out));
        EXPECT_NO_LAYOUT(HANDLE, "b is NULL", op(a.get(), nullptr, &out));
        EXPECT_NO_LAYOUT(HANDLE, "a is closed", op(foreign(), a.get(), &out));
        EXPECT_NO_LAYOUT(HANDLE, "b is closed", op(a.get(), foreign(), &out));
        for (tartan_shape s :
             {tartan_shape{3, 4, 2, 2, 1}, tartan_shape{4, 3, 2, 2, 1}, tartan_shape{4, 4, 1, 2, 1},
              tartan_shape{4, 4, 2, 1, 1}, tartan_shape{4, 4, 2, 2, 2}}) {
            Layout b = pattern(s, "dense");
            EXPECT_NO_LAYOUT(SHAPE, "expected the frame of a: 4 x 4, blocks 2 x 2, heads 1",
                             op(a.get(), b.get(), &out));
        }
    }
}

TEST(SetAlgebra, EveryAllocationMayFail) {
    Layout a = pattern(square(4), "causal"), b = pattern(square(4), "checker");
    tartan_layout *out = nullptr;
    BRUTAL(tartan_layout_union(a.get(), b.get(), &out), tartan_layout_free(out));
    BRUTAL(tartan_layout_intersection(a.get(), b.get(), &out), tartan_layout_free(out));
    BRUTAL(tartan_layout_difference(a.get(), b.get(), &out), tartan_layout_free(out));
    uint8_t *origins = nullptr;
    BRUTAL(tartan_i_layout_unite("test", a.get(), b.get(), &origins, &out),
           (tartan_layout_free(out), tartan_i_free(origins)));
}

TEST(Transpose, TwiceIsTheSame) {
    std::mt19937_64 random(21);
    for (int i = 0; i < rounds(1000); i++) {
        Layout a = any_layout(random), t = transposed(a);
        tartan_shape s = shape_of(a.get()), v = shape_of(t.get());
        ASSERT_EQ(s.rows, v.cols);
        ASSERT_EQ(s.block_rows, v.block_cols);
        Mask x = mask_of(a), y = mask_of(t);
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t r = 0; r < grid_rows(s); r++)
                for (int64_t c = 0; c < grid_cols(s); c++)
                    ASSERT_EQ(x[(size_t)((h * grid_rows(s) + r) * grid_cols(s) + c)],
                              y[(size_t)((h * grid_cols(s) + c) * grid_rows(s) + r)]);
        ASSERT_TRUE(same(transposed(t), a));
    }
}

TEST(Transpose, SourcesAreTheColumnLists) {
    Layout a = pattern({12, 9, 2, 2, 2}, "random", "density=0.4");
    int64_t *sources = nullptr;
    tartan_layout *out = nullptr;
    ASSERT_OK(tartan_i_layout_transpose(a.get(), &sources, &out));
    EXPECT_EQ(Indices(sources, sources + a->blocks), col_lists(a.get()).ids);
    tartan_i_free(sources);
    tartan_layout_free(out);
}

TEST(Transpose, Refusals) {
    Layout a = pattern(square(2), "dense");
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_layout_transpose(a.get(), nullptr));
    EXPECT_NO_LAYOUT(HANDLE, "layout is NULL", tartan_layout_transpose(nullptr, &out));
    EXPECT_NO_LAYOUT(HANDLE, "layout is closed", tartan_layout_transpose(foreign(), &out));
}

TEST(Transpose, EveryAllocationMayFail) {
    Layout a = pattern(square(4), "causal");
    int64_t *sources = nullptr;
    tartan_layout *out = nullptr;
    BRUTAL(tartan_i_layout_transpose(a.get(), &sources, &out),
           (tartan_i_free(sources), tartan_layout_free(out)));
}

Indices random_order(int64_t n, bool last_stays, std::mt19937_64 &random) {
    Indices order((size_t)n);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end() - (last_stays && n > 0), random);
    return order;
}

TEST(Permute, AgreesWithTheMaskAndItsInverse) {
    std::mt19937_64 random(22);
    for (int i = 0; i < rounds(1000); i++) {
        Layout a = any_layout(random);
        tartan_shape s = shape_of(a.get());
        int64_t gr = grid_rows(s), gc = grid_cols(s);
        Indices rows = random_order(gr, s.rows % s.block_rows != 0, random),
                cols = random_order(gc, s.cols % s.block_cols != 0, random);
        int64_t *sources = nullptr;
        tartan_layout *out = nullptr;
        ASSERT_OK(tartan_i_layout_permute(a.get(), rows.data(), gr, cols.data(), gc, &sources, &out));
        Layout b(out);
        Mask x = mask_of(a), y = mask_of(b);
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t r = 0; r < gr; r++)
                for (int64_t c = 0; c < gc; c++)
                    ASSERT_EQ(y[(size_t)((h * gr + r) * gc + c)],
                              x[(size_t)((h * gr + rows[(size_t)r]) * gc + cols[(size_t)c])]);
        Coordinates from = coordinates(a.get()), to = coordinates(out);
        for (size_t id = 0; id < to.rows.size(); id++) {
            size_t old = (size_t)sources[id];
            ASSERT_EQ(from.heads[old], to.heads[id]);
            ASSERT_EQ(from.rows[old], rows[(size_t)to.rows[id]]);
            ASSERT_EQ(from.cols[old], cols[(size_t)to.cols[id]]);
        }
        tartan_i_free(sources);
        Indices back_rows((size_t)gr), back_cols((size_t)gc);
        for (int64_t k = 0; k < gr; k++) back_rows[(size_t)rows[(size_t)k]] = k;
        for (int64_t k = 0; k < gc; k++) back_cols[(size_t)cols[(size_t)k]] = k;
        ASSERT_OK(tartan_layout_permute(b.get(), back_rows.data(), gr, back_cols.data(), gc, &out));
        Layout c(out);
        ASSERT_TRUE(same(a, c));
        ASSERT_OK(tartan_layout_permute(a.get(), nullptr, 0, nullptr, 0, &out));
        Layout d(out);
        ASSERT_TRUE(same(a, d));
    }
}

TEST(Permute, Refusals) {
    Layout owner = pattern({6, 5, 2, 2, 1}, "dense"); // 3 x 3, the last column ragged
    tartan_layout *a = owner.get();
    auto permute = [a](const Indices &rows, const Indices &cols, tartan_layout **out) {
        return tartan_layout_permute(a, rows.empty() ? nullptr : rows.data(), (int64_t)rows.size(),
                                     cols.empty() ? nullptr : cols.data(), (int64_t)cols.size(), out);
    };
    EXPECT_FAILS(HANDLE, "out is NULL", permute({}, {}, nullptr));
    EXPECT_NO_LAYOUT(HANDLE, "layout is NULL", tartan_layout_permute(nullptr, nullptr, 0, nullptr, 0, &out));
    EXPECT_NO_LAYOUT(HANDLE, "row_order is NULL", tartan_layout_permute(a, nullptr, 3, nullptr, 0, &out));
    EXPECT_NO_LAYOUT(SHAPE, "row_order has 2 entries, expected 3", permute({0, 1}, {}, &out));
    EXPECT_NO_LAYOUT(SHAPE, "col_order has 4 entries, expected 3", permute({}, {0, 1, 2, 3}, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "row_order[2] is 3, expected each of 0 .. 2 once",
                     permute({0, 1, 3}, {}, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "row_order[0] is -1", permute({-1, 1, 2}, {}, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "col_order[2] is 0", permute({}, {0, 1, 0}, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "col_order moves block 2, which is ragged, to 0",
                     permute({}, {2, 1, 0}, &out));
    tartan_layout *out = nullptr;
    EXPECT_OK(permute({2, 1, 0}, {1, 0, 2}, &out));
    tartan_layout_free(out);
}

TEST(Permute, EveryAllocationMayFail) {
    Layout a = pattern(square(3), "causal");
    Indices order{2, 0, 1};
    tartan_layout *out = nullptr;
    BRUTAL(tartan_layout_permute(a.get(), order.data(), 3, order.data(), 3, &out), tartan_layout_free(out));
}

TEST(Slice, AgreesWithTheMask) {
    std::mt19937_64 random(23);
    for (int i = 0; i < rounds(1000); i++) {
        Layout a = any_layout(random);
        tartan_shape s = shape_of(a.get());
        int64_t gr = grid_rows(s), gc = grid_cols(s);
        int64_t r[2] = {(int64_t)(random() % (uint64_t)(gr + 1)), (int64_t)(random() % (uint64_t)(gr + 1))};
        int64_t c[2] = {(int64_t)(random() % (uint64_t)(gc + 1)), (int64_t)(random() % (uint64_t)(gc + 1))};
        std::sort(r, r + 2);
        std::sort(c, c + 2);
        int64_t *sources = nullptr;
        tartan_layout *out = nullptr;
        ASSERT_OK(tartan_i_layout_slice(a.get(), r[0], r[1], c[0], c[1], &sources, &out));
        Layout b(out);
        tartan_shape t = shape_of(out);
        ASSERT_EQ(grid_rows(t), r[1] - r[0]);
        ASSERT_EQ(grid_cols(t), c[1] - c[0]);
        ASSERT_EQ(t.rows, std::min(s.rows, r[1] * s.block_rows) - std::min(s.rows, r[0] * s.block_rows));
        ASSERT_EQ(t.cols, std::min(s.cols, c[1] * s.block_cols) - std::min(s.cols, c[0] * s.block_cols));
        Mask x = mask_of(a);
        ASSERT_EQ(mask_of(b), mask_where(t, [&](int64_t h, int64_t p, int64_t q) {
                      return x[(size_t)((h * gr + p + r[0]) * gc + q + c[0])];
                  }));
        Coordinates from = coordinates(a.get()), to = coordinates(out);
        for (size_t id = 0; id < to.rows.size(); id++) {
            ASSERT_EQ(from.rows[(size_t)sources[id]], to.rows[id] + r[0]);
            ASSERT_EQ(from.cols[(size_t)sources[id]], to.cols[id] + c[0]);
            ASSERT_EQ(from.heads[(size_t)sources[id]], to.heads[id]);
        }
        tartan_i_free(sources);
    }
}

TEST(Slice, Refusals) {
    Layout owner = pattern({6, 8, 2, 2, 1}, "dense"); // 3 x 4
    tartan_layout *a = owner.get();
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_layout_slice(a, 0, 1, 0, 1, nullptr));
    EXPECT_NO_LAYOUT(HANDLE, "layout is NULL", tartan_layout_slice(nullptr, 0, 1, 0, 1, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "row_begin .. row_end is 0 .. 4, expected a range within 0 .. 3",
                     tartan_layout_slice(a, 0, 4, 0, 1, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "row_begin .. row_end is 2 .. 1", tartan_layout_slice(a, 2, 1, 0, 1, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "row_begin .. row_end is -1 .. 1", tartan_layout_slice(a, -1, 1, 0, 1, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "col_begin .. col_end is 0 .. 5, expected a range within 0 .. 4",
                     tartan_layout_slice(a, 0, 1, 0, 5, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "col_begin .. col_end is 3 .. 2", tartan_layout_slice(a, 0, 1, 3, 2, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "col_begin .. col_end is -1 .. 9223372036854775807",
                     tartan_layout_slice(a, 0, 1, -1, INT64_MAX, &out));
}

TEST(Slice, EveryAllocationMayFail) {
    Layout a = pattern(square(4), "causal");
    int64_t *sources = nullptr;
    tartan_layout *out = nullptr;
    BRUTAL(tartan_i_layout_slice(a.get(), 1, 3, 0, 3, &sources, &out),
           (tartan_i_free(sources), tartan_layout_free(out)));
    BRUTAL(tartan_layout_slice(a.get(), 1, 3, 0, 3, &out), tartan_layout_free(out));
}

} // namespace
