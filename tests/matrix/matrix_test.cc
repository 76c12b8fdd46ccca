// SPDX-License-Identifier: Apache-2.0
#include "matrix_support.h"

using namespace tartan_test;

namespace {

const tartan_shape ragged = {10, 7, 4, 3, 2};

TEST(Matrix, CreateIsZero) {
    Layout layout = random_layout(ragged, 0.6, 1);
    for (int32_t dtype : all_dtypes) {
        for (int32_t order : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}) {
            tartan_matrix *m = nullptr;
            ASSERT_OK(tartan_matrix_create(layout.get(), dtype, order, &m));
            Matrix owner(m);
            EXPECT_EQ(dtype, tartan_matrix_dtype(m));
            EXPECT_EQ(order, tartan_matrix_block_order(m));
            for (double x : elements_of(m)) EXPECT_EQ(0, x);
            EXPECT_TRUE(padding_is_zero(m));
            EXPECT_OK(tartan_matrix_check(m, 1));
            tartan_layout *again = nullptr;
            ASSERT_OK(tartan_matrix_get_layout(m, &again));
            EXPECT_EQ(layout.get(), again);
            tartan_layout_free(again);
        }
    }
}

TEST(Matrix, KeepsItsLayout) {
    int64_t live = tartan_i_memory_live();
    Layout layout = random_layout(ragged, 0.6, 1);
    tartan_matrix *m = nullptr;
    ASSERT_OK(tartan_matrix_create(layout.get(), TARTAN_F32, TARTAN_ROW_MAJOR, &m));
    layout.reset();
    EXPECT_OK(tartan_matrix_check(m, 1));
    tartan_matrix_free(m);
    EXPECT_EQ(live, tartan_i_memory_live());
    tartan_matrix_free(nullptr);
}

TEST(Matrix, CreateRefuses) {
    Layout layout = random_layout(ragged, 0.6, 1);
    tartan_matrix *m = (tartan_matrix *)1;
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_matrix_create(layout.get(), TARTAN_F32, 0, nullptr));
    EXPECT_FAILS(HANDLE, "tartan_matrix_create: layout is NULL",
                 tartan_matrix_create(nullptr, TARTAN_F32, 0, &m));
    EXPECT_EQ(nullptr, m);
    uint32_t foreign[32] = {TARTAN_I_MATRIX};
    EXPECT_FAILS(HANDLE, "layout is closed or not",
                 tartan_matrix_create((tartan_layout *)foreign, TARTAN_F32, 0, &m));
    EXPECT_FAILS(DTYPE, "dtype is 0", tartan_matrix_create(layout.get(), 0, 0, &m));
    EXPECT_FAILS(DTYPE, "dtype is 7", tartan_matrix_create(layout.get(), 7, 0, &m));
    EXPECT_FAILS(ARGUMENT, "block_order is 2", tartan_matrix_create(layout.get(), TARTAN_F32, 2, &m));
    EXPECT_FAILS(ARGUMENT, "block_order is -1", tartan_matrix_create(layout.get(), TARTAN_F32, -1, &m));
    EXPECT_EQ(nullptr, m);
}

TEST(Matrix, CreateWithoutMemory) {
    Layout layout = random_layout(ragged, 0.6, 1);
    tartan_matrix *m = nullptr;
    BRUTAL(tartan_matrix_create(layout.get(), TARTAN_F32, TARTAN_ROW_MAJOR, &m), tartan_matrix_free(m));
}

/* ---- Wrapping ---- */

void count_release(void *user) {
    ++*(int *)user;
}

struct Wrapping {
    tartan_shape shape;
    std::vector<uint8_t> mask;
    std::vector<int64_t> strides;
    int32_t order; // -1: refused
};

