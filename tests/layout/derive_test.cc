// SPDX-License-Identifier: Apache-2.0
// Layouts and masks cut to shorter lengths, with other heads, of padded sequences; layouts from rules.
#include "layouts.h"

extern "C" {
#include "layout/block_mask.h"
}

using namespace tartan_test;

namespace {

struct FreeMask {
    void operator()(tartan_block_mask *p) const { tartan_block_mask_free(p); }
};
using BlockMask = std::unique_ptr<tartan_block_mask, FreeMask>;

// Which elements of a matrix count, by head, row and column.
using Rule = std::function<bool(int64_t, int64_t, int64_t)>;
int32_t keep(void *user, int64_t head, int64_t row, int64_t col) {
    return (*(const Rule *)user)(head, row, col) ? 5 : 0;
}

template <class Call> Layout made(Call call) {
    tartan_layout *out = nullptr;
    EXPECT_OK(call(&out));
    return Layout(out);
}
template <class Call> BlockMask made_mask(Call call) {
    tartan_block_mask *out = nullptr;
    EXPECT_OK(call(&out));
    return BlockMask(out);
}
Layout layout_of(const tartan_shape &s, Rule rule) {
    return made([&](tartan_layout **out) { return tartan_layout_from_rule(&s, keep, &rule, out); });
}
BlockMask mask_of_rule(const Layout &layout, Rule rule) {
    return made_mask(
        [&](tartan_block_mask **out) { return tartan_block_mask_from_rule(layout.get(), keep, &rule, out); });
}

bool is_stored(const tartan_layout *l, int64_t head, int64_t row, int64_t col) {
    return tartan_layout_block(l, head, row / l->shape.block_rows, col / l->shape.block_cols) >= 0;
}
bool counts(const tartan_block_mask *m, int64_t head, int64_t row, int64_t col) {
    const tartan_shape &s = m->layout->shape;
    const int64_t id = tartan_layout_block(m->layout, head, row / s.block_rows, col / s.block_cols);
    return id >= 0 && tartan_i_block_mask_keeps(m, id, row % s.block_rows, col % s.block_cols);
}
void expect_elements(const tartan_block_mask *m, const Rule &rule) {
    const tartan_shape &s = m->layout->shape;
    int64_t kept = 0;
    for (int64_t h = 0; h < s.heads; h++)
        for (int64_t i = 0; i < s.rows; i++)
            for (int64_t j = 0; j < s.cols; j++) {
                const bool wanted = is_stored(m->layout, h, i, j) && rule(h, i, j);
                kept += wanted;
                ASSERT_EQ(wanted, counts(m, h, i, j)) << h << " " << i << " " << j;
            }
    EXPECT_EQ(kept, tartan_block_mask_kept(m));
}

const tartan_shape kShapes[] = {{20, 70, 8, 33, 2}, {64, 64, 16, 32, 1}, {5, 3, 8, 8, 1}, {0, 4, 1, 1, 3}};

const Rule kRule = [](int64_t h, int64_t i, int64_t j) { return (h + i * 3 + j) % 5 < 2 && j < 3 * i; };

} // namespace

TEST(Derive, LayoutsFromRules) {
    for (const tartan_shape &s : kShapes) {
        const Layout layout = layout_of(s, kRule);
        EXPECT_EQ(mask_where(s,
                             [&](int64_t h, int64_t r, int64_t c) {
                                 for (int64_t i = r * s.block_rows;
                                      i < std::min(s.rows, (r + 1) * s.block_rows); i++)
                                     for (int64_t j = c * s.block_cols;
                                          j < std::min(s.cols, (c + 1) * s.block_cols); j++)
                                         if (kRule(h, i, j)) return true;
                                 return false;
                             }),
                  mask_of(layout));
        expect_elements(mask_of_rule(layout, kRule).get(), kRule);
    }
}

TEST(Derive, CutsLayoutsAndMasks) {
    for (const tartan_shape &s : kShapes) {
        const Layout layout = random_layout(s, 0.7, 5);
        const BlockMask mask = mask_of_rule(layout, kRule);
        for (int64_t rows : {s.rows, s.rows / 2, (s.rows + 1) / 3, INT64_C(0)})
            for (int64_t cols : {s.cols, s.cols / 2, (s.cols + 1) / 3, INT64_C(0)}) {
                const Layout part = made(
                    [&](tartan_layout **out) { return tartan_layout_cut(layout.get(), rows, cols, out); });
                tartan_shape wanted = s;
                wanted.rows = rows;
                wanted.cols = cols;
                EXPECT_EQ(mask_where(wanted,
                                     [&](int64_t h, int64_t r, int64_t c) {
                                         return tartan_layout_block(layout.get(), h, r, c) >= 0;
                                     }),
                          mask_of(part));
                expect_elements(made_mask([&](tartan_block_mask **out) {
                                    return tartan_block_mask_project(mask.get(), part.get(), out);
                                }).get(),
                                kRule);
            }
    }
}

