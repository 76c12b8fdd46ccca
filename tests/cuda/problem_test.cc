// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <algorithm>
#include <tuple>

extern "C" {
#include "backend/operation.h"
#include "matrix/matrix.h"
#include "problem.h"
}

using namespace tartan_test;

namespace {

struct Random {
    std::mt19937_64 engine;
    int64_t draw(int64_t low, int64_t high) {
        return std::uniform_int_distribution<int64_t>(low, high)(engine);
    }
    bool coin() { return draw(0, 1) == 1; }
};

// An array of the given shape, its dimensions in a random order in memory, with gaps, backward or (where allowed)
// repeating now and then. Nothing is ever read from it.
tartan_array any_array(Random &random, const std::vector<int64_t> &shape, bool repeats) {
    tartan_array a = {};
    a.data = (void *)(uintptr_t)(random.draw(1, 1 << 20) * 4096);
    a.dtype = TARTAN_F32;
    a.ndim = (int32_t)shape.size();
    std::vector<size_t> order(shape.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    if (random.coin()) std::shuffle(order.begin(), order.end(), random.engine);
    const bool gaps = random.coin();
    int64_t stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
        const size_t d = order[i];
        a.shape[d] = shape[d];
        a.strides[d] = stride;
        stride *= std::max<int64_t>(shape[d], 1) + (gaps ? random.draw(0, 2) : 0);
        if (gaps && random.draw(0, 5) == 0) a.strides[d] = -a.strides[d];
        if (repeats && random.draw(0, 5) == 0) a.strides[d] = 0;
    }
    return a;
}

int64_t entries_of(const tartan_array &a, int64_t heads) {
    int64_t n = 1;
    for (int32_t d = 0; d < a.ndim - 2 - (heads > 1); d++) n *= a.shape[d];
    return n;
}

// Offset of batch entry e (of the dimensions that are not heads, row-major) and a head.
int64_t place(const tartan_array &a, int64_t heads, int64_t e, int64_t head) {
    int64_t offset = 0;
    int32_t d = a.ndim - 3;
    if (heads > 1) offset += head * a.strides[d--];
    for (; d >= 0; d--) {
        offset += e % a.shape[d] * a.strides[d];
        e /= a.shape[d];
    }
    return offset;
}

// The same as the problem's form says it.
int64_t place(const tartan_cuda_batch &b, const int64_t *strides, int64_t e) {
    int64_t offset = 0;
    for (int32_t d = b.ndim - 1; d >= 0; d--) {
        offset += e % b.lengths[d] * strides[d];
        e /= b.lengths[d];
    }
    return offset;
}

// Where two operands are for each (head, step of the folded index and batch entry), in any order.
using Places = std::vector<std::tuple<int64_t, int64_t, int64_t>>;

Places places_of(const tartan_array &first, int64_t first_stride, const tartan_array &second,
                 int64_t second_stride, int64_t count, int64_t heads) {
    Places all;
    for (int64_t head = 0; head < heads; head++)
        for (int64_t e = 0; e < entries_of(first, heads); e++)
            for (int64_t j = 0; j < count; j++)
                all.emplace_back(head, place(first, heads, e, head) + j * first_stride,
                                 place(second, heads, e, head) + j * second_stride);
    std::sort(all.begin(), all.end());
    return all;
}

Places places_of(const tartan_cuda_batch &batch, const tartan_cuda_dense &first, int64_t first_stride,
                 const tartan_cuda_dense &second, int64_t second_stride, int64_t count, int64_t heads) {
    Places all;
    for (int64_t head = 0; head < heads; head++)
        for (int64_t e = 0; e < batch.entries; e++)
            for (int64_t j = 0; j < count; j++)
                all.emplace_back(
                    head, head * first.head_stride + place(batch, batch.first, e) + j * first_stride,
                    head * second.head_stride + place(batch, batch.second, e) + j * second_stride);
    std::sort(all.begin(), all.end());
    return all;
}

std::vector<int64_t> any_batch(Random &random, int64_t heads) {
    std::vector<int64_t> batch((size_t)random.draw(0, heads > 1 ? 3 : 4));
    for (auto &length : batch) length = random.draw(1, 3);
    if (heads > 1) batch.push_back(heads);
    return batch;
}

std::vector<int64_t> with(std::vector<int64_t> batch, int64_t rows, int64_t cols) {
    batch.push_back(rows);
    batch.push_back(cols);
    return batch;
}

Matrix any_matrix(Random &random, int32_t dtype) {
    const tartan_shape shape = {random.draw(1, 20), random.draw(1, 20), random.draw(1, 5), random.draw(1, 5),
                                random.draw(1, 3)};
    const Layout layout = random_layout(shape, 0.4, (uint64_t)random.draw(0, 1 << 30));
    tartan_matrix *m = nullptr;
    EXPECT_OK(
        tartan_matrix_create(layout.get(), dtype, random.coin() ? TARTAN_ROW_MAJOR : TARTAN_COL_MAJOR, &m));
    return Matrix(m);
}

void check_spmm(Random &random) {
    const Matrix a = any_matrix(random, TARTAN_F32);
    const tartan_layout *l = a->layout;
    tartan_context context = {};
    context.options.tf32 = random.coin();
    context.options.allow_dense = random.coin();
    const bool right = random.coin(), transpose = random.coin();
    const int64_t heads = l->shape.heads, n = random.draw(0, 4);
    const int64_t rows = transpose ? l->shape.cols : l->shape.rows,
                  cols = transpose ? l->shape.rows : l->shape.cols;
    const std::vector<int64_t> batch = any_batch(random, heads);
    const tartan_array b = any_array(random, right ? with(batch, n, rows) : with(batch, cols, n), true);
    const tartan_array c = any_array(random, right ? with(batch, n, cols) : with(batch, rows, n), false);
    tartan_array gates = any_array(random, {l->blocks}, true);
    tartan_op_spmm op = {};
    op.side = right ? kRight : kLeft;
    op.transpose = transpose;
    op.alpha = 2;
    op.beta = 3;
    op.a = a.get();
    op.gates = random.coin() ? &gates : nullptr;
    op.b = &b;
    op.c = &c;
    tartan_cuda_spmm p;
    EXPECT_OK(tartan_cuda_spmm_of(&tartan_i_host, &context, &op, &p));

    // Rows of op(A)' are the index of C that is not n, whatever the side.
    EXPECT_EQ(right ? cols : rows, p.m);
    EXPECT_EQ(right ? rows : cols, p.k);
    EXPECT_EQ(grid(p.m, p.block_m), p.grid_m);
    EXPECT_EQ(grid(p.k, p.block_k), p.grid_k);
    EXPECT_EQ(heads, p.heads);
    EXPECT_EQ(l->blocks, p.blocks);
    EXPECT_EQ(right != transpose, p.by_columns);
    const int64_t row = tartan_i_block_row_stride(a.get()), col = tartan_i_block_col_stride(a.get());
    EXPECT_EQ(p.by_columns ? col : row, p.a_m);
    EXPECT_EQ(p.by_columns ? row : col, p.a_k);
    EXPECT_EQ(p.by_columns ? l->shape.block_cols : l->shape.block_rows, p.block_m);
    EXPECT_EQ(a->values, p.values);
    EXPECT_EQ(op.gates ? gates.data : nullptr, p.gates.data);
    EXPECT_EQ(op.gates ? gates.strides[0] : 0, p.gates.stride);
    EXPECT_EQ(b.data, p.b.data);
    EXPECT_EQ(c.data, p.c.data);
    EXPECT_EQ(context.options.tf32, p.tf32);
    EXPECT_EQ(context.options.allow_dense, p.allow_dense);
    EXPECT_EQ(b.strides[b.ndim - (right ? 1 : 2)], p.b.row_stride);
    EXPECT_EQ(c.strides[c.ndim - (right ? 1 : 2)], p.c.row_stride);
    const int32_t last = b.ndim - (right ? 2 : 1);
    ASSERT_EQ(places_of(b, b.strides[last], c, c.strides[last], n, heads),
              places_of(p.batch, p.b, p.b.col_stride, p.c, p.c.col_stride, p.n, heads));
}

void check_sddmm(Random &random) {
    const Matrix s = any_matrix(random, TARTAN_F32);
    const tartan_layout *l = s->layout;
    const tartan_context context = {};
    const int64_t heads = l->shape.heads, pairs = random.draw(1, 3);
    std::vector<tartan_array> x, y;
    for (int64_t i = 0; i < pairs; i++) {
        const std::vector<int64_t> batch = any_batch(random, heads);
        const int64_t k = random.draw(0, 4);
        x.push_back(any_array(random, with(batch, l->shape.rows, k), true));
        y.push_back(any_array(random, with(batch, k, l->shape.cols), true));
    }
    tartan_op_sddmm op = {};
    op.s = s.get();
    op.x = x.data();
    op.y = y.data();
    op.pairs = pairs;
    op.alpha = 2;
    tartan_cuda_sddmm p;
    EXPECT_OK(tartan_cuda_sddmm_of(&tartan_i_host, &context, &op, &p));

    EXPECT_EQ(l->shape.rows, p.m);
    EXPECT_EQ(l->shape.cols, p.n);
    EXPECT_EQ(l->grid_rows, p.grid_m);
    EXPECT_EQ(l->grid_cols, p.grid_n);
    EXPECT_EQ(l->shape.block_cols, p.block_n);
    EXPECT_EQ(tartan_i_block_row_stride(s.get()), p.s_m);
    EXPECT_EQ(tartan_i_block_col_stride(s.get()), p.s_n);
    EXPECT_EQ(s->values, p.values);
    EXPECT_EQ(nullptr, p.gates.data);
    ASSERT_EQ(pairs, p.pairs);
    for (int64_t i = 0; i < pairs; i++) {
        const tartan_array &a = x[(size_t)i], &b = y[(size_t)i];
        EXPECT_EQ(a.data, p.pair[i].x.data);
        EXPECT_EQ(b.data, p.pair[i].y.data);
        EXPECT_EQ(a.strides[a.ndim - 2], p.pair[i].x.row_stride);
        EXPECT_EQ(b.strides[b.ndim - 1], p.pair[i].y.col_stride);
        ASSERT_EQ(places_of(a, a.strides[a.ndim - 1], b, b.strides[b.ndim - 2], a.shape[a.ndim - 1], heads),
                  places_of(p.pair[i].batch, p.pair[i].x, p.pair[i].x.col_stride, p.pair[i].y,
                            p.pair[i].y.row_stride, p.pair[i].k, heads));
    }
}

tartan_array dense(std::vector<int64_t> shape, std::vector<int64_t> strides) {
    tartan_array a = {};
    a.dtype = TARTAN_F32;
    a.ndim = (int32_t)shape.size();
    std::copy(shape.begin(), shape.end(), a.shape);
    std::copy(strides.begin(), strides.end(), a.strides);
    return a;
}

tartan_cuda_spmm spmm_of(const tartan_matrix *a, const tartan_array &b, const tartan_array &c, int32_t side) {
    const tartan_context context = {};
    tartan_op_spmm op = {};
    op.side = side;
    op.a = a;
    op.b = &b;
    op.c = &c;
    tartan_cuda_spmm p;
    EXPECT_OK(tartan_cuda_spmm_of(&tartan_i_host, &context, &op, &p));
    return p;
}

Matrix square(int64_t heads) {
    const Layout layout = random_layout({8, 8, 4, 4, heads}, 0.5, 1);
    tartan_matrix *m = nullptr;
    EXPECT_OK(tartan_matrix_create(layout.get(), TARTAN_F32, TARTAN_ROW_MAJOR, &m));
    return Matrix(m);
}

} // namespace

