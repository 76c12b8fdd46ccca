// SPDX-License-Identifier: Apache-2.0
// Laws that tie convolutions to products, and finite differences.
#include "conv_support.h"

namespace {

using namespace tartan_test;

TEST(ConvLaws, WithOneTapItIsAProduct) {
    const Context own = open_context(2);
    for (int32_t dtype : {TARTAN_F64, TARTAN_F32})
        for (int64_t block : {1, 4, 8, 16, 32}) {
            std::mt19937_64 random((uint64_t)block);
            const Layout channels = random_layout({3 * block, 5 * block, block, block, 1}, 0.6, 1);
            const ConvHandle conv = make_conv(channels, "kernel=1x1");
            const Layout layout = layout_of(conv);
            const Matrix filter = random_matrix(layout, dtype, TARTAN_ROW_MAJOR, random);
            Dense x = make_image(dtype, 3, 5 * block, {4, 7}, kRows),
                  y = make_image(dtype, 3, 3 * block, {4, 7}, kRows);
            Dense flat_x(dtype, {3, 5 * block, 28}), flat_y(dtype, {3, 3 * block, 28});
            x.fill(random);
            for (int64_t i = 0; i < x.elements(); i++) flat_x.set(i, x.get(i));
            ASSERT_OK(conv_forward(own.get(), conv.get(), filter.get(), &x.array, nullptr, nullptr, nullptr,
                                   nullptr, nullptr, &y.array));
            ASSERT_OK(
                tartan_spmm(own.get(), filter.get(), nullptr, &flat_x.array, 1, 0, nullptr, &flat_y.array));
            for (int64_t i = 0; i < y.elements(); i++) ASSERT_EQ(flat_y.get(i), y.get(i)) << i;
        }
}

// The product of a dense matrix [y, x] with x, whose entries are filter[k, c, t] where y's position meets x's by tap t.
TEST(ConvLaws, ItIsTheProductWithItsUnrolledMatrix) {
    const Context own = open_context(2);
    for (uint64_t seed = 0; seed < rounds(60u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        Problem p = random_problem(seed);
        p.dtype = TARTAN_F64;
        p.filter = random_matrix(p.layout, TARTAN_F64, TARTAN_ROW_MAJOR, random);
        const int64_t ps = Problem::product(p.out), qs = Problem::product(p.in), K = p.conv->rows.count,
                      C = p.conv->cols.count, rows = K * ps, cols = C * qs;
        if (p.n == 0 || rows * cols == 0 || rows * cols > 2000000) continue;
        std::vector<double> unrolled((size_t)(rows * cols));
        std::vector<std::vector<std::pair<int64_t, int64_t>>> joined((size_t)p.conv->options.taps);
        p.each_pair([&](int64_t t, int64_t a, int64_t b, auto &, auto &) {
            if (b >= 0) joined[(size_t)t].emplace_back(a, b);
        });
        p.each_weight([&](int64_t k, int64_t c, int64_t t, int64_t id, int64_t i, int64_t j) {
            for (const auto &[a, b] : joined[(size_t)t])
                unrolled[(size_t)((k * ps + a) * cols + c * qs + b)] += entry(p.filter.get(), id, i, j);
        });
        Dense x = make_image(TARTAN_F64, p.n, p.x_channels(), p.x_size(), kRows),
              y = make_image(TARTAN_F64, p.n, p.y_channels(), p.y_size(), kChannelsLast);
        x.fill(random);
        ASSERT_OK(conv_forward(own.get(), p.conv.get(), p.filter.get(), &x.array, nullptr, nullptr, nullptr,
                               nullptr, nullptr, &y.array));
        const bool turned = p.transposed(); // then the matrix's transpose
        const int64_t outs = turned ? cols : rows, ins = turned ? rows : cols;
        for (int64_t i = 0; i < p.n * outs; i++) {
            double sum = 0;
            for (int64_t j = 0; j < ins; j++)
                sum += (turned ? unrolled[(size_t)(j * cols + i % outs)]
                               : unrolled[(size_t)(i % outs * cols + j)]) *
                       x.get(i / outs * ins + j);
            ASSERT_NEAR(sum, y.get(i), 1e-11);
        }
    }
}

TEST(ConvLaws, GradientsEqualFiniteDifferences) {
    const Context own = open_context(2);
    for (uint64_t seed = 0; seed < rounds(60u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        Problem p = random_problem(seed);
        p.dtype = TARTAN_F64;
        p.filter = random_matrix(p.layout, TARTAN_F64, TARTAN_ROW_MAJOR, random);
        Dense x = make_image(TARTAN_F64, p.n, p.x_channels(), p.x_size(), kChannelsLast), dx = x;
        Dense y = make_image(TARTAN_F64, p.n, p.y_channels(), p.y_size(), kRows), dy = y;
        if (x.elements() == 0 || y.elements() == 0 || p.layout->blocks == 0) continue;
        x.fill(random);
        dy.fill(random);
        const Matrix dw = random_matrix(p.layout, TARTAN_F64, TARTAN_ROW_MAJOR, random);
        const auto value = [&] {
            EXPECT_OK(conv_forward(own.get(), p.conv.get(), p.filter.get(), &x.array, nullptr, nullptr,
                                   nullptr, nullptr, nullptr, &y.array));
            long double sum = 0;
            for (int64_t i = 0; i < y.elements(); i++) sum += (long double)y.get(i) * dy.get(i);
            return sum;
        };
        ASSERT_OK(conv_input_gradient(own.get(), p.conv.get(), p.filter.get(), &dy.array, nullptr, nullptr,
                                      &dx.array));
        ASSERT_OK(tartan_conv_filter_gradient(own.get(), p.conv.get(), &x.array, &dy.array, nullptr, nullptr,
                                              0, dw.get()));
        const double step = 0.5; // the value is linear in each number
        for (int n = 0; n < 5; n++) {
            const int64_t i = (int64_t)below(random, (size_t)x.elements());
            const double before = x.get(i);
            x.set(i, before + step);
            const long double more = value();
            x.set(i, before - step);
            EXPECT_NEAR((double)(more - value()) / (2 * step), dx.get(i), 1e-9);
            x.set(i, before);
            const int64_t id = (int64_t)below(random, (size_t)p.layout->blocks);
            if (tartan_i_rows_of(p.layout.get(), p.layout->block_rows[id]) == 0) continue;
            double *w = (double *)tartan_i_block_at(p.filter.get(), id);
            const double old = *w;
            *w = old + step;
            const long double larger = value();
            *w = old - step;
            EXPECT_NEAR((double)(larger - value()) / (2 * step), entry(dw.get(), id, 0, 0), 1e-9);
            *w = old;
        }
    }
}

} // namespace
