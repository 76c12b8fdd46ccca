// SPDX-License-Identifier: Apache-2.0
// Layouts of blocks of different sizes.
#include <algorithm>
#include <numeric>

#include "layouts.h"

extern "C" {
#include "layout/layout.h"
}

using namespace tartan_test;

namespace {

struct Bounds {
    Indices rows, cols;
};
Bounds bounds_of(const Layout &l) {
    Bounds b{Indices((size_t)tartan_layout_grid_rows(l.get()) + 1),
             Indices((size_t)tartan_layout_grid_cols(l.get()) + 1)};
    EXPECT_OK(tartan_layout_get_boundaries(l.get(), b.rows.data(), (int64_t)b.rows.size(), b.cols.data(),
                                           (int64_t)b.cols.size()));
    return b;
}
int64_t largest(const Indices &bounds) {
    int64_t most = 1;
    for (size_t i = 1; i < bounds.size(); i++) most = std::max(most, bounds[i] - bounds[i - 1]);
    return most;
}

// Which elements are stored, [heads, rows, cols], through the public lists alone.
Mask elements_of(const Layout &l) {
    const tartan_shape s = shape_of(l.get());
    const Bounds b = bounds_of(l);
    const Coordinates at = coordinates(l.get());
    Mask all((size_t)(s.heads * s.rows * s.cols));
    for (size_t id = 0; id < at.rows.size(); id++)
        for (int64_t r = b.rows[(size_t)at.rows[id]]; r < b.rows[(size_t)at.rows[id] + 1]; r++)
            for (int64_t c = b.cols[(size_t)at.cols[id]]; c < b.cols[(size_t)at.cols[id] + 1]; c++)
                all[(size_t)((at.heads[id] * s.rows + r) * s.cols + c)] = 1;
    return all;
}

// A random layout; most have blocks of different sizes.
Layout any_variable(std::mt19937_64 &random, int64_t rows = -1, int64_t cols = -1, int64_t heads = -1) {
    rows = rows < 0 ? (int64_t)(random() % 9) : rows;
    cols = cols < 0 ? (int64_t)(random() % 9) : cols;
    heads = heads < 0 ? 1 + (int64_t)(random() % 3) : heads;
    return with_boundaries(random_layout({rows, cols, 1, 1, heads}, (double)(random() % 5) / 4, random()),
                           random_bounds(random, rows, 7), random_bounds(random, cols, 5));
}
bool same(const Layout &a, const Layout &b) {
    return tartan_layout_equal(a.get(), b.get()) == 1;
}
std::string identity(const Layout &l) {
    return tartan_layout_identity(l.get());
}

TEST(Boundaries, AreKeptAndSayTheSizes) {
    std::mt19937_64 random(1);
    for (int round = 0; round < rounds(300); round++) {
        const int64_t rows = (int64_t)(random() % 12), cols = (int64_t)(random() % 12),
                      heads = 1 + (int64_t)(random() % 3);
        const Layout plain = random_layout({rows, cols, 1, 1, heads}, 0.5, random());
        const Indices r = random_bounds(random, rows, 9), c = random_bounds(random, cols, 9);
        const Layout l = with_boundaries(plain, r, c);
        const Bounds got = bounds_of(l);
        ASSERT_EQ(got.rows, r);
        ASSERT_EQ(got.cols, c);
        const tartan_shape s = shape_of(l.get());
        ASSERT_EQ(s.rows, r.back());
        ASSERT_EQ(s.cols, c.back());
        ASSERT_EQ(s.block_rows, largest(r));
        ASSERT_EQ(s.block_cols, largest(c));
        ASSERT_EQ(mask_of(l), mask_of(plain));
        const Mask all = elements_of(l);
        ASSERT_EQ(tartan_layout_elements(l.get()), std::accumulate(all.begin(), all.end(), (int64_t)0));
        ASSERT_EQ(tartan_layout_density(l.get()), tartan_layout_density(plain.get()));
        for (int64_t row = 0; row < s.rows; row++) {
            const int64_t i = tartan_i_block_row_at(l.get(), row);
            ASSERT_TRUE(r[(size_t)i] <= row && row < r[(size_t)i + 1]);
        }
        ASSERT_TRUE(same(with_boundaries(l, {}, {}), l));
    }
}

TEST(Boundaries, OfOneSizeMakeAnOrdinaryLayout) {
    const Layout plain = from_mask({3, 2, 1, 1, 1}, {1, 0, 0, 1, 1, 1});
    const Layout even = with_boundaries(plain, {0, 4, 8, 10}, {0, 5, 10});
    EXPECT_EQ(0, tartan_layout_is_variable(even.get()));
    EXPECT_TRUE(same(even, from_mask({10, 10, 4, 5, 1}, {1, 0, 0, 1, 1, 1})));
    EXPECT_EQ(bounds_of(even).rows, (Indices{0, 4, 8, 10}));
    const Layout uneven = with_boundaries(plain, {0, 4, 8, 13}, {});
    EXPECT_EQ(1, tartan_layout_is_variable(uneven.get()));
    EXPECT_EQ(bounds_of(uneven).cols, (Indices{0, 1, 2}));
    EXPECT_TRUE(same(with_boundaries(uneven, {0, 4, 8, 10}, {0, 5, 10}), even));
    EXPECT_EQ(-1, tartan_layout_is_variable(nullptr));
    EXPECT_EQ(-1, tartan_layout_is_variable(foreign()));
}

// The format of the bytes never changes.
TEST(Boundaries, AreInTheIdentity) {
    const Layout plain = from_mask({3, 2, 1, 1, 1}, {1, 0, 0, 1, 1, 1});
    const Layout l = with_boundaries(plain, {0, 1, 5, 7}, {0, 3, 4});
    EXPECT_EQ("fdb5f26bed1343923be38056be5d682f", identity(l));
    EXPECT_EQ(identity(l), identity(with_boundaries(plain, {0, 1, 5, 7}, {0, 3, 4})));
    for (const Bounds &b : {Bounds{{0, 2, 5, 7}, {0, 3, 4}}, Bounds{{0, 1, 5, 7}, {0, 3, 5}},
                            Bounds{{0, 1, 5, 8}, {0, 3, 4}}}) {
        EXPECT_NE(identity(l), identity(with_boundaries(plain, b.rows, b.cols)));
        EXPECT_FALSE(same(l, with_boundaries(plain, b.rows, b.cols)));
    }
}

using Binary = tartan_status (*)(const tartan_layout *, const tartan_layout *, tartan_layout **);
Layout apply(Binary op, const Layout &a, const Layout &b) {
    tartan_layout *out = nullptr;
    EXPECT_OK(op(a.get(), b.get(), &out));
    return Layout(out);
}

TEST(Boundaries, SetAlgebraIsThatOfElements) {
    std::mt19937_64 random(2);
    for (int round = 0; round < rounds(200); round++) {
        const Layout a = any_variable(random);
        const Bounds bounds = bounds_of(a);
        const tartan_shape frame = {(int64_t)bounds.rows.size() - 1, (int64_t)bounds.cols.size() - 1, 1, 1,
                                    shape_of(a.get()).heads};
        const Layout b = with_boundaries(random_layout(frame, 0.5, random()), bounds.rows, bounds.cols);
        const Mask x = elements_of(a), y = elements_of(b);
        Mask both(x.size()), any(x.size()), minus(x.size());
        for (size_t k = 0; k < x.size(); k++)
            both[k] = x[k] & y[k], any[k] = x[k] | y[k], minus[k] = x[k] & !y[k];
        ASSERT_EQ(elements_of(apply(tartan_layout_union, a, b)), any);
        ASSERT_EQ(elements_of(apply(tartan_layout_intersection, a, b)), both);
        ASSERT_EQ(elements_of(apply(tartan_layout_difference, a, b)), minus);
        ASSERT_TRUE(same(apply(tartan_layout_union, a, a), a));
    }
    const Layout plain = from_mask({2, 2, 1, 1, 1}, {1, 0, 0, 1});
    const Layout a = with_boundaries(plain, {0, 1, 4}, {0, 2, 3}),
                 b = with_boundaries(plain, {0, 1, 4}, {0, 1, 3});
    EXPECT_NO_LAYOUT(SHAPE, "b has other block boundaries than a",
                     tartan_layout_union(a.get(), b.get(), &out));
}

TEST(Boundaries, MoveWithTransposePermutationAndSlice) {
    std::mt19937_64 random(3);
    for (int round = 0; round < rounds(200); round++) {
        const Layout a = any_variable(random);
        const tartan_shape s = shape_of(a.get());
        const Bounds bounds = bounds_of(a);
        const Mask x = elements_of(a);
        tartan_layout *out = nullptr;
        ASSERT_OK(tartan_layout_transpose(a.get(), &out));
        const Layout t(out);
        const Mask turned = elements_of(t);
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t r = 0; r < s.rows; r++)
                for (int64_t c = 0; c < s.cols; c++)
                    ASSERT_EQ(x[(size_t)((h * s.rows + r) * s.cols + c)],
                              turned[(size_t)((h * s.cols + c) * s.rows + r)]);
        ASSERT_OK(tartan_layout_transpose(t.get(), &out));
        ASSERT_TRUE(same(Layout(out), a));

        Indices order(bounds.rows.size() - 1);
        std::iota(order.begin(), order.end(), 0);
        // of a layout that happens to have one size, the last block may be smaller and must stay
        if (tartan_layout_is_variable(a.get())) std::shuffle(order.begin(), order.end(), random);
        ASSERT_OK(tartan_layout_permute(a.get(), order.data(), (int64_t)order.size(), nullptr, 0, &out));
        const Layout p(out);
        const Mask moved = elements_of(p);
        int64_t row = 0;
        for (const int64_t i : order)
            for (int64_t r = bounds.rows[(size_t)i]; r < bounds.rows[(size_t)i + 1]; r++, row++)
                for (int64_t h = 0; h < s.heads; h++)
                    for (int64_t c = 0; c < s.cols; c++)
                        ASSERT_EQ(x[(size_t)((h * s.rows + r) * s.cols + c)],
                                  moved[(size_t)((h * s.rows + row) * s.cols + c)]);

        const int64_t first = (int64_t)(random() % bounds.rows.size()),
                      left = (int64_t)(random() % bounds.cols.size());
        const int64_t end = first + (int64_t)(random() % (bounds.rows.size() - (size_t)first)),
                      right = left + (int64_t)(random() % (bounds.cols.size() - (size_t)left));
        ASSERT_OK(tartan_layout_slice(a.get(), first, end, left, right, &out));
        const Layout part(out);
        const tartan_shape ps = shape_of(part.get());
        const Mask cut = elements_of(part);
        ASSERT_EQ(ps.rows, bounds.rows[(size_t)end] - bounds.rows[(size_t)first]);
        ASSERT_EQ(ps.cols, bounds.cols[(size_t)right] - bounds.cols[(size_t)left]);
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t r = 0; r < ps.rows; r++)
                for (int64_t c = 0; c < ps.cols; c++)
                    ASSERT_EQ(x[(size_t)((h * s.rows + r + bounds.rows[(size_t)first]) * s.cols + c +
                                         bounds.cols[(size_t)left])],
                              cut[(size_t)((h * ps.rows + r) * ps.cols + c)]);
    }
}

