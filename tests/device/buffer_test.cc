// SPDX-License-Identifier: Apache-2.0
// Buffers and matrices to a device and back, on every backend.
#include "placed.h"

namespace {

using namespace tartan_test;

class Buffers : public OnBackend {
  protected:
    Buffer from_array(const tartan_array &array) {
        tartan_buffer *raw = nullptr;
        EXPECT_OK(tartan_buffer_from_array(context.get(), &array, &raw));
        return Buffer(raw);
    }
    static tartan_array view_of(const Buffer &buffer) {
        tartan_array view = {};
        EXPECT_OK(tartan_buffer_view(buffer.get(), &view));
        return view;
    }
    void expect_content(const Buffer &buffer, const Dense &want) {
        Dense got(want.array.dtype,
                  std::vector<int64_t>(want.array.shape, want.array.shape + want.array.ndim), kGaps);
        ASSERT_OK(tartan_buffer_to_array(context.get(), buffer.get(), &got.array));
        for (int64_t i = 0; i < want.elements(); i++) ASSERT_EQ(want.get(i), got.get(i)) << i;
        EXPECT_TRUE(marks_intact(got));
    }
};
INSTANTIATE_TEST_SUITE_P(Each, Buffers, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

const std::vector<std::vector<int64_t>> kShapes = {
    {}, {1}, {0}, {7}, {3, 5}, {0, 4}, {1, 6}, {2, 3, 4}, {2, 1, 3, 2}, {2, 2, 1, 2, 1, 3, 2, 2}};

TEST_P(Buffers, CopiesOfAnyStridesComeBack) {
    std::mt19937_64 random(1);
    for (int32_t dtype : kDtypes)
        for (const auto &shape : kShapes)
            for (int style = 0; style < kStyles; style++) {
                SCOPED_TRACE(::testing::Message() << shape.size() << " dimensions, style " << style);
                Dense dense(dtype, shape, (Style)style);
                dense.fill(random);
                const Buffer buffer = from_array(dense.array);
                const tartan_array view = view_of(buffer);
                EXPECT_EQ(on_host() ? TARTAN_CPU : TARTAN_CUDA, view.device_type);
                EXPECT_EQ(dummy() ? 1 : 0, view.device_id);
                expect_content(buffer, dense);
                if (HasFatalFailure()) return;
            }
}

// The source may be changed as soon as the call returns.
TEST_P(Buffers, TheSourceMayBeChangedAtOnce) {
    for (Style style : {kRows, kGaps}) {
        Dense dense(TARTAN_F64, {300, 400}, style);
        for (int64_t i = 0; i < dense.elements(); i++) dense.set(i, (double)i);
        const Dense before = dense;
        const Buffer buffer = from_array(dense.array);
        for (int64_t i = 0; i < dense.elements(); i++) dense.set(i, -1);
        expect_content(buffer, before);
    }
}

TEST_P(Buffers, OrderIsThatOfTheSourceWhereItHasOne) {
    const Dense rows(TARTAN_F32, {3, 5}), columns(TARTAN_F32, {3, 5}, kColumns),
        gaps(TARTAN_F32, {3, 5}, kGaps);
    const auto strides = [&](const Dense &d) {
        const tartan_array view = view_of(from_array(d.array));
        return std::pair<int64_t, int64_t>(view.strides[0], view.strides[1]);
    };
    EXPECT_EQ(std::make_pair(int64_t(5), int64_t(1)), strides(rows));
    EXPECT_EQ(std::make_pair(int64_t(1), int64_t(3)), strides(columns));
    EXPECT_EQ(std::make_pair(int64_t(5), int64_t(1)), strides(gaps));
}

TEST_P(Buffers, NewOnesAreZerosInEitherOrder) {
    const int64_t lengths[] = {2, 3, 4};
    for (int32_t order : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR})
        for (int32_t dtype : kDtypes) {
            tartan_buffer *raw = nullptr;
            ASSERT_OK(tartan_buffer_create(context.get(), dtype, lengths, 3, order, &raw));
            const Buffer buffer(raw);
            const tartan_array view = view_of(buffer);
            EXPECT_EQ(order == TARTAN_ROW_MAJOR ? 12 : 1, view.strides[0]);
            EXPECT_EQ(order == TARTAN_ROW_MAJOR ? 1 : 6, view.strides[2]);
            Dense zeros(dtype, {2, 3, 4});
            for (int64_t i = 0; i < zeros.elements(); i++) zeros.set(i, 0);
            expect_content(buffer, zeros);
        }
    tartan_buffer *raw = nullptr;
    ASSERT_OK(tartan_buffer_create(context.get(), TARTAN_F32, nullptr, 0, TARTAN_ROW_MAJOR, &raw));
    EXPECT_EQ(0, view_of(Buffer(raw)).ndim);
}

// Sources on the device itself: contiguous ones, and strided ones, whose strides are changed on the way.
TEST_P(Buffers, CopiesFromTheDevice) {
    std::mt19937_64 random(2);
    for (int style = 0; style < kStyles; style++)
        for (const auto &shape : kShapes) {
            Dense dense(TARTAN_BF16, shape, (Style)style);
            dense.fill(random);
            const Placed there(context.get(), dense);
            expect_content(from_array(there.array), dense);
        }
}

TEST_P(Buffers, MatricesComeBackWithZeroPadding) {
    std::mt19937_64 random(4);
    for (int32_t dtype : kDtypes)
        for (int32_t order : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}) {
            const Layout layout = random_layout({21, 34, 8, 5, 2}, 0.5, 3);
            const Matrix matrix = random_matrix(layout, dtype, order, random);
            const Matrix there = placed(context.get(), matrix), twice = placed(context.get(), there);
            EXPECT_STREQ(on_host() ? "cpu"
                         : dummy() ? "cuda:1"
                                   : "cuda:0",
                         tartan_matrix_device(there.get()));
            EXPECT_STREQ("cpu", tartan_matrix_device(matrix.get()));
            EXPECT_EQ(order, tartan_matrix_block_order(there.get()));
            EXPECT_EQ(layout.get(), there->layout); // shared
            for (const Matrix *from : {&there, &twice, &matrix}) {
                const Matrix back = fetched(context.get(), *from);
                EXPECT_STREQ("cpu", tartan_matrix_device(back.get()));
                for (int64_t id = 0; id < layout->blocks; id++)
                    for (int64_t i = 0; i < 8; i++)
                        for (int64_t j = 0; j < 5; j++) {
                            const bool inside = i < tartan_i_rows_of(layout.get(), layout->block_rows[id]) &&
                                                j < tartan_i_cols_of(layout.get(), layout->block_cols[id]);
                            ASSERT_EQ(inside ? entry(matrix.get(), id, i, j) : 0,
                                      entry(back.get(), id, i, j));
                        }
            }
        }
    const Layout empty = from_mask({8, 8, 4, 4, 1}, {0, 0, 0, 0});
    const Matrix none = placed(context.get(), random_matrix(empty, TARTAN_F32, 0, random));
    fetched(context.get(), none);
    EXPECT_EQ(nullptr, tartan_matrix_device(nullptr));
}

