// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "layouts.h"

using namespace tartan_test;

namespace {

TEST(Getters, AnswersAndBadHandles) {
    tartan_shape s{10, 20, 4, 8, 3};
    Layout l = pattern(s, "dense");
    EXPECT_EQ(tartan_layout_rows(l.get()), 10);
    EXPECT_EQ(tartan_layout_cols(l.get()), 20);
    EXPECT_EQ(tartan_layout_block_rows(l.get()), 4);
    EXPECT_EQ(tartan_layout_block_cols(l.get()), 8);
    EXPECT_EQ(tartan_layout_heads(l.get()), 3);
    EXPECT_EQ(tartan_layout_grid_rows(l.get()), 3);
    EXPECT_EQ(tartan_layout_grid_cols(l.get()), 3);
    EXPECT_EQ(tartan_layout_blocks(l.get()), 27);
    EXPECT_EQ(tartan_layout_row_pointers(l.get())[9], 27);
    EXPECT_EQ(tartan_layout_col_indices(l.get())[5], 2);
    for (const tartan_layout *bad : {(const tartan_layout *)nullptr, (const tartan_layout *)foreign()}) {
        for (auto getter : {tartan_layout_rows, tartan_layout_cols, tartan_layout_block_rows,
                            tartan_layout_block_cols, tartan_layout_heads, tartan_layout_grid_rows,
                            tartan_layout_grid_cols, tartan_layout_blocks, tartan_layout_elements})
            EXPECT_EQ(getter(bad), -1);
        EXPECT_EQ(tartan_layout_density(bad), -1);
        EXPECT_EQ(tartan_layout_identity(bad), nullptr);
        EXPECT_EQ(tartan_layout_recipe(bad), nullptr);
        EXPECT_EQ(tartan_layout_row_pointers(bad), nullptr);
        EXPECT_EQ(tartan_layout_col_indices(bad), nullptr);
        EXPECT_EQ(tartan_layout_equal(l.get(), bad), -1);
        EXPECT_EQ(tartan_layout_equal(bad, l.get()), -1);
    }
}

TEST(Getters, EqualLooksAtAll) {
    Layout a = from_mask({4, 4, 2, 2, 1}, {1, 0, 0, 1}), b = from_mask({4, 4, 2, 2, 1}, {1, 0, 0, 1});
    EXPECT_EQ(tartan_layout_equal(a.get(), a.get()), 1);
    EXPECT_EQ(tartan_layout_equal(a.get(), b.get()), 1);
    for (auto &other : {from_mask({4, 4, 2, 2, 1}, {0, 1, 1, 0}), from_mask({4, 4, 2, 2, 1}, {1, 0, 0, 0}),
                        from_mask({3, 4, 2, 2, 1}, {1, 0, 0, 1}), from_mask({4, 3, 2, 2, 1}, {1, 0, 0, 1}),
                        from_mask({6, 4, 3, 2, 1}, {1, 0, 0, 1}), from_mask({4, 6, 2, 3, 1}, {1, 0, 0, 1}),
                        from_mask({4, 4, 2, 2, 2}, {1, 0, 0, 1, 0, 0, 0, 0})})
        EXPECT_EQ(tartan_layout_equal(a.get(), other.get()), 0);
}

TEST(Getters, DensityAndElements) {
    EXPECT_EQ(tartan_layout_density(from_mask({4, 4, 2, 2, 1}, {1, 0, 0, 0}).get()), 0.25);
    EXPECT_EQ(tartan_layout_density(from_mask({0, 4, 2, 2, 1}, {}).get()), 0);
    EXPECT_EQ(tartan_layout_density(pattern({5, 7, 2, 3, 2}, "dense").get()), 1);
    std::mt19937_64 random(6);
    for (int i = 0; i < rounds(1000); i++) {
        Layout l = any_layout(random);
        tartan_shape s = shape_of(l.get());
        Coordinates c = coordinates(l.get());
        int64_t elements = 0;
        for (size_t k = 0; k < c.rows.size(); k++)
            elements += std::min(s.block_rows, s.rows - c.rows[k] * s.block_rows) *
                        std::min(s.block_cols, s.cols - c.cols[k] * s.block_cols);
        ASSERT_EQ(tartan_layout_elements(l.get()), elements);
    }
}

// Facts of pytorch_block_sparse's index tests.
TEST(Lists, ArraysOfPytorchBlockSparse) {
    tartan_shape s{128, 64, 32, 32, 1};
    tartan_layout *out = nullptr;
    ASSERT_OK(from_coordinates(s, {}, {0, 1, 2, 0}, {0, 0, 0, 1}, &out));
    Layout l(out);
    EXPECT_EQ(row_lists(out).pointers, (Indices{0, 2, 3, 4, 4}));
    EXPECT_EQ(row_lists(out).cols, (Indices{0, 1, 0, 0}));
    EXPECT_EQ(col_lists(out).pointers, (Indices{0, 3, 4}));
    EXPECT_EQ(col_lists(out).rows, (Indices{0, 1, 2, 0}));
    EXPECT_EQ(col_lists(out).ids, (Indices{0, 2, 3, 1}));
}

TEST(Lists, AgreeWithTheMask) {
    std::mt19937_64 random(7);
    for (int i = 0; i < rounds(1000); i++) {
        Layout l = any_layout(random);
        tartan_shape s = shape_of(l.get());
        Mask mask = mask_of(l);
        RowLists r = row_lists(l.get());
        ColLists c = col_lists(l.get());
        Indices row_pointers{0}, cols, col_pointers{0}, rows, ids;
        std::vector<int64_t> id_at(mask.size(), -1);
        for (size_t line = 0; line < (size_t)(s.heads * grid_rows(s)); line++) {
            for (size_t j = 0; j < (size_t)grid_cols(s); j++)
                if (size_t at = line * (size_t)grid_cols(s) + j; mask[at]) {
                    id_at[at] = (int64_t)cols.size();
                    cols.push_back((int64_t)j);
                }
            row_pointers.push_back((int64_t)cols.size());
        }
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t j = 0; j < grid_cols(s); j++) {
                for (int64_t k = 0; k < grid_rows(s); k++)
                    if (size_t at = (size_t)((h * grid_rows(s) + k) * grid_cols(s) + j); mask[at]) {
                        rows.push_back(k);
                        ids.push_back(id_at[at]);
                    }
                col_pointers.push_back((int64_t)rows.size());
            }
        ASSERT_EQ(r.pointers, row_pointers);
        ASSERT_EQ(r.cols, cols);
        ASSERT_EQ(c.pointers, col_pointers);
        ASSERT_EQ(c.rows, rows);
        ASSERT_EQ(c.ids, ids);
    }
}