TEST(Wrap, JudgesOrderByStrides) {
    const std::vector<uint8_t> two = {1, 0, 0, 1}, one = {1}, none = {0};
    const Wrapping cases[] = {
        {{6, 8, 3, 4, 1}, two, {12, 4, 1}, TARTAN_ROW_MAJOR},
        {{6, 8, 3, 4, 1}, two, {12, 1, 3}, TARTAN_COL_MAJOR},
        {{6, 8, 3, 4, 1}, two, {13, 4, 1}, -1},
        {{6, 8, 3, 4, 1}, two, {-12, 4, 1}, -1},
        {{6, 8, 3, 4, 1}, two, {12, 4, 2}, -1},
        {{6, 8, 3, 4, 1}, two, {12, 5, 1}, -1},
        {{6, 8, 3, 4, 1}, two, {0, 4, 1}, -1},
        {{2, 8, 1, 4, 1}, two, {4, 99, 1}, TARTAN_ROW_MAJOR}, // strides of unit dimensions say nothing
        {{2, 8, 1, 4, 1}, two, {4, 4, 2}, -1},
        {{6, 2, 3, 1, 1}, two, {3, 1, 99}, TARTAN_ROW_MAJOR},
        {{6, 2, 3, 1, 1}, two, {3, 2, 1}, -1},
        {{2, 2, 1, 1, 1}, two, {1, 50, 60}, TARTAN_ROW_MAJOR},
        {{2, 2, 1, 1, 1}, two, {2, 1, 1}, -1},
        {{3, 4, 3, 4, 1}, one, {77, 4, 1}, TARTAN_ROW_MAJOR},
        {{3, 4, 3, 4, 1}, one, {77, 1, 3}, TARTAN_COL_MAJOR},
        {{3, 4, 3, 4, 1}, none, {12, 1, 3}, TARTAN_COL_MAJOR},
        {{3, 4, 3, 4, 1}, none, {0, 0, 0}, TARTAN_ROW_MAJOR},
    };
    std::vector<double> memory(256);
    for (const Wrapping &w : cases) {
        Layout layout = from_mask(w.shape, w.mask);
        const int64_t shape[] = {tartan_layout_blocks(layout.get()), w.shape.block_rows, w.shape.block_cols};
        tartan_array values;
        ASSERT_OK(tartan_array_init(memory.data() + 128, TARTAN_F64, 3, shape, w.strides.data(), &values));
        tartan_matrix *m = nullptr;
        if (w.order < 0) {
            EXPECT_FAILS(SHAPE, "contiguous blocks",
                         tartan_matrix_wrap(layout.get(), &values, nullptr, nullptr, &m));
            EXPECT_EQ(nullptr, m);
        } else {
            EXPECT_OK(tartan_matrix_wrap(layout.get(), &values, nullptr, nullptr, &m));
            EXPECT_EQ(w.order, tartan_matrix_block_order(m));
            tartan_matrix_free(m);
        }
    }
}

TEST(Wrap, SharesTheMemoryAndReleasesItOnce) {
    Layout layout = from_mask({4, 4, 2, 2, 1}, {1, 0, 1, 1});
    std::vector<float> memory(12, 1);
    const int64_t shape[] = {3, 2, 2};
    tartan_array values, view;
    ASSERT_OK(tartan_array_init(memory.data(), TARTAN_F32, 3, shape, nullptr, &values));
    int released = 0;
    tartan_matrix *m = nullptr;
    ASSERT_OK(tartan_matrix_wrap(layout.get(), &values, count_release, &released, &m));
    ASSERT_OK(tartan_matrix_values(m, &view));
    EXPECT_EQ(0, memcmp(&values, &view, sizeof view));
    memory[9] = 5; // block 2, row 0, column 1
    double x;
    ASSERT_OK(tartan_matrix_entry(m, 0, 2, 3, &x));
    EXPECT_EQ(5, x);
    ASSERT_OK(tartan_matrix_fill_zero(m));
    EXPECT_EQ(0, memory[9]);
    EXPECT_EQ(0, released);
    tartan_matrix_free(m);
    EXPECT_EQ(1, released);
}

