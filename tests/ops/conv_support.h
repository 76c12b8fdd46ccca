// SPDX-License-Identifier: Apache-2.0
// Random convolutions and an oracle: sums over all pairs of positions and taps in extended precision.
#ifndef TARTAN_TESTS_CONV_SUPPORT_H
#define TARTAN_TESTS_CONV_SUPPORT_H

#include "products.h"

#include <functional>
#include <map>
#include <numeric>
#include <sstream>

extern "C" {
#include "conv/conv.h"
#include "conv/windows.h"
}

namespace tartan_test {

struct FreeConv {
    void operator()(tartan_conv *p) const { tartan_conv_free(p); }
};
using ConvHandle = std::unique_ptr<tartan_conv, FreeConv>;

inline ConvHandle make_conv(const Layout &channels, const std::string &options) {
    tartan_conv *conv = nullptr;
    EXPECT_OK(tartan_conv_create(channels.get(), options.c_str(), &conv)) << options;
    return ConvHandle(conv);
}
// The passes, with arguments in a row and without a choice of sizes.
inline tartan_status conv_forward(tartan_context *context, const tartan_conv *conv,
                                  const tartan_matrix *filter, const tartan_array *x, const char *options,
                                  const tartan_array *gain, const tartan_array *bias,
                                  const tartan_layout *active, const char *windows, tartan_array *y) {
    const tartan_conv_forward_arguments given = {conv, filter, x, options, gain, bias, active, windows, y};
    return tartan_conv_forward(context, &given);
}
inline tartan_status conv_input_gradient(tartan_context *context, const tartan_conv *conv,
                                         const tartan_matrix *filter, const tartan_array *y_grad,
                                         const tartan_layout *active, const char *windows,
                                         tartan_array *x_grad) {
    return tartan_conv_input_gradient(context, conv, filter, y_grad, active, windows, nullptr, x_grad);
}
inline Layout layout_of(const ConvHandle &conv) {
    tartan_layout *layout = nullptr;
    EXPECT_OK(tartan_conv_get_layout(conv.get(), &layout));
    return Layout(layout);
}

// An image [n, channels, spatial...]: channels-first in a style of Dense, or channels-last (style kStyles).
enum { kChannelsLast = kStyles };
inline Dense make_image(int32_t dtype, int64_t n, int64_t channels, const std::vector<int64_t> &size,
                        int style) {
    std::vector<int64_t> shape{n, channels};
    shape.insert(shape.end(), size.begin(), size.end());
    if (style != kChannelsLast) return Dense(dtype, shape, (Style)style);
    shape.erase(shape.begin() + 1);
    shape.push_back(channels);
    Dense image(dtype, shape);
    tartan_array &a = image.array;
    for (int32_t d = a.ndim - 1; d > 1; d--) {
        std::swap(a.shape[d], a.shape[d - 1]);
        std::swap(a.strides[d], a.strides[d - 1]);
    }
    return image;
}

// What is summed up for an element.
struct Sum {
    long double exact = 0, size = 0;
    int64_t terms = 0;
    void add(double a, double b) {
        exact += (long double)a * b;
        size += std::fabs((long double)a * b);
        terms++;
    }
    // The error rule for sums in `dtype`.
    long double bound(int32_t dtype) const {
        return (8 + 2 * std::sqrt((long double)terms)) * epsilon(tartan_i_sum_dtype(dtype)) * size;
    }
};

inline void expect_near(double got, long double want, long double bound, int32_t out, int32_t sums,
                        const std::string &where) {
    const long double last =
        out == tartan_i_sum_dtype(sums) ? 0 : epsilon(out) * (std::fabs(want) + bound) + 1e-7L;
    EXPECT_LE(std::fabs((long double)got - want), bound + last + (sums == TARTAN_F64 ? 1e-300L : 1e-37L))
        << where << ": " << got << ", expected " << (double)want;
}

// Active windows of an image.
struct Active {
    Layout layout; // NULL: all positions
    std::string text;
    tartan_i_windows windows = {};
    const char *words() const { return layout == nullptr ? nullptr : text.c_str(); }