TEST_P(Buffers, RefuseBadArguments) {
    tartan_buffer *out = nullptr;
    const int64_t lengths[] = {2, 3}, negative[] = {2, -3}, huge[] = {int64_t(1) << 40, int64_t(1) << 40};
    const int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1},
                  zero_huge[] = {0, int64_t(1) << 40, int64_t(1) << 40};
    const auto create = [&](int32_t dtype, const int64_t *l, int64_t n, int32_t order) {
        out = (tartan_buffer *)lengths;
        const tartan_status status = tartan_buffer_create(context.get(), dtype, l, n, order, &out);
        EXPECT_EQ(nullptr, out);
        return status;
    };
    EXPECT_FAILS(DTYPE, "dtype is 99", create(99, lengths, 2, 0));
    EXPECT_FAILS(SHAPE, "lengths[1] is -3", create(TARTAN_F32, negative, 2, 0));
    EXPECT_FAILS(SHAPE, "nlengths is 9", create(TARTAN_F32, nine, 9, 0));
    EXPECT_FAILS(SHAPE, "nlengths is -1", create(TARTAN_F32, nine, -1, 0));
    EXPECT_FAILS(ARGUMENT, "order is 2", create(TARTAN_F32, lengths, 2, 2));
    EXPECT_FAILS(HANDLE, "lengths is NULL", create(TARTAN_F32, nullptr, 2, 0));
    EXPECT_FAILS(OVERFLOW, "more bytes", create(TARTAN_F32, huge, 2, 0));
    EXPECT_FAILS(OVERFLOW, "more bytes", create(TARTAN_F32, zero_huge, 3, 0));
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_buffer_create(nullptr, TARTAN_F32, lengths, 2, 0, &out));
    EXPECT_FAILS(HANDLE, "out is NULL",
                 tartan_buffer_create(context.get(), TARTAN_F32, lengths, 2, 0, nullptr));

    Dense dense(TARTAN_F32, {2, 3});
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_buffer_from_array(nullptr, &dense.array, &out));
    EXPECT_FAILS(HANDLE, "array is NULL", tartan_buffer_from_array(context.get(), nullptr, &out));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_buffer_from_array(context.get(), &dense.array, nullptr));
    tartan_array far = dense.array;
    far.device_type = TARTAN_CUDA, far.device_id = 7;
    EXPECT_FAILS(UNSUPPORTED, "array is on device 2:7", tartan_buffer_from_array(context.get(), &far, &out));
    tartan_array broad = dense.array; // few bytes that stand for more than there are addresses
    broad.dtype = TARTAN_F64, broad.ndim = 2, broad.shape[0] = broad.shape[1] = int64_t(1) << 31;
    broad.strides[0] = broad.strides[1] = 0;
    EXPECT_FAILS(OVERFLOW, "more bytes", tartan_buffer_from_array(context.get(), &broad, &out));

    const Buffer buffer = from_array(dense.array);
    const auto fetch = [&](const tartan_array &array) {
        tartan_array target = array;
        return tartan_buffer_to_array(context.get(), buffer.get(), &target);
    };
    EXPECT_FAILS(SHAPE, "array has shape [3, 2], expected [2, 3]", fetch(Dense(TARTAN_F32, {3, 2}).array));
    EXPECT_FAILS(SHAPE, "array has shape [6]", fetch(Dense(TARTAN_F32, {6}).array));
    EXPECT_FAILS(DTYPE, "array is of float64, expected float32", fetch(Dense(TARTAN_F64, {2, 3}).array));
    EXPECT_FAILS(ARGUMENT, "strides that repeat", fetch(Dense(TARTAN_F32, {2, 3}, kRepeated).array));
    EXPECT_FAILS(UNSUPPORTED, "array is on CUDA device 7", fetch(far));
    if (on_host()) {
        EXPECT_FAILS(ARGUMENT, "array overlaps the buffer", fetch(view_of(buffer)));
    }
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_buffer_to_array(nullptr, buffer.get(), &dense.array));
    EXPECT_FAILS(HANDLE, "buffer is NULL", tartan_buffer_to_array(context.get(), nullptr, &dense.array));
    EXPECT_FAILS(HANDLE, "array is NULL", tartan_buffer_to_array(context.get(), buffer.get(), nullptr));
    EXPECT_FAILS(HANDLE, "out_view is NULL", tartan_buffer_view(buffer.get(), nullptr));
    EXPECT_FAILS(HANDLE, "buffer is NULL", tartan_buffer_view(nullptr, &far));
    int64_t other[32] = {42};
    EXPECT_FAILS(HANDLE, "closed or not one of Tartan's", tartan_buffer_view((tartan_buffer *)other, &far));
    tartan_buffer_free((tartan_buffer *)other);
    EXPECT_EQ(42, other[0]);
    tartan_buffer_free(nullptr);
}

