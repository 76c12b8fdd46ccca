// SPDX-License-Identifier: Apache-2.0
#include "matrix_support.h"

using namespace tartan_test;

namespace {

bool stored(const tartan_layout *l, int64_t h, int64_t r, int64_t c) {
    return tartan_i_layout_find(l, h, r / l->shape.block_rows, c / l->shape.block_cols) >= 0;
}

// dense -> matrix -> dense: random shapes, strides, dtypes and orders.
TEST(DenseArrays, RoundTrips) {
    std::mt19937_64 random(1);
    for (int n = 0; n < rounds(2000); n++) {
        tartan_shape s = random_shape(random);
        int32_t from = all_dtypes[random() % 4], mid = all_dtypes[random() % 4],
                to = all_dtypes[random() % 4];
        Layout layout = random_layout(s, 0.5, random());
        Dense dense = random_dense(s, from, random);
        Matrix m = from_dense(layout, dense, n % 3 ? mid : 0, n % 2);
        if (n % 3 == 0) mid = from;
        EXPECT_EQ(mid, m->dtype);
        EXPECT_TRUE(padding_is_zero(m.get()));
        ASSERT_OK(tartan_matrix_check(m.get(), 1));
        Dense back(to, dense_shape(s), &random);
        std::vector<uint64_t> before = back.room;
        ASSERT_OK(tartan_matrix_to_dense(m.get(), &back.array));
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t r = 0; r < s.rows; r++)
                for (int64_t c = 0; c < s.cols; c++) {
                    double x = round_to(round_to(dense.get(index_of(s, h, r, c)), mid), to);
                    if (!stored(layout.get(), h, r, c)) x = 0;
                    ASSERT_EQ(x, back.get(index_of(s, h, r, c))) << n;
                    back.set(index_of(s, h, r, c), std::nan(""));
                }
        // Nothing beside the elements was written.
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t r = 0; r < s.rows; r++)
                for (int64_t c = 0; c < s.cols; c++) {
                    int64_t at = back.offset(index_of(s, h, r, c));
                    memcpy(tartan_i_at(back.array.data, to, at), before.data(),
                           (size_t)tartan_dtype_bytes(to));
                }
        ASSERT_EQ(before, back.room);
    }
}

TEST(DenseArrays, RepeatedInputByStrideZero) {
    tartan_shape s = {6, 6, 4, 4, 1};
    Layout layout = from_mask(s, {1, 1, 1, 1});
    double row[] = {1, 2, 3, 4, 5, 6};
    const int64_t shape[] = {6, 6}, strides[] = {0, 1};
    tartan_array dense;
    ASSERT_OK(tartan_array_init(row, TARTAN_F64, 2, shape, strides, &dense));
    tartan_matrix *m = nullptr;
    ASSERT_OK(tartan_matrix_from_dense(layout.get(), &dense, 0, 0, &m));
    Matrix owner(m);
    std::vector<double> all = elements_of(m);
    for (size_t i = 0; i < 36; i++) EXPECT_EQ(row[i % 6], all[i]);
}

TEST(DenseArrays, LargeBlocksAllDtypes) {
    std::mt19937_64 random(2);
    tartan_shape s = {300, 500, 256, 128, 1};
    for (int32_t dtype : all_dtypes) {
        Layout layout = random_layout(s, 0.7, 3);
        Dense dense = random_dense(s, dtype, random, false), back(dtype, {300, 500});
        Matrix m = from_dense(layout, dense, 0, TARTAN_COL_MAJOR);
        ASSERT_OK(tartan_matrix_to_dense(m.get(), &back.array));
        for (int64_t r = 0; r < s.rows; r++)
            for (int64_t c = 0; c < s.cols; c++)
                ASSERT_EQ(stored(layout.get(), 0, r, c) ? dense.get({r, c}) : 0, back.get({r, c}));
    }
}

