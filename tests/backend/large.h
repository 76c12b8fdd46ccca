// SPDX-License-Identifier: Apache-2.0
// Products large enough for the fast kernels of a device, and their oracle. It works in f64 (f64 itself: in long double) on
// dense rows, fast enough to look at every element; tests of many settings look at an eighth of the rows on a device. Each
// product runs twice: the bits must be the same.
#ifndef TARTAN_TESTS_LARGE_H
#define TARTAN_TESTS_LARGE_H

#include "explained.h"

namespace tartan_test {

// A row-major matrix of numbers for the oracle.
template <typename Real> struct Plain {
    int64_t rows, cols;
    std::vector<Real> values;
    Plain(int64_t r, int64_t c) : rows(r), cols(c), values((size_t)(r * c)) {}
    Real *row(int64_t i) { return values.data() + i * cols; }
    const Real *row(int64_t i) const { return values.data() + i * cols; }
};

// Batch entry `e` of a Dense, its last two dimensions exchanged where asked.
template <typename Real> Plain<Real> plain(const Dense &dense, int64_t e, bool exchanged) {
    const tartan_array &a = dense.array;
    const int64_t rows = a.shape[a.ndim - 2], cols = a.shape[a.ndim - 1];
    const int64_t at = dense.offset(e * rows * cols);
    Plain<Real> out(exchanged ? cols : rows, exchanged ? rows : cols);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            out.row(exchanged ? j : i)[exchanged ? i : j] = (Real)tartan_i_load(
                a.data, a.dtype, at + i * a.strides[a.ndim - 2] + j * a.strides[a.ndim - 1]);
    return out;
}

// The error rule. Modes of the context may lose a part of each product: tf32 cuts each factor to 11 bits.
constexpr double kTf32 = 2.1 / 1024;
struct Rule {
    int32_t dtype, out;
    double alpha, beta, lost;
    bool holds(long double exact, long double size, int64_t terms, double got, double c) const {
        Chain chain(dtype);
        chain.exact = exact, chain.size = size, chain.terms = terms;
        return chain.within(got, alpha, beta, c, out, lost);
    }
};

struct Setting {
    int32_t dtype, out_dtype, block_order;
    int64_t block, block_cols; // block_cols 0: blocks are square
    int64_t rows, cols, n, heads, batch;
    double density, alpha, beta;
    bool gated;
    Style b_style, c_style;
};

inline Setting setting_of(int64_t block, int32_t dtype, std::mt19937_64 &random, int64_t block_cols = 0) {
    Setting s = {};
    const bool ragged = random() % 2, small = dtype == TARTAN_F64;
    s.block = block, s.block_cols = block_cols, s.dtype = dtype;
    s.out_dtype = tartan_dtype_bytes(dtype) == 2 && random() % 4 == 0 ? (int32_t)TARTAN_F32 : dtype;
    s.block_order = (int32_t)(random() % 2);
    const auto length = [&](int64_t edge) {
        const int64_t most = (small ? 384 : 600) / edge, blocks = 1 + (int64_t)below(random, (size_t)most);
        return std::max(blocks * edge, int64_t(1)) - (ragged ? (int64_t)below(random, (size_t)edge) : 0);
    };
    s.rows = length(block), s.cols = length(block_cols > 0 ? block_cols : block);
    s.n = ragged ? 1 + (int64_t)below(random, 300)
                 : pick<int64_t>(random, {8, 16, 64, 128, 136, 256, 512, 600});
    s.heads = pick<int64_t>(random, {1, 1, 1, 2});
    s.batch = s.n <= 128 ? pick<int64_t>(random, {0, 0, 3}) : 0;
    s.density = pick(random, {0.05, 0.2, 0.5, 1.0});
    s.alpha = pick(random, {1.0, -0.5}), s.beta = pick(random, {0.0, 0.0, 0.25});
    s.gated = random() % 4 == 0;
    s.b_style = pick(random, {kRows, kRows, kColumns, kGaps}),
    s.c_style = pick(random, {kRows, kRows, kColumns});
    return s;
}

inline Dense gates_for(const Layout &layout, std::mt19937_64 &random) {
    Dense gates(TARTAN_F32, {layout->blocks});
    for (int64_t i = 0; i < layout->blocks; i++) gates.set(i, pick(random, {0.0, 1.0, 0.5, -2.0}));
    return gates;
}

inline std::vector<int64_t> shape_with(const Setting &s, int64_t rows, int64_t cols) {
    std::vector<int64_t> shape;
    if (s.batch > 0) shape.push_back(s.batch);
    if (s.heads > 1) shape.push_back(s.heads);
    shape.insert(shape.end(), {rows, cols});
    return shape;
}

// The rows at which a test looks: one of `each` on average, anywhere.
inline std::vector<bool> rows_looked_at(int64_t rows, int each, std::mt19937_64 &random) {
    std::vector<bool> looked((size_t)rows);
    for (size_t i = 0; i < looked.size(); i++) looked[i] = random() % (size_t)each == 0;
    return looked;
}

class Large : public OnBackend {
  protected:
    int each = 1; // one of so many rows is looked at
    bool on_device() const { return GetParam() == "cuda"; }
    void look_at_some_rows() { each = on_device() ? 8 : 1; }

