// SPDX-License-Identifier: Apache-2.0
// The largest numbers of lines, and elements and rows by their indices, on every backend, against what a stable sort and plain loops say.
#include "called.h"

#include <algorithm>
#include <numeric>

namespace {

using namespace tartan_test;

class BackendSelection : public OnBackend {
  protected:
    std::mt19937_64 random{11};

    Dense numbers(int32_t dtype, const std::vector<int64_t> &shape, bool written) {
        const Style other = (Style)below(random, written ? kRepeated : kStyles);
        Dense made(dtype, shape, pick<Style>(random, {kRows, kColumns, other}));
        made.fill(random, -4, 4);
        return made;
    }
    Dense indices(const std::vector<int64_t> &shape) {
        return Dense(pick<int32_t>(random, {TARTAN_I64, TARTAN_I32}), shape, (Style)below(random, kRepeated));
    }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendSelection, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

const std::vector<std::vector<int64_t>> kShapes = {{1},       {3, 5},    {4, 31},    {2, 3, 33}, {7, 1},
                                                   {300, 7},  {40, 64},  {2, 1000},  {70, 900},  {3, 1025},
                                                   {2, 4099}, {2, 9000}, {3, 20000}, {1, 50257}, {0, 4}};

// What lines hold: as they are, few different numbers, ascending, descending, all equal, and some that are no numbers.
enum Kind { kAny, kFew, kUp, kDown, kEqual, kSpecial, kKinds };

void make(Dense &x, Kind kind, std::mt19937_64 &random) {
    const int64_t n = x.elements() == 0 ? 1 : x.array.shape[x.array.ndim - 1];
    for (int64_t e = 0; e < x.elements(); e++) {
        const int64_t i = e % n;
        const double special[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0};
        switch (kind) {
        case kFew:
            x.set(e, (double)below(random, 4) - 1);
            break;
        case kUp:
            x.set(e, (double)i / (double)n - 0.25);
            break;
        case kDown:
            x.set(e, 0.75 - (double)i / (double)n);
            break;
        case kEqual:
            x.set(e, 1.5);
            break;
        case kSpecial:
            if (random() % 3 == 0) x.set(e, special[random() % 5]);
            break;
        default:
            break;
        }
    }
}

// Places of a line, the largest number first.
std::vector<int64_t> order_of(int64_t n, const std::function<double(int64_t)> &x) {
    std::vector<int64_t> all((size_t)n);
    std::iota(all.begin(), all.end(), 0);
    std::stable_sort(all.begin(), all.end(), [&](int64_t a, int64_t b) {
        return std::isnan(x(a)) ? !std::isnan(x(b)) : x(a) > x(b);
    });
    return all;
}

std::vector<int64_t> ks_of(int64_t n) {
    std::vector<int64_t> all;
    for (const int64_t k : {(int64_t)1, (int64_t)2, (int64_t)50, (int64_t)300, (int64_t)1500, (int64_t)5000,
                            (int64_t)18000, n / 2, n})
        if (k >= 1 && k <= n && std::find(all.begin(), all.end(), k) == all.end()) all.push_back(k);
    return all;
}

// f(dtype, shape, n, k, kind of numbers), a share of all there are.
template <typename F> void each_selection(std::mt19937_64 &random, F f) {
    for (const int32_t dtype : kDtypes)
        for (const std::vector<int64_t> &shape : kShapes)
            for (const int64_t k : ks_of(shape.back())) {
                if (shape.back() > 10000 && k > 1 && k != 5000 && k != 18000 &&
                    k != (shape.back() < 50000 ? 300 : 50))
                    continue; // sorting takes long
                SCOPED_TRACE(::testing::Message() << tartan_dtype_name(dtype) << ", " << shape.size()
                                                  << "-d, n " << shape.back() << ", k " << k);
                const Kind kind = shape.back() > 100 && random() % 2 ? kAny : (Kind)below(random, kKinds);
                f(dtype, shape, shape.back(), k, kind);
                if (::testing::Test::HasFailure()) return;
            }
}

bool same(double a, double b) {
    return a == b || (std::isnan(a) && std::isnan(b));
}

TEST_P(BackendSelection, TopK) {
    each_selection(random, [&](int32_t dtype, std::vector<int64_t> shape, int64_t n, int64_t k, Kind kind) {
        Dense x = numbers(dtype, shape, false);
        make(x, kind, random);
        shape.back() = k;
        const int64_t base = (int64_t)below(random, 2);
        const int32_t wide = tartan_i_sum_dtype(dtype);
        Dense values = numbers(random() % 2 ? dtype : wide, shape, true), places = indices(shape);
        Operand in = {context.get(), x}, out = {context.get(), values}, at = {context.get(), places};
        const tartan_status status = call(context.get(), "top_k", {in.array(), out.array(), at.array()},
                                          "k=" + std::to_string(k) + " base=" + std::to_string(base));
        if (is_refused(status)) return;
        ASSERT_OK(status);
        const Dense got = out.got(), where = at.got();
        ASSERT_TRUE(marks_intact(got) && marks_intact(where));
        for (int64_t line = 0; line < x.elements() / n; line++) {
            const auto order = order_of(n, [&](int64_t i) { return x.get(line * n + i); });
            for (int64_t j = 0; j < k; j++) {
                ASSERT_EQ(order[(size_t)j] + base, (int64_t)where.get(line * k + j))
                    << "line " << line << ", " << j;
                ASSERT_TRUE(same(x.get(line * n + order[(size_t)j]), got.get(line * k + j)));
            }
        }
    });
}

TEST_P(BackendSelection, TopKSoftmax) {
    each_selection(
        random, [&](int32_t dtype, const std::vector<int64_t> &shape, int64_t n, int64_t k, Kind kind) {
            Dense x = numbers(dtype, shape, false), y = numbers(dtype, shape, true);
            make(x, kind == kSpecial ? kAny : kind, random);
            const int masked = (int)below(random, 3);
            Dense mask(TARTAN_U8, masked == 1 ? std::vector<int64_t>{n} : shape);
            mask.fill(random, 0, 2);
            if (masked == 2 && x.elements() > 0) // nothing counts in the first line
                for (int64_t i = 0; i < n; i++) mask.set(i, 0);
            const double scale = pick(random, {1.0, 0.5, -0.5});
            Operand in = {context.get(), x}, by = {context.get(), mask}, out = {context.get(), y};
            const tartan_status status = call(context.get(), "top_k_softmax",
                                              {in.array(), masked == 0 ? nullptr : by.array(), out.array()},
                                              "k=" + std::to_string(k) + " scale=" + std::to_string(scale));
            if (is_refused(status)) return;
            ASSERT_OK(status);
            const Dense got = out.got();
            ASSERT_TRUE(marks_intact(got));
            for (int64_t line = 0; line < x.elements() / n; line++) {
                const auto number = [&](int64_t i) { return x.get(line * n + i); };
                std::vector<long double> want((size_t)n);
                long double sum = 0, most = -INFINITY;
                std::vector<int64_t> chosen;
                for (const int64_t i : order_of(n, number))
                    if ((int64_t)chosen.size() < k &&
                        (masked == 0 || mask.get(masked == 1 ? i : line * n + i) != 0))
                        chosen.push_back(i);
                for (const int64_t i : chosen) most = std::max(most, (long double)(scale * number(i)));
                for (const int64_t i : chosen)
                    sum += want[(size_t)i] = std::exp((long double)scale * number(i) - most);
                for (int64_t i = 0; i < n; i++) {
                    const long double w = sum == 0 ? 0 : want[(size_t)i] / sum;
                    expect_near(w, got.get(line * n + i), dtype,
                                64 * epsilon(tartan_i_sum_dtype(dtype)) * (double)w + 1e-38, "weight");
                    ASSERT_TRUE(w != 0 || got.get(line * n + i) == 0);
                }
            }
        });
}

// And its gradient, of the same result.
TEST_P(BackendSelection, RectifiedTopK) {
    each_selection(
        random, [&](int32_t dtype, const std::vector<int64_t> &shape, int64_t n, int64_t k, Kind kind) {
            const bool rebase = random() % 3 != 0;
            const int64_t base = (int64_t)below(random, 2);
            const std::vector<int64_t> of_lines(shape.begin(), shape.end() - 1);
            Dense x = numbers(dtype, shape, false), y = numbers(dtype, shape, true), last = indices(of_lines),
                  y_grad = numbers(like_dtype(dtype, random), shape, false),
                  x_grad = numbers(like_dtype(dtype, random), shape, true);
            make(x, kind == kSpecial ? kAny : kind, random);
            Operand in = {context.get(), x}, out = {context.get(), y}, at = {context.get(), last},
                    g = {context.get(), y_grad}, back = {context.get(), x_grad};
            const std::string base_text = "base=" + std::to_string(base);
            const tartan_status status =
                call(context.get(), "rectified_top_k", {in.array(), out.array(), at.array()},
                     "k=" + std::to_string(k) + " rebase=" + std::to_string(rebase) + " " + base_text);
            if (is_refused(status)) return;
            ASSERT_OK(status);
            ASSERT_OK(call(context.get(), "rectified_top_k_gradient",
                           {out.array(), at.array(), g.array(), back.array()}, base_text));
            const Dense got = out.got(), where = at.got(), slopes = back.got();
            ASSERT_TRUE(marks_intact(got) && marks_intact(where) && marks_intact(slopes));
            const double eps = epsilon(tartan_i_sum_dtype(dtype));
            for (int64_t line = 0; line < x.elements() / n; line++) {
                const auto number = [&](int64_t i) { return x.get(line * n + i); };
                const auto order = order_of(n, number);
                const double kth = number(order[(size_t)k - 1]), less = rebase && kth > 0 ? kth : 0;
                ASSERT_EQ(less > 0 ? order[(size_t)k - 1] + base : base - 1, (int64_t)where.get(line));
                std::vector<long double> want((size_t)n), slope = want;
                long double sum = 0, size = 0;
                for (int64_t j = 0; j < k; j++)
                    want[(size_t)order[(size_t)j]] = std::max(number(order[(size_t)j]) - less, 0.0);
                for (int64_t i = 0; i < n; i++) {
                    expect_near(want[(size_t)i], got.get(line * n + i), dtype, 4 * eps, "result");
                    if (got.get(line * n + i) > 0) slope[(size_t)i] = y_grad.get(line * n + i);
                    sum += slope[(size_t)i], size += std::fabs(slope[(size_t)i]);
                }
                if (less > 0) slope[(size_t)order[(size_t)k - 1]] -= sum;
                for (int64_t i = 0; i < n; i++)
                    expect_near(slope[(size_t)i], slopes.get(line * n + i), x_grad.array.dtype,
                                4 * eps * (double)(1 + size), "gradient");
            }
        });
}

TEST_P(BackendSelection, SparseRelu) {
    for (const int32_t dtype : kDtypes)
        for (const std::vector<int64_t> &shape : kShapes)
            for (const double alpha : {1.0, 0.0, -0.5}) {
                const int64_t n = shape.back();
                const int32_t sums = tartan_i_sum_dtype(dtype);
                std::vector<int64_t> of_lines = shape;
                of_lines.back() = 2;
                Dense x = numbers(dtype, shape, false), y = numbers(dtype, shape, true),
                      stats(sums, of_lines), y_grad = numbers(dtype, shape, false),
                      x_grad = numbers(dtype, shape, true);
                if (random() % 4 == 0) make(x, kEqual, random);
                Operand in = {context.get(), x}, out = {context.get(), y}, kept = {context.get(), stats},
                        g = {context.get(), y_grad}, back = {context.get(), x_grad};
                const std::string options = "alpha=" + std::to_string(alpha);
                const tartan_status status =
                    call(context.get(), "sparse_relu", {in.array(), out.array(), kept.array()}, options);
                if (is_refused(status)) continue;
                ASSERT_OK(status);
                ASSERT_OK(call(context.get(), "sparse_relu_gradient",
                               {in.array(), kept.array(), g.array(), back.array()}, options));
                const Dense got = out.got(), s = kept.got(), slopes = back.got();
                const double allowed = 64 * epsilon(sums) * (4 + std::sqrt((double)n));
                for (int64_t line = 0; line < x.elements() / n; line++) {
                    long double mean = 0, square = 0, sum = 0;
                    for (int64_t i = 0; i < n; i++) mean += (long double)x.get(line * n + i) / n;
                    for (int64_t i = 0; i < n; i++)
                        square += ((long double)x.get(line * n + i) - mean) *
                                  ((long double)x.get(line * n + i) - mean);
                    const long double deviation = std::sqrt(square / n), cut = mean + alpha * deviation;
                    expect_near(mean, s.get(2 * line), sums, allowed, "mean");
                    expect_near(deviation, s.get(2 * line + 1), sums, allowed, "deviation");
                    // Numbers as near to the cut as sums may be wrong count as above it if the result says so.
                    const double own_cut = s.get(2 * line) + alpha * s.get(2 * line + 1);
                    const auto above = [&](int64_t i) {
                        return sums == TARTAN_F64 ? x.get(line * n + i) > own_cut
                                                  : (float)x.get(line * n + i) > (float)own_cut;
                    };
                    for (int64_t i = 0; i < n; i++) {
                        expect_near(std::max<long double>(x.get(line * n + i) - cut, 0),
                                    got.get(line * n + i), dtype, allowed, "result");
                        if (above(i)) sum += y_grad.get(line * n + i);
                    }
                    for (int64_t i = 0; i < n; i++) {
                        const double own = s.get(2 * line + 1);
                        const long double part = own == 0 ? 0 : alpha * (x.get(line * n + i) - mean) / own;
                        const long double want =
                            (above(i) ? y_grad.get(line * n + i) : 0) - sum / n * (1 + part);
                        expect_near(want, slopes.get(line * n + i), dtype, 4 * allowed, "gradient");
                    }
                }
                if (HasFailure()) return;
            }
}

TEST_P(BackendSelection, ReduceMax) {
    each_selection(
        random, [&](int32_t dtype, const std::vector<int64_t> &shape, int64_t n, int64_t k, Kind kind) {
            if (k != 1) return;
            const int64_t base = (int64_t)below(random, 2);
            const std::vector<int64_t> of_lines(shape.begin(), shape.end() - 1);
            Dense x = numbers(dtype, shape, false), y = numbers(dtype, of_lines, true),
                  places = indices(of_lines), y_grad = numbers(like_dtype(dtype, random), of_lines, false),
                  x_grad = numbers(like_dtype(dtype, random), shape, true);
            make(x, kind, random);
            Operand in = {context.get(), x}, out = {context.get(), y}, at = {context.get(), places},
                    g = {context.get(), y_grad}, back = {context.get(), x_grad};
            const std::string options = "base=" + std::to_string(base);
            const tartan_status status =
                call(context.get(), "reduce_max", {in.array(), out.array(), at.array()}, options);
            if (is_refused(status)) return;
            ASSERT_OK(status);
            ASSERT_OK(call(context.get(), "reduce_max_gradient",
                           {in.array(), at.array(), g.array(), back.array()}, options));
            const Dense got = out.got(), where = at.got(), slopes = back.got();
            ASSERT_TRUE(marks_intact(got) && marks_intact(where) && marks_intact(slopes));
            Dense rounded(x_grad.array.dtype, {1});
            for (int64_t line = 0; line < x.elements() / n; line++) {
                const int64_t first = order_of(n, [&](int64_t i) { return x.get(line * n + i); })[0];
                ASSERT_EQ(first + base, (int64_t)where.get(line));
                ASSERT_TRUE(same(x.get(line * n + first), got.get(line)));
                rounded.set(0, y_grad.get(line));
                for (int64_t i = 0; i < n; i++)
                    ASSERT_EQ(i == first ? rounded.get(0) : 0, slopes.get(line * n + i)) << i;
            }
        });
}

TEST_P(BackendSelection, TakeAlong) {
    for (const int32_t dtype : kDtypes)
        for (const std::vector<int64_t> &shape : kShapes)
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
TEST_P(BackendSelection, ScatterRows) {
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
TEST_P(BackendSelection, SegmentSum) {
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
TEST_P(BackendSelection, SegmentSumRefusals) {
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

// Sums of more arrays than are read in one pass, of any strides and 16-bit dtypes, are rounded once.
TEST_P(BackendSelection, AddN) {
    for (const int32_t dtype : kDtypes)
        for (const int64_t count : {1, 2, 7, 8, 20})
            for (const std::vector<int64_t> &shape : kShapes) {
                if (shape.back() > 5000) continue;
                std::vector<Operand> all;
                std::vector<tartan_array> arrays;
                for (int64_t i = 0; i < count; i++)
                    all.emplace_back(context.get(),
                                     numbers(i == 0 ? dtype : like_dtype(dtype, random), shape, false));
                for (Operand &one : all) arrays.push_back(*one.array());
                Dense y = numbers(dtype, shape, true);
                Operand out = {context.get(), y};
                const tartan_status status = call(context.get(), "add_n", {arrays.data(), out.array()},
                                                  "count=" + std::to_string(count));
                if (is_refused(status)) continue;
                ASSERT_OK(status);
                const Dense got = out.got();
                ASSERT_TRUE(marks_intact(got));
                for (int64_t e = 0; e < y.elements(); e++) {
                    long double want = 0;
                    for (const Operand &one : all) want += one.dense.get(e);
                    expect_near(want, got.get(e), dtype,
                                4 * (double)count * epsilon(tartan_i_sum_dtype(dtype)) * (double)count,
                                "sum");
                }
                if (HasFailure()) return;
            }
}

// On a GPU, where nobody checks indices before: an index out of its range gives NaN and has no gradient, and the last of equal
// indices counts. Host memory is refused.
TEST_P(BackendSelection, IndicesOutOfRange) {
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

TEST_P(BackendSelection, RefuseWhatDoesNotFit) {
    if (!on_host()) return;
    Dense x(TARTAN_F32, {2, 300}), few(TARTAN_U8, {2, 1}), values(TARTAN_F32, {2, 1}), one(TARTAN_F32, {2}),
        bytes(TARTAN_U8, {2}), empty(TARTAN_F32, {2, 0}), y = x;
    EXPECT_FAILS(ARGUMENT, "tartan_top_k: k is 301, expected at most 300, for x of shape [2, 300]",
                 call(cpu(), "top_k", {&x.array, &values.array, &few.array}, "k=301"));
    EXPECT_FAILS(DTYPE, "tartan_top_k: indices is of uint8, expected int32 or int64, for indices up to 299",
                 call(cpu(), "top_k", {&x.array, &values.array, &few.array}));
    EXPECT_FAILS(ARGUMENT, "k is 301, expected at most 300",
                 call(cpu(), "top_k_softmax", {&x.array, nullptr, &y.array}, "k=301"));
    EXPECT_FAILS(ARGUMENT, "k is 301, expected at most 300",
                 call(cpu(), "rectified_top_k", {&x.array, &y.array, nullptr}, "k=301"));
    EXPECT_FAILS(DTYPE, "last is of uint8, expected int32 or int64, for indices up to 300",
                 call(cpu(), "rectified_top_k", {&x.array, &y.array, &bytes.array}, "base=1"));
    EXPECT_FAILS(DTYPE, "indices is of uint8, expected int32 or int64, for indices up to 299",
                 call(cpu(), "reduce_max", {&x.array, &one.array, &bytes.array}));
    EXPECT_FAILS(SHAPE, "x has shape [2, 0], expected at least one number in a line",
                 call(cpu(), "reduce_max", {&empty.array, &one.array, nullptr}));
    tartan_array arrays[] = {x.array, one.array};
    EXPECT_FAILS(SHAPE, "tartan_add_n: array 2 of x has shape [2], expected [2, 300] (as the first)",
                 call(cpu(), "add_n", {arrays, &y.array}, "count=2"));
    Dense wide(TARTAN_F64, {2, 300});
    arrays[1] = wide.array;
    EXPECT_FAILS(
        DTYPE,
        "tartan_add_n: array 2 of x is of float64, expected float32, float16 or bfloat16 (the first is of "
        "float32)",
        call(cpu(), "add_n", {arrays, &y.array}, "count=2"));
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