TEST(Derive, TakesHeads) {
    const tartan_shape s = {20, 70, 8, 33, 3};
    const Layout layout = random_layout(s, 0.5, 4);
    const Indices heads = {2, 0, 0, 1, 2, 2};
    const Layout taken = made([&](tartan_layout **out) {
        return tartan_layout_take_heads(layout.get(), heads.data(), (int64_t)heads.size(), out);
    });
    tartan_shape wanted = s;
    wanted.heads = (int64_t)heads.size();
    EXPECT_EQ(mask_where(wanted,
                         [&](int64_t h, int64_t r, int64_t c) {
                             return tartan_layout_block(layout.get(), heads[(size_t)h], r, c) >= 0;
                         }),
              mask_of(taken));
}

TEST(Derive, ProjectsMasksOntoOtherLayouts) {
    const tartan_shape s = {20, 70, 8, 33, 2};
    const Layout layout = random_layout(s, 0.7, 4);
    const BlockMask mask = mask_of_rule(layout, kRule);
    tartan_shape longer = {30, 90, 8, 33, 6}; // more rows, columns and heads
    const Layout other = random_layout(longer, 0.8, 5);
    const BlockMask projected = made_mask(
        [&](tartan_block_mask **out) { return tartan_block_mask_project(mask.get(), other.get(), out); });
    expect_elements(projected.get(), [&](int64_t h, int64_t i, int64_t j) {
        return i < s.rows && j < s.cols && counts(mask.get(), h % 2, i, j);
    });
    const BlockMask full = mask_of_rule(layout, [](int64_t, int64_t, int64_t) { return true; });
    expect_elements(made_mask([&](tartan_block_mask **out) {
                        return tartan_block_mask_project(full.get(), other.get(), out);
                    }).get(),
                    [&](int64_t h, int64_t i, int64_t j) {
                        return i < s.rows && j < s.cols && is_stored(layout.get(), h % 2, i, j);
                    });
}

TEST(Derive, LengthsOfABatch) {
    for (const tartan_shape &s : kShapes) {
        const Layout layout = random_layout(s, 0.7, 5);
        const Indices lengths = {s.cols, 0, s.cols / 2, (s.cols + 1) / 3, 1};
        const Layout batch = made([&](tartan_layout **out) {
            return tartan_layout_from_lengths(layout.get(), lengths.data(), (int64_t)lengths.size(), out);
        });
        tartan_shape wanted = s;
        wanted.heads *= (int64_t)lengths.size();
        EXPECT_EQ(mask_where(wanted,
                             [&](int64_t h, int64_t r, int64_t c) {
                                 return tartan_layout_block(layout.get(), h % s.heads, r, c) >= 0 &&
                                        c * s.block_cols < lengths[(size_t)(h / s.heads)];
                             }),
                  mask_of(batch));
        const Rule rule = [&](int64_t h, int64_t, int64_t j) { return j < lengths[(size_t)(h / s.heads)]; };
        const BlockMask mask = made_mask([&](tartan_block_mask **out) {
            return tartan_block_mask_from_lengths(batch.get(), lengths.data(), (int64_t)lengths.size(), out);
        });
        expect_elements(mask.get(), rule);
        EXPECT_LE(tartan_block_mask_stored(mask.get()),
                  (int64_t)lengths.size() * 2); // last blocks, of two heights
        const Layout untrimmed = random_layout(wanted, 0.7, 6);
        expect_elements(made_mask([&](tartan_block_mask **out) {
                            return tartan_block_mask_from_lengths(untrimmed.get(), lengths.data(),
                                                                  (int64_t)lengths.size(), out);
                        }).get(),
                        rule);
    }
}