    // How many random settings of each block and dtype: the dummy is there to see that the test is right.
    uint64_t seeds() const { return dummy() ? 1 : on_host() ? 2 : 8; }

    // Runs a product twice into equal outputs and hands one back.
    template <typename Product> Dense run_twice(const Dense &c, const Product &product) {
        Placed first(context.get(), c), second(context.get(), c);
        EXPECT_OK(product(&first.array));
        EXPECT_OK(product(&second.array));
        Dense got = c, again = c;
        first.fetch(got);
        second.fetch(again);
        EXPECT_EQ(got.memory(), again.memory()) << "the bits differ from run to run";
        EXPECT_TRUE(c.memory().size() > 100000 || marks_intact(got));
        return got;
    }

    template <typename Real>
    void spmm(int64_t block, int32_t dtype, uint64_t seed, double lost = 0, int64_t block_cols = 0);
    template <typename Real>
    void forms(const Setting &s, const std::vector<int> &list, std::mt19937_64 &random, double lost = 0);
    template <typename Real>
    void sddmm(int64_t block, int32_t dtype, uint64_t seed, double lost = 0, int64_t block_cols = 0);
    template <typename Real> void sddmm(const Setting &s, std::mt19937_64 &random, double lost);
    template <typename Real>
    void check_spmm(const Setting &s, const Layout &layout, const Matrix &a, const Dense &gates, bool right,
                    bool transposed, const Dense &b, const Dense &c, const Dense &got, double lost);
};
// Adds block `id` of op(A) times B, and the same of the absolute values, to the rows that are looked at.
template <typename Real>
void add_block(const Layout &layout, const Matrix &a, int64_t id, double gate, bool transposed,
               const Plain<Real> &b, const std::vector<bool> &looked, Plain<Real> &sums, Plain<Real> &sizes,
               std::vector<int64_t> &terms) {
    const tartan_shape &shape = layout->shape;
    const int64_t row0 = layout->block_rows[id] * shape.block_rows,
                  col0 = layout->block_cols[id] * shape.block_cols;
    for (int64_t r = 0; r < tartan_i_rows_of(layout.get(), layout->block_rows[id]); r++)
        for (int64_t q = 0; q < tartan_i_cols_of(layout.get(), layout->block_cols[id]); q++) {
            const int64_t i = transposed ? col0 + q : row0 + r, k = transposed ? row0 + r : col0 + q;
            if (!looked[(size_t)i]) continue;
            const Real factor = (Real)(gate * entry(a.get(), id, r, q)), size = factor < 0 ? -factor : factor;
            const Real *from = b.row(k);
            Real *sum = sums.row(i), *bound = sizes.row(i);
            for (int64_t j = 0; j < b.cols; j++) {
                sum[j] += factor * from[j];
                bound[j] += size * (from[j] < 0 ? -from[j] : from[j]);
            }
            terms[(size_t)i]++;
        }
}

template <typename Real>
void Large::check_spmm(const Setting &s, const Layout &layout, const Matrix &a, const Dense &gates,
                       bool right, bool transposed, const Dense &b, const Dense &c, const Dense &got,
                       double lost) {
    const int64_t out = transposed ? s.cols : s.rows;
    const Rule rule = {s.dtype, s.out_dtype, s.alpha, s.beta, lost};
    std::mt19937_64 random((uint64_t)(out + s.n));
    for (int64_t e = 0; e < std::max<int64_t>(s.batch, 1) * s.heads; e++) {
        const Plain<Real> factor = plain<Real>(b, e, right);
        const Plain<double> before = plain<double>(c, e, right), after = plain<double>(got, e, right);
        Plain<Real> sums(out, s.n), sizes(out, s.n);
        std::vector<int64_t> terms((size_t)out);
        const std::vector<bool> looked = rows_looked_at(out, each, random);
        const int64_t *rows = layout->row_pointers + e % s.heads * layout->grid_rows;
        for (int64_t id = rows[0]; id < rows[layout->grid_rows]; id++) {
            const double gate = s.gated ? gates.get(id) : 1;
            if (gate != 0) add_block(layout, a, id, gate, transposed, factor, looked, sums, sizes, terms);
        }
        for (int64_t i = 0; i < out; i++)
            for (int64_t j = 0; looked[(size_t)i] && j < s.n; j++)
                ASSERT_TRUE(rule.holds(sums.row(i)[j], sizes.row(i)[j], terms[(size_t)i], after.row(i)[j],
                                       before.row(i)[j]))
                    << "entry " << e << " (" << i << ", " << j << ") is " << after.row(i)[j] << ", expected "
                    << s.alpha * (double)sums.row(i)[j] + (s.beta == 0 ? 0 : s.beta * before.row(i)[j]);
    }
}

// A form: 1 is for the right side, 2 for op(A) = A'.
template <typename Real>
void Large::forms(const Setting &s, const std::vector<int> &list, std::mt19937_64 &random, double lost) {
    const int64_t block_cols = s.block_cols > 0 ? s.block_cols : s.block;
    const Layout layout = random_layout({s.rows, s.cols, s.block, block_cols, s.heads}, s.density, random());
    const Matrix a = random_matrix(layout, s.dtype, s.block_order, random), there = placed(context.get(), a);
    const Dense gates = gates_for(layout, random);
    const Placed gates_there(context.get(), gates);
    for (const int form : list) {
        const bool right = form % 2, transposed = (form / 2 == 1) != right;
        SCOPED_TRACE(::testing::Message()
                     << tartan_dtype_name(s.dtype) << " -> " << tartan_dtype_name(s.out_dtype) << ", block "
                     << s.block << " x " << block_cols << ", " << s.rows << " x " << s.cols << ", n " << s.n
                     << ", heads " << s.heads << ", batch " << s.batch << ", density " << s.density
                     << ", order " << s.block_order << ", side " << right << ", op " << form / 2
                     << ", styles " << s.b_style << s.c_style << ", gated " << s.gated << ", beta "
                     << s.beta);
        const int64_t in = transposed ? s.rows : s.cols, out = transposed ? s.cols : s.rows;
        Dense b(s.dtype, shape_with(s, right ? s.n : in, right ? in : s.n), s.b_style),
            c(s.out_dtype, shape_with(s, right ? s.n : out, right ? out : s.n), s.c_style);
        b.fill(random);
        if (s.beta != 0) c.fill(random);
        const Placed b_there(context.get(), b);
        const Dense got = run_twice(c, [&](tartan_array *to) {
            return tartan_spmm(context.get(), there.get(), s.gated ? &gates_there.array : nullptr,
                               &b_there.array, s.alpha, s.beta, spmm_options(right, form / 2), to);
        });
        check_spmm<Real>(s, layout, a, gates, right, transposed, b, c, got, lost);
        if (HasFailure()) return;
    }
}

template <typename Real>
void Large::spmm(int64_t block, int32_t dtype, uint64_t seed, double lost, int64_t block_cols) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed * 1000 + (uint64_t)block * 4 + (uint64_t)dtype);
    const Setting s = setting_of(block, dtype, random, block_cols);
    std::vector<int> list; // two of the four forms, unless a device has to do all
    const int first = (int)(seed % 4);
    for (int form = 0; form < 4; form++)
        if (form == first || form == (first + 1) % 4 || (on_device() && each == 1)) list.push_back(form);
    forms<Real>(s, list, random, lost);
}