    bool has(int64_t n, const std::vector<int64_t> &p) const {
        if (layout == nullptr) return true;
        int64_t row = 0, col = 0;
        for (size_t d = 0; d < p.size(); d++) {
            const int64_t from = p[d] - windows.offset[d];
            if (from < 0 || from % windows.stride[d] >= windows.size[d]) return false;
            const int64_t i = from / windows.stride[d];
            if (i >= windows.count[d]) return false;
            if (d + 1 < p.size())
                row = row * windows.count[d] + i;
            else
                col = i;
        }
        return tartan_i_layout_find(layout.get(), n, row, col) >= 0;
    }
};

inline Active random_active(std::mt19937_64 &random, int64_t n, const std::vector<int64_t> &size,
                            double density) {
    Active a;
    std::ostringstream sizes, strides, offsets, counts;
    int64_t rows = 1, cols = 1;
    a.windows.dims = (int32_t)size.size();
    for (size_t d = 0; d < size.size(); d++) {
        const char *x = d > 0 ? "x" : "";
        a.windows.size[d] = 1 + (int64_t)below(random, 5);
        a.windows.stride[d] = a.windows.size[d] + (int64_t)below(random, 3);
        a.windows.offset[d] = (int64_t)below(random, 5) - 2;
        a.windows.count[d] = size[d] / a.windows.stride[d] + (int64_t)below(random, 3);
        sizes << x << a.windows.size[d], strides << x << a.windows.stride[d];
        offsets << x << a.windows.offset[d], counts << x << a.windows.count[d];
        rows *= d + 1 < size.size() ? a.windows.count[d] : 1;
        cols = a.windows.count[d];
    }
    a.text = "size=" + sizes.str() + " stride=" + strides.str() + " offset=" + offsets.str() +
             " count=" + counts.str();
    a.layout = random_layout({rows, cols, 1, 1, n}, density, random());
    return a;
}

// A convolution with its operands.
struct Problem {
    ConvHandle conv;
    Layout layout;
    int32_t dtype = TARTAN_F64;
    int64_t n = 1;
    std::vector<int64_t> in, out; // lengths of the cross-correlation
    Matrix filter;
    Active active;

    int64_t dims() const { return conv->options.dims; }
    bool transposed() const { return conv->options.transposed; }
    const std::vector<int64_t> &x_size() const { return transposed() ? out : in; }
    const std::vector<int64_t> &y_size() const { return transposed() ? in : out; }
    int64_t x_channels() const { return tartan_conv_in_channels(conv.get()); }
    int64_t y_channels() const { return tartan_conv_out_channels(conv.get()); }

    // The geometry for an image `in` of the cross-correlation; false if the kernel is too large for it.
    bool set_size(int64_t images, const std::vector<int64_t> &size) {
        tartan_i_geometry g;
        n = images;
        in = out = size;
        if (tartan_i_geometry_of(nullptr, &conv->options, "in", in.data(), &g) != TARTAN_OK) return false;
        for (int64_t d = 0; d < dims(); d++) out[(size_t)d] = g.out[3 - dims() + d];
        return true;
    }
    int64_t before(int64_t d) const {
        tartan_i_geometry g;
        EXPECT_OK(tartan_i_geometry_of("test", &conv->options, "in", in.data(), &g));
        return g.before[3 - dims() + d];
    }

    static std::vector<std::vector<int64_t>> all_of(const std::vector<int64_t> &lengths) {
        std::vector<std::vector<int64_t>> all;
        std::vector<int64_t> at(lengths.size(), 0);
        for (int64_t length : lengths)
            if (length == 0) return all;
        for (;;) {
            all.push_back(at);
            size_t d = lengths.size();
            while (d > 0 && ++at[d - 1] == lengths[d - 1]) at[--d] = 0;
            if (d == 0) return all;
        }
    }

    // Calls f(tap, index of p, index of q, p, q) for each tap and pair of positions that it joins; q may be outside (-1).
    void each_pair(const std::function<void(int64_t, int64_t, int64_t, const std::vector<int64_t> &,
                                            const std::vector<int64_t> &)> &f) const {
        const tartan_i_conv_options &o = conv->options;
        const auto ps = all_of(out);
        std::vector<int64_t> kernel(o.kernel + 3 - dims(), o.kernel + 3), first;
        for (int64_t d = 0; d < dims(); d++) first.push_back(before(d));
        const auto taps = all_of(kernel);
        for (size_t t = 0; t < taps.size(); t++)
            for (size_t i = 0; i < ps.size(); i++) {
                std::vector<int64_t> q(ps[i].size());
                int64_t at = 0;
                for (size_t d = 0; d < q.size(); d++) {
                    const size_t g = 3 - (size_t)dims() + d;
                    q[d] = ps[i][d] * o.stride[g] + taps[t][d] * o.dilation[g] - first[d];
                    if (q[d] < 0 || q[d] >= in[d]) at = -1;
                    at = at < 0 ? -1 : at * in[d] + q[d];
                }
                f((int64_t)t, (int64_t)i, at, ps[i], q);
            }
    }

