// SPDX-License-Identifier: Apache-2.0
// The largest numbers of lines on every backend, against what a stable sort and plain loops say.
#include "selections.h"

#include <algorithm>
#include <numeric>

namespace {

using namespace tartan_test;

class BackendSelection : public WithIndices {};
INSTANTIATE_TEST_SUITE_P(Each, BackendSelection, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

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
        for (const std::vector<int64_t> &shape : kLineShapes)
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
        for (const std::vector<int64_t> &shape : kLineShapes)
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
}

} // namespace