TEST(Derive, RefusesWhatDoesNotFit) {
    const tartan_shape s = {20, 70, 8, 33, 2}, others = {20, 70, 8, 8, 2}, three = {20, 70, 8, 33, 3};
    const Layout layout = random_layout(s, 0.5, 1);
    const BlockMask mask = mask_of_rule(layout, kRule);
    const Layout blocks = random_layout(others, 0.5, 1), heads = random_layout(three, 0.5, 1);
    tartan_layout *out = nullptr;
    tartan_block_mask *masked = nullptr;
    EXPECT_FAILS(ARGUMENT, "rows is 21, expected 0 .. 20", tartan_layout_cut(layout.get(), 21, 70, &out));
    EXPECT_FAILS(ARGUMENT, "cols is -1, expected 0 .. 70", tartan_layout_cut(layout.get(), 20, -1, &out));
    EXPECT_FAILS(HANDLE, "layout", tartan_layout_cut(nullptr, 20, 70, &out));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_layout_cut(layout.get(), 20, 70, nullptr));
    const int64_t wrong[] = {0, 2}, negative[] = {-1}, lengths[] = {70, 71};
    EXPECT_FAILS(LAYOUT, "heads[1] is 2, expected 0 .. 1",
                 tartan_layout_take_heads(layout.get(), wrong, 2, &out));
    EXPECT_FAILS(LAYOUT, "heads[0] is -1", tartan_layout_take_heads(layout.get(), negative, 1, &out));
    EXPECT_FAILS(SHAPE, "heads has 0 entries, expected 1 or more",
                 tartan_layout_take_heads(layout.get(), wrong, 0, &out));
    EXPECT_FAILS(HANDLE, "heads is NULL", tartan_layout_take_heads(layout.get(), nullptr, 2, &out));
    EXPECT_FAILS(ARGUMENT, "lengths[1] is 71, expected 0 .. 70",
                 tartan_layout_from_lengths(layout.get(), lengths, 2, &out));
    EXPECT_FAILS(ARGUMENT, "lengths[0] is -1", tartan_layout_from_lengths(layout.get(), negative, 1, &out));
    EXPECT_FAILS(SHAPE, "lengths has 0 entries", tartan_layout_from_lengths(layout.get(), lengths, 0, &out));
    EXPECT_FAILS(HANDLE, "lengths is NULL", tartan_layout_from_lengths(layout.get(), nullptr, 2, &out));
    EXPECT_FAILS(ARGUMENT, "lengths[1] is 71",
                 tartan_block_mask_from_lengths(layout.get(), lengths, 2, &masked));
    EXPECT_FAILS(SHAPE, "lengths has 2 entries, expected a divisor of 3",
                 tartan_block_mask_from_lengths(heads.get(), wrong, 2, &masked));
    EXPECT_FAILS(SHAPE, "layout has blocks of 8 x 8, expected 8 x 33",
                 tartan_block_mask_project(mask.get(), blocks.get(), &masked));
    EXPECT_FAILS(SHAPE, "layout has 3 heads, expected a multiple of the 2",
                 tartan_block_mask_project(mask.get(), heads.get(), &masked));
    EXPECT_FAILS(HANDLE, "block_mask", tartan_block_mask_project(nullptr, heads.get(), &masked));
    EXPECT_FAILS(HANDLE, "keep is NULL", tartan_layout_from_rule(&s, nullptr, nullptr, &out));
    const Indices many((1 << 20) / 2 + 1, 1);
    EXPECT_FAILS(ARGUMENT, "heads",
                 tartan_layout_from_lengths(layout.get(), many.data(), (int64_t)many.size(), &out));
}

TEST(Derive, SurvivesWantOfMemory) {
    const tartan_shape s = {40, 70, 8, 33, 2};
    const Layout layout = random_layout(s, 0.7, 5);
    Rule rule = kRule;
    const BlockMask mask = mask_of_rule(layout, kRule);
    const int64_t heads[] = {1, 0, 1}, lengths[] = {50, 3};
    const auto brutal = [](auto call) {
        tartan_layout *out = nullptr;
        BRUTAL(call(&out), tartan_layout_free(out));
    };
    const auto brutal_mask = [](auto call) {
        tartan_block_mask *out = nullptr;
        BRUTAL(call(&out), tartan_block_mask_free(out));
    };
    brutal([&](tartan_layout **out) { return tartan_layout_cut(layout.get(), 30, 50, out); });
    brutal([&](tartan_layout **out) { return tartan_layout_take_heads(layout.get(), heads, 3, out); });
    brutal([&](tartan_layout **out) { return tartan_layout_from_lengths(layout.get(), lengths, 2, out); });
    brutal([&](tartan_layout **out) { return tartan_layout_from_rule(&s, keep, &rule, out); });
    brutal_mask([&](tartan_block_mask **out) {
        return tartan_block_mask_from_lengths(layout.get(), lengths, 2, out);
    });
    brutal_mask(
        [&](tartan_block_mask **out) { return tartan_block_mask_project(mask.get(), layout.get(), out); });
}