TEST(CudaProblem, AnySpmmHasTheSameAddresses) {
    Random random{std::mt19937_64(1)};
    for (int i = 0; i < 2000 && !HasFailure(); i++) check_spmm(random);
}

TEST(CudaProblem, AnySddmmHasTheSameAddresses) {
    Random random{std::mt19937_64(2)};
    for (int i = 0; i < 2000 && !HasFailure(); i++) check_sddmm(random);
}

TEST(CudaProblem, BatchesOfTokensAreOneMatrix) {
    // Tokens as rows, on the right: [batch 3, tokens 5, features 8] is one matrix of 15 tokens.
    const Matrix a = square(1);
    const tartan_array b = dense({3, 5, 8}, {40, 8, 1});
    const tartan_cuda_spmm p = spmm_of(a.get(), b, b, kRight);
    EXPECT_EQ(0, p.batch.ndim);
    EXPECT_EQ(1, p.batch.entries);
    EXPECT_EQ(15, p.n);
    EXPECT_EQ(8, p.b.col_stride);
    EXPECT_EQ(1, p.b.row_stride);
    // On the left they are apart, but two batch dimensions are one.
    const tartan_array left = dense({2, 3, 8, 5}, {120, 40, 5, 1});
    const tartan_cuda_spmm q = spmm_of(a.get(), left, left, kLeft);
    EXPECT_EQ(1, q.batch.ndim);
    EXPECT_EQ(6, q.batch.entries);
    EXPECT_EQ(40, q.batch.first[0]);
    EXPECT_EQ(5, q.n);
}

