// SPDX-License-Identifier: Apache-2.0
// Products with few columns, which devices compute by kernels of their own: blocks of all edges in long and short lists, whole and
// ragged, both orders of blocks and of the dense operands, gates, heads, batches.
#include "placed.h"

namespace {

using namespace tartan_test;

class SpmmFew : public OnBackend {
  protected:
    struct Form {
        int32_t dtype, order, side, op;
        int64_t n;
        bool gated;
        Style style;
    };

    // C = 0.5 A B - C by blocks of `shape`, beside the chains of an element.
    void multiply(const tartan_shape &shape, double density, const Form &f, uint64_t seed) {
        std::mt19937_64 random(seed);
        const Layout layout = random_layout(shape, density, seed);
        const Matrix a = random_matrix(layout, f.dtype, f.order, random);
        Dense gates(TARTAN_F32, {layout->blocks});
        for (int64_t i = 0; i < layout->blocks; i++) gates.set(i, pick(random, {0.0, 0.5, -2.0}));
        const bool transposed = (f.op == 1) != (f.side == kRight);
        const int64_t out = transposed ? shape.cols : shape.rows, in = transposed ? shape.rows : shape.cols;
        std::vector<int64_t> b_shape = {2}, c_shape = {2};
        if (shape.heads > 1) b_shape.push_back(shape.heads), c_shape.push_back(shape.heads);
        b_shape.insert(b_shape.end(), {f.side ? f.n : in, f.side ? in : f.n});
        c_shape.insert(c_shape.end(), {f.side ? f.n : out, f.side ? out : f.n});
        Dense b(f.dtype, b_shape, f.style), c(f.dtype, c_shape, f.style == kRepeated ? kRows : f.style);
        b.fill(random);
        c.fill(random);
        const Matrix there = placed(context.get(), a);
        const Placed gates_there(context.get(), gates), b_there(context.get(), b);
        Placed c_there(context.get(), c);
        ASSERT_OK(tartan_spmm(context.get(), there.get(), f.gated ? &gates_there.array : nullptr,
                              &b_there.array, 0.5, -1, spmm_options(f.side, f.op), &c_there.array));
        Dense got = c;
        c_there.fetch(got);

        const size_t width = (size_t)shape.cols;
        for (int64_t head = 0; head < shape.heads; head++) {
            std::vector<double> dense((size_t)shape.rows * width, NAN); // NaN: no block, or a gate of 0
            for (int64_t row = 0; row < shape.rows; row++)
                for (int64_t col = 0; col < shape.cols; col++) {
                    const int64_t id = tartan_i_layout_find(layout.get(), head, row / shape.block_rows,
                                                            col / shape.block_cols);
                    if (id < 0 || (f.gated && gates.get(id) == 0)) continue;
                    dense[(size_t)row * width + (size_t)col] =
                        (f.gated ? gates.get(id) : 1) *
                        entry(a.get(), id, row % shape.block_rows, col % shape.block_cols);
                }
            for (int64_t e = head; e < 2 * shape.heads; e += shape.heads)
                for (int64_t i = 0; i < out; i += 1 + i % 3) // one in two rows
                    for (int64_t j = 0; j < f.n; j++) {
                        Chain chain(f.dtype);
                        for (int64_t k = 0; k < in; k++) {
                            const double x =
                                dense[(size_t)(transposed ? k : i) * width + (size_t)(transposed ? i : k)];
                            if (!std::isnan(x))
                                chain.add(x, b.get(f.side ? (e * f.n + j) * in + k : (e * in + k) * f.n + j));
                        }
                        const int64_t at = f.side ? (e * f.n + j) * out + i : (e * out + i) * f.n + j;
                        ASSERT_TRUE(chain.within(got.get(at), 0.5, -1, c.get(at), f.dtype))
                            << i << ", " << j << ": " << got.get(at);
                    }
        }
    }
};

TEST_P(SpmmFew, Products) {
    const std::pair<int, int> blocks[] = {{1, 1},  {3, 3},   {5, 7},    {4, 4}, {12, 12},
                                          {8, 20}, {32, 32}, {128, 16}, {6, 64}};
    const int64_t counts[] = {1, 2, 4, 7, 8, 16, 17};
    for (uint64_t seed = 0; seed < rounds(160u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const auto block = blocks[seed % 9];
        const bool is_long = seed / 9 % 2 == 0;
        const int64_t rows = is_long ? 40 : 300, cols = is_long ? 900 : 130;
        multiply({rows - (int64_t)(seed % 3), cols - (int64_t)(seed % 5), block.first, block.second,
                  1 + (int64_t)(seed % 11 == 0)},
                 is_long ? 0.6 : 0.1,
                 {kDtypes[seed / 2 % 4], (int32_t)(seed / 3 % 2), (int32_t)(seed / 5 % 2),
                  (int32_t)(seed / 7 % 2), counts[seed % 7], seed % 6 == 0, (Style)(seed / 4 % kStyles)},
                 seed);
    }
}

INSTANTIATE_TEST_SUITE_P(Each, SpmmFew, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

} // namespace
