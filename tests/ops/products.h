// SPDX-License-Identifier: Apache-2.0
// What the tests of operations share: dense operands of any dtype and strides, matrices with values, and an
// oracle that computes each output element as documented (one chain of fused multiply-adds) and exactly.
#ifndef TARTAN_TESTS_PRODUCTS_H
#define TARTAN_TESTS_PRODUCTS_H

#include "feature_sets.h"
#include "support.h"

#include <cmath>
#include <cstring>
#include <limits>

extern "C" {
#include "core/array.h"
#include "core/cpu.h"
#include "matrix/matrix.h"
}

namespace tartan_test {

// kOddLines: contiguous rows that begin at any element, with NaN before, between and after them.
enum Style { kRows, kColumns, kReversed, kGaps, kRepeated, kStyles, kOddLines };
const int32_t kDtypes[] = {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16};

// Rounds to a dtype.
inline double rounded(int32_t dtype, double value) {
    double room = 0;
    tartan_i_store(&room, dtype, 0, value);
    return tartan_i_load(&room, dtype, 0);
}

// Unit roundoff's double: the distance from 1 to the next number.
inline double epsilon(int32_t dtype) {
    switch (dtype) {
    case TARTAN_F64:
        return std::numeric_limits<double>::epsilon();
    case TARTAN_F32:
        return std::numeric_limits<float>::epsilon();
    case TARTAN_F16:
        return 1.0 / 1024;
    default:
        return 1.0 / 128;
    }
}

// A dense array that owns its memory. Elements between its own keep a mark, so that stray writes show.
class Dense {
  public:
    tartan_array array = {};

    Dense() = default;
    Dense(int32_t dtype, const std::vector<int64_t> &shape, Style style = kRows) {
        const size_t n = shape.size();
        array.dtype = dtype, array.device_type = TARTAN_CPU, array.ndim = (int32_t)n;
        std::vector<size_t> order; // dimensions from the slowest to the fastest
        for (size_t d = 0; d < n; d++) order.push_back(d);
        if (style == kColumns && n >= 2) std::swap(order[n - 1], order[n - 2]);
        int64_t step = style == kGaps ? 2 : 1;
        for (size_t o = n; o-- > 0;) {
            const size_t d = order[o];
            array.shape[d] = shape[d];
            array.strides[d] = step;
            const bool apart = style == kGaps || style == kOddLines;
            step *= std::max<int64_t>(shape[d], 1) + (apart && o + 1 == n ? 3 : 0);
        }
        const int64_t bytes = tartan_dtype_bytes(dtype);
        if (style == kOddLines) mark_ = (char)0xff;
        memory_.assign((size_t)(step * bytes + 64), mark_);
        int64_t first = style == kOddLines ? 1 : 0;
        for (size_t d = 0; style == kReversed && d < n; d++) {
            first += (std::max<int64_t>(shape[d], 1) - 1) * array.strides[d];
            array.strides[d] = -array.strides[d];
        }
        if (style == kRepeated && n > 0) array.strides[n >= 2 ? n - 2 : 0] = 0;
        offset_ = first * bytes;
        array.data = memory_.data() + offset_;
    }
    Dense(const Dense &other)
        : array(other.array), memory_(other.memory_), offset_(other.offset_), mark_(other.mark_) {
        array.data = memory_.data() + offset_;
    }
    Dense &operator=(const Dense &other) {
        array = other.array, memory_ = other.memory_, offset_ = other.offset_, mark_ = other.mark_;
        array.data = memory_.data() + offset_;
        return *this;
    }

    int64_t elements() const { return tartan_i_array_elements(&array); }
    // Offset of the i-th element in row-major order of the indices.
    int64_t offset(int64_t i) const {
        int64_t at = 0, step = 1;
        bool in_order = true; // as in most arrays: no divisions then
        for (int32_t d = array.ndim; d-- > 0; step *= array.shape[d]) in_order &= array.strides[d] == step;
        if (in_order && i < step) return i;
        for (int32_t d = array.ndim; d-- > 0;) {
            at += i % array.shape[d] * array.strides[d];
            i /= array.shape[d];
        }
        return at;
    }
    double get(int64_t i) const { return tartan_i_load(array.data, array.dtype, offset(i)); }
    void set(int64_t i, double value) { tartan_i_store(array.data, array.dtype, offset(i), value); }
    void fill(std::mt19937_64 &random, double low = -1, double high = 1) {
        std::uniform_real_distribution<double> uniform(low, high);
        const int64_t n = elements();
        for (int64_t i = 0; i < n; i++) set(i, uniform(random));
    }
    const std::vector<char> &memory() const { return memory_; }
    char mark() const { return mark_; }
    // The same elements seen with the last two dimensions exchanged.
    tartan_array exchanged() const {
        tartan_array a = array;
        std::swap(a.shape[a.ndim - 1], a.shape[a.ndim - 2]);
        std::swap(a.strides[a.ndim - 1], a.strides[a.ndim - 2]);
        return a;
    }

