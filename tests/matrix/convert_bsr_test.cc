// SPDX-License-Identifier: Apache-2.0
#include "matrix_support.h"

using namespace tartan_test;

namespace {

// Blocks in random order within their rows, values with any strides, NaN in the padding.
TEST(BsrArrays, SortsAndCopies) {
    std::mt19937_64 random(1);
    for (int n = 0; n < rounds(500); n++) {
        tartan_shape s = random_shape(random, 1);
        Layout layout = random_layout(s, 0.5, random());
        int64_t blocks = layout->blocks, grid_rows = layout->grid_rows;
        int32_t dtype = all_dtypes[n % 4];
        std::vector<int64_t> cols(layout->block_cols, layout->block_cols + blocks);
        for (int64_t i = 0; i < grid_rows; i++)
            std::shuffle(cols.begin() + layout->row_pointers[i], cols.begin() + layout->row_pointers[i + 1],
                         random);
        Dense values(dtype, {blocks, s.block_rows, s.block_cols}, &random);
        std::vector<double> expected((size_t)(s.rows * s.cols));
        for (int64_t i = 0; i < grid_rows; i++)
            for (int64_t k = layout->row_pointers[i]; k < layout->row_pointers[i + 1]; k++)
                for (int64_t r = 0; r < s.block_rows; r++)
                    for (int64_t c = 0; c < s.block_cols; c++) {
                        int64_t row = i * s.block_rows + r, col = cols[(size_t)k] * s.block_cols + c;
                        bool inside = row < s.rows && col < s.cols;
                        double x = round_to((double)(random() % 1000) / 999, dtype);
                        values.set({k, r, c}, inside ? x : std::nan(""));
                        if (inside) expected[(size_t)(row * s.cols + col)] = x;
                    }
        tartan_matrix *m = nullptr;
        ASSERT_OK(tartan_matrix_from_bsr(&s,
                                         lists_of(layout->row_pointers, grid_rows + 1, cols.data(), blocks),
                                         &values.array, n / 4 % 2, &m));
        Matrix owner(m);
        EXPECT_EQ(dtype, m->dtype);
        EXPECT_EQ(n / 4 % 2, m->block_order);
        EXPECT_EQ(1, tartan_layout_equal(layout.get(), m->layout));
        EXPECT_EQ(expected, elements_of(m));
        EXPECT_TRUE(padding_is_zero(m));
        EXPECT_OK(tartan_matrix_check(m, 1));
    }
}

struct BsrRefused : testing::Test {
    tartan_shape shape = {4, 6, 2, 3, 1};
    std::vector<int64_t> pointers = {0, 2, 3}, cols = {1, 0, 1};
    Dense values = Dense(TARTAN_F32, {3, 2, 3});
    tartan_matrix *m = nullptr;
    tartan_status bsr() {
        return tartan_matrix_from_bsr(&shape, lists_of(pointers, cols), &values.array, 0, &m);
    }
};

TEST_F(BsrRefused, Indices) {
    ASSERT_OK(bsr());
    tartan_matrix_free(m);
    int64_t live = tartan_i_memory_live();
    cols = {1, 1, 1};
    EXPECT_FAILS(LAYOUT, "tartan_matrix_from_bsr: indices has block (0, 1) twice", bsr());
    cols = {1, 0, 2};
    EXPECT_FAILS(LAYOUT, "indices[2] is 2, expected 0 .. 1", bsr());
    cols = {-1, 0, 1};
    EXPECT_FAILS(LAYOUT, "indices[0] is -1", bsr());
    cols = {1, 0, 1}, pointers = {1, 2, 3};
    EXPECT_FAILS(LAYOUT, "go from 1 to 3", bsr());
    pointers = {0, 2, 4};
    EXPECT_FAILS(LAYOUT, "go from 0 to 4", bsr());
    pointers = {0, 5, 3};
    EXPECT_FAILS(LAYOUT, "pointers[2] is 3 after 5", bsr());
    pointers = {0, -1, 3};
    EXPECT_FAILS(LAYOUT, "pointers[1] is -1", bsr());
    pointers = {0, 3};
    EXPECT_FAILS(SHAPE, "pointers has 2", bsr());
    EXPECT_EQ(nullptr, m);
    EXPECT_EQ(live, tartan_i_memory_live());
}

TEST_F(BsrRefused, Arguments) {
    auto *v = &values.array;
    const int64_t *p = pointers.data(), *c = cols.data();
    Dense flat(TARTAN_F32, {3, 6}), turned(TARTAN_F32, {3, 3, 2});
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_matrix_from_bsr(&shape, lists_of(p, 3, c, 3), v, 0, nullptr));
    EXPECT_FAILS(HANDLE, "shape is NULL", tartan_matrix_from_bsr(nullptr, lists_of(p, 3, c, 3), v, 0, &m));
    EXPECT_FAILS(HANDLE, "lists is NULL", tartan_matrix_from_bsr(&shape, nullptr, v, 0, &m));
    EXPECT_FAILS(ARGUMENT, "by_column", tartan_matrix_from_bsr(&shape, lists_of(p, 3, c, 3, true), v, 0, &m));
    EXPECT_FAILS(HANDLE, "pointers is NULL",
                 tartan_matrix_from_bsr(&shape, lists_of(nullptr, 3, c, 3), v, 0, &m));
    EXPECT_FAILS(HANDLE, "indices is NULL",
                 tartan_matrix_from_bsr(&shape, lists_of(p, 3, nullptr, 3), v, 0, &m));
    EXPECT_FAILS(SHAPE, "indices has -1", tartan_matrix_from_bsr(&shape, lists_of(p, 3, c, -1), v, 0, &m));
    EXPECT_FAILS(HANDLE, "values is NULL",
                 tartan_matrix_from_bsr(&shape, lists_of(p, 3, c, 3), nullptr, 0, &m));
    EXPECT_FAILS(SHAPE, "[3, 6], expected [3, 2, 3]",
                 tartan_matrix_from_bsr(&shape, lists_of(p, 3, c, 3), &flat.array, 0, &m));
    EXPECT_FAILS(SHAPE, "[3, 3, 2], expected [3, 2, 3]",
                 tartan_matrix_from_bsr(&shape, lists_of(p, 3, c, 3), &turned.array, 0, &m));
    EXPECT_FAILS(ARGUMENT, "block_order is 2",
                 tartan_matrix_from_bsr(&shape, lists_of(p, 3, c, 3), v, 2, &m));
    shape.heads = 2;
    EXPECT_FAILS(SHAPE, "2 heads", bsr());
    shape = {4, 6, 0, 3, 1};
    EXPECT_FAILS(ARGUMENT, "tartan_matrix_from_bsr: ", bsr());
    shape = {-4, 6, 2, 3, 1};
    EXPECT_FAILS(SHAPE, "-4", bsr());
    shape = {4, 6, 2, 3, 1};
    values.array.dtype = 0;
    EXPECT_FAILS(DTYPE, "dtype 0", bsr());
    values.array.dtype = TARTAN_F32, values.array.device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "CUDA", bsr());
    EXPECT_EQ(nullptr, m);
}

TEST_F(BsrRefused, WithoutMemory) {
    BRUTAL(bsr(), tartan_matrix_free(m));
}

} // namespace