    // Calls f(k, c, tap, id, i, j) for each weight that has channels.
    template <typename F> void each_weight(F f) const {
        const tartan_layout *l = layout.get();
        const int64_t columns = conv->cols.slots;
        for (int64_t id = 0; id < l->blocks; id++)
            for (int64_t i = 0; i < tartan_i_rows_of(l, l->block_rows[id]); i++)
                for (int64_t j = 0; j < l->shape.block_cols; j++) {
                    const int64_t row = l->block_rows[id] * l->shape.block_rows + i,
                                  col = l->block_cols[id] * l->shape.block_cols + j;
                    const int64_t slot = col % columns;
                    const int64_t k = conv->rows.of == nullptr ? row : conv->rows.of[row];
                    const int64_t c = conv->cols.of == nullptr ? slot : conv->cols.of[slot];
                    if (k < 0 || k >= conv->rows.count || c < 0 || c >= conv->cols.count) continue;
                    f(k, c, col / columns, id, i, j);
                }
    }

    static int64_t product(const std::vector<int64_t> &v) {
        int64_t all = 1;
        for (int64_t i : v) all *= i;
        return all;
    }

    // Sums of to[n, channel, position], with `from` for the other image.
    std::vector<Sum> correlate(const Dense &from, bool adjoint, const Active *of_from) const {
        const int64_t ps = product(out), qs = product(in), K = conv->rows.count, C = conv->cols.count;
        std::vector<Sum> sums((size_t)(n * (adjoint ? C * qs : K * ps)));
        std::vector<std::vector<std::tuple<int64_t, int64_t, double>>> by_tap((size_t)conv->options.taps);
        each_weight([&](int64_t k, int64_t c, int64_t t, int64_t id, int64_t i, int64_t j) {
            by_tap[(size_t)t].emplace_back(k, c, entry(filter.get(), id, i, j));
        });
        each_pair([&](int64_t t, int64_t p, int64_t q, const std::vector<int64_t> &at_p,
                      const std::vector<int64_t> &at_q) {
            if (q < 0) return;
            for (int64_t image = 0; image < n; image++) {
                if (of_from != nullptr && !of_from->has(image, adjoint ? at_p : at_q)) continue;
                for (const auto &[k, c, w] : by_tap[(size_t)t]) {
                    const int64_t row = (image * K + k) * ps + p, col = (image * C + c) * qs + q;
                    if (adjoint)
                        sums[(size_t)col].add(w, from.get(row));
                    else
                        sums[(size_t)row].add(w, from.get(col));
                }
            }
        });
        return sums;
    }

