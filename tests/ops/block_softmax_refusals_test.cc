// SPDX-License-Identifier: Apache-2.0
// What tartan_block_softmax, tartan_block_softmax_gradient and tartan_attention_merge refuse; nothing is written then.
#include "block_softmax_support.h"

namespace {

using namespace tartan_test;

class BlockSoftmaxRefusals : public ::testing::Test {
  protected:
    Softmax p = make({32, 48, 16, 16, 2}, TARTAN_F32);
    const std::vector<char> y = bytes_of(p.y), dx = bytes_of(p.dx);
    const Dense lse = p.lse;

    static Softmax make(const tartan_shape &shape, int32_t dtype) {
        std::mt19937_64 random(1);
        Softmax s;
        s.layout = random_layout(shape, 1, 1);
        s.make(random, dtype);
        return s;
    }
    tartan_status forward(const char *options = "") {
        return tartan_block_softmax(cpu(), p.x.get(), options, p.mask.get(), p.y.get(), &p.lse.array);
    }
    void TearDown() override {
        EXPECT_EQ(y, bytes_of(p.y)) << "a refused call wrote";
        EXPECT_EQ(dx, bytes_of(p.dx));
        EXPECT_EQ(lse.memory(), p.lse.memory());
    }
};

TEST_F(BlockSoftmaxRefusals, Handles) {
    tartan_matrix *const x = p.x.get(), *const to = p.y.get(), *const dy = p.dy.get(),
                         *const grad = p.dx.get();
    EXPECT_FAILS(HANDLE, "tartan_block_softmax: context is NULL",
                 tartan_block_softmax(nullptr, x, nullptr, nullptr, to, nullptr));
    EXPECT_FAILS(HANDLE, "x is NULL", tartan_block_softmax(cpu(), nullptr, nullptr, nullptr, to, nullptr));
    EXPECT_FAILS(HANDLE, "y is NULL", tartan_block_softmax(cpu(), x, nullptr, nullptr, nullptr, nullptr));
    EXPECT_FAILS(HANDLE, "tartan_block_softmax_gradient: context is NULL",
                 tartan_block_softmax_gradient(nullptr, to, dy, 1, grad));
    EXPECT_FAILS(HANDLE, "y is NULL", tartan_block_softmax_gradient(cpu(), nullptr, dy, 1, grad));
    EXPECT_FAILS(HANDLE, "dy is NULL", tartan_block_softmax_gradient(cpu(), to, nullptr, 1, grad));
    EXPECT_FAILS(HANDLE, "dx is NULL", tartan_block_softmax_gradient(cpu(), to, dy, 1, nullptr));
}

TEST_F(BlockSoftmaxRefusals, Options) {
    EXPECT_FAILS(
        ARGUMENT,
        "options has 'bias=slopes', expected scale, causal, query_offset or causal_from (bias and dropout "
        "belong to tartan_attention_forward)",
        forward("bias=slopes"));
    EXPECT_FAILS(ARGUMENT, "options has 'dropout=0.5', expected scale", forward("dropout=0.5"));
    EXPECT_FAILS(ARGUMENT, "options has 'seed=5', expected scale", forward("seed=5"));
    EXPECT_FAILS(ARGUMENT, "options has 'window=3', expected scale", forward("window=3"));
    EXPECT_FAILS(ARGUMENT, "options has scale twice", forward("scale=1 scale=2"));
    EXPECT_FAILS(ARGUMENT, "scale is 1e+300, expected a number that is finite in float32",
                 forward("scale=1e300"));
    EXPECT_FAILS(ARGUMENT, "options has causal_from, which needs causal=1", forward("causal_from=3"));
    EXPECT_FAILS(ARGUMENT, "options has query_offset, which needs causal=1", forward("query_offset=3"));
    EXPECT_EQ(std::string::npos, std::string(tartan_last_error()).find("bias"));
    EXPECT_FAILS(ARGUMENT, "tartan_block_softmax_gradient: scale is inf",
                 tartan_block_softmax_gradient(cpu(), p.y.get(), p.dy.get(), INFINITY, p.dx.get()));
}

TEST_F(BlockSoftmaxRefusals, Dtypes) {
    const Softmax wide = make({32, 48, 16, 16, 2}, TARTAN_F64);
    tartan_matrix *raw = nullptr;
    ASSERT_OK(tartan_matrix_create(p.layout.get(), TARTAN_F8E4M3, TARTAN_ROW_MAJOR, &raw));
    const Matrix eight(raw);
    const auto run = [&](const Matrix &x, const Matrix &to) {
        return tartan_block_softmax(cpu(), x.get(), nullptr, nullptr, to.get(), nullptr);
    };
    EXPECT_FAILS(DTYPE, "x is of float8_e4m3fn, expected float64, float32, float16 or bfloat16",
                 run(eight, p.y));
    EXPECT_FAILS(DTYPE, "y is of float8_e4m3fn, expected float64, float32, float16 or bfloat16",
                 run(p.x, eight));
    EXPECT_FAILS(DTYPE, "y is of float64, expected float32, float16 or bfloat16 (x is of float32)",
                 run(p.x, wide.y));
    EXPECT_FAILS(DTYPE, "y is of float32, expected float64 (x is of float64)", run(wide.x, p.y));
    const auto gradient = [&](const Matrix &weights, const Matrix &dy, const Matrix &to) {
        return tartan_block_softmax_gradient(cpu(), weights.get(), dy.get(), 1, to.get());
    };
    EXPECT_FAILS(DTYPE, "y is of float8_e4m3fn", gradient(eight, p.dy, p.dx));
    EXPECT_FAILS(DTYPE, "dy is of float64, expected float32, float16 or bfloat16 (y is of float32)",
                 gradient(p.y, wide.dy, p.dx));
    EXPECT_FAILS(DTYPE, "dx is of float64, expected float32, float16 or bfloat16 (y is of float32)",
                 gradient(p.y, p.dy, wide.dx));
    p.lse.array.dtype = TARTAN_F64;
    EXPECT_FAILS(DTYPE, "lse is of float64, expected float32", forward());
}

TEST_F(BlockSoftmaxRefusals, LayoutsAndShapes) {
    Softmax other = make({32, 48, 8, 16, 2}, TARTAN_F32);
    EXPECT_FAILS(LAYOUT, "y has another layout than x",
                 tartan_block_softmax(cpu(), p.x.get(), nullptr, nullptr, other.y.get(), nullptr));
    EXPECT_FAILS(LAYOUT, "dy has another layout than y",
                 tartan_block_softmax_gradient(cpu(), p.y.get(), other.dy.get(), 1, p.dx.get()));
    EXPECT_FAILS(LAYOUT, "dx has another layout than y",
                 tartan_block_softmax_gradient(cpu(), p.y.get(), p.dy.get(), 1, other.dx.get()));
    other.take_mask(0.5, 1);
    EXPECT_FAILS(LAYOUT, "block_mask is of another layout",
                 tartan_block_softmax(cpu(), p.x.get(), nullptr, other.mask.get(), p.y.get(), nullptr));
    EXPECT_FAILS(HANDLE, "block_mask is closed or not one of Tartan's",
                 tartan_block_softmax(cpu(), p.x.get(), nullptr, (const tartan_block_mask *)p.layout.get(),
                                      p.y.get(), nullptr));
    const tartan_array before = p.lse.array;
    p.lse.array.shape[1] = 31;
    EXPECT_FAILS(SHAPE, "lse has shape [2, 31], expected [2, 32] (heads and rows of x)", forward());
    p.lse.array = before;
    p.lse.array.ndim = 1;
    EXPECT_FAILS(SHAPE, "lse has shape [2], expected [2, 32]", forward());
    p.lse.array = before;
}

TEST_F(BlockSoftmaxRefusals, Overlap) {
    // The values of x one block later, and of x as 16-bit numbers.
    tartan_array values = tartan_i_matrix_view(p.x.get());
    const Softmax half = make({32, 48, 16, 16, 1}, TARTAN_F32);
    tartan_matrix *raw = nullptr;
    values.shape[0] = half.layout->blocks;
    ASSERT_OK(tartan_matrix_wrap(half.layout.get(), &values, nullptr, nullptr, &raw));
    const Matrix early(raw);
    values.data = (float *)values.data + 256;
    ASSERT_OK(tartan_matrix_wrap(half.layout.get(), &values, nullptr, nullptr, &raw));
    const Matrix late(raw);
    EXPECT_FAILS(ARGUMENT, "y overlaps x",
                 tartan_block_softmax(cpu(), early.get(), nullptr, nullptr, late.get(), nullptr));
    EXPECT_FAILS(ARGUMENT, "dx overlaps dy",
                 tartan_block_softmax_gradient(cpu(), half.y.get(), early.get(), 1, late.get()));
    EXPECT_FAILS(ARGUMENT, "dx overlaps y",
                 tartan_block_softmax_gradient(cpu(), early.get(), half.dy.get(), 1, early.get()));
    tartan_array turned = tartan_i_matrix_view(p.x.get()); // the same values in the other order
    std::swap(turned.strides[1], turned.strides[2]);
    ASSERT_OK(tartan_matrix_wrap(p.layout.get(), &turned, nullptr, nullptr, &raw));
    const Matrix other(raw);
    EXPECT_FAILS(ARGUMENT, "y overlaps x",
                 tartan_block_softmax(cpu(), p.x.get(), nullptr, nullptr, other.get(), nullptr));
    const tartan_array before = p.lse.array;
    for (const Matrix *m : {&p.x, &p.y}) {
        p.lse.array.data = (*m)->values;
        EXPECT_FAILS(ARGUMENT, "lse overlaps", forward());
    }
    p.lse.array = before;
    p.lse.array.strides[1] = 0;
    EXPECT_FAILS(ARGUMENT, "lse", forward());
    p.lse.array = before;
}

TEST_F(BlockSoftmaxRefusals, Devices) {
    for (const Matrix *m : {&p.x, &p.y}) {
        (*m)->device_type = TARTAN_CUDA;
        EXPECT_FAILS(UNSUPPORTED, "expected", forward());
        (*m)->device_type = TARTAN_CPU;
    }
    for (const Matrix *m : {&p.y, &p.dy, &p.dx}) {
        (*m)->device_type = TARTAN_CUDA;
        EXPECT_FAILS(UNSUPPORTED, "expected", p.backward(cpu()));
        (*m)->device_type = TARTAN_CPU;
    }
    p.lse.array.device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "lse is on device 2:0, expected 1:0", forward());
    p.lse.array.device_type = TARTAN_CPU;
}