TEST(Lists, Refusals) {
    Layout owner = from_mask({4, 6, 2, 2, 1}, {1, 0, 1, 0, 1, 0}); // 2 x 3 with 3 blocks
    tartan_layout *l = owner.get();
    int64_t a[8], b[8], c[8];
    uint8_t mask[8];
    for (int64_t *p : {a, b, c}) std::fill(p, p + 8, -7);
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_layout_get_row_lists(nullptr, a, 3, b, 3));
    EXPECT_FAILS(HANDLE, "closed or not one of Tartan's", tartan_layout_get_row_lists(foreign(), a, 3, b, 3));
    EXPECT_FAILS(SHAPE, "out_row_pointers has 2 entries, expected 3",
                 tartan_layout_get_row_lists(l, a, 2, b, 3));
    EXPECT_FAILS(SHAPE, "out_block_cols has 4 entries, expected 3 (blocks)",
                 tartan_layout_get_row_lists(l, a, 3, b, 4));
    EXPECT_FAILS(HANDLE, "out_row_pointers is NULL", tartan_layout_get_row_lists(l, nullptr, 3, b, 3));
    EXPECT_FAILS(HANDLE, "out_block_cols is NULL", tartan_layout_get_row_lists(l, a, 3, nullptr, 3));
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_layout_get_col_lists(nullptr, a, 4, b, 3, c, 3));
    EXPECT_FAILS(SHAPE, "out_col_pointers has 3 entries, expected 4",
                 tartan_layout_get_col_lists(l, a, 3, b, 3, c, 3));
    EXPECT_FAILS(SHAPE, "out_block_rows has 2", tartan_layout_get_col_lists(l, a, 4, b, 2, c, 3));
    EXPECT_FAILS(SHAPE, "out_ids has 2", tartan_layout_get_col_lists(l, a, 4, b, 3, c, 2));
    EXPECT_FAILS(HANDLE, "out_ids is NULL", tartan_layout_get_col_lists(l, a, 4, b, 3, nullptr, 3));
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_layout_get_coordinates(nullptr, a, 3, b, 3, c, 3));
    EXPECT_FAILS(SHAPE, "out_heads has 0", tartan_layout_get_coordinates(l, nullptr, 0, b, 3, c, 3));
    EXPECT_FAILS(SHAPE, "out_block_rows has 2", tartan_layout_get_coordinates(l, a, 3, b, 2, c, 3));
    EXPECT_FAILS(SHAPE, "out_block_cols has 2", tartan_layout_get_coordinates(l, a, 3, b, 3, c, 2));
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_layout_get_mask(nullptr, mask, 6));
    EXPECT_FAILS(SHAPE, "out_mask has 5 entries, expected 6", tartan_layout_get_mask(l, mask, 5));
    EXPECT_FAILS(HANDLE, "out_mask is NULL", tartan_layout_get_mask(l, nullptr, 6));
    for (int64_t *p : {a, b, c}) EXPECT_EQ(std::count(p, p + 8, -7), 8); // nothing was written
}

