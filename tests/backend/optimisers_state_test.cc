// SPDX-License-Identifier: Apache-2.0
// Weights and the state of an optimiser follow a layout that changes, on every backend.
#include "optimisers.h"

namespace {

using namespace tartan_test;

class BackendState : public OnBackend {};
INSTANTIATE_TEST_SUITE_P(Each, BackendState, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

// Where a block is, and which is at a place; -1: none.
int64_t block_at(const tartan_layout *l, int64_t row, int64_t col) {
    for (int64_t id = 0; id < l->blocks; id++)
        if (l->block_rows[id] == row && l->block_cols[id] == col) return id;
    return -1;
}

// Weights and moments of f32 and bf16 in every block order: blocks that stay keep their numbers, new blocks have zeros.
TEST_P(BackendState, MomentsFollowTheirWeights) {
    std::mt19937_64 random(11);
    const tartan_shape shape = {64, 48, 8, 16, 1};
    const Layout all = random_layout(shape, 0.5, 3);
    std::vector<double> gates((size_t)all->blocks);
    for (size_t id = 0; id < gates.size(); id++) gates[id] = id % 3 != 0;
    tartan_layout *raw = nullptr;
    ASSERT_OK(tartan_layout_prune(all.get(), gates.data(), all->blocks, &raw));
    const Layout pruned(raw);
    const int64_t new_rows[] = {0, 1, 7, 3}, new_cols[] = {2, 0, 1, 1};
    const tartan_places places = {nullptr, new_rows, new_cols, 4};
    ASSERT_OK(tartan_layout_grow(pruned.get(), &places, &raw));
    const Layout grown(raw);
    for (const int32_t dtype : {TARTAN_F32, TARTAN_BF16})
        for (const int32_t order : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}) {
            const Matrix here = random_matrix(all, dtype, order, random, 0.5, 1);
            Matrix matrix = placed(context.get(), here);
            for (const Layout *to : {&pruned, &grown}) {
                tartan_matrix *next = nullptr;
                ASSERT_OK(tartan_matrix_project(context.get(), matrix.get(), to->get(), &next));
                matrix.reset(next);
            }
            const Matrix found = fetched(context.get(), matrix);
            ASSERT_EQ(dtype, found->dtype);
            int64_t kept = 0, fresh = 0;
            for (int64_t id = 0; id < grown->blocks; id++) {
                const int64_t old = block_at(pruned.get(), grown->block_rows[id], grown->block_cols[id]);
                const int64_t first = block_at(all.get(), grown->block_rows[id], grown->block_cols[id]);
                (old >= 0 ? kept : fresh)++;
                for (int64_t r = 0; r < 8; r++)
                    for (int64_t c = 0; c < 16; c++)
                        ASSERT_EQ(old < 0 ? 0 : entry(here.get(), first, r, c), entry(found.get(), id, r, c));
            }
            ASSERT_EQ(pruned->blocks, kept);
            ASSERT_LT(0, fresh);
            // A block is moved to the place of one that was pruned; the others keep theirs.
            const int64_t moved = 0;
            int64_t empty = 0; // of 8 x 3 places
            while (block_at(grown.get(), empty / 3, empty % 3) >= 0) empty++;
            ASSERT_LT(empty, 24);
            const int64_t to_row = empty / 3, to_col = empty % 3;
            const tartan_places place = {nullptr, &to_row, &to_col, 1};
            std::vector<int64_t> sources((size_t)grown->blocks);
            ASSERT_OK(
                tartan_layout_move(grown.get(), &moved, 1, &place, sources.data(), grown->blocks, &raw));
            const Layout after(raw);
            tartan_matrix *next = nullptr;
            ASSERT_OK(tartan_matrix_rearrange(context.get(), matrix.get(), after.get(), sources.data(),
                                              after->blocks, &next));
            const Matrix there(next), got = fetched(context.get(), there);
            ASSERT_EQ(0, sources[(size_t)block_at(after.get(), to_row, to_col)]);
            for (int64_t id = 0; id < after->blocks; id++)
                ASSERT_EQ(entry(found.get(), sources[(size_t)id], 7, 15), entry(got.get(), id, 7, 15));
        }
}

} // namespace