class AttentionMergeRefusals : public ::testing::Test {
  protected:
    Merge p = make();
    const Merge before = p;

    static Merge make() {
        std::mt19937_64 random(1);
        Merge m;
        for (Dense *a : {&m.out_a, &m.out_b, &m.out}) *a = Dense(TARTAN_F32, {2, 3, 5, 8});
        for (Dense *a : {&m.lse_a, &m.lse_b, &m.lse}) *a = Dense(TARTAN_F32, {2, 3, 5});
        for (Dense *a : {&m.out_a, &m.out_b, &m.lse_a, &m.lse_b}) a->fill(random);
        return m;
    }
    // The call fails while an array is changed.
    template <typename Change> void refuses(tartan_status status, const char *part, Dense &a, Change change) {
        const tartan_array own = a.array;
        change(a.array);
        EXPECT_EQ(status, p.run(cpu()));
        EXPECT_NE(std::string::npos, std::string(tartan_last_error()).find(part)) << tartan_last_error();
        a.array = own;
    }
    void TearDown() override {
        EXPECT_EQ(before.out.memory(), p.out.memory()) << "a refused call wrote";
        EXPECT_EQ(before.lse.memory(), p.lse.memory());
    }
};

TEST_F(AttentionMergeRefusals, Handles) {
    const tartan_array *const a = &p.out_a.array, *const la = &p.lse_a.array, *const b = &p.out_b.array,
                              *const lb = &p.lse_b.array;
    tartan_array *const o = &p.out.array, *const l = &p.lse.array;
    EXPECT_FAILS(HANDLE, "tartan_attention_merge: context is NULL",
                 tartan_attention_merge(nullptr, a, la, b, lb, o, l));
    EXPECT_FAILS(HANDLE, "out_a is NULL", tartan_attention_merge(cpu(), nullptr, la, b, lb, o, l));
    EXPECT_FAILS(HANDLE, "lse_a is NULL", tartan_attention_merge(cpu(), a, nullptr, b, lb, o, l));
    EXPECT_FAILS(HANDLE, "out_b is NULL", tartan_attention_merge(cpu(), a, la, nullptr, lb, o, l));
    EXPECT_FAILS(HANDLE, "lse_b is NULL", tartan_attention_merge(cpu(), a, la, b, nullptr, o, l));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_attention_merge(cpu(), a, la, b, lb, nullptr, l));
}

