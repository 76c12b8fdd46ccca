// SPDX-License-Identifier: Apache-2.0
#include "matrix_support.h"

extern "C" {
#include "core/random.h"
}

using namespace tartan_test;

namespace {

Matrix create(const Layout &layout, int32_t dtype, int32_t order = TARTAN_ROW_MAJOR) {
    tartan_matrix *m = nullptr;
    EXPECT_OK(tartan_matrix_create(layout.get(), dtype, order, &m));
    // What was there before must not matter.
    tartan_array v;
    EXPECT_OK(tartan_matrix_values(m, &v));
    for (int64_t i = 0; i < v.shape[0] * v.strides[0]; i++) tartan_i_store(v.data, dtype, i, std::nan(""));
    return Matrix(m);
}

TEST(Fill, Zero) {
    Layout layout = random_layout({10, 7, 4, 3, 2}, 0.6, 1);
    for (int32_t dtype : all_dtypes) {
        Matrix m = create(layout, dtype);
        ASSERT_OK(tartan_matrix_fill_zero(m.get()));
        for (double x : elements_of(m.get())) EXPECT_EQ(0, x);
        EXPECT_TRUE(padding_is_zero(m.get()));
    }
}

TEST(Fill, Identity) {
    std::mt19937_64 random(1);
    for (int n = 0; n < rounds(300); n++) {
        tartan_shape s = random_shape(random);
        Layout layout = random_layout(s, 0.7, random());
        Matrix m = create(layout, all_dtypes[n % 4], n / 4 % 2);
        ASSERT_OK(tartan_matrix_fill_identity(m.get(), -2.5));
        EXPECT_TRUE(padding_is_zero(m.get()));
        std::vector<double> x = elements_of(m.get());
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t r = 0; r < s.rows; r++)
                for (int64_t c = 0; c < s.cols; c++) {
                    int64_t i = r / s.block_rows, j = c / s.block_cols;
                    bool one = tartan_i_layout_find(layout.get(), h, i, j) >= 0 &&
                               i % layout->grid_cols == j % layout->grid_rows &&
                               r % s.block_rows == c % s.block_cols;
                    ASSERT_EQ(one ? -2.5 : 0, x[(size_t)((h * s.rows + r) * s.cols + c)]);
                }
    }
}

TEST(Fill, IdentityOfASquareMatrix) {
    Layout layout = from_mask({10, 10, 4, 4, 1}, {1, 1, 0, 1, 1, 1, 0, 1, 1});
    Matrix m = create(layout, TARTAN_F64);
    ASSERT_OK(tartan_matrix_fill_identity(m.get(), 1));
    std::vector<double> x = elements_of(m.get());
    for (size_t i = 0; i < 100; i++) EXPECT_EQ(i / 10 == i % 10, x[i]);
}

// The same numbers in every dtype, block order and number of threads.
template <class Filler> void does_not_depend(Filler fill, const tartan_shape &s) {
    Layout layout = random_layout(s, 0.6, 5);
    Context one = open_context(1);
    Matrix reference = create(layout, TARTAN_F64);
    ASSERT_OK(fill(one.get(), reference.get()));
    EXPECT_TRUE(padding_is_zero(reference.get()));
    std::vector<double> x = elements_of(reference.get());
    for (int32_t threads : {1, 2, 3, 7}) {
        Context context = open_context(threads);
        for (int32_t dtype : all_dtypes) {
            for (int32_t order : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}) {
                Matrix m = create(layout, dtype, order);
                ASSERT_OK(fill(context.get(), m.get()));
                std::vector<double> y = elements_of(m.get());
                for (size_t i = 0; i < x.size(); i++) ASSERT_EQ(round_to(x[i], dtype), y[i]);
                EXPECT_TRUE(padding_is_zero(m.get()));
            }
        }
    }
}

TEST(FillNormal, DependsOnSeedBlockAndElementOnly) {
    auto fill = [](tartan_context *c, tartan_matrix *m) { return tartan_matrix_fill_normal(c, m, 0.5, 42); };
    does_not_depend(fill, {50, 43, 7, 5, 2});
    does_not_depend(fill, {32, 32, 8, 8, 1});
}

