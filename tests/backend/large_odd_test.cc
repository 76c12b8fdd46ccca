// SPDX-License-Identifier: Apache-2.0
// Large products whose blocks have edges that are no multiples of 8, which devices gather.
#include "large.h"

namespace {

using namespace tartan_test;

struct Edges {
    int64_t rows, cols;
};
const Edges kEdges[] = {{1, 1},     {3, 3},     {5, 5},   {7, 7},   {5, 7},   {12, 12},
                        {20, 20},   {36, 36},   {37, 37}, {50, 50}, {60, 60}, {63, 63},
                        {100, 100}, {132, 132}, {3, 100}, {100, 3}, {20, 36}, {255, 9}};

const char *const kModes[] = {"", "math=tf32"};

// Rows of X and columns of Y are contiguous, as in gradients of weights, aligned wherever blocks begin.
Setting across(const Edges &edges, int32_t dtype, std::mt19937_64 &random) {
    Setting s = setting_of(edges.rows, dtype, random, edges.cols);
    s.rows = 16 * (1 + (int64_t)below(random, 25)), s.cols = 16 * (1 + (int64_t)below(random, 25));
    s.b_style = kColumns, s.c_style = kRows;
    return s;
}

template <typename F> void each_dtype(const F &f) {
    for (const char *mode : kModes)
        for (const int32_t dtype : kDtypes)
            if (*mode == 0 || dtype == TARTAN_F32) f(mode, dtype);
}

class LargeOdd : public Large {
  protected:
    void use(const char *mode) {
        context = open(mode);
        lost = *mode == 0 ? 0 : kTf32;
        look_at_some_rows();
    }
    void multiply(const Setting &s, const std::vector<int> &list, std::mt19937_64 &random) {
        s.dtype == TARTAN_F64 ? forms<long double>(s, list, random) : forms<double>(s, list, random, lost);
    }
    void sample(const Setting &s, std::mt19937_64 &random) {
        s.dtype == TARTAN_F64 ? sddmm<long double>(s, random, 0) : sddmm<double>(s, random, lost);
    }
    // The random settings of each shape: some, or one on the CPU and the dummy.
    uint64_t settings(const Edges &edges) const { return on_device() ? seeds() : edges.rows % 4 == 0; }
    double lost = 0;
};

INSTANTIATE_TEST_SUITE_P(Each, LargeOdd, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

TEST_P(LargeOdd, Spmm) {
    each_dtype([&](const char *mode, int32_t dtype) {
        use(mode);
        for (const Edges &edges : kEdges)
            for (uint64_t seed = 0; seed < settings(edges) && !HasFailure(); seed++) {
                SCOPED_TRACE(::testing::Message() << "seed " << seed << ", " << mode);
                std::mt19937_64 random(seed * 1000 + (uint64_t)(edges.rows * 300 + edges.cols) +
                                       (uint64_t)dtype);
                Setting s = setting_of(edges.rows, dtype, random, edges.cols);
                if (seed % 4 == 3) s.b_style = s.c_style = kOddLines;
                multiply(s, seed % 2 == 0 ? std::vector<int>{0, 3} : std::vector<int>{1, 2}, random);
            }
    });
}

TEST_P(LargeOdd, Sddmm) {
    each_dtype([&](const char *mode, int32_t dtype) {
        use(mode);
        for (const Edges &edges : kEdges)
            for (uint64_t seed = 0; seed < settings(edges) && !HasFailure(); seed++) {
                SCOPED_TRACE(::testing::Message() << "seed " << seed << ", " << mode);
                std::mt19937_64 random(seed * 1000 + (uint64_t)(edges.rows * 300 + edges.cols) +
                                       (uint64_t)dtype);
                Setting s = seed % 2 == 0 ? setting_of(edges.rows, dtype, random, edges.cols)
                                          : across(edges, dtype, random);
                if (seed % 8 == 6) s.b_style = s.c_style = kOddLines;
                sample(s, random);
            }
    });
}

// So much work that a device first copies operands that it would load element by element.
TEST_P(LargeOdd, ProductsOfCopies) {
    const Edges shapes[] = {{12, 12}, {36, 36}, {5, 7}, {100, 100}};
    each_dtype([&](const char *mode, int32_t dtype) {
        use(mode);
        for (const Edges &edges : shapes)
            for (const Style style : {kRows, kColumns, kOddLines}) {
                if (HasFailure() || (!on_device() && (edges.rows != 12 || style != kColumns))) continue;
                std::mt19937_64 random((uint64_t)(edges.rows * 10 + dtype * 4 + style));
                Setting s = setting_of(edges.rows, dtype, random, edges.cols);
                s.rows = s.cols = on_device() ? 784 : 48, s.n = on_device() ? 1160 : 40;
                s.density = 1, s.heads = 1, s.batch = 0, s.b_style = s.c_style = style;
                multiply(s, {0, 1}, random);
                sample(s, random);
            }
    });
}

// What is not finite in B stays with its blocks.
TEST_P(LargeOdd, SpecialValues) {
    for (const int64_t block : {3, 12, 20, 36, 37})
        for (const int32_t dtype : kDtypes)
            for (const bool right : {false, true})
                for (const bool by_cols : {false, true}) {
                    const int64_t sum = 400, out = 80, n = 70;
                    std::mt19937_64 random((uint64_t)block);
                    const Layout layout = right ? random_layout({sum, out, block, block, 1}, 0.4, 9)
                                                : random_layout({out, sum, block, block, 1}, 0.4, 9);
                    const Matrix a = placed(context.get(), random_matrix(layout, dtype, by_cols, random));
                    const std::vector<int64_t> b_shape =
                        right ? std::vector<int64_t>{n, sum} : std::vector<int64_t>{sum, n};
                    const std::vector<int64_t> c_shape =
                        right ? std::vector<int64_t>{n, out} : std::vector<int64_t>{out, n};
                    Dense b(dtype, b_shape), c(dtype, c_shape);
                    b.fill(random);
                    const auto at = [&](int64_t k, int64_t j) { return right ? j * sum + k : k * n + j; };
                    b.set(at(2 * block + 1, 3), NAN);
                    b.set(at(sum - 1, 69), INFINITY);
                    for (int64_t i = 0; i < c.elements(); i++) c.set(i, NAN);
                    const Placed b_there(context.get(), b);
                    Placed c_there(context.get(), c);
                    ASSERT_OK(tartan_spmm(context.get(), a.get(), nullptr, &b_there.array, 1, 0,
                                          right ? "side=right" : "", &c_there.array));
                    c_there.fetch(c);
                    const auto is = [&](int64_t k, int64_t i) {
                        return right ? tartan_i_layout_find(layout.get(), 0, k / block, i / block) >= 0
                                     : tartan_i_layout_find(layout.get(), 0, i / block, k / block) >= 0;
                    };
                    for (int64_t j = 0; j < n; j++)
                        for (int64_t i = 0; i < out; i++)
                            ASSERT_EQ((j == 3 && is(2 * block + 1, i)) || (j == 69 && is(sum - 1, i)),
                                      !std::isfinite(c.get(right ? j * out + i : i * n + j)))
                                << "block " << block << ", " << tartan_dtype_name(dtype) << ", " << i << ", "
                                << j;
                }
}

} // namespace
