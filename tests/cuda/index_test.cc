// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <algorithm>

extern "C" {
#include "problem.h"
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

void check_rows(const tartan_layout *l, bool by_columns) {
    const Oracle o(l, by_columns);
    tartan_cuda_host_rows index;
    ASSERT_OK(tartan_cuda_index_rows(&tartan_i_host, l, by_columns, &index));
    const int32_t *pointers = index.values + index.pointers, *cols = index.values + index.cols;
    EXPECT_EQ(by_columns, index.ids >= 0);
    EXPECT_EQ(0, index.pointers % 32 + index.cols % 32 + index.size % 32);
    int32_t e = 0;
    for (int64_t head = 0; head < o.heads; head++) {
        for (int64_t line = 0; line < o.grid; line++) {
            ASSERT_EQ(e, pointers[head * o.grid + line]);
            for (int64_t position = 0; position < o.across; position++) {
                const int32_t id = o.id(head, line, position);
                if (id < 0) continue;
                ASSERT_EQ(position, cols[e]);
                ASSERT_EQ(id, index.ids >= 0 ? index.values[index.ids + e] : e);
                e++;
            }
        }
    }
    EXPECT_EQ(e, pointers[o.heads * o.grid]);
    EXPECT_EQ(e, tartan_layout_blocks(l));
    tartan_i_host.free(index.values);
}

// Where blocks of different sizes begin: each term of a line's sum is found by the blocks before it.
void check_bounds(const tartan_layout *l, bool by_columns) {
    tartan_cuda_host_bounds index;
    tartan_cuda_host_rows rows;
    ASSERT_OK(tartan_cuda_index_bounds(&tartan_i_host, l, by_columns, &index));
    ASSERT_OK(tartan_cuda_index_rows(&tartan_i_host, l, by_columns, &rows));
    const int64_t grid = by_columns ? l->grid_cols : l->grid_rows,
                  across = by_columns ? l->grid_rows : l->grid_cols;
    const int64_t *lines = by_columns ? l->col_bounds : l->row_bounds,
                  *cols = by_columns ? l->row_bounds : l->col_bounds;
    ASSERT_EQ(index.size, grid + 1 + across + 1 + l->blocks);
    for (int64_t i = 0; i <= grid; i++) ASSERT_EQ(lines[i], index.values[index.lines + i]);
    for (int64_t j = 0; j <= across; j++) ASSERT_EQ(cols[j], index.values[index.cols + j]);
    for (int64_t line = 0; line < l->shape.heads * grid; line++) {
        int64_t before = 0;
        for (int32_t e = rows.values[rows.pointers + line]; e < rows.values[rows.pointers + line + 1]; e++) {
            ASSERT_EQ(before, index.values[index.before + e]);
            const int32_t col = rows.values[rows.cols + e];
            before += cols[col + 1] - cols[col];
        }
    }
    tartan_i_host.free(index.values);
    tartan_i_host.free(rows.values);
}

TEST(CudaIndex, BoundariesOfBlocksOfDifferentSizes) {
    std::mt19937_64 random(5);
    for (int n = 0; n < rounds(100); n++) {
        const tartan_shape shape = {(int64_t)(random() % 60), (int64_t)(random() % 60), 7, 5,
                                    1 + (int64_t)(random() % 3)};
        const Layout layout = random_variable_layout(shape, 0.4, random());
        if (!tartan_i_is_variable(layout.get())) continue;
        check_bounds(layout.get(), false);
        check_bounds(layout.get(), true);
    }
    const Layout small = with_boundaries(from_mask({2, 2, 1, 1, 1}, {1, 1, 0, 1}), {0, 1, 4}, {0, 1, 4});
    tartan_cuda_host_bounds index;
    BRUTAL(tartan_cuda_index_bounds(&tartan_i_host, small.get(), false, &index),
           tartan_i_host.free(index.values));
}

void check_order(const tartan_cuda_host_groups &index, int64_t heads) {
    const int32_t *pointers = index.values + index.pointers, *order = index.values + index.order;
    std::vector<int32_t> expected((size_t)(heads * index.groups_per_head));
    for (size_t g = 0; g < expected.size(); g++) expected[g] = (int32_t)g;
    for (int64_t head = 0; head < heads; head++) {
        const auto begin = expected.begin() + head * index.groups_per_head;
        std::stable_sort(begin, begin + index.groups_per_head, [&](int32_t a, int32_t b) {
            return pointers[a + 1] - pointers[a] > pointers[b + 1] - pointers[b];
        });
    }
    for (size_t g = 0; g < expected.size(); g++) ASSERT_EQ(expected[g], order[g]);
}

void check_groups(const tartan_layout *l, bool by_columns, int32_t group) {
    const Oracle o(l, by_columns);
    tartan_cuda_host_groups index;
    ASSERT_OK(tartan_cuda_index_groups(&tartan_i_host, l, by_columns, group, &index));
    ASSERT_EQ(group, index.group);
    ASSERT_EQ(grid(o.grid, group), index.groups_per_head);
    const int32_t *pointers = index.values + index.pointers, *cols = index.values + index.cols;
    const int32_t *ids = index.values + index.ids;
    int32_t e = 0;
    for (int64_t head = 0; head < o.heads; head++) {
        for (int64_t g = 0; g < index.groups_per_head; g++) {
            ASSERT_EQ(e, pointers[head * index.groups_per_head + g]);
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
    ASSERT_EQ(e, pointers[o.heads * index.groups_per_head]);
    ASSERT_EQ(e, index.entries);
    int32_t longest = 0;
    for (int64_t g = 0; g < o.heads * index.groups_per_head; g++)
        longest = std::max(longest, pointers[g + 1] - pointers[g]);
    EXPECT_EQ(longest, index.longest);
    check_order(index, o.heads);
    tartan_i_host.free(index.values);
}

} // namespace

TEST(CudaIndex, RowsOfAnyLayout) {
    std::mt19937_64 random(1);
    for (int i = 0; i < 1000 && !HasFatalFailure(); i++) {
        const Layout l = any_layout(random);
        check_rows(l.get(), false);
        check_rows(l.get(), true);
    }
}

TEST(CudaIndex, GroupsOfAnyLayout) {
    std::mt19937_64 random(2);
    const int32_t groups[] = {1, 2, 3, 4, 8, 16, 64};
    for (int i = 0; i < 1000 && !HasFatalFailure(); i++) {
        const Layout l = any_layout(random);
        check_groups(l.get(), false, groups[random() % 7]);
        check_groups(l.get(), true, groups[random() % 7]);
    }
}

TEST(CudaIndex, EdgesOfSubBlocks) {
    for (const int32_t edge : {8, 16, 32, 64, 128}) EXPECT_EQ(edge, tartan_cuda_sub_edge(edge, edge));
    EXPECT_EQ(8, tartan_cuda_sub_edge(24, 24));
    EXPECT_EQ(8, tartan_cuda_sub_edge(72, 72));
    EXPECT_EQ(16, tartan_cuda_sub_edge(48, 80));
    EXPECT_EQ(32, tartan_cuda_sub_edge(96, 32));
    EXPECT_EQ(64, tartan_cuda_sub_edge(64, 128));
    EXPECT_EQ(64, tartan_cuda_sub_edge(256, 256));
    EXPECT_EQ(0, tartan_cuda_sub_edge(24, 20));
    EXPECT_EQ(0, tartan_cuda_sub_edge(4, 8));
}

// Every position of sub-blocks has the address of its first element in the values, or no block.
TEST(CudaIndex, SubGroupsOfAnyLayout) {
    std::mt19937_64 random(12);
    const int64_t edges[] = {8, 16, 24, 40, 48, 72, 96, 192};
    for (int i = 0; i < 200 && !HasFatalFailure(); i++) {
        const tartan_shape shape = {(int64_t)(random() % 300), (int64_t)(random() % 300), edges[random() % 8],
                                    edges[random() % 8], 1 + (int64_t)(random() % 3)};
        const Layout layout = random_layout(shape, 0.3, random());
        const tartan_layout *l = layout.get();
        const bool columns = i % 2 != 0, row_major = i / 2 % 2 != 0;
        const int32_t edge = tartan_cuda_sub_edge((int32_t)shape.block_rows, (int32_t)shape.block_cols);
        const int32_t group = 1 << random() % 4;
        const int64_t rows = columns ? shape.block_cols : shape.block_rows;
        const int64_t cols = columns ? shape.block_rows : shape.block_cols;
        // Contiguous inside a block: positions of the lines, or the lines.
        const bool along = row_major != columns;
        const auto kind = (tartan_cuda_sub_kind)(random() % 3);
        const tartan_cuda_sub_blocks sub = {edge, (int32_t)(along ? cols : 1), (int32_t)(along ? 1 : rows),
                                            kind};
        tartan_cuda_host_groups h = {};
        ASSERT_OK(tartan_cuda_index_sub_groups(&tartan_i_host, l, columns, &sub, group, &h));
        const Oracle o(l, columns);
        const int64_t width = kind == TARTAN_CUDA_SLICES ? cols : edge;
        const int64_t all_rows = columns ? shape.cols : shape.rows,
                      all_cols = columns ? shape.rows : shape.cols;
        const bool outside = kind != TARTAN_CUDA_INSIDE; // sub-blocks outside of the matrix count
        const int64_t lines = outside ? grid(all_rows, rows) * (rows / edge) : grid(all_rows, edge);
        const int64_t across = outside ? grid(all_cols, cols) * (cols / width) : grid(all_cols, edge);
        ASSERT_EQ(grid(lines, group), h.groups_per_head);
        int64_t e = 0;
        for (int64_t g = 0; g < shape.heads * h.groups_per_head; g++) {
            ASSERT_EQ(e, h.values[h.pointers + g]);
            const int64_t head = g / h.groups_per_head, first = g % h.groups_per_head * group;
            for (int64_t position = 0; position < across; position++) {
                std::vector<int64_t> here((size_t)group, -1);
                for (int64_t r = 0; r < group && first + r < lines; r++) {
                    const int64_t row = (first + r) * edge, col = position * width;
                    const int64_t id = o.id(head, row / rows, col / cols);
                    const int64_t at =
                        id * rows * cols + row % rows * sub.line_stride + col % cols * sub.col_stride;
                    if (id < 0) continue;
                    ASSERT_EQ(0, at % edge);
                    here[(size_t)r] = at / edge;
                }
                if (*std::max_element(here.begin(), here.end()) < 0) continue;
                ASSERT_EQ(position, h.values[h.cols + e]);
                for (int32_t r = 0; r < group; r++)
                    ASSERT_EQ(here[(size_t)r], h.values[h.ids + e * group + r]);
                e++;
            }
        }
        ASSERT_EQ(e, h.entries);
        tartan_i_host.free(h.values);
    }
    const Layout layout = random_layout({96, 96, 24, 24, 1}, 0.5, 1);
    const tartan_cuda_sub_blocks sub = {8, 24, 1, TARTAN_CUDA_INSIDE};
    tartan_cuda_host_groups h = {};
    BRUTAL(tartan_cuda_index_sub_groups(&tartan_i_host, layout.get(), false, &sub, 8, &h),
           tartan_i_host.free(h.values));
}

// What is expected of lists of sub-blocks, from what was counted of the blocks, beside the real lists.
// Boundaries that are multiples of 8, but for the end of the matrix.
TEST(CudaIndex, SubGroupsOfBlocksOfDifferentSizes) {
    std::mt19937_64 random(13);
    for (int i = 0; i < rounds(100) && !HasFatalFailure(); i++) {
        const int64_t step = 8 << random() % 3;
        std::vector<int64_t> bounds[2];
        for (auto &side : bounds) {
            side = random_bounds(random, 1 + (int64_t)(random() % 12), 4);
            for (auto &b : side) b *= step;
            if (random() % 2) side.back() -= (int64_t)(random() % (uint64_t)step);
        }
        const int64_t heads = 1 + (int64_t)(random() % 2);
        const Layout layout = with_boundaries(
            random_layout({(int64_t)bounds[0].size() - 1, (int64_t)bounds[1].size() - 1, 1, 1, heads}, 0.4,
                          random()),
            bounds[0], bounds[1]);
        const tartan_layout *l = layout.get();
        const tartan_shape &s = l->shape;
        tartan_cuda_figures figures;
        ASSERT_OK(tartan_cuda_figures_of(&tartan_i_host, l, &figures));
        if (!tartan_i_is_variable(l)) {
            ASSERT_EQ(0, figures.edge);
            continue;
        }
        if (figures.edge == 0) { // the last block is the largest and ends anywhere
            ASSERT_TRUE(s.block_rows % 8 != 0 || s.block_cols % 8 != 0);
            continue;
        }
        const bool columns = i % 2 != 0;
        const int32_t edge = figures.edge, group = 1 << random() % 4;
        const tartan_cuda_sub_blocks sub = {edge, (int32_t)(columns ? 1 : s.block_cols),
                                            (int32_t)(columns ? s.block_cols : 1),
                                            random() % 2 ? TARTAN_CUDA_INSIDE : TARTAN_CUDA_SQUARES};
        tartan_cuda_host_groups h = {};
        ASSERT_OK(tartan_cuda_index_sub_groups(&tartan_i_host, l, columns, &sub, group, &h));
        const int64_t lines = grid(columns ? s.cols : s.rows, edge),
                      across = grid(columns ? s.rows : s.cols, edge);
        ASSERT_EQ(grid(lines, group), h.groups_per_head);
        int64_t e = 0;
        for (int64_t g = 0; g < heads * h.groups_per_head; g++) {
            ASSERT_EQ(e, h.values[h.pointers + g]);
            const int64_t head = g / h.groups_per_head, first = g % h.groups_per_head * group;
            for (int64_t position = 0; position < across; position++) {
                std::vector<int64_t> here((size_t)group, -1);
                for (int64_t r = 0; r < group && first + r < lines; r++) {
                    const int64_t row = (columns ? position : first + r) * edge,
                                  col = (columns ? first + r : position) * edge;
                    const int64_t i_block = tartan_i_block_row_at(l, row),
                                  j_block = tartan_i_block_col_at(l, col);
                    const int64_t id = tartan_i_layout_find(l, head, i_block, j_block);
                    if (id < 0) continue;
                    here[(size_t)r] =
                        ((id * s.block_rows + row - tartan_i_row_begin(l, i_block)) * s.block_cols + col -
                         tartan_i_col_begin(l, j_block)) /
                        edge;
                }
                if (*std::max_element(here.begin(), here.end()) < 0) continue;
                ASSERT_EQ(position, h.values[h.cols + e]);
                for (int32_t r = 0; r < group; r++)
                    ASSERT_EQ(here[(size_t)r], h.values[h.ids + e * group + r]);
                e++;
            }
        }
        ASSERT_EQ(e, h.entries);
        tartan_i_host.free(h.values);
    }
    // Squares of a quarter of the blocks, on average.
    const Layout mixed = with_boundaries(from_mask({2, 2, 1, 1, 1}, {1, 0, 0, 1}), {0, 16, 80}, {0, 16, 80});
    tartan_cuda_figures figures;
    ASSERT_OK(tartan_cuda_figures_of(&tartan_i_host, mixed.get(), &figures));
    EXPECT_EQ(16, figures.edge);
    EXPECT_EQ((16 * 16 + 64 * 64) / (2 * 64.0 * 64), figures.filled);
}

TEST(CudaIndex, FiguresOfSubBlocks) {
    for (const int64_t block : {24, 40, 48, 72, 96, 256})
        for (const double density : {0.05, 0.3})
            for (const bool columns : {false, true}) {
                const Layout layout = random_layout({48 * block, 48 * block, block, block, 1}, density, 7);
                tartan_cuda_spmm p = {};
                p.block_m = p.block_k = (int32_t)block;
                p.blocks = layout->blocks, p.grid_m = p.grid_k = 48, p.by_columns = columns;
                ASSERT_OK(tartan_cuda_figures_of(&tartan_i_host, layout.get(), &p.figures));
                const int32_t edge = tartan_cuda_sub_edge(p.block_m, p.block_k);
                const tartan_cuda_spmm q = tartan_cuda_spmm_in_sub_blocks(&p, edge);
                ASSERT_EQ(48 * block / edge, q.grid_m);
                ASSERT_EQ(48 * block / edge, q.grid_k);
                const tartan_cuda_sub_blocks sub = {edge, p.block_k, 1, TARTAN_CUDA_INSIDE};
                for (int i = 0; i < TARTAN_CUDA_SHARES; i++) {
                    tartan_cuda_host_groups h = {};
                    ASSERT_OK(tartan_cuda_index_sub_groups(&tartan_i_host, layout.get(), columns, &sub,
                                                           1 << i, &h));
                    const double share = (double)q.blocks / (double)h.entries;
                    EXPECT_NEAR(share, q.figures.share[columns][i], 0.15 * share)
                        << block << " " << density << " " << (1 << i);
                    tartan_i_host.free(h.values);
                }
            }
    tartan_cuda_spmm same = {};
    same.block_m = same.block_k = 32, same.blocks = 5, same.figures.share[0][1] = 1.5;
    const tartan_cuda_spmm q = tartan_cuda_spmm_in_sub_blocks(&same, 32);
    EXPECT_EQ(32, q.block_m);
    EXPECT_EQ(5, q.blocks);
    EXPECT_EQ(1.5, q.figures.share[0][1]);
}

TEST(CudaIndex, FailsCleanlyWithoutMemory) {
    const Layout l = random_layout({40, 40, 4, 4, 2}, 0.4, 3);
    for (const bool by_columns : {false, true}) {
        tartan_cuda_host_rows lists = {};
        BRUTAL(tartan_cuda_index_rows(&tartan_i_host, l.get(), by_columns, &lists),
               tartan_i_host.free(lists.values));
        tartan_cuda_host_groups index = {};
        BRUTAL(tartan_cuda_index_groups(&tartan_i_host, l.get(), by_columns, 4, &index),
               tartan_i_host.free(index.values));
    }
}

namespace {

double share_of(const tartan_layout *l, bool by_columns, int32_t group) {
    tartan_cuda_host_groups index = {};
    EXPECT_OK(tartan_cuda_index_groups(&tartan_i_host, l, by_columns, group, &index));
    tartan_i_host.free(index.values);
    return (double)tartan_layout_blocks(l) / (double)index.entries;
}

} // namespace

TEST(CudaIndex, FiguresAreExactWhereAllGroupsAreCounted) {
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

// Few blocks in lines of more than 4096 positions, at the edges of the bitmap's words.
TEST(CudaIndex, GroupsOfLongLines) {
    std::vector<uint8_t> mask(6 * 10000);
    for (int row = 0; row < 6; row++)
        for (int col : {0, 63, 64, 4095, 4096, 8191, 8192, 9000 + row, 9999})
            mask[(size_t)(10000 * row + col)] = (col + row) % 3 != 0;
    const Layout l = from_mask({6, 10000, 1, 1, 1}, mask);
    for (int32_t group : {1, 2, 4, 5}) {
        check_groups(l.get(), false, group);
        check_groups(l.get(), true, group);
    }
}

TEST(CudaIndex, FiguresOfLargeLayoutsAreSampled) {
    // 3000 block rows: groups of two are looked at every second one.
    const Layout l = random_layout({3000, 64, 1, 1, 1}, 0.25, 5);
    tartan_cuda_figures f;
    ASSERT_OK(tartan_cuda_figures_of(&tartan_i_host, l.get(), &f));
    EXPECT_EQ(1, f.share[0][0]);
    for (int i = 1; i < TARTAN_CUDA_SHARES; i++)
        EXPECT_NEAR(share_of(l.get(), false, 1 << i), f.share[0][i], 0.05);
}

// A dynamic layout has the figures of evenly scattered blocks that fill its capacity.
TEST(CudaIndex, FiguresOfDynamicLayoutsAreExpected) {
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

// Both forms of a mask, as it is and transposed, bit by bit.
TEST(CudaIndex, MasksOfAnyLayout) {
    const auto keep = [](void *user, int64_t head, int64_t row, int64_t col) -> int32_t {
        return (head + 3 * row + 5 * col) % *(int64_t *)user == 0 || row < 40;
    };
    for (const tartan_shape &s : {tartan_shape{100, 90, 16, 40, 2}, tartan_shape{64, 70, 64, 8, 1},
                                  tartan_shape{0, 4, 1, 1, 1}, tartan_shape{5, 300, 256, 256, 1}}) {
        const Layout l = random_layout(s, 0.7, 1);
        int64_t every = 3;
        tartan_block_mask *mask = nullptr;
        ASSERT_OK(tartan_block_mask_from_rule(l.get(), keep, &every, &mask));
        for (const bool transposed : {false, true}) {
            const int64_t lines = transposed ? s.block_cols : s.block_rows,
                          words = ((transposed ? s.block_rows : s.block_cols) + 31) / 32;
            tartan_cuda_host_block_mask h = {};
            ASSERT_OK(tartan_cuda_index_block_mask(&tartan_i_host, mask, transposed, &h));
            EXPECT_EQ(0, h.words_of % 32 + h.bits % 32 + h.size % 32);
            for (int64_t at = 0; at < l->blocks * lines * words * 32; at++) {
                const int64_t id = at / (lines * words * 32), line = at / (words * 32) % lines,
                              col = at % (words * 32);
                const int64_t i = transposed ? col : line, j = transposed ? line : col;
                const bool kept =
                    i < s.block_rows && j < s.block_cols && tartan_i_block_mask_keeps(mask, id, i, j);
                const int32_t words_of = h.values[h.words_of + id];
                ASSERT_EQ(words_of < 0, tartan_i_block_mask_is_full(mask, id));
                if (words_of < 0) continue;
                const uint32_t *stored =
                    (const uint32_t *)h.values + h.bits + (words_of * lines + line) * words;
                ASSERT_EQ(kept, stored[col / 32] >> (col % 32) & 1) << id << ": " << i << ", " << j;
            }
            tartan_i_host.free(h.values);
            BRUTAL(tartan_cuda_index_block_mask(&tartan_i_host, mask, transposed, &h),
                   tartan_i_host.free(h.values));
        }
        tartan_block_mask_free(mask);
    }
}