template <typename Real>
void Large::sddmm(int64_t block, int32_t dtype, uint64_t seed, double lost, int64_t block_cols) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed * 1000 + (uint64_t)block * 4 + (uint64_t)dtype + 77);
    sddmm<Real>(setting_of(block, dtype, random, block_cols), random, lost);
}

template <typename Real> void Large::sddmm(const Setting &s, std::mt19937_64 &random, double lost) {
    const int64_t block = s.block, width = s.block_cols > 0 ? s.block_cols : block;
    SCOPED_TRACE(::testing::Message()
                 << tartan_dtype_name(s.dtype) << " -> " << tartan_dtype_name(s.out_dtype) << ", block "
                 << block << " x " << width << ", " << s.rows << " x " << s.cols << ", k " << s.n
                 << ", heads " << s.heads << ", batch " << s.batch << ", order " << s.block_order
                 << ", styles " << s.b_style << s.c_style << ", gated " << s.gated << ", beta " << s.beta);
    const Layout layout = random_layout({s.rows, s.cols, block, width, s.heads}, s.density, random());
    const Matrix before = random_matrix(layout, s.out_dtype, s.block_order, random);
    const Dense gates = gates_for(layout, random);
    Dense x(s.dtype, shape_with(s, s.rows, s.n), s.b_style),
        y(s.dtype, shape_with(s, s.n, s.cols), s.c_style);
    x.fill(random);
    y.fill(random);
    const Placed gates_there(context.get(), gates), left(context.get(), x), right(context.get(), y);
    Matrix got[2];
    for (Matrix &one : got) {
        const Matrix sum = placed(context.get(), before);
        ASSERT_OK(tartan_sddmm(context.get(), &left.array, &right.array, 1,
                               s.gated ? &gates_there.array : nullptr, s.alpha, s.beta, sum.get()));
        one = fetched(context.get(), sum);
    }
    std::vector<Plain<Real>> xs, ys; // y by columns
    for (int64_t e = 0; e < std::max<int64_t>(s.batch, 1) * s.heads; e++) {
        xs.push_back(plain<Real>(x, e, false));
        ys.push_back(plain<Real>(y, e, true));
    }
    for (int64_t id = 0; id < layout->blocks; id++) {
        const double gate = s.gated ? gates.get(id) : 1;
        const Rule rule = {s.dtype, s.out_dtype, s.alpha * gate, s.beta, lost};
        const int64_t head = tartan_i_layout_head(layout.get(), id);
        const std::vector<bool> looked = rows_looked_at(block, each, random);
        const int64_t rows = tartan_i_rows_of(layout.get(), layout->block_rows[id]),
                      cols = tartan_i_cols_of(layout.get(), layout->block_cols[id]);
        for (int64_t i = 0; i < block; i++)
            for (int64_t j = 0; j < width; j++) {
                const double result = entry(got[0].get(), id, i, j);
                if (i >= rows || j >= cols) {
                    ASSERT_EQ(0, result) << "padding of block " << id << " (" << i << ", " << j << ")";
                    continue;
                }
                ASSERT_EQ(result, entry(got[1].get(), id, i, j)) << "the bits differ from run to run";
                if (!looked[(size_t)i]) continue;
                Real sum = 0, size = 0;
                int64_t terms = 0;
                for (size_t e = (size_t)head; gate != 0 && e < xs.size(); e += (size_t)s.heads) {
                    const Real *p = xs[e].row(layout->block_rows[id] * block + i);
                    const Real *q = ys[e].row(layout->block_cols[id] * width + j);
                    for (int64_t k = 0; k < s.n; k++) {
                        sum += p[k] * q[k];
                        size += std::fabs(p[k] * q[k]);
                    }
                    terms += s.n;
                }
                ASSERT_TRUE(rule.holds(sum, size, terms, result, entry(before.get(), id, i, j)))
                    << "block " << id << " (" << i << ", " << j << ") is " << result << " for a sum of "
                    << sum;
            }
    }
}

} // namespace tartan_test

#endif
