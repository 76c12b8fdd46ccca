// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <algorithm>
#include <array>

extern "C" {
#include "plan.h"
}

using namespace tartan_test;

namespace {

// One direction of a layout, from its mask alone.
struct Oracle {
    int64_t heads, grid, across;
    std::vector<uint8_t> mask;
    std::vector<int32_t> rank; // block id at each position of the mask
    bool by_columns;

    Oracle(const tartan_layout *l, bool columns) : by_columns(columns) {
        heads = tartan_layout_heads(l);
        const int64_t rows = tartan_layout_grid_rows(l), cols = tartan_layout_grid_cols(l);
        grid = columns ? cols : rows;
        across = columns ? rows : cols;
        mask.resize((size_t)(heads * rows * cols));
        rank.assign(mask.size(), -1);
        EXPECT_OK(tartan_layout_get_mask(l, mask.data(), (int64_t)mask.size()));
        int32_t id = 0;
        for (size_t i = 0; i < mask.size(); i++)
            if (mask[i]) rank[i] = id++;
    }
    int32_t id(int64_t head, int64_t line, int64_t position) const {
        const int64_t row = by_columns ? position : line, col = by_columns ? line : position;
        const int64_t cols = by_columns ? grid : across;
        return rank[(size_t)((head * (by_columns ? across : grid) + row) * cols + col)];
    }
};

Layout any_layout(std::mt19937_64 &random) {
    auto draw = [&](int64_t low, int64_t high) {
        return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const tartan_shape shape = {draw(0, 60), draw(0, 60), draw(1, 6), draw(1, 6), draw(1, 3)};
    const double densities[] = {0, 0.05, 0.3, 0.8, 1};
    return random_layout(shape, densities[draw(0, 4)], random());
}

void check_lists(const tartan_layout *l, bool by_columns) {
    const Oracle o(l, by_columns);
    tartan_cuda_lists_plan plan;
    ASSERT_OK(tartan_cuda_plan_lists(&tartan_i_host, l, by_columns, &plan));
    const int32_t *pointers = plan.values + plan.pointers, *cols = plan.values + plan.cols;
    EXPECT_EQ(by_columns, plan.ids >= 0);
    EXPECT_EQ(0, plan.pointers % 32 + plan.cols % 32 + plan.size % 32);
    int32_t e = 0;
    for (int64_t head = 0; head < o.heads; head++) {
        for (int64_t line = 0; line < o.grid; line++) {
            ASSERT_EQ(e, pointers[head * o.grid + line]);
            for (int64_t position = 0; position < o.across; position++) {
                const int32_t id = o.id(head, line, position);
                if (id < 0) continue;
                ASSERT_EQ(position, cols[e]);
                ASSERT_EQ(id, plan.ids >= 0 ? plan.values[plan.ids + e] : e);
                e++;
            }
        }
    }
    EXPECT_EQ(e, pointers[o.heads * o.grid]);
    EXPECT_EQ(e, tartan_layout_blocks(l));
    tartan_i_host.free(plan.values);
}

void check_order(const tartan_cuda_unions_plan &plan, int64_t heads) {
    const int32_t *pointers = plan.values + plan.pointers, *order = plan.values + plan.order;
    std::vector<int32_t> expected((size_t)(heads * plan.groups_per_head));
    for (size_t g = 0; g < expected.size(); g++) expected[g] = (int32_t)g;
    for (int64_t head = 0; head < heads; head++) {
        const auto begin = expected.begin() + head * plan.groups_per_head;
        std::stable_sort(begin, begin + plan.groups_per_head, [&](int32_t a, int32_t b) {
            return pointers[a + 1] - pointers[a] > pointers[b + 1] - pointers[b];
        });
    }
    for (size_t g = 0; g < expected.size(); g++) ASSERT_EQ(expected[g], order[g]);
}

void check_unions(const tartan_layout *l, bool by_columns, int32_t group) {
    const Oracle o(l, by_columns);
    tartan_cuda_unions_plan plan;
    ASSERT_OK(tartan_cuda_plan_unions(&tartan_i_host, l, by_columns, group, &plan));
    ASSERT_EQ(group, plan.group);
    ASSERT_EQ(grid(o.grid, group), plan.groups_per_head);
    const int32_t *pointers = plan.values + plan.pointers, *cols = plan.values + plan.cols;
    const int32_t *ids = plan.values + plan.ids;
    int32_t e = 0;
    for (int64_t head = 0; head < o.heads; head++) {
        for (int64_t g = 0; g < plan.groups_per_head; g++) {
            ASSERT_EQ(e, pointers[head * plan.groups_per_head + g]);
            for (int64_t position = 0; position < o.across; position++) {
                std::vector<int32_t> here((size_t)group, -1);
                for (int64_t r = 0; r < group && g * group + r < o.grid; r++)
                    here[(size_t)r] = o.id(head, g * group + r, position);
                if (*std::max_element(here.begin(), here.end()) < 0) continue;
                ASSERT_EQ(position, cols[e]);
                for (int32_t r = 0; r < group; r++) ASSERT_EQ(here[(size_t)r], ids[e * group + r]);
                e++;
            }
        }
    }
    ASSERT_EQ(e, pointers[o.heads * plan.groups_per_head]);
    ASSERT_EQ(e, plan.entries);
    int32_t longest = 0;
    for (int64_t g = 0; g < o.heads * plan.groups_per_head; g++)
        longest = std::max(longest, pointers[g + 1] - pointers[g]);
    EXPECT_EQ(longest, plan.longest);
    check_order(plan, o.heads);
    tartan_i_host.free(plan.values);
}

} // namespace

TEST(CudaPlan, ListsOfAnyLayout) {
    std::mt19937_64 random(1);
    for (int i = 0; i < 1000 && !HasFatalFailure(); i++) {
        const Layout l = any_layout(random);
        check_lists(l.get(), false);
        check_lists(l.get(), true);
    }
}

TEST(CudaPlan, UnionsOfAnyLayout) {
    std::mt19937_64 random(2);
    const int32_t groups[] = {1, 2, 3, 4, 8, 16, 64};
    for (int i = 0; i < 1000 && !HasFatalFailure(); i++) {
        const Layout l = any_layout(random);
        check_unions(l.get(), false, groups[random() % 7]);
        check_unions(l.get(), true, groups[random() % 7]);
    }
}

TEST(CudaPlan, FailsCleanlyWithoutMemory) {
    const Layout l = random_layout({40, 40, 4, 4, 2}, 0.4, 3);
    for (const bool by_columns : {false, true}) {
        tartan_cuda_lists_plan lists = {};
        BRUTAL(tartan_cuda_plan_lists(&tartan_i_host, l.get(), by_columns, &lists),
               tartan_i_host.free(lists.values));
        tartan_cuda_unions_plan unions = {};
        BRUTAL(tartan_cuda_plan_unions(&tartan_i_host, l.get(), by_columns, 4, &unions),
               tartan_i_host.free(unions.values));
    }
}

namespace {

double share_of(const tartan_layout *l, bool by_columns, int32_t group) {
    tartan_cuda_unions_plan plan = {};
    EXPECT_OK(tartan_cuda_plan_unions(&tartan_i_host, l, by_columns, group, &plan));
    tartan_i_host.free(plan.values);
    return (double)tartan_layout_blocks(l) / (double)plan.entries;
}

} // namespace

TEST(CudaPlan, FiguresAreExactWhereAllGroupsAreCounted) {
    const Layout l = random_layout({300, 200, 5, 4, 2}, 0.2, 4);
    tartan_cuda_figures f;
    ASSERT_OK(tartan_cuda_figures_of(&tartan_i_host, l.get(), &f));
    for (int columns = 0; columns < 2; columns++) {
        for (int i = 0; i < TARTAN_CUDA_SHARES; i++)
            EXPECT_EQ(share_of(l.get(), columns != 0, 1 << i), f.share[columns][i]);
    }
    const Layout none = random_layout({300, 200, 5, 4, 2}, 0, 4);
    ASSERT_OK(tartan_cuda_figures_of(&tartan_i_host, none.get(), &f));
    EXPECT_EQ(1, f.share[1][2]);
    BRUTAL(tartan_cuda_figures_of(&tartan_i_host, l.get(), &f), (void)0);
}

// Few blocks in lines of more than 4096 positions, on the edges of what is kept together.
TEST(CudaPlan, UnionsOfLongLines) {
    std::vector<uint8_t> mask(6 * 10000);
    for (int row = 0; row < 6; row++)
        for (int col : {0, 63, 64, 4095, 4096, 8191, 8192, 9000 + row, 9999})
            mask[(size_t)(10000 * row + col)] = (col + row) % 3 != 0;
    const Layout l = from_mask({6, 10000, 1, 1, 1}, mask);
    for (int32_t group : {1, 2, 4, 5}) {
        check_unions(l.get(), false, group);
        check_unions(l.get(), true, group);
    }
}

TEST(CudaPlan, FiguresOfLargeLayoutsAreSampled) {
    // 3000 block rows: groups of two are looked at every second one.
    const Layout l = random_layout({3000, 64, 1, 1, 1}, 0.25, 5);
    tartan_cuda_figures f;
    ASSERT_OK(tartan_cuda_figures_of(&tartan_i_host, l.get(), &f));
    EXPECT_EQ(1, f.share[0][0]);
    for (int i = 1; i < TARTAN_CUDA_SHARES; i++)
        EXPECT_NEAR(share_of(l.get(), false, 1 << i), f.share[0][i], 0.05);
}

namespace {

// Starts of merged lists of random lengths, empty ones among them.
std::vector<int32_t> any_pointers(std::mt19937_64 &random) {
    std::vector<int32_t> pointers = {(int32_t)(random() % 3)};
    for (uint64_t groups = random() % 12; groups > 0; groups--)
        pointers.push_back(pointers.back() + (int32_t)(random() % 3 == 0 ? 0 : random() % 40));
    return pointers;
}

const int64_t kAcross = 200;

// Merged lists of one head with those starts, and ascending block columns.
struct Lists {
    std::vector<int32_t> pointers, cols;
    tartan_cuda_unions unions = {};
    Lists(const std::vector<int32_t> &starts, std::mt19937_64 &random) : pointers(starts) {
        cols.resize((size_t)pointers.back());
        for (size_t g = 0; g + 1 < pointers.size(); g++) {
            int32_t col = (int32_t)(random() % 20);
            for (int32_t e = pointers[g]; e < pointers[g + 1]; e++) {
                cols[(size_t)e] = col;
                col += 1 + (int32_t)(random() % 4);
            }
        }
        unions.group = 1;
        unions.groups_per_head = (int32_t)pointers.size() - 1;
        unions.pointers = pointers.data();
        unions.cols = cols.data();
    }
};

} // namespace

TEST(CudaPlan, TilesCoverEveryList) {
    std::mt19937_64 random(6);
    for (int i = 0; i < 1000 && !HasFailure(); i++) {
        const std::vector<int32_t> pointers = any_pointers(random);
        const int64_t groups = (int64_t)pointers.size() - 1;
        const tartan_cuda_tile_form form = {(int32_t)(1 + random() % 16), (int32_t)(random() % 20),
                                            (int32_t)(1 + random() % 9), (int32_t)(random() % 60), false};
        const Lists lists(pointers, random);
        tartan_cuda_tiles_plan plan;
        ASSERT_OK(tartan_cuda_plan_tiles(&tartan_i_host, &lists.unions, 1, kAcross, &form, &plan));
        int64_t tile = 0, cost = 0;
        for (int32_t g = 0; g < groups; g++) {
            int32_t at = pointers[(size_t)g], least = INT32_MAX, most = 0;
            for (; at < pointers[(size_t)g + 1]; tile++) {
                const int32_t *value = plan.values + 4 * tile;
                ASSERT_LT(tile, plan.count);
                ASSERT_EQ(g, value[0]);
                ASSERT_EQ(at, value[1]);
                const int32_t length = value[2] - value[1];
                ASSERT_TRUE(length >= 1 && length <= form.entries);
                least = std::min(least, length), most = std::max(most, length);
                ASSERT_EQ(cost, plan.costs[tile]);
                cost += std::max(form.least, form.base + form.each * length);
                at = value[2];
            }
            EXPECT_EQ(pointers[(size_t)g + 1], at);
            EXPECT_TRUE(most == 0 || most - least <= 1); // of even length
        }
        EXPECT_EQ(tile, plan.count);
        EXPECT_EQ(cost, plan.costs[tile]);
        tartan_i_host.free(plan.costs);
        tartan_i_host.free(plan.values);
    }
    const Lists lists({0, 9, 30}, random);
    const tartan_cuda_tile_form form = {4, 1, 1, 1, true};
    tartan_cuda_tiles_plan plan = {};
    BRUTAL(tartan_cuda_plan_tiles(&tartan_i_host, &lists.unions, 1, kAcross, &form, &plan),
           (tartan_i_host.free(plan.costs), tartan_i_host.free(plan.values)));
}

TEST(CudaPlan, TilesByColumnAreTheSameInAnotherOrder) {
    std::mt19937_64 random(8);
    for (int i = 0; i < 500 && !HasFailure(); i++) {
        const std::vector<int32_t> pointers = any_pointers(random);
        const Lists lists(pointers, random);
        tartan_cuda_tile_form form = {(int32_t)(1 + random() % 16), 1, 1, 1, false};
        tartan_cuda_tiles_plan by_group, by_column;
        ASSERT_OK(tartan_cuda_plan_tiles(&tartan_i_host, &lists.unions, 1, kAcross, &form, &by_group));
        form.by_column = true;
        ASSERT_OK(tartan_cuda_plan_tiles(&tartan_i_host, &lists.unions, 1, kAcross, &form, &by_column));
        ASSERT_EQ(by_group.count, by_column.count);
        using Value = std::array<int32_t, 3>;
        std::vector<Value> expected, got;
        for (int64_t t = 0; t < by_group.count; t++) {
            const int32_t *a = by_group.values + 4 * t, *b = by_column.values + 4 * t;
            expected.push_back({a[0], a[1], a[2]});
            got.push_back({b[0], b[1], b[2]});
            if (t > 0) {
                EXPECT_LE(lists.cols[(size_t)by_column.values[4 * (t - 1) + 1]], lists.cols[(size_t)b[1]]);
            }
        }
        std::sort(expected.begin(), expected.end());
        std::sort(got.begin(), got.end());
        EXPECT_EQ(expected, got);
        for (auto *plan : {&by_group, &by_column}) {
            tartan_i_host.free(plan->costs);
            tartan_i_host.free(plan->values);
        }
    }
}

TEST(CudaPlan, CutsAreOfEvenCost) {
    std::mt19937_64 random(7);
    for (int i = 0; i < 2000 && !HasFailure(); i++) {
        std::vector<int64_t> costs = {0};
        const int64_t count = 1 + (int64_t)(random() % 300), steps = 1 + (int64_t)(random() % 100);
        for (int64_t t = 0; t < count; t++) costs.push_back(costs.back() + 1 + (int64_t)(random() % 20));
        const tartan_cuda_tiles tiles = {count, costs.data(), nullptr};
        const int32_t processors = 1 + (int32_t)(random() % 140);
        const int32_t parts = tartan_cuda_parts_of(count, steps, processors);
        ASSERT_TRUE(parts >= 1 && parts <= processors);
        ASSERT_TRUE(count < processors || parts == processors);
        std::vector<tartan_cuda_cut> cuts((size_t)parts + 1);
        tartan_cuda_cuts_of(&tiles, steps, parts, cuts.data());
        ASSERT_TRUE(cuts[0].tile == 0 && cuts[0].step == 0);
        ASSERT_TRUE(cuts[(size_t)parts].tile == count && cuts[(size_t)parts].step == 0);
        const auto cost_at = [&](const tartan_cuda_cut &cut) {
            const int64_t tile =
                cut.tile == count ? 0 : costs[(size_t)cut.tile + 1] - costs[(size_t)cut.tile];
            return (double)costs[(size_t)cut.tile] * (double)steps + (double)(tile * cut.step);
        };
        // No cut is further from its even place than the edges of the tile that it is in, or one step.
        const double each = cost_at(cuts[(size_t)parts]) / parts;
        for (int32_t part = 0; part <= parts; part++) {
            const tartan_cuda_cut &cut = cuts[(size_t)part];
            ASSERT_TRUE(cut.step >= 0 && cut.step < steps);
            ASSERT_TRUE(part == 0 || cost_at(cuts[(size_t)part - 1]) <= cost_at(cut));
            ASSERT_NEAR(each * part, cost_at(cut), 20.0 * (double)((steps + 1) / 2 + 1)) << part;
        }
    }
}

// Clusters share tiles where they pay: not sums of few steps, not so many tiles that a cluster for each takes many
// rounds, and not so few of so long sums that more parts are better.
TEST(CudaPlan, ClustersShareFewTiles) {
    EXPECT_EQ(1, tartan_cuda_sharers_of(0, 64, 132));
    EXPECT_EQ(1, tartan_cuda_sharers_of(59, TARTAN_CUDA_FEW_STEPS - 1, 132));
    EXPECT_EQ(2, tartan_cuda_sharers_of(59, 64, 132));
    EXPECT_EQ(2, tartan_cuda_sharers_of(66, 64, 132));
    EXPECT_EQ(3, tartan_cuda_sharers_of(40, 64, 132));
    EXPECT_EQ(4, tartan_cuda_sharers_of(20, 64, 132));
    EXPECT_EQ(1, tartan_cuda_sharers_of(100, 64, 132));
    EXPECT_EQ(1, tartan_cuda_sharers_of(8, 4096, 132));
    for (int64_t tiles = 1; tiles < 300; tiles++) {
        for (int32_t processors = 1; processors < 140; processors++) {
            const int32_t sharers = tartan_cuda_sharers_of(tiles, 1 + tiles * 7 % 100, processors);
            ASSERT_TRUE(sharers >= 1 && sharers <= TARTAN_CUDA_MOST_SHARERS && sharers <= processors);
        }
    }
}

// Where blocks change with masks, figures are those of evenly scattered blocks that fill the room.
TEST(CudaPlan, FiguresOfChangingBlocksAreExpected) {
    const tartan_shape shape = {128, 96, 1, 1, 4};
    for (const double density : {0.02, 0.1, 0.5, 0.9, 1.0}) {
        const Layout fixed = random_layout(shape, density, 3);
        tartan_layout *raw = nullptr;
        ASSERT_OK(tartan_i_layout_new_dynamic("test", &shape, fixed->blocks, TARTAN_CUDA, 0, &raw));
        const Layout dynamic(raw);
        tartan_cuda_figures expected, counted;
        ASSERT_OK(tartan_cuda_figures_of(&tartan_i_host, dynamic.get(), &expected));
        ASSERT_OK(tartan_cuda_figures_of(&tartan_i_host, fixed.get(), &counted));
        for (int by_columns = 0; by_columns < 2; by_columns++) {
            for (int i = 0; i < TARTAN_CUDA_SHARES; i++)
                EXPECT_NEAR(counted.share[by_columns][i], expected.share[by_columns][i],
                            0.05 * expected.share[by_columns][i])
                    << density << ", " << i;
        }
    }
    const tartan_shape none = {0, 5, 1, 1, 1};
    tartan_layout *raw = nullptr;
    ASSERT_OK(tartan_i_layout_new_dynamic("test", &none, 0, TARTAN_CUDA, 0, &raw));
    tartan_cuda_figures figures;
    ASSERT_OK(tartan_cuda_figures_of(&tartan_i_host, raw, &figures));
    EXPECT_EQ(1, figures.share[0][3]);
    tartan_layout_free(raw);
}
