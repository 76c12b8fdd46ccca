// SPDX-License-Identifier: Apache-2.0
// Elements, rows and items by their indices on every backend, against plain loops.
#include "selections.h"

#include <algorithm>
#include <numeric>

namespace {

using namespace tartan_test;

class BackendIndices : public WithIndices {};
INSTANTIATE_TEST_SUITE_P(Each, BackendIndices, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

TEST_P(BackendIndices, TakeAlong) {
    for (const int32_t dtype : kDtypes)
        for (const std::vector<int64_t> &shape : kLineShapes)
            for (const int64_t k : {0, 1, 3, 70}) {
                const int64_t n = shape.back(), base = (int64_t)below(random, 2);
                std::vector<int64_t> of_indices = shape;
                of_indices.back() = k;
                Dense x = numbers(dtype, shape, false), y = numbers(dtype, of_indices, true),
                      places = indices(of_indices),
                      y_grad = numbers(like_dtype(dtype, random), of_indices, false),
                      x_grad = numbers(like_dtype(dtype, random), shape, true);
                for (int64_t e = 0; e < places.elements(); e++)
                    places.set(e, (double)(base + (int64_t)below(random, (size_t)n)));
                Operand in = {context.get(), x}, by = {context.get(), places}, out = {context.get(), y},
                        g = {context.get(), y_grad}, back = {context.get(), x_grad};
                const std::string options = "base=" + std::to_string(base);
                const tartan_status status =
                    call(context.get(), "take_along", {in.array(), by.array(), out.array()}, options);
                if (is_refused(status)) continue;
                ASSERT_OK(status);
                ASSERT_OK(call(context.get(), "take_along_gradient",
                               {in.array(), by.array(), g.array(), back.array()}, options));
                const Dense got = out.got(), slopes = back.got();
                ASSERT_TRUE(marks_intact(got) && marks_intact(slopes));
                std::vector<long double> want((size_t)x.elements()), size = want;
                for (int64_t e = 0; e < y.elements(); e++) {
                    const int64_t from = e / k * n + (int64_t)places.get(e) - base;
                    ASSERT_EQ(x.get(from), got.get(e));
                    want[(size_t)from] += y_grad.get(e), size[(size_t)from] += 4;
                }
                for (int64_t e = 0; e < x.elements(); e++)
                    expect_near(want[(size_t)e], slopes.get(e), x_grad.array.dtype,
                                4 * epsilon(tartan_i_sum_dtype(dtype)) * (double)size[(size_t)e], "gradient");
                if (HasFailure()) return;
            }
}

// 8192 rows of which 1024 are in the map, as openai/blocksparse has it, and small ones of any strides.
TEST_P(BackendIndices, ScatterRows) {
    struct Size {
        int64_t rows, ids, n;
    };
    for (const int32_t dtype : kDtypes)
        for (const Size size :
             {Size{8192, 1024, 64}, Size{7, 3, 5}, Size{4, 4, 1}, Size{9, 0, 3}, Size{33, 20, 16}})
            for (const char *word : {"set", "add", "multiply"}) {
                const int64_t base = (int64_t)below(random, 2);
                const bool add = word[0] == 'a', multiply = word[0] == 'm';
                std::vector<int64_t> rows((size_t)size.rows), source((size_t)size.rows, -1);
                std::iota(rows.begin(), rows.end(), 0);
                std::shuffle(rows.begin(), rows.end(), random);
                Dense y = numbers(like_dtype(dtype, random), {size.ids, size.n}, false),
                      map = indices({size.ids}), x = numbers(dtype, {size.rows, size.n}, false),
                      z = numbers(dtype, {size.rows, size.n}, true),
                      z_grad = numbers(dtype, {size.rows, size.n}, false),
                      y_slope = numbers(dtype, {size.ids, size.n}, true),
                      x_slope = numbers(dtype, {size.rows, size.n}, true);
                for (int64_t i = 0; i < size.ids; i++) {
                    map.set(i, (double)(rows[(size_t)i] + base));
                    source[(size_t)rows[(size_t)i]] = i;
                }
                Operand in = {context.get(), y}, by = {context.get(), map}, old = {context.get(), x},
                        out = {context.get(), z}, g = {context.get(), z_grad},
                        to_y = {context.get(), y_slope}, to_x = {context.get(), x_slope};
                const std::string options = std::string("combine=") + word + " base=" + std::to_string(base);
                const tartan_status status =
                    call(context.get(), "scatter_rows", {old.array(), by.array(), in.array(), out.array()},
                         options);
                if (is_refused(status)) continue;
                ASSERT_OK(status);
                ASSERT_OK(call(context.get(), "scatter_rows_gradient",
                               {g.array(), by.array(), in.array(), old.array(), to_y.array(), to_x.array()},
                               options));
                const Dense got = out.got(), of_y = to_y.got(), of_x = to_x.got();
                ASSERT_TRUE(marks_intact(got) && marks_intact(of_y) && marks_intact(of_x));
                ASSERT_EQ(x.memory(), old.got().memory()) << "an input was written";
                for (int64_t r = 0; r < size.rows; r++)
                    for (int64_t c = 0; c < size.n; c++) {
                        const int64_t from = source[(size_t)r], e = r * size.n + c;
                        const long double before = x.get(e), put = from < 0 ? 0 : y.get(from * size.n + c);
                        const long double want = from < 0   ? before
                                                 : add      ? before + put
                                                 : multiply ? before * put
                                                            : put;
                        const double slack = 8 * epsilon(tartan_i_sum_dtype(dtype));
                        expect_near(want, got.get(e), dtype, slack, "result");
                        const long double slope = z_grad.get(e);
                        expect_near(from < 0 || add ? slope
                                    : multiply      ? slope * put
                                                    : 0,
                                    of_x.get(e), dtype, 2 * slack, "x");
                        if (from >= 0)
                            expect_near(multiply ? slope * before : slope, of_y.get(from * size.n + c), dtype,
                                        2 * slack, "y");
                    }
                if (HasFailure()) return;
            }
}

// Items of segments of any length, in any order, added to x or alone: against a plain loop, and in the order of the list.
TEST_P(BackendIndices, SegmentSum) {
    struct Size {
        int64_t segments, count;
        std::vector<int64_t> item;
    };
    for (const int32_t dtype : kDtypes)
        for (const Size &size :
             {Size{40, 300, {}}, Size{9, 30, {4, 3}}, Size{1, 1, {70}}, Size{5, 0, {2}}, Size{0, 0, {2}},
              Size{70, 90, {16, 16}}, Size{6, 20, {2, 3, 2, 2}}, Size{4, 8, {0}}, Size{300, 200, {8}}})
            for (const double beta : {1.0, 0.0, -0.5}) {
                const int64_t base = (int64_t)below(random, 2),
                              entries = size.segments == 0 ? 0 : size.count - size.count / 5;
                std::vector<int64_t> x_shape = {size.segments}, shape = {size.count}, cuts,
                                     all((size_t)size.count);
                x_shape.insert(x_shape.end(), size.item.begin(), size.item.end());
                shape.insert(shape.end(), size.item.begin(), size.item.end());
                std::iota(all.begin(), all.end(), 0);
                std::shuffle(all.begin(), all.end(), random);
                for (int64_t s = 1; s < size.segments; s++)
                    cuts.push_back((int64_t)below(random, (size_t)entries + 1));
                std::sort(cuts.begin(), cuts.end());
                if (size.segments > 0) cuts.push_back(entries);
                const bool inside = below(random, 2) == 0;
                Dense x = numbers(dtype, x_shape, inside), z = x,
                      values = numbers(like_dtype(dtype, random), shape, false), order = indices({entries}),
                      ends = indices({size.segments}), z_grad = numbers(dtype, x_shape, false),
                      of_values = numbers(dtype, shape, true), of_x = numbers(dtype, x_shape, true);
                if (!inside) z = numbers(dtype, x_shape, true);
                for (int64_t i = 0; i < entries; i++) order.set(i, (double)(all[(size_t)i] + base));
                for (int64_t s = 0; s < size.segments; s++) ends.set(s, (double)cuts[(size_t)s]);
                Operand to = {context.get(), z}, old = {context.get(), x}, in = {context.get(), values},
                        list = {context.get(), order}, last = {context.get(), ends},
                        g = {context.get(), z_grad}, v_grad = {context.get(), of_values},
                        x_grad = {context.get(), of_x};
                const std::string options = "beta=" + std::to_string(beta) + " base=" + std::to_string(base);
                const tartan_status status = call(
                    context.get(), "segment_sum",
                    {inside ? to.array() : old.array(), in.array(), list.array(), last.array(), to.array()},
                    options);
                if (is_refused(status)) continue;
                ASSERT_OK(status);
                ASSERT_OK(
                    call(context.get(), "segment_sum_gradient",
                         {in.array(), list.array(), last.array(), g.array(), v_grad.array(), x_grad.array()},
                         options));
                const Dense got = to.got(), got_values = v_grad.got(), got_x = x_grad.got();
                ASSERT_TRUE(marks_intact(got) && marks_intact(got_values) && marks_intact(got_x));
                int64_t n = 1;
                for (const int64_t length : size.item) n *= length;
                std::vector<int64_t> segment((size_t)size.count, -1);
                for (int64_t s = 0, i = 0; s < size.segments; s++) {
                    const int64_t begin = i, end = cuts[(size_t)s];
                    for (; i < end; i++) segment[(size_t)all[(size_t)i]] = s;
                    for (int64_t c = 0; c < n; c++) {
                        long double want = beta * (long double)x.get(s * n + c), sizes = std::fabs(want);
                        for (int64_t k = begin; k < end; k++) {
                            const long double term = values.get(all[(size_t)k] * n + c);
                            want += term, sizes += std::fabs(term);
                        }
                        expect_near(want, got.get(s * n + c), dtype,
                                    (double)(sizes * (end - begin + 2)) * epsilon(tartan_i_sum_dtype(dtype)),
                                    "sum");
                        const bool alone = beta == 0 && end - begin == 1 && dtype == values.array.dtype;
                        if (alone) {
                            ASSERT_EQ(values.get(all[(size_t)begin] * n + c), got.get(s * n + c))
                                << "it is alone";
                        }
                        expect_near(beta * (long double)z_grad.get(s * n + c), got_x.get(s * n + c), dtype,
                                    1e-30, "x_grad");
                    }
                }
                for (int64_t v = 0; v < size.count; v++)
                    for (int64_t c = 0; c < n; c++)
                        ASSERT_EQ(segment[(size_t)v] < 0 ? 0 : z_grad.get(segment[(size_t)v] * n + c),
                                  got_values.get(v * n + c));
                if (HasFailure()) return;
            }
}

// What is wrong in a plan is refused before anything is written; nothing is added where a segment has no items.
TEST_P(BackendIndices, SegmentSumRefusals) {
    if (!on_host()) return;
    Dense x(TARTAN_F64, {2, 2}), values(TARTAN_F64, {3, 2}), order(TARTAN_I32, {3}), ends(TARTAN_I64, {2}),
        z(TARTAN_F64, {2, 2});
    z.fill(random, 5, 6);
    const std::vector<char> before = z.memory();
    const auto refused = [&](std::vector<int> list, std::vector<int> last, const std::string &text) {
        for (int64_t i = 0; i < 3; i++) order.set(i, list[(size_t)i]);
        for (int64_t i = 0; i < 2; i++) ends.set(i, last[(size_t)i]);
        EXPECT_FAILS(ARGUMENT, text,
                     call(context.get(), "segment_sum",
                          {&x.array, &values.array, &order.array, &ends.array, &z.array}));
        EXPECT_EQ(before, z.memory());
    };
    refused({0, 3, 1}, {1, 3}, "tartan_segment_sum: order[1] is 3, expected 0 .. 2");
    refused({0, -1, 1}, {1, 3}, "tartan_segment_sum: order[1] is -1, expected 0 .. 2");
    refused({0, 2, 1}, {2, 1},
            "tartan_segment_sum: ends[1] is 1, expected 2 .. 3: not less than the one before");
    refused({0, 2, 1}, {-1, 3}, "tartan_segment_sum: ends[0] is -1, expected 0 .. 3");
    refused({0, 2, 1}, {2, 4}, "tartan_segment_sum: ends[1] is 4, expected 2 .. 3");
    refused({0, 2, 1}, {0, 2}, "tartan_segment_sum: ends goes up to 2, expected 3, the length of order");
    for (int64_t i = 0; i < 3; i++) order.set(i, i == 2 ? 0 : i);
    ends.set(1, 3);
    Dense grad(TARTAN_F64, {3, 2});
    EXPECT_FAILS(ARGUMENT,
                 "tartan_segment_sum_gradient: order[2] is 0, as an earlier entry, expected each item once",
                 call(context.get(), "segment_sum_gradient",
                      {&values.array, &order.array, &ends.array, &z.array, &grad.array, nullptr}));
}

// On a GPU, where nobody checks indices before: an index out of its range gives NaN and has no gradient, and the last of equal
// indices counts. Host memory is refused.
TEST_P(BackendIndices, IndicesOutOfRange) {
    Dense x(TARTAN_F32, {2, 3}), places(TARTAN_I64, {2, 2}), y(TARTAN_F32, {2, 2}), map(TARTAN_I64, {2}),
        z(TARTAN_F32, {3, 2});
    x.fill(random, 1, 2);
    for (int64_t e = 0; e < 4; e++) places.set(e, e == 2 ? 3 : 1);
    map.set(0, 2), map.set(1, 2);
    Operand in = {context.get(), x}, by = {context.get(), places}, out = {context.get(), y},
            to = {context.get(), map}, rows = {context.get(), z}, old = {context.get(), z};
    const auto take = [&] {
        return call(context.get(), "take_along", {in.array(), by.array(), out.array()});
    };
    y.fill(random, 3, 4);
    Operand put = {context.get(), y};
    const auto scatter = [&] {
        return call(context.get(), "scatter_rows", {old.array(), to.array(), put.array(), rows.array()});
    };
    if (GetParam() != "cuda") {
        if (!on_host()) return; // the dummy computes as the CPU does
        EXPECT_FAILS(ARGUMENT, "tartan_take_along: indices[1, 0] is 3, expected 0 .. 2", take());
        EXPECT_FAILS(ARGUMENT,
                     "tartan_scatter_rows: indices[1] is 2, as indices[0], expected different indices",
                     scatter());
        return;
    }
    const tartan_status status = take();
    if (is_refused(status)) return;
    ASSERT_OK(status);
    const Dense got = out.got();
    EXPECT_EQ(x.get(1), got.get(0));
    EXPECT_TRUE(std::isnan(got.get(2)));
    EXPECT_EQ(x.get(4), got.get(3));
    ASSERT_OK(scatter());
    const Dense scattered = rows.got();
    EXPECT_EQ(z.get(0), scattered.get(0));
    EXPECT_EQ(y.get(2), scattered.get(4));
    EXPECT_EQ(y.get(3), scattered.get(5));
}

TEST_P(BackendIndices, GradientsOfProductsNeedBothFactors) {
    if (!on_host()) return;
    Dense x(TARTAN_F32, {2, 300}), y = x;
    Dense map(TARTAN_I64, {2}), z_grad(TARTAN_F32, {3, 300}), x_grad = z_grad;
    map.set(1, 1);
    EXPECT_FAILS(
        ARGUMENT, "y is NULL, expected the y of the operation, which x_grad needs with combine=multiply",
        call(cpu(), "scatter_rows_gradient",
             {&z_grad.array, &map.array, nullptr, nullptr, nullptr, &x_grad.array}, "combine=multiply"));
    EXPECT_FAILS(ARGUMENT,
                 "x is NULL, expected the x of the operation, which y_grad needs with combine=multiply",
                 call(cpu(), "scatter_rows_gradient",
                      {&z_grad.array, &map.array, &x.array, nullptr, &y.array, nullptr}, "combine=multiply"));
}

} // namespace