TEST(TakeValues, LeavesTheMemoryToTheCaller) {
    Layout layout = from_mask({4, 4, 2, 2, 1}, {1, 0, 1, 1});
    const int64_t before = tartan_i_memory_live();
    tartan_matrix *m = nullptr;
    tartan_array taken, view;
    ASSERT_OK(tartan_matrix_create(layout.get(), TARTAN_F64, TARTAN_COL_MAJOR, &m));
    ASSERT_OK(tartan_matrix_values(m, &view));
    tartan_i_matrix_hold(m); // as a call of another thread does
    EXPECT_FAILS(ARGUMENT, "in use by another call", tartan_matrix_take_values(m, &taken));
    tartan_i_matrix_let_go(m);
    EXPECT_FAILS(HANDLE, "out_view is NULL", tartan_matrix_take_values(m, nullptr));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_take_values(nullptr, &taken));
    ASSERT_OK(tartan_matrix_take_values(m, &taken)); // and m is gone
    EXPECT_EQ(0, memcmp(&view, &taken, sizeof view));
    EXPECT_EQ(before, tartan_i_memory_live());
    ASSERT_OK(tartan_matrix_wrap(layout.get(), &taken, nullptr, nullptr, &m));
    EXPECT_FAILS(ARGUMENT, "memory of others", tartan_matrix_take_values(m, &view));
    tartan_matrix_free(m);
    static_cast<double *>(taken.data)[11] = 1;
    free(taken.data);
}

TEST(Wrap, RefusesAndReleasesNothing) {
    Layout layout = from_mask({4, 4, 2, 2, 1}, {1, 0, 1, 1});
    std::vector<float> memory(64);
    const int64_t shape[] = {3, 2, 2}, other[] = {4, 2, 2}, flat[] = {3, 4}, turned[] = {3, 2, 3};
    tartan_array values, bad;
    ASSERT_OK(tartan_array_init(memory.data(), TARTAN_F32, 3, shape, nullptr, &values));
    int released = 0;
    tartan_matrix *m = nullptr;
    auto wrap = [&](const tartan_array *v) {
        return tartan_matrix_wrap(layout.get(), v, count_release, &released, &m);
    };
    EXPECT_FAILS(HANDLE, "out is NULL",
                 tartan_matrix_wrap(layout.get(), &values, count_release, &released, nullptr));
    EXPECT_FAILS(HANDLE, "layout is NULL",
                 tartan_matrix_wrap(nullptr, &values, count_release, &released, &m));
    EXPECT_FAILS(HANDLE, "values is NULL", wrap(nullptr));
    ASSERT_OK(tartan_array_init(memory.data(), TARTAN_F32, 3, other, nullptr, &bad));
    EXPECT_FAILS(SHAPE, "values has shape [4, 2, 2], expected [3, 2, 2]", wrap(&bad));
    ASSERT_OK(tartan_array_init(memory.data(), TARTAN_F32, 3, turned, nullptr, &bad));
    EXPECT_FAILS(SHAPE, "[3, 2, 3]", wrap(&bad));
    ASSERT_OK(tartan_array_init(memory.data(), TARTAN_F32, 2, flat, nullptr, &bad));
    EXPECT_FAILS(SHAPE, "[3, 4]", wrap(&bad));
    bad = values, bad.dtype = 0;
    EXPECT_FAILS(DTYPE, "dtype 0", wrap(&bad));
    bad = values, bad.data = nullptr;
    EXPECT_FAILS(HANDLE, "data NULL", wrap(&bad));
    bad = values, bad.device_type = 9;
    EXPECT_FAILS(UNSUPPORTED, "device type 9", wrap(&bad));
    EXPECT_EQ(0, released);
    BRUTAL(wrap(&values), tartan_matrix_free(m));
    EXPECT_EQ(1, released);
}