    // What a position of y multiplies, by its class: tap after tap, whether it is outside.
    std::vector<int64_t> classes() const {
        std::map<int64_t, std::vector<int64_t>> outside; // positions of y and the taps outside of x
        const bool turned = transposed();
        if (!turned) {
            each_pair([&](int64_t t, int64_t p, int64_t q, auto &, auto &) {
                if (q < 0) outside[p].push_back(t);
            });
        } else { // taps that would join q with a p that y does not have
            const tartan_i_conv_options &o = conv->options;
            const auto qs = all_of(in);
            std::vector<int64_t> kernel(o.kernel + 3 - dims(), o.kernel + 3);
            const auto taps = all_of(kernel);
            for (size_t i = 0; i < qs.size(); i++)
                for (size_t t = 0; t < taps.size(); t++) {
                    bool reached = true, inside = true;
                    for (size_t d = 0; d < qs[i].size(); d++) {
                        const size_t g = 3 - (size_t)dims() + d;
                        const int64_t from = qs[i][d] + before((int64_t)d) - taps[t][d] * o.dilation[g];
                        reached = reached && from % o.stride[g] == 0;
                        inside = inside && from >= 0 && from / o.stride[g] < out[d];
                    }
                    if (reached && !inside) outside[(int64_t)i].push_back((int64_t)t);
                }
        }
        std::vector<int64_t> result((size_t)product(y_size()), 0);
        std::map<std::vector<int64_t>, int64_t> known;
        for (auto &[position, taps] : outside) {
            std::sort(taps.begin(), taps.end());
            const auto found = known.emplace(taps, (int64_t)known.size() + 1);
            result[(size_t)position] = found.first->second;
        }
        return result;
    }
};

inline std::string numbers(const std::vector<int64_t> &v, const char *between = "x") {
    std::string text;
    for (size_t i = 0; i < v.size(); i++) text += (i > 0 ? between : "") + std::to_string(v[i]);
    return text;
}

inline std::string random_options(std::mt19937_64 &random, int64_t dims, bool transposed) {
    std::vector<int64_t> kernel, stride, dilation, pad;
    for (int64_t d = 0; d < dims; d++) {
        kernel.push_back(1 + (int64_t)below(random, dims == 3 ? 3 : 4));
        stride.push_back(pick<int64_t>(random, {1, 1, 2, 3}));
        dilation.push_back(pick<int64_t>(random, {1, 1, 2, 3}));
        pad.push_back((int64_t)below(random, 4));
    }
    const std::string padding[] = {
        "valid", "same", "tf", "half", numbers(pad), numbers(pad) + ":" + std::to_string(below(random, 3))};
    return "kernel=" + numbers(kernel) + ",stride=" + numbers(stride) + " dilation=" + numbers(dilation) +
           " padding=" + padding[below(random, dims == 1 ? 6 : 5)] + (transposed ? " transposed=1" : "");
}

// Blocks of 1 x 1 on the diagonal: those of a depthwise convolution.
inline Layout diagonal_layout(int64_t channels) {
    std::vector<int64_t> pointers((size_t)channels + 1), cols((size_t)channels + 1);
    std::iota(pointers.begin(), pointers.end(), 0);
    std::iota(cols.begin(), cols.end(), 0);
    const tartan_shape shape = {channels, channels, 1, 1, 1};
    tartan_layout *layout = nullptr;
    EXPECT_OK(tartan_layout_from_csr(&shape, lists_of(pointers.data(), channels + 1, cols.data(), channels),
                                     &layout));
    return Layout(layout);
}

inline Problem random_problem(uint64_t seed) {
    std::mt19937_64 random(seed);
    Problem p;
    for (;;) {
        const int64_t dims = 1 + (int64_t)(random() % 3);
        const std::string options = random_options(random, dims, below(random, 3) == 0);
        const int64_t br = pick<int64_t>(random, {1, 2, 3, 4, 8, 16, 20}),
                      bc = pick<int64_t>(random, {1, 2, 3, 4, 8, 16, 20});
        const int64_t rows = (int64_t)below(random, 40), cols = (int64_t)below(random, 40);
        const double density = pick<double>(random, {0.0, 0.3, 0.7, 1.0});
        if (below(random, 8) == 0) { // depthwise
            p.conv = make_conv(diagonal_layout(rows), options);
        } else if (below(random, 4) == 0) {
            int64_t taps = 1;
            tartan_i_conv_options parsed;
            EXPECT_OK(tartan_i_conv_options_parse("test", options.c_str(), &parsed));
            taps = parsed.taps;
            const int64_t grid_cols = grid(cols, bc);
            p.conv = make_conv(random_layout({rows, taps * grid_cols * bc, br, bc, 1}, density, seed),
                               options + " per_tap=1");
        } else {
            p.conv = make_conv(random_layout({rows, cols, br, bc, 1}, density, seed), options);
        }
        std::vector<int64_t> size;
        for (int64_t d = 0; d < dims; d++)
            size.push_back((int64_t)below(random, dims == 1 ? 40 : dims == 2 ? 14 : 8));
        if (!p.set_size((int64_t)below(random, 4), size)) continue;
        break;
    }
    p.layout = layout_of(p.conv);
    p.dtype = kDtypes[below(random, 4)];
    p.filter = random_matrix(p.layout, p.dtype, pick(random, {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}), random);
    return p;
}

} // namespace tartan_test

#endif
