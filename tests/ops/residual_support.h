// SPDX-License-Identifier: Apache-2.0
// Random bottleneck units, and the same unit over whole images, made of convolutions.
#ifndef TARTAN_TESTS_RESIDUAL_SUPPORT_H
#define TARTAN_TESTS_RESIDUAL_SUPPORT_H

#include "channel_linear_calls.h"
#include "conv_support.h"

namespace tartan_test {

// Arrays and filters of a unit, wherever they are.
struct UnitOperands {
    const tartan_matrix *filter[3] = {};
    const tartan_array *gain[3] = {}, *bias[3] = {}, *x_gain = nullptr, *x_bias = nullptr;
};

struct Unit {
    ConvHandle conv[3];
    Matrix filter[3];
    Dense gain[3], bias[3], x_gain, x_bias;
    bool has_gain[3] = {}, has_bias[3] = {}, has_x_gain = false, has_x_bias = false;
    bool relu = true, preactivate = false;
    int32_t dtype = TARTAN_F32;
    int64_t n = 1, channels = 1;
    std::vector<int64_t> size;
    Active active;

    std::string options() const {
        return std::string("relu=") + (relu ? "1" : "0") + " preactivate=" + (preactivate ? "1" : "0");
    }
    UnitOperands operands() const {
        UnitOperands o;
        for (int i = 0; i < 3; i++) {
            o.filter[i] = filter[i].get();
            if (has_gain[i]) o.gain[i] = &gain[i].array;
            if (has_bias[i]) o.bias[i] = &bias[i].array;
        }
        if (has_x_gain) o.x_gain = &x_gain.array;
        if (has_x_bias) o.x_bias = &x_bias.array;
        return o;
    }
    tartan_residual_forward_arguments arguments(const UnitOperands &o, const tartan_array *x,
                                                const tartan_layout *windows, const char *words,
                                                tartan_array *y) const {
        tartan_residual_forward_arguments a = {};
        a.x = x, a.x_gain = o.x_gain, a.x_bias = o.x_bias;
        a.reduce = conv[0].get(), a.reduce_filter = o.filter[0];
        a.reduce_gain = o.gain[0], a.reduce_bias = o.bias[0];
        a.spatial = conv[1].get(), a.spatial_filter = o.filter[1];
        a.spatial_gain = o.gain[1], a.spatial_bias = o.bias[1];
        a.expand = conv[2].get(), a.expand_filter = o.filter[2];
        a.expand_gain = o.gain[2], a.expand_bias = o.bias[2];
        a.options = words, a.active = windows, a.windows = active.text.c_str(), a.y = y;
        return a;
    }
    tartan_status run(tartan_context *context, const UnitOperands &o, const tartan_array *x,
                      const tartan_layout *windows, tartan_array *y) const {
        const std::string words = options();
        const auto a = arguments(o, x, windows, words.c_str(), y);
        return tartan_residual_forward(context, &a);
    }
    tartan_status run(tartan_context *context, const Dense &x, Dense &y) const {
        return run(context, operands(), &x.array, active.layout.get(), &y.array);
    }
    Dense image(int style) const { return make_image(dtype, n, channels, size, style); }

    // Over the whole image.
    Dense whole(tartan_context *context, const Dense &x) const {
        const int64_t b = tartan_conv_out_channels(conv[0].get()),
                      c = tartan_conv_out_channels(conv[1].get());
        Dense from = image(kRows), on_b = make_image(dtype, n, b, size, kRows),
              on_c = make_image(dtype, n, c, size, kRows), y = image(kRows);
        const UnitOperands o = operands();
        for (int64_t i = 0; i < x.elements(); i++) from.set(i, x.get(i));
        if (preactivate) {
            EXPECT_OK(channel_linear(context, nullptr, nullptr, 0, &from.array, o.x_gain, o.x_bias, "relu=1",
                                     &from.array));
        }
        Dense *images[] = {&from, &on_b, &on_c, &y};
        for (int i = 0; i < 3; i++)
            EXPECT_OK(conv_forward(context, conv[i].get(), o.filter[i], &images[i]->array,
                                   i < 2 ? "relu=1" : nullptr, o.gain[i], o.bias[i], nullptr, nullptr,
                                   &images[i + 1]->array));
        for (int64_t i = 0; i < x.elements(); i++) {
            const double sum =
                dtype == TARTAN_F64 ? x.get(i) + y.get(i) : (double)((float)x.get(i) + (float)y.get(i));
            y.set(i, relu && sum <= 0 ? 0 : sum);
        }
        return y;
    }