TEST(CudaProblem, VectorsOfABatchAreColumns) {
    const Matrix a = square(2);
    const tartan_array b = dense({7, 2, 8, 1}, {16, 8, 1, 1});
    const tartan_cuda_spmm p = spmm_of(a.get(), b, b, kLeft);
    EXPECT_EQ(7, p.n);
    EXPECT_EQ(16, p.b.col_stride);
    EXPECT_EQ(8, p.b.head_stride);
    EXPECT_EQ(1, p.batch.entries);
}

TEST(CudaProblem, GradientsOfBatchesAreOneSum) {
    // dW = dY^T X over [batch 3, tokens 5, features 8].
    const Matrix s = square(1);
    const tartan_context context = {};
    const tartan_array x = dense({3, 8, 5}, {40, 1, 8}), y = dense({3, 5, 8}, {40, 8, 1});
    tartan_op_sddmm op = {};
    op.s = s.get();
    op.x = &x;
    op.y = &y;
    op.pairs = 1;
    tartan_cuda_sddmm p;
    EXPECT_OK(tartan_cuda_sddmm_of(&tartan_i_host, &context, &op, &p));
    EXPECT_EQ(15, p.pair[0].k);
    EXPECT_EQ(1, p.pair[0].batch.entries);
    EXPECT_EQ(8, p.pair[0].x.col_stride);
    EXPECT_EQ(8, p.pair[0].y.row_stride);
}
