// SPDX-License-Identifier: Apache-2.0
// Packed sequences: layouts and masks against the definition, element by element.
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

struct Packed {
    Indices q, k; // k may be empty: the same
    bool causal = false, aligns_starts = false;
    int64_t window = 0;

    std::string options() const {
        return std::string("causal=") + (causal ? "1" : "0") + (aligns_starts ? ",align=start" : "") +
               (window > 0 ? " window=" + std::to_string(window) : "");
    }
    tartan_status layout(const tartan_shape &s, tartan_layout **out, const char *text = nullptr) const {
        const std::string own = options();
        return tartan_layout_from_sequences(&s, q.data(), (int64_t)q.size(), k.empty() ? nullptr : k.data(),
                                            (int64_t)k.size(), text != nullptr ? text : own.c_str(), out);
    }
    tartan_status mask(tartan_layout *l, tartan_block_mask **out, const char *text = nullptr) const {
        const std::string own = options();
        return tartan_block_mask_from_sequences(l, q.data(), (int64_t)q.size(),
                                                k.empty() ? nullptr : k.data(), (int64_t)k.size(),
                                                text != nullptr ? text : own.c_str(), out);
    }
    Layout layout(const tartan_shape &s) const {
        tartan_layout *out = nullptr;
        EXPECT_OK(layout(s, &out));
        return Layout(out);
    }
    BlockMask mask(const Layout &l) const {
        tartan_block_mask *out = nullptr;
        EXPECT_OK(mask(l.get(), &out));
        return BlockMask(out);
    }

    // By definition.
    bool sees(int64_t query, int64_t key) const {
        const Indices &keys = k.empty() ? q : k;
        for (size_t s = 0; s + 1 < q.size(); s++) {
            if (query < q[s] || query >= q[s + 1]) continue;
            if (key < keys[s] || key >= keys[s + 1]) return false;
            if (!causal) return true;
            const int64_t shift = aligns_starts ? 0 : keys[s + 1] - keys[s] - (q[s + 1] - q[s]);
            const int64_t own = query - q[s] + shift, other = key - keys[s];
            return other <= own && (window == 0 || other > own - window);
        }
        return false;
    }
};

Indices random_offsets(std::mt19937_64 &random, int64_t end, int64_t count) {
    Indices x = {0, end};
    for (int64_t i = 1; i < count; i++) x.push_back(end > 0 ? (int64_t)(random() % (uint64_t)(end + 1)) : 0);
    std::sort(x.begin(), x.end());
    return x;
}

Packed random_sequences(std::mt19937_64 &random, const tartan_shape &s) {
    const int64_t count = 1 + (int64_t)(random() % 6);
    Packed p = {random_offsets(random, s.rows, count), random_offsets(random, s.cols, count)};
    if (s.rows == s.cols && random() % 2) p.k.clear();
    p.causal = random() % 4 != 0;
    p.aligns_starts = p.causal && random() % 3 == 0;
    p.window = p.causal && random() % 2 ? 1 + (int64_t)(random() % 12) : 0;
    return p;
}

// Every block and every element.
void expect_layout(const Packed &p, const tartan_shape &s, const Layout &l) {
    const Mask blocks = mask_where(s, [&](int64_t, int64_t i, int64_t j) {
        for (int64_t r = i * s.block_rows; r < std::min(s.rows, (i + 1) * s.block_rows); r++)
            for (int64_t c = j * s.block_cols; c < std::min(s.cols, (j + 1) * s.block_cols); c++)
                if (p.sees(r, c)) return true;
        return false;
    });
    EXPECT_EQ(blocks, mask_of(l)) << p.options();
}
void expect_mask(const Packed &p, const Layout &l, const BlockMask &mask) {
    const tartan_shape s = shape_of(l.get());
    int64_t kept = 0;
    for (int64_t id = 0; id < l->blocks; id++) {
        bool full = true;
        for (int64_t i = 0; i < s.block_rows; i++)
            for (int64_t j = 0; j < s.block_cols; j++) {
                const int64_t row = l->block_rows[id] * s.block_rows + i,
                              col = l->block_cols[id] * s.block_cols + j;
                const bool inside = row < s.rows && col < s.cols, seen = inside && p.sees(row, col);
                ASSERT_EQ(seen, tartan_i_block_mask_keeps(mask.get(), id, i, j))
                    << p.options() << ": " << row << ", " << col;
                kept += seen;
                full = full && (seen || !inside);
            }
        EXPECT_EQ(full, tartan_i_block_mask_is_full(mask.get(), id));
    }
    EXPECT_EQ(kept, tartan_block_mask_kept(mask.get()));
}

} // namespace

TEST(Sequences, FollowTheDefinition) {
    std::mt19937_64 random(11);
    for (int round = 0; round < 600; round++) {
        tartan_shape s = random_shape(random);
        if (round % 3 == 0) s.cols = s.rows;
        if (round % 10 == 0) s.block_cols = 30 + (int64_t)(random() % 50); // rows of several words
        const Packed p = random_sequences(random, s);
        const Layout l = p.layout(s);
        expect_layout(p, s, l);
        expect_mask(p, l, p.mask(l));
        const Layout other = random_layout(s, 0.5, random());
        expect_mask(p, other, p.mask(other));
    }
}

