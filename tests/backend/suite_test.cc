// SPDX-License-Identifier: Apache-2.0
// What every backend must do: the error rule on all operations, refusals by supports, nothing else written.
#include "../ops/products.h"
#include "dummy_backend.h"

namespace {

using namespace tartan_test;

class Backend : public ::testing::TestWithParam<const char *> {
  protected:
    void SetUp() override {
        if (dummy()) tartan_i_backend_install(TARTAN_CUDA, &dummy_backend);
        tartan_context *raw = nullptr;
        ASSERT_OK(tartan_context_open(dummy() ? "cuda:1" : "cpu", 2, 0, &raw));
        context.reset(raw);
    }
    void TearDown() override {
        context.reset();
        tartan_i_backend_install(TARTAN_CUDA, nullptr);
    }
    bool dummy() const { return std::string(GetParam()) == "dummy"; }
    // Says that memory is the device's.
    template <typename T> T *place(T *operand) const {
        operand->device_type = dummy() ? TARTAN_CUDA : TARTAN_CPU;
        operand->device_id = dummy() ? 1 : 0;
        return operand;
    }
    Context context;
};
INSTANTIATE_TEST_SUITE_P(Each, Backend, ::testing::Values("cpu", "dummy"));

tartan_shape some_shape(std::mt19937_64 &random) {
    const std::pair<int, int> blocks[] = {{1, 1}, {3, 5}, {8, 8}, {16, 16}, {7, 2}};
    const auto block = blocks[below(random, 5)];
    return {(int64_t)below(random, 40), (int64_t)below(random, 40), block.first, block.second,
            pick<int64_t>(random, {1, 1, 2})};
}
std::vector<int64_t> some_batch(std::mt19937_64 &random, int64_t heads) {
    std::vector<int64_t> batch;
    if (random() % 2) batch.push_back((int64_t)below(random, 4));
    if (heads > 1) batch.push_back(heads);
    return batch;
}

TEST_P(Backend, Spmm) {
    for (uint64_t seed = 0; seed < 300; seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        const tartan_shape shape = some_shape(random);
        const Layout layout = random_layout(shape, 0.5, seed);
        const int32_t dtype = kDtypes[below(random, 4)], side = (int32_t)(seed % 2),
                      op = (int32_t)(seed / 2 % 2);
        const Matrix a = random_matrix(layout, dtype, (int32_t)below(random, 2), random);
        Dense gates(TARTAN_F64, {layout->blocks});
        for (int64_t i = 0; i < layout->blocks; i++)
            gates.set(i, pick(random, {0.0, 1.0, 0.5, -2.0})); // exact in 16 bits
        const bool gated = random() % 3 == 0, transposed = (op == 1) != (side == TARTAN_RIGHT);
        const int64_t out = transposed ? shape.cols : shape.rows, in = transposed ? shape.rows : shape.cols,
                      n = (int64_t)below(random, 20);
        std::vector<int64_t> b_shape = some_batch(random, shape.heads), c_shape = b_shape;
        b_shape.insert(b_shape.end(), {side ? n : in, side ? in : n});
        c_shape.insert(c_shape.end(), {side ? n : out, side ? out : n});
        Dense b(dtype, b_shape, (Style)below(random, kStyles)),
            c(dtype, c_shape, (Style)below(random, kRepeated));
        b.fill(random);
        c.fill(random);
        const double alpha = pick(random, {1.0, -0.5}), beta = pick(random, {0.0, 0.25});
        Dense got = c;
        place(a.get()), place(&b.array), place(&gates.array);
        const tartan_status status =
            tartan_spmm(context.get(), side, op, alpha, a.get(), gated ? &gates.array : nullptr, &b.array,
                        beta, place(&got.array));
        if (dummy() && gated && dtype == TARTAN_BF16) { // supports said no: never run
            ASSERT_EQ(TARTAN_ERR_UNSUPPORTED, status);
            ASSERT_NE(std::string(tartan_last_error())
                          .find(std::string("tartan_spmm: backend dummy: ") + kDummyRefusal),
                      std::string::npos)
                << tartan_last_error();
            ASSERT_EQ(c.memory(), got.memory());
            continue;
        }
        ASSERT_OK(status);
        for (int64_t e = 0; e * out * n < c.elements(); e++) {
            for (int64_t i = 0; i < out; i++) {
                for (int64_t j = 0; j < n; j++) {
                    Chain chain(dtype);
                    for (int64_t k = 0; k < in; k++) {
                        const int64_t row = transposed ? k : i, col = transposed ? i : k;
                        const int64_t id = tartan_i_layout_find(
                            layout.get(), e % shape.heads, row / shape.block_rows, col / shape.block_cols);
                        if (id < 0 || (gated && gates.get(id) == 0)) continue;
                        chain.add((gated ? gates.get(id) : 1) *
                                      entry(a.get(), id, row % shape.block_rows, col % shape.block_cols),
                                  b.get(side ? (e * n + j) * in + k : (e * in + k) * n + j));
                    }
                    const int64_t at = side ? (e * n + j) * out + i : (e * out + i) * n + j;
                    ASSERT_TRUE(chain.within(got.get(at), alpha, beta, c.get(at), dtype)) << i << ", " << j;
                }
            }
        }
    }
}

TEST_P(Backend, Sddmm) {
    for (uint64_t seed = 0; seed < 300; seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        const tartan_shape shape = some_shape(random);
        const Layout layout = random_layout(shape, 0.5, seed);
        const int32_t dtype = kDtypes[below(random, 4)];
        const Matrix s = random_matrix(layout, dtype, (int32_t)below(random, 2), random);
        tartan_matrix *raw = nullptr;
        ASSERT_OK(tartan_matrix_copy(s.get(), &raw));
        const Matrix got(raw);
        Dense gates(TARTAN_F32, {layout->blocks});
        for (int64_t i = 0; i < layout->blocks; i++) gates.set(i, pick(random, {0.0, 1.0, 0.5}));
        const bool gated = random() % 3 == 0;
        const int64_t k = (int64_t)below(random, 20);
        std::vector<int64_t> x_shape = some_batch(random, shape.heads), y_shape = x_shape;
        x_shape.insert(x_shape.end(), {shape.rows, k});
        y_shape.insert(y_shape.end(), {k, shape.cols});
        Dense x(dtype, x_shape, (Style)below(random, kStyles)),
            y(dtype, y_shape, (Style)below(random, kStyles));
        x.fill(random);
        y.fill(random);
        place(got.get()), place(&x.array), place(&y.array), place(&gates.array);
        ASSERT_OK(tartan_sddmm(context.get(), -0.5, gated ? &gates.array : nullptr, &x.array, 1, &y.array, 1,
                               0.25, got.get()));
        for (int64_t id = 0; id < layout->blocks; id++) {
            const double gate = gated ? gates.get(id) : 1;
            for (int64_t i = 0; i < tartan_i_rows_of(layout.get(), layout->block_rows[id]); i++) {
                for (int64_t j = 0; j < tartan_i_cols_of(layout.get(), layout->block_cols[id]); j++) {
                    Chain chain(dtype);
                    const int64_t entries = shape.rows * k == 0 ? 0 : x.elements() / (shape.rows * k);
                    for (int64_t e = shape.heads > 1 ? tartan_i_layout_head(layout.get(), id) : 0;
                         gate != 0 && e < entries; e += shape.heads)
                        for (int64_t t = 0; t < k; t++)
                            chain.add(
                                x.get((e * shape.rows + layout->block_rows[id] * shape.block_rows + i) * k +
                                      t),
                                y.get((e * k + t) * shape.cols + layout->block_cols[id] * shape.block_cols +
                                      j));
                    ASSERT_TRUE(chain.within(entry(got.get(), id, i, j), -0.5 * gate, 0.25,
                                             entry(s.get(), id, i, j), dtype));
                }
            }
        }
    }
}

TEST_P(Backend, GateGradient) {
    for (uint64_t seed = 0; seed < 100; seed++) {
        std::mt19937_64 random(seed);
        const Layout layout = random_layout(some_shape(random), 0.5, seed);
        const int32_t dtype = kDtypes[below(random, 4)];
        const Matrix w = random_matrix(layout, dtype, 0, random),
                     dw = random_matrix(layout, dtype, 1, random);
        Dense gates(TARTAN_F32, {layout->blocks}), sums(tartan_i_sum_dtype(dtype), {layout->blocks});
        for (int64_t i = 0; i < layout->blocks; i++) gates.set(i, 0.5);
        std::vector<Chain> want((size_t)layout->blocks, Chain(dtype));
        std::vector<double> first;
        for (int64_t id = 0; id < layout->blocks; id++) {
            first.push_back(entry(dw.get(), id, 0, 0));
            for (int64_t i = 0; i < tartan_i_rows_of(layout.get(), layout->block_rows[id]); i++)
                for (int64_t j = 0; j < tartan_i_cols_of(layout.get(), layout->block_cols[id]); j++)
                    want[(size_t)id].add(entry(w.get(), id, i, j), entry(dw.get(), id, i, j));
        }
        place(w.get()), place(dw.get()), place(&gates.array);
        ASSERT_OK(tartan_gate_gradient(context.get(), w.get(), &gates.array, dw.get(), place(&sums.array)));
        for (int64_t id = 0; id < layout->blocks; id++) {
            ASSERT_TRUE(want[(size_t)id].within(sums.get(id), 1, 0, 0, sums.array.dtype));
            ASSERT_EQ(rounded(dtype, 0.5 * first[(size_t)id]), entry(dw.get(), id, 0, 0));
        }
    }
}

TEST_P(Backend, AnOperationThatIsNotThereIsRefused) {
    Dense x(TARTAN_F32, {4, 3}), y(TARTAN_F32, {3, 6}), score(TARTAN_F32, {2, 3});
    const tartan_shape shape = {4, 6, 2, 2, 1};
    place(&x.array), place(&y.array), place(&score.array);
    const Dense before = score;
    const tartan_status status = tartan_growth_score(context.get(), &shape, TARTAN_NORM_MAX, 1, &x.array, 1,
                                                     &y.array, 1, 0, &score.array);
    if (!dummy()) {
        EXPECT_OK(status);
        return;
    }
    EXPECT_EQ(TARTAN_ERR_UNSUPPORTED, status);
    EXPECT_EQ("tartan_growth_score: backend dummy: the operation is not there yet",
              std::string(tartan_last_error()));
    EXPECT_EQ(before.memory(), score.memory());
}

TEST_P(Backend, OperandsElsewhereAreRefused) {
    std::mt19937_64 random(1);
    const Layout layout = random_layout({8, 8, 4, 4, 1}, 1, 1);
    const Matrix a = random_matrix(layout, TARTAN_F32, 0, random);
    Dense b(TARTAN_F32, {8, 2}), c(TARTAN_F32, {8, 2});
    place(a.get()), place(&b.array), place(&c.array);
    EXPECT_OK(tartan_spmm(context.get(), 0, 0, 1, a.get(), nullptr, &b.array, 0, &c.array));
    b.array.device_type = dummy() ? TARTAN_CPU : TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "b is on device",
                 tartan_spmm(context.get(), 0, 0, 1, a.get(), nullptr, &b.array, 0, &c.array));
    place(&b.array)->device_id = 0;
    const tartan_status other = tartan_spmm(context.get(), 0, 0, 1, a.get(), nullptr, &b.array, 0, &c.array);
    EXPECT_EQ(dummy() ? TARTAN_ERR_UNSUPPORTED : TARTAN_OK, other); // device 0 of two
}

TEST(DummyBackend, DevicesAreOpenedClosedAndWaitedFor) {
    const DummyInstalled installed;
    const DummyCounts before = dummy_counts();
    tartan_context *context = nullptr;
    ASSERT_OK(tartan_context_open("cuda", 1, 0, &context));
    EXPECT_OK(tartan_context_sync(context));
    dummy_fail_next();
    EXPECT_FAILS(DEVICE, "told to fail", tartan_context_sync(context));
    tartan_context_free(context);
    dummy_fail_next();
    EXPECT_FAILS(DEVICE, "told to fail", tartan_context_open("cuda", 1, 0, &context));
    EXPECT_EQ(nullptr, context);
    EXPECT_FAILS(DEVICE, "dummy:2 is not there: 2 devices", tartan_context_open("cuda:2", 1, 0, &context));
    const DummyCounts after = dummy_counts();
    EXPECT_EQ(before.opened + 1, after.opened);
    EXPECT_EQ(before.closed + 1, after.closed);
    EXPECT_EQ(before.synced + 2, after.synced);
    char *text = nullptr;
    ASSERT_OK(tartan_info(&text));
    EXPECT_NE(std::string(text).find("dummy 1"), std::string::npos) << text;
    tartan_text_free(text);
}

} // namespace
