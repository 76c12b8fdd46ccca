// SPDX-License-Identifier: Apache-2.0
// References, and the inside: begin, finish, find, head.
#include <atomic>
#include <thread>

#include "layouts.h"

extern "C" {
#include "layout/layout.h"
}

using namespace tartan_test;

namespace {

TEST(References, TheLastOneFrees) {
    int64_t live = tartan_i_memory_live();
    tartan_layout *l = pattern(square(4), "dense").release();
    EXPECT_EQ(tartan_layout_retain(l), l);
    EXPECT_EQ(tartan_layout_retain(l), l);
    tartan_layout_free(l);
    tartan_layout_free(l);
    EXPECT_EQ(tartan_layout_blocks(l), 16);
    tartan_layout_free(l);
    EXPECT_EQ(tartan_i_memory_live(), live);
}

TEST(References, NullAndForeignHandles) {
    EXPECT_EQ(tartan_layout_retain(nullptr), nullptr);
    tartan_layout_free(nullptr);
    alignas(64) char other[256] = "not a layout";
    EXPECT_EQ(tartan_layout_retain(reinterpret_cast<tartan_layout *>(other)), nullptr);
    tartan_layout_free(reinterpret_cast<tartan_layout *>(other));
    EXPECT_STREQ(other, "not a layout");
}

TEST(References, FromManyThreads) {
    int64_t live = tartan_i_memory_live();
    tartan_layout *l = pattern(square(4), "dense").release();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        tartan_layout_retain(l);
        threads.emplace_back([l] {
            for (int i = 0; i < 10000; i++) tartan_layout_free(tartan_layout_retain(l));
            tartan_layout_free(l);
        });
    }
    tartan_layout_free(l);
    for (auto &t : threads) t.join();
    EXPECT_EQ(tartan_i_memory_live(), live);
}

TEST(Begin, Refusals) {
    tartan_shape s{4, 6, 2, 2, 1}, bad{4, 6, 0, 2, 1};
    EXPECT_NO_LAYOUT(LAYOUT, "7 blocks, expected at most the 6", tartan_i_layout_begin(&s, 7, &out));
    EXPECT_NO_LAYOUT(LAYOUT, "-1 blocks", tartan_i_layout_begin(&s, -1, &out));
    EXPECT_NO_LAYOUT(ARGUMENT, "blocks of 0 x 2", tartan_i_layout_begin(&bad, 1, &out));
    EXPECT_NO_LAYOUT(HANDLE, "shape is NULL", tartan_i_layout_begin(nullptr, 1, &out));
    tartan_shape huge{(int64_t)2147483647 * 256, (int64_t)2147483647 * 256, 256, 256, 1};
    EXPECT_NO_LAYOUT(OVERFLOW, "exceed what can be addressed",
                     tartan_i_layout_begin(&huge, (int64_t)1 << 44, &out));
}

// Finishes a layout of 2 x 3 blocks with the given lists.
tartan_status finish(const Indices &pointers, const std::vector<int32_t> &cols) {
    tartan_shape s{4, 6, 2, 2, 1};
    tartan_layout *l = nullptr;
    EXPECT_OK(tartan_i_layout_begin(&s, (int64_t)cols.size(), &l));
    std::copy(pointers.begin(), pointers.end(), l->row_pointers);
    std::copy(cols.begin(), cols.end(), l->block_cols);
    tartan_status status = tartan_i_layout_finish(l);
    tartan_layout_free(l);
    return status;
}

TEST(Finish, Refusals) {
    EXPECT_OK(finish({0, 1, 3}, {2, 0, 1}));
    EXPECT_OK(finish({0, 0, 0}, {}));
    EXPECT_FAILS(LAYOUT, "row_pointers go from 1 to 3", finish({1, 1, 3}, {2, 0, 1}));
    EXPECT_FAILS(LAYOUT, "row_pointers go from 0 to 2, expected 0 to 3", finish({0, 1, 2}, {2, 0, 1}));
    EXPECT_FAILS(LAYOUT, "row_pointers[1] is 4", finish({0, 4, 3}, {2, 0, 1}));
    EXPECT_FAILS(LAYOUT, "row_pointers[1] is -1", finish({0, -1, 3}, {2, 0, 1}));
    EXPECT_FAILS(LAYOUT, "row_pointers[1] is", finish({0, INT64_MAX, 3}, {2, 0, 1}));
    EXPECT_FAILS(LAYOUT, "block_cols[2] is 0 after 1", finish({0, 1, 3}, {2, 1, 0}));
    EXPECT_FAILS(LAYOUT, "block_cols[2] is 1 after 1", finish({0, 1, 3}, {2, 1, 1}));
    EXPECT_FAILS(LAYOUT, "block_cols[0] is 3", finish({0, 1, 3}, {3, 0, 1}));
    EXPECT_FAILS(LAYOUT, "block_cols[0] is -1 after -1", finish({0, 1, 3}, {-1, 0, 1}));
}