TEST(FillOrthogonal, DependsOnSeedBlockAndElementOnly) {
    auto fill = [](tartan_context *c, tartan_matrix *m) {
        return tartan_matrix_fill_orthogonal(c, m, 0.5, 42);
    };
    does_not_depend(fill, {50, 43, 7, 5, 2});
    does_not_depend(fill, {32, 32, 8, 8, 1});
}

TEST(FillNormal, IsTheNumbersOfTheStream) {
    tartan_shape s = {10, 7, 4, 3, 1};
    Layout layout = from_mask(s, {1, 0, 1, 0, 0, 1, 0, 1, 0});
    Context context = open_context();
    Matrix m = create(layout, TARTAN_F64, TARTAN_COL_MAJOR);
    ASSERT_OK(tartan_matrix_fill_normal(context.get(), m.get(), 3, 9));
    double pair[2], x;
    tartan_i_normal_pair(9, TARTAN_I_STREAM_NORMAL, 1, 4,
                         pair);                           // block 1 is (0, 2), one column wide: fan-in 4
    ASSERT_OK(tartan_matrix_entry(m.get(), 0, 3, 6, &x)); // element (3, 0) is number 9
    EXPECT_EQ(pair[1] * (3 / std::sqrt(4.0)), x);
}

TEST(FillNormal, StatisticsAndFanIn) {
    tartan_shape s = {1000, 1024, 32, 32, 1};
    std::vector<uint8_t> mask(32 * 32);
    for (size_t i = 0; i < 32; i++) // block row i has i + 1 blocks
        for (size_t j = 0; j <= i; j++) mask[i * 32 + (j * 7 + i) % 32] = 1;
    Layout layout = from_mask(s, mask);
    Context context = open_context(2);
    Matrix m = create(layout, TARTAN_F64);
    ASSERT_OK(tartan_matrix_fill_normal(context.get(), m.get(), 2, 0));
    double sum = 0, squares = 0, cubes = 0, fourths = 0, count = 0;
    for (int64_t id = 0; id < layout->blocks; id++) {
        double fan_in = 32 * (layout->block_rows[id] + 1.0), own = 0, n = 0;
        const double *block = (const double *)tartan_i_block_at(m.get(), id);
        for (int64_t e = 0; e < tartan_i_rows_of(layout.get(), layout->block_rows[id]) * 32; e++) {
            double x = block[e] * std::sqrt(fan_in) / 2;
            sum += x, squares += x * x, cubes += x * x * x, fourths += x * x * x * x, own += x * x;
            count++, n++;
        }
        EXPECT_NEAR(1, own / n, 6 * std::sqrt(2 / n)) << id; // each block by itself: six standard errors
    }
    double error = 1 / std::sqrt(count);
    EXPECT_NEAR(0, sum / count, 4 * error);
    EXPECT_NEAR(1, squares / count, 4 * std::sqrt(2) * error);
    EXPECT_NEAR(0, cubes / count, 4 * std::sqrt(15) * error);
    EXPECT_NEAR(3, fourths / count, 4 * std::sqrt(96) * error);
}

TEST(FillNormal, SeedsDiffer) {
    Layout layout = random_layout({16, 16, 8, 8, 1}, 1, 1);
    Context zero = open_context(), seven = open_context("cpu", "threads=1 seed=7");
    auto fill = [&](tartan_context *c, int64_t seed) {
        Matrix m = create(layout, TARTAN_F64);
        EXPECT_OK(tartan_matrix_fill_normal(c, m.get(), 1, seed));
        return elements_of(m.get());
    };
    EXPECT_EQ(fill(zero.get(), 7), fill(seven.get(), -1));
    EXPECT_EQ(fill(zero.get(), 0), fill(zero.get(), -1));
    const Context again = open_context("cpu", "threads=1 seed=7");
    EXPECT_EQ(fill(zero.get(), 7), fill(again.get(), -1));
    const auto second = fill(again.get(), -1), third = fill(again.get(), -1);
    EXPECT_NE(fill(zero.get(), 7), second) << "a seed of -1 is another one each time";
    EXPECT_NE(second, third);
    EXPECT_EQ(second, fill(seven.get(), -1)) << "and repeats in a context of the same seed";
    EXPECT_NE(fill(zero.get(), 0), fill(zero.get(), 1));
    EXPECT_NE(fill(zero.get(), 0), fill(zero.get(), 0x7fffffffffffffff));
}