TEST(Sequences, OfNoneAndOfSingleTokens) {
    const tartan_shape none = {0, 0, 8, 8, 1}, some = {20, 20, 8, 8, 2};
    Packed p = {{0, 0, 0}, {}};
    EXPECT_EQ(0, p.layout(none)->blocks);
    EXPECT_EQ(0, p.mask(p.layout(none))->kept);
    p.q = {0};
    EXPECT_EQ(0, p.layout(none)->blocks); // no sequences
    Packed single = {{}, {}, true};
    for (int64_t i = 0; i <= 20; i++) single.q.push_back(i);
    const Layout l = single.layout(some);
    EXPECT_EQ(6, l->blocks);
    EXPECT_EQ(40, single.mask(l)->kept);
    EXPECT_EQ(2, single.mask(l)->stored);           // the diagonal, whole and at the edge
    const Packed apart = {{0, 20, 20}, {0, 0, 20}}; // queries without keys, keys without queries
    EXPECT_EQ(0, apart.layout(some)->blocks);
    const Packed long_window = {{0, 20}, {}, true, false, INT64_MAX};
    expect_mask(long_window, long_window.layout(some), long_window.mask(long_window.layout(some)));
}

// The cost does not depend on the elements, nor on the positions of the grid.
TEST(Sequences, OfManyTokensArePlannedByBlocks) {
    const int64_t n = INT64_C(1) << 24;
    const tartan_shape s = {n, n, 128, 128, 1};
    Packed p = {{}, {}, true};
    int64_t pairs = 0;
    for (int64_t at = 0; at < n; at += 1000) p.q.push_back(at);
    p.q.push_back(n);
    for (size_t i = 1; i < p.q.size(); i++) pairs += (p.q[i] - p.q[i - 1]) * (p.q[i] - p.q[i - 1] + 1) / 2;
    const Layout l = p.layout(s);
    const BlockMask mask = p.mask(l);
    EXPECT_EQ(pairs, tartan_block_mask_kept(mask.get()));
    EXPECT_GT(l->blocks, 500000);
    EXPECT_LT(l->blocks, 1000000);
    EXPECT_LT(tartan_block_mask_stored(mask.get()), 200); // sequences begin at 16 places in a block
}

TEST(Sequences, MeetAPatternOfTheUser) {
    const tartan_shape s = {300, 300, 16, 16, 1};
    const Packed p = {{0, 70, 71, 200, 300}, {}, true};
    const Layout all = p.layout(s), local = pattern(s, "local", "window=3");
    tartan_layout *raw = nullptr;
    ASSERT_OK(tartan_layout_intersection(all.get(), local.get(), &raw));
    const Layout both(raw);
    const BlockMask mask = p.mask(both);
    expect_mask(p, both, mask);
    const auto near = [](void *, int64_t, int64_t row, int64_t col) -> int32_t { return row - col < 40; };
    tartan_block_mask *window = nullptr, *out = nullptr;
    ASSERT_OK(tartan_block_mask_from_rule(both.get(), near, nullptr, &window));
    const BlockMask window_owner(window);
    ASSERT_OK(tartan_block_mask_intersection(mask.get(), window, &out));
    const BlockMask owner(out);
    for (int64_t id = 0; id < both->blocks; id++)
        for (int64_t i = 0; i < 16; i++)
            for (int64_t j = 0; j < 16; j++)
                ASSERT_EQ(tartan_i_block_mask_keeps(mask.get(), id, i, j) &&
                              tartan_i_block_mask_keeps(window, id, i, j),
                          tartan_i_block_mask_keeps(out, id, i, j));
    EXPECT_LT(0, tartan_block_mask_kept(out));
    EXPECT_GT(tartan_block_mask_kept(mask.get()), tartan_block_mask_kept(out));
    const BlockMask elsewhere = p.mask(all);
    EXPECT_FAILS(LAYOUT, "b has another layout",
                 tartan_block_mask_intersection(window, elsewhere.get(), &out));
    EXPECT_FAILS(HANDLE, "a is NULL", tartan_block_mask_intersection(nullptr, window, &out));
    EXPECT_FAILS(HANDLE, "b is NULL", tartan_block_mask_intersection(window, nullptr, &out));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_block_mask_intersection(window, window, nullptr));
    BRUTAL(tartan_block_mask_intersection(mask.get(), window, &out), tartan_block_mask_free(out));
}