const tartan_i_columns *columns_of(const tartan_layout *layout) {
    const tartan_i_columns *columns = nullptr;
    EXPECT_OK(tartan_i_layout_columns(layout, &columns));
    return columns;
}

TEST(Columns, AreMadeWhenTheyAreFirstNeeded) {
    const Layout l = random_layout({40, 60, 2, 3, 2}, 0.3, 5);
    EXPECT_EQ(nullptr, tartan_i_columns_of(l.get()));
    tartan_layout *raw = nullptr;
    ASSERT_OK(tartan_layout_transpose(l.get(), &raw));
    const Layout transposed(raw);
    const tartan_i_columns *made = tartan_i_columns_of(l.get());
    ASSERT_NE(nullptr, made);
    EXPECT_EQ(nullptr, tartan_i_columns_of(raw));
    EXPECT_EQ(made, columns_of(l.get())); // once
}

TEST(Columns, EveryAllocationCanFail) {
    const tartan_shape s = {8, 6, 2, 3, 1};
    const Mask mask = {1, 0, 1, 1, 0, 1, 1, 1};
    const auto all = [&] {
        tartan_layout *l = nullptr;
        int64_t pointers[3], rows[6], ids[6];
        tartan_status status = tartan_layout_from_mask(&s, mask.data(), 8, &l);
        if (status == TARTAN_OK) status = tartan_layout_get_col_lists(l, pointers, 3, rows, 6, ids, 6);
        tartan_layout_free(l);
        return status;
    };
    BRUTAL(all(), (void)0);
}

// Many threads ask at once: all get the same lists, and the same identity.
TEST(Columns, AnyThreadCanBeFirst) {
    for (uint64_t seed = 0; seed < 50; seed++) {
        const tartan_shape s = {400, 300, 2, 3, 1};
        const Layout l = random_layout(s, 0.2, seed), same = random_layout(s, 0.2, seed);
        const std::string identity = tartan_layout_identity(same.get());
        std::vector<std::thread> threads;
        std::vector<const tartan_i_columns *> got(4);
        std::atomic<int> ready{0}, wrong{0};
        for (size_t i = 0; i < got.size(); i++)
            threads.emplace_back([&, i] {
                for (ready++; ready < (int)got.size();) std::this_thread::yield();
                if (tartan_i_layout_columns(l.get(), &got[i]) != TARTAN_OK) wrong++;
                if (identity != tartan_layout_identity(l.get())) wrong++;
            });
        for (std::thread &t : threads) t.join();
        ASSERT_EQ(0, wrong);
        for (const tartan_i_columns *c : got) ASSERT_EQ(tartan_i_columns_of(l.get()), c);
        const tartan_i_columns *expected = columns_of(same.get());
        ASSERT_TRUE(std::equal(expected->ids, expected->ids + l->blocks, got[0]->ids));
    }
}

TEST(Finish, RecipeIsCopied) {
    Layout l = from_mask({4, 4, 2, 2, 1}, {1, 0, 0, 1});
    EXPECT_STREQ(tartan_layout_recipe(l.get()), "");
    std::string recipe = "{\"by\":\"hand\"}";
    ASSERT_OK(tartan_i_layout_set_recipe(l.get(), recipe.c_str()));
    ASSERT_OK(tartan_i_layout_set_recipe(l.get(), recipe.c_str()));
    recipe[0] = 'x';
    EXPECT_STREQ(tartan_layout_recipe(l.get()), "{\"by\":\"hand\"}");
    BRUTAL(tartan_i_layout_set_recipe(l.get(), "{}"), );
    EXPECT_STREQ(tartan_layout_recipe(l.get()), "{}");
}

TEST(Inside, FindHeadAndCoordinatesAgree) {
    std::mt19937_64 random(5);
    for (int i = 0; i < rounds(1000); i++) {
        Layout l = any_layout(random);
        Coordinates c = coordinates(l.get());
        int64_t next = 0;
        for (int64_t h = 0; h < l->shape.heads; h++)
            for (int64_t r = 0; r < l->grid_rows; r++)
                for (int64_t k = 0; k < l->grid_cols; k++) {
                    size_t id = (size_t)next;
                    bool stored =
                        id < c.rows.size() && c.heads[id] == h && c.rows[id] == r && c.cols[id] == k;
                    ASSERT_EQ(tartan_i_layout_find(l.get(), h, r, k), stored ? next : -1);
                    if (stored) {
                        ASSERT_EQ(tartan_i_layout_head(l.get(), next), h);
                    }
                    next += stored;
                }
        ASSERT_EQ(next, l->blocks);
    }
}

TEST(Inside, RaggedEdges) {
    Layout l = from_mask({5, 7, 2, 3, 1}, Mask(9, 1));
    EXPECT_EQ(tartan_i_rows_of(l.get(), 0), 2);
    EXPECT_EQ(tartan_i_rows_of(l.get(), 2), 1);
    EXPECT_EQ(tartan_i_cols_of(l.get(), 1), 3);
    EXPECT_EQ(tartan_i_cols_of(l.get(), 2), 1);
}

} // namespace
