// SPDX-License-Identifier: Apache-2.0
// Problems of element-wise arithmetic, reductions and comparison.
#include "support.h"

extern "C" {
#include "backend/operation.h"
#include "problem.h"
}

using namespace tartan_test;

namespace {

const tartan_context kContext = {};

Matrix matrix_of(const std::vector<uint8_t> &mask) {
    const Layout layout = from_mask({8, 12, 4, 4, 1}, mask);
    tartan_matrix *m = nullptr;
    EXPECT_OK(tartan_matrix_create(layout.get(), TARTAN_F32, 0, &m));
    return Matrix(m);
}

tartan_array numbers(int64_t count) {
    tartan_array a = {};
    static double room[64];
    EXPECT_OK(tartan_array_init(room, TARTAN_F64, 1, &count, nullptr, &a));
    return a;
}

TEST(CudaArithmetic, OneOperandOrTwoAndFactors) {
    const Matrix a = matrix_of({1, 0, 1, 0, 1, 0}), none = matrix_of({0, 0, 0, 0, 0, 0});
    tartan_array rows = numbers(8);
    rows.ndim = 2, rows.shape[1] = 8, rows.shape[0] = 1, rows.strides[0] = 0, rows.strides[1] = -2;
    tartan_op_elementwise op = {};
    op.form = TARTAN_I_FORM_SCALE;
    op.a = a.get();
    op.to = a.get();
    op.row_factors = &rows;
    tartan_cuda_elementwise p;
    ASSERT_OK(tartan_cuda_elementwise_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_FALSE(p.nothing);
    EXPECT_EQ(nullptr, p.b.layout);
    EXPECT_EQ(a->values, p.to.values);
    EXPECT_EQ(-2, p.rows.line);
    EXPECT_EQ(0, p.rows.head);
    EXPECT_EQ(nullptr, p.cols.data);
    op.b = a.get();
    ASSERT_OK(tartan_cuda_elementwise_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_EQ(a->layout, p.b.layout);
    op.to = none.get();
    ASSERT_OK(tartan_cuda_elementwise_of(&tartan_i_host, &kContext, &op, &p));
    EXPECT_TRUE(p.nothing);
}

TEST(CudaArithmetic, WhatThereIsNothingToDoFor) {
    const Matrix none = matrix_of({0, 0, 0, 0, 0, 0});
    const tartan_array eight = numbers(8), zero = numbers(0), one = numbers(1);
    tartan_op_reduce reduce = {};
    reduce.matrix = none.get();
    reduce.results = &eight;
    tartan_cuda_reduce r;
    ASSERT_OK(tartan_cuda_reduce_of(&tartan_i_host, &kContext, &reduce, &r));
    EXPECT_FALSE(r.nothing) << "rows without blocks have numbers, too";
    EXPECT_EQ(nullptr, r.units);
    reduce.results = &zero;
    ASSERT_OK(tartan_cuda_reduce_of(&tartan_i_host, &kContext, &reduce, &r));
    EXPECT_TRUE(r.nothing);
    tartan_op_elements elements = {};
    elements.numbers = &zero;
    tartan_cuda_elements e;
    ASSERT_OK(tartan_cuda_elements_of(&tartan_i_host, &kContext, &elements, &e));
    EXPECT_TRUE(e.nothing && !e.writes);
    elements.count = 1, elements.numbers = &one, elements.to = none.get();
    ASSERT_OK(tartan_cuda_elements_of(&tartan_i_host, &kContext, &elements, &e));
    EXPECT_TRUE(!e.nothing && e.writes);
    tartan_op_compare compare = {};
    compare.a = compare.b = none.get();
    compare.pairs = 3;
    compare.count = &one;
    tartan_cuda_compare c;
    ASSERT_OK(tartan_cuda_compare_of(&tartan_i_host, &kContext, &compare, &c));
    EXPECT_EQ(3, c.pairs);
    EXPECT_FALSE(c.nothing);
}

} // namespace