TEST(Boundaries, StayWhenBlocksComeAndGo) {
    std::mt19937_64 random(4);
    for (int round = 0; round < rounds(200); round++) {
        const Layout a = any_variable(random);
        const Bounds bounds = bounds_of(a);
        const int64_t blocks = tartan_layout_blocks(a.get());
        const std::vector<double> scores = random_values((size_t)blocks, random());
        tartan_layout *out = nullptr;
        ASSERT_OK(tartan_layout_keep_largest(a.get(), scores.data(), blocks, blocks / 2, &out));
        const Layout kept(out);
        ASSERT_EQ(bounds_of(kept).rows, bounds.rows);
        ASSERT_EQ(tartan_layout_blocks(kept.get()), blocks / 2);
        ASSERT_TRUE(same(apply(tartan_layout_union, a, kept), a));
        std::vector<double> gates(scores);
        for (auto &g : gates) g = g > 0;
        ASSERT_OK(tartan_layout_prune(a.get(), gates.data(), blocks, &out));
        const Layout pruned(out);
        ASSERT_TRUE(same(apply(tartan_layout_intersection, a, pruned), pruned));
        const Coordinates at = coordinates(a.get());
        ASSERT_OK(tartan_layout_grow(
            pruned.get(), places_of(at.heads.data(), at.rows.data(), at.cols.data(), blocks), &out));
        ASSERT_TRUE(same(Layout(out), a));
        // blocks of one size that cover them
        ASSERT_OK(tartan_layout_reblock(a.get(), 3, 4, &out));
        const Layout even(out);
        ASSERT_EQ(0, tartan_layout_is_variable(even.get()));
        const Mask x = elements_of(a), y = elements_of(even);
        const tartan_shape s = shape_of(a.get()), g = shape_of(even.get());
        Mask wanted((size_t)tartan_layout_blocks(even.get()));
        for (size_t k = 0; k < x.size(); k++) {
            ASSERT_LE(x[k], y[k]);
            const int64_t c = (int64_t)k % s.cols, r = (int64_t)k / s.cols % s.rows,
                          h = (int64_t)k / s.cols / s.rows;
            if (x[k])
                wanted[(size_t)tartan_layout_block(even.get(), h, r / g.block_rows, c / g.block_cols)] = 1;
        }
        ASSERT_EQ(wanted, Mask(wanted.size(), 1));
    }
}