  private:
    std::vector<char> memory_;
    int64_t offset_ = 0;
    char mark_ = (char)0x5a;
};

// Whether the bytes that belong to no element are unchanged.
inline bool marks_intact(const Dense &dense) {
    std::vector<bool> used(dense.memory().size());
    const int64_t bytes = tartan_dtype_bytes(dense.array.dtype);
    const int64_t base = (const char *)dense.array.data - dense.memory().data();
    for (int64_t i = 0; i < dense.elements(); i++)
        for (int64_t b = 0; b < bytes; b++) used[(size_t)(base + dense.offset(i) * bytes + b)] = true;
    for (size_t i = 0; i < used.size(); i++)
        if (!used[i] && dense.memory()[i] != dense.mark()) return false;
    return true;
}

// A matrix whose ragged padding holds NaN, which no result may show.
inline Matrix random_matrix(const Layout &layout, int32_t dtype, int32_t order, std::mt19937_64 &random,
                            double low = -1, double high = 1) {
    tartan_matrix *matrix = nullptr;
    EXPECT_OK(tartan_matrix_create(layout.get(), dtype, order, &matrix));
    std::uniform_real_distribution<double> uniform(low, high);
    const tartan_layout *l = layout.get();
    for (int64_t id = 0; id < l->blocks; id++) {
        for (int64_t i = 0; i < l->shape.block_rows; i++) {
            for (int64_t j = 0; j < l->shape.block_cols; j++) {
                const bool inside =
                    i < tartan_i_rows_of(l, l->block_rows[id]) && j < tartan_i_cols_of(l, l->block_cols[id]);
                tartan_i_store(tartan_i_block_at(matrix, id), dtype,
                               i * tartan_i_block_row_stride(matrix) + j * tartan_i_block_col_stride(matrix),
                               inside ? uniform(random) : NAN);
            }
        }
    }
    return Matrix(matrix);
}

inline double entry(const tartan_matrix *m, int64_t id, int64_t i, int64_t j) {
    return tartan_i_load(tartan_i_block_at(m, id), m->dtype,
                         i * tartan_i_block_row_stride(m) + j * tartan_i_block_col_stride(m));
}

// One output element as the header defines it, and the exact value with the size of what was added.
struct Chain {
    int32_t dtype; // of the sum
    double sum = 0;
    long double exact = 0, size = 0;
    int64_t terms = 0;
    explicit Chain(int32_t of) : dtype(tartan_i_sum_dtype(of)) {}
    void add(double a, double b) {
        sum = dtype == TARTAN_F64 ? std::fma(a, b, sum) : (double)std::fma((float)a, (float)b, (float)sum);
        exact += (long double)a * b;
        size += std::fabs((long double)a * b);
        terms++;
    }
    double result(double alpha, double beta, double c, int32_t out) const {
        if (dtype == TARTAN_F64) {
            const double r = alpha * sum;
            return beta == 0 ? r : std::fma(beta, c, r);
        }
        const float r = (float)alpha * (float)sum, b = (float)beta;
        return rounded(out, b == 0 ? r : std::fma(b, (float)c, r));
    }
    // The error rule; rounding to the output and the part of beta * c are allowed for apart, and so is what a mode of the context
    // may lose of each product.
    bool within(double got, double alpha, double beta, double c, int32_t out, double lost = 0) const {
        const long double want = (long double)alpha * exact + (beta == 0 ? 0 : (long double)beta * c);
        const long double bound =
            ((8 + 2 * std::sqrt((long double)terms)) * epsilon(dtype) + lost) * std::fabs(alpha) * size +
            2 * epsilon(dtype) * (beta == 0 ? 0 : std::fabs((long double)beta * c));
        const long double last = out == dtype ? 0 : epsilon(out) * (std::fabs(want) + bound) + 1e-7L;
        return std::fabs((long double)got - want) <= bound + last + (dtype == TARTAN_F64 ? 0 : 1e-40L);
    }
};

inline size_t below(std::mt19937_64 &random, size_t n) {
    return random() % n;
}
template <typename T> T pick(std::mt19937_64 &random, std::initializer_list<T> choices) {
    return choices.begin()[random() % choices.size()];
}

} // namespace tartan_test

#endif