// Rows of the stored blocks of a block column, each as its columns' numbers.
std::vector<std::vector<double>> stack_of(const tartan_matrix *m, int64_t head, int64_t col) {
    const tartan_layout *l = m->layout;
    std::vector<std::vector<double>> rows;
    for (int64_t i = 0; i < l->grid_rows; i++) {
        if (tartan_i_layout_find(l, head, i, col) < 0) continue;
        for (int64_t r = 0; r < tartan_i_rows_of(l, i); r++) {
            rows.emplace_back();
            for (int64_t c = 0; c < tartan_i_cols_of(l, col); c++) {
                double x;
                EXPECT_OK(tartan_matrix_entry(m, head, i * l->shape.block_rows + r,
                                              col * l->shape.block_cols + c, &x));
                rows.back().push_back(x);
            }
        }
    }
    return rows;
}

std::vector<std::vector<double>> turn(const std::vector<std::vector<double>> &a) {
    std::vector<std::vector<double>> t(a.empty() ? 0 : a[0].size());
    for (auto &row : a)
        for (size_t c = 0; c < row.size(); c++) t[c].push_back(row[c]);
    return t;
}

double dot(const std::vector<double> &a, const std::vector<double> &b) {
    long double sum = 0;
    for (size_t i = 0; i < a.size(); i++) sum += (long double)a[i] * b[i];
    return (double)sum;
}

// The vectors that come before orthogonalisation: columns of the stack, or its rows where these are fewer.
std::vector<std::vector<double>> drawn(const tartan_layout *l, int64_t head, int64_t col, uint64_t seed) {
    std::vector<std::vector<double>> rows;
    for (int64_t i = 0; i < l->grid_rows; i++) {
        int64_t id = tartan_i_layout_find(l, head, i, col);
        for (int64_t r = 0; id >= 0 && r < tartan_i_rows_of(l, i); r++) {
            rows.emplace_back();
            for (int64_t c = 0; c < tartan_i_cols_of(l, col); c++) {
                int64_t e = r * l->shape.block_cols + c;
                double pair[2];
                tartan_i_normal_pair(seed, TARTAN_I_STREAM_ORTHOGONAL, (uint64_t)id, (uint32_t)(e / 2), pair);
                rows.back().push_back(pair[e % 2]);
            }
        }
    }
    return rows;
}

TEST(FillOrthogonal, IsOrthonormalAndSpansTheDrawnNumbers) {
    std::mt19937_64 random(3);
    Context context = open_context(2);
    for (int n = 0; n < rounds(200); n++) {
        tartan_shape s = random_shape(random);
        if (n % 20 == 0) s = {200, 100, 32, 64, 1};
        Layout layout = random_layout(s, 0.4, random());
        Matrix m = create(layout, TARTAN_F64, n % 2);
        ASSERT_OK(tartan_matrix_fill_orthogonal(context.get(), m.get(), 1, n));
        for (int64_t h = 0; h < s.heads; h++) {
            for (int64_t j = 0; j < layout->grid_cols; j++) {
                auto q = stack_of(m.get(), h, j), a = drawn(layout.get(), h, j, (uint64_t)n);
                if (q.empty()) continue;
                if (q.size() >= q[0].size()) q = turn(q), a = turn(a);
                for (size_t x = 0; x < q.size(); x++) {
                    for (size_t y = 0; y < q.size(); y++) ASSERT_NEAR(x == y, dot(q[x], q[y]), 1e-14) << n;
                    // R = Q' A is upper triangular with a positive diagonal.
                    for (size_t y = 0; y < x; y++)
                        ASSERT_NEAR(0, dot(q[x], a[y]), 1e-13 * std::sqrt(dot(a[y], a[y])));
                    ASSERT_GT(dot(q[x], a[x]), 0);
                }
            }
        }
    }
}

TEST(FillOrthogonal, Scales) {
    Layout layout = random_layout({40, 24, 8, 8, 1}, 0.7, 4);
    Context context = open_context();
    Matrix a = create(layout, TARTAN_F64), b = create(layout, TARTAN_F64);
    ASSERT_OK(tartan_matrix_fill_orthogonal(context.get(), a.get(), 1, 5));
    ASSERT_OK(tartan_matrix_fill_orthogonal(context.get(), b.get(), -4, 5));
    std::vector<double> x = elements_of(a.get()), y = elements_of(b.get());
    for (size_t i = 0; i < x.size(); i++) EXPECT_EQ(-4 * x[i], y[i]);
}