TEST(DenseArrays, FromDenseRefuses) {
    tartan_shape s = {10, 7, 4, 3, 1}, two = {10, 7, 4, 3, 2};
    Layout layout = random_layout(s, 0.5, 1), heads = random_layout(two, 0.5, 1);
    Dense dense(TARTAN_F32, {10, 7}), turned(TARTAN_F32, {7, 10}), batch(TARTAN_F32, {3, 10, 7}),
        one(TARTAN_F32, {1, 10, 7});
    tartan_matrix *m = nullptr;
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_matrix_from_dense(layout.get(), &dense.array, 0, 0, nullptr));
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_matrix_from_dense(nullptr, &dense.array, 0, 0, &m));
    EXPECT_FAILS(HANDLE, "dense is NULL", tartan_matrix_from_dense(layout.get(), nullptr, 0, 0, &m));
    EXPECT_FAILS(SHAPE, "dense has shape [7, 10], expected [10, 7]",
                 tartan_matrix_from_dense(layout.get(), &turned.array, 0, 0, &m));
    EXPECT_FAILS(SHAPE, "[1, 10, 7]", tartan_matrix_from_dense(layout.get(), &one.array, 0, 0, &m));
    EXPECT_FAILS(SHAPE, "dense has shape [3, 10, 7], expected [2, 10, 7]",
                 tartan_matrix_from_dense(heads.get(), &batch.array, 0, 0, &m));
    EXPECT_FAILS(SHAPE, "[10, 7], expected [2, 10, 7]",
                 tartan_matrix_from_dense(heads.get(), &dense.array, 0, 0, &m));
    EXPECT_FAILS(DTYPE, "dtype is 8", tartan_matrix_from_dense(layout.get(), &dense.array, 8, 0, &m));
    EXPECT_FAILS(ARGUMENT, "block_order is 4",
                 tartan_matrix_from_dense(layout.get(), &dense.array, 0, 4, &m));
    dense.array.device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "dense is on CUDA device 0",
                 tartan_matrix_from_dense(layout.get(), &dense.array, 0, 0, &m));
    EXPECT_EQ(nullptr, m);
}

TEST(DenseArrays, ToDenseRefuses) {
    std::mt19937_64 random(4);
    tartan_shape s = {8, 6, 4, 3, 1};
    Matrix m = random_matrix(s, TARTAN_F64, 0, random, 1), gpu = on_device(m->layout);
    Dense dense(TARTAN_F32, {8, 6}), turned(TARTAN_F32, {6, 8});
    std::vector<uint64_t> before = dense.room;
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_to_dense(nullptr, &dense.array));
    EXPECT_FAILS(HANDLE, "dense is NULL", tartan_matrix_to_dense(m.get(), nullptr));
    EXPECT_FAILS(SHAPE, "dense has shape [6, 8], expected [8, 6]",
                 tartan_matrix_to_dense(m.get(), &turned.array));
    EXPECT_FAILS(UNSUPPORTED, "CUDA device 1", tartan_matrix_to_dense(gpu.get(), &dense.array));
    tartan_array bad = dense.array;
    bad.strides[0] = 0;
    EXPECT_FAILS(ARGUMENT, "repeat or interleave", tartan_matrix_to_dense(m.get(), &bad));
    bad = dense.array, bad.dtype = 0;
    EXPECT_FAILS(DTYPE, "dtype 0", tartan_matrix_to_dense(m.get(), &bad));
    bad = dense.array, bad.device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "dense is on CUDA", tartan_matrix_to_dense(m.get(), &bad));
    EXPECT_EQ(before, dense.room);
    bad = dense.array, bad.dtype = TARTAN_F64, bad.data = m->values;
    std::vector<double> values = elements_of(m.get());
    EXPECT_FAILS(ARGUMENT, "dense overlaps the values", tartan_matrix_to_dense(m.get(), &bad));
    EXPECT_EQ(values, elements_of(m.get()));
}

TEST(DenseArrays, WithoutMemory) {
    std::mt19937_64 random(5);
    tartan_shape s = {8, 6, 4, 3, 1};
    Layout layout = random_layout(s, 0.5, 1);
    Dense dense = random_dense(s, TARTAN_F32, random);
    tartan_matrix *m = nullptr;
    BRUTAL(tartan_matrix_from_dense(layout.get(), &dense.array, TARTAN_BF16, 0, &m), tartan_matrix_free(m));
}

} // namespace
