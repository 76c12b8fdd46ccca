// SPDX-License-Identifier: Apache-2.0
#include "matrix_support.h"

using namespace tartan_test;

namespace {

Matrix sample(uint64_t seed = 1) {
    std::mt19937_64 random(seed);
    return random_matrix({10, 7, 4, 3, 2}, TARTAN_F32, TARTAN_ROW_MAJOR, random, 0.8);
}

TEST(Check, AcceptsWhatIsSound) {
    std::mt19937_64 random(2);
    for (int n = 0; n < rounds(100); n++) {
        Matrix a = random_matrix(random_shape(random), all_dtypes[n % 4], n / 4 % 2, random);
        EXPECT_OK(tartan_matrix_check(a.get(), 1));
    }
}

TEST(Check, Handles) {
    Matrix a = sample(), gpu = on_device(a->layout);
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_check(nullptr, 0));
    EXPECT_FAILS(HANDLE, "matrix is closed", tartan_matrix_check((tartan_matrix *)a->layout, 0));
    EXPECT_OK(tartan_matrix_check(gpu.get(), 0));
    EXPECT_FAILS(UNSUPPORTED, "CUDA device 1", tartan_matrix_check(gpu.get(), 1));
}

TEST(Check, FindsWhatIsNotFinite) {
    for (int32_t dtype : all_dtypes) {
        for (double bad : {std::nan(""), (double)INFINITY, (double)-INFINITY}) {
            std::mt19937_64 random(3);
            Matrix a = random_matrix({10, 7, 4, 3, 1}, dtype, TARTAN_COL_MAJOR, random, 1);
            // Block 5 is (1, 2), one column wide: its element (2, 0) follows two others.
            tartan_i_store(tartan_i_block_at(a.get(), 5), dtype, 2, bad);
            EXPECT_OK(tartan_matrix_check(a.get(), 0));
            EXPECT_FAILS(ARGUMENT, "block 5 (head 0, block row 1, block column 2) at (2, 0)",
                         tartan_matrix_check(a.get(), 1));
            tartan_i_store(tartan_i_block_at(a.get(), 5), dtype, 2, 1);
            tartan_i_store(tartan_i_block_at(a.get(), 5), dtype, 6, bad); // padding
            EXPECT_OK(tartan_matrix_check(a.get(), 1));
        }
    }
}

// Breaks one thing inside, checks, and repairs it.
template <class T> void breaks(const Matrix &a, T &place, T value, const char *part) {
    T before = place;
    place = value;
    EXPECT_FAILS(INTERNAL, part, tartan_matrix_check(a.get(), 0));
    place = before;
    EXPECT_OK(tartan_matrix_check(a.get(), 0));
}

TEST(Check, FindsBrokenHandles) {
    Matrix a = sample();
    tartan_layout *l = a->layout;
    const tartan_i_columns *made;
    EXPECT_OK(tartan_matrix_check(a.get(), 0)); // without column lists
    ASSERT_OK(tartan_i_layout_columns(l, &made));
    tartan_i_columns *columns = &l->columns;
    breaks(a, a->dtype, 0, "dtype 0");
    breaks(a, a->block_order, 7, "block order 7");
    breaks(a, a->device_type, 5, "device type 5");
    breaks(a, a->values, (void *)nullptr, "values at");
    breaks(a, a->values, (void *)((char *)a->values + 1), "values at");
    breaks(a, a->layout, (tartan_layout *)nullptr, "no open layout");
    breaks(a, l->magic, 0u, "no open layout");
    breaks(a, l->shape.rows, (int64_t)-1, "frame");
    breaks(a, l->shape.block_cols, (int64_t)257, "frame");
    breaks(a, l->shape.heads, (int64_t)0, "frame");
    breaks(a, l->grid_rows, (int64_t)4, "grid");
    breaks(a, l->blocks, l->blocks - 1, "row pointers");
    breaks(a, l->row_pointers[0], (int64_t)1, "row pointers run from 1");
    breaks(a, l->row_pointers[1], l->blocks + 5, "row pointers descend");
    breaks(a, l->row_pointers, (int64_t *)nullptr, "no row pointers");
    breaks(a, l->block_cols[0], 3, "block column 3");
    breaks(a, l->block_cols[0], -1, "block column -1");
    breaks(a, l->block_cols[1], l->block_cols[0], "block column");
    breaks(a, l->block_rows[0], 1, "block row 1");
    breaks(a, l->block_cols, (int32_t *)nullptr, "no coordinates");
    breaks(a, columns->pointers[1], (int64_t)-1, "column pointers descend");
    breaks(a, columns->ids[0], columns->ids[1], "column lists");
    breaks(a, columns->ids[0], (int64_t)-1, "column lists");
    breaks(a, columns->ids[0], l->blocks, "column lists");
    breaks(a, columns->rows[0], 2, "column lists");
    breaks(a, columns->ids, (int64_t *)nullptr, "no column lists");
}

} // namespace
