// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "layouts.h"

using namespace tartan_test;

namespace {

TEST(Prune, DropsTheBlocksWithGateZero) {
    std::mt19937_64 random(30);
    for (int i = 0; i < rounds(1000); i++) {
        Layout a = any_layout(random);
        Mask mask = mask_of(a);
        std::vector<double> gates((size_t)tartan_layout_blocks(a.get()));
        const double choices[] = {0.0, -0.0, 1.0, -2.5, 5e-324, INFINITY};
        for (auto &g : gates) g = choices[random() % 6];
        size_t id = 0;
        for (auto &m : mask)
            if (m) m = gates[id++] != 0;
        tartan_layout *out = nullptr;
        ASSERT_OK(tartan_layout_prune(a.get(), gates.data(), (int64_t)gates.size(), &out));
        Layout b(out);
        ASSERT_EQ(mask_of(b), mask);
    }
}

TEST(Prune, Refusals) {
    Layout a = from_mask({4, 4, 2, 2, 1}, {1, 0, 0, 1});
    double gates[3] = {1, NAN, 1};
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_layout_prune(a.get(), gates, 2, nullptr));
    EXPECT_NO_LAYOUT(HANDLE, "layout is NULL", tartan_layout_prune(nullptr, gates, 2, &out));
    EXPECT_NO_LAYOUT(HANDLE, "layout is closed", tartan_layout_prune(foreign(), gates, 2, &out));
    EXPECT_NO_LAYOUT(HANDLE, "gates is NULL", tartan_layout_prune(a.get(), nullptr, 2, &out));
    EXPECT_NO_LAYOUT(SHAPE, "gates has 3 entries, expected 2 (blocks)",
                     tartan_layout_prune(a.get(), gates, 3, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "gates[1] is NaN", tartan_layout_prune(a.get(), gates, 2, &out));
}

TEST(Prune, EveryAllocationMayFail) {
    Layout a = from_mask({4, 4, 2, 2, 1}, {1, 0, 0, 1});
    double gates[2] = {1, 0};
    tartan_layout *out = nullptr;
    BRUTAL(tartan_layout_prune(a.get(), gates, 2, &out), tartan_layout_free(out));
}

// 1000 blocks pruned to 10%, as in the tests of openai/blocksparse.
TEST(KeepLargest, TenPercentOfAThousand) {
    Layout a = pattern({320, 800, 8, 8, 1}, "random", "density=0.25");
    ASSERT_EQ(tartan_layout_blocks(a.get()), 1000);
    std::vector<double> scores = random_values(1000, 31);
    tartan_layout *out = nullptr;
    ASSERT_OK(tartan_layout_keep_largest(a.get(), scores.data(), 1000, 100, &out));
    Layout b(out);
    EXPECT_EQ(tartan_layout_blocks(out), 100);
    std::vector<double> sorted = scores;
    std::sort(sorted.rbegin(), sorted.rend());
    Coordinates c = coordinates(out);
    Indices ids(100);
    ASSERT_OK(
        tartan_layout_find(a.get(), places_of(nullptr, c.rows.data(), c.cols.data(), 100), ids.data(), 100));
    for (int64_t id : ids) EXPECT_GE(scores[(size_t)id], sorted[99]);
}

TEST(KeepLargest, TiesGoToTheSmallerId) {
    Layout a = from_mask({1, 6, 1, 1, 1}, Mask(6, 1));
    double scores[6] = {1, 0.0, 1, -0.0, INFINITY, 1};
    for (int64_t count = 0; count <= 6; count++) {
        tartan_layout *out = nullptr;
        ASSERT_OK(tartan_layout_keep_largest(a.get(), scores, 6, count, &out));
        Indices order{4, 0, 2, 5, 1, 3};
        order.resize((size_t)count);
        std::sort(order.begin(), order.end());
        EXPECT_EQ(row_lists(out).cols, order);
        tartan_layout_free(out);
    }
}

TEST(KeepLargest, Refusals) {
    Layout a = from_mask({4, 4, 2, 2, 1}, {1, 0, 0, 1});
    double scores[3] = {1, 2, NAN};
    double nan[2] = {NAN, 1};
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_layout_keep_largest(a.get(), scores, 2, 1, nullptr));
    EXPECT_NO_LAYOUT(HANDLE, "layout is NULL", tartan_layout_keep_largest(nullptr, scores, 2, 1, &out));
    EXPECT_NO_LAYOUT(HANDLE, "scores is NULL", tartan_layout_keep_largest(a.get(), nullptr, 2, 1, &out));
    EXPECT_NO_LAYOUT(SHAPE, "scores has 3", tartan_layout_keep_largest(a.get(), scores, 3, 1, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "count is 3, expected 0 .. 2",
                     tartan_layout_keep_largest(a.get(), scores, 2, 3, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "count is -1", tartan_layout_keep_largest(a.get(), scores, 2, -1, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "scores[0] is NaN", tartan_layout_keep_largest(a.get(), nan, 2, 1, &out));
}

TEST(KeepLargest, EveryAllocationMayFail) {
    Layout a = from_mask({4, 4, 2, 2, 1}, {1, 0, 0, 1});
    double scores[2] = {1, 0};
    tartan_layout *out = nullptr;
    BRUTAL(tartan_layout_keep_largest(a.get(), scores, 2, 1, &out), tartan_layout_free(out));
}

TEST(Grow, IsTheUnion) {
    std::mt19937_64 random(32);
    for (int i = 0; i < rounds(1000); i++) {
        tartan_shape s = random_shape(random);
        Layout a = random_layout(s, 0.3, random()), b = random_layout(s, 0.3, random());
        Coordinates c = coordinates(b.get());
        size_t n = c.rows.size();
        for (size_t k = 0; k < n / 2; k++) { // some twice
            c.heads.push_back(c.heads[k]);
            c.rows.push_back(c.rows[k]);
            c.cols.push_back(c.cols[k]);
        }
        tartan_layout *grown = nullptr, *both = nullptr;
        ASSERT_OK(tartan_layout_union(a.get(), b.get(), &both));
        Layout u(both);
        int64_t count = (int64_t)c.rows.size();
        ASSERT_OK(tartan_layout_grow(a.get(), places_of(c.heads.data(), c.rows.data(), c.cols.data(), count),
                                     &grown));
        Layout g(grown);
        ASSERT_EQ(tartan_layout_equal(grown, both), 1);
    }
}

TEST(Grow, WithoutHeadsInEveryHead) {
    Layout a = from_mask({2, 2, 1, 1, 2}, {1, 0, 0, 0, 0, 0, 0, 1});
    Indices one{1}, zero{0};
    tartan_layout *out = nullptr;
    ASSERT_OK(tartan_layout_grow(a.get(), places_of(nullptr, one.data(), zero.data(), 1), &out));
    EXPECT_EQ(mask_of(out), (Mask{1, 0, 1, 0, 0, 0, 1, 1}));
    tartan_layout_free(out);
}

TEST(Grow, Refusals) {
    Layout a = from_mask({4, 4, 2, 2, 1}, {1, 0, 0, 1});
    Indices zero{0}, two{2};
    EXPECT_FAILS(HANDLE, "out is NULL",
                 tartan_layout_grow(a.get(), places_of(nullptr, zero.data(), zero.data(), 1), nullptr));
    EXPECT_NO_LAYOUT(HANDLE, "layout is NULL",
                     tartan_layout_grow(nullptr, places_of(nullptr, zero.data(), zero.data(), 1), &out));
    EXPECT_NO_LAYOUT(HANDLE, "rows is NULL",
                     tartan_layout_grow(a.get(), places_of(nullptr, nullptr, zero.data(), 1), &out));
    EXPECT_NO_LAYOUT(LAYOUT, "tartan_layout_grow: rows[0] is 2",
                     tartan_layout_grow(a.get(), places_of(nullptr, two.data(), zero.data(), 1), &out));
    EXPECT_NO_LAYOUT(LAYOUT, "cols[0] is 2",
                     tartan_layout_grow(a.get(), places_of(nullptr, zero.data(), two.data(), 1), &out));
    EXPECT_NO_LAYOUT(LAYOUT, "heads[0] is 2",
                     tartan_layout_grow(a.get(), places_of(two.data(), zero.data(), zero.data(), 1), &out));
}

TEST(Grow, EveryAllocationMayFail) {
    Layout a = from_mask({4, 4, 2, 2, 1}, {1, 0, 0, 1});
    Indices one{1}, zero{0};
    tartan_layout *out = nullptr;
    BRUTAL(tartan_layout_grow(a.get(), places_of(nullptr, one.data(), zero.data(), 1), &out),
           tartan_layout_free(out));
}

tartan_status move(const tartan_layout *l, const Indices &ids, const Indices &rows, const Indices &cols,
                   Indices &sources, tartan_layout **out) {
    return tartan_layout_move(l, ids.data(), (int64_t)ids.size(), places_of(rows, cols), sources.data(),
                              (int64_t)sources.size(), out);
}

// Facts of pytorch_block_sparse's block_replace. Its slots 0:(0,0) 1:(0,1) 2:(1,0) 3:(2,0) are our ids.
TEST(Move, ArraysOfPytorchBlockSparse) {
    tartan_layout *made = nullptr;
    ASSERT_OK(from_coordinates({128, 64, 32, 32, 1}, {}, {0, 1, 2, 0}, {0, 0, 0, 1}, &made));
    Layout l(made);
    Indices sources(4);
    tartan_layout *out = nullptr;
    ASSERT_OK(move(made, {0, 2, 1}, {3, 2, 1}, {1, 1, 1}, sources, &out));
    Layout moved(out);
    EXPECT_EQ(row_lists(out).pointers, (Indices{0, 0, 1, 3, 4}));
    EXPECT_EQ(row_lists(out).cols, (Indices{1, 0, 1, 1}));
    EXPECT_EQ(sources, (Indices{1, 3, 2, 0}));
    EXPECT_EQ(mask_of(moved), (Mask{0, 0, 0, 1, 1, 1, 0, 1}));

    Indices untouched(4, -7);
    EXPECT_NO_LAYOUT(LAYOUT, "block row 0, block column 1 of head 0 appears twice",
                     move(made, {0}, {0}, {1}, untouched, &out));
    EXPECT_EQ(untouched, Indices(4, -7));
}

TEST(Move, AllAtOnceSoBlocksMaySwap) {
    Layout l = from_mask({4, 4, 2, 2, 2}, {1, 0, 0, 1, 0, 1, 0, 0});
    Indices sources(3);
    tartan_layout *out = nullptr;
    ASSERT_OK(move(l.get(), {0, 1}, {1, 0}, {1, 0}, sources, &out));
    EXPECT_EQ(tartan_layout_equal(out, l.get()), 1);
    EXPECT_EQ(sources, (Indices{1, 0, 2}));
    tartan_layout_free(out);
    ASSERT_OK(move(l.get(), {2}, {1}, {0}, sources, &out)); // stays in its head
    EXPECT_EQ(mask_of(out), (Mask{1, 0, 0, 1, 0, 0, 1, 0}));
    tartan_layout_free(out);
    ASSERT_OK(move(l.get(), {}, {}, {}, sources, &out));
    EXPECT_EQ(sources, (Indices{0, 1, 2}));
    tartan_layout_free(out);
}

TEST(Move, BackAgainIsTheSame) {
    std::mt19937_64 random(33);
    for (int i = 0; i < rounds(1000); i++) {
        Layout l = any_layout(random, true);
        Layout target = random_layout(shape_of(l.get()), 1, 0);
        size_t all = mask_of(l).size(), n = (size_t)tartan_layout_blocks(l.get());
        Coordinates every = coordinates(target.get()), old = coordinates(l.get());
        std::vector<size_t> places(all);
        std::iota(places.begin(), places.end(), (size_t)0);
        std::shuffle(places.begin(), places.end(), random);
        Indices ids(n), rows(n), cols(n), sources(n), back(n), back_sources(n);
        for (size_t k = 0; k < n; k++) {
            ids[k] = (int64_t)k;
            rows[k] = every.rows[places[k]];
            cols[k] = every.cols[places[k]];
        }
        tartan_layout *out = nullptr, *again = nullptr;
        ASSERT_OK(move(l.get(), ids, rows, cols, sources, &out));
        Layout moved(out);
        Coordinates now = coordinates(out);
        Indices back_rows(n), back_cols(n);
        for (size_t k = 0; k < n; k++) {
            ASSERT_EQ(now.rows[k], rows[(size_t)sources[k]]);
            ASSERT_EQ(now.cols[k], cols[(size_t)sources[k]]);
            back_rows[k] = old.rows[(size_t)sources[k]];
            back_cols[k] = old.cols[(size_t)sources[k]];
        }
        ASSERT_OK(move(out, ids, back_rows, back_cols, back_sources, &again));
        Layout returned(again);
        ASSERT_EQ(tartan_layout_equal(again, l.get()), 1);
    }
}

TEST(Move, GoesToOtherHeads) {
    Layout l = from_mask({4, 4, 2, 2, 2}, {1, 0, 0, 0, 0, 1, 0, 0});
    const int64_t ids[] = {0, 1}, heads[] = {1, 0}, rows[] = {1, 0}, cols[] = {0, 1};
    Indices sources(2);
    tartan_layout *out = nullptr;
    ASSERT_OK(tartan_layout_move(l.get(), ids, 2, places_of(heads, rows, cols, 2), sources.data(), 2, &out));
    Layout moved(out);
    EXPECT_EQ(mask_of(out), (Mask{0, 1, 0, 0, 0, 0, 1, 0}));
    EXPECT_EQ(sources, (Indices{1, 0}));
}

TEST(Move, Refusals) {
    Layout owner = from_mask({4, 4, 2, 2, 1}, {1, 0, 0, 1});
    tartan_layout *l = owner.get();
    Indices s(2, -7), three(3, -7), zero{0};
    EXPECT_FAILS(HANDLE, "out is NULL", move(l, {0}, {0}, {1}, s, nullptr));
    EXPECT_NO_LAYOUT(HANDLE, "layout is NULL", move(nullptr, {0}, {0}, {1}, s, &out));
    EXPECT_NO_LAYOUT(HANDLE, "layout is closed", move(foreign(), {0}, {0}, {1}, s, &out));
    EXPECT_NO_LAYOUT(HANDLE, "ids is NULL",
                     tartan_layout_move(l, nullptr, 1, places_of(zero, zero), s.data(), 2, &out));
    EXPECT_NO_LAYOUT(
        HANDLE, "out_sources is NULL",
        tartan_layout_move(l, nullptr, 0, places_of(nullptr, nullptr, nullptr, 0), nullptr, 2, &out));
    EXPECT_NO_LAYOUT(SHAPE, "ids has -1 entries, expected 1 (places)",
                     tartan_layout_move(l, s.data(), -1, places_of(zero, zero), s.data(), 2, &out));
    EXPECT_NO_LAYOUT(HANDLE, "places is NULL", tartan_layout_move(l, nullptr, 0, nullptr, s.data(), 2, &out));
    EXPECT_NO_LAYOUT(SHAPE, "out_sources has 3 entries, expected 2", move(l, {0}, {0}, {1}, three, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "ids[0] is 2, expected 0 .. 1", move(l, {2}, {0}, {1}, s, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "ids[0] is -1", move(l, {-1}, {0}, {1}, s, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "ids[1] is 0 again", move(l, {0, 0}, {0, 1}, {1, 0}, s, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "rows[0] is 2, expected 0 .. 1", move(l, {0}, {2}, {0}, s, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "cols[0] is -1", move(l, {0}, {0}, {-1}, s, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "appears twice", move(l, {0, 1}, {0, 0}, {1, 1}, s, &out));
    EXPECT_EQ(s, Indices(2, -7));
}

TEST(Move, EveryAllocationMayFail) {
    Layout l = from_mask({4, 4, 2, 2, 1}, {1, 0, 0, 1});
    Indices sources(2);
    tartan_layout *out = nullptr;
    BRUTAL(move(l.get(), {0}, {1}, {0}, sources, &out), tartan_layout_free(out));
}

TEST(Reblock, CoversTheSameElements) {
    std::mt19937_64 random(34);
    for (int i = 0; i < rounds(1000); i++) {
        Layout l = any_layout(random);
        tartan_shape s = shape_of(l.get()), t = s;
        t.block_rows = 1 + (int64_t)(random() % 12);
        t.block_cols = 1 + (int64_t)(random() % 12);
        tartan_layout *out = nullptr;
        ASSERT_OK(tartan_layout_reblock(l.get(), t.block_rows, t.block_cols, &out));
        Layout b(out);
        Mask mask = mask_of(l), expected((size_t)(t.heads * grid_rows(t) * grid_cols(t)), 0);
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t r = 0; r < s.rows; r++)
                for (int64_t c = 0; c < s.cols; c++)
                    if (mask[(size_t)((h * grid_rows(s) + r / s.block_rows) * grid_cols(s) +
                                      c / s.block_cols)])
                        expected[(size_t)((h * grid_rows(t) + r / t.block_rows) * grid_cols(t) +
                                          c / t.block_cols)] = 1;
        ASSERT_EQ(mask_of(b), expected);
    }
}

TEST(Reblock, FinerAndBackIsTheSame) {
    Layout l = random_layout({100, 90, 12, 8, 2}, 0.4, 35);
    tartan_layout *fine = nullptr, *back = nullptr;
    ASSERT_OK(tartan_layout_reblock(l.get(), 1, 1, &fine));
    EXPECT_EQ(tartan_layout_blocks(fine), tartan_layout_elements(l.get()));
    ASSERT_OK(tartan_layout_reblock(fine, 12, 8, &back));
    EXPECT_EQ(tartan_layout_equal(back, l.get()), 1);
    tartan_layout_free(fine);
    tartan_layout_free(back);
}

TEST(Reblock, Refusals) {
    Layout l = pattern(square(4), "dense");
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_layout_reblock(l.get(), 2, 2, nullptr));
    EXPECT_NO_LAYOUT(HANDLE, "layout is NULL", tartan_layout_reblock(nullptr, 2, 2, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "tartan_layout_reblock: shape has blocks of 0 x 2",
                     tartan_layout_reblock(l.get(), 0, 2, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "blocks of 2 x 257", tartan_layout_reblock(l.get(), 2, 257, &out));
}

TEST(Reblock, EveryAllocationMayFail) {
    Layout l = pattern({8, 8, 2, 2, 1}, "causal");
    tartan_layout *out = nullptr;
    BRUTAL(tartan_layout_reblock(l.get(), 3, 3, &out), tartan_layout_free(out));
}

} // namespace