TEST(Wrap, PaddingIsNeverRead) {
    std::mt19937_64 random(5);
    for (int n = 0; n < rounds(200); n++) {
        tartan_shape s = random_shape(random, 2);
        Matrix a = random_matrix(s, TARTAN_F64, (int32_t)(n % 2), random);
        tartan_array values;
        ASSERT_OK(tartan_matrix_values(a.get(), &values));
        const tartan_layout *l = a->layout;
        std::vector<double> memory((size_t)(l->blocks * s.block_rows * s.block_cols + 1), std::nan(""));
        std::vector<double> expected = elements_of(a.get());
        for (int64_t id = 0; id < l->blocks; id++)
            for (int64_t r = 0; r < tartan_i_rows_of(l, l->block_rows[id]); r++)
                for (int64_t c = 0; c < tartan_i_cols_of(l, l->block_cols[id]); c++) {
                    int64_t at = id * values.strides[0] + r * values.strides[1] + c * values.strides[2];
                    memory[(size_t)at] = ((double *)values.data)[at];
                }
        values.data = memory.data();
        tartan_matrix *made = nullptr, *copy = nullptr, *turned = nullptr;
        ASSERT_OK(tartan_matrix_wrap(a->layout, &values, nullptr, nullptr, &made));
        Matrix m(made);
        EXPECT_OK(tartan_matrix_check(made, 1));
        ASSERT_OK(tartan_matrix_copy(cpu(), made, &copy));
        Matrix c(copy);
        EXPECT_EQ(expected, elements_of(copy));
        EXPECT_TRUE(padding_is_zero(copy));
        ASSERT_OK(tartan_matrix_transpose(cpu(), made, &turned));
        Matrix t(turned);
        EXPECT_TRUE(padding_is_zero(turned));
        std::vector<double> norms((size_t)l->blocks);
        for (int32_t norm : {TARTAN_NORM_MAX, TARTAN_NORM_L1, TARTAN_NORM_L2}) {
            ASSERT_OK(tartan_matrix_block_norms(cpu(), made, norm, norms.data(), l->blocks));
            for (double x : norms) EXPECT_TRUE(std::isfinite(x));
        }
    }
}

/* ---- Copy and cast ---- */

TEST(Copy, IsEqualAndApart) {
    std::mt19937_64 random(6);
    for (int32_t dtype : all_dtypes) {
        Matrix a = random_matrix(ragged, dtype, TARTAN_COL_MAJOR, random);
        tartan_matrix *copy = nullptr;
        ASSERT_OK(tartan_matrix_copy(cpu(), a.get(), &copy));
        Matrix b(copy);
        EXPECT_NE(a->values, b->values);
        EXPECT_EQ(dtype, b->dtype);
        EXPECT_EQ(TARTAN_COL_MAJOR, b->block_order);
        EXPECT_EQ(elements_of(a.get()), elements_of(copy));
    }
}

TEST(Cast, EveryPairOfDtypesAndOrders) {
    std::mt19937_64 random(7);
    for (int n = 0; n < rounds(20); n++) {
        tartan_shape s = n % 2 ? random_shape(random) : tartan_shape{8, 12, 4, 6, 2};
        for (int32_t from : all_dtypes) {
            for (int32_t to : {0, 1, 2, 3, 4}) {
                for (int orders = 0; orders < 4; orders++) {
                    Matrix a = random_matrix(s, from, orders / 2, random);
                    tartan_matrix *cast = nullptr;
                    ASSERT_OK(tartan_matrix_cast(cpu(), a.get(), to, orders % 2, &cast));
                    Matrix b(cast);
                    EXPECT_EQ(to ? to : from, b->dtype);
                    EXPECT_EQ(orders % 2, b->block_order);
                    EXPECT_TRUE(padding_is_zero(cast));
                    std::vector<double> x = elements_of(a.get()), y = elements_of(cast);
                    for (size_t i = 0; i < x.size(); i++) ASSERT_EQ(round_to(x[i], b->dtype), y[i]);
                }
            }
        }
    }
}