TEST_P(Buffers, MatricesRefuseBadArguments) {
    const Layout layout = random_layout({8, 8, 4, 4, 1}, 1, 1);
    std::mt19937_64 random(1);
    const Matrix matrix = random_matrix(layout, TARTAN_F32, 0, random);
    tartan_array values = {};
    ASSERT_OK(tartan_matrix_values(matrix.get(), &values));
    values.device_type = TARTAN_CUDA, values.device_id = 7;
    tartan_matrix *out = nullptr;
    ASSERT_OK(tartan_matrix_wrap(layout.get(), &values, nullptr, nullptr, &out));
    const Matrix far(out);
    EXPECT_STREQ("cuda:7", tartan_matrix_device(far.get()));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:7",
                 tartan_matrix_to_device(context.get(), far.get(), &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:7",
                 tartan_matrix_to_host(context.get(), far.get(), &out));
    EXPECT_EQ(nullptr, out);
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_matrix_to_device(nullptr, matrix.get(), &out));
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_matrix_to_host(nullptr, matrix.get(), &out));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_to_device(context.get(), nullptr, &out));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_to_host(context.get(), nullptr, &out));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_matrix_to_device(context.get(), matrix.get(), nullptr));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_matrix_to_host(context.get(), matrix.get(), nullptr));
}

TEST_P(Buffers, SurviveFullMemory) {
    const int64_t lengths[] = {2, 3};
    tartan_buffer *buffer = nullptr;
    tartan_matrix *out = nullptr;
    const Dense dense(TARTAN_F32, {2, 3, 4}, kGaps);
    const Layout layout = random_layout({9, 9, 4, 4, 1}, 1, 1);
    std::mt19937_64 random(1);
    const Matrix matrix = random_matrix(layout, TARTAN_F32, 0, random), there = placed(context.get(), matrix);
    BRUTAL(tartan_buffer_create(context.get(), TARTAN_F32, lengths, 2, 0, &buffer),
           tartan_buffer_free(buffer));
    BRUTAL(tartan_buffer_from_array(context.get(), &dense.array, &buffer), tartan_buffer_free(buffer));
    const Placed strided(context.get(), dense);
    BRUTAL(tartan_buffer_from_array(context.get(), &strided.array, &buffer), tartan_buffer_free(buffer));
    BRUTAL(tartan_matrix_to_device(context.get(), matrix.get(), &out), tartan_matrix_free(out));
    BRUTAL(tartan_matrix_to_host(context.get(), there.get(), &out), tartan_matrix_free(out));
    Dense target = dense;
    const Buffer full = from_array(dense.array);
    if (!on_host()) BRUTAL(tartan_buffer_to_array(context.get(), full.get(), &target.array), (void)0);
}

} // namespace