TEST(Find, AnswersAndRefusals) {
    Layout owner = from_mask({4, 4, 2, 2, 2}, {1, 0, 1, 1, 0, 1, 0, 0});
    tartan_layout *l = owner.get();
    Indices heads{0, 0, 0, 1, 1}, rows{0, 0, 1, 0, 1}, cols{0, 1, 1, 1, 0}, ids(5, -7);
    auto find = [&](const Indices &h, const Indices &r, const Indices &c, Indices &out) {
        return tartan_layout_find(
            l, places_of(h.empty() ? nullptr : h.data(), r.data(), c.data(), (int64_t)r.size()), out.data(),
            (int64_t)out.size());
    };
    ASSERT_OK(find(heads, rows, cols, ids));
    EXPECT_EQ(ids, (Indices{0, -1, 2, 3, -1}));
    Indices out(2, -7), zero{0, 0};
    EXPECT_FAILS(
        HANDLE, "layout is NULL",
        tartan_layout_find(nullptr, places_of(zero.data(), zero.data(), zero.data(), 2), out.data(), 2));
    EXPECT_FAILS(HANDLE, "out_ids is NULL",
                 tartan_layout_find(l, places_of(zero.data(), zero.data(), zero.data(), 2), nullptr, 2));
    EXPECT_FAILS(HANDLE, "rows is NULL",
                 tartan_layout_find(l, places_of(zero.data(), nullptr, zero.data(), 2), out.data(), 2));
    EXPECT_FAILS(SHAPE, "out_ids has -1 entries, expected 2 (places)",
                 tartan_layout_find(l, places_of(zero.data(), zero.data(), zero.data(), 2), out.data(), -1));
    EXPECT_FAILS(HANDLE, "places is NULL", tartan_layout_find(l, nullptr, out.data(), 2));
    EXPECT_FAILS(LAYOUT, "heads[1] is 2, expected 0 .. 1", find({0, 2}, zero, zero, out));
    EXPECT_FAILS(LAYOUT, "heads[0] is -1", find({-1, 0}, zero, zero, out));
    EXPECT_FAILS(LAYOUT, "rows[1] is 2", find(zero, {0, 2}, zero, out));
    EXPECT_FAILS(LAYOUT, "rows[1] is -1", find(zero, {0, -1}, zero, out));
    EXPECT_FAILS(LAYOUT, "cols[1] is 2", find(zero, zero, {0, 2}, out));
    EXPECT_FAILS(LAYOUT, "cols[1] is -9223372036854775808", find(zero, zero, {0, INT64_MIN}, out));
    EXPECT_EQ(out, (Indices{-7, -7})); // untouched, also the position that was fine
}