TEST(Sequences, RefuseWhatDoesNotFit) {
    const tartan_shape s = {20, 30, 8, 8, 1}, same = {20, 20, 8, 8, 1};
    const Packed good = {{0, 5, 20}, {0, 9, 30}, true};
    const Layout l = good.layout(s), square = random_layout(same, 1, 1);
    const struct {
        Indices q, k;
        const char *text;
    } wrong[] = {
        {{1, 20}, {0, 30}, "q_offsets[0] is 1, expected 0"},
        {{-1, 20}, {0, 30}, "q_offsets[0] is -1, expected 0"},
        {{0, 9, 7, 20}, {0, 1, 2, 30}, "q_offsets[2] is 7 after 9, expected ascending numbers"},
        {{0, 7, -7, 20}, {0, 1, 2, 30}, "q_offsets[2] is -7 after 7, expected ascending numbers"},
        {{0, 19}, {0, 30}, "q_offsets ends with 19, expected 20, the rows of the layout"},
        {{0, 5, 20}, {0, 9, 31}, "k_offsets ends with 31, expected 30, the columns of the layout"},
        {{0, 5, 20}, {0, 31, 30}, "k_offsets[2] is 30 after 31, expected ascending numbers"},
        {{0, 5, 20}, {2, 9, 30}, "k_offsets[0] is 2, expected 0"},
    };
    tartan_block_mask *mask = nullptr;
    for (const auto &one : wrong) {
        const Packed p = {one.q, one.k};
        EXPECT_NO_LAYOUT(LAYOUT, one.text, p.layout(s, &out));
        EXPECT_FAILS(LAYOUT, one.text, p.mask(l.get(), &mask));
    }
    const Packed none = {{}, {}}, longer = {{0, 5, 20}, {0, 3, 9, 30}}, missing = {{0, 20}, {}};
    EXPECT_NO_LAYOUT(SHAPE, "q_offsets has 0 entries, expected where each sequence begins",
                     none.layout(s, &out));
    EXPECT_NO_LAYOUT(SHAPE, "k_offsets has 4 entries, expected 3, as q_offsets", longer.layout(s, &out));
    EXPECT_NO_LAYOUT(SHAPE,
                     "k_offsets is NULL, expected as many columns as rows in the layout, which has 20 rows",
                     missing.layout(s, &out));
    const int64_t offsets[] = {0, 20};
    EXPECT_NO_LAYOUT(HANDLE, "q_offsets is NULL",
                     tartan_layout_from_sequences(&same, nullptr, 2, nullptr, 0, nullptr, &out));
    EXPECT_NO_LAYOUT(HANDLE, "k_offsets is NULL",
                     tartan_layout_from_sequences(&same, offsets, 2, nullptr, 2, nullptr, &out));
    EXPECT_NO_LAYOUT(HANDLE, "shape is NULL",
                     tartan_layout_from_sequences(nullptr, offsets, 2, nullptr, 0, nullptr, &out));
    const tartan_shape flat = {20, 20, 0, 8, 1};
    EXPECT_NO_LAYOUT(ARGUMENT, "blocks of 0 x 8",
                     tartan_layout_from_sequences(&flat, offsets, 2, nullptr, 0, nullptr, &out));
    const struct {
        const char *options, *text;
    } texts[] = {
        {"causal=2", "options has 'causal=2', expected causal to be 0 or 1"},
        {"causal=1 window=0", "expected window to be a whole number of 1 or more"},
        {"causal=1 window=1.5", "expected window to be a whole number of 1 or more"},
        {"causal=1 align=middle", "options has 'align=middle', expected align to be start or end"},
        {"window=4", "options has window, which needs causal=1"},
        {"causal=0 align=end", "options has align, which needs causal=1"},
        {"scale=1", "options has 'scale=1', expected causal, window or align"},
        {"causal=1 causal=1", "options has causal twice"},
        {"causal", "causal"},
    };
    for (const auto &one : texts) {
        EXPECT_NO_LAYOUT(ARGUMENT, one.text, good.layout(s, &out, one.options));
        EXPECT_FAILS(ARGUMENT, one.text, good.mask(l.get(), &mask, one.options));
    }
    EXPECT_FAILS(HANDLE, "layout is NULL", good.mask(nullptr, &mask));
    EXPECT_FAILS(HANDLE, "out is NULL", good.layout(s, nullptr));
    EXPECT_FAILS(HANDLE, "out is NULL", good.mask(l.get(), nullptr));
    EXPECT_FAILS(LAYOUT, "q_offsets ends with 20, expected 300",
                 good.mask(random_layout({300, 300, 8, 8, 1}, 0.5, 1).get(), &mask));
    EXPECT_EQ(nullptr, mask);
    tartan_layout *unset = nullptr; // NULL options
    ASSERT_OK(tartan_layout_from_sequences(&same, offsets, 2, nullptr, 0, nullptr, &unset));
    EXPECT_EQ(9, unset->blocks);
    tartan_layout_free(unset);
}

TEST(Sequences, SurviveFullMemory) {
    const tartan_shape s = {100, 130, 8, 8, 2};
    const Packed p = {{0, 30, 31, 60, 100}, {0, 60, 75, 80, 130}, true, false, 40};
    const Layout l = p.layout(s);
    tartan_layout *layout = nullptr;
    tartan_block_mask *mask = nullptr;
    const int64_t n = (int64_t)p.q.size();
    BRUTAL(tartan_layout_from_sequences(&s, p.q.data(), n, p.k.data(), n, "causal=1", &layout),
           tartan_layout_free(layout));
    BRUTAL(tartan_block_mask_from_sequences(l.get(), p.q.data(), n, p.k.data(), n, "causal=1", &mask),
           tartan_block_mask_free(mask));
}