TEST(Fill, EmptyLayouts) {
    Context context = open_context(3);
    for (tartan_shape s : {tartan_shape{0, 5, 2, 2, 1}, {5, 0, 2, 2, 2}, {0, 0, 1, 1, 1}, {4, 4, 2, 2, 1}}) {
        Matrix m = create(random_layout(s, 0, 1), TARTAN_F32);
        EXPECT_OK(tartan_matrix_fill_zero(m.get()));
        EXPECT_OK(tartan_matrix_fill_identity(m.get(), 1));
        EXPECT_OK(tartan_matrix_fill_normal(context.get(), m.get(), 1, 0));
        EXPECT_OK(tartan_matrix_fill_orthogonal(context.get(), m.get(), 1, 0));
    }
}

TEST(Fill, Refuses) {
    std::mt19937_64 random(6);
    Context context = open_context();
    Matrix m = random_matrix({10, 7, 4, 3, 1}, TARTAN_F32, 0, random), gpu = on_device(m->layout);
    std::vector<double> before = elements_of(m.get());
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_fill_zero(nullptr));
    EXPECT_FAILS(UNSUPPORTED, "CUDA", tartan_matrix_fill_zero(gpu.get()));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_fill_identity(nullptr, 1));
    EXPECT_FAILS(UNSUPPORTED, "CUDA", tartan_matrix_fill_identity(gpu.get(), 1));
    EXPECT_FAILS(ARGUMENT, "scale is nan", tartan_matrix_fill_identity(m.get(), std::nan("")));
    EXPECT_FAILS(ARGUMENT, "scale is inf", tartan_matrix_fill_identity(m.get(), INFINITY));
    for (auto fill : {tartan_matrix_fill_normal, tartan_matrix_fill_orthogonal}) {
        EXPECT_FAILS(HANDLE, "context is NULL", fill(nullptr, m.get(), 1, 0));
        EXPECT_FAILS(HANDLE, "context is closed", fill((tartan_context *)m->layout, m.get(), 1, 0));
        EXPECT_FAILS(HANDLE, "matrix is NULL", fill(context.get(), nullptr, 1, 0));
        EXPECT_FAILS(UNSUPPORTED, "CUDA", fill(context.get(), gpu.get(), 1, 0));
        EXPECT_FAILS(ARGUMENT, "scale is nan", fill(context.get(), m.get(), std::nan(""), 0));
        EXPECT_FAILS(ARGUMENT, "scale is -inf", fill(context.get(), m.get(), -INFINITY, 0));
        EXPECT_FAILS(ARGUMENT, "seed is -2", fill(context.get(), m.get(), 1, -2));
    }
    EXPECT_EQ(before, elements_of(m.get()));
}

TEST(FillNormal, WithoutMemory) {
    std::mt19937_64 random(7);
    Context context = open_context(2);
    Matrix m = random_matrix({10, 7, 4, 3, 1}, TARTAN_F32, 0, random, 1);
    BRUTAL(tartan_matrix_fill_normal(context.get(), m.get(), 1, 0), (void)0);
}

TEST(FillOrthogonal, WithoutMemory) {
    std::mt19937_64 random(7);
    Context context = open_context(2);
    Matrix m = random_matrix({10, 7, 4, 3, 1}, TARTAN_F32, 0, random, 1);
    BRUTAL(tartan_matrix_fill_orthogonal(context.get(), m.get(), 1, 0), (void)0);
}

// A failure leaves the values as they were.
TEST(Fill, WithoutMemoryNothingChanges) {
    std::mt19937_64 random(8);
    Context context = open_context(2);
    Matrix m = random_matrix({10, 7, 4, 3, 1}, TARTAN_F32, 0, random, 1);
    std::vector<double> before = elements_of(m.get());
    for (auto fill : {tartan_matrix_fill_normal, tartan_matrix_fill_orthogonal}) {
        tartan_i_memory_fail_at(0);
        EXPECT_EQ(TARTAN_ERR_MEMORY, fill(context.get(), m.get(), 1, 0));
        tartan_i_memory_fail_at(-1);
        EXPECT_EQ(before, elements_of(m.get()));
    }
}

} // namespace