TEST(Cast, RoundsOnce) {
    Layout layout = from_mask({1, 2, 1, 2, 1}, {1});
    // Just above ties of bf16 and f16 that a rounding to f32 would reach.
    double traps[] = {1 + std::ldexp(1, -8) + std::ldexp(1, -40),
                      1 + std::ldexp(1, -11) + std::ldexp(1, -40)};
    const int64_t shape[] = {1, 1, 2};
    tartan_array values;
    ASSERT_OK(tartan_array_init(traps, TARTAN_F64, 3, shape, nullptr, &values));
    tartan_matrix *a = nullptr, *b = nullptr, *h = nullptr;
    ASSERT_OK(tartan_matrix_wrap(layout.get(), &values, nullptr, nullptr, &a));
    Matrix owner(a);
    ASSERT_OK(tartan_matrix_cast(cpu(), a, TARTAN_BF16, 0, &b));
    Matrix owner_b(b);
    ASSERT_OK(tartan_matrix_cast(cpu(), a, TARTAN_F16, 0, &h));
    Matrix owner_h(h);
    EXPECT_EQ(1 + std::ldexp(1, -7), elements_of(b)[0]);
    EXPECT_EQ(1 + std::ldexp(1, -10), elements_of(h)[1]);
}

TEST(Cast, Refuses) {
    std::mt19937_64 random(8);
    Matrix a = random_matrix(ragged, TARTAN_F32, 0, random);
    tartan_matrix *m = nullptr;
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_matrix_copy(cpu(), a.get(), nullptr));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_copy(cpu(), nullptr, &m));
    EXPECT_FAILS(HANDLE, "matrix is closed", tartan_matrix_copy(cpu(), (tartan_matrix *)a->layout, &m));
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_matrix_copy(nullptr, a.get(), &m));
    EXPECT_FAILS(HANDLE, "context is closed", tartan_matrix_copy((tartan_context *)a.get(), a.get(), &m));
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_matrix_cast(nullptr, a.get(), 0, 0, &m));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_matrix_cast(cpu(), a.get(), 0, 0, nullptr));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_cast(cpu(), nullptr, 0, 0, &m));
    EXPECT_FAILS(DTYPE, "dtype is 9", tartan_matrix_cast(cpu(), a.get(), 9, 0, &m));
    EXPECT_FAILS(ARGUMENT, "block_order is 3", tartan_matrix_cast(cpu(), a.get(), 0, 3, &m));
    Matrix gpu = on_device(a->layout);
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:1, expected 1:0",
                 tartan_matrix_copy(cpu(), gpu.get(), &m));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:1, expected 1:0",
                 tartan_matrix_cast(cpu(), gpu.get(), 0, 0, &m));
    EXPECT_EQ(nullptr, m);
}

TEST(Cast, WithoutMemory) {
    std::mt19937_64 random(9);
    Matrix a = random_matrix(ragged, TARTAN_F32, 0, random);
    tartan_matrix *m = nullptr;
    BRUTAL(tartan_matrix_cast(cpu(), a.get(), TARTAN_BF16, 1, &m), tartan_matrix_free(m));
}

TEST(Copy, WithoutMemory) {
    std::mt19937_64 random(9);
    Matrix a = random_matrix(ragged, TARTAN_F32, 0, random);
    tartan_matrix *m = nullptr;
    BRUTAL(tartan_matrix_copy(cpu(), a.get(), &m), tartan_matrix_free(m));
}

/* ---- Asking ---- */

TEST(Matrix, Entries) {
    std::mt19937_64 random(10);
    for (int n = 0; n < 50; n++) {
        tartan_shape s = random_shape(random);
        Matrix a = random_matrix(s, all_dtypes[n % 4], n / 4 % 2, random);
        std::vector<double> all = elements_of(a.get());
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t r = 0; r < s.rows; r++)
                for (int64_t c = 0; c < s.cols; c++) {
                    double x = std::nan("");
                    ASSERT_OK(tartan_matrix_entry(a.get(), h, r, c, &x));
                    ASSERT_EQ(all[(size_t)((h * s.rows + r) * s.cols + c)], x);
                }
    }
}