TEST_F(AttentionMergeRefusals, ShapesAndDtypes) {
    const auto shorter = [](tartan_array &a) { a.shape[2]--; };
    refuses(TARTAN_ERR_SHAPE,
            "lse_a has shape [2, 3, 4], expected [2, 3, 5] (batch, heads and tokens of out_a)", p.lse_a,
            shorter);
    refuses(TARTAN_ERR_SHAPE, "lse_b has shape [2, 3, 4]", p.lse_b, shorter);
    refuses(TARTAN_ERR_SHAPE, "lse has shape [2, 3, 4]", p.lse, shorter);
    refuses(TARTAN_ERR_SHAPE, "out_b has shape [2, 3, 4, 8], expected [2, 3, 5, 8] (that of out_a)", p.out_b,
            shorter);
    refuses(TARTAN_ERR_SHAPE, "out has shape [2, 3, 4, 8]", p.out, shorter);
    for (Dense *a : {&p.out_a, &p.out_b, &p.out})
        refuses(TARTAN_ERR_SHAPE, "expected [batch, heads, tokens, d]", *a,
                [](tartan_array &x) { x.ndim = 3; });
    refuses(TARTAN_ERR_DTYPE, "out_a is of float8_e4m3fn", p.out_a,
            [](tartan_array &x) { x.dtype = TARTAN_F8E4M3; });
    for (Dense *a : {&p.out_b, &p.out}) {
        refuses(TARTAN_ERR_DTYPE, "expected float64, float32, float16 or bfloat16", *a,
                [](tartan_array &x) { x.dtype = TARTAN_F8E5M2; });
        refuses(TARTAN_ERR_DTYPE, "expected float32, float16 or bfloat16 (out_a is of float32)", *a,
                [](tartan_array &x) { x.dtype = TARTAN_F64; });
    }
    for (Dense *a : {&p.lse_a, &p.lse_b, &p.lse})
        refuses(TARTAN_ERR_DTYPE, "is of bfloat16, expected float32", *a,
                [](tartan_array &x) { x.dtype = TARTAN_BF16; });
}