TEST(Find, OneBlock) {
    Layout l = from_mask({4, 4, 2, 2, 2}, {1, 0, 1, 1, 0, 1, 0, 0});
    EXPECT_EQ(tartan_layout_block(l.get(), 0, 1, 1), 2);
    EXPECT_EQ(tartan_layout_block(l.get(), 1, 0, 1), 3);
    EXPECT_EQ(tartan_layout_block(l.get(), 1, 1, 1), -1);
    const int64_t outside[][3] = {{-1, 0, 0}, {2, 0, 0}, {0, -1, 0}, {0, 2, 0}, {0, 0, -1}, {0, 0, 2}};
    for (const auto &at : outside) EXPECT_EQ(tartan_layout_block(l.get(), at[0], at[1], at[2]), -1);
    EXPECT_EQ(tartan_layout_block(nullptr, 0, 0, 0), -1);
    EXPECT_EQ(tartan_layout_block(foreign(), 0, 0, 0), -1);
}

TEST(Find, LooksInHeadZeroWithoutHeads) {
    Layout l = from_mask({4, 4, 2, 2, 2}, {1, 0, 1, 1, 0, 1, 0, 0});
    Indices rows{1, 0}, cols{1, 1}, ids(2);
    ASSERT_OK(tartan_layout_find(l.get(), places_of(nullptr, rows.data(), cols.data(), 2), ids.data(), 2));
    EXPECT_EQ(ids, (Indices{2, -1}));
    ASSERT_OK(tartan_layout_find(l.get(), places_of(nullptr, nullptr, nullptr, 0), nullptr, 0));
}

int64_t morton(int64_t row, int64_t col) {
    int64_t code = 0;
    for (int bit = 0; bit < 31; bit++)
        code |= (col >> bit & 1) << (2 * bit) | (row >> bit & 1) << (2 * bit + 1);
    return code;
}

TEST(Number, OrdersOfRandomLayouts) {
    std::mt19937_64 random(8);
    for (int i = 0; i < rounds(1000); i++) {
        Layout l = any_layout(random);
        Coordinates c = coordinates(l.get());
        int64_t n = tartan_layout_blocks(l.get());
        Indices expected((size_t)n), ids((size_t)n);
        for (int64_t k = 0; k < n; k++) expected[(size_t)k] = k;
        ASSERT_OK(tartan_layout_number(l.get(), TARTAN_BY_ROW, ids.data(), n));
        ASSERT_EQ(ids, expected);
        auto by = [&](auto key) {
            std::sort(expected.begin(), expected.end(), [&](int64_t a, int64_t b) {
                size_t x = (size_t)a, y = (size_t)b;
                return std::make_pair(c.heads[x], key(c.rows[x], c.cols[x])) <
                       std::make_pair(c.heads[y], key(c.rows[y], c.cols[y]));
            });
        };
        by([](int64_t row, int64_t col) { return std::make_pair(col, row); });
        ASSERT_OK(tartan_layout_number(l.get(), TARTAN_BY_COLUMN, ids.data(), n));
        ASSERT_EQ(ids, expected);
        by(morton);
        ASSERT_OK(tartan_layout_number(l.get(), TARTAN_BY_MORTON, ids.data(), n));
        ASSERT_EQ(ids, expected);
    }
}

TEST(Number, MortonOfAFourByFourGrid) {
    Layout l = pattern(square(4), "dense");
    Indices ids(16);
    ASSERT_OK(tartan_layout_number(l.get(), TARTAN_BY_MORTON, ids.data(), 16));
    EXPECT_EQ(ids, (Indices{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15}));
}

TEST(Number, Refusals) {
    Layout l = pattern(square(2), "dense");
    Indices ids(4, -7);
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_layout_number(nullptr, 0, ids.data(), 4));
    EXPECT_FAILS(ARGUMENT, "numbering is 3", tartan_layout_number(l.get(), 3, ids.data(), 4));
    EXPECT_FAILS(ARGUMENT, "numbering is -1", tartan_layout_number(l.get(), -1, ids.data(), 4));
    EXPECT_FAILS(SHAPE, "out_ids has 3", tartan_layout_number(l.get(), 0, ids.data(), 3));
    EXPECT_FAILS(HANDLE, "out_ids is NULL", tartan_layout_number(l.get(), 0, nullptr, 4));
    BRUTAL(tartan_layout_number(l.get(), TARTAN_BY_MORTON, ids.data(), 4), );
}

} // namespace