TEST(Matrix, AskingRefuses) {
    std::mt19937_64 random(11);
    Matrix a = random_matrix(ragged, TARTAN_F32, 0, random), gpu = on_device(a->layout);
    double x = 42;
    EXPECT_FAILS(ARGUMENT, "head is 2", tartan_matrix_entry(a.get(), 2, 0, 0, &x));
    EXPECT_FAILS(ARGUMENT, "head is -1", tartan_matrix_entry(a.get(), -1, 0, 0, &x));
    EXPECT_FAILS(ARGUMENT, "row is 10, expected 0 .. 9", tartan_matrix_entry(a.get(), 0, 10, 0, &x));
    EXPECT_FAILS(ARGUMENT, "row is -1", tartan_matrix_entry(a.get(), 0, -1, 0, &x));
    EXPECT_FAILS(ARGUMENT, "col is 7", tartan_matrix_entry(a.get(), 0, 0, 7, &x));
    EXPECT_FAILS(ARGUMENT, "col is -1", tartan_matrix_entry(a.get(), 0, 0, -1, &x));
    EXPECT_FAILS(HANDLE, "out_value is NULL", tartan_matrix_entry(a.get(), 0, 0, 0, nullptr));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_entry(nullptr, 0, 0, 0, &x));
    EXPECT_FAILS(UNSUPPORTED, "CUDA", tartan_matrix_entry(gpu.get(), 0, 0, 0, &x));
    EXPECT_EQ(42, x);
    tartan_layout *l = nullptr;
    tartan_array view;
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_get_layout(nullptr, &l));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_matrix_get_layout(a.get(), nullptr));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_values(nullptr, &view));
    EXPECT_FAILS(HANDLE, "out_view is NULL", tartan_matrix_values(a.get(), nullptr));
    EXPECT_EQ(-1, tartan_matrix_dtype(nullptr));
    EXPECT_EQ(-1, tartan_matrix_block_order(nullptr));
    EXPECT_EQ(-1, tartan_matrix_dtype((tartan_matrix *)a->layout));
    EXPECT_OK(tartan_matrix_values(gpu.get(), &view));
    EXPECT_EQ(TARTAN_CUDA, view.device_type);
    EXPECT_EQ(1, view.device_id);
}

// Blocks whose rows take one word of bits, two and three, the last not whole; some words have all bits.
TEST(Matrix, AMaskClearsWhatItDoesNotKeep) {
    for (const int64_t cols : {5, 40, 70})
        for (const int32_t order : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}) {
            const Layout layout = from_mask({6, 2 * cols, 3, cols, 1}, {1, 0, 1, 1});
            std::vector<uint8_t> bytes((size_t)(12 * cols), 1);
            const auto kept = [&](int64_t i, int64_t j) {
                return (i * 5 + j) % 7 != 0 || (i == 1 && j < 32);
            };
            for (int64_t i = 0; i < 6; i++)
                for (int64_t j = 0; j < 2 * cols; j++) bytes[(size_t)(i * 2 * cols + j)] = kept(i, j);
            const int64_t shape[] = {6, 2 * cols};
            tartan_array dense = {};
            ASSERT_OK(tartan_array_init(bytes.data(), TARTAN_U8, 2, shape, nullptr, &dense));
            tartan_block_mask *mask = nullptr;
            ASSERT_OK(tartan_block_mask_from_dense(layout.get(), &dense, &mask));
            tartan_matrix *raw = nullptr;
            ASSERT_OK(tartan_matrix_create(layout.get(), TARTAN_F32, order, &raw));
            const Matrix matrix(raw);
            for (int64_t e = 0; e < layout->blocks * 3 * cols; e++)
                ((float *)raw->values)[e] = (float)(e + 1);
            ASSERT_OK(tartan_matrix_apply_mask(raw, mask));
            tartan_block_mask_free(mask);
            for (int64_t id = 0; id < layout->blocks; id++)
                for (int64_t i = 0; i < 3; i++)
                    for (int64_t j = 0; j < cols; j++) {
                        const int64_t at =
                            id * 3 * cols + (order == TARTAN_ROW_MAJOR ? i * cols + j : j * 3 + i);
                        const bool keeps =
                            kept(layout->block_rows[id] * 3 + i, layout->block_cols[id] * cols + j);
                        ASSERT_EQ(keeps ? (float)(at + 1) : 0, ((const float *)raw->values)[at])
                            << i << ", " << j;
                    }
        }
}

} // namespace
