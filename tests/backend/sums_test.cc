// SPDX-License-Identifier: Apache-2.0
// Sums of many terms for few results, which backends share among threads in other ways than sums of few terms: rows of a table that most
// indices have, long segments, lines with many indices.
#include "called.h"

#include <numeric>

namespace {

using namespace tartan_test;

class BackendSums : public OnBackend {
  protected:
    std::mt19937_64 random{17};

    Dense numbers(int32_t dtype, const std::vector<int64_t> &shape, bool written) {
        Dense made(dtype, shape, (Style)below(random, written ? kRepeated : kStyles));
        made.fill(random, -2, 2);
        return made;
    }
    Dense indices(const std::vector<int64_t> &shape) {
        return Dense(pick<int32_t>(random, {TARTAN_I64, TARTAN_I32}), shape, (Style)below(random, kRepeated));
    }
    // One of `count`: half of the time the first, else one of few or any.
    int64_t popular(int64_t count) {
        const size_t most = (size_t)std::max<int64_t>(count, 1);
        return random() % 2 == 0 ? 0
                                 : (int64_t)below(random, random() % 2 ? std::min<size_t>(most, 3) : most);
    }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendSums, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

// Sums of terms, and of their sizes, and how many these are.
struct Wanted {
    std::vector<long double> sum, size;
    std::vector<int64_t> terms;
    explicit Wanted(int64_t count) : sum((size_t)count), size((size_t)count), terms((size_t)count) {}
    void add(int64_t at, double x) {
        sum[(size_t)at] += x, size[(size_t)at] += std::fabs(x), terms[(size_t)at]++;
    }
    // Terms may be added one after the other.
    void expect(const Dense &got, int32_t sums) const {
        for (int64_t i = 0; i < got.elements(); i++)
            expect_near(sum[(size_t)i], got.get(i), got.array.dtype,
                        (16 + (double)terms[(size_t)i] / 4) * epsilon(sums) * (double)size[(size_t)i],
                        "sum " + std::to_string(i));
    }
};

// Most indices have one row, none has some others.
TEST_P(BackendSums, EmbeddingOfPopularRows) {
    struct Size {
        int64_t rows, ids, n;
    };
    for (const int32_t dtype : kDtypes)
        for (const Size size :
             {Size{1, 130, 1}, Size{3, 1000, 3}, Size{200, 5000, 8}, Size{2, 64, 16}, Size{2, 65, 16},
              Size{40, 9000, 64}, Size{5, 300, 1300}, Size{9, 129, 1024}}) {
            const int64_t base = (int64_t)below(random, 2);
            const std::vector<int64_t> shape = size.ids % 2 == 0 && random() % 2
                                                   ? std::vector<int64_t>{2, size.ids / 2}
                                                   : std::vector<int64_t>{size.ids};
            std::vector<int64_t> with_n = shape;
            with_n.push_back(size.n);
            Dense table = numbers(dtype, {size.rows, size.n}, false), y_grad = numbers(dtype, with_n, false),
                  grad = numbers(dtype, {size.rows, size.n}, true), places = indices(shape);
            Wanted want(size.rows * size.n);
            for (int64_t i = 0; i < size.ids; i++) {
                const int64_t row = popular(size.rows);
                const bool out = random() % 8 == 0; /* padding */
                places.set(i, out ? 77777 : (double)(row + base));
                for (int64_t c = 0; c < size.n && !out; c++)
                    want.add(row * size.n + c, y_grad.get(i * size.n + c));
            }
            Operand from = {context.get(), table}, by = {context.get(), places}, g = {context.get(), y_grad},
                    back = {context.get(), grad};
            const tartan_status status =
                call(context.get(), "embedding_gradient", {from.array(), by.array(), g.array(), back.array()},
                     "padding_index=77777 base=" + std::to_string(base));
            if (is_refused(status)) continue;
            ASSERT_OK(status);
            const Dense got = back.got();
            ASSERT_TRUE(marks_intact(got));
            want.expect(got, tartan_i_sum_dtype(dtype));
            if (HasFailure()) return;
        }
}

TEST_P(BackendSums, LongSegments) {
    const std::vector<std::vector<int64_t>> all_lengths = {
        {130}, {64, 65, 63, 0, 1, 129}, {3000, 1, 0, 0, 2000, 5}, {7, 9, 6000}, {0, 0, 200, 0}};
    for (const int32_t dtype : kDtypes)
        for (const std::vector<int64_t> &lengths : all_lengths)
            for (const std::vector<int64_t> &item :
                 std::vector<std::vector<int64_t>>{{}, {16}, {3, 5}, {400}})
                for (const double beta : {1.0, 0.0}) {
                    const int64_t base = (int64_t)below(random, 2), segments = (int64_t)lengths.size(),
                                  count = std::accumulate(lengths.begin(), lengths.end(), (int64_t)0);
                    int64_t n = 1;
                    for (const int64_t length : item) n *= length;
                    if (n * count > 200000) continue;
                    std::vector<int64_t> x_shape = {segments}, shape = {count}, all((size_t)count);
                    x_shape.insert(x_shape.end(), item.begin(), item.end());
                    shape.insert(shape.end(), item.begin(), item.end());
                    std::iota(all.begin(), all.end(), 0);
                    std::shuffle(all.begin(), all.end(), random);
                    Dense x = numbers(dtype, x_shape, false), z = numbers(dtype, x_shape, true),
                          values = numbers(like_dtype(dtype, random), shape, false), order = indices({count}),
                          ends = indices({segments}), z_grad = numbers(dtype, x_shape, false),
                          of_values = numbers(dtype, shape, true);
                    Wanted want(segments * n);
                    std::vector<int64_t> segment((size_t)count);
                    for (int64_t s = 0, i = 0; s < segments; s++) {
                        for (int64_t c = 0; c < n && beta != 0; c++) want.add(s * n + c, x.get(s * n + c));
                        for (const int64_t end = i + lengths[(size_t)s]; i < end; i++) {
                            const int64_t v = all[(size_t)i];
                            segment[(size_t)v] = s;
                            order.set(i, (double)(v + base));
                            for (int64_t c = 0; c < n; c++) want.add(s * n + c, values.get(v * n + c));
                        }
                        ends.set(s, (double)i);
                    }
                    Operand to = {context.get(), z}, old = {context.get(), x}, in = {context.get(), values},
                            list = {context.get(), order}, last = {context.get(), ends},
                            g = {context.get(), z_grad}, v_grad = {context.get(), of_values};
                    const std::string options =
                        "beta=" + std::to_string(beta) + " base=" + std::to_string(base);
                    const tartan_status status =
                        call(context.get(), "segment_sum",
                             {old.array(), in.array(), list.array(), last.array(), to.array()}, options);
                    if (is_refused(status)) continue;
                    ASSERT_OK(status);
                    ASSERT_OK(
                        call(context.get(), "segment_sum_gradient",
                             {in.array(), list.array(), last.array(), g.array(), v_grad.array(), nullptr},
                             options));
                    const Dense got = to.got(), slopes = v_grad.got();
                    ASSERT_TRUE(marks_intact(got) && marks_intact(slopes));
                    want.expect(got, tartan_i_sum_dtype(dtype));
                    for (int64_t v = 0; v < count; v++)
                        for (int64_t c = 0; c < n; c++)
                            ASSERT_EQ(z_grad.get(segment[(size_t)v] * n + c), slopes.get(v * n + c));
                    if (HasFailure()) return;
                }
}

// Few, some and many indices of a line, equal ones among them; long lines, and lines that lie side by side.
TEST_P(BackendSums, IndicesOfLines) {
    struct Size {
        int64_t lines, n, k;
    };
    for (const int32_t dtype : kDtypes)
        for (const Size size :
             {Size{3, 40, 33}, Size{4, 3000, 512}, Size{3, 100, 513}, Size{2, 9000, 2048}, Size{2, 700, 2049},
              Size{1, 5000, 4096}, Size{3, 900, 4097}, Size{1, 50, 9000}, Size{2, 20000, 3},
              Size{2, 17000, 1}, Size{1, 40000, 0}, Size{40, 2000, 2}, Size{33000, 3, 2}})
            for (const bool side_by_side : {false, true}) {
                const int64_t base = (int64_t)below(random, 2);
                const auto shape = [&](int64_t length) { return std::vector<int64_t>{size.lines, length}; };
                const auto turned = [&](int32_t of, int64_t length) {
                    Dense made(of, shape(length), side_by_side ? kColumns : kRows);
                    made.fill(random, -2, 2);
                    return made;
                };
                Dense x = numbers(dtype, shape(size.n), false), x_grad = turned(dtype, size.n),
                      y_grad = turned(like_dtype(dtype, random), size.k), places = indices(shape(size.k));
                Wanted want(size.lines * size.n);
                for (int64_t e = 0; e < places.elements(); e++) {
                    const int64_t place = popular(size.n);
                    places.set(e, (double)(place + base));
                    want.add(e / size.k * size.n + place, y_grad.get(e));
                }
                Operand in = {context.get(), x}, by = {context.get(), places}, g = {context.get(), y_grad},
                        back = {context.get(), x_grad};
                const tartan_status status =
                    call(context.get(), "take_along_gradient",
                         {in.array(), by.array(), g.array(), back.array()}, "base=" + std::to_string(base));
                if (is_refused(status)) continue;
                ASSERT_OK(status);
                const Dense got = back.got();
                ASSERT_TRUE(marks_intact(got));
                want.expect(got, tartan_i_sum_dtype(dtype));
                if (HasFailure()) return;
            }
}

// Of few and many channels, which are neighbours in memory or not; the numbers are far from 0 beside their deviation.
TEST_P(BackendSums, BatchNorm) {
    const std::vector<std::vector<int64_t>> shapes = {{3, 5, 70},
                                                      {300, 48},
                                                      {4001, 7},
                                                      {2, 3, 4097},
                                                      {40, 64, 1},
                                                      {6, 16, 12},
                                                      {16400, 64},
                                                      {600, 40},
                                                      {9, 2, 1000},
                                                      {1, 33, 1},
                                                      {2, 2, 3, 5},
                                                      {24, 3, 4096},
                                                      {2100, 256},
                                                      {3, 150, 16},
                                                      {2, 3, 65528},
                                                      {3, 2, 65537},
                                                      // units that go from channel to channel
                                                      {101, 60, 7, 7},
                                                      {1, 29200, 9},
                                                      {5, 184, 17, 17}};
    for (const int32_t dtype : kDtypes)
        for (const std::vector<int64_t> &shape : shapes) {
            const bool large = shape[0] > 10000;
            if (large && dtype != TARTAN_BF16 && dtype != TARTAN_F32) continue;
            const int64_t channels = shape[1];
            const int32_t wide = tartan_i_sum_dtype(dtype);
            const Style style = shape.size() == 2 ? kRows : (Style)below(random, kRepeated);
            const int32_t other = random() % 2 ? dtype : like_dtype(dtype, random);
            Dense x(dtype, shape, style), y(dtype, shape, style), g(other, shape, style),
                x_grad(dtype, shape, style), gain(wide, {channels}), bias(wide, {channels}),
                stats(wide, {channels, 3}, (Style)below(random, kRepeated)), gain_grad(wide, {channels}),
                bias_grad(wide, {channels});
            for (Dense *of : {&x, &g, &gain, &bias}) of->fill(random, -2, 2);
            const double far = dtype == TARTAN_F64 ? 4096 : dtype == TARTAN_F32 ? 256 : 4;
            for (int64_t i = 0; i < x.elements(); i++) x.set(i, x.get(i) + far);
            Operand in = {context.get(), x}, out = {context.get(), y}, slope = {context.get(), g},
                    back = {context.get(), x_grad}, by = {context.get(), gain}, plus = {context.get(), bias},
                    facts = {context.get(), stats}, of_gain = {context.get(), gain_grad},
                    of_bias = {context.get(), bias_grad};
            const tartan_status status =
                call(context.get(), "batch_norm",
                     {in.array(), by.array(), plus.array(), out.array(), facts.array()});
            if (is_refused(status)) continue;
            ASSERT_OK(status);
            ASSERT_OK(call(context.get(), "batch_norm_gradient",
                           {in.array(), by.array(), facts.array(), slope.array(), back.array(),
                            of_gain.array(), of_bias.array()}));
            const Dense got = out.got(), got_stats = facts.got(), got_x = back.got(),
                        got_gain = of_gain.got(), got_bias = of_bias.got();
            ASSERT_TRUE(marks_intact(got) && marks_intact(got_x) && marks_intact(got_stats));
            const int64_t each = x.elements() / shape[0] / channels;
            const auto channel = [&](int64_t i) { return (size_t)(i / each % channels); };
            const auto terms = (long double)(x.elements() / channels);
            std::vector<long double> mean((size_t)channels), variance = mean, rstd = mean, of_g = mean,
                                                             of_z = mean, sizes = mean;
            // Of differences, for valgrind, whose long double has no more bits than double.
            for (int64_t i = 0; i < x.elements(); i++) mean[channel(i)] += (x.get(i) - far) / terms;
            for (long double &m : mean) m += far;
            for (int64_t i = 0; i < x.elements(); i++) {
                const long double d = x.get(i) - mean[channel(i)];
                variance[channel(i)] += d * d / terms;
            }
            for (size_t c = 0; c < rstd.size(); c++) rstd[c] = 1 / std::sqrt(variance[c] + 1e-5L);
            const auto z = [&](int64_t i) { return (x.get(i) - mean[channel(i)]) * rstd[channel(i)]; };
            for (int64_t i = 0; i < x.elements(); i++) {
                of_g[channel(i)] += g.get(i), of_z[channel(i)] += g.get(i) * z(i);
                sizes[channel(i)] += std::fabs(g.get(i));
            }
            // What is left of numbers after their mean was subtracted is as wrong as the rounded mean.
            const double unit = epsilon(wide), off = 8 * unit * (far + 4);
            for (size_t c = 0; c < rstd.size(); c++) {
                const auto at = (int64_t)c;
                expect_near(mean[c], got_stats.get(3 * at), wide, off, "mean");
                expect_near(rstd[c], got_stats.get(3 * at + 1), wide, (double)rstd[c] * off, "rstd");
                expect_near(variance[c], got_stats.get(3 * at + 2), wide, off, "variance");
                expect_near(of_g[c], got_bias.get(at), wide, (double)sizes[c] * 16 * unit, "bias_grad");
                expect_near(of_z[c], got_gain.get(at), wide, (double)(sizes[c] * rstd[c]) * 4 * off,
                            "gain_grad");
            }
            for (int64_t i = 0; i < x.elements() && !HasFailure(); i++) {
                const size_t c = channel(i);
                const long double slopes = (z(i) * of_z[c] + of_g[c]) / terms;
                expect_near(z(i) * gain.get((int64_t)c) + bias.get((int64_t)c), got.get(i), dtype,
                            (double)rstd[c] * 8 * off, "y");
                expect_near(rstd[c] * gain.get((int64_t)c) * (g.get(i) - slopes), got_x.get(i), dtype,
                            (double)(rstd[c] * rstd[c]) * 32 * off, "x_grad");
            }
            if (HasFailure()) return;
        }
}

} // namespace
