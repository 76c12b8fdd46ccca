// SPDX-License-Identifier: Apache-2.0
// Weight normalisation of block-sparse matrices on every backend, against its formulas.
#include "../support/schema_placed.h"
#include "called.h"

#include <cmath>

namespace {

using namespace tartan_test;
using real = long double;

class BackendWeights : public OnBackend {};
INSTANTIATE_TEST_SUITE_P(Each, BackendWeights, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

int64_t head_of(const tartan_layout *l, int64_t id) {
    int64_t head = 0;
    while (id >= l->row_pointers[(head + 1) * l->grid_rows]) head++;
    return head;
}

// Calls f(line, id, row, column) for the elements of a matrix; lines of all heads are counted.
template <typename F> void each_element(const tartan_layout *l, bool by_column, F f) {
    const int64_t size = by_column ? l->shape.cols : l->shape.rows;
    for (int64_t id = 0; id < l->blocks; id++)
        for (int64_t r = 0; r < tartan_i_rows_of(l, l->block_rows[id]); r++)
            for (int64_t c = 0; c < tartan_i_cols_of(l, l->block_cols[id]); c++)
                f(head_of(l, id) * size + (by_column ? l->block_cols[id] * l->shape.block_cols + c
                                                     : l->block_rows[id] * l->shape.block_rows + r),
                  id, r, c);
}

TEST_P(BackendWeights, AreDividedByTheirLengths) {
    for (uint64_t seed = 0; seed < rounds(24u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        const int32_t dtype = kDtypes[seed % 4], sums = tartan_i_sum_dtype(dtype);
        const bool by_column = random() % 2, has_gain = random() % 3 != 0;
        const tartan_shape shape = pick<tartan_shape>(
            random,
            {{40, 24, 8, 8, 1}, {21, 34, 4, 16, 1}, {7, 5, 1, 1, 1}, {64, 96, 32, 32, 1}, {18, 12, 4, 4, 3}});
        const Layout layout = random_layout(shape, 0.5, seed);
        const tartan_layout *l = layout.get();
        const int64_t lines = shape.heads * (by_column ? shape.cols : shape.rows);
        const std::vector<int64_t> of_gain = shape.heads > 1
                                                 ? std::vector<int64_t>{shape.heads, lines / shape.heads}
                                                 : std::vector<int64_t>{lines};
        const Matrix w = random_matrix(layout, dtype, random() % 2 ? TARTAN_ROW_MAJOR : TARTAN_COL_MAJOR,
                                       random, -2, 2),
                     u = random_matrix(layout, dtype, random() % 2 ? TARTAN_ROW_MAJOR : TARTAN_COL_MAJOR,
                                       random, -2, 2);
        Dense gain(sums, of_gain, kRows), none(sums, of_gain, kRows);
        gain.fill(random, -2, 2);
        // Some lines are shorter than epsilon says.
        const double epsilon_of = pick(random, {1e-12, 12.0});
        Matrix on_w = placed(context.get(), w), on_u = placed(context.get(), u),
               out = placed(context.get(), w), w_grad = placed(context.get(), w);
        Operand on_gain = {context.get(), gain}, gain_grad = {context.get(), none};
        const std::string options = std::string("each=") + (by_column ? "column" : "row") +
                                    " epsilon=" + (epsilon_of < 1 ? "1e-12" : "12");
        tartan_status status = call(context.get(), "weight_normalize",
                                    {on_w.get(), has_gain ? on_gain.array() : nullptr, out.get()}, options);
        if (is_refused(status)) return;
        ASSERT_OK(status);
        ASSERT_OK(call(
            context.get(), "weight_normalize_gradient",
            {on_w.get(), has_gain ? on_gain.array() : nullptr, on_u.get(), w_grad.get(), gain_grad.array()},
            options));
        const Matrix got = fetched(context.get(), out), slope = fetched(context.get(), w_grad);
        const Dense gains = gain_grad.got();
        std::vector<real> s((size_t)lines), t((size_t)lines), size((size_t)lines);
        each_element(l, by_column, [&](int64_t line, int64_t id, int64_t r, int64_t c) {
            const real x = entry(w.get(), id, r, c), g = entry(u.get(), id, r, c);
            s[(size_t)line] += x * x, t[(size_t)line] += x * g, size[(size_t)line] += std::fabs(x * g);
        });
        const double eps = epsilon(dtype), slack = epsilon(sums);
        each_element(l, by_column, [&](int64_t line, int64_t id, int64_t r, int64_t c) {
            const real m = std::fmax(s[(size_t)line], (real)epsilon_of), root = std::sqrt(m),
                       factor = has_gain ? gain.get(line) : 1, x = entry(w.get(), id, r, c),
                       g = entry(u.get(), id, r, c), want = factor * x / root,
                       second = s[(size_t)line] < epsilon_of ? 0 : factor * x * t[(size_t)line] / (m * root);
            ASSERT_NEAR((double)want, entry(got.get(), id, r, c),
                        (double)std::fabs(want) * (eps + 8 * slack) + 0x1p-24 * (dtype == TARTAN_F16));
            ASSERT_NEAR((double)(factor * g / root - second), entry(slope.get(), id, r, c),
                        (double)((2 * eps + 16 * slack) * (std::fabs(factor * g / root) + std::fabs(second)) +
                                 8 * slack * std::fabs(factor * x) * size[(size_t)line] / (m * root)) +
                            0x1p-23 * (dtype == TARTAN_F16));
        });
        for (int64_t i = 0; i < lines; i++) {
            const real root = std::sqrt(std::fmax(s[(size_t)i], (real)epsilon_of));
            ASSERT_NEAR((double)(t[(size_t)i] / root), gains.get(i),
                        (double)(8 * slack * (size[(size_t)i] + 1e-30L) / root));
        }
    }
}

} // namespace