    // Whether an element of [n, channels, positions] is in an active window.
    std::vector<bool> in_windows() const {
        const auto positions = Problem::all_of(size);
        std::vector<bool> in;
        for (int64_t i = 0; i < n; i++) {
            std::vector<bool> here;
            for (const auto &p : positions) here.push_back(active.has(i, p));
            for (int64_t c = 0; c < channels; c++) in.insert(in.end(), here.begin(), here.end());
        }
        return in;
    }
};

// Windows that lie apart and are not larger than the image.
inline Active random_unit_windows(std::mt19937_64 &random, int64_t n, const std::vector<int64_t> &size,
                                  double density) {
    Active a;
    std::vector<int64_t> strides, offsets, counts, sizes;
    int64_t rows = 1, cols = 1;
    a.windows.dims = (int32_t)size.size();
    for (size_t d = 0; d < size.size(); d++) {
        a.windows.size[d] = 1 + (int64_t)below(random, (size_t)std::min<int64_t>(size[d], 5));
        a.windows.stride[d] = a.windows.size[d] + (int64_t)below(random, 3);
        a.windows.offset[d] = (int64_t)below(random, 5) - 2;
        a.windows.count[d] = size[d] / a.windows.stride[d] + (int64_t)below(random, 3);
        sizes.push_back(a.windows.size[d]), strides.push_back(a.windows.stride[d]);
        offsets.push_back(a.windows.offset[d]), counts.push_back(a.windows.count[d]);
        rows *= d + 1 < size.size() ? a.windows.count[d] : 1;
        cols = a.windows.count[d];
    }
    a.text = "size=" + numbers(sizes) + " stride=" + numbers(strides) + " offset=" + numbers(offsets) +
             " count=" + numbers(counts);
    a.layout = random_layout({rows, cols, 1, 1, n}, density, random());
    return a;
}

// Every window of an image.
inline Active all_windows(int64_t n, const std::vector<int64_t> &size, int64_t edge) {
    Active a;
    std::vector<int64_t> counts;
    int64_t rows = 1;
    a.windows.dims = (int32_t)size.size();
    for (size_t d = 0; d < size.size(); d++) {
        counts.push_back(grid(size[d], edge));
        a.windows.size[d] = a.windows.stride[d] = edge;
        a.windows.count[d] = counts[d];
        rows *= d + 1 < size.size() ? counts[d] : 1;
    }
    a.text = "size=" + std::to_string(edge) + " count=" + numbers(counts);
    a.layout = random_layout({rows, counts.back(), 1, 1, n}, 1.1, 1);
    return a;
}

inline void fill_unit(Unit &u, std::mt19937_64 &random, double scale) {
    const int32_t sums = tartan_i_sum_dtype(u.dtype);
    for (int i = 0; i < 3; i++) {
        const Layout layout = layout_of(u.conv[i]);
        u.filter[i] = random_matrix(layout, u.dtype, pick(random, {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}),
                                    random, -scale, scale);
        u.gain[i] = Dense(sums, {tartan_conv_out_channels(u.conv[i].get())}, kGaps);
        u.bias[i] = Dense(sums, {tartan_conv_out_channels(u.conv[i].get())});
        u.gain[i].fill(random), u.bias[i].fill(random);
        u.has_gain[i] = below(random, 2) == 0, u.has_bias[i] = below(random, 4) != 0;
    }
    u.x_gain = Dense(sums, {u.channels}), u.x_bias = Dense(sums, {u.channels});
    u.x_gain.fill(random), u.x_bias.fill(random);
    u.has_x_gain = u.preactivate && below(random, 3) != 0;
    u.has_x_bias = u.preactivate && below(random, 3) != 0;
}

// Channels, kernels, images and windows at random.
inline Unit random_unit(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto dims = (size_t)pick(random, {1, 2, 2, 2, 3});
    const auto some = [&] { return (int64_t)below(random, 24) + (below(random, 12) != 0); };
    Unit u;
    u.n = 1 + (int64_t)below(random, 3);
    u.channels = some();
    u.dtype = kDtypes[below(random, 4)];
    u.relu = below(random, 3) != 0, u.preactivate = below(random, 3) == 0;
    const int64_t b = some(), c = some();
    std::vector<int64_t> kernel, dilation;
    const bool even = below(random, 4) == 0;
    for (size_t d = 0; d < dims; d++) {
        kernel.push_back(even ? 1 + (int64_t)below(random, 4)
                              : 1 + 2 * (int64_t)below(random, dims == 3 ? 2 : 3));
        dilation.push_back(1 + (int64_t)below(random, 2));
        u.size.push_back(1 + (int64_t)below(random, dims == 3 ? 7 : dims == 2 ? 13 : 30));
    }
    const auto layout = [&](int64_t rows, int64_t cols) {
        const int64_t br = pick<int64_t>(random, {1, 3, 4, 8, 16}),
                      bc = pick<int64_t>(random, {1, 3, 4, 8, 16});
        return random_layout({rows, cols, br, bc, 1}, pick<double>(random, {0.4, 0.8, 1.1}), random());
    };
    const std::string ones = numbers(std::vector<int64_t>(dims, 1));
    u.conv[0] = make_conv(layout(b, u.channels), "kernel=" + ones);
    u.conv[1] = make_conv(layout(c, b), "kernel=" + numbers(kernel) + " dilation=" + numbers(dilation) +
                                            " padding=" + (even ? "tf" : "same"));
    u.conv[2] = make_conv(layout(u.channels, c), "kernel=" + ones);
    fill_unit(u, random, 0.5);
    u.active = random_unit_windows(random, u.n, u.size, pick<double>(random, {0.0, 0.3, 0.6, 1.1}));
    return u;
}

} // namespace tartan_test

#endif
