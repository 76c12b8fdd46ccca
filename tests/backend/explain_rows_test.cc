// SPDX-License-Identifier: Apache-2.0
// The table of the ways in which the CPU runs operations, and small operations that have several.
#include "../ops/products.h"
#include "explained_rows.h"

namespace {

using namespace tartan_test;

TEST(ExplainRows, TheLastRowOfAnOperationTakesAll) {
    for (int32_t op = 0; op < TARTAN_OP_COUNT; op++) {
        const tartan_i_cpu_rows &all = tartan_i_cpu_table[op];
        for (int32_t i = 0; i < all.count; i++) {
            EXPECT_EQ(i + 1 == all.count, all.rows[i].refuses == nullptr) << all.rows[i].name;
            EXPECT_NE(nullptr, all.rows[i].why) << all.rows[i].name;
        }
    }
}

const char *const kNoScale = "it does not scale rows and columns";

// Functions of arithmetic are not asked by explain, their operations are.
TEST(ExplainRows, Elementwise) {
    const std::vector<uint8_t> mask = {1, 0, 1, 1};
    const Layout whole = from_mask({16, 16, 8, 8, 1}, mask), ragged = from_mask({16, 12, 8, 8, 1}, mask);
    std::mt19937_64 random(1);
    const auto matrix = [&](const Layout &layout, int32_t order = TARTAN_ROW_MAJOR) {
        return random_matrix(layout, TARTAN_F32, order, random);
    };
    const Matrix a = matrix(whole), b = matrix(whole), c = matrix(whole),
                 turned = matrix(whole, TARTAN_COL_MAJOR), edges = matrix(ragged);
    const int64_t ids[] = {2, 1, 0};
    tartan_op op = {};
    op.kind = TARTAN_OP_ELEMENTWISE;
    tartan_op_elementwise &e = op.elementwise;
    e.step = TARTAN_I_STEP_sum, e.p = 2, e.q = 1, e.a = a.get(), e.b = b.get(), e.to = c.get();
    const auto text = [&] { return explained([&] { return tartan_i_explain(cpu(), &op); }); };
    const char *const same_ids = "operands have the block ids of the result";
    const char *const other_ids = "operands have other block ids than the result";
    const auto by_blocks = [&](const char *why, const char *why_not_gather) {
        expect_row(TARTAN_OP_ELEMENTWISE, text(), "elementwise",
                   {{"elementwise_scale", kNoScale},
                    {"elementwise_flat", why},
                    {"elementwise_gather", why_not_gather}});
    };
    expect_row(TARTAN_OP_ELEMENTWISE, text(), "elementwise_flat",
               {{"elementwise_scale", kNoScale}, {"elementwise_gather", same_ids}, {"elementwise", kSlower}});
    e.to = turned.get();
    by_blocks("operands have another block order than the result", same_ids);
    e.b_sources = ids;
    by_blocks(other_ids, "operands have another block order than the result");
    e.to = c.get();
    expect_row(TARTAN_OP_ELEMENTWISE, text(), "elementwise_gather",
               {{"elementwise_scale", kNoScale}, {"elementwise_flat", other_ids}, {"elementwise", kSlower}});
    const Matrix large = matrix(from_mask({32, 32, 16, 16, 1}, mask));
    e.a = e.b = e.to = large.get();
    by_blocks(other_ids, "blocks are large");
    e.b_sources = nullptr, e.a = e.b = e.to = edges.get();
    by_blocks("blocks at the edge have padding", same_ids);
    e.step = TARTAN_I_STEP_scale, e.p = 1, e.a = a.get(), e.b = nullptr, e.to = c.get();
    by_blocks("blocks are moved as they are", same_ids);
    const Dense factors(TARTAN_F64, {1, 16});
    e.row_factors = &factors.array;
    expect_row(TARTAN_OP_ELEMENTWISE, text(), "elementwise_scale",
               {{"elementwise_flat", "it scales rows and columns"},
                {"elementwise_gather", "it scales rows and columns"},
                {"elementwise", kSlower}});
}

TEST(ExplainRows, WindowScatter) {
    const Layout active = from_mask({3, 3, 1, 1, 1}, std::vector<uint8_t>(9, 1));
    const Dense blocks(TARTAN_F32, {9, 2, 3, 3});
    Dense y(TARTAN_F32, {1, 2, 9, 9});
    const auto scatter = [&](const char *windows, const char *options) {
        return explained([&] {
            return tartan_window_scatter(cpu(), active.get(), windows, &blocks.array, nullptr, options,
                                         &y.array);
        });
    };
    expect_row(TARTAN_OP_WINDOW_SCATTER, scatter("size=3", nullptr), "window_scatter",
               {{"window_scatter_overlap", "values are not added"}});
    expect_row(TARTAN_OP_WINDOW_SCATTER, scatter("size=3", "add=1"), "window_scatter",
               {{"window_scatter_overlap", "windows do not overlap"}});
    expect_row(TARTAN_OP_WINDOW_SCATTER, scatter("size=3 stride=2", "add=1"), "window_scatter_overlap",
               {{"window_scatter", "threads would add to the same positions"}});
}

} // namespace