TEST_F(AttentionMergeRefusals, OverlapAndDevices) {
    for (Dense *a : {&p.out_a, &p.out_b}) {
        refuses(TARTAN_ERR_ARGUMENT, "out overlaps out_", p.out, [&](tartan_array &x) { // another dtype
            x.data = a->array.data;
            x.dtype = TARTAN_BF16;
        });
        refuses(TARTAN_ERR_ARGUMENT, "out overlaps out_", p.out, [&](tartan_array &x) { // other strides
            x.data = a->array.data;
            std::swap(x.strides[0], x.strides[1]);
            x.strides[0] = 40, x.strides[1] = 80;
        });
    }
    for (Dense *a : {&p.lse_a, &p.lse_b})
        refuses(TARTAN_ERR_ARGUMENT, "out overlaps lse_", p.out,
                [&](tartan_array &x) { x.data = a->array.data; });
    for (Dense *a : {&p.out_a, &p.out_b, &p.out})
        refuses(TARTAN_ERR_ARGUMENT, "lse overlaps out", p.lse,
                [&](tartan_array &x) { x.data = a->array.data; });
    for (Dense *a : {&p.lse_a, &p.lse_b})
        refuses(TARTAN_ERR_ARGUMENT, "lse overlaps lse_", p.lse, [&](tartan_array &x) {
            x.data = a->array.data;
            x.strides[0] = 5, x.strides[1] = 10;
        });
    refuses(TARTAN_ERR_ARGUMENT, "out", p.out, [](tartan_array &x) { x.strides[2] = 0; });
    for (Dense *a : {&p.out_a, &p.out_b, &p.out, &p.lse_a, &p.lse_b, &p.lse})
        refuses(TARTAN_ERR_UNSUPPORTED, "is on device 2:0, expected 1:0", *a,
                [](tartan_array &x) { x.device_type = TARTAN_CUDA; });
}

} // namespace