TEST(Boundaries, BadListsAreRefused) {
    const Layout plain = from_mask({2, 3, 1, 1, 1}, {1, 0, 0, 1, 1, 1});
    const auto rows = [&](const Indices &bounds, tartan_layout **out) {
        return tartan_layout_with_boundaries(plain.get(), bounds.data(), (int64_t)bounds.size(), nullptr, 0,
                                             out);
    };
    const auto cols = [&](const Indices &bounds, tartan_layout **out) {
        return tartan_layout_with_boundaries(plain.get(), nullptr, 0, bounds.data(), (int64_t)bounds.size(),
                                             out);
    };
    EXPECT_NO_LAYOUT(SHAPE, "row_bounds has 2 entries, expected 3 (blocks of this side + 1)",
                     rows({0, 2}, &out));
    EXPECT_NO_LAYOUT(SHAPE, "col_bounds has 3 entries, expected 4", cols({0, 2, 3}, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "row_bounds begins with 1, expected 0", rows({1, 2, 3}, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "row_bounds[2] is 2 after 2, expected blocks of 1 .. 256",
                     rows({0, 2, 2}, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "col_bounds[3] is 3 after 5", cols({0, 2, 5, 3}, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "row_bounds[1] is 257 after 0", rows({0, 257, 258}, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "expected blocks of 1 .. 256", rows({0, INT64_MIN, INT64_MAX}, &out));
    EXPECT_NO_LAYOUT(HANDLE, "row_bounds is NULL",
                     tartan_layout_with_boundaries(plain.get(), nullptr, 3, nullptr, 0, &out));
    EXPECT_NO_LAYOUT(HANDLE, "layout is NULL",
                     tartan_layout_with_boundaries(nullptr, nullptr, 0, nullptr, 0, &out));
    EXPECT_FAILS(HANDLE, "out is NULL",
                 tartan_layout_with_boundaries(plain.get(), nullptr, 0, nullptr, 0, nullptr));
    int64_t numbers[4];
    EXPECT_FAILS(SHAPE, "out_row_bounds has 4 entries, expected 3 (block rows + 1)",
                 tartan_layout_get_boundaries(plain.get(), numbers, 4, numbers, 4));
    EXPECT_FAILS(SHAPE, "out_col_bounds has 3 entries, expected 4 (block columns + 1)",
                 tartan_layout_get_boundaries(plain.get(), numbers, 3, numbers, 3));
    EXPECT_FAILS(HANDLE, "layout is closed", tartan_layout_get_boundaries(foreign(), numbers, 3, numbers, 4));
}

// What has no rule for such layouts says so.
TEST(Boundaries, OtherFunctionsRefuseThem) {
    const Layout l = with_boundaries(from_mask({2, 2, 1, 1, 1}, {1, 1, 1, 1}), {0, 1, 4}, {0, 1, 4});
    const char *text = "layout has blocks of different sizes, which are not supported here";
    const int64_t ids[] = {0}, rows[] = {0}, cols[] = {0};
    int64_t sources[4], order[2];
    const double scores[4] = {1, 2, 3, 4};
    EXPECT_NO_LAYOUT(
        UNSUPPORTED, text,
        tartan_layout_move(l.get(), ids, 1, places_of(nullptr, rows, cols, 1), sources, 4, &out));
    EXPECT_NO_LAYOUT(UNSUPPORTED, text,
                     tartan_layout_evolve(l.get(), scores, 4, nullptr, 0, 0, nullptr, &out));
    tartan_block_mask *mask = nullptr;
    const int64_t offsets[] = {0, 4};
    EXPECT_FAILS(UNSUPPORTED, text,
                 tartan_block_mask_from_sequences(l.get(), offsets, 2, nullptr, 0, nullptr, &mask));
    EXPECT_FAILS(UNSUPPORTED, text, tartan_block_mask_from_bits(l.get(), nullptr, 0, &mask));
    EXPECT_FAILS(UNSUPPORTED, text,
                 tartan_block_mask_from_rule(
                     l.get(), [](void *, int64_t, int64_t, int64_t) { return 1; }, nullptr, &mask));
    (void)order;
}

TEST(Boundaries, PicturesHaveTheSizesOfBlocks) {
    const Layout l = with_boundaries(from_mask({2, 3, 1, 1, 1}, {1, 1, 0, 0, 0, 1}), {0, 2, 5}, {0, 1, 4, 6});
    char *text = nullptr;
    ASSERT_OK(tartan_layout_svg(l.get(), 100, &text));
    const std::string svg = text;
    tartan_text_free(text);
    EXPECT_NE(svg.find("viewBox=\"0 0 6 5\""), std::string::npos) << svg;
    EXPECT_NE(svg.find("M0 0h4v2h-4zM4 2h2v3h-2z"), std::string::npos) << svg;
    EXPECT_NE(svg.find("5 x 6, blocks up to 3 x 3"), std::string::npos) << svg;
}

TEST(Boundaries, SurviveEveryFailedAllocation) {
    const Layout plain = from_mask({3, 2, 1, 1, 1}, {1, 0, 0, 1, 1, 1});
    const Indices rows = {0, 1, 5, 7}, cols = {0, 3, 4}, order = {2, 0, 1};
    const Layout l = with_boundaries(plain, rows, cols);
    tartan_layout *out = nullptr;
    {
        BRUTAL(tartan_layout_with_boundaries(plain.get(), rows.data(), 4, cols.data(), 3, &out),
               tartan_layout_free(out));
    }
    { BRUTAL(tartan_layout_union(l.get(), l.get(), &out), tartan_layout_free(out)); }
    { BRUTAL(tartan_layout_transpose(l.get(), &out), tartan_layout_free(out)); }
    { BRUTAL(tartan_layout_permute(l.get(), order.data(), 3, nullptr, 0, &out), tartan_layout_free(out)); }
    { BRUTAL(tartan_layout_slice(l.get(), 0, 2, 0, 2, &out), tartan_layout_free(out)); }
    const double gates[] = {1, 0, 1, 1};
    { BRUTAL(tartan_layout_prune(l.get(), gates, 4, &out), tartan_layout_free(out)); }
    const int64_t zero[] = {0}, one[] = {1};
    { BRUTAL(tartan_layout_grow(l.get(), places_of(nullptr, zero, one, 1), &out), tartan_layout_free(out)); }
    int64_t *sources = nullptr;
    {
        BRUTAL(tartan_i_layout_permute(l.get(), order.data(), 3, nullptr, 0, &sources, &out),
               (tartan_layout_free(out), tartan_i_free(sources)));
    }
}

} // namespace
