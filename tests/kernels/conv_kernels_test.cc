// SPDX-License-Identifier: Apache-2.0
// The kernels of convolutions: each instruction set gives the chains of fused multiply-adds that their definitions say, and writes
// nothing else.
#include "tables.h"

extern "C" {
#include "core/dtype.h"
}

#include <algorithm>
#include <cmath>
#include <cstring>

namespace {

using tartan_test::below;
using tartan_test::fill;
using tartan_test::Guarded;
using tartan_test::rounds;
using tartan_test::Tables;

class ConvKernels : public ::testing::TestWithParam<tartan_i_cpu_features> {};
INSTANTIATE_TEST_SUITE_P(Each, ConvKernels, ::testing::ValuesIn(tartan_test::feature_sets()),
                         [](const auto &set) { return tartan_test::features_name(set.param); });

// The shapes of a strip, its factors and sums, as both kernels want them.
template <typename T> struct Factors {
    int64_t rows, vectors, depth, a_col, a_row, b_row, sums_row;
    std::vector<T> a, b;
    std::vector<tartan_i_pair> pairs;
    Factors(int64_t r, int64_t v, int64_t d, int64_t ac, int64_t ar, int64_t lanes, std::mt19937_64 &random)
        : rows(r), vectors(v), depth(d), a_col(ac), a_row(ar) {
        b_row = vectors * lanes + (int64_t)below(random, 9);
        sums_row = vectors * lanes + (int64_t)below(random, 3) * 3;
        const size_t a_size = (size_t)((rows + 1) * a_row + depth * a_col),
                     b_size = (size_t)(depth * b_row + 2 * lanes);
        a.resize(4 * a_size), b.resize(4 * b_size);
        fill(a.data(), a.size(), random);
        fill(b.data(), b.size(), random);
        pairs.resize(below(random, 5));
        for (auto &p : pairs) {
            p.a = a.data() + below(random, 3) * a_size + below(random, 4);
            p.b = b.data() + below(random, 3) * b_size + below(random, 4);
            p.k = (int64_t)below(random, (size_t)depth + 1);
        }
    }
};

// The sum in row i and lane j of vector v that starts with `sum`, by the definition.
template <typename T> T chain(const Factors<T> &f, T sum, int64_t i, int64_t at) {
    for (const auto &p : f.pairs)
        for (int64_t k = 0; k < p.k; k++)
            sum = std::fma(static_cast<const T *>(p.a)[i * f.a_row + k * f.a_col],
                           static_cast<const T *>(p.b)[k * f.b_row + at], sum);
    return sum;
}

template <typename T, typename Strip, typename Kernel>
void check_pairs(const Factors<T> &f, Strip strip, Kernel kernel, int64_t lanes, const int64_t *from,
                 const int64_t *to, std::mt19937_64 &random) {
    const size_t n = (size_t)((f.rows - 1) * f.sums_row + f.vectors * lanes), shift = below(random, 16);
    Guarded<T> sums(n, shift);
    fill(sums.data(), n, random);
    std::vector<T> want(sums.data(), sums.data() + n);
    strip.sums = sums.data(), strip.sums_row = f.sums_row, strip.first = random() % 2;
    const size_t half = f.pairs.empty() ? 0 : below(random, f.pairs.size() + 1);
    kernel(&strip, f.pairs.data(), (int64_t)half); // a list cut in two gives the same bits
    const bool first = strip.first;
    strip.first = false;
    kernel(&strip, f.pairs.data() + half, (int64_t)(f.pairs.size() - half));
    for (int64_t i = 0; i < f.rows; i++)
        for (int64_t v = 0; v < f.vectors; v++)
            for (int64_t j = 0; j < lanes; j++) {
                T &sum = want[(size_t)(i * f.sums_row + to[v] + j)];
                sum = chain(f, first ? T(0) : sum, i, from[v] + j);
            }
    EXPECT_SAME_BITS(n, want.data(), sums.data());
    EXPECT_TRUE(sums.intact());
}

// How often each shape of a strip is tried, so that there are more than 1000 products of each kernel.
constexpr int kTimes = 40;

template <typename T>
void check_spread(const tartan_i_kernels &k, int64_t rows, int64_t vectors, std::mt19937_64 &random) {
    const int64_t lanes = k.lanes;
    const Factors<T> f(rows, vectors, 21, rows + 3, 1, lanes, random);
    tartan_i_spread s = {};
    s.rows = rows, s.vectors = vectors, s.a_col = f.a_col, s.b_row = f.b_row;
    for (int64_t v = 0; v < vectors; v++) { // vectors may overlap, their sums may not
        s.from[v] = (int64_t)below(random, (size_t)(f.b_row - lanes + 1));
        s.to[v] = (vectors - 1 - v) * lanes;
    }
    check_pairs<T>(f, s, k.spread, lanes, s.from, s.to, random);
    // A strip may be a part of the rows.
    const Factors<T> more(rows, vectors, 5, rows + 7, 1, lanes, random);
    auto pairs = more;
    for (auto &p : pairs.pairs) p.a = static_cast<const T *>(p.a) - 2;
    s.row = 2, s.a_col = more.a_col, s.b_row = more.b_row;
    for (int64_t v = 0; v < vectors; v++) s.from[v] = s.to[v] = v * lanes;
    const auto kernel = [&](const tartan_i_spread *strip, const tartan_i_pair *p, int64_t n) {
        k.spread(strip, pairs.pairs.data() + (p - more.pairs.data()), n);
    };
    if (!more.pairs.empty()) check_pairs<T>(more, s, kernel, lanes, s.from, s.to, random);
}

TEST_P(ConvKernels, SpreadStripIsOneChainOfFusedProducts) {
    std::mt19937_64 random(1);
    const auto each = [&](const tartan_i_kernels &k, auto check) {
        for (int64_t rows = 1; rows <= TARTAN_I_STRIP_ROWS; rows++) {
            ASSERT_GE(tartan_i_spread_most(&k, rows), 1);
            for (int64_t vectors = 1; vectors <= tartan_i_spread_most(&k, rows); vectors++) {
                SCOPED_TRACE(::testing::Message() << rows << " x " << vectors);
                for (int i = 0; i < rounds(kTimes); i++) check(k, rows, vectors, random);
            }
        }
        EXPECT_GE(k.spread_rows, 1);
        EXPECT_LE(k.spread_rows, TARTAN_I_STRIP_ROWS);
    };
    each(Tables<float>(GetParam()).best, check_spread<float>);
    each(Tables<double>(GetParam()).best, check_spread<double>);
}

template <typename T>
void check_packed(const tartan_i_kernels &k, int64_t rows, int64_t vectors, std::mt19937_64 &random) {
    const int64_t lanes = k.lanes;
    for (int64_t row : {0, 3}) {
        Factors<T> f(rows, vectors, lanes, 1, lanes, lanes, random);
        tartan_i_packed s = {};
        s.rows = rows, s.vectors = vectors, s.b_row = f.b_row, s.row = row, s.b_first = row;
        int64_t from[TARTAN_I_PACKED_VECTORS], to[TARTAN_I_PACKED_VECTORS];
        for (int64_t v = 0; v < vectors; v++) from[v] = to[v] = v * lanes;
        const auto kernel = [&](const tartan_i_packed *strip, const tartan_i_pair *p, int64_t n) {
            std::vector<tartan_i_pair> moved(p, p + n); // what `row` and `b_first` add, the factors lack
            for (auto &m : moved) {
                m.a = static_cast<const T *>(m.a) - row * lanes;
                m.b = static_cast<const T *>(m.b) - row;
            }
            k.packed(strip, moved.data(), n);
        };
        check_pairs<T>(f, s, kernel, lanes, from, to, random);
    }
}

TEST_P(ConvKernels, PackedStripIsOneChainOfFusedProducts) {
    std::mt19937_64 random(1);
    const auto each = [&](const tartan_i_kernels &k, auto check) {
        for (int64_t vectors = 1; vectors <= TARTAN_I_PACKED_VECTORS; vectors++) {
            ASSERT_GE(tartan_i_packed_most(&k, vectors), 1);
            for (int64_t rows = 1; rows <= tartan_i_packed_most(&k, vectors); rows++) {
                SCOPED_TRACE(::testing::Message() << rows << " x " << vectors);
                for (int i = 0; i < rounds(kTimes); i++) check(k, rows, vectors, random);
            }
        }
    };
    each(Tables<float>(GetParam()).best, check_packed<float>);
    each(Tables<double>(GetParam()).best, check_packed<double>);
}

/* Elements of x and results have 16 bits or are reals. */
template <typename T>
void check_tap_products(const tartan_i_kernels &k, size_t n, size_t count, std::mt19937_64 &random) {
    const int32_t dtypes[] = {k.dtype, TARTAN_F16, TARTAN_BF16};
    const size_t kinds = k.dtype == TARTAN_F32 ? 3 : 1;
    const int32_t in = dtypes[below(random, kinds)], out_dtype = dtypes[below(random, kinds)];
    const size_t nrows = below(random, 4), width = 1 + below(random, 24), stride = 1 + below(random, 2),
                 step = n + below(random, 4), out_row = n + below(random, 4),
                 weights_step = n + below(random, 3);
    std::vector<T> weights(14 * weights_step + n + 1), reals(width * step * (nrows + 1) + n);
    fill(weights.data(), weights.size(), random);
    fill(reals.data(), reals.size(), random);
    const size_t in_bytes = (size_t)tartan_dtype_bytes(in), out_bytes = (size_t)tartan_dtype_bytes(out_dtype);
    std::vector<char> x(reals.size() * in_bytes), zeros(n * in_bytes + 1);
    for (size_t i = 0; i < reals.size(); i++) tartan_i_store(x.data(), in, (int64_t)i, (double)reals[i]);
    std::vector<tartan_i_tap_row> rows(nrows);
    for (size_t r = 0; r < nrows; r++)
        rows[r] = {weights.data() + below(random, 2), x.data() + r * width * step * in_bytes,
                   (int64_t)(below(random, 5) == 0 ? 0 : width), (int64_t)below(random, 8) - 6,
                   (int64_t)(1 + below(random, 12))};
    Guarded<char> out(count * out_row * out_bytes, below(random, 4) * out_bytes);
    std::vector<char> want(out.data(), out.data() + count * out_row * out_bytes);
    const tartan_i_tap_line line = {
        (int64_t)n, (int64_t)count, (int64_t)weights_step, (int64_t)step, (int64_t)stride, zeros.data(), in,
        out_dtype,  out.data(),     (int64_t)out_row};
    k.tap_products(&line, rows.data(), (int64_t)nrows);
    for (size_t q = 0; q < count; q++)
        for (size_t i = 0; i < n; i++) {
            T sum = 0;
            for (const tartan_i_tap_row &row : rows)
                for (int64_t t = 0; t < row.taps; t++) {
                    const int64_t at = row.first + ((int64_t)q + t) * (int64_t)stride;
                    const double element = at < 0 || at >= row.width
                                               ? 0
                                               : tartan_i_load(row.row, in, at * (int64_t)step + (int64_t)i);
                    sum = std::fma(static_cast<const T *>(row.weights)[(size_t)t * weights_step + i],
                                   (T)element, sum);
                }
            tartan_i_store(want.data(), out_dtype, (int64_t)(q * out_row + i), (double)sum);
        }
    EXPECT_TRUE(std::equal(want.begin(), want.end(), (const char *)out.data()))
        << n << " channels, " << count << " positions";
    EXPECT_TRUE(out.intact());
}

TEST_P(ConvKernels, TapProductsAreChainsOfFusedProducts) {
    std::mt19937_64 random(3);
    for (size_t i = 0; i < rounds((size_t)1000); i++) {
        check_tap_products<float>(Tables<float>(GetParam()).best, i % 150, i % 27, random);
        check_tap_products<double>(Tables<double>(GetParam()).best, i % 150, i % 27, random);
    }
}

/* A part of an image of one channel with zeros around it, and taps that go on in the direction of rows and columns, or against it. */
template <typename T> void check_planes(const tartan_i_kernels &k, std::mt19937_64 &random) {
    const int32_t dtypes[] = {k.dtype, TARTAN_F16, TARTAN_BF16};
    const size_t kinds = k.dtype == TARTAN_F32 ? 3 : 1;
    tartan_i_plane s = {};
    s.in_dtype = dtypes[below(random, kinds)], s.out_dtype = dtypes[below(random, kinds)];
    s.rows = 1 + (int64_t)below(random, 23), s.cols = 1 + (int64_t)below(random, 70);
    s.tap_rows = 1 + (int64_t)below(random, 8), s.tap_cols = 1 + (int64_t)below(random, 8);
    s.box_rows = s.rows + s.tap_rows - 1, s.box_cols = s.cols + s.tap_cols - 1;
    s.row_begin = (int64_t)below(random, (size_t)s.box_rows + 1),
    s.col_begin = (int64_t)below(random, (size_t)s.box_cols + 1);
    s.row_end = s.row_begin + (int64_t)below(random, (size_t)(s.box_rows - s.row_begin) + 1);
    s.col_end = s.col_begin + (int64_t)below(random, (size_t)(s.box_cols - s.col_begin) + 1);
    const int64_t n = s.col_end - s.col_begin, all = s.box_rows * s.box_cols;
    s.x_row = n + (int64_t)below(random, 4), s.out_row = s.cols + (int64_t)below(random, 4);
    s.scaled = below(random, 2) == 0, s.bias_first = below(random, 2) == 0, s.relu = below(random, 2) == 0;
    s.gain = 1.5, s.bias = -0.25;
    const size_t in_bytes = (size_t)tartan_dtype_bytes(s.in_dtype),
                 out_bytes = (size_t)tartan_dtype_bytes(s.out_dtype);
    const int64_t there = s.row_end > s.row_begin && n > 0 ? (s.row_end - s.row_begin - 1) * s.x_row + n : 0;
    std::vector<T> reals((size_t)there + 1), weights((size_t)(s.tap_rows * s.tap_cols));
    fill(reals.data(), reals.size(), random);
    fill(weights.data(), weights.size(), random);
    std::vector<char> x((size_t)there * in_bytes); // nothing behind it may be read
    for (int64_t i = 0; i < there; i++) tartan_i_store(x.data(), s.in_dtype, i, (double)reals[(size_t)i]);
    Guarded<T> box((size_t)all + TARTAN_I_MAX_LANES, below(random, 16));
    s.x = x.data(), s.box = box.data(), s.weights = weights.data();
    k.plane_pack(&s);
    for (int64_t r = 0; r < s.box_rows; r++)
        for (int64_t c = 0; c < s.box_cols; c++) {
            const bool inside = r >= s.row_begin && r < s.row_end && c >= s.col_begin && c < s.col_end;
            const double want =
                inside ? tartan_i_load(x.data(), s.in_dtype, (r - s.row_begin) * s.x_row + c - s.col_begin)
                       : 0;
            ASSERT_EQ((T)want, box.data()[r * s.box_cols + c]) << r << ", " << c;
        }
    EXPECT_TRUE(box.intact());
    const bool up = below(random, 2) == 0, left = below(random, 2) == 0;
    const int64_t last = (up ? s.box_rows - 1 : 0) * s.box_cols + (left ? s.tap_cols - 1 : 0);
    s.step = up ? -s.box_cols : s.box_cols, s.col_step = left ? -1 : 1, s.first = box.data() + last;
    Guarded<char> out((size_t)(s.rows * s.out_row) * out_bytes, below(random, 4) * out_bytes);
    std::vector<char> want(out.data(), out.data() + (size_t)(s.rows * s.out_row) * out_bytes);
    s.out = out.data();
    k.plane_products(&s);
    for (int64_t r = 0; r < s.rows; r++)
        for (int64_t c = 0; c < s.cols; c++) {
            T sum = 0;
            for (int64_t i = 0; i < s.tap_rows; i++)
                for (int64_t j = 0; j < s.tap_cols; j++)
                    sum = std::fma(weights[(size_t)(i * s.tap_cols + j)],
                                   box.data()[last + (r + i) * s.step + c + j * s.col_step], sum);
            if (s.scaled) {
                const T shifted = sum + (T)s.bias, scaled = (T)s.gain * sum;
                sum = s.bias_first ? (T)s.gain * shifted : scaled + (T)s.bias;
            }
            if (s.relu && sum <= 0) sum = 0;
            tartan_i_store(want.data(), s.out_dtype, r * s.out_row + c, (double)sum);
        }
    EXPECT_TRUE(std::equal(want.begin(), want.end(), (const char *)out.data())) << s.rows << " x " << s.cols;
    EXPECT_TRUE(out.intact());
}

TEST_P(ConvKernels, PlanesArePackedAndMultipliedInTheOrderOfTaps) {
    std::mt19937_64 random(5);
    for (size_t i = 0; i < rounds((size_t)1000); i++) {
        check_planes<float>(Tables<float>(GetParam()).best, random);
        check_planes<double>(Tables<double>(GetParam()).best, random);
    }
}

/* Positions of two images, of which the right one ends in all directions; elements of both have 16 bits or are reals. */
template <typename T> void check_tap_gradients(const tartan_i_kernels &k, size_t n, std::mt19937_64 &random) {
    enum { TOGETHER = TARTAN_I_SUMS_TOGETHER };
    const int32_t dtypes[] = {k.dtype, TARTAN_F16, TARTAN_BF16};
    const auto upto = [&](size_t most) { return (int64_t)below(random, most + 1); };
    tartan_i_tap_gradient g = {};
    g.n = (int64_t)n, g.dtype = dtypes[below(random, k.dtype == TARTAN_F32 ? 3 : 1)];
    g.rows = upto(3), g.cols = upto(40), g.tap_rows = 1 + upto(7), g.taps = 1 + upto(11);
    g.height = upto(9), g.width = upto(60);
    g.first_row = upto(6) - 4, g.first_col = upto(8) - 6;
    g.row_step = 1 + upto(1), g.col_step = 1 + upto(2), g.row_tap = 1 + upto(1),
    g.tap_step = 1 + upto(1) * upto(1);
    g.a_col = g.n + upto(3), g.a_row = g.a_col * g.cols + upto(3);
    g.b_col = g.n + upto(3), g.b_row = g.b_col * g.width + upto(3);
    g.sums_row = (g.taps + upto(1)) * TOGETHER, g.sums_group = g.sums_row * g.tap_rows + upto(1) * TOGETHER;
    const size_t bytes = (size_t)tartan_dtype_bytes(g.dtype), groups = (n + TOGETHER - 1) / TOGETHER;
    const auto image = [&](int64_t elements) {
        std::vector<T> reals((size_t)elements);
        fill(reals.data(), reals.size(), random);
        std::vector<char> x(reals.size() * bytes);
        for (size_t i = 0; i < reals.size(); i++)
            tartan_i_store(x.data(), g.dtype, (int64_t)i, (double)reals[i] / 64); // finite as f16
        return x;
    };
    const std::vector<char> a = image(g.rows * g.a_row), b = image(g.height * g.b_row), zeros(n * bytes);
    const size_t size = groups * (size_t)g.sums_group;
    Guarded<T> sums(size, below(random, 16));
    fill(sums.data(), size, random);
    std::vector<T> want(sums.data(), sums.data() + size);
    g.a = a.data(), g.b = b.data(), g.zeros = zeros.data(), g.sums = sums.data();
    k.tap_gradients(&g);
    for (int64_t i = 0; i < g.tap_rows * g.taps * g.n; i++) {
        const int64_t c = i % g.n, t = i / g.n % g.taps, r = i / g.n / g.taps;
        T &sum = want[(size_t)(c / TOGETHER * g.sums_group + r * g.sums_row + t * TOGETHER + c % TOGETHER)];
        for (int64_t p = 0; p < g.rows * g.cols; p++) {
            const int64_t y = g.first_row + p / g.cols * g.row_step + r * g.row_tap,
                          x = g.first_col + p % g.cols * g.col_step + t * g.tap_step;
            const bool inside = y >= 0 && y < g.height && x >= 0 && x < g.width;
            const double left = tartan_i_load(a.data(), g.dtype,
                                              p / g.cols * g.a_row + p % g.cols * g.a_col + c),
                         right = inside ? tartan_i_load(b.data(), g.dtype, y * g.b_row + x * g.b_col + c) : 0;
            sum = std::fma((T)left, (T)right, sum);
        }
    }
    EXPECT_SAME_BITS(size, want.data(), sums.data()) << g.n << " channels, " << g.tap_rows << " x " << g.taps
                                                     << " taps, steps " << g.col_step << ", " << g.tap_step;
    EXPECT_TRUE(sums.intact());
}

TEST_P(ConvKernels, TapGradientsAreChainsOfFusedProducts) {
    std::mt19937_64 random(4);
    for (size_t i = 0; i < rounds((size_t)1000); i++) {
        const size_t n = i % 2 == 0 ? i / 2 % 50 : below(random, 70);
        check_tap_gradients<float>(Tables<float>(GetParam()).best, n, random);
        check_tap_gradients<double>(Tables<double>(GetParam()).best, n, random);
    }
}

template <typename T>
void check_copy(const tartan_i_kernels &k, size_t rows, size_t vectors, bool apart, std::mt19937_64 &random) {
    const size_t lanes = (size_t)k.lanes, in_row = vectors * lanes + below(random, 5),
                 out_row = apart ? lanes : vectors * lanes + below(random, 5),
                 out_vector = apart ? (rows + below(random, 3)) * lanes : lanes;
    std::vector<T> in(rows * in_row + 1);
    fill(in.data(), in.size(), random);
    const size_t size = rows * vectors == 0 ? 0 : (rows - 1) * out_row + (vectors - 1) * out_vector + lanes;
    Guarded<T> out(size, below(random, 16));
    fill(out.data(), size, random);
    std::vector<T> want(out.data(), out.data() + size);
    k.copy_rows((int64_t)rows, (int64_t)vectors, &in[1], (int64_t)in_row, out.data(), (int64_t)out_row,
                (int64_t)out_vector);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < vectors * lanes; j++)
            want[i * out_row + j / lanes * out_vector + j % lanes] = in[1 + i * in_row + j];
    EXPECT_SAME_BITS(size, want.data(), out.data()) << rows << " x " << vectors;
    EXPECT_TRUE(out.intact());
}

TEST_P(ConvKernels, CopiedRowsMayBeTakenApart) {
    std::mt19937_64 random(5);
    for (size_t i = 0; i < rounds((size_t)1000); i++) {
        const size_t rows = i % 10 == 0 ? below(random, 40) : below(random, 8), vectors = below(random, 6);
        check_copy<float>(Tables<float>(GetParam()).best, rows, vectors, i % 2, random);
        check_copy<double>(Tables<double>(GetParam()).best, rows, vectors, i % 2, random);
    }
}

} // namespace
