// SPDX-License-Identifier: Apache-2.0
// What tartan_spmm refuses, and that it then writes nothing.
#include "spmm_support.h"

namespace {

using namespace tartan_test;

class SpmmRefusals : public ::testing::Test {
  protected:
    Context context = open_context(1);
    Spmm p = plain({8, 6, 2, 3, 1}, 1, TARTAN_F32, {}, 5, 1);
    Dense before = p.c;
    tartan_status call() {
        return tartan_spmm(context.get(), p.side, p.op, p.alpha, p.a.get(),
                           p.gated ? &p.gates.array : nullptr, &p.b.array, p.beta, &p.c.array);
    }
    void TearDown() override { EXPECT_EQ(before.memory(), p.c.memory()) << "a refused call wrote"; }
};

TEST_F(SpmmRefusals, Handles) {
    tartan_context *none = nullptr;
    EXPECT_FAILS(HANDLE, "tartan_spmm: context is NULL",
                 tartan_spmm(none, 0, 0, 1, p.a.get(), nullptr, &p.b.array, 0, &p.c.array));
    EXPECT_FAILS(HANDLE, "a is NULL",
                 tartan_spmm(context.get(), 0, 0, 1, nullptr, nullptr, &p.b.array, 0, &p.c.array));
    EXPECT_FAILS(HANDLE, "b is NULL",
                 tartan_spmm(context.get(), 0, 0, 1, p.a.get(), nullptr, nullptr, 0, &p.c.array));
    EXPECT_FAILS(HANDLE, "c is NULL",
                 tartan_spmm(context.get(), 0, 0, 1, p.a.get(), nullptr, &p.b.array, 0, nullptr));
    uint32_t foreign[64] = {1};
    EXPECT_FAILS(
        HANDLE, "a is closed or not one of Tartan's",
        tartan_spmm(context.get(), 0, 0, 1, (tartan_matrix *)foreign, nullptr, &p.b.array, 0, &p.c.array));
    EXPECT_FAILS(
        HANDLE, "context is closed or not one of Tartan's",
        tartan_spmm((tartan_context *)foreign, 0, 0, 1, p.a.get(), nullptr, &p.b.array, 0, &p.c.array));
    p.b.array.data = nullptr;
    EXPECT_FAILS(HANDLE, "b of shape [6, 5] has data NULL", call());
}

TEST_F(SpmmRefusals, Arguments) {
    p.side = 2;
    EXPECT_FAILS(ARGUMENT, "side is 2, expected 0 (left) or 1 (right)", call());
    p.side = 0, p.op = -1;
    EXPECT_FAILS(ARGUMENT, "op is -1", call());
    p.op = 0, p.alpha = NAN;
    EXPECT_FAILS(ARGUMENT, "alpha is nan", call());
    p.alpha = 1e300; // finite, but not in f32
    EXPECT_FAILS(ARGUMENT, "alpha is 1e+300, expected a number that is finite in float32", call());
    p.alpha = 1, p.beta = -INFINITY;
    EXPECT_FAILS(ARGUMENT, "beta is -inf", call());
}

TEST_F(SpmmRefusals, Shapes) {
    p.b.array.shape[0] = 5;
    EXPECT_FAILS(SHAPE, "b has shape [5, 5], expected [..., 6, cols]", call());
    p.b.array.shape[0] = 6, p.c.array.shape[0] = 7;
    EXPECT_FAILS(SHAPE, "c has shape [7, 5], expected [..., 8, cols]", call());
    p.c.array.shape[0] = 8, p.c.array.shape[1] = 4;
    EXPECT_FAILS(SHAPE, "c has 4 columns, expected 5 (those of b)", call());
    p.c.array.shape[1] = 5, p.side = TARTAN_RIGHT;
    EXPECT_FAILS(SHAPE, "b has shape [6, 5], expected [..., rows, 8]", call());
    p.side = TARTAN_LEFT, p.b.array.ndim = 1;
    EXPECT_FAILS(SHAPE, "b has shape [6], expected at least 2 dimensions", call());
    p.b.array.ndim = 3, p.b.array.shape[0] = 1, p.b.array.shape[1] = 6, p.b.array.shape[2] = 5;
    p.b.array.strides[0] = 30, p.b.array.strides[1] = 5, p.b.array.strides[2] = 1;
    EXPECT_FAILS(SHAPE, "c has shape [8, 5], expected the batch dimensions of b, [1, 6, 5]", call());
    p.b.array.ndim = 9;
    EXPECT_FAILS(ARGUMENT, "b has ndim 9", call());
}

TEST_F(SpmmRefusals, Heads) {
    Spmm h = plain({8, 6, 2, 3, 3}, 1, TARTAN_F32, {3}, 5, 1);
    h.b.array.shape[0] = 2;
    EXPECT_FAILS(SHAPE, "b has shape [2, 6, 5], expected [..., 3, rows, cols] (heads of the layout)",
                 h.run(context.get(), &h.c));
    h.b.array.ndim = 2, h.b.array.shape[0] = 6, h.b.array.shape[1] = 5;
    EXPECT_FAILS(SHAPE, "(heads of the layout)", h.run(context.get(), &h.c));
}

TEST_F(SpmmRefusals, Gates) {
    p.gated = true;
    p.gates.array.shape[0] = 7;
    EXPECT_FAILS(SHAPE, "gates has shape [7], expected [8]", call());
    p.gates = Dense(TARTAN_F16, {8});
    EXPECT_FAILS(DTYPE, "gates is of float16, expected float32 or float64", call());
    p.gates = Dense(TARTAN_F32, {8, 1});
    EXPECT_FAILS(SHAPE, "gates has shape [8, 1]", call());
    p.gates = Dense(TARTAN_F32, {8});
    p.gates.array.data = nullptr;
    EXPECT_FAILS(HANDLE, "gates", call());
}

TEST_F(SpmmRefusals, Dtypes) {
    p.b.array.dtype = TARTAN_BF16;
    EXPECT_FAILS(DTYPE, "b is of bfloat16, expected float32 (that of a)", call());
    p.b.array.dtype = TARTAN_F32, p.c.array.dtype = TARTAN_F16;
    EXPECT_FAILS(DTYPE, "c is of float16, expected float32", call());
    p.c.array.dtype = 99;
    EXPECT_FAILS(DTYPE, "c has dtype 99", call());
    Spmm h = plain({8, 6, 2, 3, 1}, 1, TARTAN_F16, {}, 5, 1);
    h.c = Dense(TARTAN_BF16, {8, 5});
    EXPECT_FAILS(DTYPE, "c is of bfloat16, expected float16 or float32", h.run(context.get(), &h.c));
    Spmm e = plain({8, 6, 2, 3, 1}, 1, TARTAN_F8E4M3, {}, 5, 1);
    for (int32_t dtype : {TARTAN_F8E4M3, TARTAN_F8E5M2, TARTAN_F64}) {
        e.c = Dense(dtype, {8, 5});
        EXPECT_FAILS(DTYPE,
                     std::string("c is of ") + tartan_dtype_name(dtype) +
                         ", expected float32, float16 or bfloat16",
                     e.run(context.get(), &e.c));
    }
    e.c = Dense(TARTAN_F32, {8, 5});
    EXPECT_OK(e.run(context.get(), &e.c));
    e.b.array.dtype = TARTAN_F8E5M2;
    EXPECT_FAILS(DTYPE, "b is of float8_e5m2, expected float8_e4m3fn (that of a)",
                 e.run(context.get(), &e.c));
}

TEST_F(SpmmRefusals, Overlap) {
    Dense whole(TARTAN_F32, {14, 5});
    tartan_array b = whole.array, c = whole.array;
    b.shape[0] = 6, c.shape[0] = 8;
    c.data = (float *)whole.array.data + 29; // one element shared
    EXPECT_FAILS(ARGUMENT, "c overlaps b",
                 tartan_spmm(context.get(), 0, 0, 1, p.a.get(), nullptr, &b, 0, &c));
    c.data = (float *)whole.array.data + 30;
    EXPECT_OK(tartan_spmm(context.get(), 0, 0, 1, p.a.get(), nullptr, &b, 0, &c));
    c.data = p.a->values;
    EXPECT_FAILS(ARGUMENT, "c overlaps the values of a",
                 tartan_spmm(context.get(), 0, 0, 1, p.a.get(), nullptr, &p.b.array, 0, &c));
    c.data = p.gates.array.data;
    EXPECT_FAILS(ARGUMENT, "c overlaps gates",
                 tartan_spmm(context.get(), 0, 0, 1, p.a.get(), &p.gates.array, &p.b.array, 0, &c));
}

TEST_F(SpmmRefusals, RepeatingOutput) {
    p.c.array.strides[0] = 0;
    EXPECT_FAILS(ARGUMENT, "repeat or interleave", call());
}

TEST_F(SpmmRefusals, MemoryOfAnotherDevice) {
    p.b.array.device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "b is on device 2:0, expected 1:0", call());
    p.b.array.device_type = TARTAN_CPU, p.c.array.device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "c is on device 2:0", call());
    p.c.array.device_type = TARTAN_CPU, p.a->device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "a is on device 2:0", call());
    p.a->device_type = TARTAN_CPU, p.gated = true, p.gates.array.device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "gates is on device 2:0", call());
}

TEST_F(SpmmRefusals, Overflow) {
    p.b.array.strides[0] = INT64_MAX / 2;
    EXPECT_FAILS(OVERFLOW, "b of shape [6, 5]", call());
}

} // namespace
